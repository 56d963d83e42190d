#include "sim/optimum/work_bound.h"

#include <algorithm>
#include <cmath>

#include "sim/link/link.h"
#include "sim/plan/plan.h"
#include "sim/program/program_builder.h"

namespace bucketwise {
namespace {

// The slowdowns of the link that disturb least.
Interference least_interference(const LinkParameters& link) {
    if (link.interference.empty()) {
        return {};
    }
    Interference least = link.interference.front().slowdown;
    for_each_interference(link, [&](const InterferenceSegment& segment) {
        least.compute_slowdown_ppm =
            std::min(least.compute_slowdown_ppm, segment.slowdown.compute_slowdown_ppm);
        least.communication_slowdown_ppm =
            std::min(least.communication_slowdown_ppm, segment.slowdown.communication_slowdown_ppm);
    });
    return least;
}

// Device work of the closing part that every plan has, and what of it may run beside a bucket.
struct ClosingWork {
    Duration all{0};
    Duration beside_buckets{0};
    Duration exchanges{0};  // of statistics
};

ClosingWork closing_work(const StepInput& input, const SyncSettings& sync,
                         std::size_t first_launch) {
    ClosingWork work;
    const BucketPlan no_buckets;
    Program program;
    ProgramBuilder builder(input, sync, no_buckets, program);
    const auto take = [&](bool beside_buckets) {
        for (const Instruction& instruction : program.instructions) {
            if (instruction.order.is_beside()) {
                continue;
            }
            work.all += instruction.device;
            work.beside_buckets += beside_buckets ? instruction.device : Duration{0};
        }
        program.instructions.clear();
    };
    std::size_t ready = 0;
    for (std::size_t i = 0; i < input.workload.backward.size(); ++i) {
        builder.backward_operation(i);
        take(ready >= first_launch);
        for (std::int32_t k = 0; k < input.workload.backward[i].ready_count; ++k) {
            builder.collect(input.workload.readiness[ready]);
            take(ready++ >= first_launch);
        }
    }
    for (const Collective& collective : program.collectives) {
        work.exchanges += collective.time;
    }
    for (const std::int32_t gradient : input.workload.readiness) {
        builder.gather(gradient);
        builder.return_copy(gradient);
    }
    take(true);
    builder.optimizer();
    take(false);
    return work;
}

// A bound by work. Say computing is W of work, the least of any plan, and all-reduces C, and both
// run side by side during O. In that time computing does at most O / s of its work and the
// all-reduce O / t, with s and t the least slowdowns. So computing takes at least W + O (1 - 1/s),
// all-reduces C + O (1 - 1/t), and together, O counted once, T >= W + C - O k with k = 1/s + 1/t
// - 1. Where k is not positive, nothing is gained by overlapping: T >= W + C. Else O is at most t
// C, and at most s V with V what of W may run beside a bucket: nothing before the first one is
// ready, not the optimizer. T >= W + C - k min(t C, s V) rises with C: its slope is 1 or 1 - k t =
// t (1 - 1/s) >= 0. So the least C counts. Likewise for what packing and casting add to both W and
// V. Statistics in backward are waited for and overlap nothing.
Duration bound_of(const ClosingWork& work, Duration least_communication, Interference least,
                  Duration before) {
    const double s = static_cast<double>(least.compute_slowdown_ppm) / undisturbed_ppm;
    const double t = static_cast<double>(least.communication_slowdown_ppm) / undisturbed_ppm;
    const double k = std::max(1 / s + 1 / t - 1, 0.0);
    const auto c = static_cast<double>(least_communication.count());
    const auto v = static_cast<double>(work.beside_buckets.count());
    const double saved = std::min(k * std::min(t * c, s * v), c);
    // Doubles hold a step of hours to the picosecond; what rounding could add is taken off.
    constexpr double rounding = 1e-12;
    const double hidden = std::ceil(saved * (1 + rounding)) + 1;
    return before + work.all + work.exchanges +
           std::max(least_communication - Duration{std::llround(hidden)}, Duration{0});
}

}  // namespace

Duration work_bound(const StepInput& input, const SyncSettings& sync, std::size_t first_launch,
                    Duration least_communication, Duration before) {
    return bound_of(closing_work(input, sync, first_launch), least_communication,
                    least_interference(input.link), before);
}

}  // namespace bucketwise
