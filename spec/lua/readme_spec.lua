-- SPDX-License-Identifier: MIT
--
-- readme_spec.lua - what README.md shows works as it stands there.
--
-- A complete example is a ```lua block that requires the module, or a ```c block that has
-- a main().  Each is run in a process and a folder of its own.  Where a Lua example says
-- in comments what it prints (`print(x) --> 42`), it must print exactly that.
--
-- IDLESCHED_CORE_LIBRARY      the static core, for the C examples
-- IDLESCHED_CORE_INCLUDES     folders of its headers, separated by ;
-- IDLESCHED_MIMALLOC_LIBRARY  the mimalloc to link; empty or not set: none
-- CC                          the compiler, `cc` if not set

local here = debug.getinfo(1, "S").source:match("^@(.*/)") or "./"
local support = dofile(here .. "support.lua")

local readme = assert(support.read(here .. "../../README.md"), "there is no README.md")
local types = assert(support.read(here .. "../../lua/library/idlesched.d.lua"))

-- The fenced blocks of a language that contain a pattern: list of {text, line}.
local function find_blocks(language, pattern)
  local blocks, block, number = {}, nil, 0
  for line in (readme .. "\n"):gmatch("(.-)\n") do
    number = number + 1
    if block and line:match("^%s*```%s*$") then
      block.text = table.concat(block, "\n") .. "\n"
      if block.language == language and block.text:find(pattern) then
        table.insert(blocks, block)
      end
      block = nil
    elseif block then
      table.insert(block, line)
    else
      local name = line:match("^%s*```%s*([%w+-]*)")
      block = name and { language = name, line = number }
    end
  end
  assert(not block, "README.md ends inside a block")
  return blocks
end

local lua_examples = find_blocks("lua", "require%s*%(?%s*[\"']idlesched[\"']")
local c_examples = find_blocks("c", "int%s+main%s*%(")

-- What the example says that it prints, or nil.
local function read_expected_output(text)
  local lines = {}
  for line in text:gmatch("%-%->%s*([^\n]*)") do
    table.insert(lines, (line:gsub("%s+$", "")))
  end
  return lines[1] and table.concat(lines, "\n") .. "\n"
end

local function quote(word)
  return "'" .. word:gsub("'", [['\'']]) .. "'"
end

-- Compile a C example; the path of the program.
local function compile(text)
  local folder = support.new_folder("c")
  support.write(folder .. "/example.c", text)
  local words = { os.getenv("CC") or "cc", "-std=c11 -Wall -Wextra -Werror" }
  for include in os.getenv("IDLESCHED_CORE_INCLUDES"):gmatch("[^;]+") do
    table.insert(words, "-I" .. quote(include))
  end
  table.insert(words, quote(folder .. "/example.c"))
  table.insert(words, quote(os.getenv("IDLESCHED_CORE_LIBRARY")))
  local mimalloc = os.getenv("IDLESCHED_MIMALLOC_LIBRARY") or ""
  if mimalloc ~= "" then
    table.insert(words, quote(mimalloc) .. " -Wl,-rpath," .. quote(mimalloc:match("^(.*)/") or "."))
  end
  table.insert(words, "-pthread -o " .. quote(folder .. "/example"))
  local log = folder .. "/log"
  local ok = os.execute(table.concat(words, " ") .. " >" .. quote(log) .. " 2>&1")
  assert(ok, "the example does not compile:\n" .. support.read(log))
  return folder .. "/example"
end

describe("README", function()
  it("has a complete example in Lua and one in C", function()
    assert.is_true(#lua_examples > 0, "no ```lua block in README.md requires idlesched")
    assert.is_true(#c_examples > 0, "no ```c block in README.md has a main()")
  end)

  for _, example in ipairs(lua_examples) do
    for _, program in ipairs(support.programs) do
      it(("has an example in Lua in line %d that runs under %s"):format(example.line, program.name),
        function()
          local result = support.run_well(program.path, { script = example.text })
          local expected = read_expected_output(example.text)
          if expected then
            assert.are.equal(expected, result.out)
          end
        end)
    end
  end

  for _, example in ipairs(c_examples) do
    it(("has an example in C in line %d that compiles and runs"):format(example.line), function()
      if not os.getenv("IDLESCHED_CORE_LIBRARY") or not os.getenv("IDLESCHED_CORE_INCLUDES") then
        pending("IDLESCHED_CORE_LIBRARY and IDLESCHED_CORE_INCLUDES are not set")
        return
      end
      support.run_well(compile(example.text), {})
    end)
  end

  it("has Lua blocks only that Lua can read", function()
    for _, block in ipairs(find_blocks("lua", "")) do
      local chunk, message = load(block.text, ("=README.md:%d"):format(block.line), "t")
      assert.is_truthy(chunk, message)
    end
  end)

  it("names every function of the module and every method", function()
    local count = 0
    for object, name in types:gmatch("\nfunction (%w+)[.:]([%w_]+)%(") do
      local pattern = (object == "idlesched" and "idlesched%." or ":") .. name .. "%f[^%w_]"
      assert.is_truthy(readme:find(pattern) or object == "Guard", object .. " " .. name)
      count = count + 1
    end
    assert.is_true(count > 15)
  end)
end)
