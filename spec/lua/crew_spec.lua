-- SPDX-License-Identifier: MIT
--
-- crew_spec.lua - how many workers a pool has, and what is done on them besides jobs: sizes,
-- blocking jobs, no workers at all, waiting inside a job, callbacks.

-- Globals of the workers, which jobs share.
-- luacheck: globals kept calls cache releases

local here = debug.getinfo(1, "S").source:match("^@(.*/)") or ""
local support = dofile(here .. "support.lua")
local check_raises = support.check_raises
local idlesched = require("idlesched")

local function number(n)
  return n
end

-- Runs until a file is there.
local function until_there(path)
  local idle = require("idlesched")
  local deadline = idle.now() + 30
  repeat
    idle.sleep(0.001)
    local file = io.open(path)
  until file or idle.now() > deadline
end

local function open_gate(path)
  assert(io.open(path, "w")):close()
end

describe("the size of a pool", function()
  it("G1 grows and shrinks while it works", function()
    local pool <close> = idlesched.pool({ workers = 1, idle_exit = false })
    local gate = support.new_path("gate")
    local jobs = {}
    for i = 1, 3 do
      jobs[i] = pool:submit(until_there, gate)
    end
    support.await_stats(pool, "one job runs", function(stats)
      return stats.jobs.running == 1
    end)
    assert.is_true(pool:resize(3))
    support.await_stats(pool, "three jobs run", function(stats)
      return stats.jobs.running == 3
    end)
    assert.is_true(pool:resize(1))
    assert.are.equal(1, pool:stats().workers.max)
    open_gate(gate)
    assert.is_true(idlesched.wait_all(jobs, 30))
    support.await_stats(pool, "one thread is left", function(stats)
      return stats.workers.threads == 1
    end)
    assert.are.equal(4, pool:submit(number, 4):result(30))
    assert.is_true(pool:audit())
  end)

  it("G1 does not fall below min_workers", function()
    local pool <close> = idlesched.pool({ workers = 3, min_workers = 2, idle_exit = 0.01 })
    assert.is_true(pool:start_workers())
    support.await_stats(pool, "two threads are left", function(stats)
      return stats.workers.threads == 2 and stats.exits == 1
    end)
    assert.are.equal(2, pool:stats().workers.min)
    assert.is_true(pool:resize(3, 0))
    support.await_stats(pool, "no thread is left", function(stats)
      return stats.workers.threads == 0
    end)
  end)

  it("is refused where it makes no sense", function()
    local pool <close> = idlesched.pool({ workers = 2 })
    check_raises("1 to 1024 workers expected, got 0", pool.resize, pool, 0)
    check_raises("1 to 1024 workers expected, got 1025", pool.resize, pool, 1025)
    check_raises("0 to 2 workers to keep expected, got 3", pool.resize, pool, 2, 3)
    check_raises("option 'min_workers'", idlesched.pool, { workers = 2, min_workers = 3 })
    check_raises("option 'stack_size'", idlesched.pool, { stack_size = 1000 })
    check_raises("option 'workers'", idlesched.pool, { workers = -1 })
    pool:close()
    assert.are.same({ nil, "closed" }, { pool:resize(1) })
  end)

  it("has threads with as much stack as is asked for", function()
    local pool <close> = idlesched.pool({ workers = 1, stack_size = 16 * 1024 * 1024 })
    local found = pool
      :submit(function()
        for line in io.lines("/proc/self/maps") do
          local first, last = line:match("^(%x+)%-(%x+) rw")
          if first and tonumber(last, 16) - tonumber(first, 16) == 16 * 1024 * 1024 then
            return true
          end
        end
      end)
      :result(30)
    assert.is_true(found)
  end)
end)

describe("a job that blocks", function()
  it("G12 has another worker in its place, and their number falls back", function()
    local pool <close> = idlesched.pool({ workers = 1, idle_exit = 0.05 })
    local gate = support.new_path("gate")
    local blocked = pool:submit(function(wait, path)
      return require("idlesched").blocking(wait, path), "done"
    end, until_there, gate)
    support.await_stats(pool, "it blocks", function(stats)
      return stats.workers.blocking == 1
    end)
    assert.are.equal(5, pool:submit(number, 5):result(30))
    assert.are.equal(2, pool:stats().workers.threads)
    open_gate(gate)
    assert.are.same({ nil, "done" }, { blocked:result(30) })
    support.await_stats(pool, "no thread is left", function(stats)
      return stats.workers.threads == 0 and stats.workers.blocking == 0
    end)
  end)

  it("G12 has none where none is allowed", function()
    local pool <close> = idlesched.pool({ workers = 1, max_blocking = 0 })
    local gate = support.new_path("gate")
    local blocked = pool:submit(function(wait, path)
      require("idlesched").blocking(wait, path)
    end, until_there, gate)
    support.await("it runs", function()
      return blocked:status() == "running"
    end)
    local other = pool:submit(number, 1)
    assert.are.same({ nil, "timeout" }, { other:wait(0.02) })
    open_gate(gate)
    assert.are.equal(1, other:result(30))
  end)

  it("G12 may say so more than once, raise, and return what it likes", function()
    local pool <close> = idlesched.pool({ workers = 1 })
    local results = table.pack(pool
      :submit(function()
        local blocking = require("idlesched").blocking
        local ok, message = pcall(blocking, blocking, error, "inside", 0)
        return ok, message, blocking(blocking, select, 2, "a", "b", nil)
      end)
      :result(30))
    assert.are.same({ n = 4, false, "inside", "b", nil }, results)
    assert.are.equal(0, pool:stats().workers.blocking)
  end)

  it("outside of a job is just called", function()
    assert.are.equal(3, idlesched.blocking(number, 3))
    check_raises("function expected, got nil", idlesched.blocking, nil)
  end)
end)

describe("a pool without workers", function()
  it("G13 runs each job before submit returns, in this thread", function()
    local pool <close> = idlesched.pool({ workers = 0 })
    local job = pool:submit(number, 6)
    assert.are.equal("done", job:status())
    assert.are.equal(6, job:result(0))
    local stats = pool:stats()
    assert.are.same({ 0, 0, 1 }, { stats.workers.max, stats.workers.threads, stats.jobs.done })
    assert.is_true(pool:wait(0))
    assert.is_true(pool:audit())
  end)

  it("G13 keeps a state of its own between jobs, away from this one", function()
    local pool <close> = idlesched.pool({ workers = 0 })
    pool:submit(function()
      kept = (kept or 0) + 1
    end)
    assert.are.equal(1, pool:submit(function()
      return kept
    end):result())
    assert.is_nil(rawget(_G, "kept"))
  end)

  it("G13 reports errors as others do, and runs what a job submits", function()
    local pool <close> = idlesched.pool({ workers = 0 })
    local ok, err = pool:submit(error, "wrong"):try()
    assert.is_nil(ok)
    assert.are.equal("error", err.kind)
    local total = pool
      :submit(function(inner)
        local job = require("idlesched").current_pool():submit(inner, 20)
        return job:result() + 1
      end, number)
      :result()
    assert.are.equal(21, total)
    assert.are.equal(3, pool:stats().jobs.submitted)
  end)

  it("G13 can be released and closed", function()
    local pool <close> = idlesched.pool({ workers = 0 })
    pool:submit(number, 1)
    assert.is_table(pool:release())
    assert.is_true(pool:close())
    assert.are.same({ nil, "closed" }, { pool:submit(number, 2) })
  end)
end)

describe("waiting inside a job", function()
  it("G9 runs the awaited job on the same worker", function()
    local pool <close> = idlesched.pool({ workers = 1 })
    local function factorial(n, self)
      if n < 2 then
        return 1
      end
      local job = require("idlesched").current_pool():submit(self, n - 1, self)
      return n * job:result()
    end
    assert.are.equal(3628800, pool:submit(factorial, 10, factorial):result(30))
    assert.is_true(pool:wait(30))
    assert.are.equal(10, pool:stats().jobs.done)
    assert.is_true(pool:audit())
  end)

  it("G9 works in coroutines, with errors, and for many jobs", function()
    local pool <close> = idlesched.pool({ workers = 2 })
    local ok, text, sum = pool
      :submit(function(inner)
        local idle = require("idlesched")
        local own = idle.current_pool()
        local run = coroutine.wrap(function()
          local failed = own:submit(error, "inner", 0)
          local _, err = failed:try()
          coroutine.yield(err.message)
          local jobs, total = {}, 0
          for i = 1, 20 do
            jobs[i] = own:submit(inner, i)
          end
          assert(idle.wait_all(jobs))
          for i = 1, 20 do
            total = total + jobs[i]:result()
          end
          return total
        end)
        local message = run()
        return true, message, run()
      end, number)
      :result(30)
    assert.are.same({ true, "inner", 210 }, { ok, text, sum })
  end)

  it("G9 outside of a job there is no current pool", function()
    assert.is_nil(idlesched.current_pool())
  end)

  it("G9 a job cannot close, release or await its whole pool", function()
    local pool <close> = idlesched.pool({ workers = 1 })
    local reasons = table.pack(pool
      :submit(function()
        local own = require("idlesched").current_pool()
        local _, close = own:close()
        local _, wait = own:wait(0)
        collectgarbage()
        return close, wait, own:stats().jobs.running
      end)
      :result(30))
    assert.are.same({ n = 3, "deadlock", "deadlock", 1 }, reasons)
    assert.are.equal(2, pool:submit(number, 2):result(30)) -- the borrowed one was collected
  end)
end)

describe("callbacks of a pool", function()
  it("are called once for each state: before its first job, and before it is closed", function()
    local path = support.new_path("calls")
    local pool <close> = idlesched.pool({
      workers = 1,
      on_start = function()
        calls = { "start" }
      end,
      on_stop = function()
        local file = io.open(path, "w")
        file:write(table.concat(calls, " "), " stop")
        file:close()
      end,
    })
    local function call()
      calls[#calls + 1] = "job"
    end
    pool:submit(call)
    pool:submit(call)
    assert.is_true(pool:wait(30))
    assert.is_true(pool:close())
    assert.are.equal("start job job stop", support.read(path))
  end)

  it("on_start that raises fails the job, and is tried again for the next", function()
    local gate = support.new_path("gate")
    local pool <close> = idlesched.pool({
      workers = 1,
      on_start = function()
        local file = assert(io.open(gate), "not ready")
        file:close()
      end,
    })
    local ok, err = pool:submit(number, 1):try(30)
    assert.is_nil(ok)
    assert.are.equal("start", err.kind)
    assert.is_truthy(err.message:find("not ready", 1, true))
    open_gate(gate)
    assert.are.equal(2, pool:submit(number, 2):result(30))
  end)

  it("on_release empties what a state caches", function()
    local pool <close> = idlesched.pool({
      workers = 1,
      idle_release = false,
      on_release = function()
        cache = nil
        releases = (releases or 0) + 1
      end,
    })
    pool:submit(function()
      cache = string.rep("x", 1000000)
    end)
    assert.is_true(pool:wait(30))
    assert(pool:release())
    assert.are.same({ nil, 1 }, {
      pool:submit(function()
        return cache, releases
      end):result(30),
    })
  end)

  it("are functions that can travel", function()
    check_raises("option 'on_start': a function expected", idlesched.pool, { on_start = 1 })
    local file <close> = assert(io.open("/dev/null"))
    check_raises("option 'on_release'", idlesched.pool, {
      on_release = function()
        file:close()
      end,
    })
  end)
end)
