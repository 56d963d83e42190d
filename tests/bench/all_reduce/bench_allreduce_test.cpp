// `bucketwise bench allreduce` as its users meet it: real ranks, every format read back.
#include <cmath>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <nlohmann/json.hpp>

#include "tests/catch.h"
#include "tests/hw/gloo/gloo_ranks.h"
#include "tests/shell_line.h"

namespace bucketwise {
namespace {

using testing::TemporaryDirectory;
using Cells = std::vector<std::string>;

using ShellRun = testing::ShellOutcome;

// Runs a line of the shell; $BENCH is `bucketwise bench`.
ShellRun run_shell(const std::string& line) {
    return testing::run_in_shell("BENCH='" BUCKETWISE_BINARY " bench'; " + line);
}

std::vector<std::string> lines_of(const std::string& text) {
    std::istringstream stream(text);
    std::vector<std::string> lines;
    for (std::string line; std::getline(stream, line);) {
        lines.push_back(line);
    }
    return lines;
}

Cells cells_of(const std::string& line, char separator) {
    std::istringstream stream(line);
    Cells cells;
    for (std::string cell; std::getline(stream, cell, separator);) {
        if (separator != ' ' || !cell.empty()) {
            cells.push_back(cell);
        }
    }
    return cells;
}

// Each element of rank r is in [1, 2), so that the sum of p is below 2p, each of the p - 1
// additions rounds by at most 2^-24 of it, and the mean is at most (p - 1) 2p 2^-24 / p off.
double rounding(double ranks) {
    return (ranks - 1) * std::ldexp(1.0, -23);
}

TEST_CASE("the CSV has a row for each number of ranks, size and algorithm") {
    const ShellRun csv = run_shell(
        "$BENCH allreduce --ranks 4,1,2 --algorithms ring,direct,library "
        "--bytes 40kB,4B --rounds 2 --iterations 3 --format csv");
    REQUIRE(csv.exit_code == 0);
    const std::vector<std::string> lines = lines_of(csv.output);
    REQUIRE(lines.size() == 1 + 3 * 2 * 3);
    CHECK(lines[0] ==
          "world_size,tensor_elements,bytes,dtype,algorithm,time_s,std_s,min_s,max_s,"
          "max_memory_kib,difference,backend");
    std::size_t line = 1;
    for (const char* ranks : {"1", "2", "4"}) {
        for (const char* elements : {"1", "10000"}) {
            for (const char* algorithm : {"ring", "direct", "library"}) {
                const Cells cells = cells_of(lines[line++], ',');
                REQUIRE(cells.size() == 12);
                CHECK(cells[0] == ranks);
                CHECK(cells[1] == elements);
                CHECK(std::stoll(cells[2]) == 4 * std::stoll(elements));
                CHECK(cells[3] == "float32");
                CHECK(cells[4] == algorithm);
                CHECK(std::stod(cells[7]) <= std::stod(cells[5]));  // least, median, most
                CHECK(std::stod(cells[5]) <= std::stod(cells[8]));
                CHECK(std::stod(cells[6]) <= std::stod(cells[8]));
                CHECK(std::stoll(cells[9]) > 1024);
                CHECK(std::stod(cells[10]) <= rounding(std::stod(ranks)));
                CHECK(cells[11] == "gloo");
            }
        }
    }
}

TEST_CASE("nccl-tests' columns hold a block per algorithm that its readers accept") {
    const ShellRun table = run_shell(
        "$BENCH allreduce --ranks 2 --algorithms library,ring --dtype float64 "
        "--bytes 8B,8kB,8MB --rounds 2 --format nccl-tests");
    REQUIRE(table.exit_code == 0);
    int rows = 0;
    int blocks = 0;
    int devices = 0;
    double sum = 0;
    for (const std::string& line : lines_of(table.output)) {
        const Cells cells = cells_of(line, ' ');
        devices += line.rfind("#  Rank ", 0) == 0 ? 1 : 0;
        if (line.rfind("# Avg bus bandwidth    : ", 0) == 0) {
            CHECK(std::stod(cells[5]) == Approx(sum / 3).margin(0.01));
            sum = 0;
            ++blocks;
        }
        if (line[0] == '#') {
            continue;
        }
        ++rows;
        REQUIRE(cells.size() == 13);
        const double bytes = std::stod(cells[0]);
        CHECK(std::stod(cells[1]) == bytes / 8);
        CHECK(Cells(cells.begin() + 2, cells.begin() + 5) == Cells{"double", "sum", "-1"});
        CHECK(std::stod(cells[6]) == Approx(bytes / std::stod(cells[5]) / 1e3).margin(0.01));
        CHECK(cells[7] == cells[6]);  // two ranks: 2(p-1)/p is 1
        CHECK(cells[8] == "0");
        CHECK(Cells(cells.begin() + 9, cells.end()) == Cells(cells.begin() + 5, cells.begin() + 9));
        sum += std::stod(cells[7]);
    }
    CHECK(rows == 6);
    CHECK(blocks == 2);
    CHECK(devices == 4);
}

TEST_CASE("the text compares algorithms with the library, size by size") {
    const ShellRun table = run_shell(
        "$BENCH allreduce --ranks 2 --algorithms direct,library --bytes 1kB,1KiB --rounds 1");
    REQUIRE(table.exit_code == 0);
    std::vector<Cells> rows;
    for (const std::string& line : lines_of(table.output)) {
        if (line.find("  1kB  ") != line.npos || line.find("  1KiB  ") != line.npos) {
            rows.push_back(cells_of(line, ' '));
        }
    }
    REQUIRE(rows.size() == 4);
    for (std::size_t i = 0; i < rows.size(); ++i) {
        REQUIRE(rows[i].size() == 12);
        CHECK(rows[i][0] == "2");
        CHECK(rows[i][1] == (i < 2 ? "1kB" : "1KiB"));
        CHECK(rows[i][2] == (i % 2 == 0 ? "direct" : "library"));
        CHECK(rows[i][3] == "20");
        CHECK((i % 2 == 0 || rows[i][8] == "1.00"));
    }
}

TEST_CASE("the file keeps every sample, and an old one is left alone") {
    const TemporaryDirectory folder;
    const std::string file = folder.path() + "/allreduce.jsonl";
    const std::string command =
        "$BENCH allreduce --ranks 1,2 --algorithms ring --bytes 4B,4kB,4MB "
        "--rounds 2 --iterations 3 -o " +
        file;
    REQUIRE(run_shell(command).exit_code == 0);
    std::ifstream stream(file);
    const std::string kept{std::istreambuf_iterator<char>(stream), {}};
    std::map<std::string, int> kinds;
    std::map<std::int64_t, std::int64_t> memory;
    for (const std::string& line : lines_of(kept)) {
        const nlohmann::json record = nlohmann::json::parse(line);
        ++kinds[record["kind"]];
        if (record["kind"] == "environment") {
            CHECK(record["scenario"].is_null());
            continue;
        }
        CHECK(record["samples_us"].size() == 3);
        memory[record["bytes"].get<std::int64_t>()] =
            record["peak_memory_bytes"].get<std::int64_t>();
    }
    CHECK(kinds == std::map<std::string, int>{{"environment", 2}, {"allreduce", 2 * 2 * 3}});
    // A size's peak is that of the sizes up to it: the message itself, and at two ranks half of it
    // for what arrives.
    CHECK(memory[4'000'000] >= memory[4] + 4'000'000);
    CHECK(run_shell(command + " 2>/dev/null").exit_code == 2);
    std::ifstream again(file);
    CHECK(std::string{std::istreambuf_iterator<char>(again), {}} == kept);
}

TEST_CASE("all-gathers and reduce-scatters on 2 and 3 ranks make a link's own numbers") {
    const TemporaryDirectory folder;
    const std::string at = folder.path() + "/";
    for (const char* kind : {"allgather", "reducescatter", "allreduce"}) {
        const ShellRun bench =
            run_shell("$BENCH " + std::string(kind) +
                      " --ranks 2,3 --algorithms ring --bytes 4kB,64KiB,1MB --rounds 2 "
                      "--iterations 3 -o " +
                      at + kind);
        REQUIRE(bench.exit_code == 0);
        std::map<std::int64_t, int> sizes_of_three;
        std::ifstream file(at + kind);
        for (std::string line; std::getline(file, line);) {
            const nlohmann::json record = nlohmann::json::parse(line);
            if (record["kind"] == "environment" || record["ranks"] == 2) {
                continue;
            }
            CHECK(record["kind"] == kind);
            CHECK(record["samples_us"].size() == 3);
            const double off = record["largest_difference"].get<double>();
            CHECK(off <= (std::string(kind) == "allgather" ? 0 : rounding(3)));
            ++sizes_of_three[record["bytes"].get<std::int64_t>()];
        }
        // On 3 ranks a part is a whole number of float32: 12 bytes over all ranks.
        const bool parts = std::string(kind) != "allreduce";
        CHECK(sizes_of_three == std::map<std::int64_t, int>{{parts ? 3996 : 4000, 2},
                                                            {parts ? 65532 : 65536, 2},
                                                            {parts ? 999996 : 1000000, 2}});
    }
    const ShellRun fit =
        testing::run_in_shell("'" BUCKETWISE_BINARY "' calibrate " + at + "allreduce " + at +
                              "allgather " + at + "reducescatter -o " + at + "link.json 2>&1");
    CAPTURE(fit.output);
    REQUIRE(fit.exit_code == 0);
    std::ifstream stream(at + "link.json");
    const nlohmann::json link = nlohmann::json::parse(stream);
    CHECK_FALSE(link["segments"].empty());
    for (const char* kind : {"all_gather", "reduce_scatter"}) {
        REQUIRE_FALSE(link[kind]["segments"].empty());
        CHECK(link[kind]["segments"][0].contains("standard_errors"));
    }
}

TEST_CASE("what a bench of parts cannot do is refused") {
    const auto refused = [](const std::string& options) {
        const ShellRun run = run_shell("$BENCH " + options + " 2>&1");
        CHECK(run.exit_code == 2);
        return run.output;
    };
    CHECK(refused("reducescatter --algorithms library")
              .find("--algorithms: expected ring or direct, as Gloo's own reduce-scatter is not "
                    "measured, got \"library\"") != std::string::npos);
    CHECK(refused("allgather --ranks 2,3 --bytes 8B")
              .find("--bytes: expected at least an element of each of 3 ranks, 12 bytes, got 8") !=
          std::string::npos);
    CHECK(refused("allgather --published x.csv").find("published") != std::string::npos);
    CHECK(refused("reducescatter --simulate").find("bench reducescatter: --simulate needs") !=
          std::string::npos);
}

TEST_CASE(
    "nccl-tests' columns of parts count one rank's elements, and none is reduced by a gather") {
    const ShellRun gather = run_shell(
        "$BENCH allgather --ranks 2 --algorithms ring --bytes 8kB --rounds 1 "
        "--iterations 2 --format nccl-tests");
    REQUIRE(gather.exit_code == 0);
    CHECK(gather.output.find("# Collective test starting: all_gather_perf\n") != std::string::npos);
    bool found = false;
    for (const std::string& line : lines_of(gather.output)) {
        const Cells cells = cells_of(line, ' ');
        if (!cells.empty() && cells[0] == "8000") {
            found = true;
            CHECK(cells[1] == "1000");  // of 4 bytes on each of 2 ranks
            CHECK(cells[3] == "none");
        }
    }
    CHECK(found);
}

TEST_CASE("a link's own numbers are what its all-gathers are simulated with") {
    const TemporaryDirectory folder;
    std::ofstream(folder.path() + "/l.json")
        << R"({"name": "l", "algorithm": "ring", "segments": [{"latency_us": 10, "bandwidth_gb_per_s": 1}],
               "all_gather": {"launch_us": 5,
                              "segments": [{"latency_us": 20, "bandwidth_gb_per_s": 2}]}})";
    const auto simulated = [&](const std::string& bench) {
        const ShellRun run = run_shell("$BENCH " + bench + " --simulate --link " + folder.path() +
                                       "/l.json --algorithms ring --ranks 4 --bytes 4MB "
                                       "--format json");
        REQUIRE(run.exit_code == 0);
        return nlohmann::json::parse(run.output)["rows"][0]["simulated_time_s"].get<double>();
    };
    // 3 steps and 3 MB: 5 + 60 + 1,500 us; by the link's own 30 + 3,000; twice that.
    CHECK(simulated("allgather") == Approx(1565e-6));
    CHECK(simulated("reducescatter") == Approx(3030e-6));
    CHECK(simulated("allreduce") == Approx(6060e-6));
}

TEST_CASE("ranks of another launcher run all algorithms and print one table") {
    const TemporaryDirectory store;
    const auto rank = [&](int number) {
        return run_shell("RANK=" + std::to_string(number) +
                         " LOCAL_RANK=" + std::to_string(number) +
                         " WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 $BENCH allreduce --bytes 4kB --rounds 1 "
                         "--format csv --store " +
                         store.path());
    };
    ShellRun second;
    std::thread other([&] { second = rank(1); });
    const ShellRun first = rank(0);
    other.join();
    CHECK(first.exit_code == 0);
    CHECK(lines_of(first.output).size() == 4);
    CHECK(second.exit_code == 0);
    CHECK(second.output.empty());
}

TEST_CASE("a rank that dies is named, and what was measured before is shown") {
    const TemporaryDirectory folder;
    // The first line in the file is longer than the one block that rank 0 may write.
    const ShellRun failed = run_shell(
        "ulimit -f 1; $BENCH allreduce --ranks 2 --algorithms ring --bytes 4B "
        "-o " +
        folder.path() + "/full.jsonl 2>&1 >/dev/null");
    CHECK(failed.exit_code == 1);
    CHECK(failed.output.rfind("bucketwise: rank 0 ", 0) == 0);
    CHECK(failed.output.find("(ring on 2 ranks)\n") + 18 == failed.output.size());
}

TEST_CASE("wrong options end with one line and exit code 2") {
    for (const char* options : {"",
                                "nothing",
                                "allreduce 4",
                                "allreduce --ranks 0",
                                "allreduce --ranks 2,",
                                "allreduce --ranks 251",
                                "allreduce --algorithms tree",
                                "allreduce --bytes 3B",
                                "allreduce --bytes 4",
                                "allreduce --dtype int8",
                                "allreduce --format xml",
                                "allreduce --backend mpi",
                                "allreduce --rounds 0",
                                "allreduce --iterations 0",
                                "allreduce --seed -1",
                                "allreduce --deadline 0",
                                "allreduce --store /tmp",
                                "allreduce --link-rate 1",
                                "allreduce -o /dev/null",
                                "allreduce -o /",
                                "allreduce --rank 2",
                                "RANK=0 WORLD_SIZE=2"}) {
        INFO(options);
        const bool is_variable = std::string(options).find('=') != std::string::npos;
        const ShellRun result =
            run_shell(is_variable ? std::string(options) + " $BENCH allreduce 2>&1"
                                  : "$BENCH " + std::string(options) + " 2>&1");
        CHECK(result.exit_code == 2);
        CHECK(lines_of(result.output).size() == 1);
        CHECK(result.output.rfind("bucketwise: ", 0) == 0);
    }
}

}  // namespace
}  // namespace bucketwise
