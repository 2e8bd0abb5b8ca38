-- SPDX-License-Identifier: MIT
--
-- workload_spec.lua - scripts/workloads/lua_compile.lua: what it prints, what it takes
-- from the command line, and when it says that something is wrong.

local here = debug.getinfo(1, "S").source:match("^@(.*/)") or "./"
local support = dofile(here .. "support.lua")

local workload = here .. "../../scripts/workloads/lua_compile.lua"
local pipe = assert(io.popen("realpath '" .. workload .. "'"))
workload = pipe:read("l")
pipe:close()

local is_mimalloc = support.allocator ~= "system"

-- A source file of some 20 KB; no two are alike.
local function source(seed)
  local lines = { "local functions = {}" }
  local line = "functions[%d] = function(x, y) return { x, name = 'n%d.%d' }, y * %d end"
  for i = 1, 200 do
    lines[i + 1] = line:format(i, seed, i, seed + i)
  end
  table.insert(lines, "return functions")
  return table.concat(lines, "\n")
end

-- 36 files that compile, 2 that do not, and some that are none of its business.
local function make_sources()
  local folder = support.new_folder("sources")
  assert(os.execute(("mkdir -p '%s/below/further' '%s/a folder'"):format(folder, folder)))
  for i = 1, 33 do
    support.write(("%s/below/file_%d.lua"):format(folder, i), source(i))
  end
  support.write(folder .. "/below/further/down.lua", source(100))
  support.write(folder .. "/a folder/it's one.lua", source(101))
  support.write(folder .. "/script.lua", "#!/usr/bin/env lua5.4\n" .. source(102))
  support.write(folder .. "/other.lua", "class Other { int x; };\n")
  support.write(folder .. "/later.lua", "local x <unheard> = 1\n")
  support.write(folder .. "/readme.txt", "not a source")
  support.write(folder .. "/archive.lua.bak", "not a source either")
  return folder
end

describe("lua_compile", function()
  local folder

  setup(function()
    folder = make_sources()
  end)

  local function run(program, words, environment)
    table.insert(words, 1, workload)
    return support.run(program, { arguments = words, environment = environment })
  end

  -- The lines of a phase: name -> its columns.
  local function read_phases(text)
    local phases, order = {}, {}
    for line in text:gmatch("[^\n]+") do
      local name, anonymous, resident, threads, active, releases, rate =
        line:match("^(%a[%a, ]-) +([%d.]+) MB +([%d.]+) MB +(%d+) +(%d+) +(%d+) +(%S+)$")
      if name then
        table.insert(order, name)
        phases[name] = {
          anonymous = tonumber(anonymous),
          resident = tonumber(resident),
          threads = tonumber(threads),
          active = tonumber(active),
          releases = tonumber(releases),
          rate = tonumber(rate),
        }
      end
    end
    return phases, order
  end

  for _, program in ipairs(support.programs) do
    describe("under " .. program.name, function()
      it("compiles every source, and tells each phase of it", function()
        local result = run(program.path, { "--workers", "3", "--rounds", "2", "--idle-exit", "1.5",
          folder })
        assert.are.equal("", result.err)
        assert.are.equal(0, result.code)
        local lines = {}
        for line in result.out:gmatch("[^\n]+") do
          table.insert(lines, line)
        end
        assert.is_truthy(lines[1]:find("^38 files, 2 rounds, 3 workers, %S+"), lines[1])
        assert.is_truthy(lines[2]:find("^phase +anonymous +resident +threads +active +releases +"))

        local phases, order = read_phases(result.out)
        assert.are.same({ "start", "workers started", "peak", "after work", "after idle release",
          "after idle exit" }, order)
        assert.are.equal(0, phases.start.threads)
        assert.are.equal(3, phases["workers started"].threads)
        assert.are.equal(3, phases["workers started"].releases)
        assert.is_true(phases["after work"].rate > 0)
        assert.are.equal(3, phases["after idle release"].threads)
        assert.are.equal(0, phases["after idle release"].active)
        assert.is_true(phases["after idle release"].releases > 3)
        assert.are.equal(0, phases["after idle exit"].threads)
        assert.are.equal(0, phases["after idle exit"].active)
        for _, phase in pairs(phases) do
          assert.is_true(phase.resident >= phase.anonymous)
        end
        assert.are.equal("72 chunks compiled and loaded, 4 files are not Lua 5.4", lines[9])
        assert.is_truthy(lines[10]:find("^memory was back %d+ ms after the last result$")
          or lines[10]:find("^no limits are checked"), lines[10])
        assert.are.equal(10, #lines)
      end)

      it("A23 shows with --idle-release off that the memory stays until the threads end", function()
        local result = run(program.path, { "--workers", "3", "--rounds", "2", "--idle-exit", "1.5",
          "--idle-release", "off", folder })
        assert.are.equal("", result.err)
        assert.are.equal(0, result.code)
        local phases, order = read_phases(result.out)
        assert.are.same({ "start", "workers started", "peak", "after work", "idle, no release",
          "after idle exit" }, order)
        local idle = phases["idle, no release"]
        assert.are.equal(3, idle.threads)
        assert.are.equal(0, idle.active)
        assert.are.equal(0, idle.releases)
        assert.is_true(idle.anonymous >= phases["after work"].anonymous - 0.3)
        assert.are.equal(0, phases["after idle exit"].threads)
        if is_mimalloc then
          assert.is_true(phases["after idle exit"].anonymous < idle.anonymous)
        end
      end)
    end)
  end

  it("is told how many workers and rounds, and where to look", function()
    local result = run(support.host, { "--rounds", "1", "--workers", "1", "--quiet", "--idle-exit",
      "0.3", folder .. "/a folder", folder .. "/below/further" })
    assert.are.equal("", result.err)
    assert.are.equal(0, result.code)
    assert.is_truthy(result.out:find("^2 files, 1 rounds, 1 workers, "), result.out)
    assert.is_truthy(result.out:find("\n2 chunks compiled and loaded, 0 files are not Lua 5.4\n"))
  end)

  it("explains itself with --help, and does nothing", function()
    local result = run(support.host, { "--help", folder })
    assert.are.equal(0, result.code)
    assert.are.equal("", result.err)
    assert.is_truthy(result.out:find("^usage: "))
    for _, option in ipairs({ "workers", "rounds", "idle%-release", "idle%-exit", "quiet" }) do
      assert.is_truthy(result.out:find("\n  %-%-" .. option .. " "), option)
    end
  end)

  it("refuses what it does not understand, with the usage and exit code 2", function()
    local empty = support.new_folder("empty")
    local cases = {
      { "unknown option '--worker'", "--worker", "3" },
      { "unknown option '-w'", "-w" },
      { "--workers takes a value", "--workers" },
      { "--workers takes a number, 1 or more, got '0'", "--workers", "0" },
      { "--workers takes a number, 1 or more, got 'many'", "--workers", "many" },
      { "--workers takes a whole number", "--workers", "1.5" },
      { "--rounds takes a number, 1 or more, got '-1'", "--rounds", "-1" },
      { "--rounds takes a value", folder, "--rounds" },
      { "--idle-release takes a number, 0 or more, got 'on'", "--idle-release", "on" },
      { "--idle-release takes a number, 0 or more, got '-1'", "--idle-release", "-1" },
      { "--idle-exit takes a number", "--idle-exit", "off" },
      { "no *.lua file below " .. empty, empty },
      { "no *.lua file below " .. empty .. "/not there", empty .. "/not there" },
      { "--workers takes 1 to 1024, got 1025", "--workers", "1025" },
      { "--rounds takes a whole number, got '1.5'", "--rounds", "1.5" },
      { "--idle-release has to be less than --idle-exit (2 s), got 5", "--idle-release", "5" },
    }
    for _, words in ipairs(cases) do
      local message = table.remove(words, 1)
      local result = run(support.host, words)
      assert.are.equal(2, result.code, message)
      assert.are.equal("", result.out)
      assert.is_truthy(result.err:find("lua_compile: " .. message, 1, true), result.err)
      assert.is_truthy(result.err:find("usage: ", 1, true), result.err)
    end
  end)

  it("refuses more workers than a pool may have", function()
    local result = run(support.host, { "--workers", "5000", folder })
    assert.are_not.equal(0, result.code)
    assert.is_truthy(result.err:find("5000", 1, true), result.err)
  end)

  it("fails when none of the files compiles", function()
    local other = support.new_folder("other")
    support.write(other .. "/one.lua", "this is no Lua")
    local result = run(support.host, { "--rounds", "1", "--idle-exit", "0.3", other })
    assert.are.equal(1, result.code)
    assert.is_truthy(result.err:find("lua_compile: FAILED: none of the files compiled\n", 1, true))
    assert.is_truthy(result.out:find("\n0 chunks compiled and loaded, 1 files are not Lua 5.4\n"))
  end)

  it("fails, with the figures, when the memory does not come back", function()
    if not is_mimalloc then
      pending("the system allocator cannot be kept from giving memory back")
      return
    end
    -- The user has switched purging off, so there is no way to keep within the limits.
    local result = run(support.host, { "--workers", "8", "--rounds", "2", "--idle-exit", "0.3",
      folder }, { MIMALLOC_PURGE_DELAY = "-1" })
    assert.are.equal(1, result.code)
    local complaint = "FAILED: after idle exit [%d.]+ MB are left, the limit is [%d.]+ MB\n"
    assert.is_truthy(result.err:find("lua_compile: " .. complaint), result.err)
    assert.is_nil(result.out:find("memory was back", 1, true))
  end)
end)
