#include "sim/report/memory_json.h"

#include "sim/base/json_output.h"

namespace bucketwise {

Json to_json(const MemoryNeed& need) {
    Json json{{"parameters_bytes", need.parameters.count},
              {"gradients_bytes", need.gradients.count},
              {"buckets_bytes", need.buckets.count},
              {"cast_buckets_bytes", need.hook_copies.count}};
    add_optional(json, "optimizer_state_bytes", need.optimizer_state, byte_count);
    add_optional(json, "activations_bytes", need.activations, byte_count);
    json["most_bytes"] = need.most().count;
    if (need.device) {
        json["device_bytes"] = need.device->count;
        json["fits"] = need.fits();
    }
    return json;
}

}  // namespace bucketwise
