// `bucketwise bench training` as its users meet it.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "cli/shell/csv.h"
#include "tests/catch.h"
#include "tests/cli/process.h"
#include "tests/contains.h"
#include "tests/hw/gloo/gloo_ranks.h"

namespace bucketwise {
namespace {

using Json = nlohmann::json;
using testing::contains;

const std::string program = BUCKETWISE_BINARY;
const std::string scenario = std::string(BUCKETWISE_SCENARIO_DIR) + "/training_small.json";
const std::string published = std::string(BUCKETWISE_SCENARIO_DIR) + "/published/training_loop.csv";

Words bench(const Words& options) {
    return Words{program, "bench", "training"} + options;
}

const Words small{"--layers",       "24,16", "--classes",    "4",   "--samples",      "101",
                  "--batch",        "4",     "--epochs",     "2",   "--test-samples", "20",
                  "--accumulation", "2",     "--bucket-cap", "1KiB"};

TEST_CASE("ranks train, and both implementations learn the same bits on two of them") {
    const Outcome outcome = run(bench(small + Words{"--ranks", "2", "--format", "csv"}));
    CHECK(outcome.errors.empty());
    REQUIRE(outcome.exit_code == 0);
    const CsvFile file = CsvFile::parse(outcome.output, "output");
    REQUIRE(file.rows() == 4);
    for (std::size_t row = 0; row < 4; ++row) {
        CHECK(file.text(row, "implementation") == (row < 2 ? "ddp" : "reference"));
        CHECK(file.text(row, "strategy") == (row < 2 ? "ddp" : "flat"));
        CHECK(file.number(row, "rank") == static_cast<double>(row % 2));
        CHECK(file.number(row, "time_s") > 0);
        CHECK(file.number(row, "simulated_time_s") > 0);
        CHECK(file.number(row, "max_memory_bytes") ==
              file.number(row, "simulated_max_memory_bytes"));
        CHECK(file.number(row, "process_peak_bytes") > file.number(row, "max_memory_bytes"));
        CHECK(file.text(row, "loss") == file.text(0, "loss"));
        CHECK(file.text(row, "accuracy") == file.text(0, "accuracy"));
    }
    // The simulation is of a whole run: 2 epochs of 101 samples, 16 a step, are 2 x 7 steps.
    CHECK(file.number(0, "simulated_time_s") > 6 * file.number(0, "simulated_step_ms") / 1e3);
}

TEST_CASE("training learns, and says how much after each epoch") {
    const Outcome outcome = run(bench(Words{
        "--ranks", "3", "--layers", "48,32", "--classes", "3", "--samples", "200", "--batch", "5",
        "--epochs", "5", "--implementations", "ddp", "--strategy", "overlap", "--format", "json"}));
    REQUIRE(outcome.exit_code == 0);
    const Json report = Json::parse(outcome.output);
    const std::vector<double> losses = report["epoch_losses"]["ddp"];
    REQUIRE(losses.size() == 5);
    // Three classes that cannot be told apart cost log 3.
    CHECK(losses[0] < 1.5 * std::log(3));
    CHECK(losses[4] < 0.5 * losses[0]);
    CHECK(report["rows"].size() == 3);
    CHECK(report["rows"][0]["accuracy"] > 0.6);
    CHECK(report["rows"][0]["strategy"] == "overlap");
}

TEST_CASE("a run is simulated without hardware, and the standard scenario is the one that ships") {
    const Outcome standard = run(bench({"--simulate", "--format", "csv"}));
    REQUIRE(standard.exit_code == 0);
    CHECK(run(bench({scenario, "--simulate", "--format", "csv"})).output == standard.output);
    const CsvFile file = CsvFile::parse(standard.output, "output");
    CHECK(file.text(0, "time_s").empty());
    CHECK(file.text(0, "loss").empty());
    CHECK(file.number(0, "simulated_time_s") > 0);
    CHECK(file.number(2, "simulated_time_s") > file.number(0, "simulated_time_s"));
    const auto first_time = [&](const Words& options) {
        const Outcome outcome = run(bench(Words{"--simulate", "--format", "csv"} + options));
        return CsvFile::parse(outcome.output, "output").number(0, "simulated_time_s");
    };
    const double standard_s = file.number(0, "simulated_time_s");
    CHECK(std::fabs(first_time({"--epochs", "8"}) - 2 * standard_s) < 1e-6 * standard_s);
    CHECK(first_time({"--set", "/cluster/link/segments/0/bandwidth_gb_per_s=0.01"}) > standard_s);
}

TEST_CASE("views save a copy of all gradients, in the model and in memory") {
    const auto bytes = [&](const Words& options) {
        const Outcome outcome = run(bench(small + options + Words{"--format", "csv"}));
        REQUIRE(outcome.exit_code == 0);
        const CsvFile file = CsvFile::parse(outcome.output, "output");
        CHECK(file.number(0, "memory_error_percent") == 0);
        return file.number(0, "max_memory_bytes");
    };
    // 24 x 16 + 16 + 16 x 4 + 4 floats: 1536, 64, 256 and 16 bytes, the last up to 64; and 64 more.
    CHECK(bytes({}) - bytes({"--set", "/sync/views=true"}) == 1536 + 64 + 256 + 64 + 64);
}

TEST_CASE("published results stand beside ours, with what can be compared and what cannot") {
    const Outcome outcome =
        run(bench({"--simulate", "--published", published, "--format", "json"}));
    REQUIRE(outcome.exit_code == 0);
    const Json report = Json::parse(outcome.output);
    CHECK(report["rows"][0]["published_implementation"] == "pytorch");
    CHECK(report["rows"][0]["published_time_s"] == 29.227);
    CHECK(report["rows"][3]["published_implementation"] == "selfmade");
    CHECK(report["rows"][3]["published_max_memory_bytes"] == 170098688.0);
    std::string notes;
    for (const Json& note : report["notes"]) {
        notes += note.get<std::string>() + "\n";
    }
    // 29.632 / 29.279, and 174062592 - 170099200.
    CHECK(contains(notes, "published 1.012"));
    CHECK(contains(notes, "published 3963392 bytes"));
    CHECK(contains(notes, "another model"));
}

std::ptrdiff_t threads_of(const ProcessId& process) {
    std::error_code ended;
    const std::filesystem::directory_iterator threads(
        "/proc/" + std::to_string(process.number) + "/task", ended);
    return ended ? 0 : std::distance(begin(threads), end(threads));
}

TEST_CASE("a rank that is killed while training is named, and no rank is left") {
    Process launcher(
        bench({"--ranks", "3", "--epochs", "100000", "--layers", "64,64", "--samples", "512"}));
    REQUIRE(
        wait_until([&] { return ranks_of(launcher.pid()).size() == 3 || launcher.has_ended(); }));
    const std::vector<ProcessId> ranks = ranks_of(launcher.pid());
    REQUIRE(ranks.size() == 3);
    // One thread computes, one communicates, one is Gloo's: they are connected.
    REQUIRE(wait_until([&] {
        return launcher.has_ended() ||
               std::all_of(ranks.begin(), ranks.end(),
                           [](const ProcessId& rank) { return threads_of(rank) >= 3; });
    }));
    const auto victim = std::find_if(ranks.begin(), ranks.end(), [](const ProcessId& rank) {
        return variable_of(rank, "RANK") == "1";
    });
    REQUIRE(victim != ranks.end());
    ::kill(victim->number, SIGKILL);
    CHECK(launcher.wait() == 1);
    CHECK(contains(launcher.errors(), "rank 1 was killed by signal 9 (Killed)"));
    CHECK(launcher.output().empty());
    for (const ProcessId& rank : ranks) {
        CHECK_FALSE(is_alive(rank));
    }
}

TEST_CASE("what cannot be trained is refused with 2 and one line") {
    const TestFolder folder;
    const std::string bad = folder.file("bad.csv");
    write_file(bad, "implementation,rank,time_s,max_memory_bytes,loss,accuracy\nother,0,1,2,3,4\n");
    const std::vector<Words> lines{
        {"--layers", "0"},
        {"--layers", "768,"},
        {"--classes", "x"},
        {"--layers", "262144,262144"},
        {"--batch", "0"},
        {"--accumulation", "0"},
        {"--epochs", "0"},
        {"--samples", "0"},
        {"--samples", "10000000"},
        {"--test-samples", "-1"},
        {"--learning-rate", "nan"},
        {"--learning-rate", "0"},
        {"--seed", "-1"},
        {"--ranks", "0"},
        {"--ranks", "251"},
        {"--implementations", "ddp,other"},
        {"--implementations", ""},
        {"--strategy", "none"},
        {"--bucket-cap", "0MiB"},
        {"--format", "xml"},
        {"--backend", "mpi"},
        {"--published", folder.file("none.csv")},
        {"--simulate", "--published", bad},
        {"--published", bad},
        {"--set", "/step/optimizer=adam"},
        {"--set", "/step/cuda_graph=true", "--set", "/workload/device=A100"},
        {"--set", "/sync/fused_copies=true"},
        {"--set", "/sync/find_unused_parameters=true"},
        {"--set", "/workload/dtype=float64", "--set", "/workload/device=A100"},
        {"--set", "/workload/model=resnet18"},
        {"--set", "/workload/model/layers=[3]"},
        {"--set", "/workload/image_size=64"},
        {"--simulate", "--link-rate", "1gbit"},
        {"--store", "/tmp"},
        {"--no-such-option"},
        {std::string(BUCKETWISE_SCENARIO_DIR) + "/two_buckets.json"},
        {std::string(BUCKETWISE_SCENARIO_DIR) + "/two_buckets.json", "--layers", "3,4"},
        {"none.json"}};
    for (const Words& line : lines) {
        std::string text;
        for (const std::string& word : line) {
            text += word + " ";
        }
        INFO(text);
        const Outcome outcome = run(bench(line));
        CHECK(outcome.exit_code == 2);
        CHECK(outcome.output.empty());
        check_one_line(outcome.errors);
    }
}

TEST_CASE("bench training --help explains itself") {
    const Outcome outcome = run(bench({"--help"}));
    CHECK(outcome.exit_code == 0);
    CHECK(contains(outcome.output, "usage: bucketwise bench training [SCENARIO] [OPTIONS]"));
    CHECK(contains(outcome.output, "--implementations"));
}

}  // namespace
}  // namespace bucketwise
