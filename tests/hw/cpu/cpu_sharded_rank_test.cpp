// Sharded steps, for real: the instruction list that is simulated, on real shards of several ranks
// of this process.
#include <array>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "hw/cpu/cpu_rank.h"
#include "hw/rank/rank_place.h"
#include "sim/scenario/scenario.h"
#include "tests/catch.h"
#include "tests/contains.h"
#include "tests/hw/gloo/gloo_ranks.h"
#include "tests/hw/rank/sharded_scenario.h"
#include "tests/hw/rank/small_scenario.h"

namespace bucketwise {
namespace {

using testing::contains;
using testing::mixed;
using testing::replay_of;
using testing::replicated;
using testing::sharded_scenario;

// Where all ranks share parameters.
CommunicatorsAmong<Communicator> all_of(Communicator& communicator) {
    return CommunicatorsAmong<Communicator>(communicator);
}

CommunicatorsAmong<Communicator> communicators_of(const Scenario& scenario,
                                                  GlooConnection& connection) {
    const ControlGroup& control = connection.control();
    return {rank_place(scenario, control.rank(), control.ranks()),
            connection.communicator(AllReduceImplementation::library),
            [&](const std::vector<std::int64_t>& ranks) -> Communicator& {
                return connection.communicator_among(ranks, AllReduceImplementation::library);
            }};
}

void check_sharded(int ranks, const std::vector<Scenario>& scenarios) {
    INFO(ranks << " ranks");
    testing::WrongOfRanks wrong(static_cast<std::size_t>(ranks));
    testing::require_well(testing::on_ranks(ranks, [&](GlooConnection& connection, int rank) {
        for (const Scenario& scenario : scenarios) {
            CpuRank device(scenario, replay_input(scenario).workload, {},
                           communicators_of(scenario, connection));
            wrong[static_cast<std::size_t>(rank)].push_back(
                testing::wrong_in_steps(replay_of(scenario), device));
        }
    }));
    testing::check_nothing_wrong(scenarios, wrong);
}

TEST_CASE("every parameter is gathered and every gradient reduced, however they are grouped") {
    for (const int ranks : {2, 3, 4}) {
        check_sharded(ranks, testing::with_every_grouping(ranks));
    }
}

TEST_CASE("gradients of several micro-steps are reduced in each, or together in the last") {
    for (const int ranks : {2, 3, 4}) {
        check_sharded(ranks, testing::with_micro_steps(ranks));
    }
}

TEST_CASE("what is gathered asynchronously or ahead is there when it is computed with") {
    check_sharded(3, testing::with_prefetching(3));
}

TEST_CASE("between replicas gradients are all-reduced, in every micro-step or in the last") {
    check_sharded(4, testing::with_replicas());
}

TEST_CASE("replicas of odd numbers, and shards of all ranks, are reduced") {
    check_sharded(6, {replicated(sharded_scenario(6), 2), replicated(sharded_scenario(6), 3),
                      replicated(sharded_scenario(6), 6)});
}

TEST_CASE("what forward leaves with fewer ranks backward gathers among them") {
    check_sharded(4, testing::with_fewer_ranks_in_backward());
}

TEST_CASE("stage 3 gathers modules ahead, keeps small ones and fills buckets") {
    for (const int ranks : {2, 3, 4}) {
        check_sharded(ranks, testing::with_stage_3(ranks));
    }
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

// --- what is seen ---

// Another communicator's collectives, each of them spoilt if asked, and a list of the calls.
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
        const ReplayedStep replay = replay_of(scenario);
        std::vector<WatchedCommunicator::Seen> expected;
        for (const Collective& collective : replay.program.collectives) {
            expected.push_back({collective.kind, collective.bytes});
        }
        std::array<std::vector<WatchedCommunicator::Seen>, 3> seen;
        std::array<StepTrace, 3> traces;
        testing::require_well(testing::on_ranks(3, [&](GlooConnection& connection, int rank) {
            WatchedCommunicator watched(connection.communicator(AllReduceImplementation::library));
            CpuRank device(scenario, replay_input(scenario).workload, {}, all_of(watched));
            const auto index = static_cast<std::size_t>(rank);
            traces[index] = device.run(replay, 0, Communicate::yes);
            seen[index] = watched.seen();
        }));
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

// Rank 0's report on a step where the nth collective of a kind brings it one wrong element.
std::string seen_of(const Scenario& scenario, CollectiveKind spoilt, int nth, bool all_along) {
    const ReplayedStep replay = replay_of(scenario);
    std::array<std::string, 2> wrong;  // by rank
    testing::require_well(testing::on_ranks(2, [&](GlooConnection& connection, int rank) {
        int count = 0;
        WatchedCommunicator watched(
            connection.communicator(AllReduceImplementation::library),
            [&](CollectiveKind kind, std::byte* data, Bytes size) {
                if (rank == 0 && kind == spoilt && count++ == nth) {
                    // Gathered: the other rank's first element. Reduced: its own first element.
                    float* values = reinterpret_cast<float*>(data);
                    const std::int64_t at =
                        kind == CollectiveKind::all_gather ? size.count / 2 / 4 : 0;
                    values[at] *= 1.5F;
                }
            });
        CpuRank device(scenario, replay_input(scenario).workload, {}, all_of(watched));
        StepCheck check;
        if (all_along) {
            check = device.run_checked(replay, 0);
        } else {
            device.run(replay, 0, Communicate::yes);
            check = device.check();
        }
        wrong.at(static_cast<std::size_t>(rank)) = check.wrong;
    }));
    CHECK(wrong[1].empty());
    return wrong[0];
}

TEST_CASE("one element that is wrong is seen, and named by tensor and element") {
    const Scenario scenario = sharded_scenario(2);
    CHECK(seen_of(scenario, CollectiveKind::all_gather, 1000, true).empty());
    // The last all-gather of backward is of layers.0. Rank 0 has three of its weight's 5 rows of 7:
    // rank 1's first element is the 22nd.
    const ReplayedStep replay = replay_of(scenario);
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

TEST_CASE("collectives alone are among the ranks that steps have them among") {
    const Scenario scenario = replicated(sharded_scenario(4), 2);
    std::array<std::vector<MessageTrace>, 4> traces;  // by rank
    testing::require_well(testing::on_ranks(4, [&](GlooConnection& connection, int rank) {
        CpuRank device(scenario, replay_input(scenario).workload, {},
                       communicators_of(scenario, connection));
        for (const Message& message : testing::message_of_each_kind(4)) {
            traces.at(static_cast<std::size_t>(rank))
                .push_back(device.measure_as_in_steps(message, 3));
        }
    }));
    for (const std::vector<MessageTrace>& of_rank : traces) {
        for (const MessageTrace& trace : of_rank) {
            CHECK(trace.ranks == 2);
            CHECK(trace.times.size() == 3);
            CHECK(trace.wrong.empty());
            CHECK(trace.largest_difference < 1e-6);
        }
    }
}

TEST_CASE("a step that communicates with nobody is seen") {
    Scenario scenario = sharded_scenario(2);
    const ReplayedStep replay = replay_of(scenario);
    std::array<std::string, 2> wrong;
    testing::require_well(testing::on_ranks(2, [&](GlooConnection& connection, int rank) {
        CpuRank device(scenario, replay_input(scenario).workload, {},
                       all_of(connection.communicator(AllReduceImplementation::library)));
        device.run(replay, 0, Communicate::yes);
        const StepTrace trace = device.run(replay, 1, Communicate::for_free);
        wrong.at(static_cast<std::size_t>(rank)) =
            trace.collectives.size() == replay.program.collectives.size() ? device.check().wrong
                                                                          : "";
    }));
    for (const std::string& of_rank : wrong) {
        CHECK(contains(of_rank, "parameter "));
    }
}

}  // namespace
}  // namespace bucketwise
