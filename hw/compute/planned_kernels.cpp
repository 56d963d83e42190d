#include "hw/compute/planned_kernels.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "hw/compute/gradient_pattern.h"

namespace bucketwise {
namespace {

float scale_of(std::int32_t gradient, float rank_value) {
    return static_cast<float>(gradient_factor(gradient)) * rank_value;
}

}  // namespace

void PlannedKernels::forward(std::int32_t operation) {
    run(plan_.forward[static_cast<std::size_t>(operation)]);
}

void PlannedKernels::backward(std::int32_t operation, float rank_value, bool accumulate) {
    const KernelCall& call = plan_.backward[static_cast<std::size_t>(operation)];
    if (call.product && call.pass == Pass::weight_gradient) {
        const float scale =
            call.weight_gradient ? scale_of(*call.weight_gradient, rank_value) : 1.0F;
        multiply_for_weight(call, scale, accumulate);
    } else {
        run(call);
    }
    for (const GradientPass& pass : call.gradients) {
        write(pass, scale_of(pass.gradient, rank_value), accumulate);
    }
}

void PlannedKernels::optimizer() {
    if (const auto* duration = std::get_if<Duration>(&optimizer_)) {
        fill(*duration);
    } else {
        update(std::get<Optimizer>(optimizer_));
    }
}

void PlannedKernels::run(const KernelCall& call) {
    if (call.product) {
        multiply(call);
    }
    pass_over(call.streamed_elements);
    if (call.filler > Duration{0}) {
        fill(std::max(Duration{0}, call.filler - time_to_write(call)));
    }
}

Duration PlannedKernels::time_to_write(const KernelCall& call) const {
    std::int64_t bytes = 0;
    for (const GradientPass& pass : call.gradients) {
        bytes += gradient(pass.gradient).size().count;
    }
    return Duration{std::llround(picoseconds_per_written_byte_ * static_cast<double>(bytes))};
}

void PlannedKernels::calibrate_writing(const std::function<Duration(const Run&)>& time_of) {
    // The largest gradient that is written as a pattern: a product's gradient may have wider rows
    // than there are values to write.
    std::optional<GradientPass> largest;
    for (const KernelCall& call : plan_.backward) {
        for (const GradientPass& pass : call.gradients) {
            if (pass.write == GradientWrite::pattern &&
                (!largest || gradient(pass.gradient).size() > gradient(largest->gradient).size())) {
                largest = pass;
            }
        }
    }
    if (!largest) {
        return;
    }
    const Duration time = time_of([&] { write(*largest, 1.0F, false); });
    picoseconds_per_written_byte_ = static_cast<double>(time.count()) /
                                    static_cast<double>(gradient(largest->gradient).size().count);
}

}  // namespace bucketwise
