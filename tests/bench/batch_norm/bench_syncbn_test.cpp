// `bucketwise bench syncbn` as its users meet it: simulated, on real ranks, and beside what was
// published.
#include <cmath>
#include <sstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "cli/shell/csv.h"
#include "tests/cli/process.h"

namespace bucketwise {
namespace {

using Json = nlohmann::json;

const std::string scenarios = BUCKETWISE_SCENARIO_DIR;
const std::string machine = scenarios + "/syncbn_a4000.json";
const std::string published = scenarios + "/published/syncbn.csv";

Words bench(const Words& options) {
    return Words{BUCKETWISE_BINARY, "bench", "syncbn"} + options;
}

Outcome run_well(const Words& options) {
    Outcome outcome = run(bench(options));
    INFO(outcome.errors);
    REQUIRE(outcome.exit_code == 0);
    CHECK(outcome.errors.empty());
    return outcome;
}

CsvFile table_of(const Words& options) {
    return CsvFile::parse(run_well(options + Words{"--format", "csv"}).output, "output");
}

// The table scatters: the same system's medians lie up to 24 % apart over widths, which change
// nothing that takes time. Each system's mean is what a model can meet.
TEST_CASE("simulated, the published table is met: memory to the byte, times within their scatter") {
    const CsvFile table = table_of({machine, "--simulate", "--published", published});
    const CsvFile expected = CsvFile::read(published);
    REQUIRE(table.rows() == 8);
    REQUIRE(expected.rows() == 8);
    double sums[2][2] = {};
    for (std::size_t row = 0; row < 8; ++row) {
        for (const char* column :
             {"implementation", "batch_size", "hidden_dim", "max_memory_bytes"}) {
            CHECK(table.text(row, column) == expected.text(row, column));
        }
        CHECK(table.number(row, "max_memory_error_percent") == 0.0);
        CHECK(std::abs(table.number(row, "median_error_percent")) < 16);
        CHECK(table.number(row, "published_median_s") == expected.number(row, "median_s"));
        const std::size_t system = table.text(row, "implementation") == "pytorch" ? 0 : 1;
        sums[system][0] += table.number(row, "median_s");
        sums[system][1] += expected.number(row, "median_s");
    }
    CHECK(std::abs(sums[0][0] / sums[0][1] - 1) < 0.03);
    CHECK(std::abs(sums[1][0] / sums[1][1] - 1) < 0.03);
}

TEST_CASE("what is simulated follows the scenario's machine, ranks and rows") {
    const auto seconds = [&](const Words& options) {
        return table_of(
                   Words{machine, "--simulate", "--implementations", "gather", "--width", "256"} +
                   options)
            .number(0, "median_s");
    };
    const double plain = seconds({});
    CHECK(seconds({"--set", "/workload/device/launch_us=29"}) > plain);
    CHECK(plain < 1e-3);
    CHECK(seconds({"--set", "/cluster/link/launch_us=1000"}) > 2e-3);  // two collectives
    CHECK(seconds({"--ranks", "64"}) > plain);
    CHECK(seconds({"--batch", "65536"}) > plain);
    CHECK(seconds({"--passes", "forward"}) < plain);
}

TEST_CASE("on real ranks both layers are timed and counted, and every format says so") {
    const Words options{"--ranks", "2",        "--batch", "4,0",          "--width",
                        "16",      "--rounds", "2",       "--iterations", "3"};
    const CsvFile csv = table_of(options);
    REQUIRE(csv.rows() == 4);
    for (std::size_t row = 0; row < csv.rows(); ++row) {
        CHECK(csv.text(row, "implementation") == (row < 2 ? "gather" : "fused"));
        CHECK(csv.number(row, "batch_size") == (row % 2 == 0 ? 4 : 0));
        CHECK(csv.number(row, "samples") == 6);
        CHECK(csv.number(row, "median_s") > 0);
        CHECK(csv.number(row, "p10_s") <= csv.number(row, "median_s"));
        CHECK(csv.number(row, "p90_s") >= csv.number(row, "median_s"));
        // Every tensor is one block of 512 bytes: input, output and both gradients, unless they
        // have no elements; and weight, bias, two running, mean, deviation, rows, two gradients
        // and the sums.
        CHECK(csv.number(row, "max_memory_bytes") == (row % 2 == 0 ? 14 * 512 : 10 * 512));
    }
    const Json json = Json::parse(run_well(options + Words{"--format", "json"}).output);
    CHECK(json["rows"].size() == 4);
    CHECK(json["ranks"] == 2);
    CHECK(json["libraries"].get<std::string>().find("Gloo") != std::string::npos);
    const std::string text = run_well(options).output;
    CHECK(text.find("SyncBatchNorm layer, float32, 2 ranks") != std::string::npos);
    CHECK(text.find("the slowest rank's times") != std::string::npos);
}

TEST_CASE("measured, simulated and published stand side by side") {
    const CsvFile table =
        table_of({machine, "--simulate", "--backend", "gloo", "--published", published, "--width",
                  "128", "--rounds", "1", "--iterations", "2", "--passes", "forward"});
    REQUIRE(table.rows() == 2);
    for (std::size_t row = 0; row < 2; ++row) {
        CHECK(table.number(row, "simulated_s") > 0);
        CHECK(table.number(row, "simulated_memory_bytes") == table.number(row, "max_memory_bytes"));
        CHECK(table.text(row, "published_implementation") == (row == 0 ? "pytorch" : "selfmade"));
    }
    CHECK(table.number(0, "published_max_memory_bytes") == 41'984);
}

TEST_CASE("what bench syncbn cannot do is refused with 2 and one line") {
    const auto check_refused = [](const Words& options, const std::string& text) {
        const Outcome outcome = run(bench(options));
        CHECK(outcome.exit_code == 2);
        check_one_line(outcome.errors);
        INFO(outcome.errors);
        CHECK(outcome.errors.find(text) != std::string::npos);
        CHECK(outcome.output.empty());
    };
    check_refused({"--simulate"}, "expected a scenario, whose device, ranks and link");
    check_refused({machine}, "--scenario has no effect without --simulate");
    check_refused({"--set", "/a=1"}, "--set has no effect without --simulate");
    check_refused({machine, "--simulate", "--rounds", "3"}, "--rounds has no effect where");
    check_refused({machine, "--simulate", "--link-rate", "1gbit"}, "--link-rate has no effect");
    check_refused({"--strategy", "flat"}, "strategy");
    check_refused({scenarios + "/two_buckets.json", "--simulate"},
                  "/workload/device: expected a device to simulate, with a float32 peak, got none");
    check_refused({"--implementations", "pytorch"}, "--implementations: expected gather or fused");
    check_refused({"--implementations", "mine"},
                  "--implementations: expected one of gather, fused");
    check_refused({"--batch", "-1"}, "--batch: expected a whole number from 0");
    check_refused({"--batch", "3,"}, "--batch: expected a whole number");
    check_refused({"--width", "0"}, "--width: expected a whole number from 1");
    check_refused({"--batch", "4194304", "--width", "1048576"}, "at most 2^30 elements");
    check_refused({"--ranks", "0"}, "--ranks: expected a whole number from 1");
    check_refused({"--ranks", "251"}, "--ranks: expected a whole number from 1 to 250");
    check_refused({"--passes", "backward"}, "--passes: expected one of forward, both");
    check_refused({"--format", "xml"}, "--format: expected one of text, csv, json");
    check_refused({"--rounds", "0"}, "--rounds: expected");
    check_refused({"--iterations", "many"}, "--iterations: expected");
    check_refused({"--backend", "mpi"}, "--backend: expected gloo or nccl");
    check_refused({"--published", "/nowhere.csv"}, "/nowhere.csv");
    check_refused({machine, "--simulate", "--published", machine}, "syncbn_a4000.json");
}

TEST_CASE("a rank that is killed ends the benchmark with its name") {
    Process launcher(bench({"--ranks", "3", "--rounds", "1000000", "--iterations", "1000"}));
    std::vector<ProcessId> ranks;
    const auto is_victim = [](const ProcessId& rank) { return variable_of(rank, "RANK") == "1"; };
    REQUIRE(wait_until([&] {
        ranks = ranks_of(launcher.pid());
        return (ranks.size() == 3 && std::any_of(ranks.begin(), ranks.end(), is_victim)) ||
               launcher.has_ended();
    }));
    const auto victim = std::find_if(ranks.begin(), ranks.end(), is_victim);
    REQUIRE(victim != ranks.end());
    ::kill(victim->number, SIGKILL);
    CHECK(launcher.wait() == 1);
    CHECK(launcher.errors().find("rank 1 was killed by signal 9 (Killed)") != std::string::npos);
    CHECK(launcher.output().empty());
    for (const ProcessId& rank : ranks) {
        CHECK_FALSE(is_alive(rank));
    }
}

}  // namespace
}  // namespace bucketwise
