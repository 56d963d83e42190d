#include "hw/cpu/blas.h"

namespace bucketwise {

std::string blas_library() {
    return "";
}

void compute_on_one_blas_thread() {}

}  // namespace bucketwise
