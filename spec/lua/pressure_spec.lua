-- SPDX-License-Identifier: MIT
--
-- pressure_spec.lua - idlesched.watch_pressure(): releases when the kernel says that memory
-- is short.
--
-- No pressure is made: a file that reads like the kernel's stands in for it, and the kernel's
-- own is only started and stopped on.

local here = debug.getinfo(1, "S").source:match("^@(.*/)") or ""
local support = dofile(here .. "support.lua")
local names_of, check_raises = support.names_of, support.check_raises
local idlesched = require("idlesched")

local types = assert(support.read(here .. "../../lua/library/idlesched.d.lua"))

local function text_of(total_us)
  return ("some avg10=0.00 avg60=0.00 avg300=0.00 total=%010d\n"):format(total_us)
end

local function new_file(name)
  return support.write(support.new_path(name or "memory.pressure"), text_of(0))
end

-- In place: whoever reads sees the one text or the other.
local function set_total(path, total_us)
  local file <close> = assert(io.open(path, "r+b"))
  assert(file:write(text_of(total_us)))
end

local function names_in_types(pattern)
  local names = {}
  for name in types:gmatch(pattern) do
    names[name] = true
  end
  assert(next(names))
  return names
end

describe("watch_pressure", function()
  after_each(function()
    collectgarbage()
    collectgarbage()
  end)

  describe("on the kernel's files", function()
    it("N8 gives a watcher, or nil and why this kernel has none", function()
      local watcher, message, number = idlesched.watch_pressure()
      if not watcher then
        assert.are.equal("string", type(message))
        assert.are.equal("number", type(number))
        pending("this kernel: " .. message)
        return
      end
      local stats = watcher:stats()
      assert.is_true(stats.watching)
      assert.is_truthy(stats.path:find("pressure", 1, true))
      assert.is_true(stats.window >= 1)
      assert.are.equal("idlesched.watcher: of " .. stats.path, tostring(watcher))
      assert.are.equal(0, select("#", watcher:close()))
      assert.is_false(watcher:stats().watching)
    end)
  end)

  describe("watches", function()
    it("N8 and releases when somebody has stalled for long enough", function()
      local path = new_file()
      local pool <close> = idlesched.pool({ workers = 1, idle_release = false })
      pool:submit(math.abs, -1):result()
      local watcher <close> =
        assert(idlesched.watch_pressure({ path = path, window = 0.5, stall = 0.001 }))
      local total = 0
      support.await("a release follows", function()
        total = total + 1000
        set_total(path, total)
        return watcher:stats().releases == 1
      end)
      local stats = watcher:stats()
      assert.is_true(stats.events >= 1)
      assert.are.equal("integer", math.type(stats.returned))
      watcher:close()
      local last = watcher:stats()
      assert.are.same({ stats.releases, stats.returned }, { last.releases, last.returned })
    end)

    it("N8 tells what the types say", function()
      local watcher <close> = assert(idlesched.watch_pressure({ path = new_file() }))
      local body = types:match("\n%-%-%-@class idlesched%.WatcherStats\n(.-)\n\n")
      local fields = {}
      for name in body:gmatch("%-%-%-@field ([%w_]+)") do
        fields[name] = true
      end
      assert.are.same(fields, names_of(watcher:stats()))
      assert.is_false(watcher:stats().trigger)
      assert.are.equal(1, watcher:stats().window)
      assert.are.same(names_in_types("\nfunction Watcher:([%w_]+)%("),
        names_of(debug.getmetatable(watcher).__index))
    end)

    it("N8 once in a process", function()
      local path = new_file()
      local watcher <close> = assert(idlesched.watch_pressure({ path = path }))
      local second, message, number = idlesched.watch_pressure({ path = path })
      assert.is_nil(second)
      assert.are.equal("already watched", message)
      assert.is_nil(number)
      assert.is_true(watcher:stats().watching)
    end)

    it("N8 until its file is gone, and can be started anew", function()
      local path = new_file()
      local watcher <close> = assert(idlesched.watch_pressure({ path = path, window = 0.5 }))
      support.write(path, "nothing of that kind")
      support.await("the watch ends", function()
        return not watcher:stats().watching
      end)
      assert.are.equal("idlesched.watcher: ended", tostring(watcher))
      local other = new_file("other")
      local anew <close> = assert(idlesched.watch_pressure({ path = other }))
      watcher:close() -- its own has ended: the new one goes on
      assert.is_true(anew:stats().watching)
    end)
  end)

  describe("ends", function()
    local function can_start()
      local watcher = idlesched.watch_pressure({ path = new_file() })
      if watcher then
        watcher:close()
      end
      return watcher ~= nil
    end

    it("N8 with close(), as often as that is called", function()
      local watcher = assert(idlesched.watch_pressure({ path = new_file() }))
      assert.is_false(can_start())
      watcher:close()
      assert.is_true(can_start())
      watcher:close()
      assert.are.equal("idlesched.watcher: ended", tostring(watcher))
      assert.is_nil(watcher:stats().path)
    end)

    it("N8 with its <close> variable, also when an error passes", function()
      pcall(function()
        local _ <close> = assert(idlesched.watch_pressure({ path = new_file() }))
        error("on the way")
      end)
      assert.is_true(can_start())
    end)

    it("N8 when it is collected", function()
      assert(idlesched.watch_pressure({ path = new_file() }))
      collectgarbage()
      collectgarbage()
      assert.is_true(can_start())
    end)

    it("N8 with its Lua state", function()
      local path = new_file()
      for _, program in ipairs(support.programs) do
        local result = support.run_well(program.path, {
          script = [[
            local idlesched = require "idlesched"
            kept = assert(idlesched.watch_pressure { path = arg[1] })
            print(kept:stats().path)
          ]],
          arguments = { path },
        })
        assert.are.equal(path .. "\n", result.out)
      end
    end)
  end)

  describe("refuses", function()
    it("N8 files of another kind, by nil and a message that names the file", function()
      local plain = support.write(support.new_path("plain"), "what somebody wrote\n")
      for _, case in ipairs({
        { plain, "not one of the kernel's" },
        { "/dev/null", "not one of the kernel's" },
        { "/nonexistent/file", "No such file" },
        { ("x"):rep(300), "the path is longer than 255 bytes" },
      }) do
        local watcher, message, number = idlesched.watch_pressure({ path = case[1] })
        assert.is_nil(watcher)
        assert.are.equal(1, (message:find(case[1] .. ": ", 1, true)))
        assert.is_truthy(message:find(case[2], 1, true), message)
        assert.are.equal("integer", math.type(number))
      end
      assert.are.equal("what somebody wrote\n", support.read(plain))
    end)

    it("N8 times that the kernel would not take, by an error that names them", function()
      local watch = idlesched.watch_pressure
      check_raises("option 'window': 0.5 to 10.0 seconds expected, got 0.4", watch,
        { window = 0.4 })
      check_raises("got 11", watch, { window = 11 })
      check_raises("got false", watch, { window = false })
      check_raises("to 1.0 seconds expected, got 2", watch, { stall = 2 })
      check_raises("to 2.0 seconds expected, got 0", watch, { stall = 0, window = 2 })
      check_raises("option 'cooldown': seconds", watch, { cooldown = -1 })
      check_raises("option 'timeout': seconds", watch, { timeout = "soon" })
      check_raises("option 'path': a string expected, got 1", watch, { path = 1 })
      check_raises("unknown option 'windows', did you mean 'window'?", watch, { windows = 1 })
      check_raises("table expected", watch, "memory.pressure")
    end)

    it("N8 nothing at the ends of the ranges", function()
      for _, options in ipairs({
        { window = 0.5, stall = 0.5, cooldown = 0, timeout = 0 },
        { window = 10, stall = 0.000001, cooldown = false, timeout = false },
      }) do
        options.path = new_file()
        local watcher <close> = assert(idlesched.watch_pressure(options))
        assert.are.equal(options.window, watcher:stats().window)
      end
    end)
  end)
end)
