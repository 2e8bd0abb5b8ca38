-- SPDX-License-Identifier: MIT
--
-- value_spec.lua - what can be sent to a job and back, how it arrives, and what is
-- refused, with which words.
--
-- One worker, so that all jobs of a test meet the same state.  Most promises are
-- shown by a round trip: the job returns its arguments.  Note that specs run with
-- an _ENV that is no table of globals but a proxy with a metatable, so every job
-- here that uses a global is a test of its own.

local idlesched = require("idlesched")

local pool

local function run(fn, ...)
  return pool:submit(fn, ...):result()
end

-- There and back.
local function send(...)
  return run(function(...)
    return ...
  end, ...)
end

local function bits(number)
  return string.pack("d", number)
end

local function no_metatable_please()
  return setmetatable({}, { __name = "Account" })
end

-- The error that fn(...) raises, as text.
local function message_of(fn, ...)
  local ok, err = pcall(fn, ...)
  assert.is_false(ok, "an error was expected")
  return tostring(err)
end

local function check_contains(text, message)
  assert.is_truthy(message:find(text, 1, true), ("%q is not in %q"):format(text, message))
end

-- Sending these to a job has to fail, with that text in the message.
local function check_refused(text, fn, ...)
  check_contains("cannot send " .. text, message_of(pool.submit, pool, fn, ...))
end

local function nothing() end

describe("a value sent to a job", function()
  setup(function()
    pool = idlesched.pool({ workers = 1 })
  end)

  teardown(function()
    pool:close()
  end)

  describe("of a simple kind", function()
    it("arrives with all others, trailing nils included", function()
      assert.are.equal(0, select("#", send()))
      assert.are.equal(1, select("#", send(nil)))
      assert.are.same({ nil, 1, nil, n = 3 }, table.pack(send(nil, 1, nil)))
      assert.are.equal(3, run(function(...)
        return select("#", ...)
      end, nil, nil, nil))
    end)

    it("may be one of two hundred", function()
      local many = {}
      for i = 1, 200 do
        many[i] = i
      end
      assert.are.same(many, { send(table.unpack(many)) })
    end)

    it("stays the boolean that it was", function()
      assert.are.same({ true, false }, { send(true, false) })
    end)

    it("stays an integer of the same value", function()
      for _, integer in ipairs({
        0, 1, -1, 127, 128, -128, -129, 255, 65536, 2 ^ 31 | 0, -(2 ^ 31) | 0,
        -(2 ^ 31) - 1 | 0, 2 ^ 53 | 0, math.maxinteger, math.mininteger,
      }) do
        local result = send(integer)
        assert.are.equal(integer, result)
        assert.are.equal("integer", math.type(result))
      end
    end)

    it("stays a float, bit for bit", function()
      for _, float in ipairs({ 2.0, 0.0, -0.0, 0.1, 5e-324, 1 / 0, -1 / 0, 0 / 0, -(0 / 0) }) do
        local result = send(float)
        assert.are.equal("float", math.type(result))
        assert.are.equal(bits(float), bits(result))
      end
    end)

    it("stays a string, whatever bytes are in it", function()
      local all = {}
      for byte = 0, 255 do
        all[#all + 1] = string.char(byte)
      end
      local binary = table.concat(all)
      for _, text in ipairs({ "", "a", "zero\0inside\0", binary, binary:sub(1, 255) }) do
        assert.are.equal(text, send(text))
      end
    end)

    it("may be a large string", function()
      local large = ("0123456789"):rep(500000)
      assert.is_true(large == send(large))
      assert.are.equal(#large, run(function(text)
        return #text
      end, large))
    end)

    it("may be a light userdata, which is just an address", function()
      local upvalue = 1
      local light = debug.upvalueid(function()
        return upvalue
      end, 1)
      assert.are.equal("userdata", type(light))
      assert.are.equal(light, send(light))
    end)
  end)

  describe("that is a table", function()
    it("is copied with everything in it", function()
      local original = { 1, "two", 3.5, { deep = { deeper = true } }, key = "value" }
      local copy = send(original)
      assert.are.same(original, copy)
      assert.are_not.equal(original, copy)
      assert.are.same({}, send({}))
    end)

    it("is not changed by what the job does to its copy", function()
      local original = { count = 1 }
      assert.are.equal(2, run(function(t)
        t.count = t.count + 1
        return t.count
      end, original))
      assert.are.equal(1, original.count)
    end)

    it("keeps keys of every kind", function()
      local inner = { "key" }
      local function fn()
        return "called"
      end
      local original = { [true] = 1, [2.5] = 2, [-7] = 3, [2 ^ 40 | 0] = 4, [print] = 5 }
      original[inner] = 6
      original[fn] = 7
      local copy = send(original)
      assert.are.equal(1, copy[true])
      assert.are.equal(2, copy[2.5])
      assert.are.equal(3, copy[-7])
      assert.are.equal(4, copy[2 ^ 40 | 0])
      assert.are.equal(5, copy[print])
      local others = {}
      for key, value in pairs(copy) do
        others[value] = key
      end
      assert.are.same({ "key" }, others[6])
      assert.are.equal("called", others[7]())
    end)

    it("keeps its length when there is a small gap", function()
      assert.are.equal(3, #send({ 1, nil, 3 }))
      assert.are.same({ 1, nil, 3, nil, nil, 6 }, send({ 1, nil, 3, nil, nil, 6 }))
    end)

    it("keeps pairs far beyond its end", function()
      assert.are.same({ 1, 2, [1000000] = 3 }, send({ 1, 2, [1000000] = 3 }))
    end)

    it("that occurs twice arrives as one table", function()
      local shared = {}
      local copy, again = send({ shared, { shared } }, shared)
      assert.are.equal(copy[1], copy[2][1])
      assert.are.equal(copy[1], again)
    end)

    it("may contain itself, as a value and as a key", function()
      local ring = { name = "ring" }
      ring.next = { next = ring }
      ring[ring] = ring
      local copy = send(ring)
      assert.are.equal("ring", copy.name)
      assert.are.equal(copy, copy.next.next)
      assert.are.equal(copy, copy[copy])
    end)

    it("may be an array of many records", function()
      local records = {}
      for i = 1, 1000 do
        records[i] = { id = i, name = "record " .. i, tags = { "old", "new" }, at = { x = i / 2 } }
      end
      assert.are.same(records, send(records))
    end)

    it("may repeat a long string, which is sent once", function()
      local long = ("long"):rep(5000000) -- four of them are more than a message may have
      local copy = send({ long, long, long, long })
      assert.is_true(copy[1] == long and copy[4] == long)
    end)

    it("may be nested 200 levels deep, and no deeper", function()
      local function nest(levels)
        local value = {}
        for _ = 2, levels do
          value = { value }
        end
        return value
      end
      local copy, levels = send(nest(200)), 0
      while copy do
        copy, levels = copy[1], levels + 1
      end
      assert.are.equal(200, levels)
      check_refused("argument 1[1][1][1]", nothing, nest(201))
      check_refused("argument 1.x[1]", nothing, { x = nest(300) })
      local message = message_of(pool.submit, pool, nothing, nest(201))
      check_contains("(a value nested deeper than 200 levels)", message)
      assert.is_true(#message < 1000, "the path is not shortened")
    end)
  end)

  describe("that is a Lua function", function()
    it("uses the globals of where it runs, also when _ENV is a proxy", function()
      -- luacheck: push ignore
      run(function()
        set_by_value_spec = "in the worker"
      end)
      assert.is_nil(rawget(_G, "set_by_value_spec"))
      local get = function()
        return set_by_value_spec
      end
      -- luacheck: pop
      assert.are.equal("in the worker", run(get))
      assert.are.equal("7", run(function(x)
        return tostring(x)
      end, 7))
    end)

    it("gets the globals as _ENV whatever that was", function()
      local real_type = type
      local fn
      do
        local _ENV = { only = "here" } -- luacheck: ignore
        fn = function()
          return only, print -- luacheck: ignore
        end
      end
      local only, its_print = run(fn)
      assert.is_nil(only)
      assert.are.equal("function", real_type(its_print))
    end)

    it("brings its upvalues along, by copy", function()
      local number, list, none = 5, { 1, 2 }, nil
      local count = 0
      local function job()
        count = count + 1
        return number, list, none, count
      end
      assert.are.same({ 5, { 1, 2 }, nil, 1, n = 4 }, table.pack(run(job)))
      assert.are.equal(1, (select(4, run(job))), "an upvalue was kept from one job to the next")
      assert.are.equal(0, count)
    end)

    it("has its first upvalue right, even when that is nil", function()
      local first, second = nil, "second"
      local a, b = run(function()
        return first, second
      end)
      assert.is_nil(a)
      assert.are.equal("second", b)
    end)

    it("may have many upvalues", function()
      local source = {}
      for i = 1, 100 do
        source[#source + 1] = ("local v%d = %d"):format(i, i)
      end
      source[#source + 1] = "return function() return v1"
      for i = 2, 100 do
        source[#source + 1] = (" + v%d"):format(i)
      end
      source[#source + 1] = " end"
      assert.are.equal(5050, run(assert(load(table.concat(source, "\n")))()))
    end)

    it("may call itself", function()
      local function fib(n)
        return n < 2 and n or fib(n - 1) + fib(n - 2)
      end
      assert.are.equal(610, run(fib, 15))
    end)

    it("may call another one that calls it", function()
      local is_odd
      local function is_even(n)
        return n == 0 or is_odd(n - 1)
      end
      function is_odd(n)
        return n ~= 0 and is_even(n - 1)
      end
      assert.is_true(run(is_even, 10))
      assert.is_false(run(is_odd, 10))
    end)

    it("may be a method of the table that it uses", function()
      local account = { balance = 100 }
      function account.withdraw(amount)
        account.balance = account.balance - amount
        return account
      end
      local result, same = run(function(a)
        local b = a.withdraw(30)
        return b, a == b
      end, account)
      assert.is_true(same)
      assert.are.equal(70, result.balance)
      assert.are.equal(result, result.withdraw(20))
      assert.are.equal(50, result.balance)
      assert.are.equal(100, account.balance)
    end)

    it("shares an upvalue with its sibling in the same message", function()
      local count = 0
      local function increase()
        count = count + 1
      end
      local function get()
        return count
      end
      assert.are.equal(2, run(function(i, g)
        i()
        i()
        return g()
      end, increase, get))
      local i, g = send(increase, get)
      i()
      assert.are.equal(1, g())
      local api = send({ increase = increase, get = get })
      api.increase()
      assert.are.equal(1, api.get())
      assert.are.equal(0, count)
    end)

    it("shares no upvalue across messages", function()
      local count = 0
      local function increase()
        count = count + 1
        return count
      end
      assert.are.equal(1, run(increase))
      assert.are.equal(1, run(increase))
    end)

    it("is undisturbed by what another job did to _ENV", function()
      local function job() -- luacheck: ignore
        local to_text = tostring
        _ENV = {}
        return to_text(1)
      end
      for _ = 1, 3 do
        assert.are.equal("1", run(job))
      end
    end)

    it("arrives as one function when it occurs twice, and as two when there are two", function()
      local function make()
        return function() end
      end
      local first, second = make(), make()
      local a, b, c = send(first, second, first)
      assert.are_not.equal(a, b)
      assert.are.equal(a, c)
      assert.are.equal(2, run(function(t)
        local count = 0
        for _ in pairs(t) do
          count = count + 1
        end
        return count
      end, { [first] = 1, [second] = 2 }))
    end)

    it("is another one each time it arrives", function()
      local function make()
        return function()
          return tostring(1)
        end
      end
      local first = run(make)
      debug.setupvalue(first, 1, {
        tostring = function()
          return "mine"
        end,
      })
      local second = run(make)
      assert.are_not.equal(first, second)
      assert.are.equal("mine", first())
      assert.are.equal("1", second())
    end)

    it("may be one of more functions than are remembered", function()
      for _ = 1, 2 do
        for i = 1, 300 do
          assert.are.equal(i, run(assert(load(("return function() return %d end"):format(i)))()))
        end
      end
    end)

    it("keeps the positions in its source", function()
      local line = debug.getinfo(1, "l").currentline + 2
      local message = message_of(run, function()
        error("on purpose")
      end)
      check_contains(("value_spec.lua:%d: on purpose"):format(line), message)
    end)

    it("may have been stripped", function()
      local stripped = assert(load(string.dump(function(x)
        return tostring(x)
      end, true)))
      assert.are.equal("8", run(stripped, 8))
    end)

    it("may be a result", function()
      local add = run(function(n)
        return function(x)
          return math.floor(x + n)
        end
      end, 10)
      assert.are.equal(15, add(5.5))
    end)
  end)

  describe("that is a C function", function()
    it("arrives as the one that the receiver has under that name", function()
      assert.is_true(run(function(format, globals_print, require_function)
        return format == string.format and globals_print == print and require_function == require
      end, string.format, print, require))
      assert.are.equal(string.format, run(function()
        return string.format
      end))
    end)

    it("may be an upvalue", function()
      local insert, format = table.insert, string.format
      assert.are.equal("1 item", run(function()
        local list = {}
        insert(list, "item")
        return format("%d item", #list)
      end))
    end)

    it("goes by its standard name, if it has one", function()
      package.loaded["a"] = { b = string.rep }
      finally(function()
        package.loaded["a"] = nil
      end)
      assert.are.equal("xx", run(function(rep)
        return rep("x", 2)
      end, string.rep))
    end)

    it("comes with its module, which is required if need be", function()
      local currentdir = require("lfs").currentdir
      assert.are.equal(currentdir(), run(function()
        return currentdir()
      end))
      assert.is_true(run(function()
        return package.loaded.lfs.currentdir == currentdir
      end))
    end)

    it("is refused when no module has it", function()
      local next_word = string.gmatch("two words", "%w+")
      check_refused("argument 1 (a C function that no loaded module has)", nothing, next_word)
      check_refused("function, upvalue 'next_word' of function <", function()
        return next_word()
      end)
    end)
  end)

  describe("that is a module's table", function()
    local name = "value_spec.module"

    after_each(function()
      package.loaded[name] = nil
      run(function(module)
        package.loaded[module] = nil
        package.preload[module] = nil
      end, name)
    end)

    local function preload_in_worker()
      run(function(module)
        package.preload[module] = function()
          return { where = "worker", fn = function() end }
        end
      end, name)
    end

    it("arrives as the module that the receiver has", function()
      local str, globals = string, _G
      assert.is_true(run(function(m)
        return str == string and globals == _G and m[1] == math
      end, { math }))
      assert.are.equal(string, send(string))
      assert.are.equal(io, send({ io = io }).io)
    end)

    it("is required where it is not loaded yet", function()
      preload_in_worker()
      package.loaded[name] = { where = "owner", fn = nothing }
      local module = package.loaded[name]
      assert.are.equal("worker", run(function()
        return module.where
      end))
      assert.are.equal("worker", run(function(m)
        return m.where
      end, module))
      assert.are.equal(module, run(function(module_name)
        return require(module_name)
      end, name))
    end)

    it("may have a metatable", function()
      preload_in_worker()
      package.loaded[name] = setmetatable({ where = "owner" }, {})
      assert.are.equal("worker", run(function(m)
        return m.where
      end, package.loaded[name]))
    end)

    it("is copied when it is plain data", function()
      package.loaded[name] = { level = 3, names = { "a", "b" } }
      assert.are.same({ level = 3, names = { "a", "b" } }, send(package.loaded[name]))
      local copy = send({ package.loaded[name], nothing })
      assert.are.same({ level = 3, names = { "a", "b" } }, copy[1])
    end)

    it("is the receiver's business when there is no such module", function()
      package.loaded[name] = { fn = nothing }
      local message = message_of(run, nothing, package.loaded[name])
      check_contains(("cannot receive the module '%s': "):format(name), message)
    end)
  end)

  describe("that cannot travel", function()
    it("is refused for its metatable", function()
      check_refused(
        "argument 2.config (a table with a metatable): send its plain fields",
        nothing,
        1,
        { config = no_metatable_please() }
      )
    end)

    it("is refused as a userdata, by the name of its type", function()
      check_refused("argument 1 (a userdata 'FILE*'): ", nothing, io.stdout)
    end)

    it("is refused as a coroutine", function()
      check_refused("argument 1 (a coroutine): ", nothing, coroutine.create(nothing))
    end)

    it("is named by its path through tables", function()
      local bad = no_metatable_please()
      check_refused("argument 3[2].x (", nothing, 1, 2, { 1, { x = bad } })
      check_refused('argument 1["two words"] (', nothing, { ["two words"] = bad })
      check_refused('argument 1["quote\\"\\010"] (', nothing, { ['quote"\n'] = bad })
      check_refused("argument 1[true][-1][2.5] (", nothing, { [true] = { [-1] = { [2.5] = bad } } })
    end)

    it("is named by its path as a key", function()
      check_refused(
        "argument 1.index[<thread>] (a coroutine)",
        nothing,
        { index = { [coroutine.create(nothing)] = true } }
      )
    end)

    it("is named by its path through upvalues", function()
      local log = { file = io.stdout }
      local line = debug.getinfo(1, "l").currentline + 1
      local function callback()
        return log.file
      end
      local of_function = ("upvalue 'log.file' of function <.-value_spec.lua:%d>"):format(line)
      local message = message_of(pool.submit, pool, callback)
      assert.is_truthy(message:find("cannot send function, " .. of_function), message)
      message = message_of(pool.submit, pool, nothing, 1, { config = { 1, callback } })
      assert.is_truthy(message:find("argument 2%.config%[2%], " .. of_function), message)
    end)

    it("is found in results, too", function()
      local message = message_of(run, function()
        return 1, { file = io.stdout }
      end)
      check_contains("cannot send result 2.file (a userdata 'FILE*')", message)
    end)

    it("has none of its metamethods called", function()
      local called = false
      local function call()
        called = true
        return "called"
      end
      local trap = setmetatable({}, {
        __index = call,
        __len = call,
        __pairs = call,
        __tostring = call,
        __name = "Trap",
      })
      check_refused("argument 1.trap (a table with a metatable)", nothing, { trap = trap })
      assert.is_false(called)
    end)

    it("is refused when the message would be larger than 64 MiB", function()
      local large = ("x"):rep(65 << 20)
      check_refused("argument 1.text (", nothing, { text = large })
      local message = message_of(pool.submit, pool, nothing, { text = large })
      check_contains("67108864 are allowed", message)
      assert.is_truthy(message:find("has 6815%d%d%d%d bytes"), message)
      local half = ("x"):rep(33 << 20)
      check_refused("argument 2 (", nothing, half, half .. "y")
    end)

    it("raises an error of kind transfer before anything is queued", function()
      local submitted = pool:stats().jobs_submitted
      local ok, err = pcall(pool.submit, pool, nothing, { no_metatable_please() })
      assert.is_false(ok)
      assert.are.equal("transfer", err.kind)
      check_contains("cannot send argument 1[1] (a table with a metatable)", err.message)
      assert.are.equal(submitted, pool:stats().jobs_submitted)
    end)

    it("leaves the pool as good as before", function()
      for _ = 1, 10 do
        assert.is_false(pcall(pool.submit, pool, nothing, { nothing, coroutine.create(nothing) }))
      end
      assert.are.equal("fine", send("fine"))
    end)
  end)

  describe("that is anything", function()
    local function random_value(depth)
      local kind = math.random(depth > 0 and 9 or 6)
      if kind == 1 then
        return math.random(2) == 1
      elseif kind == 2 then
        return math.random(-300, 300)
      elseif kind == 3 then
        return math.random(0) -- any integer
      elseif kind == 4 then
        return math.random()
      elseif kind == 5 then
        return "key " .. math.random(20)
      elseif kind == 6 then
        return string.char(math.random(0, 255)):rep(math.random(0, 600))
      end
      local value = {}
      for _ = 1, math.random(0, 5) do
        value[#value + 1] = random_value(depth - 1)
      end
      for _ = 1, math.random(0, 5) do
        local key = random_value(0)
        value[key] = random_value(depth - 1)
      end
      return value
    end

    it("comes back the same", function()
      local seed = os.time()
      math.randomseed(seed)
      for round = 1, 300 do
        local value = random_value(5)
        assert.are.same(value, send(value), ("seed %d, round %d"):format(seed, round))
      end
    end)
  end)
end)
