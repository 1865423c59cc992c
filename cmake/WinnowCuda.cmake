# WINNOW_CUDA=AUTO builds the device code where a CUDA compiler is found, ON insists, OFF does not
# look. A build without it needs nothing of CUDA.
set(WINNOW_CUDA AUTO CACHE STRING "Build for CUDA devices: ON, OFF or AUTO")
set_property(CACHE WINNOW_CUDA PROPERTY STRINGS AUTO ON OFF)

set(winnow_cuda_found FALSE)
if(NOT WINNOW_CUDA STREQUAL "OFF")
  # Hopper unless the user says otherwise; sm_80, 89, 100 and 120 compile as well.
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 90)
  endif()
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    enable_language(CUDA)
  endif()
  if(CMAKE_CUDA_COMPILER AND CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 12.4)
    if(NOT DEFINED CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know today's nvcc
      set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
      set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
      list(APPEND CMAKE_CUDA_COMPILE_FEATURES cuda_std_20)
    endif()
    set(CMAKE_CUDA_STANDARD 20)
    # What is constexpr on the host serves device code as well.
    string(APPEND CMAKE_CUDA_FLAGS " --expt-relaxed-constexpr")
    # CMake 3.25 tells projects that ask for it of a library that CUDA 13 has no more, and fails.
    set(winnow_minimum ${CMAKE_MINIMUM_REQUIRED_VERSION})
    set(CMAKE_MINIMUM_REQUIRED_VERSION 3.24)
    find_package(CUDAToolkit REQUIRED)
    set(CMAKE_MINIMUM_REQUIRED_VERSION ${winnow_minimum})
    set(winnow_cuda_found TRUE)
  elseif(WINNOW_CUDA STREQUAL "ON")
    message(FATAL_ERROR "WINNOW_CUDA is ON, but no CUDA compiler (nvcc) of 12.4 or later was found")
  endif()
endif()
message(STATUS "CUDA: ${winnow_cuda_found} (WINNOW_CUDA=${WINNOW_CUDA})")
