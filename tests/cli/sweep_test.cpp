// bucketwise sweep as its users meet it.
#include <algorithm>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tests/catch.h"
#include "tests/cli/process.h"

namespace bucketwise {
namespace {

const std::string resnet50 = std::string(BUCKETWISE_SCENARIO_DIR) + "/resnet50_8xh100.json";

Outcome sweep(const Words& more) {
    return run(Words{BUCKETWISE_BINARY, "sweep"} + more);
}

std::vector<nlohmann::json> rows_in(const std::string& text) {
    std::vector<nlohmann::json> rows;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        rows.push_back(nlohmann::json::parse(line));
    }
    return rows;
}

TEST_CASE("a sweep gives a row per point as a hand computes it", "[sweep_command]") {
    const Outcome outcome = sweep({two_buckets, "--vary", "/workload/forward_ms=1,2", "--vary",
                                   "/sync/strategy=none,naive", "--vary", "/cluster/ranks=2"});
    REQUIRE(outcome.exit_code == 0);
    CHECK(outcome.errors.empty());
    const auto rows = rows_in(outcome.output);
    REQUIRE(rows.size() == 4);
    // Strategy none: 1 or 2 ms of forward and 3 of backward. Naive adds all-reduces of 2.197152 and
    // 1.148576 ms, all exposed.
    CHECK(rows[0] == nlohmann::json{{"index", 0},
                                    {"/workload/forward_ms", 1},
                                    {"/sync/strategy", "none"},
                                    {"/cluster/ranks", 2},
                                    {"bucket_cap_mib", nullptr},
                                    {"buckets", 0},
                                    {"step_ms", 4.0},
                                    {"forward_ms", 1.0},
                                    {"backward_ms", 3.0},
                                    {"exposed_communication_ms", 0.0}});
    CHECK(rows[1]["step_ms"] == 7.345728);
    CHECK(rows[1]["buckets"] == 2);
    CHECK(rows[1]["exposed_communication_ms"] == 3.345728);
    CHECK(rows[2]["step_ms"] == 5.0);
    CHECK(rows[3]["forward_ms"] == 2.0);
}

TEST_CASE("where rows go to a file, a sentence says where the step is shortest and longest",
          "[sweep_command]") {
    const TestFolder own;
    // Without communication: 1 or 2 ms of forward and 3 of backward.
    const std::string outcome =
        check_ends_well(sweep({two_buckets, "--vary", "/workload/forward_ms=2,1", "--set",
                               "/sync/strategy=none", "-o", own.file("rows.jsonl")}));
    CHECK(
        outcome ==
        "A step takes 4.00 ms at the best of 2 points (/workload/forward_ms=1) and 5.00 ms at the "
        "worst (/workload/forward_ms=2).\n");
    CHECK(rows_in(text_of_file(own.file("rows.jsonl"))).size() == 2);
}

TEST_CASE("without a key to vary a sweep has one row, predict's", "[sweep_command]") {
    const auto rows = rows_in(sweep({two_buckets}).output);
    REQUIRE(rows.size() == 1);
    // As tests/cli/predict_test.cpp derives it.
    CHECK(rows[0]["step_ms"] == 5.345728);
    CHECK(rows[0]["bucket_cap_mib"] == 25.0);
}

TEST_CASE("random points of a sweep are what predict --set says", "[sweep_command]") {
    const auto rows =
        rows_in(sweep({resnet50, "--vary", "/cluster/ranks=4..64:x2", "--vary",
                       "/workload/batch=16..64:+16", "--vary",
                       "/cluster/link/segments/2/bandwidth_gb_per_s=10..1000:x10", "--vary",
                       "/cluster/link/launch_us=5,50", "--bucket-cap", "3MiB"})
                    .output);
    REQUIRE(rows.size() == 120);  // 5 x 4 x 3 x 2
    for (const std::size_t point : {0U, 7U, 31U, 64U, 99U, 119U}) {
        Words words{BUCKETWISE_BINARY, "predict", resnet50, "--bucket-cap", "3MiB", "--json", "-"};
        for (const auto& [name, value] : rows[point].items()) {
            if (name.front() == '/') {
                words = words + Words{"--set", name + "=" + value.dump()};
            }
        }
        const auto best = nlohmann::json::parse(run(words).output)["best"];
        for (const char* column : {"bucket_cap_mib", "buckets", "step_ms", "forward_ms",
                                   "backward_ms", "exposed_communication_ms"}) {
            INFO(point << " " << column);
            CHECK(rows[point][column] == best[column]);
        }
    }
}

TEST_CASE("the number of jobs changes no byte, in either format", "[sweep_command]") {
    for (const std::string format : {"jsonl", "csv"}) {
        const Words words{resnet50,
                          "--vary",
                          "/cluster/link/segments/2/latency_us=0.1..50:+0.1",
                          "--vary",
                          "/sync/views=true,false",
                          "--vary",
                          "/cluster/link/segments/2/bandwidth_gb_per_s=100,200,300",
                          "--format",
                          format};
        const std::string one = sweep(words + Words{"--jobs", "1"}).output;
        REQUIRE(std::count(one.begin(), one.end(), '\n') == 3000 + (format == "csv" ? 1 : 0));
        CHECK(sweep(words + Words{"--jobs", "2"}).output == one);
        CHECK(sweep(words + Words{"--jobs", "7"}).output == one);
    }
}

TEST_CASE("shards one after another are the whole", "[sweep_command]") {
    TestFolder folder;
    for (const std::string format : {"jsonl", "csv"}) {
        const Words words{two_buckets, "--vary", "/cluster/ranks=2..11:+1", "--format", format};
        const std::string whole = sweep(words).output;
        for (const int shards : {3, 13}) {  // of the 13, three have no point
            std::string joined;
            for (int shard = 1; shard <= shards; ++shard) {
                const std::string file = folder.file("rows");
                const std::string part = std::to_string(shard) + "/" + std::to_string(shards);
                REQUIRE(sweep(words + Words{"--shard", part, "-o", file}).exit_code == 0);
                joined += text_of_file(file);
            }
            CHECK(joined == whole);
        }
    }
}

TEST_CASE("a CSV quotes what needs it and leaves out what is not", "[sweep_command]") {
    const Outcome outcome =
        sweep({two_buckets, "--vary", R"(/name="a,b","say ""x","plain")", "--format", "csv"});
    const Outcome fixed =
        sweep({two_buckets, "--vary", R"(/name="a,b",c)", "--format", "csv", "--strategy", "none"});
    CHECK(outcome.exit_code == 0);
    REQUIRE(fixed.exit_code == 0);
    CHECK(fixed.output ==
          "index,/name,bucket_cap_mib,buckets,step_ms,forward_ms,backward_ms,"
          "exposed_communication_ms\n"
          "0,\"a,b\",,0,4,1,3,0\n"
          "1,c,,0,4,1,3,0\n");
}

TEST_CASE("best finds each point's cap and what it gains over the default", "[sweep_command]") {
    const auto rows =
        rows_in(sweep({resnet50, "--vary", "/cluster/link/segments/2/bandwidth_gb_per_s=2,20",
                       "--bucket-cap", "best"})
                    .output);
    REQUIRE(rows.size() == 2);
    for (const auto& row : rows) {
        const std::string set = "/cluster/link/segments/2/bandwidth_gb_per_s=" +
                                row["/cluster/link/segments/2/bandwidth_gb_per_s"].dump();
        const auto prediction = nlohmann::json::parse(
            run({BUCKETWISE_BINARY, "predict", resnet50, "--set", set, "--json", "-"}).output);
        CHECK(row["bucket_cap_mib"] == prediction["best"]["bucket_cap_mib"]);
        CHECK(row["step_ms"] == prediction["best"]["step_ms"]);
        CHECK(row["default_step_ms"] == prediction["default"]["step_ms"]);
        CHECK(row["gain_ms"].get<double>() ==
              Approx(row["default_step_ms"].get<double>() - row["step_ms"].get<double>()));
    }
}

TEST_CASE("a range says where a step may lie if presets are off", "[sweep_command]") {
    const auto rows =
        rows_in(sweep({resnet50, "--vary", "/workload/batch=8,64", "--range"}).output);
    REQUIRE(rows.size() == 2);
    for (const auto& row : rows) {
        CHECK(row["low_step_ms"] < row["step_ms"]);
        CHECK(row["step_ms"] < row["high_step_ms"]);
    }
    const auto measured = rows_in(sweep({two_buckets, "--range"}).output);
    CHECK(measured.at(0)["low_step_ms"].is_null());
    const Outcome refused = sweep({resnet50, "--bucket-cap", "best", "--range"});
    CHECK(refused.exit_code == 2);
    CHECK(refused.errors ==
          "bucketwise: --range: expected one cap for every point, got --bucket-cap best\n");
}

TEST_CASE("a sweep with a point that is no scenario writes nothing", "[sweep_command]") {
    TestFolder folder;
    const std::string file = folder.file("rows");
    write_file(file, "what was there");
    // Each value is fine on its own; 16 ranks of 8 per node, or 12 of 4, but not 12 of 8.
    const std::string hierarchical = std::string(BUCKETWISE_SCENARIO_DIR) + "/gpt2_xl_32xh100.json";
    const std::vector<Words> wrong{
        {two_buckets, "--vary", "/workload/forward_ms=1,-1"},
        {two_buckets, "--vary", "/workload/forward=1"},
        {two_buckets, "--vary", "/cluster/ranks=2,2.5"},
        {hierarchical, "--vary", "/cluster/ranks=16,12", "--vary", "/cluster/ranks_per_node=4,8"},
        {two_buckets, "--vary", "/cluster/ranks=2", "--vary", "/cluster/ranks=3"},
        {two_buckets, "--vary", "/cluster/ranks=1..2000001:+1"},
        {two_buckets, "--vary", "/cluster/ranks=1..2000:+1", "--vary",
         "/workload/forward_ms=1..2000:+1"},
        {two_buckets, "--vary", "ranks=2"},
        {two_buckets, "--bucket-cap", "25"},
        {two_buckets, "--strategy", "naive", "--bucket-cap", "25MiB"},
        {two_buckets, "--shard", "0/2"},
        {two_buckets, "--shard", "3/2"},
        {two_buckets, "--shard", "2"},
        {two_buckets, "--jobs", "0"},
        {two_buckets, "--jobs", "many"},
        {two_buckets, "--format", "xml"},
        {two_buckets, "--unknown"},
        {"no_such_file.json"},
        {}};
    for (const Words& words : wrong) {
        check_fails(2, sweep(words + Words{"-o", file}));
        CHECK(text_of_file(file) == "what was there");
    }
    // The first such point is named, whoever found which first.
    const Words words = wrong[3] + Words{"-o", file};
    CHECK(sweep(words + Words{"--jobs", "1"}).errors == sweep(words + Words{"--jobs", "4"}).errors);
    CHECK(sweep({two_buckets, "-o", two_buckets}).exit_code == 2);
}

TEST_CASE("percentiles of predict are drawn from the variation, or refused", "[sweep_command]") {
    const Words predict{BUCKETWISE_BINARY, "predict", two_buckets};
    const Words varied = predict + Words{"--set", "/variation={\"rank_spread\": 0.1}",
                                         "--percentiles", "--draws", "50"};
    const Outcome json = run(varied + Words{"--json", "-"});
    REQUIRE(json.exit_code == 0);
    const auto percentiles = nlohmann::json::parse(json.output)["percentiles"];
    CHECK(percentiles["draws"] == 50);
    CHECK(percentiles["chosen"]["p50_ms"] <= percentiles["chosen"]["p99_ms"]);
    CHECK(percentiles["best_p99"]["p99_ms"] <= percentiles["default"]["p99_ms"]);
    CHECK(run(varied + Words{"--json", "-"}).output == json.output);
    CHECK(run(varied).output.find("p99 (ms)") != std::string::npos);
    for (const Words& more : std::vector<Words>{
             {"--percentiles"},
             {"--percentiles", "--set", "/variation={\"compute_standard_error\": 0.1}"},
             {"--draws", "50"},
             {"--percentiles", "--set", "/variation/rank_spread=0.1", "--draws", "0"}}) {
        check_fails(2, run(predict + more));
    }
}

}  // namespace
}  // namespace bucketwise
