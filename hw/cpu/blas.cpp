#include "hw/cpu/blas.h"

#ifdef EIGEN_USE_BLAS
// OpenBLAS's own interface; cblas.h, which declares it, is installed in a different place by
// every distribution.
extern "C" {
char* openblas_get_config();
void openblas_set_num_threads(int threads);
}
#else
static const char* openblas_get_config() {
    return "";
}
static void openblas_set_num_threads(int /*threads*/) {}
#endif

namespace bucketwise {

std::string blas_library() {
    return openblas_get_config();
}

void compute_on_one_blas_thread() {
    openblas_set_num_threads(1);
}

}  // namespace bucketwise
