#!/usr/bin/env lua5.4
-- SPDX-License-Identifier: MIT
--
-- check_layers.lua - arrows point down: a file of the core includes only what lies below
-- it, and the Lua binding knows the core by its public header alone.
--
--   lua5.4 scripts/check_layers.lua [--draw] [FOLDER...]
--
-- The folders are those named core, core/sim and lua beside scripts/, or the ones given,
-- which must be called so too.  Each offender is printed as `file:line: what is wrong`; exit code 0
-- if there is none, 1 if there is one, 2 for a wrong call.  --draw prints the layers.

-- From the bottom up.  Modules of one layer do not know each other.  A new file in core/
-- needs a place here, and its spec a file in spec/core.
local layers = {
  { "base" },
  { "status", "list", "failure", "cell", "alarm" },
  { "plat" },
  { "fork", "line" },
  { "counter" },
  { "heap" },
  { "memory" },
  { "option" },
  { "eager_purge", "host_thread" },
  { "group" },
  { "pass" },
  { "visit" },
  { "worker" },
  { "queue", "job", "pools" },
  { "pool" },
  { "release", "token" },
  { "stats", "audit", "pressure" },
  { "idlesched" },
}

-- The simulated machine's types, the one thing of core/sim that the core sees: in plat.h.
local simulated_types = "sim/plat_types_sim.h"

-- The public header defines types that jobs are made of: whoever is at this layer or above
-- may include it, as it declares only and what it declares is defined at the top.
local public_headers = { ["idlesched.h"] = true, ["idlesched_version.h"] = true }
local public_from = "failure"

-- A module is its header and its file, or files, one for each part or system: plat_facts.c,
-- heap_system.c.
-- These two are where the machine is: the others see of it what the language has.
local reaches_the_system = { plat = true, heap = true }
local language_headers = {
  ["errno.h"] = true,
  ["limits.h"] = true,
  ["stdbool.h"] = true,
  ["stddef.h"] = true,
  ["stdint.h"] = true,
  ["string.h"] = true,
}

local level_of = {}
for level, modules in ipairs(layers) do
  for _, module in ipairs(modules) do
    level_of[module] = level
  end
end

local offenders = 0
local function offend(path, line, text, ...)
  offenders = offenders + 1
  print(("%s:%d: %s"):format(path, line, text:format(...)))
end

-- The longest known module that the name begins with: eager_purge before eager.
local function module_of(file)
  local name = file:gsub("%.[ch]$", ""):gsub("%.h%.in$", "")
  while name and not level_of[name] do
    name = name:match("^(.+)_[^_]*$")
  end
  return name
end

local function files_in(folder)
  local list = {}
  local pipe <close> = assert(io.popen(("ls '%s'"):format(folder:gsub("'", "'\\''"))))
  for file in pipe:lines() do
    if file:find("%.[ch]$") then
      list[#list + 1] = file
    end
  end
  return list
end

-- line number, "<" or '"', what is included
local function includes_of(path)
  return coroutine.wrap(function()
    local number = 0
    for line in io.lines(path) do
      number = number + 1
      local quote, name = line:match('^%s*#%s*include%s*([<"])([^>"]+)[>"]')
      if quote then
        coroutine.yield(number, quote, name)
      end
    end
  end)
end

local function check_core_include(path, module, line, quote, name)
  local included = module_of(name)
  if quote == "<" then
    if not reaches_the_system[module] and not language_headers[name] then
      offend(path, line, "includes <%s>: the machine is asked through plat.h or heap.h only", name)
    end
  elseif name == simulated_types and module == "plat" then
    return
  elseif name:find("/") then
    offend(path, line, 'includes "%s": a core file includes files of core/ only, by name', name)
  elseif public_headers[name] then
    if level_of[module] < level_of[public_from] then
      offend(path, line, 'includes "%s", which is for layer "%s" and above', name, public_from)
    end
  elseif not included then
    offend(path, line, 'includes "%s", which is in no layer of scripts/check_layers.lua', name)
  elseif included ~= module and level_of[included] >= level_of[module] then
    offend(path, line, 'includes "%s", which is not below "%s"', name, module)
  end
end

local function check_core(folder)
  for _, file in ipairs(files_in(folder)) do
    local path = folder .. "/" .. file
    local module = module_of(file)
    if not module then
      offend(path, 1, "is in no layer: give it one in scripts/check_layers.lua")
    else
      for line, quote, name in includes_of(path) do
        check_core_include(path, module, line, quote, name)
      end
    end
  end
end

local lua_headers = { ["lua.h"] = true, ["lauxlib.h"] = true, ["lualib.h"] = true }

local function check_lua(folder)
  local own = {}
  for _, file in ipairs(files_in(folder)) do
    own[file] = true
  end
  for file in pairs(own) do
    local path = folder .. "/" .. file
    for line, quote, name in includes_of(path) do
      local is_core = module_of(name) and not public_headers[name] and not own[name]
      if is_core or name == "mimalloc.h" then
        offend(path, line, "includes %s: the binding knows the core by idlesched.h alone", name)
      elseif quote == '"' and not (own[name] or public_headers[name] or lua_headers[name]) then
        offend(path, line, 'includes "%s", which is not of lua/, of Lua or idlesched.h', name)
      end
    end
  end
end

-- The simulated machine is a plat and a heap: it knows what they do, and nothing above.
local function check_sim(folder)
  local own = {}
  for _, file in ipairs(files_in(folder)) do
    own[file] = true
  end
  for file in pairs(own) do
    for line, quote, name in includes_of(folder .. "/" .. file) do
      local module = quote == '"' and not own[name] and module_of(name)
      if quote == '"' and not own[name] and (not module or level_of[module] > level_of.heap) then
        offend(folder .. "/" .. file, line, 'includes "%s", which is above heap', name)
      end
    end
  end
end

-- What a module is for, in the words of its header: `name.h - words`.
local function purpose_of(folder, module)
  local file = io.open(("%s/%s.h"):format(folder, module))
  if not file then
    return "?"
  end
  local head = file:read(2000) or ""
  file:close()
  local purpose = head:match(module .. "%.h %- (.-)%.%s") or "?"
  return (purpose:gsub("%s*\n%s*%*?%s*", " "))
end

local function draw(folder)
  print("A file includes only what is below it; modules side by side do not know each other.\n")
  for level = #layers, 1, -1 do
    for _, module in ipairs(layers[level]) do
      print(("%3d  %-12s %s"):format(level - 1, module, purpose_of(folder, module)))
    end
  end
  print(("\nThe public header idlesched.h may be included from %s upwards."):format(public_from))
  print("core/sim/ is another plat and heap, and includes nothing above them.")
  print("lua/ includes it, Lua's headers, its own, and nothing else of the core.")
end

local checks = { core = check_core, sim = check_sim, lua = check_lua }

local function refuse(text, ...)
  io.stderr:write("check_layers.lua: ", text:format(...), "\n")
  os.exit(2)
end

local function main()
  local scripts = arg[0]:match("^(.*)/[^/]*$") or "."
  local root = scripts == "scripts" and "." or scripts:match("^(.*)/scripts$") or scripts .. "/.."
  local folders, draws = {}, false
  for _, argument in ipairs(arg) do
    if argument == "--draw" then
      draws = true
    elseif argument:sub(1, 1) == "-" then
      refuse("unknown option '%s'; known is --draw", argument)
    else
      folders[#folders + 1] = argument:gsub("(.)/+$", "%1")
    end
  end
  if #folders == 0 then
    folders = { root .. "/core", root .. "/core/sim", root .. "/lua" }
  end
  for _, folder in ipairs(folders) do
    local name = folder:match("[^/]+$")
    if not checks[name] then
      refuse("the folder is '%s'; expected one that is called core, sim or lua", folder)
    end
    if #files_in(folder) == 0 then
      refuse("there is no .c or .h file in '%s'", folder)
    end
    if draws and name == "core" then
      draw(folder)
    end
    checks[name](folder)
  end
  os.exit(offenders == 0)
end

main()
