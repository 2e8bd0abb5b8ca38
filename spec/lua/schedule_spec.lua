-- SPDX-License-Identifier: MIT
--
-- schedule_spec.lua - when a job is begun, and whether at all: priorities, delays, expiry,
-- cancelling, full queues, pauses.

-- Globals of the workers, which jobs share.
-- luacheck: globals order

local here = debug.getinfo(1, "S").source:match("^@(.*/)") or ""
local support = dofile(here .. "support.lua")
local check_raises = support.check_raises
local idlesched = require("idlesched")

local function number(n)
  return n
end

-- Runs until it is asked to stop.
local function until_cancelled()
  local idle = require("idlesched")
  repeat
    idle.sleep(0.001)
  until idle.cancelled()
  return "stopped"
end

local function await_running(job)
  support.await("the job runs", function()
    return job:status() == "running"
  end)
end

-- The moment at which a job was begun.
local function now()
  return require("idlesched").now()
end

describe("a job", function()
  local pool

  before_each(function()
    pool = idlesched.pool({ name = "schedule", workers = 1, idle_exit = false })
  end)

  after_each(function()
    pool:close({ mode = "cancel" })
  end)

  -- Jobs that append their number to a list on the only worker, with one at the end that
  -- returns the list.
  local function order_of(submit)
    pool:pause()
    submit(function(n)
      order = order or {}
      order[#order + 1] = n
    end)
    pool:resume()
    assert(pool:wait(30))
    return pool
      :submit(function()
        local list = order
        order = nil
        return table.concat(list, " ")
      end)
      :result()
  end

  describe("with a priority", function()
    it("G7 is begun before those of a lower one, and behind its equals", function()
      assert.are.equal(
        "5 8 3 6 1 2 4 7",
        order_of(function(note)
          local priorities = { 0, 0, 1, 0, 7, 1, -7, 2 }
          for n, priority in ipairs(priorities) do
            assert(pool:submit_with({ priority = priority }, note, n))
          end
        end)
      )
    end)

    it("G7 0 is what submit gives", function()
      assert.are.equal(
        "3 1 2",
        order_of(function(note)
          assert(pool:submit(note, 1))
          assert(pool:submit_with({}, note, 2))
          assert(pool:submit_with({ priority = 1 }, note, 3))
        end)
      )
    end)

    it("that is out of range is refused by its name", function()
      for _, wrong in ipairs({ 8, -8, 0.5, "high" }) do
        check_raises("option 'priority'", pool.submit_with, pool, { priority = wrong }, number)
      end
    end)
  end)

  describe("with a delay", function()
    it("G6 is begun no earlier than so long after its submit", function()
      local before = idlesched.now()
      local job = assert(pool:submit_with({ delay = 0.05 }, now))
      assert.are.equal("queued", job:status())
      local stats = pool:stats()
      assert.are.same({ 1, 1 }, { stats.jobs.queued, stats.jobs.delayed })
      assert.is_true(job:result(30) >= before + 0.05)
      assert.are.equal(0, pool:stats().jobs.delayed)
    end)

    it("G6 lets those go first that are due earlier", function()
      assert.are.equal(
        "3 2 1",
        order_of(function(note)
          assert(pool:submit_with({ delay = 0.06 }, note, 1))
          assert(pool:submit_with({ delay = 0.03 }, note, 2))
          assert(pool:submit_with({ delay = 0 }, note, 3))
        end)
      )
    end)

    it("G3 is dropped by a close that drops", function()
      local job = assert(pool:submit_with({ delay = 3600 }, number, 1))
      assert.is_true(pool:close({ mode = "cancel" }))
      assert.are.same({ nil, "cancelled" }, { job:try() })
      assert.are.equal("cancelled", job:status())
    end)

    it("that is none is refused", function()
      check_raises("option 'delay'", pool.submit_with, pool, { delay = -1 }, number)
      check_raises("option 'delay'", pool.submit_with, pool, { delay = "soon" }, number)
      for value, got in pairs({ [false] = "false", [1e300] = "1e+300" }) do
        check_raises(
          "option 'delay': seconds, below 1e9, expected, got " .. got,
          pool.submit_with,
          pool,
          { delay = value },
          number
        )
      end
    end)
  end)

  describe("that may expire", function()
    it("G4 ends when nobody has begun it in time, and says so", function()
      pool:pause()
      local job = assert(pool:submit_with({ expire = 0.02 }, number, 1))
      local ok, reason = job:try(30)
      assert.is_nil(ok)
      assert.are.equal("expired", reason)
      assert.are.equal("cancelled", job:status())
      check_raises("expired", job.result, job)
      pool:resume()
      assert.is_true(pool:wait(30))
      local stats = pool:stats().jobs
      assert.are.same({ 1, 0, 1 }, { stats.submitted, stats.done, stats.cancelled })
    end)

    it("G4 runs when it is begun in time", function()
      assert.are.equal(7, pool:submit_with({ expire = 3600 }, number, 7):result())
      assert.are.equal(8, pool:submit_with({ expire = false }, number, 8):result())
    end)
  end)

  describe("that is cancelled", function()
    it("G4 never runs when it still waits", function()
      pool:pause()
      local job = pool:submit(number, 1)
      assert.are.equal("cancelled", job:cancel())
      assert.are.same({ nil, "cancelled" }, { job:try() })
      assert.is_false(job:cancel())
      pool:resume()
      assert.are.equal(1, pool:stats().jobs.cancelled)
    end)

    it("G4 is asked to stop when it runs, and says itself how it ends", function()
      local job = pool:submit(until_cancelled)
      await_running(job)
      assert.are.equal("requested", job:cancel())
      assert.are.equal("stopped", job:result(30))
      assert.is_false(job:cancel())
    end)

    it("G4 is not the next one of that worker", function()
      local asked = pool:submit(until_cancelled)
      await_running(asked)
      asked:cancel()
      assert.is_false(pool:submit(function()
        return require("idlesched").cancelled()
      end):result(30))
      assert.is_false(idlesched.cancelled())
    end)
  end)

  describe("with a token", function()
    it("G4 is cancelled with all others that have it, and no others", function()
      local token = idlesched.token()
      pool:pause()
      local jobs = {}
      for i = 1, 5 do
        jobs[i] = pool:submit_with({ token = token, delay = i > 3 and 3600 or nil }, number, i)
      end
      local other = pool:submit(number, 6)
      assert.is_false(token:cancelled())
      assert.are.equal(5, token:cancel())
      assert.is_true(token:cancelled())
      for i = 1, 5 do
        assert.are.same({ nil, "cancelled" }, { jobs[i]:try(0) })
      end
      pool:resume()
      assert.are.equal(6, other:result(30))
      assert.are.equal(0, token:cancel())
      assert.are.equal("idlesched.token: cancelled", tostring(token))
    end)

    it("G4 is asked to stop by it when it runs", function()
      local token = idlesched.token()
      local job = pool:submit_with({ token = token }, until_cancelled)
      await_running(job)
      assert.are.equal(0, token:cancel())
      assert.are.equal("stopped", job:result(30))
    end)

    it("G4 is refused when the token is cancelled already", function()
      local token = idlesched.token()
      token:cancel()
      assert.are.same(
        { nil, "cancelled" },
        { pool:submit_with({ token = token }, number, 1) }
      )
      assert.are.equal(0, pool:stats().jobs.submitted)
    end)

    it("keeps it as long as it needs it", function()
      pool:pause()
      local job = pool:submit_with({ token = idlesched.token() }, number, 1)
      collectgarbage()
      pool:resume()
      assert.are.equal(1, job:result(30))
    end)

    it("that is none is refused", function()
      local wrong = "option 'token': a token expected, got "
      check_raises(wrong .. "string", pool.submit_with, pool, { token = "t" }, number)
      check_raises(wrong .. "userdata", pool.submit_with, pool, { token = pool }, number)
    end)
  end)

  it("with options needs the options, and a function", function()
    check_raises("table expected, got function", pool.submit_with, pool, number)
    check_raises("function expected, got no value", pool.submit_with, pool, {})
    check_raises("priorty", pool.submit_with, pool, { priorty = 1 }, number)
  end)
end)

describe("a queue with a limit", function()
  it("G11 refuses what is too much, at once", function()
    local pool <close> = idlesched.pool({ workers = 1, queue_limit = 2 })
    pool:pause()
    local jobs = { pool:submit(number, 1), pool:submit(number, 2) }
    assert.are.same({ nil, "full" }, { pool:submit(number, 3) })
    assert.are.equal(2, pool:stats().jobs.submitted)
    assert.are.equal("cancelled", jobs[1]:cancel()) -- which makes room
    assert(pool:submit(number, 4))
    pool:resume()
    assert.is_true(pool:wait(30))
    assert.are.equal(2, pool:stats().jobs.done)
  end)

  it("G11 lets who submits wait, for so long", function()
    local pool <close> = idlesched.pool({ workers = 1, queue_limit = 1, queue_timeout = 0.02 })
    pool:pause()
    assert(pool:submit(number, 1))
    local before = idlesched.now()
    assert.are.same({ nil, "full" }, { pool:submit(number, 2) })
    assert.is_true(idlesched.now() >= before + 0.02)
    pool:resume()
  end)

  it("G11 lets who submits wait for as long as it takes", function()
    local pool <close> = idlesched.pool({ workers = 2, queue_limit = 1, queue_timeout = false })
    local jobs = {}
    for i = 1, 200 do
      jobs[i] = assert(pool:submit(number, i))
    end
    assert.is_true(idlesched.wait_all(jobs, 30))
    for i = 1, 200 do
      assert.are.equal(i, jobs[i]:result())
    end
  end)

  it("G11 has a job that submits run another one, and keep its own values", function()
    local pool <close> = idlesched.pool({ workers = 1, queue_limit = 1, queue_timeout = 1 })
    local job = pool:submit(function()
      local ids = require("idlesched")
      local own = ids.current_pool()
      local jobs = {}
      for i = 1, 5 do
        jobs[i] = assert(own:submit(function()
          return i
        end))
      end
      local sum = 0
      for i = 1, 5 do
        sum = sum + jobs[i]:result()
      end
      return sum
    end)
    assert.equal(15, job:result(30))
  end)

  it("says what is wrong with its options", function()
    check_raises("option 'queue_limit'", idlesched.pool, { queue_limit = 0 })
    check_raises("option 'queue_timeout'", idlesched.pool, { queue_timeout = -1 })
  end)
end)

describe("a paused pool", function()
  it("G7 begins nothing, is idle meanwhile, and goes on when it is resumed", function()
    local pool <close> = idlesched.pool({ workers = 2, idle_exit = 0.01 })
    pool:pause()
    local job = pool:submit(number, 1)
    assert.is_true(pool:stats().paused)
    assert.are.same({ nil, "timeout" }, { pool:wait(0.01) })
    support.await_stats(pool, "no thread is left", function(stats)
      return stats.workers.threads == 0
    end)
    assert.are.equal("queued", job:status())
    pool:resume()
    assert.is_false(pool:stats().paused)
    assert.are.equal(1, job:result(30))
  end)

  it("G3 is resumed by a close that drains", function()
    local pool <close> = idlesched.pool({ workers = 1 })
    pool:pause()
    local job = pool:submit(number, 1)
    assert.is_true(pool:close())
    assert.are.equal(1, job:result(0))
  end)
end)

describe("wait_all", function()
  it("waits for all jobs, however they end", function()
    local pool <close> = idlesched.pool({ workers = 2 })
    local jobs = {
      pool:submit(number, 1),
      pool:submit(error, "wrong"),
      pool:submit_with({ delay = 0.02 }, number, 3),
    }
    assert.is_true(idlesched.wait_all(jobs))
    assert.are.same({ "done", "failed", "done" }, {
      jobs[1]:status(),
      jobs[2]:status(),
      jobs[3]:status(),
    })
    assert.is_true(idlesched.wait_all({}, 0))
  end)

  it("has one time limit for all", function()
    local pool <close> = idlesched.pool({ workers = 1 })
    pool:pause()
    local jobs = { pool:submit(number, 1), pool:submit(number, 2) }
    assert.are.same({ nil, "timeout" }, { idlesched.wait_all(jobs, 0.01) })
    pool:resume()
    assert.is_true(idlesched.wait_all(jobs, 30))
  end)

  it("says which of the list is no job", function()
    local pool <close> = idlesched.pool({ workers = 1 })
    local job = pool:submit(number, 1)
    check_raises("a job expected at 2, got string", idlesched.wait_all, { job, "job" })
    check_raises("a job expected at 1, got nil", idlesched.wait_all, { nil, job })
    check_raises("table expected, got idlesched.job", idlesched.wait_all, job)
  end)
end)

describe("a job that waits for a queued one", function()
  local function nest(self, depth)
    if depth == 0 then
      return 0
    end
    local own = require("idlesched").current_pool()
    return own:submit(self, self, depth - 1):result() + 1
  end

  it("G9 runs it inside, many of them, until its stack is half used: that is an error", function()
    for _, stack_size in ipairs({ 256 * 1024, 1024 * 1024 }) do
      local pool <close> = idlesched.pool({ workers = 1, stack_size = stack_size })
      assert.equal(10, pool:submit(nest, nest, 10):result(30))
      local ok, failure = pool:submit(nest, nest, 20000):try(30)
      assert.is_nil(ok)
      assert.matches("too many jobs wait inside each other", tostring(failure), 1, true)
      assert.is_true((pool:audit()))
    end
  end)

  it("G9 in a finaliser of a state that is closed, leaves no state behind", function()
    local function live_after(rounds)
      for _ = 1, rounds do
        local pool <close> = idlesched.pool({ workers = 1, max_blocking = 0, dedicated = true })
        pool:submit(function()
          local job = require("idlesched").current_pool():submit(math.abs, -7)
          kept = setmetatable({}, { -- luacheck: ignore
            __gc = function()
              job:try(10)
            end,
          })
        end):result(30)
        assert.is_true(pool:wait(30))
        assert.is_true(pool:close())
      end
      collectgarbage()
      collectgarbage()
      return idlesched.memory().live
    end
    local before = live_after(2)
    assert.is_true(live_after(10) < before + 300000)
  end)
end)

it("an on_start that raises an error object is told in its words", function()
  local pool <close> = idlesched.pool({
    workers = 1,
    on_start = function()
      local ids = require("idlesched")
      local inner <close> = ids.pool({ workers = 1 })
      inner:submit(error, "said inside"):result()
    end,
  })
  local ok, failure = pool:submit(math.abs, -1):try(30)
  assert.is_nil(ok)
  assert.equal("start", failure.kind)
  assert.matches("said inside", failure.message, 1, true)
end)
