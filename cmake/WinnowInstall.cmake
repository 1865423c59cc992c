# make install, and find_package(winnow) for the installed library:
#   find_package(winnow REQUIRED)
#   target_link_libraries(app PRIVATE winnow::winnow)
# The component devel has what find_package needs, without the command line.
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/winnow)

configure_file(${PROJECT_SOURCE_DIR}/cmake/version.h.in
               ${PROJECT_BINARY_DIR}/include/winnow/version.h @ONLY)
target_include_directories(winnow PUBLIC $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/include>)

install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/winnow DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        COMPONENT devel OPTIONAL)
install(FILES ${PROJECT_BINARY_DIR}/include/winnow/version.h
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/winnow COMPONENT devel)
install(TARGETS winnow EXPORT winnow ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT devel)
install(EXPORT winnow NAMESPACE winnow:: FILE winnow-targets.cmake DESTINATION ${package_dir}
        COMPONENT devel)

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/winnow-config.cmake.in
                              ${PROJECT_BINARY_DIR}/winnow-config.cmake
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/winnow-config-version.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/winnow-config.cmake
              ${PROJECT_BINARY_DIR}/winnow-config-version.cmake
              ${PROJECT_SOURCE_DIR}/cmake/WinnowNccl.cmake
        DESTINATION ${package_dir} COMPONENT devel)

# The consumer is compiled without our flags, so it could not link a sanitized library.
if(WINNOW_BUILD_TESTS AND NOT winnow_sanitized)
  add_test(NAME install.consumer
           COMMAND ${CMAKE_COMMAND} -DWINNOW_BUILD=${PROJECT_BINARY_DIR}
                   -DCONSUMER=${PROJECT_SOURCE_DIR}/tests/install
                   -DSCRATCH=${PROJECT_BINARY_DIR}/install_test -DVERSION=${PROJECT_VERSION}
                   -P ${PROJECT_SOURCE_DIR}/tests/install/run.cmake)
  set_tests_properties(install.consumer PROPERTIES TIMEOUT 300)
endif()
