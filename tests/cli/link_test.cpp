// bucketwise link show, as its users meet it.
#include <string>

#include <nlohmann/json.hpp>

#include "tests/catch.h"
#include "tests/cli/process.h"

namespace bucketwise {
namespace {

Outcome show(const Words& arguments) {
    return run(Words{BUCKETWISE_BINARY, "link", "show"} + arguments);
}

std::string shipped_link(const std::string& name) {
    return std::string(BUCKETWISE_SCENARIO_DIR) + "/links/" + name;
}

nlohmann::json rows_of(const Words& arguments) {
    const std::string shown = check_ends_well(show(arguments + Words{"--format", "json"}));
    nlohmann::json document = nlohmann::json::parse(shown);
    return document.at("rows");
}

TEST_CASE("link show prints the time and the bus bandwidth of each size") {
    const nlohmann::json rows =
        rows_of({shipped_link("gloo_compare_ddp.json"), "--ranks", "2", "--bytes", "1MiB,16MiB"});
    REQUIRE(rows.size() == 2);
    CHECK(rows[0]["bytes"] == 1 << 20);
    // With two ranks the bus bandwidth is bytes over time.
    const double time_us = rows[1]["time_us"];
    CHECK(rows[1]["bus_gb_per_s"].get<double>() == Approx((1 << 24) / time_us / 1e3));
    CHECK(show({shipped_link("gloo_compare_ddp.json"), "--ranks", "2"}).output.find("bus") !=
          std::string::npos);
}

TEST_CASE("on a topology NCCL's choice is named, and messages agree with the closed form") {
    const std::string file = shipped_link("h100_fat_tree.json");
    const nlohmann::json chosen = rows_of({file, "--ranks", "64", "--bytes", "1KiB,1GiB"});
    CHECK(chosen[0]["algorithm"] == "tree");
    CHECK(chosen[0]["protocol"] == "LL");
    CHECK(chosen[1]["algorithm"] == "nvls tree");
    CHECK(chosen[0]["next_best_us"] >= chosen[0]["time_us"]);
    const nlohmann::json simulated = rows_of({file, "--ranks", "64", "--bytes", "64MiB",
                                              "--algorithm", "hierarchical", "--by-messages"});
    // To rounding: 2 x (7 + 7) steps.
    CHECK(simulated[0]["by_messages_us"].get<double>() ==
          Approx(simulated[0]["time_us"].get<double>()).margin(1e-4));
    // One node's ranks stand for all: 8 x 28 messages.
    CHECK(simulated[0]["messages"] == 224);
}

TEST_CASE("link show takes the link and the ranks of a scenario") {
    TestFolder folder;
    write_file(folder.file("s.json"),
               R"({"name": "s", "cluster": {"ranks": 4, "link": {"name": "l", "algorithm": "ring",
                   "segments": [{"latency_us": 10, "bandwidth_gb_per_s": 1}]}}})");
    // 6 steps of 10 us and 1.5 x 1 MB at 1 GB/s.
    const nlohmann::json rows = rows_of({folder.file("s.json"), "--bytes", "1MB"});
    CHECK(rows[0]["time_us"].get<double>() == Approx(1560));
}

TEST_CASE("link show refuses by name what it cannot show") {
    const std::string plain = shipped_link("gloo_compare_ddp.json");
    const std::string pod = shipped_link("h100_fat_tree.json");
    const auto refused = [](const Words& arguments, const std::string& part) {
        check_contains(check_fails(2, show(arguments)), {part});
    };
    refused({}, "expected one link");
    refused({plain}, "--ranks");
    refused({plain, "--ranks", "1"}, "--ranks");
    refused({plain, "--ranks", "2", "--by-messages"}, "no effect without a topology");
    refused({plain, "--ranks", "2", "--algorithm", "ring"}, "no effect without a topology");
    refused({plain, "--ranks", "2", "--ranks-per-node", "2"}, "--ranks-per-node");
    refused({pod, "--ranks", "12"}, "/topology/node/gpus: expected a number that divides ranks");
    refused({pod, "--ranks", "16", "--by-messages"}, "all-reduce of nccl");
    refused({pod, "--ranks", "16", "--algorithm", "nccl"}, "--algorithm: expected one of ring");
    refused({pod, "--ranks", "16", "--collective", "gather"}, "--collective");
    refused({pod, "--ranks", "16", "--algorithm", "double_binary_tree", "--collective",
             "all-gather", "--by-messages"},
            "got all-gather of double_binary_tree");
    refused({shipped_link("hierarchical_h100_efa.json"), "--ranks", "16"}, "--ranks-per-node");
}

TEST_CASE("link list prints every preset with its range") {
    const std::string listed = check_ends_well(bucketwise({"link", "list", "--format", "json"}));
    const nlohmann::json rows = nlohmann::json::parse(listed).at("rows");
    CHECK(rows.size() >= 15);
    for (const nlohmann::json& row : rows) {
        INFO(row.dump());
        CHECK(row["slow_bus_gb_per_s"] < row["typical_bus_gb_per_s"]);
        CHECK(row["typical_bus_gb_per_s"] < row["fast_bus_gb_per_s"]);
        CHECK(row["slow_latency_us"] > row["typical_latency_us"]);
        CHECK(row["typical_latency_us"] > row["fast_latency_us"]);
    }
    CHECK(bucketwise({"link", "list"}).output.find("nvlink-h100-8") != std::string::npos);
    check_contains(check_fails(2, bucketwise({"link", "list", "--ranks", "3"})),
                   {"unrecognised option '--ranks'"});
    CHECK(bucketwise({"link", "list", "all"}).exit_code == 2);
}

TEST_CASE("a preset can be shown, saved, changed and named like a file") {
    TestFolder folder;
    const nlohmann::json rows = rows_of({"nvlink-h100-8", "--bytes", "1MiB"});
    CHECK(rows[0]["fast_us"] < rows[0]["time_us"]);
    CHECK(rows[0]["time_us"] < rows[0]["slow_us"]);
    const std::string text = check_ends_well(show({"eth-10g", "--json"}));
    write_file(folder.file("mine.json"), text);
    CHECK(show({folder.file("mine.json"), "--json"}).output == text);
    const Words sizes{"--ranks", "4", "--bytes", "1MB"};
    CHECK(rows_of(Words{folder.file("mine.json")} + sizes)[0]["time_us"] ==
          rows_of(Words{"eth-10g"} + sizes)[0]["time_us"]);
    check_contains(check_fails(2, show({"nvlink-h100-8", "--ranks", "16"})),
                   {"at most 8 with the preset nvlink-h100-8; of several nodes are "
                    "ib-ndr-400, efa-p5"});
}

TEST_CASE("predict and sweep take a preset where they take a link file") {
    const std::string scenario = std::string(BUCKETWISE_SCENARIO_DIR) + "/two_buckets.json";
    const std::string predicted =
        check_ends_well(bucketwise({"predict", scenario, "--link", "eth-1g", "--json", "-"}));
    const nlohmann::json json = nlohmann::json::parse(predicted);
    CHECK(json["link"] == "eth-1g");
    REQUIRE(json["link_preset"]["ends"].size() == 2);
    CHECK(json["link_preset"]["ends"][0]["best"]["step_ms"] > json["best"]["step_ms"]);
    check_ends_well(
        bucketwise({"sweep", scenario, "--vary", "/cluster/link=eth-1g,eth-10g,wan-100mbit-50ms"}));
    check_contains(check_fails(2, bucketwise({"predict", scenario, "--link", "eth10g"})),
                   {"a preset such as eth-10g"});
}

TEST_CASE("the ends that link show prints are on either side of what is typical") {
    for (const char* ranks : {"2", "3", "4"}) {
        for (const nlohmann::json& row :
             rows_of({"slingshot-gh200", "--ranks", ranks, "--bytes",
                      "1B,100kB,1MiB,2.49MB,4.99MB,8MiB,20MiB,64MiB,1GiB"})) {
            CAPTURE(ranks, row.dump());
            CHECK(row["fast_us"] <= row["time_us"]);
            CHECK(row["time_us"] <= row["slow_us"]);
        }
    }
}

TEST_CASE("link show says which NCCL it assumes, and can be asked for another") {
    const Words link{"nvlink-h100-8", "--ranks", "2", "--bytes", "1GiB"};
    CHECK(show(link).output.find("chosen by NCCL 2.28's own cost model") != std::string::npos);
    const Outcome older = show(link + Words{"--nccl-version", "2.27"});
    CHECK(older.output.find("chosen by NCCL 2.27's own cost model") != std::string::npos);
    // Its ends are of that version too: before 2.22 a flag went with every three words by LL.
    const Words small{"ib-ndr-400", "--ranks", "2", "--bytes", "512KiB"};
    const nlohmann::json now = rows_of(small);
    const nlohmann::json then = rows_of(small + Words{"--nccl-version", "2.20"});
    for (const char* time : {"time_us", "slow_us", "fast_us"}) {
        CAPTURE(time);
        CHECK(now[0][time] != then[0][time]);
    }
    const Outcome saved = show({"ib-ndr-400", "--json", "--nccl-version", "2.20"});
    const nlohmann::json file = nlohmann::json::parse(saved.output);
    CHECK(file["topology"]["nccl"]["version"] == "2.20");
    check_contains(check_fails(2, show({"ib-ndr-400", "--nccl-version", "2.2"})),
                   {"--nccl-version: expected one of 2.18, 2.20,"});
    check_contains(check_fails(2, show({"eth-10g", "--nccl-version", "2.20"})),
                   {"expected a link whose algorithm is nccl, got ring"});
}

}  // namespace
}  // namespace bucketwise
