// The computing of a rank for each operation of its kernel plan, in order, on any device. Each
// device computes the parts in its own way.
#pragma once

#include <cstdint>
#include <functional>
#include <variant>
#include <vector>

#include "hw/compute/kernel_plan.h"
#include "sim/base/interface.h"
#include "sim/base/units.h"
#include "sim/scenario/scenario.h"
#include "sim/workload/workload.h"

namespace bucketwise {

class PlannedKernels : public Interface {
  public:
    // Measures how long the filler's unit and writing a gradient take, so that fillers and the
    // passes of gradients with given times last as long as they should. Takes some 100 ms at most.
    virtual void calibrate() = 0;

    void forward(std::int32_t operation);
    // `rank_value` multiplies the known values of the gradients; `accumulate` adds to what earlier
    // micro-steps left.
    void backward(std::int32_t operation, float rank_value, bool accumulate);
    void optimizer();

  protected:
    // `plan` and `gradients` are kept by reference.
    PlannedKernels(const KernelPlan& plan, const std::vector<Gradient>& gradients,
                   const std::variant<Duration, Optimizer>& optimizer)
        : plan_(plan), gradients_(gradients), optimizer_(optimizer) {}

    [[nodiscard]] const KernelPlan& plan() const { return plan_; }
    [[nodiscard]] const std::vector<Gradient>& gradients() const { return gradients_; }
    [[nodiscard]] const Gradient& gradient(std::int32_t index) const {
        return gradients_[static_cast<std::size_t>(index)];
    }
    // Null: only the time of an optimizer's step is known.
    [[nodiscard]] const Optimizer* optimizer_kind() const {
        return std::get_if<Optimizer>(&optimizer_);
    }

    // Part of calibrate(). `time_of` runs its argument and returns the time.
    using Run = std::function<void()>;
    void calibrate_writing(const std::function<Duration(const Run&)>& time_of);

  private:
    // The product of a call, which has one. In backward: not for weights' gradients.
    virtual void multiply(const KernelCall& call) = 0;
    // Backward's product for a weight, or for another factor: its gradient, times `scale`.
    virtual void multiply_for_weight(const KernelCall& call, float scale, bool accumulate) = 0;
    // An element-wise pass that moves that many elements; 0: none.
    virtual void pass_over(std::int64_t elements) = 0;
    // A gradient that no product computes.
    virtual void write(const GradientPass& pass, float scale, bool accumulate) = 0;
    // Computes for that time. Nothing before calibrate().
    virtual void fill(Duration duration) = 0;
    // The optimizer's step over all parameters.
    virtual void update(Optimizer optimizer) = 0;

    void run(const KernelCall& call);
    [[nodiscard]] Duration time_to_write(const KernelCall& call) const;

    const KernelPlan& plan_;
    const std::vector<Gradient>& gradients_;
    std::variant<Duration, Optimizer> optimizer_;
    double picoseconds_per_written_byte_ = 0;
};

}  // namespace bucketwise
