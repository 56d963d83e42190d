// `bucketwise bench training` on emulated GPUs.
#include <string>

#include <nlohmann/json.hpp>

#include "tests/catch.h"
#include "tests/cli/process.h"
#include "tests/contains.h"
#include "tests/hw/gloo/gloo_ranks.h"

namespace bucketwise {
namespace {

using Json = nlohmann::json;
using testing::contains;

TEST_CASE("bench training trains on GPUs, and reports every rank", "[program]") {
    const Outcome outcome = run({BUCKETWISE_EMULATED_BINARY,
                                 "bench",
                                 "training",
                                 "--backend",
                                 "nccl",
                                 "--ranks",
                                 "2",
                                 "--layers",
                                 "24,16",
                                 "--classes",
                                 "4",
                                 "--samples",
                                 "101",
                                 "--test-samples",
                                 "20",
                                 "--epochs",
                                 "2",
                                 "--batch",
                                 "4",
                                 "--accumulation",
                                 "2",
                                 "--bucket-cap",
                                 "1KiB",
                                 "--format",
                                 "json"});
    CHECK(outcome.errors.empty());
    REQUIRE(outcome.exit_code == 0);
    const Json report = Json::parse(outcome.output);
    CHECK(contains(report["hardware"], "Emulated GPU"));
    REQUIRE(report["rows"].size() == 4);
    for (const Json& row : report["rows"]) {
        CHECK(row["time_s"] > 0.0);
        CHECK(row["simulated_time_s"] > 0.0);
        // To the byte: every tensor, and cuBLAS's workspace.
        CHECK(row["memory_error_percent"] == 0.0);
        // Two ranks' sums do not depend on their order, so both implementations are bit for bit
        // alike.
        CHECK(row["loss"] == report["rows"][0]["loss"]);
    }
    CHECK(report["epoch_losses"]["ddp"].size() == 2);
}

TEST_CASE("bench training on a GPU refuses what only a scenario could mean otherwise",
          "[program]") {
    const Outcome outcome = run({BUCKETWISE_EMULATED_BINARY, "bench", "training", "--backend",
                                 "nccl", "--set", "/workload/arithmetic=tfloat32"});
    CHECK(outcome.exit_code == 2);
    check_one_line(outcome.errors);
}

}  // namespace
}  // namespace bucketwise
