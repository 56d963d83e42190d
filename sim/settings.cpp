#include "sim/settings.h"

#include <algorithm>

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

}  // namespace

std::vector<FrameworkSetting> settings_for(const Scenario& scenario, const Prediction& prediction) {
    const Bytes cap = prediction.keep_default ? *prediction.default_cap.cap
                                              : *prediction.sweep[prediction.best].cap;
    const double mib = typed_mib(cap);
    const std::int64_t elements =
        std::max<std::int64_t>(cap.count / gradient_element(scenario).count, 1);
    FrameworkSetting pytorch{"pytorch_ddp", "bucket_cap_mb", mib,
                             fmt::format("DistributedDataParallel(model, bucket_cap_mb={})", mib)};
    if (prediction.keep_default) {
        pytorch.value = std::nullopt;
        pytorch.typed = "DistributedDataParallel(model), bucket_cap_mb left out";
    }
    return {
        pytorch,
        {"megatron_lm", "ddp_bucket_size", static_cast<double>(elements),
         fmt::format("--ddp-bucket-size {}", elements)},
        {"deepspeed", "reduce_bucket_size", static_cast<double>(elements),
         fmt::format("\"reduce_bucket_size\": {}", elements)},
        {"horovod", "HOROVOD_FUSION_THRESHOLD", static_cast<double>(cap.count),
         fmt::format("HOROVOD_FUSION_THRESHOLD={}", cap.count)},
    };
}

}  // namespace bucketwise
