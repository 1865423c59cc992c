# What our own code is compiled with. Interface targets, so third-party headers stay untouched.
add_library(winnow_options INTERFACE)
target_compile_options(winnow_options INTERFACE -Wall -Wextra -Werror)
target_include_directories(winnow_options INTERFACE ${PROJECT_SOURCE_DIR}/src)

# winnow_add_room(NAME): one folder of src/ as an object library winnow_NAME.
function(winnow_add_room name)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${name}/*.cc)
  if(NOT sources)
    return()
  endif()
  add_library(winnow_${name} OBJECT ${sources})
  target_link_libraries(winnow_${name} PUBLIC fmt::fmt PRIVATE winnow_options ${ARGN})
  target_include_directories(winnow_${name}
    PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src>
           $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>)
  target_sources(winnow PRIVATE $<TARGET_OBJECTS:winnow_${name}>)
endfunction()
