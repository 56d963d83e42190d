// Every strategy on GPUs: the instruction list that is simulated, replayed on streams.
#include <optional>
#include <string>
#include <vector>

#include "hw/nccl/gpu_rank.h"
#include "sim/scenario/scenario.h"
#include "tests/catch.h"
#include "tests/contains.h"
#include "tests/hw/nccl/gpu_ranks.h"
#include "tests/hw/rank/replayed_scenarios.h"

namespace bucketwise {
namespace {

using testing::check_all_right;
using testing::contains;
using testing::model_of_test;
using testing::on_gpus;
using testing::possible_ranks;
using testing::RankOutcome;
using testing::Replayed;
using testing::ReplayedScenario;
using testing::small_scenario;

// The results of each scenario on each rank.
std::vector<std::vector<Replayed>> replay_all(int ranks, const std::vector<Scenario>& scenarios) {
    std::vector<std::vector<Replayed>> results(static_cast<std::size_t>(ranks));
    testing::require_well(on_gpus(ranks, [&](Communicators& communicators, ControlGroup&,
                                             int rank) {
        for (const Scenario& scenario : scenarios) {
            const ReplayedScenario replayed(scenario);
            GpuRank device(scenario, replayed.input.workload, replayed.step.sync, communicators);
            device.calibrate();
            results[static_cast<std::size_t>(rank)].push_back(three_steps(replayed, device));
        }
    }));
    return results;
}

void replay_and_check(int ranks, const std::vector<Scenario>& scenarios) {
    INFO(ranks << " ranks");
    check_all_right(scenarios, replay_all(ranks, scenarios));
}

// Runs act(replayed scenario, device, rank) on as many GPUs as the small scenario has ranks.
template <typename Act>
void on_devices(const Scenario& scenario, const Act& act) {
    const ReplayedScenario replayed(scenario);
    INFO(scenario.group.ranks << " ranks");
    testing::require_well(on_gpus(static_cast<int>(scenario.group.ranks),
                                  [&](Communicators& communicators, ControlGroup&, int rank) {
                                      GpuRank device(replayed.scenario, replayed.input.workload,
                                                     replayed.step.sync, communicators);
                                      act(replayed, device, rank);
                                  }));
}

TEST_CASE("every strategy leaves the exact mean on every GPU") {
    for (const int ranks :
         possible_ranks(testing::is_thorough ? std::vector{1, 2, 3, 8} : std::vector{1, 3})) {
        std::vector<Scenario> scenarios = testing::with_every_strategy(ranks);
        std::erase_if(scenarios, [](const Scenario& scenario) {
            return is_megatron(use_of(scenario.sync));  // refused
        });
        replay_and_check(ranks, scenarios);
    }
}

TEST_CASE("views, hooks, accumulation, graphs and the map of unused parameters keep the mean") {
    for (const int ranks :
         possible_ranks(testing::is_thorough ? std::vector{1, 2} : std::vector{2})) {
        std::vector<Scenario> scenarios = testing::with_every_way_of_ddp(ranks);
        for (Scenario& scenario : scenarios) {
            scenario.step.cuda_graph =
                scenario.sync.comm_hook == CommHook::none || scenario.step.accumulation == 3;
            scenario.step.sync_each_step = scenario.sync.views;
        }
        replay_and_check(ranks, scenarios);
    }
}

TEST_CASE("gradients of every dtype are computed in every arithmetic and reduced") {
    for (const int ranks :
         possible_ranks(testing::is_thorough ? std::vector{1, 2} : std::vector{1})) {
        std::vector<Scenario> scenarios;
        for (const DType dtype : every<DType>) {
            for (const Arithmetic arithmetic : every<Arithmetic>) {
                ModelWorkload& workload =
                    model_of_test(scenarios.emplace_back(small_scenario(ranks)));
                workload.dtype = dtype;
                workload.arithmetic = arithmetic;
                // float64 has no peak in some presets, and here no price matters.
                workload.device->peak_tflop_per_s.fill(1);
                scenarios.back().step.accumulation = arithmetic == Arithmetic::bfloat16 ? 2 : 1;
            }
        }
        replay_and_check(ranks, scenarios);
    }
}

TEST_CASE("a network with batch normalisation broadcasts its buffers between GPUs") {
    for (const int ranks :
         possible_ranks(testing::is_thorough ? std::vector{1, 2} : std::vector{2})) {
        const Scenario scenario = testing::with_batch_normalisation(ranks);
        for (const std::vector<Replayed>& of_rank : replay_all(ranks, {scenario})) {
            CHECK(of_rank.at(0).wrong.empty());
            CHECK(of_rank.at(0).traces.at(0).collectives.size() >=
                  testing::fewest_collectives_of_batch_normalisation);
        }
    }
}

TEST_CASE("statistics of BatchNorm are exchanged between GPUs, in a CUDA graph too", "[slow]") {
    for (const int ranks : possible_ranks({2})) {
        std::vector<Scenario> scenarios = testing::with_exchanged_statistics(ranks);
        scenarios.back().step.cuda_graph = true;
        replay_and_check(ranks, scenarios);
    }
}

TEST_CASE("gradients of which only the readiness is known are reduced between GPUs") {
    for (const int ranks : possible_ranks({1, 2})) {
        replay_and_check(ranks, {testing::with_gradients_only(ranks)});
    }
}

// --- traces --------------------------------------------------------------------------------------

// Holds of any execution on one compute and one communication stream.
void check_order(const Program& program, const StepTrace& trace) {
    REQUIRE(trace.instructions.size() == program.instructions.size());
    REQUIRE(trace.collectives.size() == program.collectives.size());
    Duration now{0};
    for (const Interval& interval : trace.instructions) {
        CHECK(interval.begin == now);
        CHECK(interval.end >= interval.begin);
        now = interval.end;
    }
    Duration free{0};
    for (const Interval& collective : trace.collectives) {
        CHECK(collective.begin >= free);
        CHECK(collective.end >= collective.begin);
        free = collective.end;
    }
    for (std::size_t i = 0; i < program.instructions.size(); ++i) {
        const Instruction& instruction = program.instructions[i];
        if (instruction.kind == InstructionKind::wait) {
            const auto collective = static_cast<std::size_t>(instruction.subject);
            // A wait ends no earlier than what it waits for, to the events' resolution.
            CHECK(trace.instructions[i].end + duration_from_us(1) >=
                  trace.collectives[collective].end);
        }
    }
}

TEST_CASE("a trace of a GPU's step is in order, with and without a graph") {
    for (const int ranks : possible_ranks({1, 2})) {
        for (const bool cuda_graph : {false, true}) {
            Scenario scenario = small_scenario(ranks);
            scenario.step.cuda_graph = cuda_graph;
            scenario.step.optimizer = Optimizer::sgd_momentum;
            const Program program = ReplayedScenario(scenario).step.program;
            for (const std::vector<Replayed>& of_rank : replay_all(ranks, {scenario})) {
                for (const StepTrace& trace : of_rank.at(0).traces) {
                    check_order(program, trace);
                    CHECK(trace.launches.empty());
                    CHECK(trace.graph_launch.has_value() == cuda_graph);
                }
            }
        }
    }
}

TEST_CASE("each instruction by itself takes time where it computes, and none where it does not") {
    on_devices(small_scenario(1), [](const ReplayedScenario& replayed, GpuRank& device, int) {
        const std::vector<Instruction>& all = replayed.step.program.instructions;
        device.calibrate();
        device.run(replayed.step, 0, Communicate::for_free);
        const std::optional<StepTrace> each = device.run_each(replayed.step, 1);
        if (!each || each->instructions.size() != all.size() ||
            each->launches.size() != all.size()) {
            throw std::runtime_error("no interval for each instruction");
        }
        Duration busy{0};
        for (std::size_t i = 0; i < all.size(); ++i) {
            busy += each->instructions[i].length();
            if (!is_compute(all[i].kind) && each->instructions[i].length() != Duration{0}) {
                throw std::runtime_error("a launch or a wait keeps the device busy");
            }
        }
        if (busy <= Duration{0} || busy != each->instructions.back().end) {
            throw std::runtime_error("the intervals do not follow each other");
        }
    });
}

// --- all-reduces alone, and beside backward ------------------------------------------------------

TEST_CASE("isolated all-gathers and reduce-scatters are right to the element, timed one by one") {
    for (const int ranks : possible_ranks({1, 2, 4})) {
        INFO(ranks << " ranks");
        testing::require_well(
            on_gpus(ranks, [ranks](Communicators& communicators, ControlGroup&, int) {
                GpuMessages messages(communicators);
                for (const CollectiveKind kind :
                     {CollectiveKind::all_gather, CollectiveKind::reduce_scatter}) {
                    for (const DType dtype : every<DType>) {
                        for (const std::int64_t part : {8, 20'000}) {
                            const MessageTrace trace = messages.measure(
                                {.size = {ranks * part}, .dtype = dtype, .kind = kind}, 5);
                            if (!trace.wrong.empty() || trace.times.size() != 5) {
                                throw std::runtime_error(trace.wrong);
                            }
                        }
                    }
                }
            }));
    }
}

TEST_CASE("isolated all-reduces of every dtype have the exact sum, timed one by one") {
    for (const int ranks : possible_ranks({1, 2, 4})) {
        INFO(ranks << " ranks");
        testing::require_well(on_gpus(ranks, [](Communicators& communicators, ControlGroup&, int) {
            GpuMessages messages(communicators);
            for (const DType dtype : every<DType>) {
                for (const std::int64_t bytes : {8, 4096, 200'000}) {
                    const MessageTrace trace = messages.measure({{bytes}, dtype}, 5);
                    if (!trace.wrong.empty() || trace.times.size() != 5 ||
                        trace.issue.size() != 5) {
                        throw std::runtime_error("all-reduce: " + trace.wrong);
                    }
                }
            }
            // More than are launched ahead at once.
            if (messages.repeat({Bytes{64}, DType::float32}, 300, {}).size() != 300) {
                throw std::runtime_error("not every all-reduce was timed");
            }
        }));
    }
}

TEST_CASE("contention tells matrix products from other operations, and counts what overlaps") {
    for (const int ranks : possible_ranks({1, 2})) {
        on_devices(small_scenario(ranks),
                   [](const ReplayedScenario& replayed, GpuRank& device, int) {
                       device.calibrate();
                       const std::vector<Duration> alone = device.backward_alone();
                       if (alone.size() != replayed.input.workload.backward.size()) {
                           throw std::runtime_error("not every operation was timed");
                       }
                       for (const std::optional<std::int64_t>& ctas :
                            {std::optional<std::int64_t>{}, std::optional<std::int64_t>{2}}) {
                           const ContentionTrace trace =
                               device.contend({Bytes{1 << 20}, DType::float32, ctas}, 60, alone);
                           if (trace.times.size() != 60 || !trace.products ||
                               trace.products->alone > trace.compute.alone ||
                               trace.products->disturbed > trace.compute.disturbed) {
                               throw std::runtime_error("contention counts wrongly");
                           }
                       }
                   });
    }
}

// --- failures ------------------------------------------------------------------------------------

TEST_CASE("a gradient that nobody reduced is found by name") {
    // The step communicates for free, so what is left is this rank's own gradients; with two ranks
    // whose values differ that is not the mean.
    for (const int ranks : possible_ranks({2})) {
        std::vector<std::string> wrong(static_cast<std::size_t>(ranks));
        on_devices(small_scenario(ranks),
                   [&](const ReplayedScenario& replayed, GpuRank& device, int rank) {
                       device.run(replayed.step, 0, Communicate::for_free);
                       wrong[static_cast<std::size_t>(rank)] = device.check().wrong;
                   });
        for (const std::string& text : wrong) {
            CHECK(contains(text, "gradient "));
            CHECK(contains(text, "expected the mean"));
        }
    }
}

TEST_CASE("a rank that does not come to a collective is given up on by the deadline") {
    for (const int ranks : possible_ranks({2})) {
        const std::chrono::milliseconds deadline{400};
        const std::vector<RankOutcome> outcomes =
            testing::on_ranks(ranks, [&](GlooConnection& connection, int rank) {
                check_gpu(cudaSetDevice(rank), "cudaSetDevice");
                Communicators communicators(connection.control(), deadline, std::nullopt);
                GpuMessages messages(communicators);
                messages.meet();
                if (rank == 0) {
                    messages.meet();  // alone
                }
                connection.control().barrier();
            });
        CHECK(outcomes[0].ending == testing::Ending::peer_failure);
        CHECK(contains(outcomes[0].reason, "meeting all ranks on rank 0 of 2: not done after"));
        CHECK(outcomes[1].ending == testing::Ending::peer_failure);  // of the barrier
    }
}

// So the one whose steps start from idle comes to fewer collectives than the other.
TEST_CASE("steps lead in to the one that is timed, unless it starts from idle") {
    for (const int ranks : possible_ranks({2})) {
        const std::vector<RankOutcome> outcomes =
            testing::on_ranks(ranks, [&](GlooConnection& connection, int rank) {
                check_gpu(cudaSetDevice(rank), "cudaSetDevice");
                Communicators communicators(connection.control(), std::chrono::milliseconds{400},
                                            std::nullopt);
                Scenario scenario = small_scenario(ranks);
                scenario.step.sync_each_step = rank == 1;
                const ReplayedScenario replayed(scenario);
                GpuRank device(scenario, replayed.input.workload, replayed.step.sync,
                               communicators);
                device.run(replayed.step, 0, Communicate::yes);
                connection.control().barrier();
            });
        CHECK(outcomes[0].ending == testing::Ending::peer_failure);
        CHECK(contains(outcomes[0].reason, "not done after"));
    }
}

TEST_CASE("a rank that aborts fails the others with what NCCL says") {
    for (const int ranks : possible_ranks({2})) {
        const std::vector<RankOutcome> outcomes =
            testing::on_ranks(ranks, [&](GlooConnection& connection, int rank) {
                check_gpu(cudaSetDevice(rank), "cudaSetDevice");
                Communicators communicators(connection.control(), std::chrono::seconds{20},
                                            std::nullopt);
                GpuMessages messages(communicators);
                messages.meet();
                if (rank == 1) {
                    communicators.abort();
                } else {
                    messages.meet();
                }
                connection.control().barrier();
            });
        CHECK(outcomes[0].ending == testing::Ending::peer_failure);
    }
}

TEST_CASE("a step that fails as a graph ends, although its abort waits for the graph to go") {
    for (const int ranks : possible_ranks({2})) {
        const std::vector<RankOutcome> outcomes =
            testing::on_ranks(ranks, [&](GlooConnection& connection, int rank) {
                check_gpu(cudaSetDevice(rank), "cudaSetDevice");
                Communicators communicators(connection.control(), std::chrono::seconds{2},
                                            std::nullopt);
                Scenario scenario = small_scenario(ranks);
                scenario.step.cuda_graph = true;
                const ReplayedScenario replayed(scenario);
                GpuRank device(scenario, replayed.input.workload, replayed.step.sync,
                               communicators);
                device.run(replayed.step, 0, Communicate::yes);
                GpuMessages messages(communicators);
                if (rank == 0) {
                    device.run(replayed.step, 1, Communicate::yes);
                } else {
                    messages.meet();  // as rank 0 does before its step, and nothing after
                }
                connection.control().barrier();
            });
        CHECK(outcomes[0].ending == testing::Ending::peer_failure);
        CHECK(contains(outcomes[0].reason, "a step on rank 0 of 2: not done after"));
    }
}

TEST_CASE("after a failure every call fails at once, and nothing hangs at the end") {
    const std::vector<RankOutcome> outcomes = testing::on_ranks(1, [&](GlooConnection& connection,
                                                                       int) {
        check_gpu(cudaSetDevice(0), "cudaSetDevice");
        Communicators communicators(connection.control(), std::chrono::seconds{20}, std::nullopt);
        GpuMessages messages(communicators);
        communicators.abort();
        messages.meet();
    });
    CHECK(outcomes[0].ending == testing::Ending::peer_failure);
    CHECK(contains(outcomes[0].reason, "an earlier collective failed"));
}

}  // namespace
}  // namespace bucketwise
