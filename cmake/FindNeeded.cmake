# find_package() of what the program cannot do without. Where it is not found the error is one sentence that says what to
# do, also to those who have typed no more than `pip install .`; CMake's own explains its search.
#   bucketwise_need(PACKAGE [VERSION] [what else find_package() takes])
macro(bucketwise_need package)
    find_package(${package} ${ARGN} QUIET)
    if(NOT ${package}_FOUND)
        bucketwise_fail_for_lack_of(${package} ${ARGN})
    endif()
endmacro()

function(bucketwise_fail_for_lack_of package)
    if("${ARGV1}" MATCHES "^[0-9]")
        string(APPEND package " ${ARGV1} or later")
    endif()
    message(FATAL_ERROR "bucketwise is built with ${package}, which is not found. On Debian and Ubuntu "
        "tools/install_dependencies.sh --run-only installs all that it takes to build; it is listed in docs/build.md.")
endfunction()
