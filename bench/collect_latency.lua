-- SPDX-License-Identifier: MIT
--
-- collect_latency.lua - how long does a job wait that comes while a worker collects?
--
--   idlesched bench/collect_latency.lua [MIB] [TURNS]
--
-- Each worker of a pool keeps so many MiB of live tables (default 70) and is idle.  When one
-- begins to release, a job is submitted, at a moment of the collection that moves on from turn
-- to turn, and tells when it began.  Prints `name value unit`: how long the collection takes
-- when nobody interrupts it, and percentiles of the time from submit to begin.  With one worker
-- that is the rest of a step of its collector; with two, the other one is parked and takes it.

local idlesched = require "idlesched"

local help = [[
collect_latency.lua - how long does a job wait that comes while a worker collects?

usage: idlesched bench/collect_latency.lua [MIB] [TURNS]

  MIB          of live tables that each worker keeps
               default 70
  TURNS        jobs that are submitted during a collection
               default 40

Reading
  same_worker_start: the rest of a step of the collector, as there is one worker;
  other_worker_start: the other one is parked and takes the job.  collection is what it
  takes when nobody interrupts it.
]]

local function to_count(name, text, usual)
  local count = text == nil and usual or math.tointeger(tonumber(text))
  if not count or count < 1 then
    io.stderr:write(("collect_latency: %s '%s'; expected a whole number from 1; --help says more\n")
      :format(name, text))
    os.exit(1, true)
  end
  return count
end

for _, word in ipairs(arg) do
  if word == "--help" then
    io.write(help)
    os.exit(0, true)
  end
end
local megabytes = to_count("MIB", arg[1], 70)
local turns_count = to_count("TURNS", arg[2], 40)

local function fill(count)
  -- About 140 bytes each: a table with two fields and a string of its own.  A table is the
  -- least that the collector does in one go, so there is no large one among them.
  local lists = {}
  for i = 1, count // 500 do
    local list = {}
    for j = 1, 500 do list[j] = { j, ("%d %d"):format(i, j) } end
    lists[i] = list
  end
  _G.live = lists
end

local function touch()
  local began = require "idlesched".now()
  for i = 1, 1000 do _G.garbage = { i } end -- so that there is something to release
  return began
end

local function await(pool, what, ask)
  local deadline = idlesched.now() + 60
  while not ask(pool:stats()) do
    assert(idlesched.now() < deadline, "waited 60 s in vain until " .. what)
    idlesched.sleep(0.0002)
  end
end

local function is_parked(stats) return stats.workers.parked == stats.workers.threads end
local function is_releasing(stats) return stats.workers.releasing > 0 end

-- Seconds from the begin to the end of a collection that nobody interrupts.
local function measure_collection(pool)
  local releases = pool:stats().releases
  pool:submit(touch):wait()
  await(pool, "the worker releases", is_releasing)
  local began = idlesched.now()
  await(pool, "it has released", function(stats) return stats.releases > releases end)
  return idlesched.now() - began
end

local function measure_start(pool, delay)
  pool:submit(touch):wait()
  await(pool, "the worker releases", is_releasing)
  idlesched.sleep(delay)
  local submitted = idlesched.now()
  return pool:submit(touch):result() - submitted
end

local function print_percentiles(name, values)
  table.sort(values)
  for _, percent in ipairs { 50, 90, 100 } do
    local value = values[math.ceil(#values * percent / 100)]
    print(("%s_p%d %.3f ms"):format(name, percent, 1e3 * value))
  end
end

local function measure(name, workers)
  local pool <close> = idlesched.pool { workers = workers, idle_release = 0.02, idle_exit = false }
  pool:start_workers()
  local fills = {}
  for i = 1, workers do fills[i] = pool:submit(fill, math.floor(megabytes * 2 ^ 20 / 140)) end
  for i = 1, workers do fills[i]:result() end
  await(pool, "all are parked", is_parked)
  local collection = measure_collection(pool)
  print(("%s_collection %.1f ms"):format(name, 1e3 * collection))
  local values = {}
  for turn = 1, turns_count do
    values[turn] = measure_start(pool, collection * 0.9 * (turn - 1) / turns_count)
    await(pool, "all are parked", is_parked)
  end
  print_percentiles(name .. "_start", values)
end

measure("same_worker", 1)
measure("other_worker", 2)
