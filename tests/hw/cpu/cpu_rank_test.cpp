// Every strategy, for real: the instruction list that is simulated, replayed on real buffers by
// several ranks of this process.
#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "hw/cpu/cpu_rank.h"
#include "sim/plan/strategy.h"
#include "sim/scenario/scenario.h"
#include "tests/catch.h"
#include "tests/contains.h"
#include "tests/hw/gloo/gloo_ranks.h"
#include "tests/hw/rank/replayed_scenarios.h"

namespace bucketwise {
namespace {

using testing::check_all_right;
using testing::on_ranks;
using testing::Replayed;
using testing::ReplayedScenario;
using testing::small_scenario;

CommunicatorsAmong<Communicator> all_of(GlooConnection& connection,
                                        AllReduceImplementation implementation) {
    return CommunicatorsAmong<Communicator>(connection.communicator(implementation));
}

// By rank, what each scenario left, one after the other on the same connections.
std::vector<std::vector<Replayed>> replay_all(int ranks, const std::vector<Scenario>& scenarios) {
    std::vector<std::vector<Replayed>> results(static_cast<std::size_t>(ranks));
    testing::require_well(on_ranks(ranks, [&](GlooConnection& connection, int rank) {
        for (const Scenario& scenario : scenarios) {
            const ReplayedScenario replayed(scenario);
            CpuRank device(scenario, replayed.input.workload, replayed.step.sync,
                           all_of(connection, AllReduceImplementation::library));
            results[static_cast<std::size_t>(rank)].push_back(three_steps(replayed, device));
        }
    }));
    return results;
}

void replay_and_check(int ranks, const std::vector<Scenario>& scenarios) {
    INFO(ranks << " ranks");
    check_all_right(scenarios, replay_all(ranks, scenarios));
}

TEST_CASE("every strategy leaves the exact mean on every rank") {
    for (const int ranks : {1, 2, 3, 4, 8}) {
        replay_and_check(ranks, testing::with_every_strategy(ranks));
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
        replay_and_check(ranks, testing::with_every_way_of_ddp(ranks));
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
    replay_and_check(2, scenarios);
}

TEST_CASE("gradients of every dtype are reduced") {
    std::vector<Scenario> scenarios;
    for (const DType dtype : every<DType>) {
        std::get<ModelWorkload>(scenarios.emplace_back(small_scenario(2)).workload).dtype = dtype;
    }
    replay_and_check(2, scenarios);
}

TEST_CASE("a network with batch normalisation broadcasts its buffers and keeps the mean") {
    const Scenario scenario = testing::with_batch_normalisation(2);
    for (const std::vector<Replayed>& of_rank : replay_all(2, {scenario})) {
        CHECK(of_rank.at(0).wrong.empty());
        CHECK(of_rank.at(0).traces.at(0).collectives.size() >=
              testing::fewest_collectives_of_batch_normalisation);
    }
}

TEST_CASE("statistics of BatchNorm are exchanged between the ranks in every micro-step") {
    for (const int ranks : {1, 2, 3}) {
        const std::vector<Scenario> scenarios = testing::with_exchanged_statistics(ranks);
        const std::vector<std::vector<Replayed>> results = replay_all(ranks, scenarios);
        check_all_right(scenarios, results);
        for (const std::vector<Replayed>& of_rank : results) {
            // 20 BatchNorms, both ways, twice; two broadcasts, four or more buckets.
            CHECK(of_rank.at(0).traces.at(0).collectives.size() >= 20 * 2 * 2 + 6);
        }
    }
}

TEST_CASE("gradients of which only the readiness is known are reduced") {
    replay_and_check(2, {testing::with_gradients_only(2)});
}

// --- other frameworks ---

TEST_CASE("frameworks' programs leave the exact mean, and gather every parameter") {
    for (const Strategy strategy : every<Strategy>) {
        for (const int ranks : {2, 3}) {
            std::vector<Scenario> scenarios;
            for (const std::int64_t accumulation : {1, 3}) {
                for (const std::int64_t cap : {20'000, 80'000, 4'000'000}) {
                    for (const DType dtype : {DType::float32, DType::bfloat16}) {
                        Scenario& scenario = scenarios.emplace_back(small_scenario(ranks));
                        scenario.sync.strategy = strategy;
                        scenario.sync.bucket_cap = Bytes{cap};
                        scenario.sync.options.overlaps = cap != 80'000;
                        scenario.step.accumulation = accumulation;
                        scenario.step.optimizer = Optimizer::adam;
                        testing::model_of_test(scenario).dtype = dtype;
                    }
                }
            }
            if (framework_of(strategy)) {
                CHECK(ReplayedScenario(scenarios.front()).step.plan.buckets.size() >= 2);
                replay_and_check(ranks, scenarios);
            }
        }
    }
}

// --- wrong sums are seen ---

// Sums over the ranks of a job that do not exist, each with this rank's values.
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
    void reduce_scatter_sum(void* /*data*/, std::int64_t /*elements*/, DType /*dtype*/) override {}
    void all_gather(const void* own, void* all, Bytes size) override {
        std::memcpy(all, own, static_cast<std::size_t>(size.count));
    }
    void broadcast_from_first(void* /*data*/, Bytes /*size*/) override {}

  private:
    Fault fault_;
};

std::string what_is_wrong(PretendingCommunicator::Fault fault, Strategy strategy = Strategy::ddp) {
    Scenario scenario = small_scenario(1);
    scenario.sync.strategy = strategy;
    const ReplayedScenario replayed(scenario);
    PretendingCommunicator communicator(fault);
    CpuRank device(replayed.scenario, replayed.input.workload, replayed.step.sync,
                   CommunicatorsAmong<Communicator>(communicator));
    device.run(replayed.step, 0, Communicate::yes);
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

TEST_CASE("a sum that is not the mean is seen in the shares and buckets of frameworks") {
    using Fault = PretendingCommunicator::Fault;
    for (const Strategy strategy : {Strategy::megatron_lm, Strategy::deepspeed_zero1,
                                    Strategy::deepspeed_zero2, Strategy::horovod}) {
        INFO(name_of(strategy));
        CHECK(what_is_wrong(Fault::none, strategy).empty());
        for (const Fault fault :
             {Fault::forgets_a_rank, Fault::shifts_elements, Fault::drops_the_tail}) {
            CHECK(testing::contains(what_is_wrong(fault, strategy), "expected the mean"));
        }
    }
}

TEST_CASE("gradients left over from the step before are seen") {
    const ReplayedScenario replayed(small_scenario(1));
    PretendingCommunicator communicator(PretendingCommunicator::Fault::none);
    CpuRank device(replayed.scenario, replayed.input.workload, replayed.step.sync,
                   CommunicatorsAmong<Communicator>(communicator));
    device.run(replayed.step, 0, Communicate::yes);
    // A step that computes nothing leaves the buffers as they are.
    const ReplayedStep nothing{.sync = replayed.step.sync, .plan = replayed.step.plan};
    device.run(nothing, 1, Communicate::yes);
    CHECK_FALSE(device.check().wrong.empty());
}

// --- what a trace says ---

TEST_CASE("a trace holds every instruction in order and no collective before its launch") {
    const ReplayedScenario replayed(small_scenario(2));
    const Program& program = replayed.step.program;
    std::array<StepTrace, 2> traces;
    testing::require_well(on_ranks(2, [&](GlooConnection& connection, int rank) {
        CpuRank device(replayed.scenario, replayed.input.workload, replayed.step.sync,
                       all_of(connection, AllReduceImplementation::ring));
        traces[static_cast<std::size_t>(rank)] = device.run(replayed.step, 0, Communicate::yes);
    }));
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
    const ReplayedScenario replayed(scenario);
    scenario.sync = {};
    scenario.sync.strategy = Strategy::none;
    const ReplayedScenario computing(scenario);
    PretendingCommunicator communicator(PretendingCommunicator::Fault::none);
    CpuRank device(replayed.scenario, replayed.input.workload, replayed.step.sync,
                   CommunicatorsAmong<Communicator>(communicator));
    // A step without buckets, as compute alone is measured: with one rank its gradients are means.
    const ReplayedStep alone{.program = computing.step.program, .sync = computing.step.sync};
    device.run(alone, 0, Communicate::for_free);
    CHECK(device.check().wrong.empty());
}

TEST_CASE("a float16 sum over many micro-steps does not overflow") {
    Scenario scenario = small_scenario(2);
    std::get<ModelWorkload>(scenario.workload).dtype = DType::float16;
    scenario.sync.strategy = Strategy::overlap;
    scenario.step.accumulation = 130;
    replay_and_check(2, {scenario});
}

TEST_CASE("free communication runs every instruction and no collective") {
    const ReplayedScenario replayed(small_scenario(1));
    // Would be seen as wrong if it ran.
    PretendingCommunicator communicator(PretendingCommunicator::Fault::forgets_a_rank);
    CpuRank device(replayed.scenario, replayed.input.workload, replayed.step.sync,
                   CommunicatorsAmong<Communicator>(communicator));
    const StepTrace trace = device.run(replayed.step, 0, Communicate::for_free);
    CHECK(trace.collectives.size() == replayed.step.plan.buckets.size());
    CHECK(device.check().wrong.empty());
}

TEST_CASE("contention reports operations that ran while all-reduces did") {
    const ReplayedScenario replayed(small_scenario(2));
    std::array<ContentionTrace, 2> traces;
    testing::require_well(on_ranks(2, [&](GlooConnection& connection, int rank) {
        CpuRank device(replayed.scenario, replayed.input.workload, replayed.step.sync,
                       all_of(connection, AllReduceImplementation::library));
        const std::vector<Duration> alone = device.backward_alone();
        traces[static_cast<std::size_t>(rank)] =
            device.contend({Bytes{1 << 20}, DType::float32}, 20, alone);
    }));
    for (const ContentionTrace& trace : traces) {
        CHECK(trace.times.size() == 20);
        CHECK(trace.compute.alone > Duration{0});
        CHECK(trace.compute.disturbed > Duration{0});
    }
}

}  // namespace
}  // namespace bucketwise
