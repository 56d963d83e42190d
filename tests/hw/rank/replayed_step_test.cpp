// The meaning of a sharded step's instructions to a rank, in the order of fully_shard's hooks.
#include <string>
#include <vector>

#include "hw/rank/replayed_step.h"
#include "sim/base/error.h"
#include "sim/base/transformed.h"
#include "tests/catch.h"
#include "tests/hw/rank/sharded_scenario.h"

namespace bucketwise {
namespace {

using testing::replay_of;
using testing::sharded_scenario;

// Such as "gather 1", without computing and waiting.
std::vector<std::string> moves_of(const ReplayedStep& replay) {
    std::vector<std::string> moves;
    for (const ShardedCall& call : replay.calls) {
        if (call.move >= 0 && call.act != ShardedAct::wait) {
            const std::string placing(name_of(call.placing));
            moves.push_back(std::string(name_of(call.act)) + " " + std::to_string(call.move) +
                            (placing.empty() ? "" : " " + placing));
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
          followed_by(first, {"reduce in 0", "reduce 0", "place 0 added"}));
    scenario.sharding->gradient_sync = MicroSteps::last;
    CHECK(moves_of(replay_of(scenario)) ==
          followed_by(followed_by(gather, gather), {"reduce in 0", "reduce 0 placed"}));
    scenario.sharding->reduce_dtype = DType::bfloat16;
    CHECK(moves_of(replay_of(scenario)) ==
          followed_by(followed_by(gather, gather), {"reduce in 0", "reduce 0", "place 0 placed"}));
}

TEST_CASE("calls stand beside the instructions they are of, and computing is what else there is") {
    Scenario scenario = sharded_scenario(3);
    scenario.step.accumulation = 2;
    const ReplayedStep replay = replay_of(scenario);
    REQUIRE(replay.calls.size() == replay.program.instructions.size());
    std::size_t computing = 0;
    for (std::size_t i = 0; i < replay.calls.size(); ++i) {
        CHECK(replay.calls[i].subject == replay.program.instructions[i].subject);
        computing += replay.calls[i].move < 0 ? 1U : 0U;
    }
    CHECK(replay.calls.front().micro_step == 0);
    CHECK(replay.calls.back().micro_step == 1);
    const ReplayedStep alone = computing_of(replay);
    CHECK(alone.program.instructions.size() == computing);
    CHECK(alone.calls.size() == computing);
    CHECK(alone.program.collectives.empty());
}

TEST_CASE("a group that is reduced in parts is refused") {
    // As fully_shard reduces one that backward leaves twice, with gradients ready each time.
    ShardedProgram built;
    Program& program = built.program;
    const auto add = [&](InstructionKind kind, std::int32_t subject) {
        Instruction& added = program.instructions.emplace_back();
        added.kind = kind;
        added.phase = Phase::backward;
        added.subject = subject;
    };
    for (const std::int32_t collective : {0, 1}) {
        add(InstructionKind::pack, 0);
        add(InstructionKind::launch, collective);
        add(InstructionKind::wait, collective);
        Collective& reduced = program.collectives.emplace_back();
        reduced.kind = CollectiveKind::reduce_scatter;
        reduced.group = 0;
    }
    CHECK_THROWS_AS(sharded_replay(built, {}, {}), InputError);
}

}  // namespace
}  // namespace bucketwise
