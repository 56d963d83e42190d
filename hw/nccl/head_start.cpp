#include "hw/nccl/head_start.h"

#include "hw/nccl/kernels.h"

namespace bucketwise {

void HeadStart::hold(const GpuStream& stream) {
    ++held_;
    launch_wait_for_flag(stream.get(), flag_.get(), held_, gave_up_.get());
}

void HeadStart::release() {
    flag_.set(held_);
}

void HeadStart::check() const {
    if (gave_up_.value() != 0) {
        throw GpuError(
            "the GPU did not wait for the host to launch what it was to time, as the driver made "
            "the host wait for the GPU; CUDA_MODULE_LOADING=EAGER may help");
    }
}

}  // namespace bucketwise
