// Fusions of small models' gradients by Horovod's background thread in one cycle
// (tests/frameworks/record_horovod.py), against its rule.
#include <fstream>

#include <nlohmann/json.hpp>

#include "sim/base/json.h"
#include "sim/frameworks/framework.h"
#include "tests/catch.h"

namespace bucketwise {
namespace {

TEST_CASE("Horovod fuses what it was recorded to fuse") {
    std::ifstream in(std::string(BUCKETWISE_TEST_DATA_DIR) + "/frameworks/horovod.json");
    REQUIRE(in);
    const Json file = Json::parse(in);
    int checked = 0;
    for (const Json& one : file["cases"]) {
        const Json& model = file["models"][one["model"].get<std::string>()];
        std::vector<Gradient> gradients;
        for (std::size_t i = 0; i < model["numel"].size(); ++i) {
            const auto has_name = [&](DType dtype) { return name_of(dtype) == model["dtype"][i]; };
            gradients.push_back({std::to_string(i), model["numel"][i],
                                 *std::ranges::find_if(every<DType>, has_name)});
        }
        // All handed over, and ready, before the thread looks.
        const FusedPlan fused =
            fuse_in_cycles(gradients, model["readiness"].get<std::vector<std::int32_t>>(),
                           std::vector<GradientMoments>(gradients.size()),
                           horovod_threshold(Bytes{one["threshold"]}, 2), {});
        Json groups = Json::array();
        for (const Bucket& bucket : fused.plan.buckets) {
            groups.push_back(bucket.gradients);
        }
        INFO(one.dump() << "\n" << groups.dump());
        CHECK(groups == one["fused"]);
        ++checked;
    }
    CHECK(checked == 77);
}

}  // namespace
}  // namespace bucketwise
