#include "hw/record/gpu_libraries.h"

namespace bucketwise {

std::string gpu_libraries() {
    return "built without CUDA and NCCL (preset cuda builds with them)";
}

}  // namespace bucketwise
