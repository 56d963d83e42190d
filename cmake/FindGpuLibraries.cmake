# Finds the CUDA Toolkit, the headers of cuBLAS and NCCL, and a CUDA compiler. Sets BUCKETWISE_HAS_CUDA, and where it is
# false BUCKETWISE_NCCL_LACKS to the missing part. The libraries themselves are opened at run time, so that a program
# built here starts without them. The CUDA runtime is linked statically: it starts in no time, launches the kernels, and
# opens the driver on its first call.
#
# Code that calls them links the library bucketwise_gpu. Each executable chooses its meaning: by default the real
# libraries; with the property BUCKETWISE_EMULATED_GPU those of tests/emulated_gpu, which need no GPU.
set(BUCKETWISE_HAS_CUDA FALSE)
set(bucketwise_lacks "")

if(NOT BUCKETWISE_CUDA)
    set(bucketwise_lacks "BUCKETWISE_CUDA")
else()
    find_package(CUDAToolkit 12 QUIET)
    if(NOT CUDAToolkit_FOUND)
        list(APPEND bucketwise_lacks "the CUDA Toolkit (12 or newer)")
    else()
        find_path(CUBLAS_INCLUDE_DIR cublas_v2.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
        if(NOT CUBLAS_INCLUDE_DIR)
            list(APPEND bucketwise_lacks "cuBLAS")
        endif()
        find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
        if(NOT NCCL_INCLUDE_DIR)
            list(APPEND bucketwise_lacks "NCCL")
        endif()
        include(CheckLanguage)
        if(NOT DEFINED CMAKE_CUDA_COMPILER AND CUDAToolkit_NVCC_EXECUTABLE)
            set(CMAKE_CUDA_COMPILER ${CUDAToolkit_NVCC_EXECUTABLE})
        endif()
        if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
            # Ampere. The driver translates the same code for every later GPU when a program first runs there.
            set(CMAKE_CUDA_ARCHITECTURES 80)
        endif()
        check_language(CUDA)
        if(NOT CMAKE_CUDA_COMPILER)
            list(APPEND bucketwise_lacks "a CUDA compiler that works with ${CMAKE_CXX_COMPILER}")
        endif()
    endif()
endif()

if(bucketwise_lacks)
    list(JOIN bucketwise_lacks ", " BUCKETWISE_NCCL_LACKS)
    if(BUCKETWISE_CUDA STREQUAL "ON")
        message(FATAL_ERROR "BUCKETWISE_CUDA is ON, and not found: ${BUCKETWISE_NCCL_LACKS}")
    endif()
    message(STATUS "Without the NCCL backend, as not found: ${BUCKETWISE_NCCL_LACKS}")
    return()
endif()

enable_language(CUDA)
set(BUCKETWISE_HAS_CUDA TRUE)
message(STATUS "With the NCCL backend: CUDA ${CUDAToolkit_VERSION}, ${NCCL_INCLUDE_DIR}/nccl.h")

add_library(bucketwise_gpu_headers INTERFACE)
target_include_directories(bucketwise_gpu_headers SYSTEM INTERFACE ${CUDAToolkit_INCLUDE_DIRS} ${CUBLAS_INCLUDE_DIR}
                           ${NCCL_INCLUDE_DIR})

add_library(bucketwise_gpu INTERFACE)
target_link_libraries(bucketwise_gpu INTERFACE
    $<IF:$<BOOL:$<TARGET_PROPERTY:BUCKETWISE_EMULATED_GPU>>,bucketwise_emulated_gpu,bucketwise_real_gpu>)
