-- SPDX-License-Identifier: MIT
--
-- guard_spec.lua - idlesched.eager_purge(): a scope in which freed memory goes back at once.
--
-- The allocator's option cannot be read from Lua, so these cases look at what it does: a
-- job allocates, frees, and measures what the process has given back by then.  Without a
-- guard that is nothing, as long as nobody releases; with one it is all of it.

local here = debug.getinfo(1, "S").source:match("^@(.*/)") or ""
local support = dofile(here .. "support.lua")
local idlesched = require("idlesched")

-- Runs on a worker: the part of some megabytes that came back when they were freed.  As
-- text, since scripts that run in other processes contain it as well.
local returned_part_text = [[function()
  local idlesched = require "idlesched"
  local bytes, pieces = 64 * 1024, {}
  for i = 1, 128 do
    pieces[i] = ("x"):rep(bytes) .. i
  end
  local count = #pieces
  local before = idlesched.memory().anonymous
  pieces = nil
  collectgarbage()
  return (before - idlesched.memory().anonymous) / (bytes * count)
end]]
local returned_part = assert(load("return " .. returned_part_text))()

local effect_it = support.effect_it(_ENV)

describe("guard", function()
  local pool

  before_each(function()
    pool = idlesched.pool({ workers = 1, idle_release = false, idle_exit = false })
  end)

  after_each(function()
    pool:close({ mode = "cancel" })
    collectgarbage()
    collectgarbage()
  end)

  local function is_eager()
    local part = pool:submit(returned_part):result()
    assert.is_true(part > 0.8 or part < 0.2, "neither all nor nothing was returned: " .. part)
    return part > 0.8
  end

  describe("held", function()
    effect_it("B1 makes freed memory go back at once, and only while it is held", function()
      assert.is_false(is_eager())
      local guard = idlesched.eager_purge()
      assert.is_true(is_eager())
      assert.is_true(is_eager())
      guard:close()
      assert.is_false(is_eager())
    end)

    effect_it("B12 first gives back what was freed before it", function()
      local part = pool:submit(returned_part):result()
      assert.is_true(part < 0.2)
      local before = idlesched.memory().anonymous
      local _ <close> = idlesched.eager_purge()
      assert.is_true(before - idlesched.memory().anonymous > 6e6)
    end)

    it("B7 is an object that succeeds, whatever the allocator", function()
      local guard <close> = idlesched.eager_purge()
      assert.are.equal("userdata", type(guard))
      assert.are.equal("idlesched.eager_purge: held", tostring(guard))
      assert.are.equal(2, pool:submit(math.abs, -2):result())
      assert.are.equal(0, select("#", guard:close()))
      assert.are.equal("idlesched.eager_purge: ended", tostring(guard))
    end)

    it("B7 releases and lets release as ever", function()
      local guard <close> = idlesched.eager_purge()
      pool:submit(returned_part):result()
      local report = pool:release()
      assert.is_true(report.complete)
      assert.are.equal(1, report.visited)
      assert.are.equal("idlesched.eager_purge: held", tostring(guard))
    end)
  end)

  describe("count", function()
    effect_it("B3 is one for the process: an inner end changes nothing", function()
      local outer = idlesched.eager_purge()
      do
        local _ <close> = idlesched.eager_purge()
      end
      assert.is_true(is_eager())
      outer:close()
      assert.is_false(is_eager())
    end)

    effect_it("B3 holds across threads and Lua states", function()
      local mine = idlesched.eager_purge()
      pool
        :submit(function()
          -- luacheck: globals kept
          kept = require("idlesched").eager_purge()
        end)
        :result()
      mine:close()
      assert.is_true(is_eager())
      pool
        :submit(function()
          -- luacheck: globals kept
          kept:close()
        end)
        :result()
      assert.is_false(is_eager())
    end)

    effect_it("B4 goes down in any order", function()
      local guards = {}
      for i = 1, 4 do
        guards[i] = idlesched.eager_purge()
      end
      for _, i in ipairs({ 2, 4, 1 }) do
        guards[i]:close()
        assert.is_true(is_eager())
      end
      guards[3]:close()
      assert.is_false(is_eager())
    end)

    effect_it("B2 may be raised again and again", function()
      for _ = 1, 3 do
        local guard = idlesched.eager_purge()
        assert.is_true(is_eager())
        guard:close()
        assert.is_false(is_eager())
      end
    end)

    effect_it("B5 goes down once for each guard, however often that is told to end", function()
      local outer = idlesched.eager_purge()
      do
        local inner <close> = idlesched.eager_purge()
        inner:close()
        inner:close()
      end
      collectgarbage()
      collectgarbage()
      assert.is_true(is_eager())
      outer:close()
      assert.is_false(is_eager())
    end)
  end)

  describe("ends", function()
    effect_it("B5 with its <close> variable", function()
      do
        local _ <close> = idlesched.eager_purge()
        assert.is_true(is_eager())
      end
      assert.is_false(is_eager())
    end)

    effect_it("B5 when an error passes", function()
      local ok, err = pcall(function()
        local _ <close> = idlesched.eager_purge()
        assert.is_true(is_eager())
        error("on the way", 0)
      end)
      assert.is_false(ok)
      assert.are.equal("on the way", err)
      assert.is_false(is_eager())
    end)

    effect_it("B5 when it is collected", function()
      idlesched.eager_purge()
      assert.is_true(is_eager())
      collectgarbage()
      collectgarbage()
      assert.is_false(is_eager())
    end)

    effect_it("B5 with a coroutine that is abandoned or closed", function()
      local function start()
        local thread = coroutine.create(function()
          local _ <close> = idlesched.eager_purge()
          coroutine.yield()
        end)
        coroutine.resume(thread)
        return thread
      end
      local thread = start()
      assert.is_true(is_eager())
      assert.is_true(coroutine.close(thread))
      assert.is_false(is_eager())

      start()
      assert.is_true(is_eager())
      collectgarbage()
      collectgarbage()
      assert.is_false(is_eager())
    end)

    effect_it("B5 with the job whose error passes it", function()
      pool
        :submit(function()
          local _ <close> = require("idlesched").eager_purge()
          error("on the way")
        end)
        :try()
      assert.is_false(is_eager())
    end)

    effect_it("B5 with its Lua state", function()
      local brief <close> = idlesched.pool({ workers = 1, idle_exit = false })
      brief
        :submit(function()
          -- luacheck: globals kept
          kept = require("idlesched").eager_purge()
        end)
        :result()
      assert.is_true(is_eager())
      brief:close()
      assert.is_false(is_eager())
    end)
  end)

  -- In processes of their own: the allocator reads its environment once.
  describe("beside the user's own setting", function()
    local script = [[
      local idlesched = require "idlesched"
      local pool <close> = idlesched.pool { workers = 1, idle_release = false }
      local returned_part = ]] .. returned_part_text .. [[

      local function is_eager()
        return pool:submit(returned_part):result() > 0.5
      end
      local before, within = is_eager(), nil
      do
        local guard <close> = idlesched.eager_purge()
        within = is_eager()
      end
      print(before, within, is_eager())
    ]]

    local function check(delay, expected)
      for _, program in ipairs(support.programs) do
        local result = support.run_well(program.path, {
          script = script,
          environment = { MIMALLOC_PURGE_DELAY = delay },
        })
        assert.are.equal(expected, result.out)
      end
    end

    effect_it("B6 puts back a delay above 0", function()
      check("50", "false\ttrue\tfalse\n")
      check("100000", "false\ttrue\tfalse\n")
    end)

    effect_it("B6 leaves a delay of 0 alone", function()
      check("0", "true\ttrue\ttrue\n")
    end)

    effect_it("B6 leaves purging switched off where the user did that", function()
      check("-1", "false\tfalse\tfalse\n")
    end)
  end)
end)
