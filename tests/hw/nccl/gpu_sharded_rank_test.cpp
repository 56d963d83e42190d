// Sharded steps on GPUs: the instruction list that is simulated, on the streams that fully_shard
// has.
#include <array>
#include <string>
#include <vector>

#include "hw/nccl/gpu_rank.h"
#include "sim/scenario/scenario.h"
#include "tests/catch.h"
#include "tests/contains.h"
#include "tests/hw/nccl/gpu_ranks.h"
#include "tests/hw/rank/sharded_scenario.h"
#include "tests/hw/rank/small_scenario.h"

namespace bucketwise {
namespace {

using testing::contains;
using testing::on_gpus;
using testing::possible_ranks;
using testing::RankOutcome;
using testing::replay_of;
using testing::replicated;
using testing::sharded_scenario;

// Runs act(device, replay, rank) on as many GPUs as the scenario has ranks.
template <typename Act>
void on_sharded_devices(const std::vector<Scenario>& scenarios, const Act& act) {
    const auto ranks = static_cast<int>(scenarios.front().group.ranks);
    const std::vector<RankOutcome> outcomes =
        on_gpus(ranks, [&](Communicators& communicators, ControlGroup&, int rank) {
            for (const Scenario& scenario : scenarios) {
                const ReplayedStep replay = replay_of(scenario, false);
                GpuRank device(scenario, replay_input(scenario).workload, {}, communicators);
                act(device, replay, rank);
            }
        });
    INFO(ranks << " ranks: " << testing::first_reason(outcomes));
    CHECK(testing::first_reason(outcomes).empty());
}

void check_sharded(const std::vector<Scenario>& scenarios) {
    testing::WrongOfRanks wrong(static_cast<std::size_t>(scenarios.front().group.ranks));
    on_sharded_devices(scenarios, [&](GpuRank& device, const ReplayedStep& replay, int rank) {
        wrong[static_cast<std::size_t>(rank)].push_back(testing::wrong_in_steps(replay, device));
    });
    testing::check_nothing_wrong(scenarios, wrong);
}

TEST_CASE("GPUs gather every parameter and reduce every gradient, however they are grouped") {
    for (const int ranks :
         possible_ranks(testing::is_thorough ? std::vector{2, 3} : std::vector{3})) {
        check_sharded(testing::with_every_grouping(ranks));
    }
}

TEST_CASE("GPUs reduce gradients in every micro-step, or together in the last") {
    for (const int ranks : possible_ranks({2})) {
        check_sharded(testing::with_micro_steps(ranks));
    }
}

TEST_CASE("what a GPU gathers ahead is there when it is computed with") {
    for (const int ranks : possible_ranks({3})) {
        check_sharded(testing::with_prefetching(ranks));
    }
}

TEST_CASE("replicas of shards on GPUs are all-reduced") {
    if (!possible_ranks({4}).empty()) {
        check_sharded(testing::with_replicas());
        check_sharded(testing::with_fewer_ranks_in_backward());
    }
    if (!possible_ranks({6}).empty() && testing::is_thorough) {
        check_sharded({replicated(sharded_scenario(6), 2), replicated(sharded_scenario(6), 3),
                       replicated(sharded_scenario(6), 6)});
    }
}

TEST_CASE("collectives alone are among the GPUs that steps have them among") {
    if (possible_ranks({4}).empty()) {
        return;
    }
    std::array<std::vector<MessageTrace>, 4> traces;  // by rank
    on_sharded_devices(
        {replicated(sharded_scenario(4), 2)}, [&](GpuRank& device, const ReplayedStep&, int rank) {
            std::vector<MessageTrace>& of_rank = traces.at(static_cast<std::size_t>(rank));
            for (const Message& message : testing::message_of_each_kind(4)) {
                of_rank.push_back(device.measure_as_in_steps(message, 3));
                of_rank.push_back(device.measure(message, 3));
            }
        });
    for (const std::vector<MessageTrace>& of_rank : traces) {
        REQUIRE(of_rank.size() == 6);
        for (std::size_t i = 0; i < of_rank.size(); ++i) {
            CHECK(of_rank[i].ranks == (i % 2 == 0 ? 2 : 0));  // 0: all
            CHECK(of_rank[i].times.size() == 3);
            CHECK(of_rank[i].wrong.empty());
        }
    }
}

TEST_CASE("stage 3 on GPUs gathers modules ahead, keeps small ones and fills buckets") {
    for (const int ranks :
         possible_ranks(testing::is_thorough ? std::vector{2, 3} : std::vector{2})) {
        check_sharded(testing::with_stage_3(ranks));
    }
}

TEST_CASE("a transformer is sharded among GPUs, in every dtype") {
    for (const int ranks : possible_ranks({2})) {
        std::vector<Scenario> scenarios;
        for (const DType dtype : every<DType>) {
            Scenario& scenario = scenarios.emplace_back(testing::small_scenario(ranks));
            std::get<ModelWorkload>(scenario.workload).dtype = dtype;
            scenario.sharding = ShardingRequest{};
            scenario.step.optimizer = Optimizer::sgd_momentum;
        }
        check_sharded(scenarios);
    }
}

TEST_CASE("a trace of a sharded step has collectives of each communicator one after another") {
    for (const int ranks : possible_ranks({4})) {
        const Scenario scenario = replicated(sharded_scenario(ranks), 2);
        on_sharded_devices({scenario}, [&](GpuRank& device, const ReplayedStep& replay, int) {
            const StepTrace trace = device.run(replay, 0, Communicate::yes);
            if (trace.instructions.size() != replay.program.instructions.size() ||
                trace.host.size() != replay.program.instructions.size()) {
                throw std::runtime_error("no interval for each instruction");
            }
            std::array<Duration, communication_streams> free{};
            for (std::size_t i = 0; i < trace.collectives.size(); ++i) {
                Duration& end =
                    free[static_cast<std::size_t>(replay.program.collectives[i].stream)];
                if (trace.collectives[i].begin < end) {
                    throw std::runtime_error("two collectives at a time");
                }
                end = trace.collectives[i].end;
            }
            for (std::size_t i = 0; i < replay.program.instructions.size(); ++i) {
                const Instruction& instruction = replay.program.instructions[i];
                const bool waits = instruction.kind == InstructionKind::wait;
                if (waits &&
                    trace.instructions[i].end + duration_from_us(1) <
                        trace.collectives[static_cast<std::size_t>(instruction.subject)].end) {
                    throw std::runtime_error("a wait ends before what it waits for");
                }
            }
        });
    }
}

TEST_CASE("what is computed of a sharded step is timed alone, and beside each collective") {
    for (const int ranks : possible_ranks({2})) {
        on_sharded_devices(
            {sharded_scenario(ranks)}, [](GpuRank& device, const ReplayedStep& replay, int) {
                device.calibrate();
                const ReplayedStep computing = computing_of(replay);
                device.run(computing, 0, Communicate::for_free);
                const std::optional<StepTrace> each = device.run_each(replay, 1);
                if (!each || each->instructions.size() != replay.program.instructions.size() ||
                    each->instructions.back().end <= Duration{0}) {
                    throw std::runtime_error("no time for each instruction");
                }
                const std::vector<Duration> alone = device.backward_alone();
                for (const CollectiveKind kind :
                     {CollectiveKind::all_gather, CollectiveKind::reduce_scatter}) {
                    const ContentionTrace beside = device.contend(
                        {.size = Bytes{1 << 16}, .dtype = DType::float32, .kind = kind}, 40, alone);
                    if (beside.times.size() != 40) {
                        throw std::runtime_error("not every collective was timed");
                    }
                }
            });
    }
}

TEST_CASE("a sharded step that communicates with nobody is seen on GPUs") {
    for (const int ranks : possible_ranks({2})) {
        std::vector<std::string> wrong(static_cast<std::size_t>(ranks));
        on_sharded_devices({sharded_scenario(ranks)},
                           [&](GpuRank& device, const ReplayedStep& replay, int rank) {
                               device.run(replay, 0, Communicate::yes);
                               device.run(replay, 1, Communicate::for_free);
                               wrong[static_cast<std::size_t>(rank)] = device.check().wrong;
                           });
        for (const std::string& of_rank : wrong) {
            CHECK(contains(of_rank, "parameter "));
        }
    }
}

}  // namespace
}  // namespace bucketwise
