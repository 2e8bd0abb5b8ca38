-- SPDX-License-Identifier: MIT
-- For `luarocks make` in the folder that holds this file.  The module needs mimalloc:
-- the system's, or what scripts/setup has put beside the build, or the one that
-- IDLESCHED_MIMALLOC_ROOT names; IDLESCHED_ALLOCATOR=system does without.
rockspec_format = "3.0"
package = "idlesched"
version = "scm-1"
source = { url = "git+file://." }
description = {
  summary = "Worker scheduler that gives idle memory back",
  detailed = [[
    Runs Lua functions as jobs on worker threads, and gives the memory of those
    threads back to the system when they are idle.
  ]],
  license = "MIT",
}
supported_platforms = { "linux" }
dependencies = { "lua ~> 5.4" }
build = {
  type = "cmake",
  variables = {
    CMAKE_BUILD_TYPE = "Release",
    CMAKE_C_FLAGS = "$(CFLAGS)",
    CMAKE_INSTALL_PREFIX = "$(PREFIX)",
    LUA_INCDIR = "$(LUA_INCDIR)",
    IDLESCHED_MODULE_ONLY = "ON",
    IDLESCHED_TESTS = "OFF",
    IDLESCHED_LUA_CMODDIR = "$(LIBDIR)",
    IDLESCHED_LUA_MODDIR = "$(LUADIR)",
  },
}
