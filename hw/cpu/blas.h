// The BLAS that the matrix products go through, if one was found when this program was built.
#pragma once

#include <string>

namespace bucketwise {

// Its name and version; empty: Eigen multiplies itself.
std::string blas_library();

// A rank computes on one thread. Some libraries start one per processor unless told otherwise.
void compute_on_one_blas_thread();

}  // namespace bucketwise
