# SPDX-License-Identifier: MIT
# What `cmake --install` puts where, and how others find it.
#
# The prefix may be chosen, and everything moved, after the build.  So what is installed
# knows the others only by the way from its own folder to theirs.

include(CMakePackageConfigHelpers)

# Package managers for Lua want what require() needs, in folders that they name.
option(IDLESCHED_MODULE_ONLY "Install the Lua module and nothing else" OFF)
# Seen from the prefix, where Lua looks by default.
set(IDLESCHED_LUA_CMODDIR lib/lua/5.4 CACHE STRING "Where the Lua module is installed")
set(IDLESCHED_LUA_MODDIR share/lua/5.4 CACHE STRING "Where its types for editors are installed")
set(idlesched_doc_dir ${CMAKE_INSTALL_DATAROOTDIR}/doc/idlesched)

# Set ${result} to the way from one installed folder to another.
function(idlesched_get_way result from to)
  get_filename_component(from ${from} ABSOLUTE BASE_DIR ${CMAKE_INSTALL_PREFIX}/.)
  get_filename_component(to ${to} ABSOLUTE BASE_DIR ${CMAKE_INSTALL_PREFIX}/.)
  file(RELATIVE_PATH way ${from} ${to})
  string(REGEX REPLACE "/$" "" way ${way})
  set(${result} ${way} PARENT_SCOPE)
endfunction()

# Let what is installed in a folder find the mimalloc that was taken along.
function(idlesched_set_run_path target folder)
  get_property(mimalloc_dir GLOBAL PROPERTY idlesched_mimalloc_dir)
  if(mimalloc_dir)
    idlesched_get_way(way ${folder} ${mimalloc_dir})
    set_target_properties(${target} PROPERTIES INSTALL_RPATH "$ORIGIN/${way}")
  endif()
endfunction()

# ------------------------------------------------------------------- mimalloc

# The system's is found by everybody.  Any other is taken along, into a folder where
# nobody looks who is not told to, under the one name by which the loader asks for it.
set(mimalloc_dir "")
if(TARGET idlesched::mimalloc)
  get_target_property(mimalloc idlesched::mimalloc IMPORTED_LOCATION)
  get_filename_component(mimalloc_from ${mimalloc} DIRECTORY)
  if(NOT mimalloc_from IN_LIST CMAKE_C_IMPLICIT_LINK_DIRECTORIES)
    if(IDLESCHED_MODULE_ONLY)
      set(mimalloc_dir ${IDLESCHED_LUA_CMODDIR}/idlesched)
    else()
      set(mimalloc_dir ${CMAKE_INSTALL_LIBDIR}/idlesched)
    endif()
  endif()
endif()
set_property(GLOBAL PROPERTY idlesched_mimalloc_dir ${mimalloc_dir})

if(mimalloc_dir)
  execute_process(COMMAND ${CMAKE_READELF} -d ${mimalloc}
    OUTPUT_VARIABLE dynamic_section ERROR_VARIABLE dynamic_section)
  if(NOT dynamic_section MATCHES "\\(SONAME\\)[^[]*\\[([^]]+)\\]")
    message(FATAL_ERROR
      "The name under which to install ${mimalloc} is not known: expected a line with "
      "(SONAME) from '${CMAKE_READELF} -d', which said:\n${dynamic_section}")
  endif()
  set(mimalloc_name ${CMAKE_MATCH_1})
  file(REAL_PATH ${mimalloc} mimalloc_file)
  install(FILES ${mimalloc_file} DESTINATION ${mimalloc_dir} RENAME ${mimalloc_name})

  # Its licence goes where it goes.
  get_target_property(mimalloc_include idlesched::mimalloc INTERFACE_INCLUDE_DIRECTORIES)
  file(GLOB copyright ${mimalloc_include}/../share/doc/libmimalloc[0-9]*/copyright)
  if(copyright)
    list(GET copyright 0 copyright)
    install(FILES ${copyright} DESTINATION ${mimalloc_dir} RENAME LICENSE.mimalloc)
  endif()
endif()

if(IDLESCHED_MODULE_ONLY)
  set_target_properties(idlesched_core_shared PROPERTIES EXCLUDE_FROM_ALL ON)
  return()
endif()

# ------------------------------------------------------------------- the core

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/idlesched)
idlesched_set_run_path(idlesched_core_shared ${CMAKE_INSTALL_LIBDIR})
install(TARGETS idlesched_core_static idlesched_core_shared EXPORT idlesched-targets)
install(FILES idlesched.h ${CMAKE_CURRENT_BINARY_DIR}/include/idlesched_version.h
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
foreach(name LICENSE README.md CHANGELOG.md)
  install(FILES ${PROJECT_SOURCE_DIR}/${name} DESTINATION ${idlesched_doc_dir} OPTIONAL)
endforeach()

# For find_package(idlesched CONFIG).
install(EXPORT idlesched-targets NAMESPACE idlesched:: DESTINATION ${package_dir})
configure_package_config_file(idlesched-config.cmake.in idlesched-config.cmake
  INSTALL_DESTINATION ${package_dir} PATH_VARS mimalloc_dir)
# While the major version is 0, a minor version may change the interface.
write_basic_package_version_file(idlesched-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES
  ${CMAKE_CURRENT_BINARY_DIR}/idlesched-config.cmake
  ${CMAKE_CURRENT_BINARY_DIR}/idlesched-config-version.cmake
  DESTINATION ${package_dir})

# For pkg-config, which tells where the .pc file is.
set(pc_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
idlesched_get_way(pc_prefix ${pc_dir} .)
idlesched_get_way(pc_libdir . ${CMAKE_INSTALL_LIBDIR})
idlesched_get_way(pc_includedir . ${CMAKE_INSTALL_INCLUDEDIR})
set(pc_libs_private "")
if(mimalloc_dir)
  set(pc_libs_private
    "-L\${libdir}/idlesched -Wl,-rpath,\${libdir}/idlesched -l:${mimalloc_name} ")
elseif(TARGET idlesched::mimalloc)
  set(pc_libs_private "-lmimalloc ")
endif()
configure_file(idlesched.pc.in idlesched.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/idlesched.pc DESTINATION ${pc_dir})
