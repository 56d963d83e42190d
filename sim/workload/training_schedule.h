// The samples of each rank and micro-step in an epoch.
//
// An epoch visits every sample once, in an order that all ranks share. A step takes the next
// ranks x accumulation x batch of them; the last step takes the rest. Each step's samples are dealt
// out evenly; where they do not divide, the first ranks get one more. A rank works through its
// share in micro-steps of `batch`. So in the last step micro-steps may be smaller, fewer, or empty,
// and a mean over the step's samples has to count samples, not ranks.
#pragma once

#include <cstdint>
#include <vector>

namespace bucketwise {

struct TrainingSchedule {
    std::int64_t samples = 0;
    std::int64_t ranks = 1;
    std::int64_t accumulation = 1;  // micro-steps of a full step
    std::int64_t batch = 1;         // samples per rank and micro-step
    bool operator==(const TrainingSchedule&) const = default;
};

// Places in an epoch's order.
struct SampleRange {
    std::int64_t begin = 0;
    std::int64_t count = 0;
    bool operator==(const SampleRange&) const = default;
};

// Steps of an epoch. Preconditions here and below (asserted): no number of the schedule is below 1.
std::int64_t steps_per_epoch(const TrainingSchedule& schedule);

// All samples of one step, on all ranks. 0 <= step < steps_per_epoch().
SampleRange samples_of_step(const TrainingSchedule& schedule, std::int64_t step);

// A rank's micro-steps of one step, empty ones included: all ranks have the same number.
std::vector<SampleRange> micro_steps(const TrainingSchedule& schedule, std::int64_t step,
                                     std::int64_t rank);

// Samples that a rank sees in an epoch; rank 0 sees the most.
std::int64_t samples_of_rank(const TrainingSchedule& schedule, std::int64_t rank);

}  // namespace bucketwise
