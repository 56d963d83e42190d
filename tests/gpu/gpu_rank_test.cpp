// Every strategy on GPUs: the instruction list that is simulated, replayed on streams.
#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "hw/measurer.h"
#include "hw/nccl/gpu_rank.h"
#include "sim/program.h"
#include "sim/scenario.h"
#include "tests/catch.h"
#include "tests/gpu/gpu_ranks.h"
#include "tests/hw/small_scenario.h"

namespace bucketwise {
namespace {

using testing::contains;
using testing::on_gpus;
using testing::Outcome;
using testing::possible_ranks;
using testing::small_scenario;

struct Replayed {
    std::string wrong;
    double largest_difference = 0;
    std::vector<StepTrace> traces;
    Program program;
};

// Three steps, each checked: gradients of one step must not survive into the next.
Replayed replay_on(Communicators& communicators, const Scenario& scenario) {
    const StepInput input = replay_input(scenario);
    const SyncSettings sync = settings_for(scenario.sync);
    const BucketPlan plan =
        make_plan(input.workload.gradients, input.workload.readiness, sync.policy);
    Replayed result;
    result.program = build_program(input, sync, plan);
    GpuRank device(scenario, input.workload, sync, communicators);
    device.calibrate();
    for (std::int64_t step = 0; step < 3; ++step) {
        result.traces.push_back(device.run(result.program, sync, plan, step, Communicate::yes));
        const StepCheck check = device.check();
        result.wrong += check.wrong;
        result.largest_difference = std::max(result.largest_difference, check.largest_difference);
    }
    return result;
}

std::string label_of(const Scenario& scenario) {
    return std::string(name_of(scenario.sync.strategy)) + ", hook " +
           std::string(name_of(scenario.sync.comm_hook)) + ", views " +
           std::to_string(scenario.sync.views) + ", graph " +
           std::to_string(scenario.step.cuda_graph) + ", accumulation " +
           std::to_string(scenario.step.accumulation) + ": ";
}

std::vector<std::vector<Replayed>> replay_all(int ranks, const std::vector<Scenario>& scenarios) {
    std::vector<std::vector<Replayed>> results(static_cast<std::size_t>(ranks));
    const std::vector<Outcome> outcomes = on_gpus(ranks, [&](Communicators& communicators,
                                                             ControlGroup&, int rank) {
        for (const Scenario& scenario : scenarios) {
            results[static_cast<std::size_t>(rank)].push_back(replay_on(communicators, scenario));
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

ModelWorkload& model_of_test(Scenario& scenario) {
    return std::get<ModelWorkload>(scenario.workload);
}

// Sanitizers take their time.
constexpr bool is_thorough = BUCKETWISE_TEST_SHARE == 1;

TEST_CASE("every strategy leaves the exact mean on every GPU") {
    for (const int ranks :
         possible_ranks(is_thorough ? std::vector{1, 2, 3, 8} : std::vector{1, 3})) {
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

TEST_CASE("views, hooks, accumulation, graphs and the map of unused parameters keep the mean") {
    for (const int ranks : possible_ranks(is_thorough ? std::vector{1, 2} : std::vector{2})) {
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
                    scenario.step.cuda_graph = hook == CommHook::none || accumulation == 3;
                }
            }
        }
        check_all_right(ranks, scenarios);
    }
}

TEST_CASE("gradients of every dtype are computed in every arithmetic and reduced") {
    for (const int ranks : possible_ranks(is_thorough ? std::vector{1, 2} : std::vector{1})) {
        std::vector<Scenario> scenarios;
        for (const DType dtype : all_dtypes) {
            for (const Arithmetic arithmetic : all_arithmetics) {
                ModelWorkload& workload =
                    model_of_test(scenarios.emplace_back(small_scenario(ranks)));
                workload.dtype = dtype;
                workload.arithmetic = arithmetic;
                // float64 has no peak in some presets, and here no price matters.
                workload.device->peak_tflop_per_s.fill(1);
                scenarios.back().step.accumulation = arithmetic == Arithmetic::bfloat16 ? 2 : 1;
            }
        }
        check_all_right(ranks, scenarios);
    }
}

TEST_CASE("a network with batch normalisation broadcasts its buffers between GPUs") {
    for (const int ranks : possible_ranks(is_thorough ? std::vector{1, 2} : std::vector{2})) {
        Scenario scenario = small_scenario(ranks);
        model_of_test(scenario).model = "resnet18";
        model_of_test(scenario).input = {.batch = 1, .image_size = 32};
        scenario.sync.bucket_cap = Bytes{8 * bytes_per_mib};
        for (const std::vector<Replayed>& of_rank : replay_all(ranks, {scenario})) {
            CHECK(of_rank.at(0).wrong.empty());
            CHECK(of_rank.at(0).traces.at(0).collectives.size() >= 6);
        }
    }
}

TEST_CASE("statistics of BatchNorm are exchanged between GPUs, in a CUDA graph too") {
    for (const int ranks : possible_ranks({2})) {
        std::vector<Scenario> scenarios;
        for (const bool as_graph : {false, true}) {
            Scenario& scenario = scenarios.emplace_back(small_scenario(ranks));
            model_of_test(scenario).model = "resnet18";
            model_of_test(scenario).input = {.batch = 1, .image_size = 32};
            scenario.sync.batch_norm = as_graph ? BatchNormSync::fused : BatchNormSync::gather;
            scenario.sync.bucket_cap = Bytes{8 * bytes_per_mib};
            scenario.step.cuda_graph = as_graph;
        }
        check_all_right(ranks, scenarios);
    }
}

TEST_CASE("gradients of which only the readiness is known are reduced between GPUs") {
    for (const int ranks : possible_ranks({1, 2})) {
        Scenario scenario = small_scenario(ranks);
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
        check_all_right(ranks, {scenario});
    }
}

// --- traces --------------------------------------------------------------------------------------

// What must hold of any execution on one compute and one communication stream.
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
            for (const std::vector<Replayed>& of_rank : replay_all(ranks, {scenario})) {
                const Replayed& replayed = of_rank.at(0);
                for (const StepTrace& trace : replayed.traces) {
                    check_order(replayed.program, trace);
                    CHECK(trace.launches.empty());
                    CHECK(trace.graph_launch.has_value() == cuda_graph);
                }
            }
        }
    }
}

TEST_CASE("each instruction by itself takes time where it computes, and none where it does not") {
    const std::vector<Outcome> outcomes =
        on_gpus(1, [](Communicators& communicators, ControlGroup&, int) {
            const Scenario scenario = small_scenario(1);
            const StepInput input = replay_input(scenario);
            const SyncSettings sync = settings_for(scenario.sync);
            const BucketPlan plan =
                make_plan(input.workload.gradients, input.workload.readiness, sync.policy);
            const Program program = build_program(input, sync, plan);
            GpuRank device(scenario, input.workload, sync, communicators);
            device.calibrate();
            device.run(program, sync, plan, 0, Communicate::for_free);
            const std::optional<StepTrace> each = device.run_each(program, sync, plan, 1);
            if (!each || each->instructions.size() != program.instructions.size() ||
                each->launches.size() != program.instructions.size()) {
                throw std::runtime_error("no interval for each instruction");
            }
            Duration busy{0};
            for (std::size_t i = 0; i < program.instructions.size(); ++i) {
                busy += each->instructions[i].length();
                if (!is_compute(program.instructions[i].kind) &&
                    each->instructions[i].length() != Duration{0}) {
                    throw std::runtime_error("a launch or a wait keeps the device busy");
                }
            }
            if (busy <= Duration{0} || busy != each->instructions.back().end) {
                throw std::runtime_error("the intervals do not follow each other");
            }
        });
    CHECK(testing::first_reason(outcomes).empty());
}

// --- all-reduces alone, and beside backward ------------------------------------------------------

TEST_CASE("isolated all-reduces of every dtype have the exact sum, timed one by one") {
    for (const int ranks : possible_ranks({1, 2, 4})) {
        const std::vector<Outcome> outcomes =
            on_gpus(ranks, [](Communicators& communicators, ControlGroup&, int) {
                GpuMessages messages(communicators);
                for (const DType dtype : all_dtypes) {
                    for (const std::int64_t bytes : {8, 4096, 200'000}) {
                        const AllReduceTrace trace = messages.all_reduce({{bytes}, dtype}, 5);
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
            });
        INFO(ranks << " ranks");
        CHECK(testing::first_reason(outcomes).empty());
    }
}

TEST_CASE("contention tells matrix products from other operations, and counts what overlaps") {
    for (const int ranks : possible_ranks({1, 2})) {
        const std::vector<Outcome> outcomes = on_gpus(ranks, [&](Communicators& communicators,
                                                                 ControlGroup&, int) {
            const Scenario scenario = small_scenario(ranks);
            const StepInput input = replay_input(scenario);
            GpuRank device(scenario, input.workload, settings_for(scenario.sync), communicators);
            device.calibrate();
            const std::vector<Duration> alone = device.backward_alone();
            if (alone.size() != input.workload.backward.size()) {
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
        INFO(ranks << " ranks");
        CHECK(testing::first_reason(outcomes).empty());
    }
}

// --- failures ------------------------------------------------------------------------------------

TEST_CASE("a gradient that nobody reduced is found by name") {
    // The step communicates for free, so what is left is this rank's own gradients; with two ranks
    // whose values differ that is not the mean.
    for (const int ranks : possible_ranks({2})) {
        std::vector<std::string> wrong(static_cast<std::size_t>(ranks));
        const std::vector<Outcome> outcomes =
            on_gpus(ranks, [&](Communicators& communicators, ControlGroup&, int rank) {
                const Scenario scenario = small_scenario(ranks);
                const StepInput input = replay_input(scenario);
                const SyncSettings sync = settings_for(scenario.sync);
                const BucketPlan plan =
                    make_plan(input.workload.gradients, input.workload.readiness, sync.policy);
                const Program program = build_program(input, sync, plan);
                GpuRank device(scenario, input.workload, sync, communicators);
                device.run(program, sync, plan, 0, Communicate::for_free);
                wrong[static_cast<std::size_t>(rank)] = device.check().wrong;
            });
        CHECK(testing::first_reason(outcomes).empty());
        for (const std::string& text : wrong) {
            CHECK(contains(text, "gradient "));
            CHECK(contains(text, "expected the mean"));
        }
    }
}

TEST_CASE("a rank that does not come to a collective is given up on by the deadline") {
    for (const int ranks : possible_ranks({2})) {
        const std::chrono::milliseconds deadline{400};
        const std::vector<Outcome> outcomes =
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

TEST_CASE("a rank that aborts fails the others with what NCCL says") {
    for (const int ranks : possible_ranks({2})) {
        const std::vector<Outcome> outcomes =
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
        const std::vector<Outcome> outcomes =
            testing::on_ranks(ranks, [&](GlooConnection& connection, int rank) {
                check_gpu(cudaSetDevice(rank), "cudaSetDevice");
                Communicators communicators(connection.control(), std::chrono::seconds{2},
                                            std::nullopt);
                Scenario scenario = small_scenario(ranks);
                scenario.step.cuda_graph = true;
                const StepInput input = replay_input(scenario);
                const SyncSettings sync = settings_for(scenario.sync);
                const BucketPlan plan =
                    make_plan(input.workload.gradients, input.workload.readiness, sync.policy);
                const Program program = build_program(input, sync, plan);
                GpuRank device(scenario, input.workload, sync, communicators);
                device.run(program, sync, plan, 0, Communicate::yes);
                GpuMessages messages(communicators);
                if (rank == 0) {
                    device.run(program, sync, plan, 1, Communicate::yes);
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
    const std::vector<Outcome> outcomes = testing::on_ranks(1, [&](GlooConnection& connection,
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
