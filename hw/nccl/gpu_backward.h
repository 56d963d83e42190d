// Backward's operations on a GPU over and over, by themselves or beside collectives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "hw/compute/kernel_plan.h"
#include "hw/gpu/gpu_kernels.h"
#include "hw/gpu/runtime/gpu_stream.h"
#include "hw/nccl/gpu_messages.h"
#include "hw/rank/rank_device.h"
#include "sim/base/units.h"
#include "sim/program/program.h"

namespace bucketwise {

// Every operation of backward, once.
Program program_of_backward(std::size_t operations);

class GpuBackward {
  public:
    // All are kept by reference: `plan` is what `kernels` compute, on `stream`.
    GpuBackward(GpuKernels& kernels, const KernelPlan& plan, const GpuStream& stream,
                Communicators& communicators)
        : kernels_(kernels), plan_(plan), stream_(stream), communicators_(communicators) {}

    // Puts an operation on the stream. What it leaves is no gradient of any step.
    void launch(std::size_t operation);
    // Every operation once, before anything is launched ahead. Returns when the GPU has run them.
    void warm_up();
    // As ComputingDevice::contend(). `stamp_time` is what an event adds to an operation.
    ContentionTrace contend(GpuMessages& messages, const Message& message, std::int64_t iterations,
                            const std::vector<Duration>& alone, Duration stamp_time);

  private:
    GpuKernels& kernels_;
    const KernelPlan& plan_;
    const GpuStream& stream_;
    Communicators& communicators_;
};

}  // namespace bucketwise
