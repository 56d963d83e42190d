#include "calibrate/fit/captured_times.h"

#include <nlohmann/json.hpp>

#include "sim/base/json_input.h"
#include "sim/scenario/scenario.h"
#include "tests/catch.h"

namespace bucketwise {
namespace {

// b is ready after 1 ms and goes out at once: 4 MiB at 1 GB/s over two ranks take 4.19 ms and more,
// so all that is left of backward runs beside it, 1.25 times as long. a's 2 ms alone are then 2.5
// ms, captured as ready at 3.5.
Json captured_step() {
    return parse_json(R"({
      "name": "captured",
      "workload": {"forward_ms": 1, "backward_ms": 3.5, "host_is_device": true,
        "gradients": [{"name": "a", "numel": 262144, "dtype": "float32", "ready_ms": 3.5},
                      {"name": "b", "numel": 1048576, "dtype": "float32", "ready_ms": 1}]},
      "cluster": {"ranks": 2, "link": {"name": "slow", "algorithm": "ring",
        "segments": [{"latency_us": 20, "bandwidth_gb_per_s": 1}],
        "interference": {"compute_slowdown": 1.25, "communication_slowdown": 1.5}}},
      "sync": {"strategy": "ddp", "bucket_cap_mib": 1}})",
                      "captured.json");
}

Scenario read(const Json& document) {
    return parse_scenario(document, "captured.json", [](const std::string& file) { return file; });
}

TEST_CASE("what communication beside it cost is taken out of a captured backward",
          "[captured_times]") {
    const std::optional<AloneTimes> alone = times_alone(read(captured_step()));
    REQUIRE(alone);
    // Found to a thousandth of each operation: of 2 ms, 2 us.
    CHECK(to_ms(alone->workload.gradients[0].ready) == Approx(3.0).margin(0.002));
    CHECK(to_ms(alone->workload.gradients[1].ready) == Approx(1.0).margin(0.001));
    CHECK(to_ms(alone->workload.backward) == Approx(3.0).margin(0.002));
    CHECK(to_ms(alone->slowed) == Approx(0.5).margin(0.002));
    CHECK(alone->miss <= 0.001);
}

TEST_CASE("nothing is taken out where nothing disturbs", "[captured_times]") {
    Json document = captured_step();
    document["cluster"]["link"]["interference"] = "none";
    const Scenario captured = read(document);
    const std::optional<AloneTimes> alone = times_alone(captured);
    REQUIRE(alone);
    CHECK(alone->workload == std::get<GradientWorkload>(captured.workload));
    CHECK(alone->slowed == Duration{0});
}

TEST_CASE("times taken alone are written in place of those captured", "[captured_times]") {
    const Json document = captured_step();
    const Json written = with_times(document, times_alone(read(document)).value());
    CHECK(written["workload"]["backward_ms"].get<double>() == Approx(3.0).margin(0.002));
    CHECK(written["workload"]["gradients"][0]["ready_ms"] == written["workload"]["backward_ms"]);
    CHECK(written["cluster"] == document["cluster"]);
    CHECK_NOTHROW(read(written));
}

TEST_CASE("times of a compiled graph's pieces stay as they are", "[captured_times]") {
    Json document = captured_step();
    document["sync"]["compiled"] = true;
    CHECK_FALSE(times_alone(read(document)));
}

}  // namespace
}  // namespace bucketwise
