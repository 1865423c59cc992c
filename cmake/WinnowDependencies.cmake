# Every library winnow links, found by the names Debian 12 and Ubuntu 24.04 give them.
# Why each one: docs/dependencies.md.
find_package(dnnl REQUIRED)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(OpenMP REQUIRED COMPONENTS CXX)
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(hwy REQUIRED IMPORTED_TARGET libhwy)
pkg_check_modules(pcre2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(oniguruma REQUIRED IMPORTED_TARGET oniguruma)
pkg_check_modules(utf8proc REQUIRED IMPORTED_TARGET libutf8proc)
find_library(winnow_unistring unistring REQUIRED)  # linked by its name: it has no file of pkg-config's
pkg_check_modules(sentencepiece REQUIRED IMPORTED_TARGET sentencepiece)
pkg_check_modules(zstd REQUIRED IMPORTED_TARGET libzstd)
pkg_check_modules(curl REQUIRED IMPORTED_TARGET libcurl)
pkg_check_modules(edit REQUIRED IMPORTED_TARGET libedit)
find_package(Boost REQUIRED)
find_package(OpenSSL REQUIRED)

# Ranks that mpirun or srun starts. AUTO: where there is MPI.
set(WINNOW_MPI AUTO CACHE STRING "Build for MPI ranks: ON, OFF or AUTO")
set_property(CACHE WINNOW_MPI PROPERTY STRINGS AUTO ON OFF)
if(WINNOW_MPI STREQUAL "ON")
  find_package(MPI REQUIRED COMPONENTS CXX)
elseif(WINNOW_MPI STREQUAL "AUTO")
  find_package(MPI COMPONENTS CXX QUIET)
endif()
