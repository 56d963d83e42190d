#include "calibrate/comparison/compute_comparison.h"

#include "tests/catch.h"
#include "tests/hw/rank/small_scenario.h"

namespace bucketwise {
namespace {

// Every operation takes the same; the step is what whoever asks says it took.
ComputeRecord record_of(const Scenario& scenario, double operation_us, double launch_us,
                        double step_us) {
    const Workload workload = step_input(scenario).workload;
    ComputeRecord record;
    record.samples_us = {step_us};
    record.forward_us = step_us / 3;
    record.backward_us = step_us - record.forward_us;
    record.forward_operations_us.assign(workload.forward.size(), operation_us);
    record.backward_operations_us.assign(workload.backward.size(), operation_us);
    if (launch_us > 0) {
        record.forward_launches_us.assign(workload.forward.size(), launch_us);
        record.backward_launches_us.assign(workload.backward.size(), launch_us);
    }
    return record;
}

std::size_t operations_of(const Scenario& scenario) {
    const Workload workload = step_input(scenario).workload;
    return workload.forward.size() + workload.backward.size();
}

Scenario scenario_of_test(bool sync_each_step) {
    Scenario scenario = testing::small_scenario(1);
    scenario.step.sync_each_step = sync_each_step;
    return scenario;
}

TEST_CASE("a compute-bound step takes all its operations, and from idle its first launch") {
    for (const bool from_idle : {false, true}) {
        const Scenario scenario = scenario_of_test(from_idle);
        const auto n = static_cast<double>(operations_of(scenario));
        // 20 us each, launched in 5: the host is always ahead.
        const double expected_us = 20 * n + (from_idle ? 5 : 0);
        const ComputeComparison comparison =
            compare_compute({record_of(scenario, 20, 5, 21 * n), record_of(scenario, 20, 5, 21 * n),
                             record_of(scenario, 20, 5, 90 * n)},
                            scenario);
        CHECK(comparison.step.predicted_us == Approx(expected_us));
        CHECK(comparison.step.measured_us == Approx(21 * n));  // the median
        CHECK(comparison.step.error() == Approx(expected_us / (21 * n) - 1));
        CHECK_FALSE(comparison.is_launch_bound());
        CHECK(comparison.operations.size() == operations_of(scenario));
    }
}

TEST_CASE("a launch-bound step takes all its launches, and from idle its last operation") {
    for (const bool from_idle : {false, true}) {
        const Scenario scenario = scenario_of_test(from_idle);
        const auto n = static_cast<double>(operations_of(scenario));
        const ComputeComparison comparison =
            compare_compute({record_of(scenario, 5, 20, 20 * n)}, scenario);
        CHECK(comparison.step.predicted_us == Approx(20 * n + (from_idle ? 5 : 0)));
        CHECK(comparison.is_launch_bound());
        CHECK(comparison.host_us == Approx(20 * n));
        CHECK(comparison.device_us == Approx(5 * n));
    }
}

TEST_CASE("a step that is one graph takes all its operations, and from idle its launch") {
    for (const bool from_idle : {false, true}) {
        const Scenario scenario = scenario_of_test(from_idle);
        const auto n = static_cast<double>(operations_of(scenario));
        ComputeRecord record = record_of(scenario, 5, 0, 6 * n);
        record.graph_launch_us = 40;
        const ComputeComparison comparison = compare_compute({record}, scenario);
        CHECK(comparison.step.predicted_us == Approx(5 * n + (from_idle ? 40 : 0)));
    }
}

TEST_CASE("where the host is the device, the step is its operations") {
    const Scenario scenario = testing::small_scenario(1);
    const auto n = static_cast<double>(operations_of(scenario));
    const ComputeComparison comparison =
        compare_compute({record_of(scenario, 7, 0, 7 * n)}, scenario);
    CHECK(comparison.step.predicted_us == Approx(7 * n));
    CHECK(comparison.step.error() == Approx(0).margin(1e-9));
    CHECK_FALSE(comparison.launch);
}

TEST_CASE("the roofline of a device is found again from what its operations take") {
    // 0.2 TFLOP/s, at which products are bound by arithmetic, and 100 GB/s: each operation's time
    // is exactly the roofline's.
    Scenario scenario = testing::small_scenario(1);
    auto& workload = std::get<ModelWorkload>(scenario.workload);
    workload.input.batch = 64;  // long enough to be timed
    Device device;
    device.peak_tflop_per_s.fill(0.2);
    device.memory_bandwidth = bandwidth_from_gb_per_s(100);
    workload.device = device;
    const Workload truth = step_input(scenario).workload;
    ComputeRecord record;
    for (const TimedOperation& operation : truth.forward) {
        record.forward_operations_us.push_back(to_us(operation.device));
        record.forward_us += to_us(operation.device);
    }
    for (const TimedOperation& operation : truth.backward) {
        record.backward_operations_us.push_back(to_us(operation.device));
        record.backward_us += to_us(operation.device);
    }
    record.samples_us = {record.forward_us + record.backward_us};
    const ComputeComparison comparison = compare_compute({record}, scenario);
    REQUIRE(comparison.device);
    CHECK(comparison.device->device.peak(workload.arithmetic) == Approx(0.2).epsilon(0.02));
    CHECK(comparison.device->typical_residual < 0.02);
    CHECK(comparison.step.error() == Approx(0).margin(1e-6));
}

}  // namespace
}  // namespace bucketwise
