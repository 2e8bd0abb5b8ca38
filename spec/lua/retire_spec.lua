-- SPDX-License-Identifier: MIT
--
-- retire_spec.lua - workers that leave for good: dedicated pools, retire(), and the audit
-- that looks over all of it.

local here = debug.getinfo(1, "S").source:match("^@(.*/)") or ""
local support = dofile(here .. "support.lua")
local idlesched = require("idlesched")

-- Whether this state has run a job before, and how many.
local function jobs_so_far()
  -- luacheck: globals count
  count = (count or 0) + 1
  return count
end

describe("dedicated pool", function()
  it("C1 gives each job a worker of its own, with a fresh state", function()
    local pool <close> = idlesched.pool({ workers = 2, dedicated = true })
    local jobs = {}
    for i = 1, 10 do
      jobs[i] = pool:submit(jobs_so_far)
    end
    for i = 1, 10 do
      assert.are.equal(1, jobs[i]:result())
    end
  end)

  it("C2 has no worker left after its jobs, and says so when their threads have ended", function()
    support.await_alone()
    local pool <close> = idlesched.pool({ workers = 3, dedicated = true })
    for i = 1, 5 do
      pool:submit(math.abs, -i)
    end
    pool:wait()
    local stats = support.await_stats(pool, "five workers have retired", function(stats)
      return stats.retires == 5
    end)
    assert.are.equal(0, stats.workers.threads)
    assert.are.equal(0, stats.exits)
    assert.are.equal(1, idlesched.memory().threads)
  end)

  it("C2 closes the state before the worker counts as retired", function()
    local path = support.new_path("closed")
    local pool <close> = idlesched.pool({ workers = 1, dedicated = true })
    pool
      :submit(function(name)
        -- luacheck: globals left
        left = setmetatable({}, {
          __gc = function()
            io.open(name, "w"):close()
          end,
        })
      end, path)
      :result()
    support.await_stats(pool, "the worker has retired", function(stats)
      return stats.retires == 1
    end)
    assert.are.equal("", support.read(path))
  end)
end)

describe("retire()", function()
  it("C18 lets the job's own worker leave after the job", function()
    local pool <close> = idlesched.pool({ workers = 1, idle_exit = false })
    assert.are.equal(1, pool:submit(jobs_so_far):result())
    assert.are.equal(2, pool:submit(jobs_so_far):result())
    local last = pool:submit(function()
      require("idlesched").retire()
      return "left"
    end)
    local first = pool:submit(jobs_so_far) -- back to back: it must not meet the old state
    assert.are.equal("left", last:result())
    assert.are.equal(1, first:result())
    support.await_stats(pool, "one worker has retired", function(stats)
      return stats.retires == 1
    end)
    assert.are.equal(2, pool:submit(jobs_so_far):result())
    assert.is_true(pool:audit())
  end)

  it("C18 is for jobs, and says so elsewhere", function()
    local ok, message = pcall(idlesched.retire)
    assert.is_false(ok)
    assert.is_truthy(message:find("this thread is no worker", 1, true))
  end)
end)

describe("audit()", function()
  it("N5 finds nothing wrong in a pool at work", function()
    local pool <close> = idlesched.pool({ workers = 4, idle_release = 0, idle_exit = 0.005 })
    for i = 1, 2000 do
      pool:submit(i % 50 == 0 and idlesched.retire or math.abs, i)
      if i % 100 == 0 then
        assert.are.same({ true }, { pool:audit() })
      end
    end
    assert.is_true(pool:wait(30))
    assert.are.same({ true }, { pool:audit() })
    pool:close()
    assert.are.same({ true }, { pool:audit() })
  end)
end)
