// The parameters that a sharded step's instructions move, in the order of fully_shard's hooks.
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "hw/rank/replayed_step.h"
#include "tests/catch.h"
#include "tests/hw/rank/sharded_scenario.h"

namespace bucketwise {
namespace {

using testing::replay_of;
using testing::sharded_scenario;

std::string text_of(Copy copy) {
    switch (copy.route) {
        case CopyRoute::shard_to_gathered:
            return "gather in";
        case CopyRoute::gathered_to_unsharded:
            return "gather out";
        case CopyRoute::gradients_to_reduced:
            return "reduce in";
        case CopyRoute::reduced_to_shard:
            return copy.how == Copying::adding ? "added" : "placed";
        default:
            return "";
    }
}

// Such as "gather 1", without computing and waiting; with the copy that ends a collective.
std::vector<std::string> moves_of(const ReplayedStep& replay) {
    std::vector<std::string> moves;
    for (const Instruction& instruction : replay.program.instructions) {
        if (is_copy(instruction.kind)) {
            moves.push_back(text_of(instruction.copy) + " " + std::to_string(instruction.subject));
        } else if (instruction.kind == InstructionKind::launch) {
            const Collective& launched =
                replay.program.collectives[static_cast<std::size_t>(instruction.subject)];
            const std::string after = text_of(launched.after);
            moves.push_back((launched.kind == CollectiveKind::all_gather ? "gather " : "reduce ") +
                            std::to_string(launched.shards()->move) +
                            (after.empty() ? "" : " " + after));
        }
    }
    return moves;
}

TEST_CASE("a group is gathered, computed with and reduced, the root first and last") {
    // Two groups: the root, 0, with embed and head, and all three layers, 1. The root stays, so
    // that only the layers are gathered again.
    Scenario scenario = sharded_scenario(2);
    scenario.sharding->layers_per_group = 3;
    CHECK(moves_of(replay_of(scenario)) ==
          std::vector<std::string>{"gather in 0", "gather 0", "gather out 0", "gather in 1",
                                   "gather 1", "gather out 1", "gather in 1", "gather 1",
                                   "gather out 1", "reduce in 1", "reduce 1 placed", "reduce in 0",
                                   "reduce 0 placed"});
    scenario.sharding->reshard_after_forward = false;
    CHECK(moves_of(replay_of(scenario)).size() == 13 - 3);
}

TEST_CASE("what was reduced is placed apart where it is cast, or added to earlier micro-steps'") {
    Scenario scenario = sharded_scenario(2);
    scenario.sharding->layers_per_group = 0;  // all is the root's
    scenario.step.accumulation = 2;
    const std::vector<std::string> gather{"gather in 0", "gather 0", "gather out 0"};
    const auto followed_by = [](std::vector<std::string> moves, std::vector<std::string> more) {
        moves.insert(moves.end(), more.begin(), more.end());
        return moves;
    };
    const std::vector<std::string> first =
        followed_by(followed_by(gather, {"reduce in 0", "reduce 0 placed"}), gather);
    CHECK(moves_of(replay_of(scenario)) ==
          followed_by(first, {"reduce in 0", "reduce 0", "added 0"}));
    scenario.sharding->gradient_sync = MicroSteps::last;
    CHECK(moves_of(replay_of(scenario)) ==
          followed_by(followed_by(gather, gather), {"reduce in 0", "reduce 0 placed"}));
    scenario.sharding->reduce_dtype = DType::bfloat16;
    CHECK(moves_of(replay_of(scenario)) ==
          followed_by(followed_by(gather, gather), {"reduce in 0", "reduce 0", "placed 0"}));
}

TEST_CASE(
    "a gather ahead of its place copies in on its way, among fewer ranks from larger shards") {
    Scenario scenario = sharded_scenario(4);
    scenario.sharding->reshard_ranks = 2;
    const ReplayedStep replay = replay_of(scenario, false);
    std::map<std::pair<Among, CopyRoute>, int> gathers;
    for (const Collective& collective : replay.program.collectives) {
        if (collective.kind == CollectiveKind::all_gather) {
            ++gathers[{collective.among.communicator, collective.before.route}];
        }
    }
    // Forward gathers the root and three layers; backward gathers the layers again.
    CHECK(gathers == std::map<std::pair<Among, CopyRoute>, int>{
                         {{Among::sharing, CopyRoute::shard_to_gathered}, 4},
                         {{Among::fewer, CopyRoute::larger_shard_to_gathered}, 3}});
}

TEST_CASE("micro-steps keep what they reduced until the last one all-reduces it between replicas") {
    Scenario scenario = testing::replicated(sharded_scenario(4), 2);
    scenario.sharding->layers_per_group = 0;
    scenario.sharding->all_reduce = MicroSteps::last;
    scenario.step.accumulation = 3;
    std::vector<std::pair<Copy, Copy>> around;  // each reduction
    for (const Collective& collective : replay_of(scenario, false).program.collectives) {
        if (collective.kind != CollectiveKind::all_gather) {
            around.emplace_back(collective.before, collective.after);
        }
    }
    CHECK(around ==
          std::vector<std::pair<Copy, Copy>>{
              {{}, {CopyRoute::reduced_to_kept}},
              {{}, {CopyRoute::reduced_to_kept, Copying::adding}},
              {{}, {}},
              {{CopyRoute::kept_to_reduced, Copying::adding}, {CopyRoute::reduced_to_shard}}});
}

TEST_CASE("the computing of a step is its operations and its optimizer") {
    Scenario scenario = sharded_scenario(3);
    scenario.step.accumulation = 2;
    const ReplayedStep replay = replay_of(scenario);
    const ReplayedStep alone = computing_of(replay);
    // Two micro-steps of as many operations as the workload has.
    const Workload workload =
        sharded_replay_input(scenario, *scenario.sharding, true).step.workload;
    CHECK(alone.program.instructions.size() ==
          2 * (workload.forward.size() + workload.backward.size()) + 1);
    CHECK(alone.program.collectives.empty());
    CHECK(alone.moves == replay.moves);
}

}  // namespace
}  // namespace bucketwise
