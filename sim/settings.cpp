#include "sim/settings.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace bucketwise {
namespace {

// Frameworks that count elements mean those of the gradients' dtype; of mixed ones, the first's.
Bytes gradient_element(const Scenario& scenario) {
    if (const auto* model = std::get_if<ModelWorkload>(&scenario.workload)) {
        return element_size(model->dtype);
    }
    return element_size(
        std::get<GradientWorkload>(scenario.workload).gradients.front().gradient.dtype);
}

// What PyTorch DDP takes to get the simulated plan. Since 2.4 an explicit cap is also the first
// bucket's, so a first bucket of its own has to be typed as a list.
FrameworkSetting pytorch_setting(const Scenario& scenario, const Prediction& prediction,
                                 double mib) {
    const SyncRequest& sync = scenario.sync;
    const bool ddp = is_ddp(sync.strategy);
    if (ddp && prediction.keep_default) {
        return {"pytorch_ddp", "bucket_cap_mb", std::nullopt,
                "DistributedDataParallel(model), bucket_cap_mb left out"};
    }
    std::string typed = fmt::format("DistributedDataParallel(model, bucket_cap_mb={})", mib);
    if (ddp && sync.first_bucket) {
        const double first = typed_mib(*sync.first_bucket);
        typed = sync.explicit_cap_sets_first
                    ? fmt::format("DistributedDataParallel(model, bucket_cap_mb_list=[{}, {}])",
                                  first, mib)
                    : fmt::format("torch.distributed._DEFAULT_FIRST_BUCKET_BYTES = {}; {}",
                                  sync.first_bucket->count, typed);
    }
    return {"pytorch_ddp", "bucket_cap_mb", mib, std::move(typed)};
}

}  // namespace

std::vector<FrameworkSetting> settings_for(const Scenario& scenario, const Prediction& prediction) {
    const Bytes cap = prediction.keep_default ? *prediction.default_cap.cap
                                              : *prediction.sweep[prediction.best].cap;
    const std::int64_t elements =
        std::max<std::int64_t>(cap.count / gradient_element(scenario).count, 1);
    return {
        pytorch_setting(scenario, prediction, typed_mib(cap)),
        {"megatron_lm", "ddp_bucket_size", static_cast<double>(elements),
         fmt::format("--ddp-bucket-size {}", elements)},
        {"deepspeed", "reduce_bucket_size", static_cast<double>(elements),
         fmt::format("\"reduce_bucket_size\": {}", elements)},
        {"horovod", "HOROVOD_FUSION_THRESHOLD", static_cast<double>(cap.count),
         fmt::format("HOROVOD_FUSION_THRESHOLD={}", cap.count)},
    };
}

}  // namespace bucketwise
