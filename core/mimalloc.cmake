# SPDX-License-Identifier: MIT
# Find mimalloc 3.6 or newer and make the target idlesched::mimalloc of it.
#
# Under IDLESCHED_MIMALLOC_ROOT and nowhere else where that is set; otherwise where CMake
# looks by itself, then in the folder that scripts/setup unpacks beside the build.

include(CheckCSourceCompiles)

set(idlesched_mimalloc_unpacked ${PROJECT_SOURCE_DIR}/build/deps/mimalloc/usr)

# All that heap_mimalloc.c uses: what is missing has to be noticed here, and not when
# something is linked or run.
set(idlesched_mimalloc_functions
  mi_arenas_purge mi_free mi_is_in_heap_region mi_malloc mi_option_get mi_option_set
  mi_option_set_default mi_theap_get_default mi_theap_quiescent_abandon mi_thread_done
  mi_thread_init mi_ufree mi_urealloc mi_version)
set(idlesched_mimalloc_options
  mi_option_allow_thp mi_option_arena_purge_min_size mi_option_arena_purge_mult
  mi_option_page_reclaim_on_free mi_option_purge_delay)

# Set ${result} to true when the functions are declared in a header and defined in a library.
function(idlesched_try_mimalloc result include library)
  string(REPLACE ";" ", (function *)" functions "(function *)${idlesched_mimalloc_functions}")
  string(REPLACE ";" ", " options "${idlesched_mimalloc_options}")
  set(CMAKE_REQUIRED_INCLUDES ${include})
  set(CMAKE_REQUIRED_LIBRARIES ${library} Threads::Threads)
  string(MD5 hash "${include} ${library} ${functions} ${options}")
  set(works idlesched_mimalloc_works_${hash})
  check_c_source_compiles("
    #include <mimalloc.h>
    typedef void function(void);
    function *volatile functions[] = { ${functions} };
    volatile int options[] = { ${options} };
    int main(void) { return functions[0] == 0 && options[0] == 0; }" ${works})
  set(${result} ${${works}} PARENT_SCOPE)
  if(NOT ${works})
    unset(${works} CACHE) # whoever mends it configures again
  endif()
endfunction()

# Set ${result} to the library (or to ""), ${result}_INCLUDE to where its header is, and
# add to ${result}_REFUSED why one that is there will not do.
function(idlesched_look_for_mimalloc result)
  # A static one would be there once per library that it was linked to.
  set(CMAKE_FIND_LIBRARY_SUFFIXES ${CMAKE_SHARED_LIBRARY_SUFFIX})
  unset(include)
  unset(library)
  find_path(include mimalloc.h ${ARGN} PATH_SUFFIXES include NO_CACHE)
  find_library(library NAMES mimalloc ${ARGN}
    PATH_SUFFIXES lib/${CMAKE_LIBRARY_ARCHITECTURE} lib lib64 NO_CACHE)
  set(${result} "" PARENT_SCOPE)
  if(NOT include OR NOT library)
    return()
  endif()

  set(why "")
  set(number "#define[ \t]+MI_MALLOC_VERSION[ \t]+([0-9]+)")
  file(STRINGS ${include}/mimalloc.h line REGEX ${number} LIMIT_COUNT 1)
  if(NOT line MATCHES ${number} OR CMAKE_MATCH_1 LESS 30600)
    set(why
      "${include}/mimalloc.h has MI_MALLOC_VERSION '${CMAKE_MATCH_1}'; expected 30600 or more")
  else()
    idlesched_try_mimalloc(works ${include} ${library})
    if(NOT works)
      list(JOIN idlesched_mimalloc_functions ", " functions)
      list(JOIN idlesched_mimalloc_options ", " options)
      set(why "${library}, or its mimalloc.h, lacks one of ${functions}, ${options}")
    endif()
  endif()
  if(why)
    set(${result}_REFUSED "${${result}_REFUSED}  Refused: ${why}.\n" PARENT_SCOPE)
  else()
    set(${result} ${library} PARENT_SCOPE)
    set(${result}_INCLUDE ${include} PARENT_SCOPE)
  endif()
endfunction()

set(mimalloc_REFUSED "")
if(IDLESCHED_MIMALLOC_ROOT)
  idlesched_look_for_mimalloc(mimalloc PATHS ${IDLESCHED_MIMALLOC_ROOT} NO_DEFAULT_PATH)
  set(looked_in " under IDLESCHED_MIMALLOC_ROOT=${IDLESCHED_MIMALLOC_ROOT}")
else()
  idlesched_look_for_mimalloc(mimalloc)
  if(NOT mimalloc)
    idlesched_look_for_mimalloc(mimalloc PATHS ${idlesched_mimalloc_unpacked} NO_DEFAULT_PATH)
  endif()
  set(looked_in "")
endif()

if(NOT mimalloc)
  message(FATAL_ERROR
    "mimalloc 3.6 or newer, with mi_theap_quiescent_abandon and mi_arenas_purge, "
    "was not found${looked_in}.\n"
    "${mimalloc_REFUSED}"
    "  To get it:         scripts/setup  (puts it beside the build, leaves the system alone)\n"
    "  To use your own:   -DIDLESCHED_MIMALLOC_ROOT=<its prefix>\n"
    "  To do without it:  -DIDLESCHED_ALLOCATOR=system  (then less memory can be given back)")
endif()
message(STATUS "mimalloc: ${mimalloc}")

add_library(idlesched::mimalloc SHARED IMPORTED GLOBAL)
set_target_properties(idlesched::mimalloc PROPERTIES
  IMPORTED_LOCATION ${mimalloc}
  INTERFACE_INCLUDE_DIRECTORIES ${mimalloc_INCLUDE})
