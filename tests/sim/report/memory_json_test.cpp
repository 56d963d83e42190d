#include "sim/report/prediction_json.h"

#include <nlohmann/json.hpp>

#include "tests/catch.h"

namespace bucketwise {
namespace {

TEST_CASE("memory as JSON leaves out what is not known") {
    const MemoryNeed need{.parameters = {10},
                          .gradients = {10},
                          .buckets = {10},
                          .hook_copies = {5},
                          .optimizer_state = {},
                          .activations = Bytes{7},
                          .gradients_stay = false,
                          .device = Bytes{34}};
    // At most 10 + 10 + 10 + 5 when backward ends.
    CHECK(to_json(need) == Json{{"parameters_bytes", 10},
                                {"gradients_bytes", 10},
                                {"buckets_bytes", 10},
                                {"cast_buckets_bytes", 5},
                                {"activations_bytes", 7},
                                {"most_bytes", 35},
                                {"device_bytes", 34},
                                {"fits", false}});
}

}  // namespace
}  // namespace bucketwise
