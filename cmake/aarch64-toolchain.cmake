# Cross-builds for aarch64 Linux with Debian's and Ubuntu's g++-aarch64-linux-gnu. Libraries come from the
# folder WINNOW_SYSROOT, which scripts/aarch64-tests.sh fills. Programs run under qemu-user; the
# environment variable QEMU_CPU names the emulated CPU.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_CXX_COMPILER_TARGET aarch64-linux-gnu)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)

list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES WINNOW_SYSROOT)
set(CMAKE_SYSROOT ${WINNOW_SYSROOT})
set(CMAKE_FIND_ROOT_PATH ${WINNOW_SYSROOT})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${WINNOW_SYSROOT})
set(ENV{PKG_CONFIG_LIBDIR} ${WINNOW_SYSROOT}/usr/lib/aarch64-linux-gnu/pkgconfig:${WINNOW_SYSROOT}/usr/share/pkgconfig)

set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L ${WINNOW_SYSROOT})
