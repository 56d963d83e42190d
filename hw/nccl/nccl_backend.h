// The backend for NVIDIA GPUs: CUDA kernels and cuBLAS on one, NCCL between several. Ranks meet
// through Gloo.
#pragma once

#include <string>

#include "hw/backend/backend.h"

namespace bucketwise {

// The machine's GPU libraries, in one line such as "CUDA runtime 13.0, NCCL 2.28.9"; or a note that
// the program was built without. Needs no GPU.
std::string gpu_libraries();

// The file that NCCL is opened from; empty where there is none. It names folders of this machine,
// so records leave it out.
std::string nccl_file();

// One that refuses every request and says why, if this program was built without.
const Backend& nccl_backend();

}  // namespace bucketwise
