-- SPDX-License-Identifier: MIT
--
-- mutants.lua - applies the small faults of spec/mutants.txt to a copy of the project, one
-- at a time, and runs the specs that must fail then.
--
-- The copy and its build stay in build/mutants, so that a mutant costs the compilation of
-- one file, the linking of the specs that are named for it, and their time.  Run from the
-- root of the project, by scripts/mutants.

local usage = [[
Usage: scripts/mutants [--list] [--fixed] [-j N] [NAME...]

Applies each fault of spec/mutants.txt to a copy of the core, rebuilds what is needed, and
runs its killers: a mutant is killed when one of them fails.  Exit code 0 if all died, 1 if
one survived that is not marked so, if one died that is, or if a mutant no longer fits the
core; 2 for a wrong call.

  NAME      only mutants whose name contains this
  --fixed   only those marked `fixed`, which die quickly
  --list    shows the mutants, and whether they fit the core; runs nothing
  -j N      so many compilers at a time; otherwise as many as ninja likes
  --help    this text

For each mutant a line says which case killed it, and after how many seconds, without those
of the compiler.  The last line is `N killed, N survived as explained, N failed`.
]]

local list_path = "spec/mutants.txt"
local scratch = "build/mutants"
local tree, build, log_path = scratch .. "/tree", scratch .. "/build", scratch .. "/log"
-- What the copy consists of.
local copied = "CMakeLists.txt core spec scripts"
-- For one killer, without a limit of the mutant's own.
local killer_limit_s = 60

local function refuse(text, ...)
  io.stderr:write("scripts/mutants: ", text:format(...), "\n")
  os.exit(2)
end

-- ---- files and commands ----

local function read_file(path)
  local file <close> = io.open(path, "rb")
  return file and file:read("a")
end

local function write_file(path, text)
  local file <close> = assert(io.open(path, "wb"))
  assert(file:write(text))
end

local function quoted(text)
  return "'" .. text:gsub("'", "'\\''") .. "'"
end

-- Whether it succeeded; what it prints is in the log.  Who stops this program stops what
-- it runs as well, which then says so.
local function run(command)
  local is_fine, kind, code = os.execute(("{ %s; } >%s 2>&1"):format(command, log_path))
  if kind == "signal" or code == 129 or code == 130 or code == 143 then
    io.stderr:write("scripts/mutants: stopped\n")
    os.exit(kind == "signal" and 128 + code or code)
  end
  return is_fine or false
end

local function output_lines(command)
  local pipe <close> = assert(io.popen(command))
  local lines = {}
  for line in pipe:lines() do
    lines[#lines + 1] = line
  end
  return lines
end

local function now_s()
  return tonumber(output_lines("date +%s.%N")[1])
end

-- ---- the list ----

local header_keys = { file = true, killers = true, limit = true, fixed = true, survives = true }

-- `core.NAME` or `core.NAME/CASE`, where the harness takes the case as a filter.
local function killers_of(text, complain)
  local killers = {}
  for word in text:gmatch("[^,%s]+") do
    local name, case = word:match("^core%.([%w_]+)/([%w_]+)$")
    name = name or word:match("^core%.([%w_]+)$")
    if not name then
      complain("the killer '%s'; expected core.NAME or core.NAME/CASE", word)
    end
    killers[#killers + 1] = { text = word, target = "test_" .. name, case = case or "" }
  end
  return killers
end

local function read_list()
  local mutants, mutant, at, has_name = {}, nil, 0, {}
  local function complain(text, ...)
    refuse("%s:%d: %s", list_path, at, text:format(...))
  end
  for line in (read_file(list_path) or refuse("there is no %s", list_path)):gmatch("([^\n]*)\n") do
    at = at + 1
    local key, value = line:match("^(%l+): (.+)$")
    local sign, text = line:match("^([ +-])(.*)$")
    if key == "mutant" then
      if has_name[value] then
        complain("there is a mutant '%s' already", value)
      end
      has_name[value] = true
      mutant = { name = value, at = at, killers = {}, old = {}, new = {} }
      mutants[#mutants + 1] = mutant
    elseif key and (not mutant or not header_keys[key]) then
      complain("'%s:' is no key; expected mutant, then file, killers, limit, fixed, survives",
        key)
    elseif key == "killers" then
      mutant.killers = killers_of(value, complain)
    elseif key == "limit" then
      mutant.limit_s = tonumber(value) or complain("the limit '%s'; expected seconds", value)
    elseif key == "survives" and mutant.survives then
      mutant.survives = mutant.survives .. " " .. value
    elseif key then
      mutant[key] = value
    elseif sign and mutant then
      if sign ~= "+" then
        mutant.old[#mutant.old + 1] = text
      end
      if sign ~= "-" then
        mutant.new[#mutant.new + 1] = text
      end
    elseif line:find("%S") and not line:find("^#") then
      complain("is '%s'; expected `key: value`, or a line that begins with ' ', + or -", line)
    end
  end
  return mutants
end

-- ---- fitting a mutant to its file ----

-- The file with the fault in it; or nil and what is wrong.
local function mutate(mutant, text)
  local old = "\n" .. table.concat(mutant.old, "\n") .. "\n"
  local new = "\n" .. table.concat(mutant.new, "\n") .. (#mutant.new > 0 and "\n" or "")
  if #mutant.old == 0 then
    return nil, "says no text to replace"
  elseif old == new then
    return nil, "changes nothing"
  elseif not text then
    return nil, ("is for %s, which does not exist"):format(mutant.file)
  end
  text = "\n" .. text
  local first, last = text:find(old, 1, true)
  if not first then
    return nil, ("its text is not in %s; expected once"):format(mutant.file)
  elseif text:find(old, first + 1, true) then
    return nil, ("its text is in %s more than once"):format(mutant.file)
  end
  return (text:sub(1, first - 1) .. new .. text:sub(last + 1)):sub(2)
end

local function problem_of(mutant)
  if not mutant.file then
    return "says no file"
  end
  local _, problem = mutate(mutant, read_file(mutant.file))
  return problem
end

-- ---- the copy and its build ----

-- Only files that differ are written, as whatever is written is compiled again.
local function update_tree()
  local is_wanted = {}
  for _, path in ipairs(output_lines("find " .. copied .. " -type f")) do
    is_wanted[path] = true
    local text = read_file(path)
    if text ~= read_file(tree .. "/" .. path) then
      local to = tree .. "/" .. path
      assert(run(("mkdir -p %s && cp -p %s %s && touch %s")
        :format(quoted(to:match("^(.*)/")), quoted(path), quoted(to), quoted(to))))
    end
  end
  for _, path in ipairs(output_lines(("cd %s && find %s -type f"):format(tree, copied))) do
    if not is_wanted[path] then
      os.remove(tree .. "/" .. path)
    end
  end
end

local function fail_with_log(text, ...)
  io.stderr:write(read_file(log_path) or "")
  io.stderr:write("scripts/mutants: ", text:format(...), "\n")
  os.exit(1)
end

local function prepare()
  assert(os.execute("mkdir -p " .. tree))
  update_tree()
  if not read_file(build .. "/build.ninja") then
    local configure = "cmake -G Ninja -S %s -B %s -DCMAKE_BUILD_TYPE= -DCMAKE_C_FLAGS='-O1 -w'"
      .. " -DIDLESCHED_ALLOCATOR=system -DIDLESCHED_LUA=OFF -DIDLESCHED_TESTS=ON"
    if not run(configure:format(tree, build)) then
      fail_with_log("the copy in %s cannot be configured", tree)
    end
  end
end

local jobs_option = ""

-- Without killers of its own a mutant is for all specs.
local function build_for(killers)
  local targets = {}
  for _, killer in ipairs(killers) do
    targets[#targets + 1] = killer.target
  end
  local which = #targets > 0 and "--target " .. table.concat(targets, " ") or ""
  return run(("cmake --build %s %s %s"):format(build, jobs_option, which))
end

local results_path = scratch .. "/results"

-- Programs lie where the file that registers them does.
local function program_of(killer)
  local in_sim = ("%s/spec/core/sim/%s"):format(build, killer.target)
  return read_file(in_sim) and in_sim or ("%s/spec/%s"):format(build, killer.target)
end

-- nil if all pass; otherwise which spec and case failed first.  The seed of random schedules
-- is the same each time: what dies today dies tomorrow.
local function first_failure(killers, limit_s)
  os.remove(results_path)
  local set_results = ("IDLESCHED_SIM_SEED=1 IDLESCHED_RESULTS=$PWD/%s "):format(results_path)
  local is_fine = true
  if #killers == 0 then
    is_fine = run(set_results .. ("ctest --test-dir %s --label-regex '^(unit|sim)$' "
      .. "--stop-on-failure --no-tests=error"):format(build))
  end
  for _, killer in ipairs(killers) do
    is_fine = is_fine and run(set_results .. ("%s/scripts/run_spec --limit %d %s %s")
      :format(tree, limit_s or killer_limit_s, program_of(killer), killer.case))
  end
  if is_fine then
    return nil
  end
  local failed = (read_file(results_path) or ""):match("# failed ([^\n]*)")
  if not failed then
    return "something that left no results; see " .. log_path
  end
  return (failed:gsub("^test_", "core."))
end

-- ---- one mutant ----

-- "killed" or "SURVIVED" or "ERROR", more about it, and the seconds that the killers took.
local function try(mutant)
  local path = tree .. "/" .. mutant.file
  local text = read_file(path)
  local mutated, problem = mutate(mutant, text)
  if not mutated then
    return "ERROR", problem
  end
  write_file(path, mutated)
  local verdict, more, took_s = "SURVIVED", "no killer fails", 0
  if not build_for(mutant.killers) then
    verdict, more = "ERROR", "cannot be built:\n" .. read_file(log_path)
  else
    local started_s = now_s()
    local failure = first_failure(mutant.killers, mutant.limit_s)
    took_s = now_s() - started_s
    if failure then
      verdict, more = "killed", failure
    end
  end
  write_file(path, text)
  if mutant.survives and verdict == "SURVIVED" then
    verdict, more = "survived", mutant.survives
  elseif mutant.survives and verdict == "killed" then
    verdict, more = "ERROR", "is marked as surviving, but is killed by " .. more
  end
  return verdict, more, took_s
end

-- A killer that fails without a mutant would kill all.
local function check_killers_pass(mutants)
  local killers, is_known = {}, {}
  for _, mutant in ipairs(mutants) do
    for _, killer in ipairs(mutant.killers) do
      if not is_known[killer.text] then
        is_known[killer.text] = true
        killers[#killers + 1] = killer
      end
    end
    if #mutant.killers == 0 then
      killers = {}
      break
    end
  end
  if not build_for(killers) then
    fail_with_log("the core does not build, without any mutant")
  end
  local failure = first_failure(killers)
  if failure then
    fail_with_log("without any mutant this fails: %s", failure)
  end
end

-- ---- all of them ----

local function read_arguments()
  local names, lists, is_fixed_only = {}, false, false
  local index = 1
  while index <= #arg do
    local word = arg[index]
    if word == "--list" then
      lists = true
    elseif word == "--fixed" then
      is_fixed_only = true
    elseif word == "--help" or word == "-h" then
      io.write(usage)
      os.exit(0)
    elseif word:find("^%-j") then
      local count = word:match("^%-j(%d+)$")
      if word == "-j" then
        index = index + 1
        count = (arg[index] or ""):match("^%d+$")
      end
      jobs_option = "--parallel " .. (count or refuse("-j needs a number of compilers"))
    elseif word:find("^%-") then
      refuse("unknown option '%s'; see --help", word)
    else
      names[#names + 1] = word
    end
    index = index + 1
  end
  return names, lists, is_fixed_only
end

local function select_from(mutants, names, is_fixed_only)
  local selected = {}
  local is_used = {}
  for _, mutant in ipairs(mutants) do
    local is_named = #names == 0
    for _, name in ipairs(names) do
      if mutant.name:find(name, 1, true) then
        is_named, is_used[name] = true, true
      end
    end
    if is_named and (mutant.fixed or not is_fixed_only) then
      selected[#selected + 1] = mutant
    end
  end
  for _, name in ipairs(names) do
    if not is_used[name] then
      refuse("no mutant's name contains '%s'; --list shows them", name)
    end
  end
  return selected
end

local function list(mutants)
  for _, mutant in ipairs(mutants) do
    local killers = {}
    for _, killer in ipairs(mutant.killers) do
      killers[#killers + 1] = killer.text
    end
    local words = #killers > 0 and table.concat(killers, ", ") or "all specs"
    if mutant.survives then
      words = "survives: " .. mutant.survives
    end
    print(("%-44s %-16s %s%s"):format(mutant.name, mutant.file or "?",
      mutant.fixed and "fixed, " or "", words))
  end
end

local function main()
  local names, lists, is_fixed_only = read_arguments()
  local mutants = read_list()
  local selected = select_from(mutants, names, is_fixed_only)
  if lists then
    list(selected)
  end

  -- Of the whole list, so that it does not rot where nobody looks.
  local counts = { killed = 0, survived = 0, SURVIVED = 0, ERROR = 0 }
  local fitting = {}
  for _, mutant in ipairs(mutants) do
    mutant.problem = problem_of(mutant)
    if mutant.problem then
      counts.ERROR = counts.ERROR + 1
      print(("%s:%d: %s: %s"):format(list_path, mutant.at, mutant.name, mutant.problem))
    end
  end
  for _, mutant in ipairs(selected) do
    if not mutant.problem then
      fitting[#fitting + 1] = mutant
    end
  end
  if lists then
    os.exit(counts.ERROR == 0)
  end

  local began_s = now_s()
  if #fitting > 0 then
    prepare()
    check_killers_pass(fitting)
    print(("the copy builds and passes without a mutant: %.1f s"):format(now_s() - began_s))
  end
  for _, mutant in ipairs(fitting) do
    local verdict, more, took_s = try(mutant)
    counts[verdict] = counts[verdict] + 1
    print(("%-8s %5.2f s  %s: %s"):format(verdict, took_s or 0, mutant.name, more))
    io.stdout:flush()
  end
  local failed = counts.SURVIVED + counts.ERROR
  print(("took %.1f s"):format(now_s() - began_s))
  print(("%d killed, %d survived as explained, %d failed")
    :format(counts.killed, counts.survived, failed))
  os.exit(failed == 0)
end

main()
