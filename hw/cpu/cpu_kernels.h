// The kernels of a rank on a CPU: matrix products through Eigen, element-wise passes, and a
// calibrated amount of matrix products for operations whose time alone is known.
//
// One thread. Everything is computed in float32; gradients are stored in their own dtype. A
// convolution runs as the matrix product it implicitly is, over an input that is already unfolded.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "hw/compute/arena.h"
#include "hw/compute/gradient_buffers.h"
#include "hw/compute/kernel_plan.h"
#include "hw/compute/planned_kernels.h"
#include "sim/scenario/scenario.h"
#include "sim/workload/workload.h"

namespace bucketwise {

// Such as "Eigen 3.4.0 (SSE, SSE2)".
std::string kernel_libraries();

class CpuKernels : public PlannedKernels {
  public:
    // `plan`, `gradients` and `buffers` are kept by reference.
    CpuKernels(const KernelPlan& plan, const std::vector<Gradient>& gradients,
               const GradientBuffers& buffers, const std::variant<Duration, Optimizer>& optimizer);

    void calibrate() override;

  private:
    void multiply(const KernelCall& call) override;
    void multiply_for_weight(const KernelCall& call, float scale, bool accumulate) override;
    void pass_over(std::int64_t elements) override;
    void write(const GradientPass& pass, float scale, bool accumulate) override;
    void fill(Duration duration) override;
    void update(Optimizer optimizer) override;
    void update_parameter(Optimizer optimizer, std::int32_t index);
    void reserve(const KernelCall& call);
    [[nodiscard]] const float* right_factor(const KernelCall& call);

    const GradientBuffers& buffers_;

    std::map<std::int64_t, Arena> left_;              // by k: activations, rows of row_value
    std::map<std::int64_t, Arena> result_gradients_;  // by n: column_value in the first row
    Arena right_;                                     // the second factor of attention's products
    Arena result_;                                    // of every product that is not a gradient
    Arena streamed_;
    Arena parameters_;  // float32, whatever the gradients are
    Arena moments_;     // of the optimizer
    std::vector<std::int64_t> parameter_offset_;
    std::vector<float> pattern_;  // column_value of as many columns as any pattern has
    double seconds_per_filler_unit_ = 0;
};

}  // namespace bucketwise
