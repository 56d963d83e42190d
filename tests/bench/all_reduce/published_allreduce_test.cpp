// Published all-reduce tables beside what the shipped links say. A few rows of each table; the
// numbers that the links hold were fitted to them, so what these tests hold is how well so few
// numbers can, and that nobody changes either without seeing it.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "bench/all_reduce/all_reduce.h"
#include "sim/link/collective.h"
#include "tests/catch.h"

namespace bucketwise {
namespace {

const std::string scenarios = BUCKETWISE_SCENARIO_DIR;

SimulationRequest links(const std::vector<std::string>& algorithms,
                        const std::vector<std::string>& files) {
    std::string paths;
    for (const std::string& file : files) {
        paths += (paths.empty() ? "" : ",") + scenarios + "/links/" + file;
    }
    return {.algorithms = read_simulated_algorithms(paths, algorithms)};
}

SimulationRequest butterfly_links() {
    SimulationRequest request = links(
        {"library", "ring", "direct"},
        {"gloo_butterfly_library.json", "gloo_butterfly_ring.json", "gloo_butterfly_direct.json"});
    request.process_memory = Bytes{std::int64_t{382'000} << 10};
    return request;
}

BenchRows rows_of(const std::string& table, const std::string& backend) {
    return read_published_all_reduces(scenarios + "/published/" + table, DType::float64, backend);
}

double simulated_s(const SimulationRequest& request, BenchRow row) {
    add_simulated(request, DType::float64, row);
    return row["simulated_time_s"];
}

double simulated_s(const SimulationRequest& request, std::int64_t ranks, std::int64_t bytes,
                   const char* algorithm) {
    return simulated_s(request, row_at(ranks, {bytes}, algorithm, DType::float64));
}

double time_error(const SimulationRequest& request, const BenchRow& row) {
    return simulated_s(request, row) / row["published_time_s"].get<double>() - 1;
}

TEST_CASE("all-reduces of the CS336 table are within 5 % and one standard deviation") {
    for (const std::string backend : {"gloo", "nccl"}) {
        const SimulationRequest request =
            links({"library"}, {backend == "gloo" ? "gloo_cs336.json" : "nccl_cs336_2gpu.json"});
        const BenchRows rows = rows_of("cs336_allreduce.csv", backend);
        REQUIRE(rows.size() == 3);
        for (const BenchRow& row : rows) {
            INFO(row.dump());
            const double error = time_error(request, row);
            CHECK(std::abs(error) * row["published_time_s"].get<double>() <=
                  row["published_std_s"].get<double>());
            CHECK(std::abs(error) <= 0.05);
            // Reached: 10 MB over Gloo is 3.8 % too long, all else as published.
            const bool hardest = backend == "gloo" && row["bytes"] == 10 << 20;
            CHECK(std::abs(error) <= (hardest ? 0.0385 : 0.002));
        }
    }
}

TEST_CASE("a message that no row holds lies between its neighbours") {
    const SimulationRequest gloo = links({"library"}, {"gloo_cs336.json"});
    // 100 MiB: 2 x 1/2 of 104,857,600 B at 1.1773 GB/s is 89.07 ms, whatever the latency of small
    // messages; in proportion to the published 912.0 ms of 1024 MiB it is 89.06.
    const auto time = [&](std::int64_t bytes) {
        return 1e3 * simulated_s(gloo, 2, bytes, "library");
    };
    CHECK(time(104'857'600) == Approx(89.07).epsilon(1e-3));
    // MB read as 10^6 instead: 4.9 % less of the bandwidth's part, all of it here.
    CHECK(time(100'000'000) / time(104'857'600) == Approx(1 / 1.048576).epsilon(1e-3));
    // The two lines meet: 10 MiB takes 2 x 0.9536 + 6.999 = 8.906 ms by one and by the other.
    CHECK(time((10 << 20) + 1) == Approx(time(10 << 20)).epsilon(1e-3));
}

TEST_CASE("ring, direct and library all-reduces grow with the ranks as published") {
    const SimulationRequest request = butterfly_links();
    double sum = 0;
    double alone = 0;
    int count = 0;
    for (const BenchRow& row : rows_of("ring_butterfly.csv", "gloo")) {
        INFO(row.dump());
        const double error = time_error(request, row);
        if (row["world_size"] == 1) {
            // Nothing is sent; the four published times are 12, 15, 17 and 20 ms.
            alone = std::max(alone, std::abs(error));
            continue;
        }
        CHECK(std::abs(error) <= 0.13);
        sum += std::abs(error);
        ++count;
    }
    REQUIRE(count == 12);
    // The same ring on as many ranks was published twice, 8 to 17 % apart.
    CHECK(sum / count <= 0.045);
    CHECK(alone <= 0.26);
}

TEST_CASE("the direct exchange overtakes the ring between 4 and 8 ranks, as published") {
    const SimulationRequest request = butterfly_links();
    const auto time = [&](const char* algorithm, std::int64_t ranks) {
        return simulated_s(request, ranks, 8 * ranks, algorithm);
    };
    CHECK(time("ring", 2) < time("direct", 2));  // published: 24 and 26 ms
    CHECK(time("ring", 4) < time("direct", 4));  // 26 and 27
    CHECK(time("direct", 8) < time("ring", 8));  // 31 and 34
    CHECK(time("direct", 4096) < time("ring", 4096));
    // Equal but for their meeting, where (p - 2) x 2 x 125 us = 9,700 - 8,500 us: p = 6.8.
    const std::vector<std::string> found = crossovers(request, {Bytes{64}});
    REQUIRE(found.size() == 1);
    CHECK(found[0] == "simulated, 64B: direct is the faster from 7 ranks on");
}

TEST_CASE("memory of the ring and butterfly table is within 1 %") {
    const SimulationRequest request = butterfly_links();
    for (BenchRow row : rows_of("ring_butterfly.csv", "gloo")) {
        INFO(row.dump());
        add_simulated(request, DType::float64, row);
        CHECK(std::abs(*error_in(row, "simulated_memory_kib", "published_max_memory_kib")) <= 0.01);
    }
}

}  // namespace
}  // namespace bucketwise
