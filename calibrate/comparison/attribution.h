// Why a prediction is off: each part of it is replaced by its measurement, one after another, and
// the change of the simulated step is that part's share of the error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <vector>

#include "calibrate/comparison/measured_setting.h"
#include "calibrate/fit/measured_run.h"
#include "sim/engine/step_loop.h"
#include "sim/link/link.h"
#include "sim/program/program.h"

namespace bucketwise {

struct Cause {
    std::string_view name;
    double ms = 0;  // by which the measured step is longer for this cause
    bool operator==(const Cause&) const = default;
};

// The bucket whose all-reduce differs most from its prediction.
struct DeviatingBucket {
    std::size_t index = 0;  // in launch order
    double predicted_ms = 0;
    double measured_ms = 0;  // of rank 0, waiting for peers included
    bool operator==(const DeviatingBucket&) const = default;
};

struct Attribution {
    // Always the same ones, in this order; they sum to measured - predicted:
    //   computing                    a step without communication, as predicted and in this run
    //   drift, copies and launches   the same with copies and collectives that do nothing, run
    //                                right beside the steps
    //   readiness                    when the last rank had the first bucket ready
    //   all-reduce latency           isolated collectives against the fitted link, where latency
    //   all-reduce bandwidth         or bandwidth makes up most of the time
    //   interference on computing    computing while collectives run
    //   interference on all-reduces  collectives of the step, broadcasts too, against isolated ones
    //   waiting for peers            until the last rank has begun one; not of the first bucket,
    //                                whose readiness is the last rank's
    //   not explained                the rest
    // Where parameters are sharded, "collective" stands for "all-reduce", and no bucket's readiness
    // counts.
    std::vector<Cause> causes;
    std::optional<DeviatingBucket> bucket;
    bool operator==(const Attribution&) const = default;
};

// The isolated measurements of the same run, as far as there are any.
struct IsolatedMeasurements {
    std::optional<double> compute_step_us;                      // without copies
    std::map<CollectiveKind, std::vector<LinkPoint>> messages;  // by size
    std::int64_t updating_ranks = 1;  // that share the optimizer of a step with buckets
};

// `program` is the step of `input` as it was predicted, with the plan that was measured. The order
// of replacement matters little where parts do not interact; it follows the course of a step.
Attribution attribute(const StepInput& input, Program program, const StepLoop& loop,
                      const MeasuredSetting& measured, const IsolatedMeasurements& isolated);

}  // namespace bucketwise
