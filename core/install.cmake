# SPDX-License-Identifier: MIT
# What `cmake --install` puts where, and how others find it.

include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/idlesched)
# A mimalloc of our own lies where nobody else looks for one.
set(idlesched_private_dir ${CMAKE_INSTALL_LIBDIR}/idlesched)

set_target_properties(idlesched_core_shared PROPERTIES INSTALL_RPATH "$ORIGIN/idlesched")
install(TARGETS idlesched_core_static idlesched_core_shared EXPORT idlesched-targets)
install(FILES idlesched.h ${CMAKE_CURRENT_BINARY_DIR}/include/idlesched_version.h
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT idlesched-targets NAMESPACE idlesched:: DESTINATION ${package_dir})

set(idlesched_pc_private "")
if(TARGET idlesched_mimalloc)
  get_target_property(mimalloc_library idlesched_mimalloc IMPORTED_LOCATION)
  file(REAL_PATH ${mimalloc_library} mimalloc_file)
  get_filename_component(mimalloc_dir ${mimalloc_library} DIRECTORY)
  if(idlesched_mimalloc_bundled)
    file(GLOB mimalloc_names ${mimalloc_dir}/libmimalloc.so*)
    install(FILES ${mimalloc_names} DESTINATION ${idlesched_private_dir})
    set(idlesched_pc_private
      "-L\${libdir}/idlesched -Wl,-rpath,\${libdir}/idlesched -lmimalloc")
  else()
    set(idlesched_pc_private "-lmimalloc")
  endif()
endif()

configure_package_config_file(idlesched-config.cmake.in idlesched-config.cmake
  INSTALL_DESTINATION ${package_dir} PATH_VARS idlesched_private_dir)
# While the major version is 0, a minor version may change the interface.
write_basic_package_version_file(idlesched-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES
  ${CMAKE_CURRENT_BINARY_DIR}/idlesched-config.cmake
  ${CMAKE_CURRENT_BINARY_DIR}/idlesched-config-version.cmake
  DESTINATION ${package_dir})

# Relative to the .pc file itself, so that `cmake --install --prefix` stays true.
file(RELATIVE_PATH idlesched_pc_prefix
  /usr/${CMAKE_INSTALL_LIBDIR}/pkgconfig /usr)
string(REGEX REPLACE "/$" "" idlesched_pc_prefix ${idlesched_pc_prefix})
configure_file(idlesched.pc.in idlesched.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/idlesched.pc
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
