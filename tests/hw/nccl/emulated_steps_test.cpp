// The tables of DDP strategies on emulated GPUs.
#include <map>
#include <string>

#include <nlohmann/json.hpp>

#include "tests/catch.h"
#include "tests/cli/process.h"

namespace bucketwise {
namespace {

using Json = nlohmann::json;

TEST_CASE("on GPUs a sync time is the host's, apart from what is exposed and on the wire",
          "[program]") {
    const Outcome outcome = run({BUCKETWISE_EMULATED_BINARY, "bench", "ddp-strategies",
                                 std::string(BUCKETWISE_SCENARIO_DIR) + "/two_buckets.json",
                                 "--backend", "nccl", "--strategies", "naive,flat,overlap,none",
                                 "--rounds", "2", "--steps", "2", "--format", "json"});
    INFO(outcome.errors);
    REQUIRE(outcome.exit_code == 0);
    const Json report = Json::parse(outcome.output);
    std::map<std::string, Json> rows;
    for (const Json& row : report["rows"]) {
        rows[row["strategy"]] = row;
    }
    REQUIRE(rows.size() == 4);
    for (const char* strategy : {"naive", "flat"}) {
        const Json& row = rows[strategy];
        // After backward everything is exposed: no less than what the wire took.
        CHECK(row["wire_s"].get<double>() > 0);
        CHECK(row["exposed_s"].get<double>() >= row["wire_s"].get<double>() * 0.999);
        CHECK(row["sync_s"].get<double>() > 0);
    }
    CHECK(rows["overlap"]["wire_s"].get<double>() > 0);
    CHECK(rows["none"]["wire_s"] == 0.0);
    CHECK(rows["none"]["sync_s"] == 0.0);
}

}  // namespace
}  // namespace bucketwise
