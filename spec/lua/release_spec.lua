-- SPDX-License-Identifier: MIT
--
-- release_spec.lua - releases of the whole process, their report, and the answer in words.
--
-- What they give back, as the kernel says: rss_spec.lua.

local idlesched = require("idlesched")
local here = debug.getinfo(1, "S").source:match("^@(.*/)") or ""
local support = dofile(here .. "support.lua")
local await = support.await

-- A job that runs until the file is there.
local function hold(pool)
  local path = support.new_path("gate")
  local job = pool:submit(function(name)
    local module = require "idlesched"
    while not io.open(name) do module.sleep(0.001) end
  end, path)
  await("the job runs", function() return pool:stats().workers.running > 0 end)
  return job, function() support.write(path, "") end
end

local function pool_of(t, options)
  t.pools = t.pools or {}
  local pool = assert(idlesched.pool(options))
  table.insert(t.pools, pool)
  return pool
end

describe("release", function()
  local kept = {}

  after_each(function()
    for _, pool in ipairs(kept.pools or {}) do
      pool:close { mode = "cancel" }
    end
    kept = {}
    collectgarbage()
  end)

  it("B14 N4 visits the workers of every pool, and reports", function()
    local first = pool_of(kept, { workers = 3, idle_release = false })
    local second = pool_of(kept, { workers = 2, idle_release = false })
    first:start_workers()
    second:start_workers()
    await("all are parked", function()
      return first:stats().workers.parked == 3 and second:stats().workers.parked == 2
    end)
    local report = idlesched.release()
    assert.is_true(report.complete)
    assert.are.equal(5, report.visited)
    assert.are.equal(0, report.missed)
    assert.is_true(report.pools >= 2)
    assert.are.equal(3, first:stats().releases)
    assert.are.equal(2, second:stats().releases)
    assert.are.equal(3, first:stats().polls) -- each worker's first: the release gave no ticket
    assert.are.equal(math.max(0, report.before - report.after), report.returned)
    assert.are.equal(idlesched.allocator(), report.heaps[1].name)
    for _, name in ipairs { "live", "free", "other" } do
      assert.are.equal("integer", math.type(report.kept[name]), name)
    end
    assert.are.equal(report.after, report.kept.live + report.kept.free + report.kept.other)
    assert.is_true(report.time > 0)
  end)

  it("N4 reports also what the collection of the calling state gives back", function()
    local pool = pool_of(kept, { workers = 1 })
    for name, release in pairs {
      release = idlesched.release,
      purge_all = idlesched.purge_all,
      pool_release = function() return pool:release() end,
    } do
      collectgarbage("stop")
      do local _ = ("x"):rep(64 << 20) end -- a mapping of its own, gone with the collection
      local report = release()
      collectgarbage("restart")
      assert.is_true(report.returned > 60e6, name)
      assert.are.equal(report.before - report.after, report.returned)
      assert.is_true(report.heaps[1].before <= report.before)
    end
  end)

  it("shows reports and memory() in words, which travel as plain tables", function()
    local pool = pool_of(kept, { workers = 1, idle_release = false })
    pool:start_workers()
    local report = pool:release()
    local text = tostring(report)
    local lines = {}
    for line in text:gmatch("[^\n]+") do lines[#lines + 1] = line end
    assert.is_truthy(lines[1]:find("^%d+%.%d MiB given back in %d+%.%d ms: of %d+%.%d MiB there "
      .. "are %d+%.%d left$"), text)
    assert.are.equal("  1 worker released", lines[2])
    for i, heap in ipairs(report.heaps) do
      assert.is_truthy(lines[i + 2]:find(heap.name, 1, true), text)
      assert.is_truthy(lines[i + 2]:find("MiB: %d+%.%d in use, %d+%.%d free$"), text)
    end
    assert.is_truthy(lines[#lines]:find("^  elsewhere +%d+%.%d MiB: stacks"), text)
    assert.are.equal(#report.heaps + 3, #lines)

    local memory = idlesched.memory()
    text = tostring(memory)
    assert.is_truthy(text:find("^%d+%.%d MiB of private memory, %d+ threads?\n  "), text)
    assert.is_truthy(text:find("A release can give back %d+%.%d MiB at most, and this script's "
      .. "garbage$"), text)

    -- As far as the fields are still there.
    memory.heaps, report.heaps, report.kept, report.time = nil, { { name = 1 }, 2 }, 3, {}
    assert.is_truthy(tostring(memory):find("\n  elsewhere", 1, true))
    assert.is_truthy(tostring(report):find("\n  ? ", 1, true))

    local function look(travelled) return travelled.after, require("idlesched").release() end
    local after, from_job = pool:submit(look, pool:release()):result()
    assert.are.equal("integer", math.type(after))
    assert.are.equal(1, from_job.pools)
    assert.is_nil(getmetatable(from_job))
    assert.are.equal("table", type(pool:submit(function(t) return t end, memory):result()))
  end)

  it("B16 says in words whom it missed", function()
    local pool = pool_of(kept, { workers = 1, idle_release = false })
    local job, let_go = hold(pool)
    local report = pool:release { timeout = 0 }
    let_go()
    assert.is_truthy(tostring(report):find(
      "\n  0 workers released, 1 missed: 1 running, 0 starting, 0 ending\n", 1, true))
    job:result()
  end)

  it("B14 visits the pools of a list, and no other", function()
    local first = pool_of(kept, { workers = 1, idle_release = false })
    local second = pool_of(kept, { workers = 1, idle_release = false })
    first:start_workers()
    second:start_workers()
    local report = idlesched.release { pools = { second, second } }
    assert.are.equal(1, report.pools)
    assert.are.equal(1, report.visited)
    assert.are.equal(0, first:stats().releases)
    assert.are.equal(1, second:stats().releases)
    report = idlesched.release { pools = {} }
    assert.are.equal(0, report.visited)
  end)

  it("B16 says which workers it missed, and why", function()
    local pool = pool_of(kept, { workers = 2, idle_release = false })
    local job, let_go = hold(pool)
    local report = idlesched.release { timeout = 0.01 }
    let_go()
    assert.is_false(report.complete)
    assert.are.equal(1, report.missed)
    assert.are.equal(1, report.missed_running)
    assert.are.equal(0, report.missed_starting + report.missed_exiting)
    job:result()
  end)

  it("B15 has nothing to visit without a pool, and starts nothing", function()
    local pool = pool_of(kept, { workers = 4 })
    local report = idlesched.release { pools = { pool } }
    assert.are.equal(0, report.visited)
    assert.are.equal(0, pool:stats().starts)
  end)

  it("raises for what is no option, no list and no pool", function()
    assert.has_error(function() idlesched.release { time = 1 } end)
    local ok, message = pcall(idlesched.release, { pools = 3 })
    assert.is_false(ok)
    assert.is_truthy(message:find("option 'pools': a list of pools expected, got number", 1, true))
    ok, message = pcall(idlesched.release, { pools = { pool_of(kept, { workers = 1 }), "x" } })
    assert.is_false(ok)
    assert.is_truthy(message:find("option 'pools': a pool expected at 2, got string", 1, true))
    local pool = pool_of(kept, { workers = 1 })
    for name, no_list in pairs { p = { p = pool }, ["2.5"] = { pool, [2.5] = pool },
      ["0"] = { [0] = pool }, ["true"] = { pool, [true] = 1 }, ["3"] = { pool, [3] = pool } } do
      support.check_raises("#1 to 'idlesched.release' (option 'pools': a list of pools expected, "
        .. "got key '" .. name .. "')", idlesched.release, { pools = no_list })
    end
  end)

  it("takes a list as it is, without its metamethods, and keeps its pools", function()
    local pool = pool_of(kept, { workers = 1 })
    local liar = setmetatable({ pool }, { __len = function() return math.maxinteger end })
    assert.are.equal(1, idlesched.release { pools = liar }.pools)
    liar = setmetatable({ pool }, { __len = function() return -1 end })
    assert.are.equal(1, idlesched.release { pools = liar }.pools)
    local list = { idlesched.pool { workers = 1 } }
    list[1]:start_workers()
    setmetatable({}, { __gc = function() list[1] = nil end })
    assert.are.equal(1, idlesched.release { pools = list }.visited)
    assert.is_nil(list[1])
  end)

  it("B21 purge_all visits nobody, and reports", function()
    local pool = pool_of(kept, { workers = 1, idle_release = false })
    pool:start_workers()
    local report = idlesched.purge_all()
    assert.are.equal(0, report.visited)
    assert.are.equal(0, pool:stats().releases)
    assert.is_true(report.complete)
  end)

  it("B27 lifts a guard for its own purge, and says so", function()
    if support.allocator == "system" then
      return pending("the system's allocator has no purge delay")
    end
    assert.is_false(idlesched.release().lifted_guards)
    local guard <close> = idlesched.eager_purge()
    assert.is_true(idlesched.release().lifted_guards)
    assert.is_true(idlesched.release().lifted_guards) -- and put back
    guard:close()
    assert.is_false(idlesched.release().lifted_guards)
  end)
end)

describe("what was freed", function()
  it("N1 asks for a pass when the results of jobs that are dropped are more than 1 MiB", function()
    local pool <close> = idlesched.pool { workers = 1, idle_release = 0.01, idle_exit = false }
    local jobs = {}
    for i = 1, 2 do
      jobs[i] = pool:submit(function() return ("x"):rep(800 * 1024) end)
      jobs[i]:wait()
    end
    local passes
    await("the pool is at rest", function()
      local now = pool:stats().passes
      local is_same = now == passes and now > 0
      passes = now
      idlesched.sleep(1)
      return is_same
    end)
    local wakes = pool:stats().wakes
    jobs[1] = nil
    collectgarbage()
    assert.are.equal(passes, pool:stats().passes)
    jobs[2]:result() -- what it left is freed when it is read
    await("there is a pass for it", function() return pool:stats().passes > passes end)
    assert.are.equal(wakes, pool:stats().wakes)
  end)
end)

describe("explain", function()
  it("N4 says in words where memory is and what keeps it", function()
    local pool <close> = idlesched.pool { name = "busy", workers = 2, idle_release = false }
    pool:submit(function() end):wait()
    local job, let_go = hold(pool)
    await("one is parked", function() return pool:stats().workers.parked == 1 or
      pool:stats().workers.threads == 1 end)
    local text = idlesched.explain()
    let_go()
    job:wait()
    assert.is_truthy(text:find("MiB of private memory", 1, true), text)
    assert.is_truthy(text:find(idlesched.allocator(), 1, true), text)
    assert.is_truthy(text:find(
      "pool 'busy': 1 worker runs jobs, and idle_release is false\n", 1, true), text)
    pool:wait()
    pool:start_workers()
    support.await_rest(pool)
    assert.is_truthy(idlesched.explain():find(
      "pool 'busy': 2 idle workers never release: idle_release is false\n", 1, true))
  end)

  it("tells one worker from two, and cuts no name", function()
    local name = ("long "):rep(200)
    local pool <close> = idlesched.pool { name = name, workers = 2, idle_release = 60 }
    local first <close> = support.hold(pool)
    assert.is_truthy(idlesched.explain():find(
      "  - pool '" .. name .. "': 1 worker runs jobs, released when idle\n", 1, true))
    local second <close> = support.hold(pool)
    assert.is_truthy(idlesched.explain():find(
      "  - pool '" .. name .. "': 2 workers run jobs, released when idle\n", 1, true))
    first:let_go()
    second:let_go()
    support.await_rest(pool)
    assert.is_truthy(idlesched.explain():find(
      "  - pool '" .. name .. "': 2 idle workers will release, 60 s after", 1, true))
  end)

  it("in a job says that it knows the pools of its own state only", function()
    local pool <close> = idlesched.pool { name = "theirs", workers = 1 }
    local text = pool:submit(function() return require("idlesched").explain() end):result()
    assert.is_truthy(text:find("\nIn a job: of the pools it knows those of its own Lua state\n", 1,
      true), text)
    assert.is_falsy(text:find("theirs", 1, true), text)
    assert.is_falsy(idlesched.explain():find("In a job", 1, true))
  end)

  it("N4 tells the C library's blocks in use, and the module's", function()
    local script = [[
      local idlesched = require "idlesched"
      local kept = {}
      for i = 1, 200 do kept[i] = ("x"):rep(10000) .. i end
      collectgarbage()
      print(idlesched.explain(), #kept)
    ]]
    for _, program in ipairs(support.programs) do
      local text = support.run_well(program.path, { script = script }).out
      local is_one = support.allocator == "system" or program.path == support.host
      local line = is_one and "are blocks in use: results and buffers of jobs, Lua states\n"
        or "are blocks in use of [^:]+: this script's, and C modules'\n"
      assert.is_truthy(text:find("  %- [2-4]%.%d MiB " .. line), text)
    end
  end)

  it("B29 says whose wish huge pages are", function()
    if support.allocator == "system" then
      return pending("the system's allocator asks for none")
    end
    local text = support.run_well(support.host, {
      environment = { MIMALLOC_ALLOW_THP = "1" },
      script = [[
        local idlesched = require "idlesched"
        local kept = {}
        for i = 1, 4000 do kept[i] = ("x"):rep(4000) .. i end
        print(idlesched.memory().huge, #kept)
        print(idlesched.explain())
      ]],
    }).out
    if tonumber(text:match("^%d+")) < 1 << 20 then
      return pending("the kernel gives no huge pages")
    end
    assert.is_truthy(text:find("MiB are huge pages, as [^\n]* MIMALLOC_ALLOW_THP wants"), text)
  end)

  it("B28 says that purging is off, and that nothing of it can be given back", function()
    if support.allocator == "system" then
      return pending("the system's allocator has no purge delay")
    end
    local text = support.run_well(support.host, {
      environment = { MIMALLOC_PURGE_DELAY = "-1" },
      script = [[print(require("idlesched").explain())]],
    }).out
    assert.is_truthy(text:find("\nA release can give back 0.0 MiB at most", 1, true), text)
    assert.is_truthy(text:find("\n  - purging is switched off: purge_delay is -1 by the user's own "
      .. "setting\n", 1, true), text)
  end)

  it("keeps the pools that it tells of, while the collector runs", function()
    collectgarbage("generational")
    for round = 1, 60 do
      for i = 1, 20 do
        local pool = idlesched.pool { workers = 1, name = "gone" .. i, idle_release = false }
        if round % 20 == 0 then pool:start_workers() end
      end
      assert.are.equal("string", type(idlesched.explain()))
    end
    collectgarbage("incremental")
    collectgarbage()
  end)

  it("N7 names who holds an option", function()
    if support.allocator == "system" then
      return pending("the system's allocator has no options")
    end
    local guard <close> = idlesched.eager_purge()
    local text = idlesched.explain()
    assert.is_truthy(text:find("\nWho holds an option, which a release lifts for its purge:\n"
      .. "  %- [^\n]*release_spec.lua:%d+ has held purge_delay = 0 for"), text)
    assert.is_truthy(guard)
  end)

  it("N7 says of how many holders it has not told", function()
    if support.allocator == "system" then
      return pending("the system's allocator has no options")
    end
    local guards = {}
    for i = 1, 18 do
      guards[i] = idlesched.option("purge_mult", i)
      local text = idlesched.explain()
      local _, told = text:gsub("has held purge_mult = ", "")
      assert.are.equal(math.min(i, 16), told)
      local function says(more)
        return text:find("  - " .. more .. ", for longer\n", 1, true) ~= nil
      end
      assert.are.equal(i == 17, says("1 more holds purge_mult"))
      assert.are.equal(i == 18, says("2 more hold purge_mult"))
    end
    for _, guard in ipairs(guards) do guard:close() end
    assert.is_falsy(idlesched.explain():find("Who holds", 1, true))
  end)

  it("C4 knows the Lua states' garbage", function()
    local pool <close> = idlesched.pool { name = "dirty", workers = 1, idle_release = 60 }
    pool:submit(function() _G.kept = ("x"):rep(1 << 20) end):result()
    pool:release() -- what is there after it is in use
    pool:submit(function()
      collectgarbage("stop")
      for i = 1, 20000 do _G.last = { i, tostring(i) } end
    end):result()
    await("it is parked", function() return pool:stats().workers.parked == 1 end)
    local text = idlesched.explain()
    assert.is_truthy(text:find("pool 'dirty': the workers' Lua states use", 1, true), text)
    assert.is_truthy(text:find("will release, 60 s after the last job", 1, true), text)
    assert.is_truthy(text:find("pool 'dirty': %d+%.%d MiB are garbage"), text)
    pool:release()
    assert.is_falsy(idlesched.explain():find("are garbage", 1, true))
  end)
end)
