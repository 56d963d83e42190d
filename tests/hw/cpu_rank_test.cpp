// Every strategy, for real: the instruction list that is simulated, replayed on real buffers by
// several ranks of this process.
#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "hw/cpu_rank.h"
#include "hw/measurer.h"
#include "sim/program.h"
#include "sim/scenario.h"
#include "tests/catch.h"
#include "tests/hw/gloo_ranks.h"
#include "tests/hw/small_scenario.h"

namespace bucketwise {
namespace {

using testing::on_ranks;
using testing::Outcome;
using testing::small_scenario;

struct Replayed {
    std::string wrong;
    double largest_difference = 0;
    std::size_t collectives = 0;
};

// Three steps, each checked: gradients of one step must not survive into the next.
Replayed replay_on(Communicator& communicator, const Scenario& scenario) {
    const StepInput input = replay_input(scenario);
    const SyncSettings sync = settings_for(scenario.sync);
    const BucketPlan plan =
        make_plan(input.workload.gradients, input.workload.readiness, sync.policy);
    const Program program = build_program(input, sync, plan);
    CpuRank device(scenario, input.workload, sync, communicator);
    Replayed result;
    for (std::int64_t step = 0; step < 3; ++step) {
        const StepTrace trace = device.run(program, sync, plan, step, Communicate::yes);
        const StepCheck check = device.check();
        result.wrong += check.wrong;
        result.largest_difference = std::max(result.largest_difference, check.largest_difference);
        result.collectives = trace.collectives.size();
    }
    return result;
}

std::string label_of(const Scenario& scenario) {
    return std::string(name_of(scenario.sync.strategy)) + ", hook " +
           std::string(name_of(scenario.sync.comm_hook)) + ", views " +
           std::to_string(scenario.sync.views) + ", accumulation " +
           std::to_string(scenario.step.accumulation) + ": ";
}

// By rank, what each scenario left, one after the other on the same connections.
std::vector<std::vector<Replayed>> replay_all(int ranks, const std::vector<Scenario>& scenarios) {
    std::vector<std::vector<Replayed>> results(static_cast<std::size_t>(ranks));
    const std::vector<Outcome> outcomes = on_ranks(ranks, [&](GlooConnection& connection,
                                                              int rank) {
        Communicator& communicator = connection.communicator(AllReduceImplementation::library);
        for (const Scenario& scenario : scenarios) {
            results[static_cast<std::size_t>(rank)].push_back(replay_on(communicator, scenario));
        }
    });
    CHECK(testing::first_reason(outcomes).empty());
    return results;
}

void check_all_right(int ranks, const std::vector<Scenario>& scenarios) {
    for (const std::vector<Replayed>& of_rank : replay_all(ranks, scenarios)) {
        REQUIRE(of_rank.size() == scenarios.size());
        for (std::size_t i = 0; i < scenarios.size(); ++i) {
            CHECK(label_of(scenarios[i]) + of_rank[i].wrong == label_of(scenarios[i]));
        }
    }
}

TEST_CASE("every strategy leaves the exact mean on every rank") {
    for (const int ranks : {1, 2, 3, 4, 8}) {
        std::vector<Scenario> scenarios;
        for (const Strategy strategy : all_strategies) {
            if (strategy != Strategy::none) {
                scenarios.push_back(small_scenario(ranks));
                scenarios.back().sync.strategy = strategy;
            }
        }
        INFO(ranks << " ranks");
        check_all_right(ranks, scenarios);
    }
}

TEST_CASE("with 2, 4 and 8 ranks every mean of small integers is exact in float32") {
    for (const int ranks : {2, 4, 8}) {
        for (const std::vector<Replayed>& of_rank : replay_all(ranks, {small_scenario(ranks)})) {
            CHECK(of_rank.at(0).largest_difference == 0.0);
        }
    }
}

TEST_CASE("views, hooks, accumulation and the map of unused parameters keep the mean") {
    for (const int ranks : {2, 3}) {
        std::vector<Scenario> scenarios;
        for (const bool views : {false, true}) {
            for (const CommHook hook : {CommHook::none, CommHook::fp16, CommHook::bf16}) {
                for (const std::int64_t accumulation : {1, 3}) {
                    Scenario& scenario = scenarios.emplace_back(small_scenario(ranks));
                    scenario.sync.views = views;
                    scenario.sync.comm_hook = hook;
                    scenario.sync.find_unused_parameters = views;
                    scenario.sync.fused_copies = accumulation == 3;
                    scenario.step.accumulation = accumulation;
                    scenario.step.optimizer = Optimizer::adam;
                }
            }
        }
        check_all_right(ranks, scenarios);
    }
}

TEST_CASE("hooks and accumulation keep the mean under the other strategies too") {
    std::vector<Scenario> scenarios;
    for (const Strategy strategy : {Strategy::naive, Strategy::flat, Strategy::overlap,
                                    Strategy::bucketed, Strategy::python_async}) {
        Scenario& scenario = scenarios.emplace_back(small_scenario(2));
        scenario.sync.strategy = strategy;
        scenario.sync.comm_hook = CommHook::fp16;
        scenario.step.accumulation = 2;
        scenario.step.optimizer = Optimizer::sgd_momentum;
    }
    check_all_right(2, scenarios);
}

TEST_CASE("gradients of every dtype are reduced") {
    std::vector<Scenario> scenarios;
    for (const DType dtype : all_dtypes) {
        std::get<ModelWorkload>(scenarios.emplace_back(small_scenario(2)).workload).dtype = dtype;
    }
    check_all_right(2, scenarios);
}

TEST_CASE("a network with batch normalisation broadcasts its buffers and keeps the mean") {
    Scenario scenario = small_scenario(2);
    ModelWorkload workload = std::get<ModelWorkload>(scenario.workload);
    workload.model = "resnet18";
    workload.input = {.batch = 1, .image_size = 32};
    scenario.workload = workload;
    scenario.sync.bucket_cap = Bytes{8 * bytes_per_mib};
    for (const std::vector<Replayed>& of_rank : replay_all(2, {scenario})) {
        CHECK(of_rank.at(0).wrong.empty());
        // Floats and counters are broadcast apart, then four or more buckets.
        CHECK(of_rank.at(0).collectives >= 6);
    }
}

TEST_CASE("statistics of BatchNorm are exchanged between the ranks in every micro-step") {
    for (const int ranks : {1, 2, 3}) {
        std::vector<Scenario> scenarios;
        for (const BatchNormSync sync : {BatchNormSync::gather, BatchNormSync::fused}) {
            Scenario& scenario = scenarios.emplace_back(small_scenario(ranks));
            ModelWorkload workload = std::get<ModelWorkload>(scenario.workload);
            workload.model = "resnet18";
            workload.input = {.batch = 1, .image_size = 32};
            scenario.workload = workload;
            scenario.sync.batch_norm = sync;
            scenario.sync.bucket_cap = Bytes{8 * bytes_per_mib};
            scenario.step.accumulation = 2;
        }
        check_all_right(ranks, scenarios);
        for (const std::vector<Replayed>& of_rank : replay_all(ranks, scenarios)) {
            // 20 BatchNorms, both ways, twice; two broadcasts, four or more buckets.
            CHECK(of_rank.at(0).collectives >= 20 * 2 * 2 + 6);
        }
    }
}

TEST_CASE("gradients of which only the readiness is known are reduced") {
    Scenario scenario = small_scenario(2);
    GradientWorkload workload;
    workload.forward = duration_from_ms(0.1);
    workload.backward = duration_from_ms(0.5);
    for (int i = 0; i < 5; ++i) {
        workload.gradients.push_back({{.name = "g" + std::to_string(i),
                                       .numel = 1 + 3000 * i,
                                       .dtype = i == 3 ? DType::float64 : DType::float32},
                                      duration_from_ms(0.1 * i)});
    }
    scenario.workload = workload;
    scenario.step.optimizer = duration_from_ms(0.1);
    check_all_right(2, {scenario});
}

// --- wrong sums are seen
// ----------------------------------------------------------------------------

// Sums over the ranks of a job that do not exist, each of which holds what this rank holds.
class PretendingCommunicator : public Communicator {
  public:
    enum class Fault { none, forgets_a_rank, reduces_nothing, shifts_elements, drops_the_tail };

    PretendingCommunicator(Fault fault) : fault_(fault) {}
    [[nodiscard]] int rank() const override { return 0; }
    [[nodiscard]] int ranks() const override { return 1; }
    void all_reduce_sum(void* data, std::int64_t elements, DType /*dtype*/) override {
        auto* values = static_cast<float*>(data);
        const auto count = static_cast<std::size_t>(elements);
        switch (fault_) {
            case Fault::none:
            case Fault::reduces_nothing:
                break;
            case Fault::forgets_a_rank:
                std::fill_n(values, count, 0.0F);
                break;
            case Fault::shifts_elements:
                std::rotate(values, values + 1, values + count);
                break;
            case Fault::drops_the_tail:
                values[count - 1] = 0.0F;
                break;
        }
    }
    void all_gather(const void* own, void* all, Bytes size) override {
        std::memcpy(all, own, static_cast<std::size_t>(size.count));
    }
    void broadcast_from_first(void* /*data*/, Bytes /*size*/) override {}

  private:
    Fault fault_;
};

std::string what_is_wrong(PretendingCommunicator::Fault fault) {
    const Scenario scenario = small_scenario(1);
    const StepInput input = replay_input(scenario);
    const SyncSettings sync = settings_for(scenario.sync);
    const BucketPlan plan =
        make_plan(input.workload.gradients, input.workload.readiness, sync.policy);
    PretendingCommunicator communicator(fault);
    CpuRank device(scenario, input.workload, sync, communicator);
    device.run(build_program(input, sync, plan), sync, plan, 0, Communicate::yes);
    return device.check().wrong;
}

TEST_CASE("a sum that is not the mean is seen, and named by gradient and element") {
    using Fault = PretendingCommunicator::Fault;
    CHECK(what_is_wrong(Fault::none).empty());
    for (const Fault fault :
         {Fault::forgets_a_rank, Fault::shifts_elements, Fault::drops_the_tail}) {
        const std::string wrong = what_is_wrong(fault);
        CHECK(testing::contains(wrong, "gradient "));
        CHECK(testing::contains(wrong, "expected the mean"));
    }
}

TEST_CASE("gradients left over from the step before are seen") {
    const Scenario scenario = small_scenario(1);
    const StepInput input = replay_input(scenario);
    const SyncSettings sync = settings_for(scenario.sync);
    const BucketPlan plan =
        make_plan(input.workload.gradients, input.workload.readiness, sync.policy);
    PretendingCommunicator communicator(PretendingCommunicator::Fault::none);
    CpuRank device(scenario, input.workload, sync, communicator);
    const Program program = build_program(input, sync, plan);
    device.run(program, sync, plan, 0, Communicate::yes);
    // A step that computes nothing leaves the buffers as they are.
    device.run(Program{}, sync, plan, 1, Communicate::yes);
    CHECK_FALSE(device.check().wrong.empty());
}

// --- what a trace says
// ------------------------------------------------------------------------------

TEST_CASE("a trace holds every instruction in order and no collective before its launch") {
    const Scenario scenario = small_scenario(2);
    std::array<StepTrace, 2> traces;
    const StepInput input = replay_input(scenario);
    const SyncSettings sync = settings_for(scenario.sync);
    const BucketPlan plan =
        make_plan(input.workload.gradients, input.workload.readiness, sync.policy);
    const Program program = build_program(input, sync, plan);
    const std::vector<Outcome> outcomes = on_ranks(2, [&](GlooConnection& connection, int rank) {
        CpuRank device(scenario, input.workload, sync,
                       connection.communicator(AllReduceImplementation::ring));
        traces[static_cast<std::size_t>(rank)] =
            device.run(program, sync, plan, 0, Communicate::yes);
    });
    REQUIRE(testing::first_reason(outcomes).empty());
    for (const StepTrace& trace : traces) {
        REQUIRE(trace.instructions.size() == program.instructions.size());
        REQUIRE(trace.collectives.size() == program.collectives.size());
        Duration now{0};
        for (std::size_t i = 0; i < program.instructions.size(); ++i) {
            const Interval& interval = trace.instructions[i];
            CHECK(interval.begin >= now);
            CHECK(interval.end >= interval.begin);
            now = interval.end;
            const Instruction& instruction = program.instructions[i];
            if (instruction.kind == InstructionKind::launch) {
                CHECK(trace.collectives[static_cast<std::size_t>(instruction.subject)].begin >=
                      interval.begin);
            }
            if (instruction.kind == InstructionKind::wait) {
                CHECK(trace.collectives[static_cast<std::size_t>(instruction.subject)].end <=
                      interval.end);
            }
        }
        for (std::size_t i = 1; i < trace.collectives.size(); ++i) {
            CHECK(trace.collectives[i].begin >= trace.collectives[i - 1].end);
        }
        const MeasuredStep step = summarize(program, trace);
        CHECK(step.step() == trace.instructions.back().end);
        CHECK(step.waiting <= step.step());
    }
}

TEST_CASE("gradients that live in buckets have places of their own before any bucket is sent") {
    Scenario scenario = small_scenario(1);
    scenario.sync.views = true;
    const StepInput input = replay_input(scenario);
    const SyncSettings sync = settings_for(scenario.sync);
    SyncRequest none;
    none.strategy = Strategy::none;
    PretendingCommunicator communicator(PretendingCommunicator::Fault::none);
    CpuRank device(scenario, input.workload, sync, communicator);
    // A step without buckets, as compute alone is measured: with one rank its gradients are means.
    device.run(build_program(input, settings_for(none), {}), settings_for(none), {}, 0,
               Communicate::for_free);
    CHECK(device.check().wrong.empty());
}

TEST_CASE("a float16 sum over many micro-steps does not overflow") {
    Scenario scenario = small_scenario(2);
    std::get<ModelWorkload>(scenario.workload).dtype = DType::float16;
    scenario.sync.strategy = Strategy::overlap;
    scenario.step.accumulation = 130;
    check_all_right(2, {scenario});
}

TEST_CASE("free communication runs every instruction and no collective") {
    const Scenario scenario = small_scenario(1);
    const StepInput input = replay_input(scenario);
    const SyncSettings sync = settings_for(scenario.sync);
    const BucketPlan plan =
        make_plan(input.workload.gradients, input.workload.readiness, sync.policy);
    // Would be seen as wrong if it ran.
    PretendingCommunicator communicator(PretendingCommunicator::Fault::forgets_a_rank);
    CpuRank device(scenario, input.workload, sync, communicator);
    const StepTrace trace =
        device.run(build_program(input, sync, plan), sync, plan, 0, Communicate::for_free);
    CHECK(trace.collectives.size() == plan.buckets.size());
    CHECK(device.check().wrong.empty());
}

TEST_CASE("contention reports operations that ran while all-reduces did") {
    const Scenario scenario = small_scenario(2);
    std::array<ContentionTrace, 2> traces;
    const StepInput input = replay_input(scenario);
    const SyncSettings sync = settings_for(scenario.sync);
    const std::vector<Outcome> outcomes = on_ranks(2, [&](GlooConnection& connection, int rank) {
        CpuRank device(scenario, input.workload, sync,
                       connection.communicator(AllReduceImplementation::library));
        const std::vector<Duration> alone = device.backward_alone();
        traces[static_cast<std::size_t>(rank)] =
            device.contend({Bytes{1 << 20}, DType::float32}, 20, alone);
    });
    REQUIRE(testing::first_reason(outcomes).empty());
    for (const ContentionTrace& trace : traces) {
        CHECK(trace.times.size() == 20);
        CHECK(trace.compute.alone > Duration{0});
        CHECK(trace.compute.disturbed > Duration{0});
    }
}

}  // namespace
}  // namespace bucketwise
