// Sharded steps, for real: the instruction list that is simulated, on real shards of several ranks
// of this process.
#include <array>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "hw/cpu/cpu_sharded_rank.h"
#include "hw/rank/shard_place.h"
#include "sim/scenario/scenario.h"
#include "tests/catch.h"
#include "tests/contains.h"
#include "tests/hw/gloo/gloo_ranks.h"
#include "tests/hw/rank/sharded_scenario.h"
#include "tests/hw/rank/small_scenario.h"

namespace bucketwise {
namespace {

using testing::contains;
using testing::replay_of;
using testing::sharded_scenario;

std::string sharded_label(const Scenario& scenario) {
    const ShardingRequest& request = *scenario.sharding;
    return fmt::format(
        "{}, {} layers, reshard {}, root {}, async {}, ahead {}, {} in, {}, sync {}: ",
        name_of(request.strategy), request.layers_per_group, request.reshard_after_forward,
        request.reshard_root, request.asynchronous_unshard, request.forward_prefetch,
        scenario.step.accumulation, request.reduce_dtype ? "mixed" : "float32",
        name_of(request.gradient_sync));
}

// Where all ranks share parameters.
ShardCommunicators<Communicator> all_of(Communicator& communicator) {
    return {communicator, communicator, communicator, communicator};
}

ShardCommunicators<Communicator> communicators_of(const Scenario& scenario,
                                                  GlooConnection& connection) {
    const ShardPlace place = shard_place(scenario, connection.control().rank());
    const auto among = [&](const std::vector<std::int64_t>& ranks) -> Communicator& {
        return connection.communicator_among(ranks, AllReduceImplementation::library);
    };
    return {connection.communicator(AllReduceImplementation::library), among(place.sharing()),
            among(place.gathering()), among(place.replicating())};
}

// Three steps on every rank, each checked when it is over, and one that is checked all along.
std::vector<std::vector<std::string>> replay_sharded(int ranks,
                                                     const std::vector<Scenario>& scenarios) {
    std::vector<std::vector<std::string>> wrong(static_cast<std::size_t>(ranks));
    const auto outcomes = testing::on_ranks(ranks, [&](GlooConnection& connection, int rank) {
        for (const Scenario& scenario : scenarios) {
            const ShardedReplay replay = replay_of(scenario);
            CpuShardedRank device(scenario, replay_input(scenario).workload,
                                  communicators_of(scenario, connection));
            std::string found;
            for (std::int64_t step = 0; step < 3; ++step) {
                device.run(replay, step, Communicate::yes);
                found += device.check().wrong;
            }
            found += device.run_checked(replay, 3).wrong;
            wrong[static_cast<std::size_t>(rank)].push_back(std::move(found));
        }
    });
    CHECK(testing::first_reason(outcomes).empty());
    return wrong;
}

void check_sharded(int ranks, const std::vector<Scenario>& scenarios) {
    INFO(ranks << " ranks");
    for (const std::vector<std::string>& of_rank : replay_sharded(ranks, scenarios)) {
        REQUIRE(of_rank.size() == scenarios.size());
        for (std::size_t i = 0; i < scenarios.size(); ++i) {
            const std::string label = sharded_label(scenarios[i]);
            CHECK(label + of_rank[i] == label);
        }
    }
}

Scenario mixed(Scenario scenario) {
    scenario.sharding->parameter_dtype = DType::bfloat16;
    scenario.sharding->reduce_dtype = DType::float32;
    return scenario;
}

TEST_CASE("every parameter is gathered and every gradient reduced, however they are grouped") {
    for (const int ranks : {2, 3, 4}) {
        std::vector<Scenario> scenarios;
        for (const std::int64_t layers : {1, 2, 3, 0}) {
            for (const bool reshard : {true, false}) {
                Scenario scenario = sharded_scenario(ranks);
                scenario.sharding->layers_per_group = layers;
                scenario.sharding->reshard_after_forward = reshard;
                scenarios.push_back(scenario);
                scenarios.push_back(mixed(scenario));
            }
        }
        check_sharded(ranks, scenarios);
    }
}

TEST_CASE("gradients of several micro-steps are reduced in each, or together in the last") {
    for (const int ranks : {2, 3, 4}) {
        std::vector<Scenario> scenarios;
        for (const MicroSteps sync : every<MicroSteps>) {
            for (const bool reshard : {true, false}) {
                Scenario scenario = sharded_scenario(ranks);
                scenario.step.accumulation = 3;
                scenario.sharding->gradient_sync = sync;
                scenario.sharding->reshard_after_forward = reshard;
                scenario.sharding->reshard_after_backward = reshard;
                scenarios.push_back(scenario);
                scenarios.push_back(mixed(scenario));
            }
        }
        check_sharded(ranks, scenarios);
    }
}

TEST_CASE("what is gathered asynchronously or ahead is there when it is computed with") {
    std::vector<Scenario> scenarios;
    for (const std::int64_t ahead : {0, 1, 2}) {
        Scenario scenario = sharded_scenario(3);
        scenario.sharding->asynchronous_unshard = true;
        scenario.sharding->forward_prefetch = ahead;
        scenario.sharding->backward_prefetch = ahead + 1;
        scenario.sharding->reshard_root = ahead == 1;
        scenario.step.accumulation = 2;
        scenarios.push_back(scenario);
        scenarios.push_back(mixed(scenario));
    }
    check_sharded(3, scenarios);
}

TEST_CASE("a transformer with tied weights is sharded, in every dtype") {
    std::vector<Scenario> scenarios;
    for (const DType dtype : every<DType>) {
        Scenario& scenario = scenarios.emplace_back(testing::small_scenario(3));
        std::get<ModelWorkload>(scenario.workload).dtype = dtype;
        scenario.sharding = ShardingRequest{};
        scenario.step.optimizer = Optimizer::sgd_momentum;
    }
    check_sharded(3, scenarios);
}

Scenario replicated(Scenario scenario, std::int64_t shard_ranks) {
    scenario.sharding->strategy = ShardedStrategy::hsdp;
    scenario.sharding->shard_ranks = shard_ranks;
    return scenario;
}

TEST_CASE("between replicas gradients are all-reduced, in every micro-step or in the last") {
    std::vector<Scenario> scenarios;
    for (const std::int64_t accumulation : {1, 3}) {
        for (const MicroSteps reduced : every<MicroSteps>) {
            for (const MicroSteps all_reduced : every<MicroSteps>) {
                Scenario scenario = replicated(sharded_scenario(4), 2);
                scenario.step.accumulation = accumulation;
                scenario.sharding->gradient_sync = reduced;
                scenario.sharding->all_reduce = all_reduced;
                scenario.sharding->asynchronous_unshard = accumulation == 3;
                scenarios.push_back(scenario);
                scenarios.push_back(mixed(scenario));
            }
        }
    }
    check_sharded(4, scenarios);
}

TEST_CASE("replicas of odd numbers, and shards of all ranks, are reduced") {
    check_sharded(6, {replicated(sharded_scenario(6), 2), replicated(sharded_scenario(6), 3),
                      replicated(sharded_scenario(6), 6)});
}

TEST_CASE("what forward leaves with fewer ranks backward gathers among them") {
    std::vector<Scenario> scenarios;
    for (const std::int64_t accumulation : {1, 2}) {
        for (const std::int64_t layers : {1, 2, 0}) {
            Scenario scenario = sharded_scenario(4);
            scenario.step.accumulation = accumulation;
            scenario.sharding->layers_per_group = layers;
            scenario.sharding->reshard_ranks = 2;
            scenarios.push_back(scenario);
            scenarios.push_back(mixed(scenario));
        }
    }
    check_sharded(4, scenarios);
}

TEST_CASE("stage 3 gathers modules ahead, keeps small ones and fills buckets") {
    for (const int ranks : {2, 3, 4}) {
        std::vector<Scenario> scenarios;
        for (const std::int64_t prefetch : {0, 40, 1000}) {
            for (const std::int64_t persistent : {0, 5, 1000}) {
                for (const std::int64_t accumulation : {1, 2}) {
                    Scenario scenario = sharded_scenario(ranks);
                    scenario.sharding->strategy = ShardedStrategy::zero3;
                    scenario.sharding->zero3 = {.prefetch_elements = prefetch,
                                                .persistence_threshold = persistent,
                                                .max_reuse_distance = 30,
                                                .reduce_bucket_elements = 50};
                    scenario.step.accumulation = accumulation;
                    scenarios.push_back(scenario);
                }
            }
        }
        check_sharded(ranks, scenarios);
    }
}

// --- what is seen ---

// Another's collectives, each of which may be spoilt, and what was asked for.
class WatchedCommunicator : public Communicator {
  public:
    using Spoil = std::function<void(CollectiveKind kind, std::byte* data, Bytes size)>;

    WatchedCommunicator(Communicator& other, Spoil spoil = {})
        : other_(other), spoil_(std::move(spoil)) {}
    [[nodiscard]] int rank() const override { return other_.rank(); }
    [[nodiscard]] int ranks() const override { return other_.ranks(); }
    void all_reduce_sum(void* data, std::int64_t elements, DType dtype) override {
        other_.all_reduce_sum(data, elements, dtype);
    }
    void reduce_scatter_sum(void* data, std::int64_t elements, DType dtype) override {
        other_.reduce_scatter_sum(data, elements, dtype);
        saw(CollectiveKind::reduce_scatter, data, ranks() * elements * element_size(dtype));
    }
    void all_gather(const void* own, void* all, Bytes size) override {
        other_.all_gather(own, all, size);
        saw(CollectiveKind::all_gather, all, ranks() * size);
    }
    void broadcast_from_first(void* data, Bytes size) override {
        other_.broadcast_from_first(data, size);
    }

    struct Seen {
        CollectiveKind kind;
        Bytes size;
        bool operator==(const Seen&) const = default;
    };
    [[nodiscard]] const std::vector<Seen>& seen() const { return seen_; }

  private:
    void saw(CollectiveKind kind, void* data, Bytes size) {
        seen_.push_back({kind, size});
        if (spoil_) {
            spoil_(kind, static_cast<std::byte*>(data), size);
        }
    }

    Communicator& other_;
    Spoil spoil_;
    std::vector<Seen> seen_;
};

TEST_CASE("ranks send what the program sends, in its order") {
    for (const bool asynchronous : {false, true}) {
        Scenario scenario = mixed(sharded_scenario(3));
        scenario.sharding->asynchronous_unshard = asynchronous;
        scenario.sharding->forward_prefetch = asynchronous ? 1 : 0;
        scenario.step.accumulation = 2;
        const ShardedReplay replay = replay_of(scenario);
        std::vector<WatchedCommunicator::Seen> expected;
        for (const Collective& collective : replay.program.collectives) {
            expected.push_back({collective.kind, collective.bytes});
        }
        std::array<std::vector<WatchedCommunicator::Seen>, 3> seen;
        std::array<StepTrace, 3> traces;
        const auto outcomes = testing::on_ranks(3, [&](GlooConnection& connection, int rank) {
            WatchedCommunicator watched(connection.communicator(AllReduceImplementation::library));
            CpuShardedRank device(scenario, replay_input(scenario).workload, all_of(watched));
            const auto index = static_cast<std::size_t>(rank);
            traces[index] = device.run(replay, 0, Communicate::yes);
            seen[index] = watched.seen();
        });
        REQUIRE(testing::first_reason(outcomes).empty());
        for (const auto& of_rank : seen) {
            CHECK(of_rank == expected);
        }
        for (const StepTrace& trace : traces) {
            REQUIRE(trace.instructions.size() == replay.program.instructions.size());
            REQUIRE(trace.collectives.size() == expected.size());
            for (std::size_t i = 0; i < replay.program.instructions.size(); ++i) {
                const Instruction& instruction = replay.program.instructions[i];
                const auto subject = static_cast<std::size_t>(instruction.subject);
                if (instruction.kind == InstructionKind::launch) {
                    CHECK(trace.collectives[subject].begin >= trace.instructions[i].begin);
                }
                if (instruction.kind == InstructionKind::wait) {
                    CHECK(trace.collectives[subject].end <= trace.instructions[i].end);
                }
            }
        }
    }
}

// What rank 0 says of a step in which a collective of the kind, the nth, brings it one element that
// is wrong.
std::string seen_of(const Scenario& scenario, CollectiveKind spoilt, int nth, bool all_along) {
    const ShardedReplay replay = replay_of(scenario);
    std::string wrong;
    const auto outcomes = testing::on_ranks(2, [&](GlooConnection& connection, int rank) {
        int count = 0;
        WatchedCommunicator watched(
            connection.communicator(AllReduceImplementation::library),
            [&](CollectiveKind kind, std::byte* data, Bytes size) {
                if (rank == 0 && kind == spoilt && count++ == nth) {
                    // Of what is gathered, the other's first; of what is reduced, its own first.
                    float* values = reinterpret_cast<float*>(data);
                    const std::int64_t at =
                        kind == CollectiveKind::all_gather ? size.count / 2 / 4 : 0;
                    values[at] *= 1.5F;
                }
            });
        CpuShardedRank device(scenario, replay_input(scenario).workload, all_of(watched));
        StepCheck check;
        if (all_along) {
            check = device.run_checked(replay, 0);
        } else {
            device.run(replay, 0, Communicate::yes);
            check = device.check();
        }
        if (rank == 0) {
            wrong = check.wrong;
        } else {
            wrong += check.wrong.empty() ? "" : " and rank 1: " + check.wrong;
        }
    });
    CHECK(testing::first_reason(outcomes).empty());
    return wrong;
}

TEST_CASE("one element that is wrong is seen, and named by tensor and element") {
    const Scenario scenario = sharded_scenario(2);
    CHECK(seen_of(scenario, CollectiveKind::all_gather, 1000, true).empty());
    // The last all-gather of backward is of layers.0. Of its weight's 5 rows of 7 rank 0 has three:
    // rank 1's first element is the 22nd.
    const ShardedReplay replay = replay_of(scenario);
    const auto gathers = std::ranges::count(replay.program.collectives, CollectiveKind::all_gather,
                                            &Collective::kind);
    const auto last = static_cast<int>(gathers) - 1;
    CHECK(contains(seen_of(scenario, CollectiveKind::all_gather, last, false),
                   "parameter layers.0.weight, element 21: expected "));
    // The second one, in forward, is of the same group, and gone by the end of the step.
    CHECK(contains(seen_of(scenario, CollectiveKind::all_gather, 1, true),
                   "parameter layers.0.weight, element 21: expected "));
    CHECK(seen_of(scenario, CollectiveKind::all_gather, 1, false).empty());
    CHECK(contains(seen_of(scenario, CollectiveKind::reduce_scatter, 0, false),
                   "gradient layers.2.weight, element 0: expected the mean "));
}

TEST_CASE("a step that communicates with nobody is seen") {
    Scenario scenario = sharded_scenario(2);
    const ShardedReplay replay = replay_of(scenario);
    std::array<std::string, 2> wrong;
    const auto outcomes = testing::on_ranks(2, [&](GlooConnection& connection, int rank) {
        CpuShardedRank device(scenario, replay_input(scenario).workload,
                              all_of(connection.communicator(AllReduceImplementation::library)));
        device.run(replay, 0, Communicate::yes);
        const StepTrace trace = device.run(replay, 1, Communicate::for_free);
        wrong.at(static_cast<std::size_t>(rank)) =
            trace.collectives.size() == replay.program.collectives.size() ? device.check().wrong
                                                                          : "";
    });
    REQUIRE(testing::first_reason(outcomes).empty());
    for (const std::string& of_rank : wrong) {
        CHECK(contains(of_rank, "parameter "));
    }
}

}  // namespace
}  // namespace bucketwise
