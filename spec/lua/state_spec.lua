-- SPDX-License-Identifier: MIT
--
-- state_spec.lua - the Lua state of a worker: when it is made, what is in it, how it is
-- tidied when the worker is idle, and when it ends.

local here = debug.getinfo(1, "S").source:match("^@(.*/)") or ""
local support = dofile(here .. "support.lua")
local idlesched = require("idlesched")

-- Runs on a worker: number of the thread, and how many jobs this state has had.
local function identify()
  -- luacheck: globals jobs_count
  jobs_count = (jobs_count or 0) + 1
  local file = io.open("/proc/thread-self/stat")
  local thread = file:read("n")
  file:close()
  return thread, jobs_count
end

-- Runs on a worker: leave an object in the state, or garbage; when it is finalised, that
-- is written to the file, with the thread that did it.
local function leave_finaliser(path, is_garbage)
  -- luacheck: globals left_finaliser
  local object = setmetatable({}, {
    __gc = function()
      local stat = io.open("/proc/thread-self/stat")
      local thread = stat:read("n")
      stat:close()
      local file = io.open(path, "a")
      file:write("finalised by ", thread, "\n")
      file:close()
    end,
  })
  if not is_garbage then
    left_finaliser = object
  end
  local stat = io.open("/proc/thread-self/stat")
  local thread = stat:read("n")
  stat:close()
  return thread
end

local function await_releases(pool, count)
  return support.await_stats(pool, count .. " releases", function(stats)
    return stats.releases >= count and stats.workers.releasing == 0
  end)
end

local function await_no_threads(pool)
  return support.await_stats(pool, "no thread is left", function(stats)
    return stats.workers.threads == 0
  end)
end

describe("worker's state", function()
  it("is left without the debug hook that a job has set", function()
    local single <close> = idlesched.pool({ workers = 1 })
    local ok = single
      :submit(function()
        debug.sethook(function()
          error("hook")
        end, "c", 1)
      end)
      :try()
    assert.is_nil(ok)
    assert.are.equal(1, single:submit(function() return 1 end):result())
  end)

  describe("life", function()
    it("lasts from job to job on one thread", function()
      local pool <close> = idlesched.pool({ workers = 1, idle_release = 0.01, idle_exit = false })
      local thread = pool:submit(identify):result()
      for count = 2, 5 do
        await_releases(pool, count - 1)
        assert.are.same({ thread, count }, { pool:submit(identify):result() })
      end
    end)

    it("ends with its thread; the next thread makes another", function()
      local pool <close> = idlesched.pool({ workers = 1, idle_exit = 0.02 })
      local threads = {}
      for _ = 1, 3 do
        local thread, count = pool:submit(identify):result()
        assert.are.equal(1, count)
        table.insert(threads, thread)
        await_no_threads(pool)
      end
      assert.is_true(threads[1] ~= threads[2] or threads[2] ~= threads[3])
    end)

    it("belongs to one worker alone", function()
      local pool <close> = idlesched.pool({ workers = 3, idle_exit = false })
      local paths, jobs, last_until = {}, {}, support.last_until
      for i = 1, 3 do
        paths[i] = support.new_path("gate")
        jobs[i] = pool:submit(function(path, number)
          -- luacheck: globals mine
          mine = (mine or 0) + number
          last_until(path, 30)
          return mine
        end, paths[i], i)
      end
      for i = 1, 3 do
        support.await("all three jobs run at the same time", function()
          return jobs[i]:status() == "running"
        end)
      end
      for i = 1, 3 do
        support.write(paths[i], "")
        assert.are.equal(i, jobs[i]:result())
      end
    end)

    it("is made by the first job, not with the thread", function()
      support.await_alone()
      local count = 16
      local pool <close> = idlesched.pool({ workers = count, idle_release = false })
      local none = idlesched.memory().anonymous
      pool:start_workers()
      support.await_rest(pool)
      local started = idlesched.memory().anonymous
      local gates = {}
      for i = 1, count do
        gates[i] = support.hold(pool)
      end
      local used = idlesched.memory().anonymous
      for i = 1, count do
        gates[i]:let_go()
      end
      -- A thread touches a few pages, a state with its libraries a few dozen.
      local detail = ("%d bytes for %d threads, %d for their states"):format(started - none, count,
        used - started)
      assert.is_true(used - started > count * 25e3, detail)
      assert.is_true(started - none < (used - started) / 2, detail)
    end)
  end)

  describe("library", function()
    it("has all that stock Lua has, and no global more", function()
      local pool <close> = idlesched.pool({ workers = 1 })
      local function list_names()
        local names = {}
        for name, value in pairs(_G) do
          table.insert(names, name)
          if type(value) == "table" and value ~= _G and name ~= "arg" then
            for field in pairs(value) do
              table.insert(names, name .. "." .. tostring(field))
            end
          end
        end
        table.sort(names)
        return table.concat(names, "\n")
      end
      local result = support.run_well(support.stock, {
        script = "arg = nil\nlocal list_names = load(io.open('names', 'rb'):read 'a')\n"
          .. "io.write(list_names())",
        folder = (function()
          local folder = support.new_folder("names")
          support.write(folder .. "/names", string.dump(list_names))
          return folder
        end)(),
      })
      assert.are.equal(result.out, pool:submit(list_names):result())
    end)

    it("idlesched is there, whatever package.cpath says, and is the same one", function()
      local path, cpath = package.path, package.cpath
      package.path, package.cpath = "", ""
      local pool <close> = idlesched.pool({ workers = 1 })
      package.path, package.cpath = path, cpath
      local version, allocator, threads, is_same = pool
        :submit(function()
          local idle = require("idlesched")
          local inner <close> = idle.pool({ workers = 1 })
          inner:submit(math.abs, -1):result()
          return idle._VERSION, idle.allocator(), inner:stats().starts, idle == require("idlesched")
        end)
        :result()
      assert.are.equal(idlesched._VERSION, version)
      assert.are.equal(idlesched.allocator(), allocator)
      assert.are.equal(1, threads)
      assert.is_true(is_same)
    end)

    it("finds modules where the state that made the pool found them then", function()
      local folder = support.new_folder("modules")
      support.write(folder .. "/spec_module.lua", "return { answer = 42, from = ... }")
      local path, cpath = package.path, package.cpath
      package.path = folder .. "/?.lua;" .. path
      package.cpath = folder .. "/?.so;" .. cpath
      local pool <close> = idlesched.pool({ workers = 1 })
      local expected = { package.path, package.cpath }
      package.path, package.cpath = path, cpath
      assert.are.same(expected, { pool
        :submit(function()
          return package.path, package.cpath
        end)
        :result() })
      assert.are.equal(42, pool
        :submit(function()
          return require("spec_module").answer
        end)
        :result())
      local other <close> = idlesched.pool({ workers = 1 })
      local _, err = other:submit(require, "spec_module"):try()
      assert.is_truthy(err.message:find("module 'spec_module' not found", 1, true))
    end)

    it("loads a module once for all its jobs", function()
      local folder = support.new_folder("modules")
      support.write(folder .. "/spec_counted.lua", "return { loaded_at = os.clock(), uses = 0 }")
      local path = package.path
      package.path = folder .. "/?.lua;" .. path
      local pool <close> = idlesched.pool({ workers = 1 })
      package.path = path
      for uses = 1, 3 do
        assert.are.equal(uses, pool
          :submit(function()
            local module = require("spec_counted")
            module.uses = module.uses + 1
            return module.uses
          end)
          :result())
      end
    end)

    it("loads C modules", function()
      local pool <close> = idlesched.pool({ workers = 2 })
      for _ = 1, 4 do
        assert.are.equal("directory", pool
          :submit(function()
            return require("lfs").attributes("/", "mode")
          end)
          :result())
      end
    end)

    it("survives a package table that is not what it was", function()
      local saved = package.path
      package.path = nil
      local pool <close> = idlesched.pool({ workers = 1 })
      package.path = saved
      assert.are.equal("", pool
        :submit(function()
          return package.path
        end)
        :result())
    end)
  end)

  describe("end", function()
    for _, how in ipairs({ "idle exit", "close", "the pool's collection" }) do
      it("at " .. how .. " runs the finalisers of what is left, on the worker's thread", function()
        local path = support.new_path("finalised")
        local pool = idlesched.pool({
          workers = 1,
          idle_release = false,
          idle_exit = how == "idle exit" and 0.05 or false,
        })
        local thread = pool:submit(leave_finaliser, path):result()
        if how == "idle exit" then
          await_no_threads(pool)
        elseif how == "close" then
          assert.is_nil(support.read(path))
          pool:close()
        else
          assert.is_nil(support.read(path))
          pool = nil -- luacheck: ignore
          collectgarbage()
          collectgarbage()
        end
        assert.are.equal(("finalised by %d\n"):format(thread), support.read(path))
        if pool then
          pool:close()
        end
      end)
    end

    it("is no matter of how many objects are left, nor of errors among them", function()
      local path = support.new_path("finalised")
      local pool <close> = idlesched.pool({ workers = 1, idle_release = false, idle_exit = 0.02 })
      pool
        :submit(function(target)
          -- luacheck: globals left_finalisers
          left_finalisers = {}
          for i = 1, 1000 do
            left_finalisers[i] = setmetatable({}, {
              __gc = function()
                if i == 500 then
                  local file = io.open(target, "w")
                  file:write("500")
                  file:close()
                end
                error("in a finaliser")
              end,
            })
          end
        end, path)
        :result()
      await_no_threads(pool)
      assert.are.equal("500", support.read(path))
      assert.are.equal(2, pool:submit(math.abs, -2):result())
    end)

    it("closes files that jobs have left open", function()
      local path = support.new_path("unflushed")
      local pool <close> = idlesched.pool({ workers = 1, idle_release = false, idle_exit = 0.02 })
      pool
        :submit(function(target)
          -- luacheck: globals left_file
          left_file = io.open(target, "w")
          left_file:setvbuf("full")
          left_file:write("written late")
        end, path)
        :result()
      await_no_threads(pool)
      assert.are.equal("written late", support.read(path))
    end)
  end)

  describe("release", function()
    it("collects what jobs have left, on the worker's thread", function()
      local path = support.new_path("finalised")
      local pool <close> = idlesched.pool({ workers = 1, idle_release = 0.02, idle_exit = false })
      local thread = pool:submit(leave_finaliser, path, true):result()
      await_releases(pool, 1)
      assert.are.equal(("finalised by %d\n"):format(thread), support.read(path))
    end)

    it("collects what a finaliser of garbage has left in its turn", function()
      local path = support.new_path("finalised")
      local pool <close> = idlesched.pool({ workers = 1, idle_release = 0.02, idle_exit = false })
      pool
        :submit(function(target)
          local function leave_text()
            local text = ("x"):rep(100000)
            return setmetatable({ text }, {
              __gc = function()
                local file = io.open(target, "a")
                file:write("inner\n")
                file:close()
              end,
            })
          end
          setmetatable({}, {
            __gc = function()
              leave_text()
            end,
          })
        end, path)
        :result()
      await_releases(pool, 1)
      assert.are.equal("inner\n", support.read(path))
    end)

    it("keeps what jobs have kept", function()
      local pool <close> = idlesched.pool({ workers = 1, idle_release = 0.01, idle_exit = false })
      pool
        :submit(function()
          -- luacheck: globals kept
          kept = {}
          for i = 1, 1000 do
            kept["key " .. i] = { ("text "):rep(i % 20), i }
          end
        end)
        :result()
      for round = 1, 3 do
        await_releases(pool, round)
        local sum, text = pool
          :submit(function()
            -- luacheck: globals kept
            local total = 0
            for i = 1, 1000 do
              total = total + kept["key " .. i][2]
            end
            return total, kept["key 19"][1]
          end)
          :result()
        assert.are.equal(500500, sum)
        assert.are.equal(("text "):rep(19), text)
      end
    end)

    it("ends although a job has stopped the collector, which stays so", function()
      local path = support.new_path("finalised")
      local pool <close> = idlesched.pool({ workers = 1, idle_release = 0.02, idle_exit = false })
      pool:submit(collectgarbage, "stop"):result()
      pool:submit(leave_finaliser, path, true):result()
      await_releases(pool, 1)
      assert.is_truthy(support.read(path))
      assert.is_false(pool:submit(collectgarbage, "isrunning"):result())
    end)

    it("ends although a job has chosen the generational mode, which stays so", function()
      local path = support.new_path("finalised")
      local pool <close> = idlesched.pool({ workers = 1, idle_release = 0.02, idle_exit = false })
      assert.are.equal("incremental", pool:submit(collectgarbage, "generational"):result())
      pool:submit(leave_finaliser, path, true):result()
      await_releases(pool, 1)
      assert.is_truthy(support.read(path))
      assert.are.equal("generational", pool:submit(collectgarbage, "incremental"):result())
    end)

    it("takes a large state in generational mode no longer than in the other", function()
      local function time_release(mode)
        local pool <close> = idlesched.pool({ workers = 1, idle_release = false })
        pool
          :submit(function(chosen)
            -- luacheck: globals kept
            collectgarbage(chosen)
            kept = {}
            for i = 1, 400000 do
              kept[i] = { i }
            end
          end, mode)
          :result()
        local clock = os.clock()
        assert.is_true(pool:release({ timeout = 60 }).complete)
        return os.clock() - clock
      end
      local incremental = time_release("incremental")
      local generational = time_release("generational")
      assert.is_true(generational < 5 * incremental + 0.1,
        ("%.2f s of CPU, %.2f in incremental mode"):format(generational, incremental))
    end)

    it("ends although a finaliser makes new garbage each time", function()
      local pool <close> = idlesched.pool({ workers = 1, idle_release = 0.02, idle_exit = 0.1 })
      pool
        :submit(function()
          local function make()
            setmetatable({ ("x"):rep(10000) }, { __gc = make })
          end
          make()
        end)
        :result()
      await_releases(pool, 1)
      await_no_threads(pool)
    end)

    describe("broken off by a job", function()
      local pool

      -- A state that takes some hundred steps to collect, on a worker that begins to do
      -- so whenever it has no job.
      before_each(function()
        pool = idlesched.pool({ workers = 1, idle_release = 0, idle_exit = false })
        pool
          :submit(function()
            -- luacheck: globals kept
            kept = {}
            for i = 1, 400000 do
              kept[i] = { i }
            end
          end)
          :result()
      end)

      after_each(function()
        pool:close({ mode = "cancel" })
      end)

      -- On a busy machine one may be over before it was seen: then a job begins another.
      local function await_releasing()
        support.await_stats(pool, "the worker is releasing", function(stats)
          if stats.workers.parked == 1 then
            pool:submit(math.abs, 1):wait()
          end
          return stats.workers.releasing == 1
        end)
      end

      it("N3 lets the job in, and is done after it", function()
        for i = 1, 20 do
          await_releasing()
          assert.are.equal(i, pool:submit(math.abs, -i):result())
        end
        await_releases(pool, 1)
        assert.are.equal(400000, pool
          :submit(function()
            -- luacheck: globals kept
            return #kept
          end)
          :result())
      end)

      it("N3 collects what that job has left, at whatever step it came", function()
        for i = 1, 20 do
          await_releasing()
          idlesched.sleep(i * 0.0015)
          local path = support.new_path("finalised")
          local before = pool:stats().releases
          pool
            :submit(function(target)
              for _ = 1, 100 do
                setmetatable({}, {
                  __gc = function()
                    local file = io.open(target, "a")
                    file:write("x")
                    file:close()
                  end,
                })
              end
            end, path)
            :result()
          await_releases(pool, before + 1)
          support.await("all garbage has been finalised", function()
            return #(support.read(path) or "") == 100
          end, 2, function()
            return #(support.read(path) or "") .. " of 100 were"
          end)
          pool:submit(math.abs, 1):result()
        end
      end)

      it("does not show in the collector's mode", function()
        pool:submit(collectgarbage, "generational"):result()
        for _ = 1, 5 do
          await_releasing()
          assert.are.equal("generational", pool:submit(collectgarbage, "generational"):result())
        end
        await_releases(pool, 1)
        assert.are.equal("generational", pool:submit(collectgarbage, "incremental"):result())
        await_releasing()
        assert.are.equal("incremental", pool:submit(collectgarbage, "incremental"):result())
      end)

      it("ends although that job has chosen the generational mode", function()
        await_releasing()
        pool:submit(collectgarbage, "generational"):result()
        await_releases(pool, 1)
      end)
    end)
  end)
end)
