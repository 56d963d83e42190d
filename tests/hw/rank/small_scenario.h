// A scenario that takes milliseconds.
#pragma once

#include "sim/scenario/scenario.h"

namespace bucketwise::testing {

// A tied transformer of 60,000 parameters.
inline Scenario small_scenario(int ranks) {
    Scenario scenario;
    scenario.name = "small";
    ModelWorkload workload;
    workload.model = TransformerShape{.family = TransformerFamily::gpt2,
                                      .layers = 1,
                                      .hidden = 32,
                                      .feed_forward = 128,
                                      .heads = 2,
                                      .vocabulary = 500,
                                      .context = 16};
    workload.input = {.batch = 2, .sequence_length = 16};
    workload.device = device_preset("A100");
    scenario.workload = workload;
    scenario.group.ranks = ranks;
    scenario.link.segments.push_back({std::nullopt, Duration{0}, bandwidth_from_gb_per_s(1)});
    scenario.sync.bucket_cap = Bytes{std::int64_t{64} << 10};
    return scenario;
}

}  // namespace bucketwise::testing
