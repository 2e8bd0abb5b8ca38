# SPDX-License-Identifier: MIT
# Find mimalloc 3.6 or newer and make the target idlesched_mimalloc of it.
#
# In this order: IDLESCHED_MIMALLOC_ROOT where it is set, the system's, the folder
# that scripts/setup unpacks beside the build.  What is not the system's is taken
# along by `cmake --install`: idlesched_mimalloc_bundled says so.

include(CheckCSourceCompiles)

set(idlesched_mimalloc_unpacked ${PROJECT_SOURCE_DIR}/build/deps/mimalloc/usr)

# Set ${result} to the library below (or to "") and ${result}_INCLUDE to its headers.
function(idlesched_look_for_mimalloc result)
  find_path(found_include mimalloc.h ${ARGN} PATH_SUFFIXES include NO_CACHE)
  find_library(found_library NAMES mimalloc ${ARGN}
    PATH_SUFFIXES lib/${CMAKE_LIBRARY_ARCHITECTURE} lib lib64 NO_CACHE)
  set(${result} "" PARENT_SCOPE)
  if(NOT found_include OR NOT found_library)
    return()
  endif()

  set(CMAKE_REQUIRED_INCLUDES ${found_include})
  set(CMAKE_REQUIRED_LIBRARIES ${found_library} Threads::Threads)
  string(MD5 hash ${found_library})
  check_c_source_compiles("
    #include <mimalloc.h>
    #if MI_MALLOC_VERSION < 30600 && MI_MALLOC_VERSION < 360
    #error too old
    #endif
    int main(void) {
      mi_theap_quiescent_abandon(mi_theap_get_default());
      mi_arenas_purge();
      return 0;
    }" idlesched_mimalloc_works_${hash})
  if(idlesched_mimalloc_works_${hash})
    set(${result} ${found_library} PARENT_SCOPE)
    set(${result}_INCLUDE ${found_include} PARENT_SCOPE)
  endif()
endfunction()

if(IDLESCHED_MIMALLOC_ROOT)
  idlesched_look_for_mimalloc(mimalloc PATHS ${IDLESCHED_MIMALLOC_ROOT} NO_DEFAULT_PATH)
  set(idlesched_mimalloc_bundled ON)
else()
  idlesched_look_for_mimalloc(mimalloc)
  set(idlesched_mimalloc_bundled OFF)
  if(NOT mimalloc)
    idlesched_look_for_mimalloc(mimalloc PATHS ${idlesched_mimalloc_unpacked} NO_DEFAULT_PATH)
    set(idlesched_mimalloc_bundled ON)
  endif()
endif()

if(NOT mimalloc)
  message(FATAL_ERROR
    "mimalloc 3.6 or newer, with mi_theap_quiescent_abandon and mi_arenas_purge, was not found.\n"
    "  To get it:         scripts/setup  (puts it beside the build, leaves the system alone)\n"
    "  To use your own:   -DIDLESCHED_MIMALLOC_ROOT=<its prefix>\n"
    "  To do without it:  -DIDLESCHED_ALLOCATOR=system  (then less memory can be given back)")
endif()
message(STATUS "mimalloc: ${mimalloc}")

add_library(idlesched_mimalloc SHARED IMPORTED GLOBAL)
set_target_properties(idlesched_mimalloc PROPERTIES
  IMPORTED_LOCATION ${mimalloc}
  INTERFACE_INCLUDE_DIRECTORIES ${mimalloc_INCLUDE})
