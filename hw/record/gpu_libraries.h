// The GPU libraries that this program was built with.
#pragma once

#include <string>

namespace bucketwise {

// One line such as "CUDA runtime 13.0, NCCL 2.28.9", or why there are none. Needs no GPU.
std::string gpu_libraries();

}  // namespace bucketwise
