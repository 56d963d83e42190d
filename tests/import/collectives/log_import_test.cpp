#include "import/collectives/log_import.h"

#include <algorithm>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "sim/base/error.h"
#include "tests/catch.h"
#include "tests/contains.h"
#include "tests/import/flight_recorder/written_dump.h"

namespace bucketwise {
namespace {

using testing::contains;
using Numbers = std::vector<std::int64_t>;

std::string no_file(const std::string& path) {
    throw InputError(path, "", "no file", "one");
}

std::string error_of(const std::vector<CollectiveLog>& logs, const LogImportRequest& request = {}) {
    try {
        import_logs(logs, request);
    } catch (const InputError& error) {
        return error.what();
    }
    return "";
}

std::string findings_of(const LogImport& imported) {
    return text_of(imported.findings);
}

// Sizes of gradients of 4 bytes each: a megabyte, 2 and 4 MB.
const Numbers elements{250'000, 500'000, 1'000'000};

// A model with these gradients in the order of parameters.
Workload model_of(const Numbers& numels) {
    std::vector<GradientReadiness> gradients;
    for (const std::int64_t numel : numels) {
        gradients.push_back({{"weight " + std::to_string(gradients.size()), numel}, {}});
    }
    return workload_from_readiness(gradients, {}, {});
}

}  // namespace

TEST_CASE("A dump is a scenario: what was issued when, and the pause in between", "[import]") {
    WrittenDump dump;
    dump.steps(6, elements, {0, 3, 8}, 30);
    LogImport imported = import_logs({dump.log()}, {});
    CHECK(imported.ranks == 4);
    CHECK(imported.period == duration_from_ms(30));
    CHECK(imported.pause == duration_from_ms(22));  // 30 - 8
    const Json& workload = imported.scenario["workload"];
    CHECK(workload["forward_ms"] == 22);
    CHECK(workload["backward_ms"] == 8);
    // In the order of parameters, which is the reverse of issue.
    REQUIRE(workload["gradients"].size() == 3);
    CHECK(workload["gradients"][0]["numel"] == 1'000'000);
    CHECK(workload["gradients"][0]["ready_ms"] == 8);
    CHECK(workload["gradients"][2]["numel"] == 250'000);
    CHECK(workload["gradients"][2]["ready_ms"] == 0);
    // The simulated wait for the last all-reduces is taken out of the pause. On a ring
    // of 4 each byte crosses 2 x 3 / 4 times: at 1.15 GB/s 4 MB take 5.2 ms and 6 x 30 us more.
    const Scenario scenario = connect(imported, "eth-10g", no_file);
    const double forward = imported.scenario["workload"]["forward_ms"].get<double>();
    CHECK(forward < 22 - 5.2);
    CHECK(forward > 22 - 7.5);
    CHECK(contains(replay_text(imported, scenario), "logged 30.000 ms (-0.00 %)") !=
          contains(replay_text(imported, scenario), "logged 30.000 ms (+0.00 %)"));
    CHECK(contains(replay_text(imported, scenario), "proves nothing"));
    CHECK(contains(findings_of(imported), "6 whole ones of 3 all-reduces"));
}

TEST_CASE("Durations make the link, and tell the wait from forward", "[import]") {
    WrittenDump dump;
    // The last is issued at 8 ms, when the two before are done (at 1 and at 3 + 2), and takes 4.
    dump.steps(6, elements, {0, 3, 8}, 30, {1, 2, 4});
    LogImport imported = import_logs({dump.log()}, {});
    CHECK(imported.waiting == duration_from_ms(4));
    const Scenario scenario = connect(imported, {}, no_file);
    CHECK(imported.scenario["workload"]["forward_ms"] == 18);  // 22 - 4
    // 1 ms for a megabyte, 2 for two, 4 for four: no latency, and 1.5 MB on the wire a millisecond.
    REQUIRE(scenario.link.segments.size() == 1);
    CHECK(to_gb_per_s(scenario.link.segments[0].bandwidth) == Approx(1.5).epsilon(0.02));
    CHECK(scenario.link.name == "nccl, as logged");
    CHECK(scenario.link.provenance.versions == "2.27.5");
    const std::string text = replay_text(imported, scenario);
    CHECK(contains(text, "logged 30.000 ms"));
    CHECK_FALSE(contains(text, "proves nothing"));
}

TEST_CASE("What a log does not tell is in the scenario that is made of it", "[import]") {
    WrittenDump dump;
    dump.steps(6, elements, {0, 3, 8}, 30);
    LogImport imported = import_logs({dump.log()}, {});
    const Scenario connected = connect(imported, "eth-10g", no_file);
    state_caveats(connected, imported);
    const std::string stated = imported.scenario["caveats"].dump();
    CHECK(contains(stated, "no duration tells how long all-reduces took"));
    CHECK(contains(stated, "backward: 8.000 ms, from the first issue"));
    CHECK(contains(stated, "gradients: one for each bucket"));
    CHECK(parse_scenario(imported.scenario, "s", no_file).caveats.size() == 3);
    CHECK_FALSE(imported.scenario["cluster"]["link"].contains("caveats"));  // it is a preset

    // 7 MB at 0.94 x 1 Gbit/s take 90 ms of steps of 4.
    WrittenDump short_steps;
    short_steps.steps(6, elements, {0, 1, 2}, 4);
    LogImport off = import_logs({short_steps.log()}, {});
    const Scenario slow = connect(off, "eth-1g", no_file);
    state_caveats(slow, off);
    CHECK(off.scenario["caveats"][0]["withholds_advice"] == true);
    CHECK(contains(off.scenario["caveats"][0]["text"].get<std::string>(), "the log replays "));

    // One of 4 ranks was logged: its own link says so.
    WrittenDump timed;
    timed.steps(6, elements, {0, 3, 8}, 30, {1, 2, 4});
    LogImport with_link = import_logs({timed.log()}, {});
    const Scenario fitted = connect(with_link, {}, no_file);
    CHECK(contains(with_link.scenario["cluster"]["link"]["caveats"].dump(),
                   "of 4 ranks one was logged"));
    state_caveats(fitted, with_link);
    CHECK_FALSE(contains(with_link.scenario["caveats"].dump(), "no duration tells"));
}

TEST_CASE("Without durations or a link none is made up", "[import]") {
    WrittenDump dump;
    dump.steps(6, elements, {0, 3, 8}, 30);
    LogImport imported = import_logs({dump.log()}, {});
    CHECK_THROWS_AS(connect(imported, {}, no_file), InputError);
    // One rank needs none.
    WrittenDump alone(1);
    alone.steps(6, elements, {0, 3, 8}, 30);
    LogImport single = import_logs({alone.log()}, {});
    CHECK_NOTHROW(connect(single, {}, no_file));
}

TEST_CASE("A link that is slower than the steps allow is said to be", "[import]") {
    WrittenDump dump;
    dump.steps(6, elements, {0, 1, 2}, 4);
    LogImport imported = import_logs({dump.log()}, {});
    // 7 MB at 0.94 x 1 Gbit/s take 90 ms.
    const Scenario scenario = connect(imported, "eth-1g", no_file);
    CHECK(imported.scenario["workload"]["forward_ms"] == 0);
    CHECK(contains(replay_text(imported, scenario), "takes longer for the all-reduces"));
}

TEST_CASE("A model's gradients fill the buckets, and share their time by elements", "[import]") {
    WrittenDump dump;
    dump.steps(6, {300, 500}, {0, 5}, 30);
    LogImportRequest request;
    // By readiness 100, 200 | 400, 100.
    request.model = model_of({100, 400, 200, 100});
    const LogImport imported = import_logs({dump.log()}, request);
    const Json& gradients = imported.scenario["workload"]["gradients"];
    REQUIRE(gradients.size() == 4);
    CHECK(gradients[3]["ready_ms"] == 0);
    CHECK(gradients[2]["ready_ms"] == 0);
    CHECK(gradients[1]["name"] == "weight 1");
    CHECK(gradients[1]["ready_ms"] == 4);  // 400 / 500 of 5 ms
    CHECK(gradients[0]["ready_ms"] == 5);
    // Buckets of 1200 and 2000 bytes: the first closes at 401 to 1200 bytes, the second is the rest
    // but for what makes it one: at least 1601.
    CHECK(contains(findings_of(imported), "caps"));
    // Others are refused: as many elements in other gradients, fewer, more.
    for (const Numbers& others :
         {Numbers{400, 200, 200}, Numbers{500, 100}, Numbers{500, 300, 7}}) {
        request.model = model_of(others);
        CHECK(contains(error_of({dump.log()}, request),
                       "the buckets that the model's gradients form"));
    }
}

TEST_CASE("A model tells how many all-reduces that are alike make a step", "[import]") {
    WrittenDump dump;
    for (int i = 0; i < 24; ++i) {
        dump.entry("all_reduce", 1000, 5.0 * i);
    }
    LogImportRequest request;
    request.model = model_of({1000, 1000, 1000, 1000});
    CHECK(import_logs({dump.log()}, request).buckets.size() == 4);
    CHECK(import_logs({dump.log()}, {}).buckets.size() == 1);
}

TEST_CASE("Buckets of 16 bits that default caps form of 32 are a hook's", "[import]") {
    // 0.6 MiB of 16 bits, 1.2 of 32: the first bucket's cap is 1 MiB.
    const std::int64_t first = 314'573;
    WrittenDump dump;
    for (int step = 0; step < 4; ++step) {
        dump.entry("all_reduce", first, 30.0 * step, "Half");
        dump.entry("all_reduce", 2 * first, 30.0 * step + 5, "Half");
    }
    const LogImport imported = import_logs({dump.log()}, {});
    CHECK(imported.scenario["sync"]["comm_hook"] == "fp16");
    CHECK(imported.scenario["workload"]["gradients"][0]["dtype"] == "float32");
    CHECK(imported.buckets[0].bytes.count == 2 * first);
}

TEST_CASE("What is not the gradients' is left out by name", "[import]") {
    WrittenDump dump(8);
    for (int step = 0; step < 5; ++step) {
        const double begin = 100.0 * step;
        // Activations over one group, SyncBatchNorm, a loss, a pipeline's transfers, samples.
        for (int layer = 0; layer < 6; ++layer) {
            dump.entry("all_reduce", 5000, begin + layer, "Float", "5",
                       "TENSOR_MODEL_PARALLEL_GROUP");
        }
        dump.entry("send 0->1", 5000, begin + 7, "Float", "6", "PIPELINE")["is_p2p"] = true;
        for (int bucket = 0; bucket < 2; ++bucket) {
            for (int layer = 0; layer < 3; ++layer) {
                dump.entry("all_reduce", 128, begin + 10 + 5 * bucket + layer);
            }
            dump.entry("all_reduce", 100'000 + 1000 * bucket, begin + 14 + 5 * bucket);
        }
        dump.entry("all_reduce", 1, begin + 30);
        dump.entry("all_reduce", 300, begin + 31, "Long");
    }
    const LogImport imported = import_logs({dump.log()}, {});
    REQUIRE(imported.buckets.size() == 2);
    CHECK(imported.buckets[0].elements == 100'000);
    CHECK(imported.ranks == 8);
    const std::string findings = findings_of(imported);
    CHECK(contains(findings, "5 (TENSOR_MODEL_PARALLEL_GROUP) (30 all-reduces, 600000 bytes)"));
    CHECK(contains(findings, "layers' (SyncBatchNorm)"));
    CHECK(contains(findings, "5 x send 0->1 of 5000 Float"));
    CHECK(contains(findings, "5 x all_reduce of 300 Long"));
    // Another group can be asked for.
    LogImportRequest request;
    request.group = "5";
    request.ranks = 2;  // about which the dump says nothing
    CHECK(import_logs({dump.log()}, request).buckets.front().elements == 5000);
    request.group = "7";
    CHECK(contains(error_of({dump.log()}, request), "--group"));
}

TEST_CASE("Sharded gradients are refused by what was seen of them", "[import]") {
    WrittenDump fsdp;
    WrittenDump hsdp;
    for (int step = 0; step < 3; ++step) {
        fsdp.entry("_all_gather_base", 1000, 30.0 * step);
        fsdp.entry("_reduce_scatter_base", 4000, 30.0 * step + 20);
        hsdp.entry("_reduce_scatter_base", 4000, 30.0 * step + 20, "Float", "1");
        hsdp.entry("all_reduce", 1000, 30.0 * step + 21, "Float", "2");
    }
    CHECK(contains(error_of({fsdp.log()}),
                   "FSDP, ZeRO or a distributed optimizer: 3 reduce-scatters"));
    CHECK(contains(error_of({hsdp.log()}), "HSDP, or ZeRO in groups: 3 reduce-scatters"));
    WrittenDump none;
    none.entry("broadcast", 1000, 0);
    CHECK(contains(error_of({none.log()}), "all-reduces of gradients"));
}

TEST_CASE("Logs that do not repeat or belong together are refused", "[import]") {
    WrittenDump once;
    once.steps(1, elements, {0, 3, 8}, 30);
    CHECK(contains(error_of({once.log()}), "TORCH_FR_BUFFER_SIZE"));
    WrittenDump dump;
    dump.steps(6, elements, {0, 3, 8}, 30);
    WrittenDump other;
    other.steps(6, {1, 2'000'000}, {0, 3}, 30);
    CHECK(contains(error_of({dump.log("a"), other.log("b")}), "b: expected the all-reduces of a"));
    // A clock that does not go on.
    WrittenDump still;
    still.steps(6, elements, {0, 3, 8}, 0);
    CHECK_FALSE(error_of({still.log()}).empty());
    WrittenDump nameless;
    nameless.steps(6, elements, {0, 3, 8}, 30);
    nameless.json().erase("pg_config");
    CHECK(contains(error_of({nameless.log()}), "--ranks"));
    LogImportRequest request;
    request.ranks = 3;
    CHECK(import_logs({nameless.log()}, request).ranks == 3);
    CHECK(import_logs({nameless.log(), nameless.log()}, {}).ranks == 2);
}

TEST_CASE("Ranks come apart by what is left once each one's clock is set right", "[import]") {
    // The second rank's clock is a second ahead; in every other step it is 4 ms later to all.
    WrittenDump first(2);
    WrittenDump second(2);
    for (int step = 0; step < 12; ++step) {
        first.steps(1, elements, {0, 3, 8}, 0, {}, 30.0 * step);
        second.steps(1, elements, {0, 3, 8}, 0, {}, 1000 + 30.0 * step + (step % 2 == 0 ? 0 : 4));
    }
    const LogImport imported = import_logs({first.log("a"), second.log("b")}, {});
    // The median offset lies in the middle, so each step is 2 ms off: one rank by +-1 ms from the
    // mean of both, which of two is a deviation of sqrt(1 + 1) = 1.414 ms, of a step of 30.
    CHECK(contains(findings_of(imported), "waits 2.000 ms for the last"));
    CHECK(imported.scenario["variation"]["rank_spread"].get<double>() ==
          Approx(0.0471).margin(1e-4));
    // By one clock the second is late by a second.
    LogImportRequest request;
    request.same_host = true;
    CHECK(contains(findings_of(import_logs({first.log("a"), second.log("b")}, request)),
                   "1004.000 ms at most"));
}

TEST_CASE("Where all ranks know durations, who waits least came last, and the wire is the least",
          "[import]") {
    WrittenDump first(2);
    WrittenDump second(2);
    first.steps(6, elements, {0, 3, 8}, 30, {1, 2, 4});
    second.steps(6, elements, {0, 3, 8}, 30, {3, 4, 6});
    const LogImport imported = import_logs({first.log("a"), second.log("b")}, {});
    CHECK(imported.buckets[2].wire_us == std::vector<double>(6, 4000));
    CHECK(contains(
        findings_of(imported),
        "before an all-reduce the first of 2 ranks waits 2.000 ms for the last on average"));
    CHECK(contains(findings_of(imported), "by its duration on each rank"));
    CHECK(contains(findings_of(imported), "(18 of 18 times) for a"));
    // Two of four ranks tell less: the shortest of all.
    WrittenDump some(4);
    some.steps(6, elements, {0, 3, 8}, 30, {1, 2, 4});
    some.json()["entries"][0]["duration_ms"] = 0.5;
    CHECK(import_logs({some.log()}, {}).buckets[0].wire_us == std::vector<double>{500});
}

}  // namespace bucketwise
