-- SPDX-License-Identifier: MIT
--
-- lua_compile.lua - a pool of workers compiles every Lua source file that it finds,
-- as a JIT's threads compile a module; then it has nothing to do, and the memory
-- comes back.
--
-- A job reads, parses and dumps one file and returns the bytecode; this script
-- checks that each chunk loads.  Several rounds, then idle.  One line for each
-- phase, with memory as the kernel reports it (smaps_rollup), and exit code 1 when
-- a count does not add up or the memory is not back in time.

local idlesched = require "idlesched"
package.path = arg[0]:match "^(.-)[^/]*$" .. "?.lua;" .. package.path
local sources = require "sources"

local usage = [[
usage: scripts/demo [options] [FOLDER...]
   or: idlesched scripts/workloads/lua_compile.lua [options] [FOLDER...]

Compiles every *.lua file below the folders; without any, below the installed
Lua packages.

  --workers N         worker threads (default 8)
  --rounds N          how often to compile all files (default 5)
  --idle-release S    seconds until an idle worker releases, or "off" (default 0.1)
  --idle-exit S       seconds until an idle worker's thread ends (default 2)
  --quiet             no progress line
]]

-- What "the memory is back" means, in bytes of anonymous memory.  For few workers it
-- is this script's own Lua state that counts: what stays in it pins half-used pages.
local RELEASED_PER_WORKER = 0.3e6 -- above started workers that never had a job
local RELEASED_LEAST = 1.5e6      -- the limit for few workers
local RELEASED_WITHIN = 0.5       -- seconds after the last result
local EXITED_LEAST = 1.5e6        -- above the process before the pool had a thread
local EXITED_PER_WORKER = 0.15e6  -- the limit for many: the C library keeps their stacks
local EXITED_WITHIN = 1.0         -- seconds after idle_exit

-- The limits are promises of the host with mimalloc, where all of the process's memory
-- is in the allocator's hands.  Elsewhere the C library holds a part of it, and how much
-- comes back is only shown.
local has_limits = package.preload.idlesched ~= nil and idlesched.allocator() ~= "system"

------------------------------------------------------------------- the options

local function fail_usage(message)
  io.stderr:write("lua_compile: ", message, "\n\n", usage)
  os.exit(2, true)
end

local function to_number(option, text, least)
  local number = tonumber(text)
  if not number or number < least then
    fail_usage(("%s takes a number, %s or more, got '%s'"):format(option, least, text))
  end
  return number
end

local function parse_arguments(arguments)
  local options = { workers = 8, rounds = 5, idle_release = 0.1, idle_exit = 2, folders = {} }
  local position = 1
  local function value_of(option)
    position = position + 1
    return arguments[position] or fail_usage(option .. " takes a value")
  end
  while arguments[position] do
    local argument = arguments[position]
    if argument == "--workers" or argument == "--rounds" then
      local count = to_number(argument, value_of(argument), 1)
      options[argument:sub(3)] = math.tointeger(count)
        or fail_usage(("%s takes a whole number, got '%s'"):format(argument, count))
    elseif argument == "--idle-release" then
      local text = value_of(argument)
      options.idle_release = text ~= "off" and to_number(argument, text, 0)
    elseif argument == "--idle-exit" then
      options.idle_exit = to_number(argument, value_of(argument), 0.01)
    elseif argument == "--quiet" then
      options.is_quiet = true
    elseif argument == "--help" then
      io.write(usage)
      os.exit(0, true)
    elseif argument:sub(1, 1) == "-" then
      fail_usage(("unknown option '%s'"):format(argument))
    else
      table.insert(options.folders, argument)
    end
    position = position + 1
  end
  if options.workers > 1024 then
    fail_usage(("--workers takes 1 to 1024, got %d"):format(options.workers))
  end
  if options.idle_release and options.idle_release >= options.idle_exit then
    fail_usage(("--idle-release has to be less than --idle-exit (%g s), got %g"):format(
      options.idle_exit, options.idle_release))
  end
  return options
end

-------------------------------------------------------------------- the report

local function megabytes(bytes)
  return ("%.2f MB"):format(bytes / 1e6)
end

local row_format = "%-18s %11s %11s %8s %7s %9s %8s"

local function print_header()
  print(row_format:format("phase", "anonymous", "resident", "threads", "active", "releases",
    "jobs/s"))
end

-- One line; what the kernel said for it.
local function print_phase(name, pool, memory, rate)
  local stats = pool:stats()
  print(row_format:format(name, megabytes(memory.anonymous), megabytes(memory.resident),
    stats.workers.threads, stats.workers.active, stats.releases,
    rate and ("%.0f"):format(rate) or "-"))
  return memory
end

local failures = {}

local function check(holds, text, ...)
  if not holds then
    table.insert(failures, text:format(...))
  end
end

-- Ask until the answer is true, or the deadline on idlesched.now() has passed; the
-- last answer.  The garbage of asking is no part of what is measured.
local function await(deadline, ask)
  while true do
    collectgarbage()
    local answer = ask()
    if answer or idlesched.now() >= deadline then
      return answer
    end
    idlesched.sleep(0.01)
  end
end

-- What must add up in any snapshot of a pool.
local function check_counts(pool, phase)
  local stats = pool:stats()
  local workers, jobs = stats.workers, stats.jobs
  check(workers.active == workers.running + workers.tickets,
    "%s: %d active workers, but %d run and %d have tickets", phase, workers.active, workers.running,
    workers.tickets)
  local in_states = workers.starting + workers.running + workers.parked
    + workers.releasing + workers.exiting
  check(workers.threads == in_states, "%s: %d threads, but %d workers in states that have one",
    phase, workers.threads, in_states)
  check(jobs.submitted == jobs.queued + jobs.running + jobs.done + jobs.failed + jobs.cancelled,
    "%s: %d jobs submitted, which are not all accounted for", phase, jobs.submitted)
  return stats
end

local function check_rest(pool, phase)
  local stats = check_counts(pool, phase)
  check(stats.workers.active == 0, "%s: %d workers are active with nothing to do", phase,
    stats.workers.active)
  check(stats.wakes == stats.polls, "%s: %d wakes, but %d polls followed them", phase, stats.wakes,
    stats.polls)
  check(stats.jobs.failed == 0, "%s: %d jobs failed", phase, stats.jobs.failed)
  return stats
end

-------------------------------------------------------------------- the phases

local has_terminal = os.execute "test -t 2"

local function show_progress(options, round, done, total)
  if has_terminal and not options.is_quiet then
    local line = "\rround %d of %d: %d of %d files \27[K"
    io.stderr:write(line:format(round, options.rounds, done, total))
  end
end

local function clear_progress(options)
  if has_terminal and not options.is_quiet then
    io.stderr:write "\r\27[K"
  end
end

-- All files once; adds to `counts` and keeps the largest memory seen in `peak`.
local function run_round(pool, paths, options, round, counts, peak)
  local jobs = {}
  for i, path in ipairs(paths) do
    jobs[i] = assert(pool:submit(sources.compile, path))
  end
  for i, job in ipairs(jobs) do
    local bytecode = job:result()
    jobs[i] = false
    if bytecode then
      counts.compiled = counts.compiled + 1
      check(load(bytecode, "=" .. paths[i], "b"), "%s: its bytecode does not load", paths[i])
    else
      counts.refused = counts.refused + 1
    end
    if i % 50 == 0 or i == #paths then
      show_progress(options, round, i, #paths)
      local memory = idlesched.memory()
      if memory.anonymous > peak.anonymous then
        peak.anonymous, peak.resident = memory.anonymous, memory.resident
      end
    end
  end
end

-- What this script's own state and thread hold is given back first: the rest is
-- what the workers hold.
local function release_own_memory()
  local before
  repeat
    before = collectgarbage "count"
    collectgarbage()
  until collectgarbage "count" >= before
  idlesched.thread_idle()
end

-- Threads that have never had a job: what a worker costs at rest.
local function start_workers(pool, options)
  assert(pool:start_workers(options.workers))
  await(idlesched.now() + 5, function()
    local stats = pool:stats()
    return stats.workers.parked == options.workers
      and (not options.idle_release or stats.releases >= options.workers)
  end)
  return print_phase("workers started", pool, idlesched.memory())
end

local function run_rounds(pool, paths, options)
  local counts = { compiled = 0, refused = 0 }
  local peak = { anonymous = 0, resident = 0 }
  local began = idlesched.now()
  for round = 1, options.rounds do
    run_round(pool, paths, options, round, counts, peak)
  end
  clear_progress(options)
  local rate = #paths * options.rounds / (idlesched.now() - began)
  print_phase("peak", pool, peak)
  print_phase("after work", pool, idlesched.memory(), rate)
  check_counts(pool, "after work")
  check(counts.compiled > 0, "none of the files compiled")
  return counts
end

local function await_idle_release(pool, options, started, ended)
  local limit = started.anonymous
    + math.max(RELEASED_LEAST, RELEASED_PER_WORKER * options.workers)
  local memory
  local is_back = await(ended + RELEASED_WITHIN, function()
    memory = idlesched.memory()
    local workers = pool:stats().workers
    return options.idle_release and workers.active == 0 and workers.releasing == 0
      and memory.anonymous <= limit
  end)
  local took = idlesched.now() - ended
  print_phase(options.idle_release and "after idle release" or "idle, no release", pool, memory)
  check_rest(pool, "after idle release")
  check(is_back or not options.idle_release or not has_limits,
    "after %.2f s of idleness %s are left, the limit is %s", took, megabytes(memory.anonymous),
    megabytes(limit))
  return took
end

local function await_idle_exit(pool, options, start)
  local limit = start.anonymous
    + math.max(EXITED_LEAST, EXITED_PER_WORKER * options.workers)
  local memory
  local is_back = await(idlesched.now() + options.idle_exit + EXITED_WITHIN, function()
    memory = idlesched.memory()
    return pool:stats().workers.threads == 0 and memory.anonymous <= limit
  end)
  print_phase("after idle exit", pool, memory)
  local stats = check_rest(pool, "after idle exit")
  check(stats.workers.threads == 0, "%d threads are left after idle exit", stats.workers.threads)
  check(is_back or not has_limits, "after idle exit %s are left, the limit is %s",
    megabytes(memory.anonymous),
    megabytes(limit))
  local ok, value = pool:submit(function(x) return 2 * x end, 21):try(5)
  check(ok and value == 42, "a job after idle exit: 42 expected, got %s", tostring(value))
end

local function main(arguments)
  local options = parse_arguments(arguments)
  local has_folders = #options.folders > 0
  local paths = sources.find(has_folders and options.folders or sources.installed_folders())
  if #paths == 0 then
    local places = has_folders and options.folders or sources.installed_folders()
    fail_usage("no *.lua file below " .. table.concat(places, ", "))
  end
  print(("%d files, %d rounds, %d workers, %s"):format(#paths, options.rounds, options.workers,
    idlesched.allocator()))
  print_header()

  local pool <close> = assert(idlesched.pool {
    name = "compile",
    workers = options.workers,
    idle_release = options.idle_release,
    idle_exit = options.idle_exit,
  })
  release_own_memory()
  local start = print_phase("start", pool, idlesched.memory())
  local started = start_workers(pool, options)
  local counts = run_rounds(pool, paths, options)
  local ended = idlesched.now()
  if options.idle_release then -- without it nothing is given back, by nobody
    release_own_memory()
  end
  local took = await_idle_release(pool, options, started, ended)
  release_own_memory()
  await_idle_exit(pool, options, start)

  print(("%d chunks compiled and loaded, %d files are not Lua 5.4"):format(counts.compiled,
    counts.refused))
  if not has_limits then
    print "no limits are checked: a part of the memory is in the C library's hands"
  elseif options.idle_release and #failures == 0 then
    print(("memory was back %.0f ms after the last result"):format(took * 1000))
  end
end

main(arg)
for _, failure in ipairs(failures) do
  io.stderr:write("lua_compile: FAILED: ", failure, "\n")
end
os.exit(#failures == 0 and 0 or 1, true)
