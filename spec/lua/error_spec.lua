-- SPDX-License-Identifier: MIT
--
-- error_spec.lua - what a job's failure looks like to whoever asks for its result.

local here = debug.getinfo(1, "S").source:match("^@(.*/)") or ""
local support = dofile(here .. "support.lua")
local idlesched = require("idlesched")

describe("error", function()
  local pool

  setup(function()
    pool = idlesched.pool({ name = "failing", workers = 1, idle_exit = false })
  end)

  teardown(function()
    pool:close({ mode = "cancel" })
  end)

  -- The error object of a job that has to fail.
  local function error_of(fn, ...)
    local ok, err = pool:submit(fn, ...):try()
    assert.is_nil(ok)
    assert.is_true(idlesched.is_error(err))
    assert.are.equal("string", type(err.message))
    assert.are.equal("string", type(err.traceback))
    return err
  end

  local function check_contains(text, part)
    assert.is_truthy(text:find(part, 1, true), ("%q is not in %q"):format(part, text))
  end

  describe("object", function()
    it("tells kind, message, traceback, worker and pool", function()
      local line = debug.getinfo(1, "l").currentline + 2
      local err = error_of(function()
        error("on purpose")
      end)
      assert.are.equal("error", err.kind)
      assert.is_truthy(err.message:match("error_spec%.lua:" .. line .. ": on purpose$"))
      assert.are.equal("failing", err.pool)
      assert.are.equal(1, err.worker)
      assert.is_nil(err.value)
      assert.is_truthy(err.traceback:match("^stack traceback:\n"))
    end)

    it("has no fields but those in the types file", function()
      local body = support.read(here .. "../../lua/library/idlesched.d.lua")
      body = body:match("\n%-%-%-@class idlesched%.Error\n(.-)\n\n")
      local expected = {}
      for name in body:gmatch("%-%-%-@field ([%w_]+)") do
        expected[name] = true
      end
      local seen = {}
      for name in pairs(error_of(error, { "a value" })) do
        seen[name] = true
      end
      assert.are.same(expected, seen)
    end)

    it("names the functions that the worker was in, from the inside out", function()
      local function innermost(x)
        return x.field.of_nothing
      end
      local function middle(x)
        local result = innermost(x)
        return result
      end
      local err = error_of(function()
        local result = middle({})
        return result
      end)
      check_contains(err.message, "attempt to index a nil value (field 'field')")
      local first = err.traceback:find("in upvalue 'innermost'", 1, true)
      local second = err.traceback:find("in upvalue 'middle'", 1, true)
      local third = err.traceback:find("in function <", 1, true)
      assert.is_truthy(first and second and third, err.traceback)
      assert.is_true(first < second and second < third)
    end)

    it("reads as its message and its traceback", function()
      local err = error_of(error, "on purpose", 0)
      assert.are.equal("on purpose", err.message)
      assert.are.equal("on purpose\n" .. err.traceback, tostring(err))
    end)

    it("is a table that can be changed, compared and raised again", function()
      local job = pool:submit(error, "on purpose", 0)
      local _, err = job:try()
      local ok, raised = pcall(job.result, job)
      assert.is_false(ok)
      assert.are.equal(err, raised)
      ok, raised = pcall(error, err)
      assert.is_false(ok)
      assert.are.equal(err, raised)
      err.note = "the caller's own"
      assert.are.equal("the caller's own", select(2, job:try()).note)
      assert.are_not.equal(err, error_of(error, "on purpose", 0))
    end)

    it("tells which worker it was, from 1", function()
      local crowd <close> = idlesched.pool({ name = "crowd", workers = 3, idle_exit = false })
      local held = { support.hold(crowd), support.hold(crowd) }
      local err = select(2, crowd:submit(error, "on purpose"):try())
      assert.are.equal("crowd", err.pool)
      assert.is_true(err.worker >= 1 and err.worker <= 3)
      assert.are.equal("integer", math.type(err.worker))
      for _, each in ipairs(held) do
        each:let_go()
      end
    end)
  end)

  describe("value", function()
    it("that is a string is the message, unchanged", function()
      for _, text in ipairs({ "", "plain", "several\nlines", "with a \0 byte", "ümläut" }) do
        local err = error_of(error, text, 0)
        assert.are.equal(text, err.message)
        assert.is_nil(err.value)
        assert.are.equal(text .. "\n" .. err.traceback, tostring(err))
      end
    end)

    it("that is a table travels", function()
      local err = error_of(error, { code = 404, path = { "a", "b" } })
      assert.are.equal("error", err.kind)
      assert.are.same({ code = 404, path = { "a", "b" } }, err.value)
      assert.are.equal("(error object is a table value)", err.message)
    end)

    it("that is a number or a boolean travels", function()
      local err = error_of(error, 42)
      assert.are.equal(42, err.value)
      assert.are.equal("42", err.message)
      err = error_of(error, 1.5)
      assert.are.equal(1.5, err.value)
      err = error_of(error, true)
      assert.is_true(err.value)
      err = error_of(error, false)
      assert.is_false(err.value)
      assert.are.equal("(error object is a boolean value)", err.message)
    end)

    it("that is nil is none", function()
      local err = error_of(error, nil)
      assert.is_nil(err.value)
      assert.are.equal("(error object is a nil value)", err.message)
      assert.are.equal("error", err.kind)
      err = error_of(error)
      assert.are.equal("(error object is a nil value)", err.message)
    end)

    it("that is a function travels", function()
      local err = error_of(function()
        local base = 40
        error(function(x)
          return base + x
        end)
      end)
      assert.are.equal(42, err.value(2))
    end)

    it("that cannot travel is left out, and the rest is told", function()
      local err = error_of(function()
        error({ stream = io.stdout })
      end)
      assert.are.equal("error", err.kind)
      assert.are.equal("(error object is a table value)", err.message)
      assert.is_nil(err.value)
      assert.is_truthy(err.traceback:match("^stack traceback:\n"))

      err = error_of(error, setmetatable) -- one that can, for comparison
      assert.are.equal(setmetatable, err.value)
      err = error_of(function()
        error(io.stdout)
      end)
      assert.is_nil(err.value)
      check_contains(err.message, "file (0x")
    end)

    it("that names itself is asked for its message", function()
      local err = error_of(function()
        error(setmetatable({ code = 7 }, {
          __tostring = function(self)
            return "code " .. self.code
          end,
        }))
      end)
      assert.are.equal("code 7", err.message)
      assert.is_nil(err.value) -- a metatable keeps it from travelling
      assert.are.equal("error", err.kind)
    end)

    it("whose name fails as well is still an error of the job", function()
      for _, wrong in ipairs({
        function()
          error("while naming it")
        end,
        function()
          return {}
        end,
      }) do
        local err = error_of(function(naming)
          error(setmetatable({}, { __tostring = naming }))
        end, wrong)
        assert.are.equal("error", err.kind)
        assert.are.equal("failing", err.pool)
        assert.are.equal(1, err.worker)
      end
      assert.are.equal(3, pool:submit(math.abs, -3):result())
    end)
  end)

  describe("kind", function()
    it("is error for what Lua itself raises", function()
      check_contains(error_of(function()
        return nil + 1
      end).message, "attempt to perform arithmetic on a nil value")
      check_contains(error_of(function()
        return #5
      end).message, "attempt to get length of a number value")
      check_contains(error_of(function()
        return require("no.such.module")
      end).message, "module 'no.such.module' not found")
      check_contains(error_of(function()
        return string.rep()
      end).message, "bad argument #1 to 'rep'")
      check_contains(error_of(function()
        coroutine.yield(1)
      end).message, "attempt to yield from outside a coroutine")
    end)

    it("is error for one that comes out of a coroutine", function()
      local err = error_of(function()
        coroutine.wrap(function()
          error("inside")
        end)()
      end)
      check_contains(err.message, ": inside")
      assert.are.equal("error", err.kind)
    end)

    it("is error for one that a to-be-closed variable raises", function()
      local err = error_of(function()
        local _ <close> = setmetatable({}, {
          __close = function()
            error("while closing", 0)
          end,
        })
      end)
      assert.are.equal("while closing", err.message)
    end)

    it("is transfer for results that cannot travel", function()
      local err = error_of(function()
        return { { coroutine.create(print) } }
      end)
      assert.are.equal("transfer", err.kind)
      check_contains(err.message, "result 1[1][1]")
      check_contains(err.message, "coroutine")
      assert.are.equal("failing", err.pool)
    end)

    it("is transfer for what submit refuses, raised at its caller", function()
      local line = debug.getinfo(1, "l").currentline + 2
      local ok, err = pcall(function()
        pool:submit(print, io.stdout)
      end)
      assert.is_false(ok)
      assert.is_true(idlesched.is_error(err))
      assert.are.equal("transfer", err.kind)
      assert.is_truthy(err.message:find("error_spec.lua:" .. line .. ": ", 1, true), err.message)
      check_contains(err.message, "argument 1")
      assert.are.equal("", err.traceback)
      assert.are.equal(err.message, tostring(err))
      assert.is_nil(err.pool)
      assert.is_nil(err.worker)
    end)
  end)

  it("too large to travel is told as such, not as a lack of memory", function()
    local err = error_of(function()
      error(("x"):rep(70 * 1024 * 1024), 0)
    end)
    assert.are.equal("error", err.kind)
    check_contains(err.message, "too large to be described")
  end)

  describe("of an inner pool's job", function()
    it("is passed on by the outer job, with the innermost traceback", function()
      local err = error_of(function()
        local idle = require("idlesched")
        local inner <close> = idle.pool({ name = "inner", workers = 1 })
        local function fails_within()
          error({ code = 5 })
        end
        inner:submit(fails_within):result()
      end)
      assert.are.equal("error", err.kind)
      assert.are.same({ code = 5 }, err.value)
      assert.are.equal("(error object is a table value)", err.message)
      check_contains(err.traceback, "in function 'error'")
      assert.is_true(idlesched.is_error(err))
    end)

    it("is passed on with its own kind", function()
      local err = error_of(function()
        local idle = require("idlesched")
        local inner <close> = idle.pool({ name = "inner", workers = 1 })
        inner
          :submit(function()
            return io.stdout
          end)
          :result()
      end)
      assert.are.equal("transfer", err.kind)
      check_contains(err.message, "result 1")
    end)

    it("is passed on without what a script has added to it", function()
      local err = error_of(function()
        local idle = require("idlesched")
        local inner <close> = idle.pool({ name = "inner", workers = 1 })
        local _, failure = inner:submit(error, "within", 0):try()
        failure.stream = io.stdout
        failure.note = "a note"
        error(failure)
      end)
      assert.are.equal("error", err.kind)
      assert.are.equal("within", err.message)
      assert.is_nil(err.note)
      assert.is_nil(err.stream)
    end)

    it("tells the pool and the worker that it comes from", function()
      local err = error_of(function()
        local idle = require("idlesched")
        local inner <close> = idle.pool({ name = "inner", workers = 1 })
        inner:submit(error, "within"):result()
      end)
      assert.are.equal("inner", err.pool)
    end)
  end)

  describe("in a program", function()
    for _, program in ipairs(support.programs) do
      it("that does not catch it is reported with the worker's traceback, under "
        .. program.name, function()
        local result = support.run(program.path, {
          script = [[
            local idlesched = require "idlesched"
            local pool = idlesched.pool { workers = 1 }
            local function deep_inside() error "not caught" end
            pool:submit(function() deep_inside() end):result()
          ]],
        })
        assert.are.equal(1, result.code)
        check_contains(result.err, "script.lua:3: not caught\nstack traceback:")
        check_contains(result.err, "in upvalue 'deep_inside'")
        assert.are.equal("", result.out)
      end)
    end
  end)
end)
