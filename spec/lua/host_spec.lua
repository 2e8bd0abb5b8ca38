-- SPDX-License-Identifier: MIT
--
-- host_spec.lua - the `idlesched` interpreter is `lua` to whoever runs it.
--
-- Most promises are kept by comparison: the same files, arguments, environment
-- and standard input are given to both programs, and output, messages and exit
-- code have to be the same but for the program's name.  Each case also says the
-- exit code and, where it is short, the output, so that two programs that both
-- did nothing would not pass.
--
-- IDLESCHED_HOST       path of the interpreter; the test runner sets it
-- IDLESCHED_STOCK_LUA  the program to compare with, `lua5.4` if not set

local time_limit_s = 60 -- generous: it ends a hang, it does not measure

local function quote(word)
  return "'" .. word:gsub("'", [['\'']]) .. "'"
end

local function read_all(path)
  local file = assert(io.open(path, "rb"))
  local content = file:read("a")
  file:close()
  return content
end

local function write_all(path, content)
  local file = assert(io.open(path, "wb"))
  assert(file:write(content))
  assert(file:close())
end

local function first_line_of(command)
  local pipe = assert(io.popen(command))
  local line = pipe:read("l")
  pipe:close()
  return line
end

-- Cases run in folders of their own, so a relative path must not stay one.
local function find_program(name, remedy)
  local path = first_line_of("p=$(command -v " .. quote(name) .. ") && realpath -s \"$p\"")
  return path or error(("cannot find the program '%s': %s"):format(name, remedy), 0)
end

local host = find_program(
  os.getenv("IDLESCHED_HOST")
    or error("IDLESCHED_HOST is not set: give it the path of the built idlesched program", 0),
  "IDLESCHED_HOST must be the path of the built idlesched program"
)
local stock = find_program(
  os.getenv("IDLESCHED_STOCK_LUA") or "lua5.4",
  "install Lua 5.4, or give the path of its interpreter in IDLESCHED_STOCK_LUA"
)

local root, runs_count

-- Runs a program and returns {out, err, code}.
--   args   list of words           files  name -> content, put where it runs
--   env    name -> value           stdin  text, nothing if not given
local function run(program, case)
  runs_count = runs_count + 1
  local folder = ("%s/%d"):format(root, runs_count)
  assert(os.execute("mkdir " .. folder .. " " .. folder .. "/here"))
  for name, content in pairs(case.files or {}) do
    write_all(folder .. "/here/" .. name, content)
  end
  write_all(folder .. "/in", case.stdin or "")

  local words = { "cd", folder .. "/here", "&&", "exec", "env" }
  for _, name in ipairs({ "INIT", "INIT_5_4", "PATH", "PATH_5_4", "CPATH", "CPATH_5_4" }) do
    table.insert(words, "-u LUA_" .. name)
  end
  for name, value in pairs(case.env or {}) do
    table.insert(words, name .. "=" .. quote(value))
  end
  table.insert(words, "timeout " .. time_limit_s)
  table.insert(words, quote(program))
  for _, word in ipairs(case.args or {}) do
    table.insert(words, quote(word))
  end
  table.insert(words, "<../in >../out 2>../err")

  local _, how, code = os.execute(table.concat(words, " "))
  assert(how == "exit", ("%s was ended by signal %d"):format(program, code))
  assert(code ~= 124, ("%s did not end within %d s"):format(program, time_limit_s))
  return { out = read_all(folder .. "/out"), err = read_all(folder .. "/err"), code = code }
end

-- Replaces the program's name where a program speaks of itself.
local function without_name(text, program)
  text = ("\n" .. text):gsub("\n" .. program:gsub("%p", "%%%0") .. "%f[ :\n\t]", "\nPROGRAM")
  text = text:gsub("\nidlesched: ", "\nPROGRAM: "):gsub("usage: %S+", "usage: PROGRAM")
  return (text:gsub("\t" .. program:gsub("%p", "%%%0"), "\tPROGRAM"):sub(2))
end

local function without_names(result, program)
  return {
    out = without_name(result.out, program),
    err = without_name(result.err, program),
    code = result.code,
  }
end

local function check_same(case)
  local expected = without_names(run(stock, case), stock)
  local result = without_names(run(host, case), host)
  assert.are.equal(expected.err, result.err)
  assert.are.equal(expected.out, result.out)
  assert.are.equal(expected.code, result.code)
  assert.are.equal(case.code or 0, result.code)
  if case.out then
    assert.are.equal(case.out, result.out)
  end
  if case.err then
    assert.is_truthy(result.err:find(case.err, 1, true), "not in messages: " .. case.err)
  end
end

local function same(sentence, case)
  it(sentence, function()
    check_same(case)
  end)
end

local show_arguments = [[
print(...)
local first, last = 0, #arg
while arg[first - 1] do first = first - 1 end
for i = first, last do print(i, arg[i]) end
]]

local say_when_closed = [[
kept = setmetatable({}, { __gc = function() print("collected") end })
local scope <close> = setmetatable({}, { __close = function() print("left") end })
]]

-- The helper sends the signal when it sees the end of its input, and close() waits
-- for the helper: so the signal always arrives during close().
local interrupt_myself = [[
local function interrupt()
  local pid = io.open("/proc/self/stat"):read("n")
  local helper = io.popen("read nothing; kill -INT " .. pid, "w")
  helper:close()
end
]]

describe("host", function()
  setup(function()
    root = first_line_of("mktemp -d")
    runs_count = 0
  end)

  teardown(function()
    os.execute("rm -rf " .. quote(root))
  end)

  describe("script", function()
    same("gets its arguments as varargs and in arg", {
      files = { ["a.lua"] = show_arguments },
      args = { "a.lua", "one", "", "two words", "-e" },
      err = "",
    })
    same("finds the options before it at negative indices of arg", {
      files = { ["a.lua"] = show_arguments },
      args = { "-W", "-e", "local x", "a.lua", "one" },
      out = "one\n-4\tPROGRAM\n-3\t-W\n-2\t-e\n-1\tlocal x\n0\ta.lua\n1\tone\n",
    })
    same("gets the arguments that an earlier statement has put into arg", {
      files = { ["a.lua"] = "print(...)" },
      args = { "-e", "arg[1] = 'other'; arg[2] = 'more'", "a.lua", "one" },
      out = "other\tmore\n",
    })
    same("is refused when arg is no table any more", {
      files = { ["a.lua"] = "print(...)" },
      args = { "-e", "arg = 1", "a.lua" },
      code = 1,
      err = "'arg' is not a table",
    })
    same("is read from standard input for -", {
      stdin = show_arguments,
      args = { "-", "one", "-v" },
    })
    same("is read from standard input when nothing is given", {
      stdin = "print('from stdin', ..., #arg)",
      out = "from stdin\tnil\t0\n",
    })
    same("may follow --, even with a name like an option", {
      files = { ["-x.lua"] = show_arguments },
      args = { "--", "-x.lua", "one" },
    })
    same("after -- may be a file that is called -", {
      files = { ["-"] = "print('a file')" },
      stdin = "print('standard input')",
      args = { "--", "-" },
      out = "a file\n",
    })
    same("may begin with a line for the shell", {
      files = { ["a.lua"] = "#!/usr/bin/env idlesched\nprint(debug.getinfo(1).currentline)" },
      args = { "a.lua" },
      out = "2\n",
    })
    same("may be a compiled chunk", {
      args = {
        "-e",
        "io.open('a.luac', 'wb'):write(string.dump(function(...) print(...) end)):close()",
        "-e",
        "dofile('a.luac')",
      },
      out = "\n",
    })
    same("runs with the garbage collector in the mode that lua chooses", {
      args = { "-e", "print(collectgarbage('incremental'))" },
    })
    same("can use C modules, which find Lua's functions in the process", {
      args = { "-e", "print(require('lfs').attributes('.', 'mode'))" },
      out = "directory\n",
    })
  end)

  describe("options", function()
    same("-e and -l take effect in the order given, before the script", {
      files = { ["m.lua"] = "print('m', ...) return 'M'", ["a.lua"] = "print('script', m, n)" },
      args = { "-e", "print(1, m)", "-lm", "-e", "print(2, m)", "-en = 5", "a.lua" },
      out = "1\tnil\nm\tm\t./m.lua\n2\tM\nscript\tM\t5\n",
    })
    same("-e alone runs no script and reads no input", {
      stdin = "print('from stdin')",
      args = { "-e", "print(...)" },
      out = "\n",
    })
    same("-e accepts an empty statement", { args = { "-e", "" }, out = "" })
    same("-l g=mod keeps the module in another global", {
      files = { ["m.lua"] = "return 'M'" },
      args = { "-l", "g=m", "-e", "print(g, m)" },
      out = "M\tnil\n",
    })
    -- Not compared: the first releases of 5.4 did not do it yet.
    it("-l leaves a version mark out of the global's name", function()
      local result = run(host, {
        files = { ["m-v2.lua"] = "return 'M'" },
        args = { "-l", "m-v2", "-l", "g=m-v2", "-e", "print(m, g)" },
      })
      assert.are.same({ "M\tM\n", "", 0 }, { result.out, result.err, result.code })
    end)

    same("-l says where it has looked for a module that is not there", {
      args = { "-l", "no.such.module", "-e", "print('not reached')" },
      code = 1,
      out = "",
      err = "no field package.preload['no.such.module']",
    })
    same("-l shows where the module itself fails", {
      files = { ["m.lua"] = "local function f() error('broken') end\nf()" },
      args = { "-l", "m" },
      code = 1,
      err = "m.lua:1: broken\nstack traceback:",
    })
    same("-W shows warnings", { args = { "-W", "-e", "warn('careful')" }, err = "careful" })
    same("no warning is shown without -W", { args = { "-e", "warn('careful')" } })
    same("-E ignores LUA_INIT, LUA_PATH and LUA_CPATH", {
      env = { LUA_INIT = "print('init')", LUA_PATH = "nowhere/?", LUA_CPATH = "nowhere/?" },
      args = { "-E", "-e", "print(package.path, package.cpath)" },
    })
    it("-i runs the script first and goes on with its globals", function()
      local result = run(host, {
        files = { ["a.lua"] = "x = 5 print('script ran')" },
        stdin = "print('x is', x)\n",
        args = { "-i", "a.lua", "one" },
      })
      assert.are.equal("script ran\n> x is\t5\n> \n", result.out:match("^idlesched [^\n]+\n(.*)$"))
      assert.are.same({ "", 0 }, { result.err, result.code })
    end)

    it("-v names the scheduler, Lua and the allocator, and does no more", function()
      local lua_release = run(stock, { args = { "-v" } }).out:match("^Lua 5%.4%.%d+")
      local result = run(host, { args = { "-v" }, stdin = "print('from stdin')" })
      local version, release, allocator =
        result.out:match("^idlesched (%d+%.%d+%.%d+), (Lua 5%.4%.%d+), ([^\n]+)\n$")
      assert.is_string(version, "not the version line that was expected: " .. result.out)
      assert.are.equal(lua_release, release)
      assert.is_truthy(allocator == "system" or allocator:match("^mimalloc %d+%.%d+%.%d+$"))
      assert.are.same({ "", 0 }, { result.err, result.code })
    end)

    it("-v goes on to a script that is given", function()
      local case = { args = { "-v", "a.lua" }, files = { ["a.lua"] = "print('script')" } }
      local result = run(host, case)
      assert.is_truthy(result.out:match("^idlesched [^\n]+\nscript\n$"))
    end)

    -- The usage text is our own; what it begins with and what it lists is lua's.
    for _, args in ipairs({ { "-x" }, { "--help" }, { "-ie" }, { "-e" }, { "-l", "-v" } }) do
      it("are refused with the usage text: " .. table.concat(args, " "), function()
        local function outline(program)
          local result = without_names(run(program, { args = args }), program)
          local lines = {}
          for line in result.err:gmatch("[^\n]+") do
            table.insert(lines, line:match("^  %-+%S*") or line)
          end
          table.remove(lines, 3) -- the heading of the list
          return { lines, result.out, result.code }
        end
        local expected = outline(stock)
        assert.are.equal(1, expected[3])
        assert.are.same(expected, outline(host))
      end)
    end
  end)

  describe("LUA_INIT", function()
    same("is run before the options", {
      env = { LUA_INIT = "print('init', arg[1], ...)" },
      files = { ["a.lua"] = "print('script')" },
      args = { "-e", "print('statement')", "a.lua", "one" },
      out = "init\tone\nstatement\nscript\n",
    })
    same("may name a file", {
      env = { LUA_INIT = "@init.lua" },
      files = { ["init.lua"] = "print('init')" },
      args = { "-e", "" },
      out = "init\n",
    })
    same("with the version in its name goes first, and alone", {
      env = { LUA_INIT = "print('any')", LUA_INIT_5_4 = "print('5.4')" },
      args = { "-e", "" },
      out = "5.4\n",
    })
    same("that fails ends the run", {
      env = { LUA_INIT = "error('broken')" },
      args = { "-e", "print('not reached')" },
      code = 1,
      out = "",
      err = "PROGRAM: LUA_INIT:1: broken\nstack traceback:",
    })
    same("that does not compile is named", {
      env = { LUA_INIT_5_4 = "x = =" },
      args = { "-e", "print('not reached')" },
      code = 1,
      err = "PROGRAM: LUA_INIT_5_4:1:",
    })
    same("may name a file that is not there", {
      env = { LUA_INIT = "@none.lua" },
      args = { "-e", "print('not reached')" },
      code = 1,
      err = "none.lua",
    })
  end)

  describe("error", function()
    same("in a script shows a traceback of the script's functions", {
      files = { ["a.lua"] = "local function f() return nil + 1 end\nlocal t = { g = f }\nt.g()\n" },
      args = { "a.lua" },
      code = 1,
      out = "",
      err = "PROGRAM: a.lua:1: attempt to perform arithmetic on a nil value\nstack traceback:",
    })
    same("of syntax names the place", {
      files = { ["a.lua"] = "print('not reached')\nx = = 1" },
      args = { "a.lua" },
      code = 1,
      out = "",
      err = "PROGRAM: a.lua:2: unexpected symbol near '='",
    })
    same("of a missing script names the file", {
      args = { "none.lua" },
      code = 1,
      err = "PROGRAM: cannot open none.lua",
    })
    same("object with __tostring is shown as it wants, without a traceback", {
      args = {
        "-e",
        "error(setmetatable({}, { __tostring = function() return 'my own words' end }))",
      },
      code = 1,
      err = "PROGRAM: my own words\n",
    })
    same("object whose __tostring gives no string is described", {
      args = { "-e", "error(setmetatable({}, { __tostring = function() return {} end }))" },
      code = 1,
      err = "(error object is a table value)",
    })
    for _, object in ipairs({ "nil", "{}", "true", "print", "42", "''" }) do
      same("object may be any value: " .. object, {
        args = { "-e", "error(" .. object .. ")" },
        code = 1,
        err = "stack traceback:",
      })
    end
    same("in a coroutine is told where it was resumed", {
      args = { "-e", "coroutine.wrap(function() error('deep') end)()" },
      code = 1,
      err = "deep",
    })
    it("by an endless recursion is an error like others", function()
      local result = run(host, { args = { "-e", "local function f() return 1 + f() end f()" } })
      assert.are.equal(1, result.code)
      local message = "^idlesched: %(command line%):1: stack overflow.*\nstack traceback:\n"
      assert.is_truthy(result.err:find(message), result.err)
    end)

    same("in a statement keeps the script from running", {
      files = { ["a.lua"] = "print('not reached')" },
      args = { "-e", "error('early')", "a.lua" },
      code = 1,
      out = "",
    })
    same("in a script from - is seen in the exit code", {
      stdin = "error('broken')",
      args = { "-" },
      code = 1,
      err = "PROGRAM: stdin:1: broken",
    })
    same("in a script from plain standard input is reported only", {
      stdin = "error('broken')",
      code = 0,
      err = "PROGRAM: stdin:1: broken",
    })
    same("is raised by an interrupt from the keyboard", {
      files = { ["a.lua"] = interrupt_myself .. "interrupt() while true do end" },
      args = { "a.lua" },
      code = 1,
      err = "interrupted!\nstack traceback:",
    })
    same("of an interrupt can be caught", {
      files = { ["a.lua"] = interrupt_myself .. "print(pcall(interrupt))" },
      args = { "a.lua" },
      out = "false\ta.lua:4: interrupted!\n",
    })
  end)

  describe("exit code", function()
    for _, case in ipairs({
      { "os.exit()", 0 },
      { "os.exit(7)", 7 },
      { "os.exit(7, true)", 7 },
      { "os.exit(true)", 0 },
      { "os.exit(false)", 1 },
      { "return 7", 0 },
      { "return false", 0 },
      { "coroutine.wrap(function() os.exit(9, true) end)()", 9 },
    }) do
      same(("is %d after %s"):format(case[2], case[1]), {
        files = { ["a.lua"] = case[1] },
        args = { "a.lua" },
        code = case[2],
      })
    end
  end)

  describe("state", function()
    same("is closed at the end of a script", {
      files = { ["a.lua"] = say_when_closed .. "print('end')" },
      args = { "a.lua" },
      out = "end\nleft\ncollected\n",
    })
    same("is closed after an error", {
      files = { ["a.lua"] = say_when_closed .. "error('broken')" },
      args = { "a.lua" },
      code = 1,
      out = "left\ncollected\n",
    })
    same("is closed after an error in a statement", {
      args = { "-e", say_when_closed .. "error('broken')" },
      code = 1,
      out = "left\ncollected\n",
    })
    same("is closed by os.exit when asked for", {
      files = { ["a.lua"] = say_when_closed .. "os.exit(3, true)" },
      args = { "a.lua" },
      code = 3,
      out = "left\ncollected\n",
    })
    same("is left alone by a plain os.exit", {
      files = { ["a.lua"] = say_when_closed .. "os.exit(3)" },
      args = { "a.lua" },
      code = 3,
      out = "",
    })
    same("is closed with the exit code kept when a finaliser fails", {
      args = { "-W", "-e", "x = setmetatable({}, { __gc = function() error('late') end })" },
      code = 0,
      err = "late",
    })
  end)

  describe("module idlesched", function()
    it("is the built-in one, found without any search path", function()
      local result = run(host, {
        env = { LUA_PATH = "", LUA_CPATH = "" },
        args = {
          "-e",
          [[
            package.searchpath = function() error("package.searchpath was used") end
            local module, origin = require("idlesched")
            print(type(module), origin, package.path, package.cpath)
          ]],
        },
      })
      assert.are.equal("", result.err)
      assert.are.equal("table\t:preload:\t\t\n", result.out)
    end)

    it("is not hidden by a file of the same name", function()
      local result = run(host, {
        files = { ["idlesched.lua"] = "error('the wrong module')" },
        args = { "-l", "idlesched", "-e", "print(type(idlesched))" },
      })
      assert.are.same({ "table\n", "", 0 }, { result.out, result.err, result.code })
    end)

    it("is there for LUA_INIT, and costs nothing until it is required", function()
      local result = run(host, {
        env = { LUA_INIT = "print(package.loaded.idlesched, type(require('idlesched')))" },
        args = { "-e", "" },
      })
      assert.are.same({ "nil\ttable\n", "", 0 }, { result.out, result.err, result.code })
    end)
  end)

  describe("interactive mode", function()
    -- Prompts share the output with results; a prompt of its own keeps them apart.
    local function interact(input)
      local args = { "-i", "-e", "_PROMPT, _PROMPT2 = '', ''" }
      local result = run(host, { args = args, stdin = input })
      local after_version = result.out:match("^idlesched [^\n]+\n(.*)\n$")
      return { after_version, result.err, result.code }
    end

    it("prints the values of expressions", function()
      assert.are.same({ "3\n1\tnil\tx\n", "", 0 }, interact("1 + 2\n1, nil, 'x'\n"))
    end)

    it("prints what a line returns, and nothing for a statement", function()
      assert.are.same({ "5\n", "", 0 }, interact("x = 5\n\nreturn x\n;\n"))
    end)

    it("takes a leading = as the wish for a value", function()
      assert.are.same({ "3\n4\n", "", 0 }, interact("=1 + 2\n=(\n4)\n"))
    end)

    it("reads more lines while a statement is incomplete", function()
      assert.are.same({ "1\n2\n", "", 0 }, interact("for i = 1, 2 do\nprint(i)\nend\n"))
    end)

    it("reports a statement that the input's end leaves incomplete", function()
      local result = interact("for i = 1, 2 do\nprint(i)")
      assert.is_truthy(result[2]:find("stdin:2: 'end' expected", 1, true))
    end)

    it("goes on after an error, which carries a traceback and no program name", function()
      local result = interact("error('broken')\nx y\nerror({})\nprint('still here')\n")
      assert.are.equal("still here\n", result[1])
      assert.are.equal(0, result[3])
      assert.is_truthy(result[2]:find("^stdin:1: broken\nstack traceback:\n"))
      assert.is_truthy(result[2]:find("\nstdin:1: syntax error near 'y'\n", 1, true))
      assert.is_truthy(result[2]:find("\n(error object is a table value)\n", 1, true))
    end)

    it("reports a value that cannot be printed", function()
      local result = interact("setmetatable({}, { __tostring = function() error('no') end })\n")
      assert.are.equal("error calling 'print' (stdin:1: no)\n", result[2])
    end)

    it("closes the variables of each line and the state at its end", function()
      local input = say_when_closed:gsub("\n", " ") .. "\nprint('next')\n"
      local result = run(host, { args = { "-i" }, stdin = input })
      local after_version = result.out:match("^idlesched [^\n]+\n(.*)$")
      assert.are.equal("> left\n> next\n> \ncollected\n", after_version)
    end)

    it("shows prompts, and others where _PROMPT and _PROMPT2 are set", function()
      local input = "x =\n1\n_PROMPT, _PROMPT2 = 'A', 'B'\nx =\n2\n"
      local result = run(host, { args = { "-i" }, stdin = input })
      assert.are.equal("> >> > ABA\n", result.out:match("^idlesched [^\n]+\n(.*)$"))
    end)

    it("starts by itself on a terminal, with the version line", function()
      if not first_line_of("command -v script") then
        return pending("needs the program `script` to have a terminal")
      end
      local command = "echo 'print(1 + 1, arg[0] ~= nil)' | timeout %d script -qec %s /dev/null"
      local pipe = assert(io.popen(command:format(time_limit_s, quote(quote(host)))))
      local screen = pipe:read("a"):gsub("\r", "")
      pipe:close()
      assert.is_truthy(screen:find("idlesched %d+%.%d+%.%d+, Lua 5%.4%.%d+, [^\n]+\n> "))
      assert.is_truthy(screen:find("2\ttrue\n", 1, true))
    end)
  end)

  describe("memory", function()
    -- Whether a mapping asks for huge pages is a flag of it: unlike the number of
    -- huge pages it does not depend on what the kernel has at hand.
    local function count_mappings_that_want_huge_pages(env)
      local result = run(host, {
        env = env,
        args = {
          "-e",
          [[
            local blocks, count = {}, 0
            for i = 1, 10000 do blocks[i] = { i } end
            for line in io.lines("/proc/self/smaps") do
              if line:find("^VmFlags:.* hg") then count = count + 1 end
            end
            print(count)
          ]],
        },
      })
      assert.are.same({ "", 0 }, { result.err, result.code })
      return tonumber(result.out)
    end

    local function huge_pages_matter()
      local switch = io.open("/sys/kernel/mm/transparent_hugepage/enabled")
      local setting = switch and switch:read("a") or "[never]"
      local version_line = run(host, { args = { "-v" } }).out
      return version_line:find("mimalloc", 1, true) and not setting:find("[never]", 1, true)
    end

    it("B22 is kept off huge pages, from which nothing would return for long", function()
      if not huge_pages_matter() then
        return pending("needs mimalloc and a kernel that gives huge pages")
      end
      assert.are.equal(0, count_mappings_that_want_huge_pages({}))
    end)

    it("B10 lies on huge pages when the user says so", function()
      if not huge_pages_matter() then
        return pending("needs mimalloc and a kernel that gives huge pages")
      end
      assert.is_true(count_mappings_that_want_huge_pages({ MIMALLOC_ALLOW_THP = "1" }) > 0)
    end)
  end)
end)
