// The shipped scenarios against the measurements that others published.
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "calibrate/comparison/compared_steps.h"
#include "cli/shell/files.h"
#include "sim/base/json_input.h"
#include "sim/predict/prediction.h"
#include "sim/scenario/scenario.h"
#include "tests/catch.h"

namespace bucketwise {
namespace {

namespace fs = std::filesystem;

struct Row {
    std::int64_t n = 0;
    double p50_ms = 0;
};

// Rows of one phase and option of PyTorch's compare_ddp benchmark.
std::vector<Row> published(const std::string& phase, const std::string& option) {
    std::ifstream file(fs::path(BUCKETWISE_TEST_DATA_DIR) / "published" / "compare_ddp.csv");
    REQUIRE(file);
    std::vector<Row> rows;
    std::string line;
    while (std::getline(file, line)) {
        std::istringstream cells(line);
        std::string n;
        std::string row_phase;
        std::string row_option;
        std::string p50;
        std::getline(cells, n, ',');
        std::getline(cells, row_phase, ',');
        std::getline(cells, row_option, ',');
        std::getline(cells, p50, ',');
        if (row_phase == phase && row_option == option) {
            rows.push_back({std::stoll(n), std::stod(p50)});
        }
    }
    return rows;
}

// `unit` is the size of one N: MiB for DistributedDataParallel, 2^20 floats for the Python
// versions.
std::vector<ComparedStep> compare(const std::string& scenario_file, const std::string& phase,
                                  const std::string& option, Bytes unit) {
    const std::string path = (fs::path(BUCKETWISE_SCENARIO_DIR) / scenario_file).string();
    const Scenario scenario =
        parse_scenario(parse_json(read_text_file(path), path), path, read_text_file);
    const StepInput input = step_input(scenario);
    Evaluator evaluator(input, scenario.sync);
    std::vector<ComparedStep> points;
    for (const Row& row : published(phase, option)) {
        const StepTimes times = evaluator.evaluate(row.n * unit).times;
        const double predicted = to_ms(phase == "forward" ? times.forward : times.backward);
        points.push_back({predicted, row.p50_ms});
    }
    REQUIRE(points.size() == 9);
    return points;
}

double mape(const std::vector<ComparedStep>& points) {
    return measure_errors(points, 0).mape;
}

constexpr Bytes mib{bytes_per_mib};
constexpr Bytes mib_elements{4 * bytes_per_mib};

TEST_CASE("one machine predicts the published medians of all three compare_ddp strategies") {
    const auto core = compare("compare_ddp_core.json", "backward", "DDP_CPP_CORE", mib);
    const auto async =
        compare("compare_ddp_async.json", "backward", "PYTHON_DDP_ASYNC_REDUCTION", mib_elements);
    const auto sync =
        compare("compare_ddp_sync.json", "backward", "PYTHON_DDP_SYNC_REDUCTION", mib_elements);
    CHECK(mape(core) <= 0.003);
    CHECK(mape(sync) <= 0.006);
    // Two of the nine rows (N = 21 and 24) are medians of two modes 15 ms apart and 2.4 % off; no
    // one bandwidth explains them and the sync column at once. The other seven are within 0.6 %.
    CHECK(mape(async) <= 0.0077);
    for (std::size_t i = 0; i < async.size(); ++i) {
        const bool bimodal = i == 6 || i == 7;  // rows are N = 3, 6, ..., 27
        CHECK(std::abs(async[i].error()) <= (bimodal ? 0.026 : 0.007));
    }
}

TEST_CASE("the same machine predicts forward, with the broadcast of buffers that only DDP does") {
    CHECK(mape(compare("compare_ddp_core.json", "forward", "DDP_CPP_CORE", mib)) <= 0.003);
    CHECK(mape(compare("compare_ddp_async.json", "forward", "PYTHON_DDP_ASYNC_REDUCTION",
                       mib_elements)) <= 0.001);
}

TEST_CASE("the three compare_ddp scenarios describe one machine") {
    std::map<std::string, Json> workloads;
    for (const char* name : {"core", "async", "sync"}) {
        const std::string path =
            (fs::path(BUCKETWISE_SCENARIO_DIR) / (std::string("compare_ddp_") + name + ".json"))
                .string();
        const Json document = parse_json(read_text_file(path), path);
        workloads[document["workload"].dump() + document["cluster"].dump()] = document;
    }
    CHECK(workloads.size() == 1);
}

}  // namespace
}  // namespace bucketwise
