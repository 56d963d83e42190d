// A scenario that shards and whose steps take a millisecond: three layers and a root.
#pragma once

#include <string>

namespace bucketwise {

inline const std::string sharded_scenario_text = R"({
    "name": "three layers",
    "workload": {"forward_ms": 0.2, "backward_ms": 0.4, "gradients": [
        {"name": "embed.weight", "numel": 21, "dtype": "float32", "ready_ms": 0.4},
        {"name": "layers.0.weight", "numel": 35, "dtype": "float32", "ready_ms": 0.3},
        {"name": "layers.1.weight", "numel": 35, "dtype": "float32", "ready_ms": 0.2},
        {"name": "layers.2.weight", "numel": 35, "dtype": "float32", "ready_ms": 0.1}]},
    "cluster": {"ranks": 2, "link": {"name": "some", "algorithm": "ring",
        "segments": [{"latency_us": 20, "bandwidth_gb_per_s": 1}]}},
    "sync": {"strategy": "fsdp", "sharding": {"asynchronous_unshard": true}}})";

}  // namespace bucketwise
