#include "sim/workload/training_schedule.h"

#include <algorithm>

#include "sim/base/invariant.h"
#include "sim/base/units.h"

namespace bucketwise {
namespace {

std::int64_t samples_of_full_step(const TrainingSchedule& s) {
    invariant(s.samples >= 1 && s.ranks >= 1 && s.accumulation >= 1 && s.batch >= 1,
              "a schedule has samples, ranks, micro-steps and a batch");
    return s.ranks * s.accumulation * s.batch;
}

}  // namespace

std::int64_t steps_per_epoch(const TrainingSchedule& schedule) {
    return divided(schedule.samples, samples_of_full_step(schedule));
}

SampleRange samples_of_step(const TrainingSchedule& schedule, std::int64_t step) {
    const std::int64_t full = samples_of_full_step(schedule);
    const std::int64_t begin = step * full;
    invariant(step >= 0 && begin < schedule.samples, "a step of the epoch");
    return {begin, std::min(full, schedule.samples - begin)};
}

std::vector<SampleRange> micro_steps(const TrainingSchedule& schedule, std::int64_t step,
                                     std::int64_t rank) {
    invariant(rank >= 0 && rank < schedule.ranks, "a rank of the schedule");
    const SampleRange all = samples_of_step(schedule, step);
    const std::int64_t share = all.count / schedule.ranks;
    const std::int64_t left_over = all.count % schedule.ranks;
    std::int64_t begin = all.begin + rank * share + std::min(rank, left_over);
    std::int64_t left = share + (rank < left_over ? 1 : 0);
    const std::int64_t largest_share = share + (left_over > 0 ? 1 : 0);
    std::vector<SampleRange> parts;
    for (std::int64_t i = 0; i < divided(largest_share, schedule.batch); ++i) {
        const std::int64_t count = std::min(schedule.batch, left);
        parts.push_back({begin, count});
        begin += count;
        left -= count;
    }
    return parts;
}

std::int64_t samples_of_rank(const TrainingSchedule& schedule, std::int64_t rank) {
    std::int64_t sum = 0;
    // All steps but the last are alike.
    const std::int64_t steps = steps_per_epoch(schedule);
    for (const SampleRange& part : micro_steps(schedule, steps - 1, rank)) {
        sum += part.count;
    }
    return sum + (steps - 1) * schedule.accumulation * schedule.batch;
}

}  // namespace bucketwise
