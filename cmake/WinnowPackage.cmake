# make deb: two Debian packages by CPack, one with the program, one with headers and library.
set(CPACK_PACKAGE_NAME winnow)
set(CPACK_PACKAGE_VENDOR winnow)
set(CPACK_PACKAGE_CONTACT "The winnow authors <winnow@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY ${PROJECT_DESCRIPTION})
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_STRIP_FILES TRUE)
set(CPACK_VERBATIM_VARIABLES TRUE)
set(CPACK_PACKAGE_DIRECTORY ${PROJECT_BINARY_DIR}/packages)

set(CPACK_COMPONENTS_ALL runtime devel)
set(CPACK_DEB_COMPONENT_INSTALL TRUE)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME winnow)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SECTION science)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SHLIBDEPS TRUE)
set(CPACK_DEBIAN_DEVEL_PACKAGE_NAME libwinnow-dev)
set(CPACK_DEBIAN_DEVEL_PACKAGE_SECTION libdevel)
# What winnow-config.cmake looks for.
set(CPACK_DEBIAN_DEVEL_PACKAGE_DEPENDS
    "libdnnl-dev, ocl-icd-opencl-dev, libhwy-dev, libpcre2-dev, libonig-dev, libutf8proc-dev, \
libunistring-dev, libsentencepiece-dev, libprotobuf-dev, libzstd-dev, libssl-dev, libcurl4-openssl-dev, libfmt-dev, pkg-config")
if(winnow_zmq_found)
  string(APPEND CPACK_DEBIAN_DEVEL_PACKAGE_DEPENDS ", libzmq3-dev")
endif()
set(CPACK_COMPONENT_RUNTIME_DESCRIPTION "The program winnow, its man pages and completions.")
set(CPACK_COMPONENT_DEVEL_DESCRIPTION "Headers and static library of winnow, for C++20.")

install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} RENAME copyright
        COMPONENT runtime)
install(FILES ${PROJECT_SOURCE_DIR}/packaging/winnow@.service
              ${PROJECT_SOURCE_DIR}/packaging/prometheus.yml
              ${PROJECT_SOURCE_DIR}/packaging/alerts.yml
              ${PROJECT_SOURCE_DIR}/packaging/grafana.json
        DESTINATION ${CMAKE_INSTALL_DOCDIR}/examples COMPONENT runtime)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/packaging/routers
        DESTINATION ${CMAKE_INSTALL_DOCDIR}/examples COMPONENT runtime)
include(CPack)
