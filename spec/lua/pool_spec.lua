-- SPDX-License-Identifier: MIT
--
-- pool_spec.lua - pools from a script's side: options, threads that come and go,
-- releases, waiting, numbers, and the ways to end one.
--
-- What needs a clock that can be held is shown by the C specs.  Here times are only
-- ever compared with limits that a loaded machine keeps as well: not earlier than.

local here = debug.getinfo(1, "S").source:match("^@(.*/)") or ""
local support = dofile(here .. "support.lua")
local idlesched = require("idlesched")

local function nothing() end

-- Call fn, which must raise; its message is to begin with where this was called from,
-- and to contain the text.
local function check_misuse(text, fn)
  local ok, err = pcall(fn)
  assert.is_false(ok, "nothing was raised; expected: " .. text)
  assert.are.equal("string", type(err))
  assert.is_truthy(err:find("pool_spec.lua:%d+: "), "no position of the caller in " .. err)
  assert.is_truthy(err:find(text, 1, true), ("%q is not in %q"):format(text, err))
end

-- Names of this process's threads.
local function thread_names()
  local names = {}
  local list = assert(io.popen("cat /proc/" .. support.read("/proc/self/stat"):match("%d+")
    .. "/task/*/comm 2>/dev/null"))
  for name in list:lines() do
    names[name] = (names[name] or 0) + 1
  end
  list:close()
  return names
end

describe("pool", function()
  describe("options", function()
    it("are optional, and so is the table", function()
      local first <close> = idlesched.pool()
      local second <close> = idlesched.pool(nil)
      local third <close> = idlesched.pool({})
      for _, pool in ipairs({ first, second, third }) do
        assert.are.equal(1, pool:submit(math.abs, -1):result())
      end
    end)

    it("G1 make as many workers as there are CPUs, unless told otherwise", function()
      local default <close> = idlesched.pool()
      assert.are.equal(idlesched.cpus(), default:stats().workers.max)
      for _, count in ipairs({ 1, 7, 1024, 2.0 }) do
        local pool <close> = idlesched.pool({ workers = count })
        assert.are.equal(count, pool:stats().workers.max)
      end
    end)

    it("that are unknown are refused, with the nearest name", function()
      for wrong, meant in pairs({
        worker = "workers",
        Workers = "workers",
        idle_relase = "idle_release",
        idleexit = "idle_exit",
        nmae = "name",
        dedicate = "dedicated",
      }) do
        local text = ("unknown option '%s', did you mean '%s'?"):format(wrong, meant)
        check_misuse(text, function()
          idlesched.pool({ [wrong] = 1 })
        end)
      end
      local known = "name, workers, min_workers, idle_release, idle_exit, dedicated, max_blocking, "
        .. "queue_limit, queue_timeout, stack_size, on_start, on_stop, on_release"
      check_misuse("unknown option 'foo'; known are " .. known, function()
        idlesched.pool({ foo = 1 })
      end)
      check_misuse("option names are strings, got key 1", function()
        idlesched.pool({ "images" })
      end)
    end)

    it("that have a wrong value are refused, with it and with what is right", function()
      local function check(name, value, expected, got)
        check_misuse(("option '%s': %s expected, got %s"):format(name, expected, got), function()
          idlesched.pool({ [name] = value })
        end)
      end
      local count = "a whole number from 0 to 1024"
      check("workers", -1, count, "-1")
      check("workers", 1025, count, "1025")
      check("workers", 1.5, count, "1.5")
      check("workers", "2", count, "'2'")
      check("workers", true, count, "true")
      check("max_blocking", -1, count, "-1")
      check("min_workers", 1025, count, "1025")
      local seconds = "seconds (0 or more) or false"
      for _, name in ipairs({ "idle_release", "idle_exit", "queue_timeout" }) do
        check(name, -0.5, seconds, "-0.5")
        check(name, 0 / 0, seconds, tostring(0 / 0))
        check(name, "1", seconds, "'1'")
        check(name, true, seconds, "true")
      end
      check("dedicated", 1, "true or false", "1")
      check("dedicated", "yes", "true or false", "'yes'")
      check("name", 1, "a string", "1")
      check("name", false, "a string", "false")
    end)

    it("come in a table and in nothing else", function()
      check_misuse("table expected, got number", function()
        idlesched.pool(4)
      end)
      check_misuse("table expected, got string", function()
        idlesched.pool("images")
      end)
    end)

    it("may have fields by way of a metatable", function()
      local defaults = { workers = 3 }
      local pool <close> = idlesched.pool(setmetatable({}, { __index = defaults }))
      assert.are.equal(3, pool:stats().workers.max)
    end)

    it("give threads the first 15 bytes of the pool's name", function()
      local pool <close> = idlesched.pool({ name = "spec-pool-123456789", workers = 2 })
      assert.is_true(pool:start_workers())
      support.await_rest(pool)
      assert.are.equal(2, thread_names()["spec-pool-12345"])
    end)

    it("show in the pool's text, which tells what it does", function()
      local pool <close> = idlesched.pool({ name = "images", workers = 4, idle_exit = false })
      assert.are.equal("idlesched.pool: images (0 of 4 workers have a thread, 0 active, 0 queued)",
        tostring(pool))
      pool:submit(nothing):wait()
      support.await_rest(pool)
      assert.are.equal("idlesched.pool: images (1 of 4 workers have a thread, 0 active, 0 queued)",
        tostring(pool))
    end)
  end)

  describe("threads", function()
    it("are not started before the first job", function()
      support.await_alone()
      local pool <close> = idlesched.pool({ workers = 8 })
      assert.are.equal(0, pool:stats().workers.threads)
      assert.are.equal(0, pool:active())
      assert.are.equal(1, idlesched.memory().threads)
    end)

    it("G7 are no more than jobs ask for, and never more than workers", function()
      local pool <close> = idlesched.pool({ workers = 2, idle_exit = false })
      for _ = 1, 20 do
        pool:submit(nothing):wait()
        support.await_rest(pool)
      end
      assert.are.equal(1, pool:stats().workers.threads)

      local first <close> = support.hold(pool)
      local second <close> = support.hold(pool)
      local third = pool:submit(nothing)
      support.check_stays("the third job waits for a worker", 0.1, function()
        local stats = pool:stats()
        return stats.workers.threads == 2 and stats.jobs.queued == 1 and third:status() == "queued"
      end)
      assert.are.equal(2, pool:active())
      first:let_go()
      assert.is_true(third:wait())
      second:let_go()
    end)

    it("start ahead of jobs with start_workers()", function()
      local pool <close> = idlesched.pool({ workers = 5, idle_exit = false })
      assert.is_true(pool:start_workers(0))
      assert.are.equal(0, pool:stats().workers.threads)
      assert.is_true(pool:start_workers(2))
      assert.are.equal(2, support.await_rest(pool).workers.threads)
      assert.is_true(pool:start_workers(1))
      assert.are.equal(2, support.await_rest(pool).workers.threads)
      assert.is_true(pool:start_workers())
      assert.are.equal(5, support.await_rest(pool).workers.threads)
      assert.is_true(pool:start_workers(1000))
      local stats = support.await_rest(pool)
      assert.are.equal(5, stats.workers.threads)
      assert.are.equal(5, stats.starts)
      assert.are.equal(0, stats.jobs.submitted)
    end)

    it("start_workers() refuses what is no count", function()
      local pool <close> = idlesched.pool({ workers = 2 })
      for _, count in ipairs({ -1, 1025, 1.5, "many", {} }) do
        check_misuse("bad argument #1 to 'start_workers'", function()
          pool:start_workers(count)
        end)
      end
    end)

    for _, program in ipairs(support.programs) do
      it("G2 that the system refuses are an answer; jobs are run by those there are, under "
        .. program.name, function()
        local result = support.run_well(program.path, {
          -- Many arenas of the C library would take what is kept for the jobs.
          prefix = "ulimit -v 600000; export MALLOC_ARENA_MAX=1; exec",
          script = [[
            local idlesched = require "idlesched"
            local ballast = ("x"):rep(1 << 26) -- what jobs will need
            local crowd <close> = idlesched.pool { workers = 1024, idle_release = false }
            local ok, message, number = crowd:start_workers()
            assert(ok == nil and type(message) == "string" and math.type(number) == "integer")
            print(number)
            assert(crowd:stats().starts_refused >= 1)

            -- Threads that have just begun still take memory and give it back: until
            -- none is left for one thread more, another pool may get it.
            local late, job, why, code
            repeat
              while crowd:start_workers() do end
              late = idlesched.pool { workers = 1 }
              job, why, code = late:submit(math.abs, -2)
              if job then late:close() end
            until not job
            assert(type(why) == "string" and code == number)
            local stats = late:stats()
            assert(stats.jobs.submitted == 0 and stats.jobs.queued == 0)
            assert(stats.workers.threads == 0 and stats.workers.active == 0)
            assert(late:wait(0) == true)

            ballast = nil
            collectgarbage()
            assert(crowd:submit(math.abs, -1):result() == 1)
            assert(crowd:wait(30))
            assert(crowd:close())
            assert(late:submit(math.abs, -2):result() == 2)
            late:close()
          ]],
        })
        assert.are.equal("11\n", result.out) -- EAGAIN
      end)
    end
  end)

  describe("idle worker", function()
    it("A1 releases after idle_release, and not earlier", function()
      local pool <close> = idlesched.pool({ workers = 1, idle_release = 0.15, idle_exit = false })
      local began = idlesched.now()
      pool:submit(nothing):wait()
      support.await_stats(pool, "the worker has released", function(stats)
        return stats.releases == 1
      end)
      assert.is_true(idlesched.now() - began >= 0.15)
      assert.are.equal(1, support.await_rest(pool).workers.parked)
    end)

    it("A1 releases 0.1 s after its last job where nothing else is said", function()
      local pool <close> = idlesched.pool({ workers = 1 })
      local began = idlesched.now()
      pool:submit(nothing):wait()
      support.await_stats(pool, "the worker has released", function(stats)
        return stats.releases == 1
      end)
      assert.is_true(idlesched.now() - began >= 0.1)
      assert.are.equal(0, pool:stats().exits)
    end)

    it("A2 that gets its next job in time does not release", function()
      local pool <close> = idlesched.pool({ workers = 1, idle_release = 60, idle_exit = false })
      for _ = 1, 200 do
        pool:submit(nothing):wait()
      end
      assert.are.equal(0, support.await_rest(pool).releases)
    end)

    it("A3 that exits no later than it would release only exits", function()
      for _, idle_release in ipairs({ 0.05, 0.5 }) do
        local pool <close> = idlesched.pool({
          workers = 1,
          idle_release = idle_release,
          idle_exit = 0.05,
        })
        pool:submit(nothing):wait()
        local stats = support.await_stats(pool, "the thread has ended", function(stats)
          return stats.workers.threads == 0
        end)
        assert.are.equal(1, stats.exits)
        assert.are.equal(0, stats.releases)
      end
    end)

    it("A4 releases once, and again after its next job", function()
      local pool <close> = idlesched.pool({ workers = 1, idle_release = 0.01, idle_exit = false })
      for round = 1, 3 do
        pool:submit(nothing):wait()
        support.await_stats(pool, "the worker has released", function(stats)
          return stats.releases >= round
        end)
        support.check_stays("there was one release", 0.1, function()
          return pool:stats().releases == round
        end)
      end
    end)

    it("A5 that never had a job releases once as well", function()
      local pool <close> = idlesched.pool({ workers = 3, idle_release = 0.02, idle_exit = false })
      pool:start_workers()
      support.await_stats(pool, "three workers have released", function(stats)
        return stats.releases == 3
      end)
      support.check_stays("each has released once", 0.1, function()
        return pool:stats().releases == 3
      end)
    end)

    it("A10 is not active: neither waiting, nor after a release, nor gone", function()
      local pool <close> = idlesched.pool({ workers = 4, idle_release = 0.02, idle_exit = 0.2 })
      local jobs = {}
      for i = 1, 40 do
        jobs[i] = pool:submit(math.abs, -i)
      end
      for i = 1, 40 do
        jobs[i]:wait()
      end
      assert.are.equal(0, support.await_rest(pool).workers.active)
      local stats = support.await_stats(pool, "all threads have ended", function(stats)
        return stats.workers.threads == 0
      end)
      assert.are.equal(0, pool:active())
      assert.are.equal(stats.wakes, stats.polls)
      assert.are.equal(stats.starts, stats.exits)
    end)

    it("A10 adds up with the others in every snapshot under load", function()
      local pool <close> = idlesched.pool({ workers = 4, idle_release = 0, idle_exit = 0.01 })
      local function check(stats)
        local workers, jobs = stats.workers, stats.jobs
        assert.are.equal(workers.running + workers.tickets, workers.active)
        assert.are.equal(workers.starting + workers.running + workers.parked + workers.releasing
          + workers.exiting, workers.threads)
        assert.are.equal(jobs.queued + jobs.running + jobs.done + jobs.failed + jobs.cancelled,
          jobs.submitted)
        assert.is_true(workers.threads <= workers.max)
        assert.is_true(jobs.queued == 0 or workers.active > 0 or workers.starting > 0)
        assert.is_true(stats.polls <= stats.wakes)
      end
      for i = 1, 500 do
        pool:submit(i % 3 == 0 and error or math.abs, i)
        check(pool:stats())
      end
      while not pool:wait(0) do
        check(pool:stats())
      end
      local stats = support.await_rest(pool)
      check(stats)
      assert.are.equal(stats.wakes, stats.polls)
      assert.are.equal(166, stats.jobs.failed)
      assert.are.equal(334, stats.jobs.done)
    end)

    it("A13 ends its thread after idle_exit, not earlier; the next job starts one", function()
      support.await_alone()
      local pool <close> = idlesched.pool({ workers = 2, idle_release = 0.02, idle_exit = 0.2 })
      for round = 1, 2 do
        local began = idlesched.now()
        assert.are.equal(round, pool:submit(math.abs, -round):result())
        local stats = support.await_stats(pool, "no thread is left", function(stats)
          return stats.workers.threads == 0
        end)
        assert.is_true(idlesched.now() - began >= 0.2)
        assert.are.equal(round, stats.exits)
        assert.are.equal(round, stats.starts)
        assert.are.equal(round, stats.releases)
        support.await_alone()
      end
    end)

    it("A13 purges when its thread ends", function()
      local pool <close> = idlesched.pool({ workers = 1, idle_release = false, idle_exit = 0.05 })
      local purges = pool:stats().purges
      pool:submit(nothing):wait()
      support.await_stats(pool, "the thread has ended and purged", function(stats)
        return stats.workers.threads == 0 and stats.purges > purges
      end)
    end)

    it("A23 releases each time it finds nothing with idle_release = 0", function()
      local pool <close> = idlesched.pool({ workers = 1, idle_release = 0, idle_exit = false })
      for round = 1, 10 do
        pool:submit(nothing):wait()
        support.await_stats(pool, "the worker has released", function(stats)
          return stats.releases == round and stats.workers.parked == 1
        end)
      end
    end)

    it("A23 takes 0 as at once, and not as the default", function()
      local pool <close> = idlesched.pool({ workers = 1, idle_release = 0, idle_exit = 0.09 })
      pool:submit(nothing):wait()
      local stats = support.await_stats(pool, "the thread has ended", function(stats)
        return stats.workers.threads == 0
      end)
      assert.are.equal(1, stats.releases) -- 0.1 s would be after the exit
      assert.are.equal(1, stats.exits)

      local brief <close> = idlesched.pool({ workers = 1, idle_exit = 0 })
      brief:submit(nothing):wait()
      stats = support.await_stats(brief, "the thread has ended", function(numbers)
        return numbers.workers.threads == 0
      end, 8) -- the default is 10 s
      assert.are.equal(0, stats.releases)
      assert.are.equal(1, stats.exits)
    end)

    it("A23 neither releases nor exits where both are false", function()
      local pool <close> = idlesched.pool({ workers = 1, idle_release = false, idle_exit = false })
      pool:submit(nothing):wait()
      support.check_stays("the worker is parked", 0.4, function()
        local stats = pool:stats()
        return stats.releases == 0 and stats.exits == 0 and stats.workers.threads == 1
      end)
    end)

    it("A23 may be told to wait for very long", function()
      for _, seconds in ipairs({ math.huge, 1e300, math.maxinteger }) do
        local pool <close> = idlesched.pool({
          workers = 1,
          idle_release = seconds,
          idle_exit = seconds,
        })
        pool:submit(nothing):wait()
        assert.are.equal(0, support.await_rest(pool).releases)
      end
    end)
  end)

  describe("wait", function()
    it("answers true when nothing is queued and nothing runs", function()
      local pool <close> = idlesched.pool({ workers = 2 })
      assert.is_true(pool:wait())
      assert.is_true(pool:wait(0))
      local jobs = {}
      for i = 1, 50 do
        jobs[i] = pool:submit(math.abs, i)
      end
      assert.is_true(pool:wait())
      for i = 1, 50 do
        assert.are.equal("done", jobs[i]:status())
      end
    end)

    it("answers nil and timeout when its time is over, and not earlier", function()
      local pool <close> = idlesched.pool({ workers = 1 })
      local held <close> = support.hold(pool)
      assert.are.same({ nil, "timeout" }, { pool:wait(0) })
      local began = idlesched.now()
      assert.are.same({ nil, "timeout" }, { pool:wait(0.05) })
      assert.is_true(idlesched.now() - began >= 0.05)
      held:let_go()
      assert.is_true(pool:wait(math.huge))
    end)

    it("refuses what is no time", function()
      local pool <close> = idlesched.pool({ workers = 1 })
      for _, wrong in ipairs({ -1, 0 / 0, "soon", {}, false }) do
        check_misuse("bad argument #1 to 'wait'", function()
          pool:wait(wrong)
        end)
      end
    end)
  end)

  describe("close", function()
    -- Let the held job go a little later, when this thread is busy closing the pool.
    local function let_go_later(held)
      local helper = idlesched.pool({ workers = 1 })
      helper:submit(function(path)
        require("idlesched").sleep(0.05)
        io.open(path, "w"):close()
      end, held.path)
      return helper
    end

    it("G3 drains by default: what is queued is run", function()
      local pool <close> = idlesched.pool({ workers = 1 })
      local held <close> = support.hold(pool)
      local jobs = {}
      for i = 1, 20 do
        jobs[i] = pool:submit(math.abs, -i)
      end
      local _ <close> = let_go_later(held)
      assert.is_true(pool:close({ timeout = 30 }))
      assert.are.equal("let go", held.job:result())
      for i = 1, 20 do
        assert.are.equal("done", jobs[i]:status())
        assert.are.equal(i, jobs[i]:result())
      end
      assert.are.equal(0, pool:stats().workers.threads)
      assert.are.equal(21, pool:stats().jobs.done)
    end)

    it("G3 with mode cancel drops what is queued, and lets finish what runs", function()
      local pool <close> = idlesched.pool({ workers = 1 })
      local held <close> = support.hold(pool)
      local queued = {}
      for i = 1, 20 do
        queued[i] = pool:submit(nothing)
      end
      local _ <close> = let_go_later(held)
      assert.is_true(pool:close({ mode = "cancel", timeout = 30 }))
      assert.are.equal("let go", held.job:result())
      for i = 1, 20 do
        assert.are.equal("cancelled", queued[i]:status())
        assert.are.same({ nil, "cancelled" }, { queued[i]:try() })
      end
      local jobs = pool:stats().jobs
      assert.are.equal(1, jobs.done)
      assert.are.equal(20, jobs.cancelled)
    end)

    it("G3 waits no longer than its time for what runs, and says so", function()
      for _, mode in ipairs({ "drain", "cancel" }) do
        local pool = idlesched.pool({ workers = 2 })
        local held <close> = support.hold(pool)
        local other <close> = support.hold(pool)
        local queued = pool:submit(nothing)
        local began = idlesched.now()
        assert.are.same({ nil, "timeout" }, { pool:close({ mode = mode, timeout = 0.1 }) })
        assert.is_true(idlesched.now() - began >= 0.1)
        assert.are.equal("cancelled", queued:status())
        assert.are.equal("running", held.job:status())
        held:let_go()
        other:let_go()
        assert.are.equal("let go", held.job:result())
        assert.are.equal("let go", other.job:result())
        support.await_stats(pool, "the threads have left", function(stats)
          return stats.workers.threads == 0 and stats.jobs.done == 2
        end)
      end
    end)

    it("G3 does not wait at all with a timeout of 0", function()
      local pool = idlesched.pool({ workers = 1 })
      local _ <close> = support.hold(pool)
      local queued = pool:submit(nothing)
      local began = idlesched.now()
      assert.are.same({ nil, "timeout" }, { pool:close({ timeout = 0 }) })
      assert.is_true(idlesched.now() - began < 1.5) -- the default is 2 s
      assert.are.equal("cancelled", queued:status())
    end)

    it("G3 a second time is harmless, whatever the first was", function()
      local pool = idlesched.pool({ workers = 1 })
      pool:submit(nothing):wait()
      assert.is_true(pool:close())
      assert.is_true(pool:close())
      assert.is_true(pool:close({ mode = "cancel", timeout = 0 }))
      local unused = idlesched.pool()
      assert.is_true(unused:close({ mode = "cancel" }))
      assert.is_true(unused:close())
    end)

    it("G3 leaves a pool that answers closed, starts no thread and keeps its numbers", function()
      local pool <close> = idlesched.pool({ workers = 2 })
      local job = pool:submit(math.abs, -4)
      assert.is_true(pool:close())
      local starts = pool:stats().starts
      assert.are.same({ nil, "closed" }, { pool:submit(nothing) })
      assert.are.same({ nil, "closed" }, { pool:start_workers() })
      assert.is_true(pool:wait(0))
      assert.are.equal(0, pool:active())
      assert.are.equal(0, pool:release().visited)
      assert.are.equal(4, job:result())
      local stats = pool:stats()
      assert.are.equal(starts, stats.starts)
      assert.are.equal(1, stats.jobs.submitted)
      assert.are.equal(0, stats.workers.threads)
      assert.is_truthy(tostring(pool):find("0 of 2 workers have a thread", 1, true))
    end)

    it("G3 ends workers that are parked, releasing or just started", function()
      for _, idle_release in ipairs({ 0, 0.01, 60 }) do
        for _ = 1, 10 do
          local pool = idlesched.pool({ workers = 4, idle_release = idle_release })
          pool:start_workers()
          assert.is_true(pool:close())
          assert.are.equal(0, pool:stats().workers.threads)
        end
      end
    end)

    it("refuses modes and options that it does not know", function()
      local pool <close> = idlesched.pool({ workers = 1 })
      check_misuse("option 'mode': 'drain' or 'cancel' expected, got 'kill'", function()
        pool:close({ mode = "kill" })
      end)
      check_misuse("option 'mode': a string expected, got true", function()
        pool:close({ mode = true })
      end)
      check_misuse("unknown option 'timout', did you mean 'timeout'?", function()
        pool:close({ timout = 1 })
      end)
      check_misuse("option 'timeout': seconds (0 or more) or false expected, got -1", function()
        pool:close({ timeout = -1 })
      end)
      check_misuse("table expected, got string", function()
        pool:close("cancel")
      end)
      assert.are.equal(1, pool:submit(math.abs, -1):result())
    end)

    it("G4 gives every job one end, whichever way they go", function()
      for _, mode in ipairs({ "drain", "cancel" }) do
        local pool = idlesched.pool({ workers = 3, idle_release = 0, idle_exit = 0.001 })
        local jobs = {}
        for i = 1, 300 do
          jobs[i] = pool:submit(i % 2 == 0 and error or math.abs, i)
        end
        pool:close({ mode = mode, timeout = 30 })
        local ends = { done = 0, failed = 0, cancelled = 0 }
        for i = 1, 300 do
          assert.is_true(jobs[i]:wait(0))
          local status = jobs[i]:status()
          ends[status] = ends[status] + 1
        end
        local counts = pool:stats().jobs
        assert.are.equal(300, counts.submitted)
        for status, count in pairs(ends) do
          assert.are.equal(count, counts[status])
        end
        assert.are.equal(300, ends.done + ends.failed + ends.cancelled)
        assert.is_true(mode == "cancel" or ends.cancelled == 0)
      end
    end)
  end)

  describe("that goes out of scope", function()
    it("G3 is closed by its <close> variable: what is queued is dropped", function()
      local held, queued, seen
      do
        local pool <close> = idlesched.pool({ workers = 1 })
        seen = pool
        held = support.hold(pool)
        queued = pool:submit(nothing)
        held:let_go()
      end
      assert.are.equal("let go", held.job:result())
      assert.is_true(queued:status() == "cancelled" or queued:status() == "done")
      assert.are.same({ nil, "closed" }, { seen:submit(nothing) })
    end)

    it("G3 is closed by its <close> variable when an error passes", function()
      local seen
      local ok, err = pcall(function()
        local pool <close> = idlesched.pool({ workers = 2 })
        seen = pool
        pool:submit(nothing):wait()
        error("on the way", 0)
      end)
      assert.is_false(ok)
      assert.are.equal("on the way", err)
      assert.are.equal(0, seen:stats().workers.threads)
    end)

    it("G3 is closed by the collector, and its threads end", function()
      support.await_alone()
      do
        local pool = idlesched.pool({ workers = 2, idle_exit = false })
        pool:start_workers()
        support.await_rest(pool)
        assert.are.equal(3, idlesched.memory().threads)
      end
      support.await_alone()
    end)

    it("G10 finalisers run under no lock of the pool, whatever they call of it", function()
      local pool <close> = idlesched.pool({ workers = 2 })
      local calls = 0
      local function litter()
        setmetatable({}, {
          __gc = function()
            calls = calls + 1
            pool:stats()
            assert(pool:audit())
            assert(pool:submit(math.abs, -1))
          end,
        })
      end
      for _ = 1, 100 do
        litter()
        assert(pool:submit(string.rep, "x", 100))
        collectgarbage()
      end
      assert.is_true(calls >= 99)
      assert.is_true(pool:wait(30))
      assert.are.equal(100 + calls, pool:stats().jobs.done)
    end)

    it("G10 the collector waits for a job that runs on for 2 s, and then leaves it", function()
      local gate = support.new_path("gate")
      do
        local pool = idlesched.pool({ workers = 1 })
        local job = pool:submit(function(path)
          local idle = require("idlesched")
          local deadline = idle.now() + 60
          repeat
            idle.sleep(0.005)
          until io.open(path) or idle.now() > deadline
        end, gate)
        support.await("the job runs", function()
          return job:status() == "running"
        end)
      end
      local began = idlesched.now()
      collectgarbage()
      collectgarbage()
      local seconds = idlesched.now() - began
      assert.is_true(seconds >= 1.9 and seconds < 30, ("%.1f s"):format(seconds))
      assert(io.open(gate, "w")):close()
      support.await_alone()
    end)

    it("G4 lives on while a job's handle does, and the job is run", function()
      local job
      do
        local pool = idlesched.pool({ workers = 1 })
        local held = support.hold(pool)
        job = pool:submit(math.abs, -5)
        held:let_go()
      end
      collectgarbage()
      collectgarbage()
      assert.are.equal(5, job:result())
    end)

    it("leaves results that were not read yet", function()
      local job
      do
        local pool <close> = idlesched.pool({ workers = 1 })
        job = pool:submit(string.rep, "ab", 3)
        job:wait()
      end
      assert.are.equal("ababab", job:result())
    end)

    it("may be made and closed in a coroutine, and used by others", function()
      local pool
      local make = coroutine.wrap(function()
        local made <close> = idlesched.pool({ workers = 1 })
        pool = made
        coroutine.yield()
      end)
      make()
      assert.are.equal(2, coroutine.wrap(function()
        return pool:submit(math.abs, -2):result()
      end)())
      make()
      assert.are.same({ nil, "closed" }, { pool:submit(nothing) })
    end)
  end)

  describe("together with others", function()
    it("has threads, jobs and numbers of its own", function()
      local pools = {}
      for i = 1, 6 do
        pools[i] = idlesched.pool({ name = "pool " .. i, workers = 2 })
      end
      local jobs = {}
      for i = 1, 60 do
        jobs[i] = pools[i % 6 + 1]:submit(math.abs, -i)
      end
      for i = 1, 60 do
        assert.are.equal(i, jobs[i]:result())
      end
      for i = 1, 6 do
        assert.are.equal(10, pools[i]:stats().jobs.submitted)
        assert.is_true(pools[i]:close())
      end
    end)

    it("may be made by a job, on the job's own worker", function()
      local outer <close> = idlesched.pool({ workers = 2 })
      local sum, threads = outer
        :submit(function()
          local idle = require("idlesched")
          local inner <close> = idle.pool({ name = "inner", workers = 2 })
          local first = inner:submit(math.abs, -1)
          local second = inner:submit(function(x)
            return x * 2
          end, 10)
          local total = first:result() + second:result()
          assert(inner:close())
          return total, inner:stats().workers.threads
        end)
        :result()
      assert.are.equal(21, sum)
      assert.are.equal(0, threads)
    end)

    it("that a job left behind is closed when the worker is idle", function()
      support.await_alone()
      local outer <close> = idlesched.pool({ workers = 1, idle_release = 0.02, idle_exit = false })
      local threads = outer
        :submit(function()
          local idle = require("idlesched")
          local left = idle.pool({ workers = 2, idle_exit = false })
          left:start_workers()
          return idle.memory().threads
        end)
        :result()
      assert.are.equal(4, threads)
      support.await("only the outer worker is left", function()
        return idlesched.memory().threads == 2
      end)
    end)

    it("that a job left in its state is closed when that state is", function()
      local outer <close> = idlesched.pool({ workers = 1, idle_exit = false })
      outer
        :submit(function()
          -- luacheck: globals left
          left = require("idlesched").pool({ workers = 2, idle_exit = false })
          left:start_workers()
        end)
        :result()
      assert.is_true(idlesched.memory().threads >= 3)
      assert.is_true(outer:close())
      support.await_alone()
    end)
  end)
end)
