-- SPDX-License-Identifier: MIT
--
-- support.lua - what the Lua specs share: waiting for a state with a deadline, jobs that
-- last until they are let go, and scripts that run in processes of their own.
--
-- Loaded by path, as no search path leads to spec/lua:
--   local here = debug.getinfo(1, "S").source:match("^@(.*/)") or ""
--   local support = dofile(here .. "support.lua")
--
-- IDLESCHED_HOST            path of the `idlesched` interpreter; by default the one that
--                           was built beside the module
-- IDLESCHED_SPEC_ALLOCATOR  what the build allocates from: mimalloc (default) or system

local idlesched = require("idlesched")

local support = {}

-- For states that must come: generous, as it ends a hang and measures nothing.
local patience_s = 30
-- For programs that must end.
local run_limit_s = 60

support.allocator = os.getenv("IDLESCHED_SPEC_ALLOCATOR") or "mimalloc"
support.has_options = support.allocator ~= "system"

-- `it` for cases that look at what the allocator's options do.  A spec's globals are busted's,
-- and it hands them over by _ENV, as they are not to be seen from here.
function support.effect_it(globals)
  if support.has_options then
    return globals.it
  end
  return function(sentence)
    globals.it(sentence, function()
      globals.pending("the system allocator has no options")
    end)
  end
end

---------------------------------------------------------------------------- files

function support.first_line_of(command)
  local pipe = assert(io.popen(command))
  local line = pipe:read("l")
  pipe:close()
  return line
end

local function quote(word)
  return "'" .. word:gsub("'", [['\'']]) .. "'"
end

function support.write(path, content)
  local file = assert(io.open(path, "wb"))
  assert(file:write(content))
  assert(file:close())
  return path
end

-- The content, or nil when there is no such file.
function support.read(path)
  local file = io.open(path, "rb")
  if not file then
    return nil
  end
  local content = file:read("a")
  file:close()
  return content
end

-- A folder for this spec file, and names in it.  It goes when the Lua state does.
local root, names_count = nil, 0

local function remove(folder)
  os.execute("rm -rf " .. quote(folder.path))
end

function support.new_path(name)
  root = root or setmetatable({ path = support.first_line_of("mktemp -d") }, { __gc = remove })
  names_count = names_count + 1
  return ("%s/%d-%s"):format(root.path, names_count, name or "file")
end

function support.new_folder(name)
  local path = support.new_path(name or "folder")
  assert(os.execute("mkdir " .. quote(path)))
  return path
end

-------------------------------------------------------------------------- waiting

-- Ask until the answer is true and return it; an error at the deadline.  `describe`
-- returns what the error adds.
function support.await(what, ask, limit_s, describe)
  local deadline = idlesched.now() + (limit_s or patience_s)
  while true do
    local answer = ask()
    if answer then
      return answer
    end
    if idlesched.now() >= deadline then
      local detail = describe and "; " .. describe() or ""
      error(("waited %g s in vain until %s%s"):format(limit_s or patience_s, what, detail), 2)
    end
    idlesched.sleep(0.005)
  end
end

-- For what must not happen: ask all the time, for so long; an error when the answer is
-- not true any more.
function support.check_stays(what, seconds, ask)
  local deadline = idlesched.now() + seconds
  repeat
    if not ask() then
      error(("not so any more: %s"):format(what), 2)
    end
    idlesched.sleep(0.005)
  until idlesched.now() >= deadline
end

local function flatten(stats)
  local words = {}
  for name, value in pairs(stats) do
    if type(value) == "table" then
      for field, number in pairs(value) do
        table.insert(words, ("%s.%s=%s"):format(name, field, number))
      end
    else
      table.insert(words, ("%s=%s"):format(name, value))
    end
  end
  table.sort(words)
  return table.concat(words, " ")
end

-- Wait until the pool's numbers are as asked, and return them.
function support.await_stats(pool, what, ask, limit_s)
  local stats
  support.await(what, function()
    stats = pool:stats()
    return ask(stats)
  end, limit_s, function()
    return flatten(stats)
  end)
  return stats
end

-- Wait until this process has no thread but its own: those of pools that earlier cases
-- closed may take a moment to leave the kernel's count.
function support.await_alone()
  support.await("no thread of an earlier case is left", function()
    collectgarbage()
    return idlesched.memory().threads == 1
  end)
end

-- No thread of the pool has anything to do, or is on the way to it.
function support.await_rest(pool)
  return support.await_stats(pool, "all workers are at rest", function(stats)
    local workers = stats.workers
    return workers.active == 0 and workers.parked == workers.threads
  end)
end

-------------------------------------------------------------- jobs that are held up

-- Runs on a worker: return when there is a file at `path`.
local function last_until(path, limit_s)
  local idle = require("idlesched")
  local deadline = idle.now() + limit_s
  while idle.now() < deadline do
    local file = io.open(path)
    if file then
      file:close()
      return "let go"
    end
    idle.sleep(0.002)
  end
  error("nobody let the job go on for " .. limit_s .. " s")
end

local held_methods = {}
local held_class = { __index = held_methods }

function held_methods:let_go()
  support.write(self.path, "")
end

held_class.__close = held_methods.let_go

-- Keep one worker busy until let_go(), or until the variable is closed:
--   local held <close> = support.hold(pool)
-- Returns when the job runs; held.job is its handle.
function support.hold(pool)
  local self = setmetatable({ path = support.new_path("gate") }, held_class)
  self.job = assert(pool:submit(last_until, self.path, patience_s))
  support.await("the job runs that is to be held", function()
    return self.job:status() == "running"
  end)
  return self
end

-- The same function for jobs that are to be queued: pool:submit(last_until, path, seconds).
support.last_until = last_until

------------------------------------------------------------------------- processes

local module_path = package.searchpath("idlesched", package.cpath)
  or error("no idlesched.so on package.cpath: " .. package.cpath, 0)
module_path = support.first_line_of("realpath " .. quote(module_path))
local module_folder = module_path:match("^(.*)/")

local function find_program(name, remedy)
  local path = support.first_line_of('p=$(command -v ' .. quote(name) .. ') && realpath -s "$p"')
  return path or error(("cannot find the program '%s': %s"):format(name, remedy), 0)
end

support.stock = find_program("lua5.4", "install Lua 5.4")
support.host = find_program(
  os.getenv("IDLESCHED_HOST") or module_folder .. "/idlesched",
  "IDLESCHED_HOST must be the path of the built idlesched program"
)

-- What every script has to run under.
support.programs = {
  { name = "stock lua5.4", path = support.stock },
  { name = "the host", path = support.host },
}

local function set_variables(variables)
  local words = { "env -u LUA_INIT -u LUA_INIT_5_4 -u LUA_PATH_5_4 -u LUA_CPATH_5_4 -u LUA_PATH" }
  table.insert(words, "LUA_CPATH=" .. quote(module_folder .. "/?.so;;"))
  for name, value in pairs(variables or {}) do
    table.insert(words, name .. "=" .. quote(value))
  end
  return table.concat(words, " ")
end

-- Run a program in a new folder, or in options.folder, with nothing on its standard input.
--   script       Lua text, put into a file that becomes the first argument
--   arguments    list of words after it
--   environment  name -> value, besides where the module is
--   prefix       words before the program: "ulimit -v 100000; exec"
-- Returns { out, err, code, seconds, ended_at }; the code is nil when a signal ended it,
-- and `signal` its number.
function support.run(program, options)
  local folder = options.folder or support.new_folder("run")
  local output = support.new_path("out")
  local words = { "cd", quote(folder), "&&", options.prefix or "exec" }
  table.insert(words, set_variables(options.environment))
  table.insert(words, ("timeout -k 1 %d %s"):format(run_limit_s, quote(program)))
  if options.script then
    support.write(folder .. "/script.lua", options.script)
    table.insert(words, "script.lua")
  end
  for _, word in ipairs(options.arguments or {}) do
    table.insert(words, quote(word))
  end
  table.insert(words, ("</dev/null >%s 2>%s.err"):format(quote(output), quote(output)))

  local began_at = idlesched.now()
  local _, how, number = os.execute(table.concat(words, " "))
  local ended_at = idlesched.now()
  assert(number ~= 124, ("%s did not end within %d s"):format(program, run_limit_s))
  -- The shell tells a signal of its child as a code above 128.
  local signal = how == "signal" and number or number > 128 and number - 128 or nil
  return {
    out = support.read(output),
    err = support.read(output .. ".err"),
    code = not signal and number or nil,
    signal = signal,
    seconds = ended_at - began_at,
    ended_at = ended_at,
  }
end

-- The same, for a script that must succeed and be silent about errors.
function support.run_well(program, options)
  local result = support.run(program, options)
  if result.code ~= 0 or result.err ~= "" then
    error(("exit code %s, signal %s, output %q, messages %q"):format(result.code, result.signal,
      result.out, result.err), 2)
  end
  return result
end

-- At the beginning of scripts that measure.  Bytes are of anonymous memory.
support.memory_prelude = [[
local idlesched = require "idlesched"

local function say(name, value)
  print(("%s %.6f"):format(name, value))
end

local function anonymous()
  return idlesched.memory().anonymous
end

-- What this script itself has used and no longer needs is no worker's.
local function release_own()
  local before
  repeat
    before = collectgarbage "count"
    collectgarbage()
  until collectgarbage "count" >= before
  idlesched.thread_idle()
end

local function await(what, ask)
  local deadline = idlesched.now() + 30
  while not ask() do
    assert(idlesched.now() < deadline, what)
    idlesched.sleep(0.005)
  end
end

local function start_workers(pool)
  local count = pool:stats().workers.max
  assert(pool:start_workers())
  await("all workers have started and are at rest", function()
    local workers = pool:stats().workers
    return workers.parked == count
  end)
end

-- Allocates some 15 MB in small and large pieces, and keeps none of it.
local function allocate(seed)
  local records, words = {}, {}
  for i = 1, 20000 do
    records[i] = { name = "record " .. i + seed, tags = { i, tostring(i) } }
  end
  for i, record in ipairs(records) do
    words[i] = record.name .. record.tags[2]
  end
  return #table.concat(words)
end

-- Run jobs on all workers; the largest memory seen, and when the last result was there.
local function run_jobs(pool, job)
  local jobs, peak = {}, 0
  for i = 1, 4 * pool:stats().workers.max do
    jobs[i] = assert(pool:submit(job, i))
  end
  for _, each in ipairs(jobs) do
    each:result()
    peak = math.max(peak, anonymous())
  end
  return peak, idlesched.now()
end
]]

-- What a script has printed as lines of a name and a number.
function support.numbers_in(text)
  local numbers = {}
  for name, number in text:gmatch("([%w_]+) (%-?[%d.e+-]+)\n") do
    numbers[name] = tonumber(number)
  end
  return numbers
end

-- What a script prints of itself, run in a process of its own.
function support.numbers_of(program, script)
  return support.numbers_in(support.run_well(program.path, { script = script }).out)
end

------------------------------------------------------------------------- checking

function support.check_at_most(limit, bytes, what)
  local is_within = bytes <= limit -- false for what is no number at all
  if not is_within then
    error(("%s: %.2f MB, the limit is %.2f"):format(what, bytes / 1e6, limit / 1e6), 2)
  end
end

-- The function raises, and says so.
function support.check_raises(message, fn, ...)
  local ok, err = pcall(fn, ...)
  if ok or not tostring(err):find(message, 1, true) then
    error(("%q is not in %q"):format(message, ok and "what was returned" or tostring(err)), 2)
  end
end

function support.names_of(object)
  local names = {}
  for name in pairs(object) do
    names[name] = true
  end
  return names
end

return support
