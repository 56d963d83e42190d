// The kernels of a rank on a GPU: matrix products through cuBLAS in the scenario's arithmetic, our
// own kernels for everything else, and a calibrated amount of arithmetic for operations whose time
// alone is known.
//
// Everything is put on one stream; nothing here waits for it but the constructor and calibrate().
// A convolution runs as the matrix product it implicitly is, over an input that is already
// unfolded.
//
// Weights are random. A weight's gradient has to be the outer product of row_value and column_value
// (see hw/compute/gradient_pattern.h), and neither of its factors may be mostly zeros, which a GPU
// multiplies faster than numbers: so row i of an activation is row_value times a sign s(i), row i
// of an output's gradient column_value times t(i), with random signs whose products s(i) t(i) sum
// to 1. Partial sums are integers far below 2^24, so the sum is exact in whatever order.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <variant>
#include <vector>

#include "hw/compute/gradient_buffers.h"
#include "hw/compute/kernel_plan.h"
#include "hw/compute/planned_kernels.h"
#include "hw/gpu/chunk_table.h"
#include "hw/gpu/kernels/kernels.h"
#include "hw/gpu/matrix_products.h"
#include "hw/gpu/runtime/device_memory.h"
#include "hw/gpu/runtime/gpu_stream.h"
#include "sim/scenario/scenario.h"
#include "sim/workload/device.h"
#include "sim/workload/workload.h"

namespace bucketwise {

// The factors of the known values of gradients, on the device.
struct PatternTables {
    DeviceMemory rows;     // row_value(0), ... as float32
    DeviceMemory columns;  // column_value(0), ...
};

// The arithmetic of matrix products; float32 where there are none.
Arithmetic arithmetic_of(const Scenario& scenario);

class GpuKernels : public PlannedKernels {
  public:
    // `plan`, `gradients`, `buffers` and `stream` are kept by reference.
    GpuKernels(const KernelPlan& plan, const std::vector<Gradient>& gradients,
               const GradientBuffers& buffers, const std::variant<Duration, Optimizer>& optimizer,
               Arithmetic arithmetic, const GpuStream& stream);

    void calibrate() override;

    // The buffers have been laid out anew.
    void arrange();

    [[nodiscard]] const PatternTables& patterns() const { return patterns_; }
    [[nodiscard]] std::int64_t memory_bytes() const;

  private:
    void multiply(const KernelCall& call) override;
    void multiply_for_weight(const KernelCall& call, float scale, bool accumulate) override;
    void pass_over(std::int64_t elements) override;
    void write(const GradientPass& pass, float scale, bool accumulate) override;
    void fill(Duration duration) override;
    void update(Optimizer optimizer) override;
    [[nodiscard]] const std::byte* right_factor(const KernelCall& call) const;
    [[nodiscard]] DType operand() const { return operand_dtype(arithmetic_); }
    [[nodiscard]] std::int64_t operand_bytes(std::int64_t elements) const {
        return elements * element_size(operand()).count;
    }
    // Median of several launches, by events.
    [[nodiscard]] Duration timed(const Run& launch) const;

    struct Room;  // memory that all operations need, by kind
    void reserve(const Room& room);
    void fill_with(const DeviceMemory& random, const DeviceMemory& memory);
    void set_outer_product(const DeviceMemory& memory, const std::vector<float>& rows,
                           const std::vector<float>& columns);

    const GradientBuffers& buffers_;
    Arithmetic arithmetic_;
    const GpuStream& stream_;
    MatrixProducts products_;

    std::map<std::int64_t, DeviceMemory> left_;  // by k: activations
    // by n, and whether m is odd
    std::map<std::pair<std::int64_t, bool>, DeviceMemory> result_gradients_;
    DeviceMemory right_;                       // the second factor of attention's products
    DeviceMemory weights_;                     // of products, in the operands' dtype
    std::vector<std::int64_t> weight_offset_;  // bytes, by gradient
    DeviceMemory result_;                      // of every product that is not a gradient
    DeviceMemory streamed_;                    // two tensors of element-wise passes
    DeviceMemory sink_;                        // of the filler
    PatternTables patterns_;

    DeviceMemory parameters_;  // float32, of the optimizer
    DeviceMemory moments_;
    std::vector<std::int64_t> parameter_offset_;  // elements, by gradient
    std::vector<GradientsOfDType> updates_;       // beside their parameters

    Duration filler_launch_{0};
    double picoseconds_per_filler_work_ = 0;
};

}  // namespace bucketwise
