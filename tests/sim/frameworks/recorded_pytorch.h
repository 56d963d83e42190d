// Recordings of tests/frameworks/record_pytorch.py, as requests to the simulator.
#pragma once

#include <algorithm>
#include <fstream>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "sim/base/json.h"
#include "sim/plan/strategy.h"
#include "sim/program/program.h"
#include "tests/catch.h"

namespace bucketwise {

// A version of PyTorch. Before 2.4 an explicit cap left the first bucket at 1 MiB.
struct Recording {
    std::string file;
    bool explicit_cap_sets_first = true;
};

inline Json recorded_pytorch(const Recording& recording) {
    std::ifstream in(std::string(BUCKETWISE_TEST_DATA_DIR) + "/frameworks/" + recording.file);
    REQUIRE(in);
    return Json::parse(in);
}

// The gradients of a model, on two ranks; nothing is known of its operations.
inline StepInput recorded_gradients(const Json& model) {
    StepInput input;
    for (std::size_t i = 0; i < model["numel"].size(); ++i) {
        const Json& dtypes = model["dtype"];
        const std::string dtype = dtypes.is_string() ? dtypes : dtypes[i];
        input.workload.gradients.push_back(
            {std::to_string(i), model["numel"][i],
             *std::ranges::find(every<DType>, dtype, [](DType one) { return name_of(one); })});
    }
    input.workload.host_is_device = true;
    input.group = {2, 2};
    input.link.segments = {{std::nullopt, Duration{0}, {1'000'000'000}}};
    input.copy_bandwidth = BytesPerSecond{1'000'000'000};
    return input;
}

// int(mib * 1024 * 1024)
inline Bytes recorded_cap(const Json& mib) {
    return Bytes{static_cast<std::int64_t>(mib.get<double>() * 1024 * 1024)};
}

// Empty: the case is not simulated.
inline std::optional<SyncRequest> recorded_request(const Json& one, const Recording& recording) {
    const std::set<std::string> known_options{
        "bucket_cap_mb",     "bucket_cap_mb_list", "gradient_as_bucket_view",
        "batched_grad_copy", "static_graph",       "find_unused_parameters"};
    const Json& options = one["options"];
    SyncRequest request;
    request.explicit_cap_sets_first = recording.explicit_cap_sets_first;
    for (const auto& [key, value] : options.items()) {
        if (known_options.count(key) == 0) {
            return std::nullopt;
        }
    }
    if (options.contains("bucket_cap_mb") && !options["bucket_cap_mb"].is_null()) {
        request.bucket_cap = recorded_cap(options["bucket_cap_mb"]);
    }
    if (options.contains("bucket_cap_mb_list")) {
        for (const Json& mib : options["bucket_cap_mb_list"]) {
            request.bucket_cap_list.push_back(recorded_cap(mib));
        }
    }
    request.views = options.value("gradient_as_bucket_view", false);
    request.batched_grad_copy = options.value("batched_grad_copy", false);
    request.static_graph = options.value("static_graph", false);
    request.find_unused_parameters = options.value("find_unused_parameters", false);
    const std::string hook = one.value("hook", "none");
    request.comm_hook = hook == "fp16"   ? CommHook::fp16
                        : hook == "bf16" ? CommHook::bf16
                                         : CommHook::none;
    return request;
}

// Whether some of the model's parameters get no gradient.
inline bool has_unused(const Json& one) {
    return one["model"].get<std::string>().rfind("unused", 0) == 0;
}

}  // namespace bucketwise
