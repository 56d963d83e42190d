// Return codes of CUDA and cuBLAS as exceptions that name the call, its place and the library's
// message. The reporter of the exception names the rank.
#pragma once

#include <cublas_v2.h>
#include <cuda_runtime_api.h>

#include <stdexcept>
#include <string>

namespace bucketwise {

// Where something was called: std::source_location, which clang 14 has not.
struct CallPlace {
    const char* file = "";
    int line = 0;
    static CallPlace current(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
        return {file, line};
    }
};

class GpuError : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

// `call`: what was called, for the message. Throw GpuError.
void check_gpu(cudaError_t result, const char* call, const CallPlace& place = CallPlace::current());
void check_gpu(cublasStatus_t result, const char* call,
               const CallPlace& place = CallPlace::current());

// Such an exception's text, of any library. `name` and `meaning`: of what it returned.
std::string gpu_error_text(const char* call, const char* name, const char* meaning,
                           const CallPlace& place);

}  // namespace bucketwise
