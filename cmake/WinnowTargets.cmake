if(CMAKE_CXX_FLAGS MATCHES "-fsanitize")
  set(winnow_sanitized TRUE)
endif()
if(WINNOW_STRICT AND NOT winnow_sanitized)
  set(winnow_strict TRUE)
endif()

# Compiler flags of our own code. They are interface targets, so third-party code is compiled without
# them. Compilers differ in what they warn about, sometimes falsely, so only .ci/run and the presets for work
# on winnow make warnings errors; with sanitizers g++ gives false ones.
add_library(winnow_options INTERFACE)
target_compile_options(winnow_options INTERFACE
  # If GCC collects its garbage less often, compiling takes a tenth less time and a third more memory.
  $<$<COMPILE_LANG_AND_ID:CXX,GNU>:SHELL:--param ggc-min-expand=1000 --param ggc-min-heapsize=1000000>
  # GCC warns about types of unnamed namespaces in files that a unity file includes.
  $<$<AND:$<COMPILE_LANG_AND_ID:CXX,GNU>,$<BOOL:${CMAKE_UNITY_BUILD}>>:-Wno-subobject-linkage>
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra $<$<BOOL:${winnow_strict}>:-Werror>>
  $<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<BOOL:${WINNOW_STRICT}>>:-Werror=all-warnings>)
target_include_directories(winnow_options INTERFACE ${PROJECT_SOURCE_DIR}/src)

# Few files have hot loops. Most have many templates, and for them a short compilation is worth more than
# fast code. Cold code runs once (the command line, configurations); warm code runs once for each request
# or token, or reads large files. At -O1 g++ warns about the value of an empty std::optional. Sanitizers
# add much code that -O1 would have to optimise, so warm code is compiled as cold code there.
function(winnow_add_optimisation name level)
  add_library(${name} INTERFACE)
  target_compile_options(${name} INTERFACE
    "$<$<AND:$<COMPILE_LANGUAGE:CXX>,$<NOT:$<CONFIG:Debug>>>:${level};-Wno-maybe-uninitialized>")
endfunction()
winnow_add_optimisation(winnow_cold -O0)
winnow_add_optimisation(winnow_warm $<IF:$<BOOL:${winnow_sanitized}>,-O0,-O1>)

# Most tests run for less time than even -O1 would take to compile.
add_library(winnow_tests INTERFACE)
target_compile_options(winnow_tests INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:-O0>")
winnow_add_optimisation(winnow_computing_tests -O1)  # tests with slow reference computations

if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
  set(winnow_processor x86)
  set(winnow_other_processors "/aarch64/")
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
  set(winnow_processor aarch64)
  set(winnow_other_processors "/x86/")
else()
  message(FATAL_ERROR "winnow has kernels for x86_64 and aarch64; this is ${CMAKE_SYSTEM_PROCESSOR}")
endif()

# winnow_add_objects(NAME SOURCES LIBRARY...): an object library whose objects go into the library winnow.
function(winnow_add_objects name sources)
  add_library(${name} OBJECT ${sources})
  target_link_libraries(${name} PUBLIC fmt::fmt PRIVATE winnow_options ${ARGN})
  target_include_directories(${name}
    PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src>
           $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>)
  if(winnow_cuda_found)
    target_link_libraries(${name} PRIVATE CUDA::cudart_static)
  endif()
  target_sources(winnow PRIVATE $<TARGET_OBJECTS:${name}>)
endfunction()

# winnow_add_module(NAME LIBRARY... [WARM|COLD REGEX...]): one folder of src/ as an object library winnow_NAME.
# Its files that match a regex become winnow_NAME_warm or winnow_NAME_cold. Files in a cuda/ folder are
# built only with CUDA, files in a without_cuda/ folder only without it; mpi/, nccl/ and zmq/ work in the same
# way. Files in x86/ or aarch64/ are built only for these processors. *_sm90.cu use instructions that
# only Hopper has, and are always built for Hopper alone.
function(winnow_add_module name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "WARM;COLD")
  set(folder ${CMAKE_CURRENT_SOURCE_DIR}/${name})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${folder}/*.cc ${folder}/*.cu)
  if(winnow_cuda_found)
    list(FILTER sources EXCLUDE REGEX "/without_cuda/")
  else()
    list(FILTER sources EXCLUDE REGEX "/cuda/")
  endif()
  if(MPI_CXX_FOUND)
    list(FILTER sources EXCLUDE REGEX "/without_mpi/")
  else()
    list(FILTER sources EXCLUDE REGEX "/mpi/")
  endif()
  if(winnow_nccl_found)
    list(FILTER sources EXCLUDE REGEX "/without_nccl/")
  else()
    list(FILTER sources EXCLUDE REGEX "/nccl/")
  endif()
  if(winnow_zmq_found)
    list(FILTER sources EXCLUDE REGEX "/without_zmq/")
  else()
    list(FILTER sources EXCLUDE REGEX "/zmq/")
  endif()
  list(FILTER sources EXCLUDE REGEX ${winnow_other_processors})
  if(NOT sources)
    return()
  endif()
  set(device_sources ${sources})
  list(FILTER device_sources INCLUDE REGEX "\\.cu$")
  # CMake 3.31 and later would put .cu files into unity files, too, but helpers of kernels share names.
  set_source_files_properties(${device_sources} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  set(sm90_sources ${sources})
  list(FILTER sm90_sources INCLUDE REGEX "_sm90\\.cu$")
  list(FILTER sources EXCLUDE REGEX "_sm90\\.cu$")
  if(sm90_sources)
    add_library(winnow_${name}_sm90 OBJECT ${sm90_sources})
    target_link_libraries(winnow_${name}_sm90 PRIVATE winnow_options)
    set_target_properties(winnow_${name}_sm90 PROPERTIES CUDA_ARCHITECTURES 90a-real)
    target_sources(winnow PRIVATE $<TARGET_OBJECTS:winnow_${name}_sm90>)
  endif()
  foreach(level WARM COLD)
    if(arg_${level})
      list(JOIN arg_${level} "|" chosen)
      set(chosen_sources ${sources})
      list(FILTER chosen_sources INCLUDE REGEX "^${folder}/(${chosen})[^/]*\\.cc$")
      list(REMOVE_ITEM sources ${chosen_sources})
      string(TOLOWER winnow_${level} options)
      string(TOLOWER winnow_${name}_${level} objects)
      winnow_add_objects(${objects} "${chosen_sources}" ${arg_UNPARSED_ARGUMENTS} ${options})
    endif()
  endforeach()
  winnow_add_objects(winnow_${name} "${sources}" ${arg_UNPARSED_ARGUMENTS})
endfunction()

# winnow_choose_instruction_sets(TARGET): on x86, Highway compiles kernels for AVX2, which every
# CPU must have, and for AVX-512; on aarch64 for NEON and all versions of SVE. Files that choose
# instructions themselves, and device code, are compiled one by one.
function(winnow_choose_instruction_sets target)
  if(winnow_processor STREQUAL x86)
    target_compile_definitions(${target} PRIVATE
      "$<$<COMPILE_LANGUAGE:CXX>:HWY_BASELINE_TARGETS=HWY_AVX2;HWY_DISABLED_TARGETS=~(HWY_AVX2|HWY_AVX3)>")
  else()
    # Highway's NEON target needs these flags: target attributes do not apply to implicit constructors.
    target_compile_options(${target} PRIVATE -march=armv8-a+crypto)
  endif()
  get_target_property(sources ${target} SOURCES)
  list(FILTER sources INCLUDE REGEX "\\.cc$")
  foreach(source ${sources})
    file(STRINGS ${source} chooses REGEX "foreach_target|HWY_PUSH_ATTRIBUTES|#pragma GCC" LIMIT_COUNT 1)
    if(chooses OR source MATCHES "/(cuda|x86|aarch64)/")
      set_source_files_properties(${source} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    endif()
  endforeach()
endfunction()

# winnow_embed_text(MODULE FILE): compiles the manual, docs/*.md, into the module as text, through FILE.in.
function(winnow_embed_text module file)
  file(GLOB pages CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/docs/*.md)
  list(SORT pages)
  foreach(page ${pages})
    file(READ ${page} part)
    string(APPEND manual "${part}\n")
  endforeach()
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${pages})
  configure_file(${module}/${file}.in ${CMAKE_CURRENT_BINARY_DIR}/${module}/${file} @ONLY)
  target_sources(winnow_${module} PRIVATE ${CMAKE_CURRENT_BINARY_DIR}/${module}/${file})
endfunction()

# winnow_embed_commit(MODULE): compiles the commit of the checkout into the module, through build_commit.cc.in. A
# folder without .git has none, also inside of another checkout; there -DWINNOW_COMMIT=COMMIT names it.
function(winnow_embed_commit module)
  set(git git --git-dir=${PROJECT_SOURCE_DIR}/.git rev-parse)
  execute_process(COMMAND ${git} HEAD OUTPUT_VARIABLE commit ERROR_QUIET)
  execute_process(COMMAND ${git} --git-path logs/HEAD OUTPUT_VARIABLE log
                  OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(WINNOW_COMMIT)
    set(commit ${WINNOW_COMMIT})
  endif()
  string(SUBSTRING "${commit}" 0 8 commit)
  if(EXISTS "${log}")
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${log})
  endif()
  set(file ${CMAKE_CURRENT_BINARY_DIR}/${module}/build_commit.cc)
  configure_file(${module}/build_commit.cc.in ${file} @ONLY)
  set_source_files_properties(${file} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)  # changes with each commit
  target_sources(winnow_${module} PRIVATE ${file})
endfunction()

# winnow_embed_page(MODULE): compiles the files of src/MODULE/page/ into the module, through page.cc.in. The
# scripts are joined.
function(winnow_embed_page module)
  set(folder ${CMAKE_CURRENT_SOURCE_DIR}/${module}/page)
  set(scripts dom.js cache.js server.js answer.js conversation.js drawing.js events.js)
  file(READ ${folder}/index.html page_html)
  file(READ ${folder}/icon.svg page_icon)
  file(READ ${folder}/page.css page_css)
  foreach(script ${scripts})
    file(READ ${folder}/${script} part)
    string(APPEND page_js "${part}\n")
  endforeach()
  list(TRANSFORM scripts PREPEND ${folder}/)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${folder}/index.html
               ${folder}/icon.svg ${folder}/page.css ${scripts})
  configure_file(${module}/page.cc.in ${CMAKE_CURRENT_BINARY_DIR}/${module}/page.cc @ONLY)
  target_sources(winnow_${module} PRIVATE ${CMAKE_CURRENT_BINARY_DIR}/${module}/page.cc)
endfunction()
