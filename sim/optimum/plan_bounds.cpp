#include "sim/optimum/plan_bounds.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "sim/engine/step_parts.h"
#include "sim/link/link.h"
#include "sim/plan/plan.h"
#include "sim/program/program_builder.h"

namespace bucketwise {
namespace {

constexpr Duration unreached{std::numeric_limits<std::int64_t>::max() / 4};

// By place of one accumulator, [begin, end): the cheapest buckets with the gradients from there on.
// The first bucket may begin earlier: one that holds more may cost less.
std::vector<Duration> least_costs(std::size_t begin, std::size_t end,
                                  const std::function<Duration(std::size_t, std::size_t)>& cost) {
    const std::size_t size = end - begin;
    std::vector<std::vector<Duration>> costs(size);
    std::vector<Duration> after(size + 1, unreached);
    after[size] = Duration{0};
    for (std::size_t from = size; from-- > 0;) {
        for (std::size_t to = from + 1; to <= size; ++to) {
            costs[from].push_back(cost(begin + from, begin + to));
            after[from] = std::min(after[from], costs[from].back() + after[to]);
        }
    }
    std::vector<Duration> least(size + 1, unreached);
    least[size] = Duration{0};
    std::vector<Duration> cheapest(size + 1, unreached);  // by end, of earlier begins
    for (std::size_t place = 0; place < size; ++place) {
        for (std::size_t to = place + 1; to <= size; ++to) {
            cheapest[to] = std::min(cheapest[to], costs[place][to - place - 1]);
            least[place] = std::min(least[place], cheapest[to] + after[to]);
        }
    }
    return least;
}

// Slowdowns of the link that disturb least.
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

// Device work of the closing part that every plan has.
struct ClosingWork {
    Duration all{0};
    Duration beside_buckets{0};  // the part that can run beside a bucket
    Duration exchanges{0};       // of statistics
};

ClosingWork closing_work(const StepInput& input, const SyncSettings& sync,
                         std::size_t first_launch) {
    ClosingWork work;
    const BucketPlan no_buckets;
    Program program;
    ProgramBuilder builder(input, sync, no_buckets, program);
    const auto take = [&](bool beside_buckets) {
        for (const Instruction& instruction : program.instructions) {
            if (!instruction.order.is_beside()) {
                work.all += instruction.device;
                work.beside_buckets += beside_buckets ? instruction.device : Duration{0};
            }
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
    work.exchanges = time_on_wire(program);
    for (const std::int32_t gradient : input.workload.readiness) {
        builder.gather(gradient);
        builder.return_copy(gradient);
    }
    take(true);
    builder.optimizer();
    take(false);
    return work;
}

}  // namespace

NetworkBound network_bound(const GradientLine& line,
                           const std::function<Duration(std::size_t)>& ready,
                           const std::function<Duration(std::size_t, std::size_t)>& cost) {
    // By accumulator: the cheapest buckets from each place on, and the place that is reached.
    struct Accumulated {
        std::size_t begin;
        std::vector<Duration> least;
        std::size_t place = 0;
    };
    std::vector<Accumulated> accumulators;
    for (std::size_t begin = 0; begin < line.size(); begin = line.longest_end(begin)) {
        accumulators.push_back({begin, least_costs(begin, line.longest_end(begin), cost)});
    }
    NetworkBound bound;
    for (std::size_t count = 1; count <= line.size(); ++count) {
        Duration least{0};
        for (auto& [begin, costs, place] : accumulators) {
            // From its first place on all become ready as the count-th gradient, or later.
            while (place + 1 < costs.size() && line.least_ready_count(begin + place + 1) < count) {
                ++place;
            }
            least += costs[place];
        }
        bound.least_communication = std::max(bound.least_communication, least);
        bound.ends = std::max(bound.ends, ready(count) + least);
    }
    return bound;
}

// Computing is W of work, the least of any plan, and all-reduces are C; both run side by side
// during O. In that time computing does at most O / s of its work and all-reduces O / t, where s
// and t are the least slowdowns. So computing takes at least W + O (1 - 1/s), all-reduces
// C + O (1 - 1/t), and together, counting O once, T >= W + C - O k with k = 1/s + 1/t - 1. If k <=
// 0 overlapping gains nothing: T >= W + C. Otherwise O is at most t C, and at most s V, where V is
// the part of W that can run beside a bucket: nothing before the first gradients are ready, and not
// the optimizer. T >= W + C - k min(t C, s V) rises with C: its slope is 1 or 1 - k t = t (1 - 1/s)
// >= 0. So the least C counts, and for the same reason the least packing and casting, which add to
// both W and V. Statistics in backward are waited for and overlap nothing.
Duration work_bound(const StepInput& input, const SyncSettings& sync, std::size_t first_launch,
                    Duration least_communication, Duration before) {
    const ClosingWork work = closing_work(input, sync, first_launch);
    const Interference least = least_interference(input.link);
    const double s = static_cast<double>(least.compute_slowdown_ppm) / undisturbed_ppm;
    const double t = static_cast<double>(least.communication_slowdown_ppm) / undisturbed_ppm;
    const double k = std::max(1 / s + 1 / t - 1, 0.0);
    const auto c = static_cast<double>(least_communication.count());
    const auto v = static_cast<double>(work.beside_buckets.count());
    const double saved = std::min(k * std::min(t * c, s * v), c);
    // Doubles hold a step of hours to the picosecond; this covers their rounding.
    constexpr double rounding = 1e-12;
    const double hidden = std::ceil(saved * (1 + rounding)) + 1;
    return before + work.all + work.exchanges +
           std::max(least_communication - Duration{std::llround(hidden)}, Duration{0});
}

}  // namespace bucketwise
