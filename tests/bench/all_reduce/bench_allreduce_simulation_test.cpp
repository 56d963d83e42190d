// `bucketwise bench allreduce --simulate` and --published as their users meet them.
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tests/catch.h"
#include "tests/cli/process.h"
#include "tests/shell_line.h"

namespace bucketwise {
namespace {

using nlohmann::json;

using Run = testing::ShellOutcome;

// Runs `bucketwise bench allreduce` with these options in the scenarios' folder.
Run run(const std::string& options) {
    return testing::run_in_shell(
        "cd '" BUCKETWISE_SCENARIO_DIR "' && '" BUCKETWISE_BINARY "' bench allreduce " + options);
}

constexpr const char* plain_link =
    R"({"name": "plain", "algorithm": "ring", "launch_us": 5, "message_us": 2,
        "segments": [{"latency_us": 10, "bandwidth_gb_per_s": 1}]})";

TEST_CASE("simulated times are the formula's for every algorithm, up to 4,096 ranks and beyond") {
    const TestFolder folder;
    write_file(folder.file("link.json"), plain_link);
    const Run result =
        run("--simulate --link '" + folder.file("link.json") +
            "' --algorithms library,ring,direct,recursive_halving_doubling,double_binary_tree"
            " --ranks 1,2,4096 --simulated-ranks 1000000 --bytes 1MB --format json");
    REQUIRE(result.exit_code == 0);
    std::map<std::pair<std::int64_t, std::string>, double> seconds;
    const json document = json::parse(result.output);
    for (const json& row : document["rows"]) {
        CHECK(row["bytes"] == 1'000'000);
        CHECK_FALSE(row.contains("time_s"));  // nothing was measured
        seconds[{row["world_size"], row["algorithm"]}] = row["simulated_time_s"];
    }
    CHECK(seconds.size() == 20);  // four numbers of ranks, five algorithms
    const auto us = [&](std::int64_t ranks, const char* algorithm) {
        return 1e6 * seconds.at({ranks, algorithm});
    };
    // One rank: 5 us. Two: 5 + 2 x 10 + 2 x 2 + 2 x 1/2 x 1 MB at 1 GB/s (= 1000 us).
    CHECK(us(1, "ring") == Approx(5));
    CHECK(us(2, "ring") == Approx(1029));
    CHECK(us(2, "direct") == Approx(1029));
    CHECK(us(2, "library") == Approx(1029));  // the link's own algorithm, a ring
    // 4,096: 8,190 messages; 2 x 4095/4096 ms on the wire = 1999.51 us.
    CHECK(us(4096, "ring") == Approx(5 + 8190 * 12 + 1999.51));
    CHECK(us(4096, "direct") == Approx(5 + 2 * 10 + 8190 * 2 + 1999.51));
    CHECK(us(4096, "recursive_halving_doubling") == Approx(5 + 24 * 12 + 1999.51));
    CHECK(us(4096, "double_binary_tree") == Approx(5 + 24 * 10 + 36 * 2 + 2000));
    // A million, the tree: 20 levels.
    CHECK(us(1'000'000, "double_binary_tree") == Approx(5 + 40 * 10 + 60 * 2 + 2000));
}

TEST_CASE("ranks of one machine share the processors that --processors says") {
    const TestFolder folder;
    write_file(folder.file("link.json"), plain_link);
    const Run result = run("--simulate --link '" + folder.file("link.json") +
                           "' --algorithms ring --processors 2 --ranks 2,8 --bytes 1MB "
                           "--format csv");
    REQUIRE(result.exit_code == 0);
    // 8 ranks: 5 + 8/2 x (14 x 12 + 1.75 x 1000 us) = 7677 us. 2 ranks: 1029 us, as without.
    CHECK(result.output.find("2,250000,1000000,float32,ring,0.001029,") != std::string::npos);
    CHECK(result.output.find("8,250000,1000000,float32,ring,0.007677,") != std::string::npos);
}

TEST_CASE("simulated memory is the process, the message and what each algorithm receives into") {
    const TestFolder folder;
    write_file(folder.file("link.json"), plain_link);
    const Run result = run("--simulate --link '" + folder.file("link.json") +
                           "' --ranks 8 --bytes 64MiB --process-memory 10MiB --format json");
    REQUIRE(result.exit_code == 0);
    std::map<std::string, double> added;
    std::map<std::string, double> whole;
    const json document = json::parse(result.output);
    for (const json& row : document["rows"]) {
        added[row["algorithm"]] = row["simulated_added_memory_kib"].get<double>() / 1024;
        whole[row["algorithm"]] = row["simulated_memory_kib"].get<double>() / 1024;
    }
    // MiB: 64 and 2/8 of it; 64 and 7/8 of it; 64 and two segments of 1.
    CHECK(added == std::map<std::string, double>{{"ring", 80}, {"direct", 120}, {"library", 66}});
    CHECK(whole == std::map<std::string, double>{{"ring", 90}, {"direct", 130}, {"library", 76}});
}

TEST_CASE("measured and simulated stand side by side, and memory and rounding agree") {
    const TestFolder folder;
    write_file(folder.file("link.json"), plain_link);
    const Run result = run("--backend gloo --simulate --link '" + folder.file("link.json") +
                           "' --ranks 2,3 --simulated-ranks 64 --bytes 16MiB --rounds 1 "
                           "--iterations 1 --format json");
    REQUIRE(result.exit_code == 0);
    const json document = json::parse(result.output);
    CHECK(document["command"][0] == "bucketwise");
    CHECK(document["libraries"].get<std::string>().find("Gloo") != std::string::npos);
    int measured = 0;
    for (const json& row : document["rows"]) {
        INFO(row.dump());
        CHECK(row["simulated_time_s"] > 0.0);
        if (row["world_size"] == 64) {
            CHECK_FALSE(row.contains("time_s"));
            continue;
        }
        ++measured;
        const double error =
            row["simulated_time_s"].get<double>() / row["time_s"].get<double>() - 1;
        CHECK(row["simulated_time_error"].get<double>() == Approx(error).margin(1e-9));
        CHECK(row["simulated_difference"] == row["difference"]);
        // From below only: sanitizers give every byte a shadow.
        CHECK(row["added_memory_kib"].get<double>() >
              0.95 * row["simulated_added_memory_kib"].get<double>());
    }
    CHECK(measured == 6);
}

TEST_CASE("published rows stand beside simulated ones, and the text says how far off they are") {
    const Run table =
        run("--simulate --link links/gloo_cs336.json --algorithms library "
            "--published published/cs336_allreduce.csv");
    REQUIRE(table.exit_code == 0);
    CHECK(table.output.find("1GiB") != std::string::npos);
    CHECK(table.output.find("912003.0") != std::string::npos);
    // 10 MB is 3.77 % off, the others hardly: 1.26 % on average.
    CHECK(table.output.find("time, simulated to published: 1.26 % off on average, 3.77 % at most "
                            "(3 rows)") != std::string::npos);
    // The rows of NCCL come with a link of NCCL, whose memory is not known.
    const Run nccl =
        run("--simulate --link links/nccl_cs336_2gpu.json --algorithms library --format csv "
            "--published published/cs336_allreduce.csv");
    REQUIRE(nccl.exit_code == 0);
    CHECK(nccl.output.find("9.55087e-05") != std::string::npos);
    CHECK(nccl.output.find("memory") == std::string::npos);
    const Run butterfly =
        run("--simulate --link links/gloo_butterfly_library.json,links/gloo_butterfly_ring.json,"
            "links/gloo_butterfly_direct.json --dtype float64 --process-memory 382000KiB "
            "--published published/ring_butterfly.csv --format json");
    REQUIRE(butterfly.exit_code == 0);
    const json rows = json::parse(butterfly.output)["rows"];
    REQUIRE(rows.size() == 16);  // those that were published, and no others
    for (const json& row : rows) {
        CHECK(row.contains("simulated_to_published_time"));
        CHECK(std::abs(row["simulated_to_published_memory"].get<double>()) < 0.01);
    }
}

TEST_CASE("a link that is asked for more ranks than it was measured on says so") {
    const std::string options = "--simulate --link links/gloo_cs336.json --algorithms ring,direct ";
    const Run beyond = run(options + "--ranks 2,3 --bytes 1kB");
    REQUIRE(beyond.exit_code == 0);
    CHECK(beyond.output.find("simulated ring: beyond 2 ranks an extrapolation\n") !=
          std::string::npos);
    CHECK(beyond.output.find("simulated direct: beyond 2 ranks an extrapolation; its link has no "
                             "message_us") != std::string::npos);
    CHECK(run(options + "--ranks 2 --bytes 1kB").output.find("extrapolation") == std::string::npos);
}

TEST_CASE("what this program printed can be what was published") {
    const TestFolder folder;
    write_file(folder.file("link.json"), plain_link);
    write_file(folder.file("own.csv"),
               "# ours\nworld_size,bytes,dtype,algorithm,time_s,backend\n"
               "4,4000,float32,ring,0.00014,gloo\n4,4000,float32,ring,0.1,nccl\n"
               "4,4000,float64,ring,0.1,gloo\n8,4000,float32,ring,0.1,gloo\n");
    const Run result = run("--simulate --link '" + folder.file("link.json") +
                           "' --algorithms ring --ranks 4 --published '" + folder.file("own.csv") +
                           "' --format json");
    REQUIRE(result.exit_code == 0);
    const json rows = json::parse(result.output)["rows"];
    REQUIRE(rows.size() == 1);
    CHECK(rows[0]["published_time_s"] == 0.00014);
    // 5 + 6 x 12 + 1.5 x 4 us = 83 us.
    CHECK(rows[0]["simulated_time_s"].get<double>() == Approx(83e-6));
    CHECK(rows[0]["simulated_to_published_time"].get<double>() == Approx(83.0 / 140 - 1));
}

TEST_CASE("a wrong simulation or table is one line and exit code 2") {
    const TestFolder folder;
    write_file(folder.file("link.json"), plain_link);
    write_file(folder.file("zero.csv"), "world_size,bytes,algorithm,time_s\n2,4,ring,0\n");
    write_file(folder.file("none.csv"),
               "backend,world_size,bytes,algorithm,time_s\nmpi,2,4,ring,1\n");
    write_file(folder.file("word.csv"),
               "world_size,tensor_elements,algorithm,time_s\ntwo,4,ring,1\n");
    write_file(folder.file("half.csv"), "world_size,bytes,algorithm,time_s\n1.5,4,ring,1\n");
    write_file(folder.file("memory.csv"),
               "world_size,bytes,algorithm,time_s,max_memory_kib\n2,4,ring,1,0\n");
    write_file(folder.file("columns.csv"), "a,b\n1,2\n");
    write_file(folder.file("broken.json"), "{");
    const std::string link = "--simulate --link '" + folder.file("link.json") + "' ";
    for (const std::string& options :
         {std::string("--simulate"),
          std::string("--link x.json"),
          std::string("--simulated-ranks 4"),
          std::string("--process-memory 1MiB"),
          link + "--ranks 0",
          link + "--ranks 1000001",
          link + "--simulated-ranks 0",
          link + "--simulated-ranks 4,",
          link + "--process-memory 0",
          link + "--process-memory lots",
          link + "--processors 0",
          std::string("--processors 2"),
          link + "--algorithms tree",
          link + "--algorithms hierarchical",
          link + "--format nccl-tests",
          link + "--backend gloo --algorithms double_binary_tree",
          link + "--published '" + folder.file("absent.csv") + "'",
          link + "--published '" + folder.file("zero.csv") + "'",
          link + "--published '" + folder.file("none.csv") + "'",
          link + "--published '" + folder.file("word.csv") + "'",
          link + "--published '" + folder.file("half.csv") + "'",
          link + "--published '" + folder.file("memory.csv") + "'",
          link + "--published '" + folder.file("columns.csv") + "'",
          "--simulate --link '" + folder.file("broken.json") + "'",
          std::string("--simulate --link absent.json"),
          std::string("--simulate --link ''"),
          std::string("--simulate --link links/hierarchical_h100_efa.json"),
          std::string("--simulate --link links/gloo_cs336.json,links/gloo_cs336.json"),
          std::string("--simulate --algorithms ring,direct --link "
                      "links/gloo_butterfly_direct.json,links/gloo_butterfly_ring.json")}) {
        INFO(options);
        const Run result = run(options + " 2>&1");
        CHECK(result.exit_code == 2);
        CHECK(result.output.rfind("bucketwise: ", 0) == 0);
        CHECK(result.output.find('\n') + 1 == result.output.size());
    }
}

}  // namespace
}  // namespace bucketwise
