-- SPDX-License-Identifier: MIT
--
-- coverage.lua - reads what gcov says of a build and reports what was not reached.
--
--   lua5.4 scripts/lib/coverage.lua BUILD_FOLDER EXCLUSIONS_FILE
--
-- Counted are the files of core/ that know no machine, with the bodies in their headers.
-- A file may be compiled more than once, into the library and for the simulated platform:
-- a line or branch is reached if it is in one of them.
--
-- Not counted are the lines of an assertion, from its name to its closing parenthesis, and
-- the line that asserts all rules of a group.  Half of their branches are reached by a
-- broken library only.

local build, exclusions_path = arg[1], arg[2]
local exclusions_max = 5

-- plat_*.c are the platform, these two the allocators: specs of their own, other measures.
local function is_counted(file)
  return file:find("^[%w_]+%.[ch]$")
    and not file:find("^plat")
    and file ~= "heap_mimalloc.c"
    and file ~= "heap_system.c"
end

local function refuse(text, ...)
  io.stderr:write("scripts/coverage: ", text:format(...), "\n")
  os.exit(2)
end

local function quoted(text)
  return "'" .. text:gsub("'", "'\\''") .. "'"
end

local function lines_of_command(command)
  local pipe = assert(io.popen(command))
  local lines = {}
  for line in pipe:lines() do
    lines[#lines + 1] = line
  end
  return lines, pipe:close()
end

-- ---- the source: which lines belong to assertions ----

-- Text and comments may hold parentheses; only those of the code are counted.
local function code_of(line)
  return (line:gsub("'\\?.'", "0"):gsub('\\"', ""):gsub('"[^"]*"', "0"):gsub("/%*.-%*/", " "))
end

local function mark_assertions(lines)
  local is_assertion, depth = {}, 0
  for number, line in ipairs(lines) do
    local code = code_of(line)
    if depth == 0 then
      code = code:match("%f[%w_]ids_assert[%w_]*%s*(%(.*)$")
        or code:match("%f[%w_]EACH_RULE(%(ASSERT_RULE%).*)$")
    end
    if code then
      is_assertion[number] = true
      for parenthesis in code:gmatch("[()]") do
        depth = depth + (parenthesis == "(" and 1 or -1)
        if depth == 0 then
          break
        end
      end
    end
  end
  return is_assertion
end

local root_lines = lines_of_command("pwd -P")
local core = root_lines[1] .. "/core/"

-- file name -> { text = lines, is_assertion = ..., line_counts = ..., branch_counts = ... }
local files = {}

local function file_of(path)
  local name = path:sub(1, #core) == core and path:sub(#core + 1) or ""
  if not is_counted(name) then
    return nil
  end
  if not files[name] then
    -- Of a file that is gone the build may still have an object.
    local source <close> = io.open(path)
    if not source then
      return nil
    end
    local text = {}
    for line in source:lines() do
      text[#text + 1] = line
    end
    files[name] = {
      text = text,
      is_assertion = mark_assertions(text),
      line_counts = {},
      branch_counts = {},
    }
  end
  return files[name]
end

-- ---- what gcov says ----

-- For each source line `count:number:text`, where the count is - for what is no code and
-- ##### for what never ran; below it, in an order that is the same in every object, its
-- branches.  A line of number 0 names the file that follows.
local function read_gcov(lines)
  local file, number, branch
  for _, line in ipairs(lines) do
    local count, at, text = line:match("^%s*([^:%s]+):%s*(%d+):(.*)$")
    if at == "0" then
      local path = text:match("^Source:(.*)$")
      if path then
        file = file_of(path)
      end
    elseif at and file then
      number, branch = tonumber(at), 0
      if count ~= "-" then
        local reached = tonumber((count:gsub("%*$", ""))) or 0
        file.line_counts[number] = (file.line_counts[number] or 0) + reached
      end
    elseif file and line:find("^branch ") then
      branch = branch + 1
      local taken = tonumber(line:match("taken (%d+)")) or 0
      local counts = file.branch_counts[number] or {}
      file.branch_counts[number] = counts
      counts[branch] = (counts[branch] or 0) + taken
    end
  end
end

local function read_build()
  local notes = lines_of_command(("find %s/core -name '*.gcno'"):format(quoted(build)))
  if #notes == 0 then
    refuse("there is nothing of gcov's in %s/core; expected a build of preset coverage", build)
  end
  -- The text has no parts that depend on the language, whatever that of the user is.
  local gcov = "LC_ALL=C " .. quoted(os.getenv("GCOV") or "gcov")
  for _, path in ipairs(notes) do
    local lines, is_fine = lines_of_command(
      ("%s --stdout --branch-probabilities --branch-counts %s 2>&1"):format(gcov, quoted(path))
    )
    if not is_fine then
      refuse("gcov cannot read %s: %s", path, table.concat(lines, "\n"))
    end
    read_gcov(lines)
  end
end

-- ---- exclusions ----

local function trimmed(text)
  return text:match("^%s*(.-)%s*$")
end

-- The lines of a file that have this text.
local function find_text(file, text)
  local numbers = {}
  for number, line in ipairs(file.text) do
    if trimmed(line) == text then
      numbers[#numbers + 1] = number
    end
  end
  return numbers
end

local function read_exclusions()
  local entries = {}
  local at = 0
  for line in io.lines(exclusions_path) do
    at = at + 1
    if line:find("^%s+%S") and #entries > 0 then
      entries[#entries].reason = trimmed(line)
    elseif not line:find("^#") and line:find("%S") then
      local name, text = line:match("^core/([%w_]+%.[ch]): (.+)$")
      if not name then
        refuse("%s:%d: is '%s'; expected `core/FILE: source line`", exclusions_path, at, line)
      end
      entries[#entries + 1] = { name = name, text = trimmed(text), at = at }
    end
  end
  for _, entry in ipairs(entries) do
    local file = files[entry.name]
    local numbers = file and find_text(file, entry.text) or {}
    if not entry.reason then
      refuse("%s:%d: says no reason; expected it below, indented", exclusions_path, entry.at)
    elseif #numbers ~= 1 then
      refuse("%s:%d: '%s' is in core/%s %d times; expected once", exclusions_path, entry.at,
        entry.text, entry.name, #numbers)
    end
    file.exclusions = file.exclusions or {}
    file.exclusions[numbers[1]] = entry
  end
  if #entries > exclusions_max then
    refuse("%s excludes %d lines; expected at most %d", exclusions_path, #entries, exclusions_max)
  end
  return entries
end

-- ---- the report ----

local function percent(part, whole)
  return whole == 0 and "    -  " or ("%5.1f %%"):format(100 * part / whole)
end

local function print_row(name, sums)
  print(("%-22s %5d of %5d %s %7d of %5d %s"):format(name, sums.lines_reached, sums.lines,
    percent(sums.lines_reached, sums.lines), sums.branches_reached, sums.branches,
    percent(sums.branches_reached, sums.branches)))
end

local function new_sums()
  return { lines = 0, lines_reached = 0, branches = 0, branches_reached = 0 }
end

-- What of one line was not reached, in words; nil if nothing.
local function gap_of(file, number)
  if file.line_counts[number] == 0 then
    return "never runs"
  end
  local missed = {}
  local counts = file.branch_counts[number] or {}
  for branch, count in ipairs(counts) do
    if count == 0 then
      missed[#missed + 1] = tostring(branch)
    end
  end
  if #missed == 0 then
    return nil
  end
  return ("branch %s of %d"):format(table.concat(missed, ", "), #counts)
end

local function add_up(file, sums)
  for number, count in pairs(file.line_counts) do
    if not file.is_assertion[number] then
      sums.lines = sums.lines + 1
      sums.lines_reached = sums.lines_reached + (count > 0 and 1 or 0)
      for _, taken in ipairs(file.branch_counts[number] or {}) do
        sums.branches = sums.branches + 1
        sums.branches_reached = sums.branches_reached + (taken > 0 and 1 or 0)
      end
    end
  end
end

-- Excluded lines count in the table all the same.
local function gaps_of(name, file)
  local gaps = {}
  for number in ipairs(file.text) do
    local gap = not file.is_assertion[number] and gap_of(file, number)
    local exclusion = file.exclusions and file.exclusions[number]
    if gap and exclusion then
      exclusion.is_needed = true
    elseif gap then
      gaps[#gaps + 1] =
        ("core/%s:%d: %s: %s"):format(name, number, gap, trimmed(file.text[number]))
    end
  end
  return gaps
end

local function main()
  if not exclusions_path then
    refuse("lib/coverage.lua takes a build folder and a file of exclusions")
  end
  read_build()
  local exclusions = read_exclusions()
  local names = {}
  for name in pairs(files) do
    names[#names + 1] = name
  end
  table.sort(names)

  local total, gaps = new_sums(), {}
  print(("%-22s %22s %24s"):format("", "lines", "branches"))
  for _, name in ipairs(names) do
    local sums = new_sums()
    add_up(files[name], sums)
    if sums.lines > 0 then
      print_row("core/" .. name, sums)
    end
    for key, value in pairs(sums) do
      total[key] = total[key] + value
    end
    local own = gaps_of(name, files[name])
    table.move(own, 1, #own, #gaps + 1, gaps)
  end
  print_row("all", total)

  for _, exclusion in ipairs(exclusions) do
    if not exclusion.is_needed then
      gaps[#gaps + 1] = ("%s:%d: '%s' of core/%s is reached in full: take the entry out")
        :format(exclusions_path, exclusion.at, exclusion.text, exclusion.name)
    end
  end
  if #gaps > 0 then
    print()
  end
  for _, gap in ipairs(gaps) do
    print(gap)
  end
  print(("%d not reached, %d excluded"):format(#gaps, #exclusions))
  os.exit(#gaps == 0)
end

main()
