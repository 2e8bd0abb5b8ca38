-- SPDX-License-Identifier: MIT
--
-- job_spec.lua - submitting functions, and what their handles tell.
--
-- How values travel in detail is value_spec.lua's; here they are part of a job.  This
-- file runs in busted, whose _ENV is a proxy: functions written here that use globals
-- have to work on a worker, as those of any script do.

local here = debug.getinfo(1, "S").source:match("^@(.*/)") or ""
local support = dofile(here .. "support.lua")
local idlesched = require("idlesched")

local function nothing() end

local function pack(...)
  return { n = select("#", ...), ... }
end

local function check_raises(text, fn, ...)
  local ok, err = pcall(fn, ...)
  assert.is_false(ok, "nothing was raised; expected: " .. text)
  assert.is_truthy(tostring(err):find(text, 1, true), ("%q is not in %q"):format(text,
    tostring(err)))
  return err
end

describe("job", function()
  local pool

  before_each(function()
    pool = idlesched.pool({ name = "jobs", workers = 2, idle_exit = false })
  end)

  after_each(function()
    pool:close({ mode = "cancel" })
  end)

  describe("function", function()
    it("gets the arguments and returns any number of results, nils counted", function()
      local function count(...)
        return select("#", ...), ...
      end
      assert.are.same(pack(0), pack(pool:submit(count):result()))
      assert.are.same(pack(1, nil), pack(pool:submit(count, nil):result()))
      assert.are.same(pack(3, nil, "x", nil), pack(pool:submit(count, nil, "x", nil):result()))
      assert.are.same(pack(), pack(pool:submit(nothing):result()))
    end)

    it("gets hundreds of arguments, and returns as many results", function()
      local words = {}
      for i = 1, 240 do
        words[i] = "word " .. i
      end
      local results = pack(pool
        :submit(function(...)
          return ...
        end, table.unpack(words))
        :result())
      words.n = #words
      assert.are.same(words, results)
    end)

    it("may return more results than fit a Lua stack at first", function()
      local results = pack(pool
        :submit(function()
          local numbers = {}
          for i = 1, 20000 do
            numbers[i] = i
          end
          return table.unpack(numbers)
        end)
        :result())
      assert.are.equal(20000, results.n)
      assert.are.equal(20000, results[20000])
    end)

    it("uses the worker's globals, whatever _ENV it was written under", function()
      assert.are_not.equal(_G, _ENV)
      local text, kind = pool
        :submit(function(x)
          return tostring(x) .. string.format("%03d", x), type(print)
        end, 7)
        :result()
      assert.are.equal("7007", text)
      assert.are.equal("function", kind)
    end)

    it("finds none of the sender's globals, and leaves none there", function()
      rawset(_G, "idlesched_spec_global", "the sender's")
      local seen = pool
        :submit(function()
          -- luacheck: globals idlesched_spec_global
          local before = idlesched_spec_global
          idlesched_spec_global = "the worker's"
          return before
        end)
        :result()
      local left = rawget(_G, "idlesched_spec_global")
      rawset(_G, "idlesched_spec_global", nil)
      assert.is_nil(seen)
      assert.are.equal("the sender's", left)
    end)

    it("takes its upvalues along, by copy, as they are when it is submitted", function()
      local counter, settings = 1, { list = { 10 } }
      local held <close> = support.hold(pool)
      local other <close> = support.hold(pool)
      local job = pool:submit(function(argument)
        counter = counter + 1
        settings.list[2] = 20
        return counter, #settings.list, argument[1]
      end, settings.list)
      counter, settings.list[1], settings.list[5] = 100, "changed", 5
      held:let_go()
      other:let_go()
      assert.are.same(pack(2, 2, 10), pack(job:result()))
      assert.are.equal(100, counter)
      assert.are.same({ list = { "changed", nil, nil, nil, 5 } }, settings)
    end)

    it("may call itself, and functions that it shares upvalues with", function()
      local function factorial(n)
        return n == 0 and 1 or n * factorial(n - 1)
      end
      assert.are.equal(3628800, pool:submit(factorial, 10):result())

      local calls = 0
      local function note()
        calls = calls + 1
      end
      assert.are.equal(2, pool
        :submit(function()
          note()
          note()
          return calls
        end)
        :result())
      assert.are.equal(0, calls)
    end)

    it("starts with fresh upvalues each time it is submitted", function()
      local count = 0
      local function increment()
        count = count + 1
        return count
      end
      local single <close> = idlesched.pool({ workers = 1 })
      for _ = 1, 3 do
        assert.are.equal(1, single:submit(increment):result())
      end
    end)

    it("may be one of the libraries', or a module's", function()
      assert.are.equal("ABC", pool:submit(string.upper, "abc"):result())
      assert.are.equal(idlesched.allocator(), pool:submit(idlesched.allocator):result())
    end)

    it("may use the module by an upvalue", function()
      assert.are.equal("number", pool
        :submit(function()
          idlesched.sleep(0)
          return type(idlesched.now())
        end)
        :result())
    end)

    it("may use coroutines, and pcall, and metatables of its own", function()
      assert.are.same(pack(6, false, "caught", "named"), pack(pool
        :submit(function()
          local sum = 0
          for value in coroutine.wrap(function()
            for i = 1, 3 do
              coroutine.yield(i)
            end
          end) do
            sum = sum + value
          end
          local ok, err = pcall(error, "caught")
          local object = setmetatable({}, { __index = { name = "named" } })
          return sum, ok, err, object.name
        end)
        :result()))
    end)

    it("must be a function", function()
      for _, wrong in ipairs({ "print(1)", 1, true, {} }) do
        local ok, err = pcall(function()
          pool:submit(wrong)
        end)
        assert.is_false(ok)
        assert.is_truthy(err:find("job_spec.lua:%d+: bad argument #1 to 'submit'"), err)
        assert.is_truthy(err:find("function expected", 1, true), err)
      end
      check_raises("function expected, got no value", pool.submit, pool)
      assert.are.equal(0, pool:stats().jobs.submitted)
    end)

    it("whose values cannot travel is refused at once, by name, and not queued", function()
      local file = io.stdout
      local ok, err = pcall(function()
        pool:submit(function()
          return file
        end)
      end)
      assert.is_false(ok)
      assert.is_true(idlesched.is_error(err))
      assert.are.equal("transfer", err.kind)
      assert.is_truthy(err.message:find("job_spec.lua:%d+: "), err.message)
      assert.is_truthy(err.message:find("upvalue 'file'", 1, true), err.message)

      err = check_raises("argument 2", pool.submit, pool, print, 1, { { io.stdout } })
      assert.are.equal("transfer", err.kind)
      err = check_raises("argument 1", pool.submit, pool, print, pool)
      assert.are.equal("transfer", err.kind)
      assert.are.equal(0, pool:stats().jobs.submitted)
      assert.are.equal(0, pool:stats().workers.threads)
    end)

    it("G4 whose results cannot travel has failed, and says which", function()
      local job = pool:submit(function()
        return 1, { stream = io.stdout }
      end)
      local ok, err = job:try()
      assert.is_nil(ok)
      assert.are.equal("failed", job:status())
      assert.are.equal("transfer", err.kind)
      assert.is_truthy(err.message:find("result 2.stream", 1, true), err.message)
      assert.are.equal(2, pool:submit(math.abs, -2):result())
    end)

    it("G4 runs to its end although nobody holds the handle", function()
      local path = support.new_path("written")
      pool:submit(function(target)
        local file = io.open(target, "w")
        file:write("done")
        file:close()
      end, path)
      collectgarbage()
      collectgarbage()
      support.await("the job has written its file", function()
        return support.read(path) == "done"
      end)
      assert.is_true(pool:wait())
      assert.are.equal(1, pool:stats().jobs.done)
    end)
  end)

  describe("order", function()
    it("is first in, first out", function()
      local single <close> = idlesched.pool({ workers = 1 })
      local held <close> = support.hold(single)
      local jobs = {}
      for i = 1, 50 do
        jobs[i] = single:submit(function()
          -- luacheck: globals turn
          turn = (turn or 0) + 1
          return turn
        end)
      end
      held:let_go()
      for i = 1, 50 do
        assert.are.equal(i, jobs[i]:result())
      end
    end)

    it("lets free workers go on beside one that is held up", function()
      local _ <close> = support.hold(pool)
      for i = 1, 20 do
        assert.are.equal(i, pool:submit(math.abs, -i):result())
      end
    end)
  end)

  describe("status", function()
    it("is queued, running and done", function()
      local first <close> = support.hold(pool)
      local second <close> = support.hold(pool)
      local third = pool:submit(nothing)
      assert.are.equal("running", first.job:status())
      assert.are.equal("queued", third:status())
      assert.are.equal("idlesched.job: queued", tostring(third))
      first:let_go()
      second:let_go()
      assert.is_true(third:wait())
      assert.are.equal("done", third:status())
      assert.are.equal("idlesched.job: done", tostring(third))
    end)

    it("G4 is failed after an error, and cancelled for what will not run", function()
      local failing = pool:submit(error, "on purpose")
      failing:wait()
      assert.are.equal("failed", failing:status())
      local first <close> = support.hold(pool)
      local second <close> = support.hold(pool)
      local dropped = pool:submit(nothing)
      pool:close({ mode = "cancel", timeout = 0 })
      assert.are.equal("cancelled", dropped:status())
      assert.are.equal("idlesched.job: cancelled", tostring(dropped))
      first:let_go()
      second:let_go()
    end)
  end)

  describe("wait", function()
    it("answers true once the job has ended, in whatever way", function()
      assert.is_true(pool:submit(nothing):wait())
      assert.is_true(pool:submit(nothing):wait(math.huge))
      local failing = pool:submit(error)
      assert.is_true(failing:wait(30))
      assert.is_true(failing:wait(0))
    end)

    it("answers nil and timeout when its time is over, and not earlier", function()
      local held <close> = support.hold(pool)
      assert.are.same(pack(nil, "timeout"), pack(held.job:wait(0)))
      local began = idlesched.now()
      assert.are.same(pack(nil, "timeout"), pack(held.job:wait(0.05)))
      assert.is_true(idlesched.now() - began >= 0.05)
      held:let_go()
      assert.is_true(held.job:wait())
    end)

    it("refuses what is no time", function()
      local job = pool:submit(nothing)
      for _, method in ipairs({ "wait", "result", "try" }) do
        for _, wrong in ipairs({ -1, -math.huge, 0 / 0 }) do
          check_raises("seconds, 0 or more, expected, got", job[method], job, wrong)
        end
        for _, wrong in ipairs({ "soon", {}, true }) do
          check_raises("number expected", job[method], job, wrong)
        end
      end
    end)

    it("may be called by a job of another pool for a job of its own", function()
      local value = pool
        :submit(function()
          local idle = require("idlesched")
          local own <close> = idle.pool({ workers = 1 })
          local job = own:submit(function()
            return "from within"
          end)
          assert(job:wait())
          return job:result()
        end)
        :result()
      assert.are.equal("from within", value)
    end)
  end)

  describe("result", function()
    it("may be read as often as you like, and is the same each time", function()
      local job = pool:submit(function()
        return { 1, 2 }, nil, "text", nil
      end)
      local first = pack(job:result())
      local second = pack(job:result())
      local third = pack(job:try())
      assert.are.equal(4, first.n)
      assert.are.same({ 1, 2 }, first[1])
      assert.are.equal(first[1], second[1])
      assert.are.equal(first[1], third[2])
      assert.are.equal(5, third.n)
    end)

    it("raises the error object, and always the same", function()
      local job = pool:submit(error, "on purpose", 0)
      local ok, err = pcall(job.result, job)
      assert.is_false(ok)
      assert.is_true(idlesched.is_error(err))
      assert.are.equal("on purpose", err.message)
      local _, again = pcall(job.result, job)
      assert.are.equal(err, again)
      assert.are.equal(err, select(2, job:try()))
    end)

    it("raises timeout and cancelled as plain strings", function()
      local first <close> = support.hold(pool)
      local second <close> = support.hold(pool)
      local queued = pool:submit(nothing)
      assert.are.same(pack(false, "timeout"), pack(pcall(queued.result, queued, 0)))
      assert.are.same(pack(false, "timeout"), pack(pcall(queued.result, queued, 0.02)))
      assert.are.same(pack(false, "timeout"), pack(pcall(first.job.result, first.job, 0)))
      pool:close({ mode = "cancel", timeout = 0 })
      assert.are.same(pack(false, "cancelled"), pack(pcall(queued.result, queued)))
      assert.are.same(pack(false, "cancelled"), pack(pcall(queued.result, queued, 0)))
      first:let_go()
      second:let_go()
    end)

    it("of a job that ended late is still there after a timeout", function()
      local held <close> = support.hold(pool)
      assert.are.same(pack(nil, "timeout"), pack(held.job:try(0)))
      held:let_go()
      assert.are.equal("let go", held.job:result())
    end)

    it("that cannot be received is told by an error object, until it can be", function()
      local folder = support.new_folder("modules")
      support.write(folder .. "/spec_result.lua", "return setmetatable({ answer = 42 }, {})")
      local path = package.path
      package.path = folder .. "/?.lua;" .. path
      local single <close> = idlesched.pool({ workers = 1 })
      package.path = path
      local job = single:submit(require, "spec_result")
      for _ = 1, 2 do
        local ok, err = job:try()
        assert.is_nil(ok)
        assert.is_true(idlesched.is_error(err))
        assert.are.equal("transfer", err.kind)
        assert.is_truthy(err.message:find("spec_result", 1, true), err.message)
        err = check_raises("spec_result", job.result, job)
        assert.is_true(idlesched.is_error(err))
      end
      assert.are.equal("done", job:status())
      package.path = folder .. "/?.lua;" .. path
      local ok, module = job:try()
      package.path = path
      assert.is_true(ok)
      assert.are.equal(42, module.answer)
      assert.are.equal(require("spec_result"), module)
    end)

    it("outlives the pool and its worker's Lua state", function()
      local jobs = {}
      do
        local brief = idlesched.pool({ workers = 1, idle_exit = 0.01 })
        for i = 1, 5 do
          jobs[i] = brief:submit(function(n)
            return { text = ("x"):rep(n) }
          end, i * 1000)
        end
        support.await_stats(brief, "the thread has ended", function(stats)
          return stats.jobs.done == 5 and stats.workers.threads == 0
        end)
        brief:close()
      end
      collectgarbage()
      for i = 1, 5 do
        assert.are.equal(i * 1000, #jobs[i]:result().text)
      end
    end)
  end)

  describe("try", function()
    it("answers true and the results, or nil and the reason", function()
      assert.are.same(pack(true), pack(pool:submit(nothing):try()))
      assert.are.same(pack(true, nil), pack(pool
        :submit(function()
          return nil
        end)
        :try()))
      assert.are.same(pack(true, false, nil, 3), pack(pool
        :submit(function()
          return false, nil, 3
        end)
        :try(30)))
      local answer = pack(pool:submit(error, "on purpose"):try())
      assert.are.equal(2, answer.n)
      assert.is_nil(answer[1])
      assert.is_true(idlesched.is_error(answer[2]))
    end)

    it("answers nil with timeout and cancelled, without raising", function()
      local first <close> = support.hold(pool)
      local second <close> = support.hold(pool)
      local queued = pool:submit(nothing)
      assert.are.same(pack(nil, "timeout"), pack(queued:try(0)))
      assert.are.same(pack(nil, "timeout"), pack(queued:try(0.02)))
      pool:close({ mode = "cancel", timeout = 0 })
      assert.are.same(pack(nil, "cancelled"), pack(queued:try()))
      first:let_go()
      second:let_go()
    end)
  end)

  describe("worker", function()
    it("C13 keeps neither arguments nor results of a job that has ended", function()
      local single <close> = idlesched.pool({ workers = 1, idle_release = false })
      single
        :submit(function(argument)
          -- luacheck: globals traces
          local result = { "result" }
          traces = setmetatable({ [argument] = "argument", [result] = "result" }, { __mode = "k" })
          return result
        end, { "argument" })
        :result()
      local left = single
        :submit(function()
          -- luacheck: globals traces
          collectgarbage()
          local names = {}
          for _, name in pairs(traces) do
            table.insert(names, name)
          end
          return table.concat(names, " ")
        end)
        :result()
      assert.are.equal("", left)
    end)

    it("C13 keeps nothing of a job that has failed", function()
      local single <close> = idlesched.pool({ workers = 1, idle_release = false })
      single
        :submit(function(argument)
          -- luacheck: globals traces
          local value = { "value" }
          traces = setmetatable({ [argument] = "argument", [value] = "value" }, { __mode = "k" })
          error(value)
        end, { "argument" })
        :try()
      local left = single
        :submit(function()
          -- luacheck: globals traces
          collectgarbage()
          return next(traces) == nil
        end)
        :result()
      assert.is_true(left)
    end)

    for _, program in ipairs(support.programs) do
      it("C14 that has no memory for a job fails that job, and runs the next, under "
        .. program.name, function()
        local result = support.run_well(program.path, {
          prefix = "ulimit -v 300000; exec",
          script = [[
            local idlesched = require "idlesched"
            local pool <close> = idlesched.pool { name = "small", workers = 1 }
            local job = pool:submit(function()
              local kept = {}
              for i = 1, 1000 do kept[i] = ("x"):rep(1 << 24) .. i end
            end)
            local ok, err = job:try()
            print(ok, job:status(), err.kind, err.message, err.pool, err.worker)
            print(pool:submit(math.abs, -2):result())
            print(pool:close())
          ]],
        })
        assert.are.equal("nil\tfailed\tmemory\tnot enough memory\tsmall\t1\n2\ntrue\n", result.out)
      end)
    end

    it("C14 whose stack a job overflows fails that job, and runs the next", function()
      local single <close> = idlesched.pool({ workers = 1 })
      local _, err = single
        :submit(function()
          local function descend(n)
            return 1 + descend(n + 1)
          end
          return descend(1)
        end)
        :try()
      assert.is_truthy(err.message:find("stack overflow", 1, true))
      _, err = single
        :submit(function()
          local function descend()
            return (("x"):gsub("x", descend))
          end
          return descend()
        end)
        :try()
      assert.is_truthy(err.message:find("stack overflow", 1, true), err.message)
      assert.are.equal(2, single:submit(math.abs, -2):result())
    end)

    it("C14 whose jobs all fail still serves, and the pool closes", function()
      local jobs = {}
      for i = 1, 200 do
        jobs[i] = pool:submit(error, { number = i })
      end
      for i = 1, 200 do
        local _, err = jobs[i]:try()
        assert.are.equal(i, err.value.number)
      end
      assert.are.equal(2, pool:submit(math.abs, -2):result())
      assert.is_true(pool:wait(30)) -- a job counts a moment after its result is there
      assert.are.equal(200, pool:stats().jobs.failed)
      assert.is_true(pool:close())
    end)
  end)

  describe("load", function()
    it("G4 of thousands of jobs from a crowd of workers gives each its own result", function()
      local crowd <close> = idlesched.pool({ workers = 16, idle_release = 0, idle_exit = 0.005 })
      local jobs, count = {}, 3000
      for i = 1, count do
        jobs[i] = crowd:submit(function(n, list)
          return n * 2, { list[1] .. n }
        end, i, { "job " })
      end
      for i = 1, count do
        local double, list = jobs[i]:result()
        assert(double == 2 * i and list[1] == "job " .. i)
      end
      local stats = support.await_rest(crowd)
      assert.are.equal(count, stats.jobs.done)
      assert.are.equal(stats.wakes, stats.polls)
    end)
  end)
end)
