// The program itself on emulated GPUs: real processes that are launched, share a GPU, are killed,
// and whose measurements are calibrated and predicted with.
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tests/catch.h"
#include "tests/cli/process.h"
#include "tests/cli/sharded_scenario_text.h"
#include "tests/contains.h"
#include "tests/hw/gloo/gloo_ranks.h"

namespace bucketwise {
namespace {

using Json = nlohmann::json;
using testing::contains;

const std::string program = BUCKETWISE_EMULATED_BINARY;
const std::string two_buckets = std::string(BUCKETWISE_SCENARIO_DIR) + "/two_buckets.json";

Words measure(const std::string& file, const Words& options = {}) {
    return Words{program, "measure", two_buckets, "--backend", "nccl", "-o", file} + options;
}

std::vector<Json> records_in(const std::string& file) {
    std::ifstream lines(file);
    std::vector<Json> records;
    for (std::string line; std::getline(lines, line);) {
        records.push_back(Json::parse(line));
    }
    return records;
}

std::map<std::string, int> kinds_of(const std::vector<Json>& records) {
    std::map<std::string, int> kinds;
    for (const Json& record : records) {
        ++kinds[record["kind"].get<std::string>()];
    }
    return kinds;
}

TEST_CASE("measure runs every protocol on two GPUs, and its records say so", "[program]") {
    const TestFolder folder;
    const std::string file = folder.file("m.jsonl");
    const Outcome outcome =
        run(measure(file, {"--ranks", "2", "--rounds", "2", "--bytes", "4KiB,64KiB"}));
    CHECK(outcome.errors.empty());
    REQUIRE(outcome.exit_code == 0);
    CHECK(contains(outcome.output, "over nccl; Emulated GPU"));
    const std::vector<Json> records = records_in(file);
    // Two rounds: two messages, a line for each of two ranks, two messages by three numbers of
    // thread blocks, two caps and the default.
    CHECK(kinds_of(records) == std::map<std::string, int>{{"environment", 1},
                                                          {"allreduce", 2 * 2},
                                                          {"compute", 2 * 2},
                                                          {"contention", 2 * 2 * 3},
                                                          {"step", 2 * 3}});
    CHECK(contains(records[0]["gpu"], "Emulated GPU, "));
    CHECK(contains(records[0]["libraries"], "NCCL 2.28.9, cuBLAS 13."));
    std::map<int, int> by_ctas;
    for (const Json& record : records) {
        CHECK(record["backend"] == "nccl");
        CHECK_FALSE(record.contains("shared_gpu"));
        if (record["kind"] == "contention") {
            ++by_ctas[record["ctas"].get<int>()];
            CHECK(record["products_alone_us"].size() == 2);
        } else if (record["kind"] == "compute") {
            CHECK(record["backward_launches_us"].size() == record["backward_operations_us"].size());
            CHECK(record["copies_us"].is_number());
        } else if (record["kind"] == "allreduce") {
            CHECK(record["issue_us"].size() == record["samples_us"].size());
        }
    }
    CHECK(by_ctas == std::map<int, int>{{2, 4}, {8, 4}, {32, 4}});
}

TEST_CASE("ranks share a GPU only when told to, and then every record says so", "[program]") {
    const TestFolder folder;
    const std::string file = folder.file("m.jsonl");
    const Surroundings one_gpu{.variables = {{"EMULATED_GPUS", "1"}}};
    const Words options{"--ranks", "2", "--rounds", "2", "--bytes", "4KiB,64KiB,1MiB"};
    const Outcome refused = run(measure(file, options), one_gpu);
    CHECK(refused.exit_code == 1);
    CHECK(contains(refused.errors,
                   "ranks 0 and 1 have the same GPU: expected one for each rank, or --share-gpu"));

    const std::string shared = folder.file("shared.jsonl");
    const Outcome outcome = run(measure(shared, options + Words{"--share-gpu"}), one_gpu);
    CHECK(outcome.errors.empty());
    REQUIRE(outcome.exit_code == 0);
    CHECK(contains(outcome.output, "shared by all ranks"));
    for (const Json& record : records_in(shared)) {
        CHECK(record["shared_gpu"] == true);
    }
    const std::string link = folder.file("link.json");
    REQUIRE(run({program, "calibrate", shared, "-o", link}).exit_code == 0);
    const Json fitted = Json::parse(text_of_file(link));
    CHECK(contains(fitted["name"], "shared GPU, not an interconnect"));
    CHECK(fitted["ctas"] == 4);
    CHECK(run({program, "predict", two_buckets, "--link", link}).exit_code == 0);
}

TEST_CASE("sharded steps on GPUs are measured, calibrated and compared", "[program]") {
    struct Strategy {
        std::string sync;
        std::string ranks;
        std::string settings;  // besides the scenario's own
        int kinds;             // of collectives
    };
    const TestFolder folder;
    const std::string scenario = folder.file("sharded.json");
    write_file(scenario, sharded_scenario_text);
    // One round: two sizes of each kind, the larger with contention by three numbers of thread
    // blocks; as many ranks; two settings.
    for (const Strategy& strategy : std::vector<Strategy>{
             {R"({"strategy": "fsdp"})", "2", "2,1", 2},
             {R"({"strategy": "hsdp", "sharding": {"shard_ranks": 2}})", "4", "2,1", 3},
             {R"({"strategy": "zero3", "sharding": {"param_persistence_threshold": 10}})", "2",
              "0,50000000", 2}}) {
        const Surroundings gpus{.variables = {{"EMULATED_GPUS", strategy.ranks}}};
        const std::string file = folder.file("m" + std::to_string(strategy.sync.size()) + ".jsonl");
        const Outcome outcome =
            run({program, "measure", scenario, "--backend", "nccl", "-o", file, "--set",
                 "/sync=" + strategy.sync, "--ranks", strategy.ranks, "--rounds", "1", "--bytes",
                 "4KiB,64KiB", "--sharding", strategy.settings},
                gpus);
        INFO(strategy.sync << outcome.errors);
        REQUIRE(outcome.exit_code == 0);
        CHECK(contains(outcome.output, "every sum is right"));
        const std::vector<Json> records = records_in(file);
        std::map<std::string, int> expected{{"environment", 1},
                                            {"allgather", 2},
                                            {"reducescatter", 2},
                                            {"compute", std::stoi(strategy.ranks)},
                                            {"contention", 3 * strategy.kinds},
                                            {"step", 2}};
        if (strategy.kinds == 3) {
            expected["allreduce"] = 2;
        }
        CHECK(kinds_of(records) == expected);
        for (const Json& record : records) {
            const std::string kind = record["kind"];
            if (kind == "allgather" || kind == "reducescatter" || kind == "allreduce") {
                CHECK(record["ranks"] == 2);
            }
        }
        const std::string calibrated = folder.file("calibrated.json");
        const Outcome fitted = run({program, "calibrate", file, "-o", folder.file("link.json"),
                                    "--scenario-output", calibrated});
        CHECK(fitted.exit_code == 0);
        CHECK_FALSE(contains(fitted.output, "no contention was measured"));
        // Copies of stage 3 are within collectives.
        const bool tells_copies = !contains(strategy.sync, "zero3");
        CHECK(contains(fitted.output, "copies of buckets: ") == tells_copies);
        CHECK(contains(fitted.output, "copies in stage 3's collectives is unknown") !=
              tells_copies);
        const std::string compared = folder.file("compared.json");
        CHECK(run({program, "compare", calibrated, "--measurements", file, "-o", compared})
                  .exit_code == 0);
        CHECK(Json::parse(text_of_file(compared))["points"].size() == 2);
    }
}

TEST_CASE("a machine without GPUs is told so", "[program]") {
    const TestFolder folder;
    const Outcome outcome = run(measure(folder.file("m.jsonl"), {"--ranks", "2"}),
                                {.variables = {{"EMULATED_GPUS", "0"}}});
    CHECK(outcome.exit_code == 1);
    CHECK(contains(outcome.errors, "this machine shows no GPU"));
}

TEST_CASE("more ranks than GPUs are refused with both numbers", "[program]") {
    const TestFolder folder;
    const Outcome outcome = run(measure(folder.file("m.jsonl"), {"--ranks", "4"}),
                                {.variables = {{"EMULATED_GPUS", "3"}}});
    CHECK(outcome.exit_code == 1);
    CHECK(contains(outcome.errors, "expected a GPU for each of the 4 ranks on this machine"));
    CHECK(contains(outcome.errors, "got 3 GPUs"));
}

TEST_CASE("a step can run as one CUDA graph", "[program]") {
    const TestFolder folder;
    const std::string file = folder.file("m.jsonl");
    const Outcome outcome = run(measure(file, {"--ranks", "2", "--rounds", "1", "--protocols",
                                               "compute,steps", "--set", "/step/cuda_graph=true"}));
    CHECK(outcome.errors.empty());
    REQUIRE(outcome.exit_code == 0);
    for (const Json& record : records_in(file)) {
        if (record["kind"] == "compute") {
            CHECK(record["graph_launch_us"].is_number());
            CHECK_FALSE(record.contains("backward_launches_us"));
        }
    }
    const Outcome on_cpu = run({program, "measure", two_buckets, "-o", folder.file("c.jsonl"),
                                "--set", "/step/cuda_graph=true"});
    CHECK(on_cpu.exit_code == 2);
    CHECK(contains(on_cpu.errors, "/step/cuda_graph: expected false, or --backend nccl"));
}

TEST_CASE("validate measures, fits and compares on GPUs", "[program]") {
    const TestFolder folder;
    const Outcome outcome =
        run({program, "validate", two_buckets, "--backend", "nccl", "--ranks", "2", "--rounds", "3",
             "--bytes", "4KiB,64KiB,1MiB,4MiB", "-o", folder.file("v")});
    REQUIRE(outcome.exit_code == 0);
    const Json comparison = Json::parse(text_of_file(folder.file("v/comparison.json")));
    CHECK(comparison["points"].size() == 3);
    CHECK(comparison["mape"].is_number());
    CHECK(comparison["regret"].is_number());
    CHECK(contains(text_of_file(folder.file("v/report.md")), "nccl"));
}

TEST_CASE("prove measures, validates and packs what two GPUs can show", "[program]") {
    const TestFolder folder;
    const Words prove{program, "prove", two_buckets,          "--backend",
                      "nccl",  "-o",    folder.file("proof"), "--time",
                      "60s"};
    const Outcome outcome = run(prove);
    REQUIRE(outcome.exit_code == 0);
    const std::string summary = text_of_file(folder.file("proof/summary.txt"));
    for (const char* part : {"two_gpus", "compute", "allreduce", "validation"}) {
        INFO(part);
        const auto at = summary.find(std::string("\n") + part + " ");
        REQUIRE(at != std::string::npos);
        CHECK(contains(summary.substr(at, 36), " done"));
    }
    CHECK(contains(summary, "gpu_tests") ==
          std::filesystem::exists(std::filesystem::path(program).parent_path() /
                                  "bucketwise_gpu_tests"));
    CHECK(contains(text_of_file(folder.file("proof/rows.csv")), ",Emulated GPU,2,"));
    CHECK(std::filesystem::file_size(folder.file("proof.tar.gz")) > 10'000);
    CHECK(contains(outcome.output, "proof.tar.gz holds all of it"));

    const Outcome again = run(prove);
    CHECK(again.exit_code == 2);
    CHECK(contains(again.errors, "expected a new or empty folder, got one that holds files"));
    const Outcome unknown = run({program, "prove", "nowhere.json", "-o", folder.file("other")});
    CHECK(unknown.exit_code == 2);
    CHECK(contains(unknown.errors, "nowhere.json"));
    CHECK_FALSE(std::filesystem::exists(folder.file("other")));
}

TEST_CASE("bench allreduce prints nccl-tests' columns for GPUs", "[program]") {
    const Outcome outcome =
        run({program, "bench", "allreduce", "--backend", "nccl", "--ranks", "2", "--bytes",
             "4KiB,64KiB", "--rounds", "2", "--format", "nccl-tests"});
    CHECK(outcome.errors.empty());
    REQUIRE(outcome.exit_code == 0);
    CHECK(contains(outcome.output, "device  1 [gpu] Emulated GPU\n"));
    CHECK(contains(outcome.output, "        4096          1024     float     sum      -1"));
}

TEST_CASE("bench syncbn times a synchronised layer on GPUs, and its memory is that on a CPU") {
    const Outcome outcome =
        run({program, "bench", "syncbn", "--backend", "nccl", "--ranks", "2", "--batch", "32",
             "--width", "128", "--rounds", "2", "--iterations", "2", "--format", "json"});
    CHECK(outcome.errors.empty());
    REQUIRE(outcome.exit_code == 0);
    const Json report = Json::parse(outcome.output);
    CHECK(contains(report["hardware"], "Emulated GPU"));
    REQUIRE(report["rows"].size() == 2);
    for (const Json& row : report["rows"]) {
        CHECK(row["samples"] == 4);
        CHECK(row["median_s"] > 0.0);
        CHECK(row["max_memory_bytes"] == 71'168);  // derived in gpu_batch_norm_test.cpp
    }
}

TEST_CASE("what NCCL or Gloo cannot do is refused with 2 and one line", "[program]") {
    const TestFolder folder;
    const std::string file = folder.file("m.jsonl");
    const auto check_refused = [&](const Words& words, const std::string& text,
                                   const Surroundings& surroundings = {}) {
        const Outcome outcome = run(words, surroundings);
        CHECK(outcome.exit_code == 2);
        check_one_line(outcome.errors);
        CHECK(contains(outcome.errors, text));
        CHECK_FALSE(std::filesystem::exists(file));
    };
    check_refused(measure(file, {"--all-reduce", "ring"}), "--backend: expected gloo");
    check_refused(measure(file, {"--ctas", "0"}), "--ctas: expected");
    check_refused(measure(file, {"--contention-ctas", "2,many"}), "--contention-ctas: expected");
    check_refused(measure(file), "environment: /NCCL_MAX_CTAS: expected none",
                  {.variables = {{"NCCL_MAX_CTAS", "2"}}});
    const Words on_cpu{program, "measure", two_buckets, "-o", file};
    check_refused(on_cpu + Words{"--share-gpu"}, "--share-gpu: expected --backend nccl");
    check_refused(on_cpu + Words{"--ctas", "4"}, "--ctas: expected --backend nccl");
    check_refused(on_cpu + Words{"--contention-ctas", "4"},
                  "--contention-ctas: expected --backend nccl");
    check_refused(on_cpu + Words{"--backend", "mpi"}, "--backend: expected gloo or nccl");
    check_refused({program, "bench", "allreduce", "--backend", "nccl", "--algorithms", "ring"},
                  "--backend: expected gloo");
}

// --- failures ------------------------------------------------------------------------------------

TEST_CASE("a rank on a GPU that is killed is named, the others end, and the file keeps its lines",
          "[program]") {
    const TestFolder folder;
    const std::string file = folder.file("m.jsonl");
    Process launcher(measure(file, {"--ranks", "3", "--rounds", "100000", "--protocols", "steps",
                                    "--bucket-cap", "1MiB"}));
    REQUIRE(wait_until([&] { return records_in(file).size() >= 4 || launcher.has_ended(); }));
    const std::vector<ProcessId> ranks = ranks_of(launcher.pid());
    REQUIRE(ranks.size() == 3);
    const auto victim = std::find_if(ranks.begin(), ranks.end(), [](const ProcessId& rank) {
        return variable_of(rank, "RANK") == "2";
    });
    REQUIRE(victim != ranks.end());
    ::kill(victim->number, SIGKILL);
    CHECK(launcher.wait() == 1);
    CHECK(contains(launcher.errors(), "rank 2 was killed by signal 9 (Killed)"));
    for (const ProcessId& rank : ranks) {
        CHECK_FALSE(is_alive(rank));
    }
}

// As torchrun starts them: no launcher of ours watches.
std::map<std::string, std::string> torchrun_variables(int rank) {
    return {{"RANK", std::to_string(rank)},
            {"WORLD_SIZE", "2"},
            {"LOCAL_RANK", std::to_string(rank)},
            {"LOCAL_WORLD_SIZE", "2"},
            {"TORCHELASTIC_RUN_ID", "job"}};
}

TEST_CASE("ranks that torchrun started exchange NCCL's id, each on the GPU of its number",
          "[program]") {
    const TestFolder folder;
    const TestFolder store;
    const auto command = [&](int rank) {
        return measure(folder.file(std::to_string(rank) + ".jsonl"),
                       {"--rounds", "2", "--protocols", "steps,allreduce", "--bytes", "4KiB",
                        "--store", store.path()});
    };
    Process first(command(0), {.variables = torchrun_variables(0)});
    Process second(command(1), {.variables = torchrun_variables(1)});
    CHECK(first.wait() == 0);
    CHECK(second.wait() == 0);
    CHECK(first.errors().empty());
    CHECK(second.errors().empty());
    CHECK(kinds_of(records_in(folder.file("0.jsonl")))["step"] == 2 * 3);
    CHECK_FALSE(std::filesystem::exists(folder.file("1.jsonl")));
}

TEST_CASE("without a launcher that watches, a killed rank still ends the other with a cause",
          "[program]") {
    const TestFolder folder;
    const TestFolder store;
    const auto command = [&](int rank) {
        return measure(folder.file(std::to_string(rank) + ".jsonl"),
                       {"--rounds", "100000", "--protocols", "steps", "--bucket-cap", "1MiB",
                        "--deadline", "20", "--store", store.path()});
    };
    Process first(command(0), {.variables = torchrun_variables(0)});
    Process second(command(1), {.variables = torchrun_variables(1)});
    REQUIRE(wait_until([&] { return records_in(folder.file("0.jsonl")).size() >= 4; }));
    second.send(SIGKILL);
    const auto begin = std::chrono::steady_clock::now();
    CHECK(first.wait() == 1);
    CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds{30});
    check_one_line(first.errors());
    CHECK(contains(first.errors(), "rank 0: "));
}

}  // namespace
}  // namespace bucketwise
