# Installs winnow into a scratch prefix, builds the consumer against it and runs it.
# Needs WINNOW_BUILD, CONSUMER, SCRATCH and VERSION.
file(REMOVE_RECURSE ${SCRATCH})

function(run)
  execute_process(COMMAND ${ARGV} OUTPUT_VARIABLE output ERROR_VARIABLE output RESULT_VARIABLE code)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "${ARGV}\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

run(${CMAKE_COMMAND} --install ${WINNOW_BUILD} --prefix ${SCRATCH}/prefix)
# systemd looks for a program without a path in /usr/local/bin and /usr/bin, wherever it was installed.
file(GLOB_RECURSE unit ${SCRATCH}/prefix/winnow@.service)
file(STRINGS "${unit}" start REGEX "^ExecStart=")
if(NOT start MATCHES "^ExecStart=winnow serve ")
  message(FATAL_ERROR "${unit} starts another program: ${start}")
endif()
run(${CMAKE_COMMAND} -S ${CONSUMER} -B ${SCRATCH}/build -G Ninja
    -DCMAKE_PREFIX_PATH=${SCRATCH}/prefix)
run(${CMAKE_COMMAND} --build ${SCRATCH}/build)
run(${SCRATCH}/build/consumer)
if(NOT output STREQUAL "winnow ${VERSION}\n")
  message(FATAL_ERROR "the consumer says ${output}instead of winnow ${VERSION}")
endif()
