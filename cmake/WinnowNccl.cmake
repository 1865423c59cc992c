# The target winnow_nccl, if NCCL is installed with its headers. Also used by winnow's installed configuration.
find_path(WINNOW_NCCL_HEADERS nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
find_library(WINNOW_NCCL_LIBRARY nccl HINTS ${CUDAToolkit_LIBRARY_DIR})
mark_as_advanced(WINNOW_NCCL_HEADERS WINNOW_NCCL_LIBRARY)
if(WINNOW_NCCL_HEADERS AND WINNOW_NCCL_LIBRARY AND NOT TARGET winnow_nccl)
  add_library(winnow_nccl SHARED IMPORTED)
  set_target_properties(winnow_nccl PROPERTIES
    IMPORTED_LOCATION ${WINNOW_NCCL_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES ${WINNOW_NCCL_HEADERS})
endif()
