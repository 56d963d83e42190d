// The hooks of PyTorch's fully_shard (FSDP2), which enter and leave the modules that it shards
// together, by its annotations: "FSDP::pre_forward (layers.0)".
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "import/trace/steps.h"

namespace bucketwise {

enum class ShardingHook : std::uint8_t {
    root_forward,   // a micro-step begins
    enter_forward,  // once for each module of a group
    leave_forward,
    enter_backward,
    leave_backward,
    gather,
    copy_out,
    reduce,
    ask_forward,   // for another group's parameters, ahead
    ask_backward,  // the same in backward
    wait_for_buffer,
    end_backward,  // the rest, when autograd has ended
    other
};

// The module is that of the group, by its name; empty: the root.
struct ShardingCall {
    ShardingHook hook = ShardingHook::other;
    std::string_view module;
    bool operator==(const ShardingCall&) const = default;
};

// Nothing for other annotations than FSDP2's.
std::optional<ShardingCall> sharding_call(std::string_view name);

// The groups that are under way on the host of one step.
class ShardingHooks {
  public:
    // By rising begin.
    void visit(const ShardingCall& call, std::int64_t begin_ns, std::int64_t end_ns);

    // Index of the group that was entered last and not left yet; no_module: none.
    [[nodiscard]] std::int32_t module() const;
    // The gather, copy out or reduction that lasts at that time; null: none does.
    struct Work {
        ShardingHook hook = ShardingHook::other;
        std::int32_t module = no_module;
        std::int64_t begin_ns = 0;
        std::int64_t end_ns = 0;
    };
    [[nodiscard]] const Work* work_at(std::int64_t ns) const;
    [[nodiscard]] const TracedShards& shards() const { return shards_; }

  private:
    std::int32_t number_of(std::string_view module);
    void enter(std::int32_t module);
    void leave(std::int32_t module);

    TracedShards shards_;
    std::vector<std::int32_t> open_;
    Work work_;
    std::int64_t asked_ = 0;            // groups, since the last that was entered
    std::int64_t reduced_ = 0;          // groups, so far
    bool waited_ = false;               // for a reduce-scatter's buffer
    std::int64_t ending_until_ns_ = 0;  // autograd has ended
};

}  // namespace bucketwise
