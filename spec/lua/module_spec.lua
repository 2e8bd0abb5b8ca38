-- SPDX-License-Identifier: MIT
--
-- module_spec.lua - what `require "idlesched"` returns: the functions that need no pool,
-- and that all of it is what lua/library/idlesched.d.lua says.

local here = debug.getinfo(1, "S").source:match("^@(.*/)") or ""
local support = dofile(here .. "support.lua")
local names_of, check_raises = support.names_of, support.check_raises
local idlesched = require("idlesched")

local types = assert(support.read(here .. "../../lua/library/idlesched.d.lua"))

-- The names of a class of the types file, as the keys of a table.
local function names_in_types(pattern)
  local names = {}
  for name in types:gmatch(pattern) do
    names[name] = true
  end
  assert(next(names), "nothing in the types file matches " .. pattern)
  return names
end

local function fields_in_types(class)
  local body = types:match("\n%-%-%-@class " .. class:gsub("%p", "%%%0") .. "\n(.-)\n\n")
  local names = {}
  for name in body:gmatch("%-%-%-@field ([%w_]+)") do
    names[name] = true
  end
  assert(next(names), "the types file has no fields of " .. class)
  return names, body
end

local function methods_of(object)
  return names_of(debug.getmetatable(object).__index)
end

-- Among words with commas between them.
local function has_word(words, word)
  return ("," .. words .. ","):find("," .. word .. ",", 1, true) ~= nil
end

-- The folder of the process's cgroup of the cpu controller; nil where it is not to be seen.
local function cpu_cgroup()
  local groups = support.read("/proc/self/cgroup") or ""
  local mounts = support.read("/proc/self/mountinfo") or ""
  local v1, v2
  for controllers, name in groups:gmatch("%d+:([^:\n]*):([^\n]*)") do
    for point, kind, options in mounts:gmatch(" / (%S+) [^\n]- %- (%S+) %S+ (%S+)") do
      if kind == "cgroup" and has_word(controllers, "cpu") and has_word(options, "cpu") then
        v1 = point .. name
      elseif kind == "cgroup2" and controllers == "" then
        v2 = point .. name
      end
    end
  end
  return v1 or v2
end

-- The folder of a new one below it, or nil and why there is none.
local function new_cgroup_of_one_cpu()
  local own = cpu_cgroup()
  if not own then
    return nil, "no cgroup of the cpu controller is to be seen"
  end
  local folder = support.first_line_of(("mktemp -d '%s/idlesched-spec-XXXXXX' 2>&1"):format(own))
  if folder:sub(1, 1) ~= "/" then
    return nil, "no cgroup can be made: " .. folder
  end
  local files = { ["cpu.cfs_quota_us"] = "100000", ["cpu.max"] = "100000 100000" }
  for name, quota in pairs(files) do
    if support.read(folder .. "/" .. name) then
      support.write(folder .. "/" .. name, quota)
      return folder
    end
  end
  os.remove(folder)
  return nil, "the cpu controller is not handed down in " .. own
end

local function nothing() end

describe("module", function()
  describe("types file", function()
    it("names exactly the functions and fields that the module has", function()
      local expected = names_in_types("\nfunction idlesched%.([%w_]+)%(")
      expected._VERSION = true
      assert.are.same(expected, names_of(idlesched))
    end)

    it("names exactly the methods that pools, jobs and guards have", function()
      local pool <close> = idlesched.pool({ workers = 1 })
      local job = pool:submit(function() end)
      local guard <close> = idlesched.eager_purge()
      assert.are.same(names_in_types("\nfunction Pool:([%w_]+)%("), methods_of(pool))
      assert.are.same(names_in_types("\nfunction Job:([%w_]+)%("), methods_of(job))
      assert.are.same(names_in_types("\nfunction Guard:([%w_]+)%("), methods_of(guard))
    end)

    it("names exactly the fields of memory(), stats() and the release report", function()
      local pool <close> = idlesched.pool({ workers = 1 })
      local memory = idlesched.memory()
      assert.are.same(fields_in_types("idlesched.Memory"), names_of(memory))
      assert.are.same(fields_in_types("idlesched.HeapMemory"), names_of(memory.heaps[1]))
      assert.are.same(fields_in_types("idlesched.WorkerRow"), names_of(pool:workers()[1]))
      assert.are.same(fields_in_types("idlesched.ReleaseReport"), names_of(pool:release()))

      local stats = pool:stats()
      assert.are.same(fields_in_types("idlesched.PoolStats"), names_of(stats))
      assert.are.same(fields_in_types("idlesched.WorkerStats"), names_of(stats.workers))
      assert.are.same(fields_in_types("idlesched.JobStats"), names_of(stats.jobs))
    end)

    it("names exactly the options of a pool", function()
      local values = {
        name = "x",
        workers = 1,
        min_workers = 1,
        max_blocking = 1,
        idle_release = 1,
        idle_exit = 1,
        dedicated = false,
        queue_limit = 1,
        queue_timeout = 1,
        stack_size = 1 << 20,
        on_start = nothing,
        on_stop = nothing,
        on_release = nothing,
      }
      assert.are.same(fields_in_types("idlesched.PoolOptions"), names_of(values))
      local pool <close> = idlesched.pool(values)
      assert.is_truthy(pool)
    end)

    it("names exactly the options of a job, and the methods of a token", function()
      local token = idlesched.token()
      local values = { priority = 1, delay = 0.001, expire = 60, token = token }
      assert.are.same(fields_in_types("idlesched.JobOptions"), names_of(values))
      assert.are.same(names_in_types("\nfunction Token:([%w_]+)%("), methods_of(token))
      local pool <close> = idlesched.pool({ workers = 1 })
      assert.is_truthy(pool:submit_with(values, nothing):wait(30))
    end)
  end)

  describe("table", function()
    it("is the same for every require, and sets no global", function()
      local result = support.run_well(support.stock, {
        script = [[
          local before = {}
          for name in pairs(_G) do before[name] = true end
          local first = require "idlesched"
          assert(first == require "idlesched")
          assert(type(first) == "table" and getmetatable(first) == nil)
          for name in pairs(_G) do assert(before[name], name) end
          print "fine"
        ]],
      })
      assert.are.equal("fine\n", result.out)
    end)

    it("has the version that the host tells", function()
      local version = idlesched._VERSION:match("^idlesched (%d+%.%d+%.%d+)$")
      assert.is_truthy(version)
      local result = support.run_well(support.host, { arguments = { "-v" } })
      assert.is_truthy(result.out:find("idlesched " .. version .. ",", 1, true))
    end)

    it("may be loaded again: objects of one copy work with functions of the other", function()
      local pool <close> = idlesched.pool({ workers = 1 })
      local _, err = pool:submit(error, "message"):try()
      local loaded = package.loaded.idlesched
      package.loaded.idlesched = nil
      local again = require("idlesched")
      package.loaded.idlesched = loaded
      assert.are_not.equal(idlesched, again)
      assert.is_true(again.is_error(err))
      local other <close> = again.pool({ workers = 1 })
      assert.are.equal(debug.getmetatable(pool), debug.getmetatable(other))
      assert.are.equal(7, pool.submit(other, math.max, 3, 7):result())
    end)
  end)

  describe("cpus", function()
    it("G1 is a whole number from 1 to what nproc counts", function()
      local pipe = assert(io.popen("nproc"))
      local nproc = pipe:read("n")
      pipe:close()
      assert.are.equal("integer", math.type(idlesched.cpus()))
      assert.is_true(idlesched.cpus() >= 1)
      assert.is_true(idlesched.cpus() <= nproc)
    end)

    local print_cpus = [[
      local idlesched = require "idlesched"
      print(idlesched.cpus(), idlesched.pool():stats().workers.max)
    ]]

    it("G1 is 1 for a process that may use one CPU, and so a pool has one worker", function()
      local cpu = support.read("/proc/self/status"):match("Cpus_allowed_list:%s*(%d+)")
      local result = support.run_well(support.stock, {
        prefix = "exec taskset -c " .. cpu,
        script = print_cpus,
      })
      assert.are.equal("1\t1\n", result.out)
    end)

    it("G1 is 1 in a cgroup with a quota of one CPU, and so a pool has one worker", function()
      local group, reason = new_cgroup_of_one_cpu()
      if not group then
        return pending(reason)
      end
      local is_run, result = pcall(support.run_well, support.stock, {
        prefix = ("echo $$ >'%s/cgroup.procs' && exec"):format(group),
        script = print_cpus,
      })
      -- The kernel takes a moment to see the group empty.
      support.await("the cgroup is removed", function()
        return os.remove(group)
      end)
      assert(is_run, result)
      assert.are.equal("1\t1\n", result.out)
    end)
  end)

  describe("clock", function()
    it("G6 tells seconds that never go back", function()
      local last = idlesched.now()
      assert.are.equal("float", math.type(last))
      for _ = 1, 1000 do
        local now = idlesched.now()
        assert.is_true(now >= last)
        last = now
      end
    end)

    it("is on while the thread sleeps, at least for as long as that was asked", function()
      local began = idlesched.now()
      idlesched.sleep(0.03)
      assert.is_true(idlesched.now() - began >= 0.03)
      assert.are.equal(0, select("#", idlesched.sleep(0)))
      assert.are.equal(0, select("#", idlesched.sleep(1e-9)))
    end)

    it("sleep refuses what is no time", function()
      check_raises("bad argument #1", idlesched.sleep, -1)
      check_raises("seconds, 0 or more", idlesched.sleep, -1)
      check_raises("seconds, 0 or more", idlesched.sleep, 0 / 0)
      check_raises("number expected, got nil", idlesched.sleep, nil)
      check_raises("number expected, got no value", idlesched.sleep)
      check_raises("number expected, got table", idlesched.sleep, {})
    end)
  end)

  describe("memory", function()
    it("N4 counts threads as the kernel does", function()
      local function threads()
        return tonumber(support.read("/proc/self/status"):match("Threads:%s*(%d+)"))
      end
      support.await_alone()
      assert.are.equal(1, threads())
      local pool <close> = idlesched.pool({ workers = 3 })
      pool:start_workers()
      support.await_rest(pool)
      assert.are.equal(4, threads())
      assert.are.equal(4, idlesched.memory().threads)
    end)

    it("N4 counts bytes: what is allocated is in it, as whole pages", function()
      support.await_alone()
      collectgarbage()
      collectgarbage("stop") -- what other cases have left must not go meanwhile
      local before = idlesched.memory()
      local text = ("x"):rep(32 * 1024 * 1024)
      local after = idlesched.memory()
      collectgarbage("restart")
      for _, name in ipairs({ "resident", "anonymous", "threads" }) do
        assert.are.equal("integer", math.type(after[name]))
      end
      assert.is_true(after.anonymous - before.anonymous >= #text)
      assert.is_true(after.resident >= after.anonymous)
      assert.are.equal(0, after.resident % 1024)
    end)
  end)

  describe("thread_idle", function()
    it("A22 returns nothing and leaves everything as it is, on any thread", function()
      assert.are.equal(0, select("#", idlesched.thread_idle()))
      local words = {}
      for i = 1, 1000 do
        words[i] = "word " .. i
      end
      coroutine.wrap(idlesched.thread_idle)()
      local pool <close> = idlesched.pool({ workers = 1 })
      local count, last = pool
        :submit(function()
          local kept = {}
          for i = 1, 1000 do
            kept[i] = "word " .. i
          end
          require("idlesched").thread_idle()
          return #kept, kept[1000]
        end)
        :result()
      assert.are.equal(1000, count)
      assert.are.equal("word 1000", last)
      assert.are.equal("word 1000", words[1000])
    end)
  end)

  describe("is_error", function()
    it("knows error objects, and takes anything else for none", function()
      local pool <close> = idlesched.pool({ workers = 1 })
      local _, err = pool:submit(error, "message"):try()
      assert.is_true(idlesched.is_error(err))
      local lookalike = { kind = "error", message = "message", traceback = "" }
      for _, value in ipairs({ "message", 1, true, {}, print, lookalike, io.stdout, pool }) do
        assert.is_false(idlesched.is_error(value))
      end
      assert.is_false(idlesched.is_error(nil))
      assert.is_false(idlesched.is_error(setmetatable({}, { __index = err })))
      check_raises("bad argument #1", idlesched.is_error)
    end)
  end)

  describe("allocator", function()
    it("A16 is the one that was built in, with its version", function()
      local pattern = support.allocator == "system" and "^system$" or "^mimalloc %d+%.%d+%.%d+$"
      assert.is_truthy(idlesched.allocator():match(pattern), idlesched.allocator())
    end)
  end)

  describe("names", function()
    it("with a NUL byte are refused: C would know their beginning only", function()
      local pool <close> = idlesched.pool({ workers = 1 })
      check_raises("option 'name': a string without NUL bytes expected, got one after 'a'",
        idlesched.pool, { name = "a\0b" })
      check_raises("option 'mode': a string without NUL bytes expected, got one after 'drain'",
        pool.close, pool, { mode = "drain\0" })
      check_raises("option 'path': a string without NUL bytes expected, got one after ''",
        idlesched.watch_pressure, { path = "\0" })
      check_raises("#1 to 'idlesched.option' (a string without NUL bytes expected, got one after "
        .. "'purge_mult')", idlesched.option, "purge_mult\0", 1)
      check_raises("unknown option 'timeout', with a NUL byte after that", idlesched.release,
        { ["timeout\0"] = 1 })
    end)
  end)

  describe("objects", function()
    it("refuse others in their place by name, and hide their metatables", function()
      local pool <close> = idlesched.pool({ workers = 1 })
      local job = pool:submit(function() end)
      local guard <close> = idlesched.eager_purge()
      check_raises("idlesched.pool expected, got table", pool.submit, {}, print)
      check_raises("idlesched.pool expected, got idlesched.job", pool.stats, job)
      check_raises("idlesched.job expected, got idlesched.pool", job.result, pool)
      check_raises("idlesched.guard expected, got nil", guard.close, nil)
      for _, object in ipairs({ pool, job, guard }) do
        assert.is_false(getmetatable(object))
      end
    end)
  end)
end)
