-- SPDX-License-Identifier: MIT
--
-- idle_cost.lua - what does a pool cost while it has nothing to do, with and without
-- the idle release?
--
-- Workers compile every installed Lua source file, twice, and then nothing is left to
-- do.  Each cell is a process of its own; the arms take turns, in alternating order,
-- and the table shows the median of the runs.  Anonymous memory, as the kernel reports
-- it, above that of the process before its pool had a thread.
--
-- usage: idlesched bench/idle_cost.lua [--runs N] [WORKERS...]

local idlesched = require "idlesched"
package.path = arg[0]:match "^(.-)[^/]*$" .. "../scripts/workloads/?.lua;" .. package.path
local sources = require "sources"

local IDLE_EXIT = 1.5

----------------------------------------------------------------------- one cell

local function settle(seconds)
  local deadline = idlesched.now() + seconds
  while idlesched.now() < deadline do
    idlesched.sleep(0.05)
  end
  collectgarbage()
  return idlesched.memory().anonymous
end

-- The job of the cell: the bytecode stays on the worker, so that the owner's state does
-- not count.
local function compile(path)
  local file <close> = assert(io.open(path, "rb"))
  local source = file:read "a"
  local chunk = load(source, "@" .. path, "t")
  return chunk and #string.dump(chunk) or 0
end

local function run_cell(workers, has_release)
  local paths = sources.find(sources.installed_folders())
  local pool <close> = assert(idlesched.pool {
    workers = workers,
    idle_release = has_release and 0.1,
    idle_exit = IDLE_EXIT,
  })
  collectgarbage()
  local start = idlesched.memory().anonymous
  pool:start_workers()
  for _ = 1, 2 do
    local jobs = {}
    for i, path in ipairs(paths) do
      jobs[i] = assert(pool:submit(compile, path))
    end
    for _, job in ipairs(jobs) do
      job:result()
    end
  end
  local worked = idlesched.memory().anonymous
  local idle = settle(0.5)
  local exited = settle(IDLE_EXIT + 0.5)
  print(worked - start, idle - start, exited - start)
end

---------------------------------------------------------------------- the table

local function quote(text)
  return "'" .. text:gsub("'", "'\\''") .. "'"
end

-- arg[-1] is the interpreter that runs this script.
local function measure(workers, has_release)
  local command = table.concat({
    quote(arg[-1]), quote(arg[0]), "--cell", workers, has_release and "on" or "off",
  }, " ")
  local output <close> = assert(io.popen(command))
  local worked, idle, exited = output:read("n", "n", "n")
  assert(exited, "a cell has failed: " .. command)
  return { worked = worked, idle = idle, exited = exited }
end

local function median(runs, field)
  local values = {}
  for i, run in ipairs(runs) do
    values[i] = run[field]
  end
  table.sort(values)
  return values[(#values + 1) // 2] / 1e6
end

local function print_table(workers_list, runs_count)
  print(("%d runs, medians in MB; %s"):format(runs_count, idlesched.allocator()))
  local format = "%8s %10s %22s %20s %12s"
  print(format:format("workers", "worked", "idle, no release", "idle, released", "exited"))
  for _, workers in ipairs(workers_list) do
    local on, off = {}, {}
    for run = 1, runs_count do
      if run % 2 == 1 then
        on[run], off[run] = measure(workers, true), measure(workers, false)
      else
        off[run], on[run] = measure(workers, false), measure(workers, true)
      end
    end
    local function cell(runs, field)
      return ("%.2f"):format(median(runs, field))
    end
    print(format:format(workers, cell(off, "worked"), cell(off, "idle"), cell(on, "idle"),
      cell(on, "exited")))
  end
end

local function to_count(what, text)
  local count = math.tointeger(tonumber(text))
  if not count or count < 1 then
    io.stderr:write(("idle_cost: %s takes whole numbers from 1, got '%s'\n"):format(what, text),
      "usage: idlesched bench/idle_cost.lua [--runs N] [WORKERS...]\n")
    os.exit(2, true)
  end
  return count
end

local help = [[
idle_cost.lua - what does a pool cost while it has nothing to do, with and without the idle
release?

usage: idlesched bench/idle_cost.lua [--runs N] [WORKERS...]

  --runs       how often each cell is run
               default 3
  WORKERS      of a pool, a line for each number
               default 1 2 4 8 15

Reading
  MB of anonymous memory above that of the process before its pool had a thread, medians:
  after the work, when nothing was to do for 0.5 s, and when the threads have ended.
]]

local function main(arguments)
  if arguments[1] == "--help" then
    io.write(help)
    return
  end
  if arguments[1] == "--cell" then
    run_cell(math.tointeger(arguments[2]), arguments[3] == "on")
    return
  end
  local runs_count, workers_list = 3, {}
  local position = 1
  if arguments[1] == "--runs" then
    runs_count = to_count("--runs", arguments[2])
    position = 3
  end
  for i = position, #arguments do
    workers_list[#workers_list + 1] = to_count("WORKERS", arguments[i])
  end
  print_table(#workers_list > 0 and workers_list or { 1, 2, 4, 8, 15 }, runs_count)
end

main(arg)
