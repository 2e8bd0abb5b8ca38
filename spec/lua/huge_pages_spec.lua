-- SPDX-License-Identifier: MIT
--
-- huge_pages_spec.lua - huge pages from Lua: off, kept, or refused.  Each case has a process of
-- its own, as they can be kept only for good.

local here = debug.getinfo(1, "S").source:match("^@(.*/)") or ""
local support = dofile(here .. "support.lua")
local idlesched = require("idlesched")

local function result_of(program, code, environment)
  local script = "local idlesched = require 'idlesched'\n" .. code
  return support.run_well(program.path, { script = script, environment = environment }).out
end

local function can_be_kept()
  local switch = io.open("/sys/kernel/mm/transparent_hugepage/enabled")
  local pagemap = io.open("/proc/self/pagemap")
  return support.allocator ~= "system" and switch and pagemap
end

for _, program in ipairs(support.programs) do
  describe("huge_pages under " .. program.name, function()
    it("B22 are off unless somebody asks for them", function()
      assert.are.equal("off\n", result_of(program, "print(idlesched.huge_pages())"))
    end)

    it("B22 are kept from a call on, which may be repeated", function()
      if not can_be_kept() then
        return pending("needs mimalloc, and a kernel that splits huge pages")
      end
      local code = "local ask = idlesched.huge_pages print(ask('keep'), ask('keep'), ask())"
      assert.are.equal("keep\tkeep\tkeep\n", result_of(program, code))
    end)

    it("B10 are kept or not as the user says", function()
      if not can_be_kept() then
        return pending("needs mimalloc, and a kernel that splits huge pages")
      end
      local code = "print(idlesched.huge_pages()) print(idlesched.huge_pages('keep'))"
      assert.are.equal("keep\nkeep\n", result_of(program, code, { MIMALLOC_ALLOW_THP = "1" }))
      assert.are.equal(
        "off\nnil\tthe user has set that there are none: MIMALLOC_ALLOW_THP=0\t1\n",
        result_of(program, code, { MIMALLOC_ALLOW_THP = "0" })
      )
    end)

    it("B22 what a job has freed of them is split by the release that follows", function()
      if not can_be_kept() then
        return pending("needs mimalloc, and a kernel that splits huge pages")
      end
      local out = result_of(program, [[
        assert(idlesched.huge_pages("keep"))
        local pool = idlesched.pool({ workers = 1, idle_release = false })
        -- Of these strings one in 100 lives on, in the worker's own state.
        assert(pool:submit(function()
          local strings = {}
          for i = 1, 100000 do strings[i] = string.rep("x", 1000) .. i end
          kept = {}
          for i = 1, #strings, 100 do kept[#kept + 1] = strings[i] end
        end):wait())
        local function count_split() -- and stacks of threads
          local count = 0
          for line in io.lines("/proc/self/smaps") do
            if line:find("^VmFlags:.* nh") then count = count + 1 end
          end
          return count
        end
        local before = count_split()
        idlesched.release()
        print(count_split() > before)
      ]])
      assert.are.equal("true\n", out)
    end)
  end)
end

describe("huge_pages", function()
  it("A16 are refused by an allocator that has none", function()
    if support.allocator ~= "system" then
      return pending("needs the system's allocator")
    end
    local mode, message, number = idlesched.huge_pages("keep")
    assert.is_nil(mode)
    assert.is_truthy(message:find("has no such thing", 1, true))
    assert.are.equal("integer", math.type(number))
    assert.are.equal("off", idlesched.huge_pages())
  end)

  it("B11 cannot be turned off again, nor into anything else", function()
    local ask = idlesched.huge_pages
    support.check_raises("huge_pages takes 'keep' or nothing, got 'off'", ask, "off")
    support.check_raises("string expected, got table", ask, {})
  end)
end)
