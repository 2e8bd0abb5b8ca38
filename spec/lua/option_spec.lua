-- SPDX-License-Identifier: MIT
--
-- option_spec.lua - idlesched.option(): overrides of the allocator's options for a scope, who
-- holds them, and what is said of guards that nobody ended.

local here = debug.getinfo(1, "S").source:match("^@(.*/)") or ""
local support = dofile(here .. "support.lua")
local idlesched = require("idlesched")

local effect_it = support.effect_it(_ENV)

local names = { "purge_delay", "purge_min_size", "purge_mult" }

local function option(name)
  for _, row in ipairs(idlesched.options()) do
    if row.name == name then
      return row
    end
  end
end

local function line_of(level)
  local info = debug.getinfo(level + 1, "Sl")
  return info.short_src .. ":" .. info.currentline
end

-- As the registry shows it: no more than 63 bytes, the end of it.
local function shown(place)
  return #place < 64 and place or "..." .. place:sub(-60)
end

local function check_refused(message, ...)
  local ok, err = pcall(idlesched.option, ...)
  assert.is_false(ok)
  assert.is_truthy(err:find(message, 1, true), ("%q is not in %q"):format(message, err))
end

describe("option", function()
  before_each(function()
    collectgarbage()
    collectgarbage()
    for _, name in ipairs(support.has_options and names or {}) do
      assert.are.equal(0, option(name).held)
    end
  end)

  describe("guard", function()
    effect_it("B9 overrides each option for a scope, and puts it back", function()
      for _, name in ipairs(names) do
        local before = option(name)
        assert.is_false(before.overridden)
        assert.are.equal(before.default, before.value)
        do
          local _ <close> = idlesched.option(name, 9)
          local within = option(name)
          assert.are.equal(9, within.value)
          assert.are.equal(before.value, within.default)
          assert.is_true(within.overridden)
          assert.are.equal(1, within.held)
        end
        assert.are.same(before, option(name))
      end
    end)

    effect_it("B4 of the latest decides, in any order of ends", function()
      local first = idlesched.option("purge_mult", 5)
      local second = idlesched.option("purge_mult", 6)
      local third = idlesched.option("purge_mult", 7)
      second:close()
      assert.are.equal(7, option("purge_mult").value)
      third:close()
      assert.are.equal(5, option("purge_mult").value)
      first:close()
      first:close()
      assert.are.equal(option("purge_mult").default, option("purge_mult").value)
    end)

    effect_it("B5 ends when an error passes it, and with an abandoned coroutine", function()
      pcall(function()
        local _ <close> = idlesched.option("purge_mult", 5)
        assert.are.equal(5, option("purge_mult").value)
        error("on the way")
      end)
      assert.is_false(option("purge_mult").overridden)

      coroutine.resume(coroutine.create(function()
        local _ <close> = idlesched.option("purge_mult", 5)
        coroutine.yield()
      end))
      assert.are.equal(5, option("purge_mult").value)
      collectgarbage()
      collectgarbage()
      assert.is_false(option("purge_mult").overridden)
    end)

    effect_it("B3 counts over threads and Lua states", function()
      local pool <close> = idlesched.pool({ workers = 1 })
      local mine <close> = idlesched.option("purge_mult", 5)
      pool
        :submit(function()
          -- luacheck: globals kept
          kept = require("idlesched").option("purge_mult", 6)
        end)
        :result()
      assert.are.equal(6, option("purge_mult").value)
      assert.are.equal(2, option("purge_mult").held)
      mine:close()
      pool:close() -- and with its Lua state
      assert.is_false(option("purge_mult").overridden)
    end)

    it("B7 is an object that succeeds, whatever the allocator", function()
      local guard <close> = idlesched.option("purge_min_size", 128)
      assert.are.equal("idlesched.option purge_min_size: held", tostring(guard))
      guard:close()
      assert.are.equal("idlesched.option purge_min_size: ended", tostring(guard))
    end)

    effect_it("B3 shares the purge delay with eager_purge()", function()
      local eager <close> = idlesched.eager_purge()
      assert.are.equal(0, option("purge_delay").value)
      local slow <close> = idlesched.option("purge_delay", 5000)
      assert.are.equal(5000, option("purge_delay").value)
      slow:close()
      assert.are.equal(0, option("purge_delay").value)
      eager:close()
      assert.is_false(option("purge_delay").overridden)
    end)
  end)

  describe("refuses", function()
    it("B9 unknown names, and tells the known ones", function()
      check_refused("bad argument #1", "purge_dely", 1)
      check_refused("'purge_dely': there is no such option", "purge_dely", 1)
      for _, name in ipairs(names) do
        check_refused(name, "", 1)
      end
    end)

    it("B11 options that change how memory is allocated, by name and reason", function()
      check_refused("'allow_thp': whether memory is in huge pages is decided when", "allow_thp", 1)
      check_refused("'arena_reserve': arenas that exist stay", "arena_reserve", 1)
      check_refused("'arena_eager_commit': memory that was committed", "arena_eager_commit", 1)
      check_refused("'purge_decommits': memory that was committed", "purge_decommits", 1)
    end)

    it("B5 in a finaliser, as a state that closes ends nothing that is made in it", function()
      local messages = {}
      for _, make in ipairs {
        function() return idlesched.option("purge_mult", 3) end,
        function() return idlesched.eager_purge() end,
        function() return idlesched.watch_pressure() end,
      } do
        local is_done
        setmetatable({}, { __gc = function()
          local ok, message = pcall(make)
          is_done = true
          table.insert(messages, ok and "made" or message)
        end })
        repeat collectgarbage() until is_done
      end
      for _, message in ipairs(messages) do
        assert.is_truthy(message:find("expected outside of a finaliser", 1, true), message)
      end
    end)

    effect_it("B9 values out of range", function()
      check_refused("a purge_delay from 0 to 86400000 expected, got -1", "purge_delay", -1)
      check_refused("a purge_mult from 1 to 1000 expected, got 0", "purge_mult", 0)
      check_refused("bad argument #2", "purge_mult", 0)
    end)

    it("B9 what is no name and no whole number", function()
      check_refused("string expected", nil, 1)
      check_refused("number expected, got no value", "purge_mult")
      check_refused("no integer representation", "purge_mult", 1.5)
    end)

    it("B9 at the caller", function()
      local ok, err = pcall(function()
        idlesched.option("purge_dely", 1)
      end)
      assert.is_false(ok)
      assert.is_truthy(err:find("option_spec.lua:", 1, true), err)
    end)
  end)

  describe("list", function()
    it("B7 is empty without options", function()
      assert.are.equal(support.has_options and #names or 0, #idlesched.options())
    end)

    effect_it("N7 says who holds an option, since when and by which value", function()
      local began = idlesched.now()
      local first <close>, line = idlesched.option("purge_mult", 5), shown(line_of(1))
      local second <close> = idlesched.option("purge_mult", 6)
      local holders = option("purge_mult").holders
      assert.are.equal(2, #holders)
      assert.are.equal(6, holders[1].value)
      assert.are.equal(5, holders[2].value)
      assert.are.equal(line, holders[2].name)
      assert.is_true(began <= holders[2].since and holders[2].since <= holders[1].since)
      assert.is_true(holders[1].since <= idlesched.now())
      first:close()
      assert.are.equal(1, #option("purge_mult").holders)
      second:close()
      assert.are.same({}, option("purge_mult").holders)
    end)

    effect_it("N7 names the nearest Lua line, if there is one", function()
      -- Called by C: pcall() is between.
      local _, guard = pcall(idlesched.eager_purge)
      local line = shown(line_of(1):gsub("%d+$", function(number)
        return ("%d"):format(number - 1)
      end))
      assert.are.equal(line, option("purge_delay").holders[1].name)
      guard:close()

      local bare <close> = coroutine.wrap(idlesched.eager_purge)()
      assert.are.equal("?", option("purge_delay").holders[1].name)
      bare:close()
    end)

    effect_it("N7 keeps the end of a long place, and lists the latest 16", function()
      local text = ("\n"):rep(123455) .. "local make = ... return make('purge_mult', 5)"
      local make = assert(load(text, "@" .. ("long/"):rep(20) .. "name.lua"))
      local guards = {}
      for i = 1, 20 do
        guards[i] = make(idlesched.option)
      end
      local row = option("purge_mult")
      assert.are.equal(20, row.held)
      assert.are.equal(16, #row.holders)
      assert.are.equal(63, #row.holders[1].name)
      local place = row.holders[1].name
      assert.is_truthy(place:find("^%.%.%.[^.].*/name%.lua:123456$"), place)
      for i = 1, 20 do
        guards[i]:close()
      end
    end)
  end)

  -- In processes of their own: the allocator reads its environment once.
  describe("beside the user's own setting", function()
    local script = [[
      local idlesched = require "idlesched"
      local function show()
        for _, row in ipairs(idlesched.options()) do
          io.write(row.name, " ", row.value, " ", row.default, " ", tostring(row.overridden), " ",
            row.held, "\n")
        end
      end
      show()
      do
        local delay <close> = idlesched.option("purge_delay", 9)
        local size <close> = idlesched.option("purge_min_size", 256)
        local mult <close> = idlesched.option("purge_mult", 9)
        idlesched.pool { workers = 1 }:close()
        show()
      end
      show()
    ]]

    local function check(environment, outside, within)
      for _, program in ipairs(support.programs) do
        local result = support.run_well(program.path, {
          script = script,
          environment = environment,
        })
        assert.are.equal(outside .. within .. outside, result.out)
      end
    end

    effect_it("B6 B10 overrides all of them where nothing is set, and puts them back", function()
      check(
        nil,
        "purge_delay 1000 1000 false 0\npurge_min_size 64 64 false 0\npurge_mult 4 4 false 0\n",
        "purge_delay 9 1000 true 1\npurge_min_size 256 64 true 1\npurge_mult 9 4 true 1\n"
      )
    end)

    effect_it("B10 leaves alone what the environment sets, but the delay", function()
      check(
        {
          MIMALLOC_ARENA_PURGE_MIN_SIZE = "128KiB",
          MIMALLOC_ARENA_PURGE_MULT = "7",
          MIMALLOC_PURGE_DELAY = "50",
        },
        "purge_delay 50 50 false 0\npurge_min_size 128 128 false 0\npurge_mult 7 7 false 0\n",
        "purge_delay 9 50 true 1\npurge_min_size 128 128 false 1\npurge_mult 7 7 false 1\n"
      )
    end)

    effect_it("B10 also where it is what we would ask for, or our default", function()
      check(
        { MIMALLOC_ARENA_PURGE_MIN_SIZE = "64KiB", MIMALLOC_ARENA_PURGE_MULT = "9" },
        "purge_delay 1000 1000 false 0\npurge_min_size 64 64 false 0\npurge_mult 9 9 false 0\n",
        "purge_delay 9 1000 true 1\npurge_min_size 64 64 false 1\npurge_mult 9 9 false 1\n"
      )
    end)

    effect_it("B10 where a size without a unit is bytes, as the documents say", function()
      check(
        { MIMALLOC_ARENA_PURGE_MIN_SIZE = "131072" },
        "purge_delay 1000 1000 false 0\npurge_min_size 128 128 false 0\npurge_mult 4 4 false 0\n",
        "purge_delay 9 1000 true 1\npurge_min_size 128 128 false 1\npurge_mult 9 4 true 1\n"
      )
    end)

    effect_it("B6 leaves a delay of 0 or below alone", function()
      for _, delay in ipairs({ "0", "-1" }) do
        check(
          { MIMALLOC_PURGE_DELAY = delay },
          ("purge_delay %s %s false 0\n"):format(delay, delay)
            .. "purge_min_size 64 64 false 0\npurge_mult 4 4 false 0\n",
          ("purge_delay %s %s false 1\n"):format(delay, delay)
            .. "purge_min_size 256 64 true 1\npurge_mult 9 4 true 1\n"
        )
      end
    end)
  end)

  describe("leak", function()
    -- What the script's warnings say, line by line, with the times taken out.
    local function warnings_of(script, arguments)
      local lines = {}
      for _, program in ipairs(support.programs) do
        local result = support.run(program.path, {
          script = 'warn("@on")\nlocal idlesched = require "idlesched"\n' .. script,
          arguments = arguments,
        })
        assert.are.equal(0, result.code, result.err)
        assert.is_nil(result.err:find("held for -", 1, true))
        table.insert(lines, (result.err:gsub("held for [%d.]+ s", "held")))
      end
      assert.are.equal(lines[1], lines[2])
      return lines[1]
    end

    local function said(name, place, pool)
      local text = "Lua warning: %sidlesched: nobody ended the guard of %s that was made at %s; "
        .. "it was held\n"
      return text:format(pool and "pool " .. pool .. ": " or "", name, place)
    end

    it("N7 is named, once, when the collector ends the guard", function()
      assert.are.equal(
        said("purge_delay", "script.lua:3"),
        warnings_of([[
          idlesched.eager_purge()
          collectgarbage() collectgarbage()
          collectgarbage()
        ]])
      )
    end)

    it("N7 is named when the Lua state ends the guard", function()
      assert.are.equal(
        said("purge_mult", "script.lua:3"),
        warnings_of('kept = idlesched.option("purge_mult", 5)')
      )
    end)

    it("N7 says for how long it was held", function()
      local result = support.run(support.stock, {
        script = [[
          warn("@on")
          local idlesched = require "idlesched"
          kept = idlesched.eager_purge()
          idlesched.sleep(0.2)
        ]],
      })
      local seconds = tonumber(result.err:match("held for ([%d.]+) s"))
      assert.is_true(seconds >= 0.2 and seconds < 60, result.err)
    end)

    it("N7 is none for guards that end by themselves", function()
      assert.are.equal("", warnings_of([[
        local kept <close> = idlesched.eager_purge()
        idlesched.option("purge_mult", 5):close()
        pcall(function()
          local guard <close> = idlesched.option("purge_mult", 5)
          error "on the way"
        end)
        pcall(idlesched.option, "allow_thp", 0)
        local pool <close> = idlesched.pool { workers = 1 }
        pool:submit(function()
          local guard <close> = require("idlesched").eager_purge()
        end):result()
        collectgarbage() collectgarbage()
      ]]))
    end)

    it("N7 is silent where warnings are off", function()
      for _, program in ipairs(support.programs) do
        support.run_well(program.path, {
          script = [[
            kept = require("idlesched").eager_purge()
            pool = require("idlesched").pool { workers = 1 }
            pool:submit(function() kept = require("idlesched").eager_purge() end):result()
          ]],
        })
      end
    end)

    local leak_in_job = [[
      pool:submit(function()
        kept = require("idlesched").option("purge_mult", 5)
      end):result()
    ]]

    it("N7 of a worker is named when its pool closes, however that comes about", function()
      for _, close in ipairs({
        "pool:close()",
        "do local p <close> = pool end",
        "pool = nil collectgarbage() collectgarbage()",
        "", -- by the end of the state
      }) do
        local make = 'pool = idlesched.pool { workers = 1, name = "compile" }\n'
        assert.are.equal(
          said("purge_mult", "script.lua:5", "compile"),
          warnings_of(make .. leak_in_job .. close)
        )
      end
    end)

    it("N7 of a worker is named when its thread has ended, at the next call of the pool", function()
      assert.are.equal(
        said("purge_mult", "script.lua:5", "pool") .. "Lua warning: still open\n",
        warnings_of(
          "pool = idlesched.pool { workers = 1, idle_exit = 0.01 }\n"
            .. leak_in_job
            .. [[
              local deadline = idlesched.now() + 30
              while pool:stats().workers.threads > 0 and idlesched.now() < deadline do
                idlesched.sleep(0.005)
              end
              pool:active()
              warn("still open")
            ]]
        )
      )
    end)
  end)

  describe("warning of a job", function()
    local function run(script)
      local result = support.run(support.stock, {
        script = 'local idlesched = require "idlesched"\n' .. script,
        arguments = {},
      })
      assert.are.equal(0, result.code, result.err)
      return result.err
    end

    it("is heard by the state that made the pool, in order", function()
      assert.are.equal(
        "Lua warning: pool p: first\nLua warning: pool p: second part\n",
        run([[
          warn("@on")
          local pool <close> = idlesched.pool { workers = 1, name = "p" }
          pool:submit(function() warn("first") warn("second ", "part") end):result()
          pool:wait()
        ]])
      )
    end)

    it("is not switched by the job", function()
      assert.are.equal("", run([[
        local pool <close> = idlesched.pool { workers = 1 }
        pool:submit(function() warn("@on") warn("unheard") end):result()
      ]]))
      assert.are.equal("Lua warning: pool pool: @off now\nLua warning: pool pool: heard\n", run([[
        warn("@on")
        local pool <close> = idlesched.pool { workers = 1 }
        pool:submit(function() warn("@off") warn("@off", " now") warn("heard") end):result()
      ]]))
    end)

    it("is cut when it is long, and counted when there are many", function()
      local err = run([[
        warn("@on")
        local pool <close> = idlesched.pool { workers = 1 }
        pool:submit(function()
          warn(("x"):rep(200), ("y"):rep(200), "z")
          for i = 2, 70 do warn(tostring(i)) end
        end):result()
      ]])
      assert.is_truthy(err:find("x" .. ("y"):rep(55) .. "\n", 1, true), err)
      assert.is_truthy(err:find("pool pool: 64\n", 1, true), err)
      assert.is_nil(err:find("pool pool: 65\n", 1, true), err)
      assert.is_truthy(err:find("pool pool: 6 more warnings were lost\n", 1, true), err)
    end)
  end)
end)
