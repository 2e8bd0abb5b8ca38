-- SPDX-License-Identifier: MIT
--
-- memory_spec.lua - what the kernel says of a process whose workers had a lot to do and
-- then have nothing: the memory is back when the promises say so, and not before.
--
-- Each case is a script in a process of its own, under stock Lua and under the host, that
-- prints its measurements; this file judges them.  Bytes are of anonymous memory.

local here = debug.getinfo(1, "S").source:match("^@(.*/)") or ""
local support = dofile(here .. "support.lua")

local workers_count = 8
local released_per_worker = 0.3e6 -- above workers that never had a job
local exited_in_all = 1.5e6 -- above the process before it had a thread

local prelude = support.memory_prelude

describe("memory", function()
  if support.allocator == "system" then
    it("comes back", function()
      pending("the limits are for mimalloc; the C library's malloc keeps more")
    end)
    return
  end

  local function run(program, script)
    return support.numbers_of(program, prelude .. script)
  end

  local check_at_most = support.check_at_most

  for _, program in ipairs(support.programs) do
    describe("under " .. program.name, function()
      it("A1 A13 is back 0.5 s after the last job, and all of it after the exit", function()
        local numbers = run(program, [[
          local pool <close> = idlesched.pool { workers = 8, idle_exit = 1.5 }
          release_own()
          local start = anonymous()
          start_workers(pool)
          await("the workers have released", function() return pool:stats().releases == 8 end)
          local started = anonymous()
          -- Who shares the CPUs with others may need a second try for a promise in seconds.
          local rise, over
          for attempt = 1, 5 do
            local peak, ended = run_jobs(pool, allocate)
            rise = peak - started
            release_own()
            repeat
              idlesched.sleep(0.005)
              over = anonymous() - started
            until idlesched.now() - ended >= 0.5
            if over <= 8 * 0.3e6 then break end
          end
          say("rise", rise)
          say("over", over)
          await("no thread is left", function() return pool:stats().workers.threads == 0 end)
          say("left", anonymous() - start)
        ]])
        assert.is_true(numbers.rise > 20e6)
        check_at_most(workers_count * released_per_worker, numbers.over,
          "above workers that never had a job")
        check_at_most(exited_in_all, numbers.left, "after the exit")
      end)

      it("A5 is that of their threads for workers that never had a job", function()
        local numbers = run(program, [[
          local pool <close> = idlesched.pool { workers = 64, idle_exit = 0.3 }
          release_own()
          say("start", anonymous())
          start_workers(pool)
          await("the workers have released", function() return pool:stats().releases == 64 end)
          say("started", anonymous())
          await("no thread is left", function() return pool:stats().workers.threads == 0 end)
          say("exited", anonymous())
        ]])
        check_at_most(64 * 0.05e6, numbers.started - numbers.start, "64 threads")
        check_at_most(exited_in_all, numbers.exited - numbers.start, "after the exit")
      end)

      it("A23 stays with idle_release = false until the threads end, and is back then", function()
        local numbers = run(program, [[
          local pool <close> = idlesched.pool { workers = 8, idle_release = false, idle_exit = 1 }
          release_own()
          say("start", anonymous())
          local _, ended = run_jobs(pool, allocate)
          say("after", anonymous())
          local least = math.huge
          repeat
            idlesched.sleep(0.01)
            if pool:stats().exits == 0 then least = math.min(least, anonymous()) end
          until idlesched.now() - ended >= 0.6
          say("least", least)
          say("releases", pool:stats().releases)
          await("no thread is left", function() return pool:stats().workers.threads == 0 end)
          collectgarbage()
          say("exited", anonymous())
        ]])
        assert.are.equal(0, numbers.releases)
        assert.is_true(numbers.after > numbers.start + 20e6)
        -- Not all of it: what jobs freed while they ran is the allocator's to return.
        assert.is_true(numbers.least > 0.6 * numbers.after,
          ("%.2f MB of %.2f are left"):format(numbers.least / 1e6, numbers.after / 1e6))
        check_at_most(exited_in_all, numbers.exited - numbers.start, "after the exit")
      end)

      it("A4 is back after each burst of work, and does not add up", function()
        local numbers = run(program, [[
          local pool <close> = idlesched.pool { workers = 8, idle_release = 0.02 }
          start_workers(pool)
          await("the workers have released", function() return pool:stats().releases == 8 end)
          release_own()
          say("started", anonymous())
          local function use_module_and_allocate(seed)
            require("idlesched").now()
            return allocate(seed)
          end
          for round = 1, 4 do
            run_jobs(pool, use_module_and_allocate)
            await("the workers have released", function()
              local workers = pool:stats().workers
              return workers.parked == 8 and pool:release().complete
            end)
            release_own()
            say("round" .. round, anonymous())
          end
        ]])
        for round = 1, 4 do
          check_at_most(workers_count * released_per_worker,
            numbers["round" .. round] - numbers.started, "after round " .. round)
        end
        check_at_most(0.5e6, numbers.round4 - numbers.round2, "more than two rounds before")
      end)

      for _, mode in ipairs({ "stop", "generational" }) do
        it("is back although jobs have left garbage behind a collectgarbage " .. mode, function()
          local numbers = run(program, ([[
            local pool <close> = idlesched.pool { workers = 4, idle_exit = false }
            start_workers(pool)
            await("the workers have released", function() return pool:stats().releases == 4 end)
            local started = anonymous()
            run_jobs(pool, function(seed)
              collectgarbage "MODE"
              local list = {}
              for i = 1, 20000 do list[i] = { seed, tostring(i) } end
            end)
            say("rose", anonymous() - started)
            release_own()
            await("the memory is back", function()
              return anonymous() - started <= 4 * 0.3e6
            end)
          ]]):gsub("MODE", mode))
          assert.is_true(numbers.rose > 5e6)
        end)
      end

      it("does not grow with pools and jobs that come and go, whatever their end", function()
        local numbers = run(program, [[
          local function use_pools(count)
            for i = 1, count do
              local pool <close> = idlesched.pool { workers = 2, idle_release = 0.001,
                idle_exit = i % 2 == 0 and 0.001 }
              local done = pool:submit(function(list) return { list[1]:rep(1000) } end, { "x" })
              local failed = pool:submit(error, { "a table" })
              pcall(pool.submit, pool, print, { io.stdout })
              if i % 3 == 0 then
                done:result()
                failed:try()
              end
            end
          end
          use_pools(200)
          release_own()
          local before = anonymous()
          use_pools(500)
          release_own()
          say("grown", anonymous() - before)
          local pool <close> = idlesched.pool { workers = 2 }
          local function use_jobs(count)
            for i = 1, count do
              local job = pool:submit(i % 2 == 0 and error or math.abs, i)
              if i % 4 == 0 then job:try() end
            end
            pool:wait()
            pool:release()
            release_own()
          end
          use_jobs(5000)
          before = anonymous()
          use_jobs(10000)
          say("grown_by_jobs", anonymous() - before)
        ]])
        check_at_most(0.2e6, numbers.grown, "more after 500 pools")
        check_at_most(0.2e6, numbers.grown_by_jobs, "more after 10000 jobs")
      end)

      it("B1 goes back under a guard as jobs free it, without any release", function()
        local numbers = run(program, [[
          local pool <close> = idlesched.pool { workers = 4, idle_release = false }
          local function allocate_and_collect(seed)
            local list = {}
            for i = 1, 200 do list[i] = ("x"):rep(50000) .. i + seed end
            list = nil
            collectgarbage()
          end
          start_workers(pool)
          run_jobs(pool, allocate_and_collect)
          say("without", anonymous())
          do
            local guard <close> = idlesched.eager_purge()
            run_jobs(pool, allocate_and_collect)
            say("within", anonymous())
          end
          run_jobs(pool, allocate_and_collect)
          say("afterwards", anonymous())
          say("releases", pool:stats().releases)
        ]])
        assert.are.equal(0, numbers.releases)
        assert.is_true(numbers.without > 10e6)
        check_at_most(8e6, numbers.within, "within the guard")
        assert.is_true(numbers.afterwards > 10e6)
      end)
    end)
  end

  describe("release()", function()
    for _, program in ipairs(support.programs) do
      it("N4 B14 tells what it has given back, and visits each worker once, under "
        .. program.name, function()
        local numbers = run(program, [[
          local pool <close> = idlesched.pool { workers = 8, idle_release = false }
          start_workers(pool)
          say("started", anonymous())
          run_jobs(pool, allocate)
          await("the workers are at rest", function() return pool:stats().workers.parked == 8 end)
          local before = pool:stats()
          local outside_before = anonymous()
          local report = pool:release()
          local outside_after = anonymous()
          local after = pool:stats()
          for _, name in ipairs { "before", "after", "returned", "visited", "missed", "time" } do
            say(name, report[name])
          end
          say("outside_before", outside_before)
          say("outside_after", outside_after)
          assert(report.complete == true)
          assert(report.allocator == idlesched.allocator())
          say("releases", after.releases - before.releases)
          say("wakes", after.wakes - before.wakes)
          say("polls", after.polls - before.polls)
          say("starts", after.starts - before.starts)
          say("again", pool:release().returned)
        ]])
        assert.are.equal(8, numbers.visited)
        assert.are.equal(0, numbers.missed)
        assert.are.equal(8, numbers.releases)
        assert.are.same({ 0, 0, 0 }, { numbers.wakes, numbers.polls, numbers.starts })
        assert.are.equal(numbers.before - numbers.after, numbers.returned)
        assert.is_true(numbers.returned > 20e6)
        assert.is_true(math.abs(numbers.before - numbers.outside_before) < 0.2e6)
        assert.is_true(math.abs(numbers.after - numbers.outside_after) < 0.2e6)
        check_at_most(workers_count * released_per_worker, numbers.after - numbers.started,
          "above workers that never had a job")
        check_at_most(0.5e6, numbers.again, "returned by a second release")
        assert.is_true(numbers.time > 0 and numbers.time < 5)
      end)

      it("B16 misses a worker that is busy for longer than its time, under "
        .. program.name, function()
        local numbers = run(program, [[
          local pool <close> = idlesched.pool { workers = 4, idle_release = false }
          start_workers(pool)
          run_jobs(pool, allocate)
          local gate = os.tmpname()
          os.remove(gate)
          local busy = pool:submit(function(path)
            while not io.open(path) do require("idlesched").sleep(0.002) end
          end, gate)
          await("the job runs", function() return busy:status() == "running" end)
          await("the others are at rest", function() return pool:stats().workers.parked == 3 end)

          local report = pool:release { timeout = 0.3 }
          say("visited", report.visited)
          say("missed", report.missed)
          say("complete", report.complete and 1 or 0)
          say("returned", report.returned)
          say("time", report.time)
          say("releases", pool:stats().releases)

          io.open(gate, "w"):close()
          busy:result()
          await("the worker that was missed has released", function()
            return pool:stats().releases == 4
          end)
          os.remove(gate)
          report = pool:release()
          say("visited_later", report.visited)
          say("missed_later", report.missed)
          say("complete_later", report.complete and 1 or 0)
        ]])
        assert.are.same({ 3, 1, 0 }, { numbers.visited, numbers.missed, numbers.complete })
        assert.are.equal(3, numbers.releases)
        assert.is_true(numbers.returned > 10e6)
        assert.is_true(numbers.time >= 0.3)
        assert.are.same({ 4, 0, 1 },
          { numbers.visited_later, numbers.missed_later, numbers.complete_later })
      end)

      it("B15 has nothing to visit where no thread is, and starts none, under "
        .. program.name, function()
        local numbers = run(program, [[
          local pool <close> = idlesched.pool { workers = 8 }
          local report = pool:release()
          say("visited", report.visited)
          say("missed", report.missed)
          say("complete", report.complete and 1 or 0)
          say("threads", pool:stats().workers.threads)
          say("starts", pool:stats().starts)
          say("process", idlesched.memory().threads)
        ]])
        assert.are.same({ 0, 0, 1 }, { numbers.visited, numbers.missed, numbers.complete })
        assert.are.same({ 0, 0, 1 }, { numbers.threads, numbers.starts, numbers.process })
      end)
    end

    it("collects the caller's own Lua state as well", function()
      local numbers = run(support.programs[2], [[
        local pool <close> = idlesched.pool { workers = 1 }
        local list = {}
        for i = 1, 300000 do list[i] = { i } end
        list = nil
        say("returned", pool:release().returned)
      ]])
      assert.is_true(numbers.returned > 10e6)
    end)
  end)
end)

describe("memory()", function()
  for _, program in ipairs(support.programs) do
    it("C4 tells what jobs have left on their workers, until it is collected, under "
      .. program.name, function()
      local result = support.run_well(program.path, { script = prelude .. [[
        local pool <close> = idlesched.pool { workers = 2, idle_release = false }
        local rows = pool:workers()
        assert(#rows == 2 and rows[1].index == 1 and rows[2].index == 2)
        assert(rows[1].state == "absent" and rows[1].live == 0 and rows[1].released == false)

        pool:submit(function()
          collectgarbage "stop"
          local list = {}
          for i = 1, 20000 do list[i] = { i } end
        end):result()
        await("the worker is at rest", function() return pool:active() == 0 end)
        local row = pool:workers()[1]
        assert(row.state == "parked" and row.released == false)
        say("live", row.live)
        say("dead", row.dead)
        local memory = idlesched.memory()
        say("all_live", memory.live)
        say("all_dead", memory.dead)
        say("releasable", memory.releasable)

        assert(pool:release().complete)
        row = pool:workers()[1]
        assert(row.state == "parked" and row.released == true)
        say("live_later", row.live)
        say("dead_later", row.dead)
        say("all_dead_later", idlesched.memory().dead)

        pool:submit(function() return ("x"):rep(100000) end):result()
        say("dead_again", pool:workers()[1].dead)
        pool:close()
        say("dead_at_last", idlesched.memory().dead)
        assert(pool:workers()[1].live == 0)
      ]] })
      local numbers = support.numbers_in(result.out)
      assert.is_true(numbers.dead > 1e6 and numbers.dead < numbers.live)
      assert.are.equal(numbers.dead, numbers.all_dead)
      assert.is_true(numbers.all_live >= numbers.live - 0.1e6)
      assert.is_true(numbers.releasable >= numbers.dead)
      assert.are.same({ 0, 0, 0 },
        { numbers.dead_later, numbers.all_dead_later, numbers.dead_at_last })
      assert.is_true(numbers.live_later > 0 and numbers.live_later < 0.1e6)
      assert.is_true(numbers.dead_again >= 100000)
    end)

    it("B30 A16 tells each allocator's share, under " .. program.name, function()
      local result = support.run_well(program.path, { script = prelude .. [[
        local pool <close> = idlesched.pool { workers = 1, idle_release = false }
        local held = pool:submit(function()
          KEPT = {}
          for i = 1, 400 do KEPT[i] = ("x"):rep(20000) .. i end
        end)
        held:result()
        local memory = idlesched.memory()
        for name, value in pairs(memory) do
          assert(name == "heaps" or math.type(value) == "integer", name)
        end
        assert(memory.heaps[1].name == idlesched.allocator())
        local resident, free = 0, 0
        for i, heap in ipairs(memory.heaps) do
          say("resident" .. i, heap.resident)
          say("live" .. i, heap.live)
          assert(heap.free == math.max(0, heap.resident - heap.live))
          resident, free = resident + heap.resident, free + heap.free
        end
        assert(resident <= memory.anonymous)
        assert(memory.releasable == free + memory.dead)
        say("count", #memory.heaps)
      ]] })
      local numbers = support.numbers_in(result.out)
      local is_one = support.allocator == "system" or program.path == support.host
      assert.are.equal(is_one and 1 or 2, numbers.count)
      assert.is_true(numbers.live1 >= 8e6)
      assert.is_true(numbers.resident1 >= 8e6)
      if not is_one then
        assert.is_true(numbers.resident2 > 0 and numbers.resident2 < 4e6)
      end
    end)
  end

  it("counts the calling state's own blocks as in use", function()
    for _, program in ipairs(support.programs) do
      local numbers = support.numbers_of(program, prelude .. [[
        local kept = {}
        for i = 1, 12000 do kept[i] = ("x"):rep(980) .. i end
        collectgarbage()
        local memory = idlesched.memory()
        local live, free = 0, 0
        for _, heap in ipairs(memory.heaps) do
          live, free = live + heap.live, free + heap.free
        end
        assert(memory.releasable == free + memory.dead)
        say("live", live)
        local report = idlesched.release()
        say("kept_live", report.kept.live)
        say("kept_free", report.kept.free)
        assert(report.kept.live + report.kept.free + report.kept.other == report.after)
        say("kept", #kept)
      ]])
      assert.is_true(numbers.live >= 10e6)
      assert.is_true(numbers.kept_live >= 10e6)
      -- What the allocator adds to each block is not known, and so counts as free.
      support.check_at_most(numbers.kept_live / 2, numbers.kept_free,
        "free after a release under " .. program.name)
    end
  end)

  it("N9 is less again when a pass has trimmed what the script itself has freed", function()
    if support.allocator == "system" then
      pending("there is one heap in this build")
    end
    local result = support.run_well(support.stock, { script = prelude .. [[
      local pool <close> = idlesched.pool { workers = 1, idle_exit = false }
      local kept, passing = {}, {}
      for i = 1, 300000 do
        passing[i] = { i }
        if i % 3000 == 0 then kept[#kept + 1] = { i } end
      end
      say("peak", anonymous())
      for i = 1, #passing do passing[i] = nil end
      passing = nil
      collectgarbage()
      collectgarbage()
      say("freed", anonymous())
      pool:submit(function() end):result()
      await("what was freed is back", function() return anonymous() < 8e6 end)
      say("kept", #kept)
    ]] })
    local numbers = support.numbers_in(result.out)
    assert.is_true(numbers.peak > 25e6)
    assert.is_true(numbers.freed > 15e6)
    assert.are.equal(100, numbers.kept)
  end)
end)
