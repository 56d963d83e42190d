// Checks the gradients of a step against their exact mean, on the GPU.
#pragma once

#include <cstdint>
#include <vector>

#include "hw/compute/kernel_plan.h"
#include "hw/gpu/chunk_table.h"
#include "hw/gpu/gpu_kernels.h"
#include "hw/gpu/kernels/kernels.h"
#include "hw/gpu/runtime/device_memory.h"
#include "hw/gpu/runtime/gpu_stream.h"
#include "hw/rank/rank_device.h"
#include "sim/workload/workload.h"

namespace bucketwise {

class GradientChecks {
  public:
    // All are kept by reference.
    GradientChecks(const KernelPlan& plan, const std::vector<Gradient>& gradients,
                   const GradientBuffers& buffers, const PatternTables& patterns,
                   const GpuStream& stream);

    // The buffers have been laid out anew.
    void arrange();

    // Overwrites gradients and buckets with what is no number, so that what nobody writes shows.
    void poison();

    // `mean`: of rank values, scaled. `tolerances`: relative, by gradient.
    StepCheck check(double mean, const std::vector<double>& tolerances);

    [[nodiscard]] std::int64_t memory_bytes() const;

  private:
    [[nodiscard]] double element_of(std::size_t gradient, std::int64_t element);

    const KernelPlan& plan_;
    const std::vector<Gradient>& gradients_;
    const GradientBuffers& buffers_;
    const PatternTables& patterns_;
    const GpuStream& stream_;
    DeviceMemory expected_;
    DeviceMemory results_;
    std::vector<GradientsOfDType> tables_;
};

}  // namespace bucketwise
