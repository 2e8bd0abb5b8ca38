-- SPDX-License-Identifier: MIT
--
-- sources.lua - real input for workloads: the Lua source files of the installed
-- packages, and the job that compiles one.

local sources = {}

local function quote(text)
  return "'" .. text:gsub("'", "'\\''") .. "'"
end

-- The folders of package.path, one step up: .../share/lua holds the packages of every
-- version of Lua.
function sources.installed_folders()
  local folders, seen = {}, {}
  for template in package.path:gmatch "[^;]+" do
    local folder = template:match "^(/.-/lua)/5%.4/%?%.lua$"
    if folder and not seen[folder] then
      seen[folder] = true
      table.insert(folders, folder)
    end
  end
  return folders
end

-- Paths of all *.lua files below the folders, in order.
function sources.find(folders)
  local quoted = {}
  for _, folder in ipairs(folders) do
    table.insert(quoted, quote(folder))
  end
  local command = "find -L " .. table.concat(quoted, " ") .. " -name '*.lua' -type f 2>/dev/null"
  local paths = {}
  local list <close> = assert(io.popen(command .. " | LC_ALL=C sort"))
  for path in list:lines() do
    table.insert(paths, path)
  end
  return paths
end

-- Runs on a worker: the file's bytecode, or nil and why it is no Lua 5.4.
function sources.compile(path)
  local file <close> = assert(io.open(path, "rb"))
  local source = file:read "a"
  if source:sub(1, 1) == "#" then -- the first line of a script
    source = "--" .. source
  end
  local chunk, message = load(source, "@" .. path, "t")
  if not chunk then
    return nil, message
  end
  return string.dump(chunk)
end

return sources
