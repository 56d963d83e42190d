#include "import/trace/sharding_hooks.h"

#include <algorithm>
#include <array>

namespace bucketwise {
namespace {

struct HookName {
    std::string_view name;
    ShardingHook hook;
};

// torch/distributed/fsdp/_fully_shard of PyTorch 2.4 to 2.15. Before 2.6 a module that is left in
// backward says that it accumulates first.
constexpr std::array<HookName, 12> hook_names{
    {{"root_pre_forward", ShardingHook::root_forward},
     {"pre_forward", ShardingHook::enter_forward},
     {"post_forward", ShardingHook::leave_forward},
     {"pre_backward", ShardingHook::enter_backward},
     {"post_backward_accumulate", ShardingHook::leave_backward},
     {"post_backward_reshard", ShardingHook::leave_backward},
     {"all_gather", ShardingHook::gather},
     {"all_gather_copy_out", ShardingHook::copy_out},
     {"post_backward_reduce", ShardingHook::reduce},
     {"post_backward_rs_wait", ShardingHook::wait_for_buffer},
     {"root_post_backward_callback", ShardingHook::end_backward},
     {"root_post_backward", ShardingHook::end_backward}}};

// All are within the root, which has no name.
bool is_within(const std::string& module, const std::string& outer) {
    return outer.empty() || module.starts_with(outer + ".");
}

constexpr std::string_view prefix = "FSDP::";
constexpr std::string_view ask_forward = "forward_prefetch for ";
constexpr std::string_view ask_backward = "backward_prefetch for ";

}  // namespace

std::optional<ShardingCall> sharding_call(std::string_view name) {
    if (!name.starts_with(prefix)) {
        return std::nullopt;
    }
    name.remove_prefix(prefix.size());
    if (name.starts_with(ask_forward)) {
        return ShardingCall{ShardingHook::ask_forward, name.substr(ask_forward.size())};
    }
    if (name.starts_with(ask_backward)) {
        return ShardingCall{ShardingHook::ask_backward, name.substr(ask_backward.size())};
    }
    const std::size_t space = std::min(name.find(' '), name.size());
    std::string_view module = name.substr(std::min(space + 1, name.size()));
    if (module.starts_with('(') && module.ends_with(')')) {
        module = module.substr(1, module.size() - 2);
    }
    const auto* const found = std::ranges::find(hook_names, name.substr(0, space), &HookName::name);
    return ShardingCall{found == hook_names.end() ? ShardingHook::other : found->hook, module};
}

void ShardingHooks::visit(const ShardingCall& call, std::int64_t begin_ns, std::int64_t end_ns) {
    switch (call.hook) {
        case ShardingHook::enter_forward:
        case ShardingHook::enter_backward:
            enter(number_of(call.module));
            asked_ = 0;
            break;
        case ShardingHook::leave_forward:
        case ShardingHook::leave_backward:
            leave(number_of(call.module));
            if (begin_ns < ending_until_ns_ && !call.module.empty()) {
                shards_.left_last.push_back(number_of(call.module));
            }
            break;
        case ShardingHook::gather:
        case ShardingHook::copy_out:
        case ShardingHook::reduce:
            work_ = {call.hook, number_of(call.module), begin_ns, end_ns};
            if (call.hook == ShardingHook::reduce) {
                ++reduced_;
            }
            break;
        case ShardingHook::ask_forward:
            shards_.forward_ahead = std::max(shards_.forward_ahead, ++asked_);
            break;
        case ShardingHook::ask_backward:
            shards_.backward_ahead = std::max(shards_.backward_ahead, ++asked_);
            break;
        case ShardingHook::wait_for_buffer:
            if (!waited_) {
                shards_.buffers = reduced_;
                waited_ = true;
            }
            break;
        case ShardingHook::end_backward:
            ending_until_ns_ = end_ns;
            break;
        case ShardingHook::root_forward:
        case ShardingHook::other:
            break;
    }
}

std::int32_t ShardingHooks::module() const {
    return open_.empty() ? no_module : open_.back();
}

const ShardingHooks::Work* ShardingHooks::work_at(std::int64_t ns) const {
    return ns >= work_.begin_ns && ns < work_.end_ns ? &work_ : nullptr;
}

std::int32_t ShardingHooks::number_of(std::string_view module) {
    const auto found = std::ranges::find(shards_.modules, module);
    if (found == shards_.modules.end()) {
        shards_.modules.emplace_back(module);
        return static_cast<std::int32_t>(shards_.modules.size()) - 1;
    }
    return static_cast<std::int32_t>(found - shards_.modules.begin());
}

// Each module of a group is entered, and the last that was entered is left. Where a module returns
// the output of one within it, backward enters the inner one first.
void ShardingHooks::enter(std::int32_t module) {
    leave(module);
    const std::string& name = shards_.modules[static_cast<std::size_t>(module)];
    const auto within = std::ranges::find_if(open_, [&](std::int32_t other) {
        return is_within(shards_.modules[static_cast<std::size_t>(other)], name);
    });
    open_.insert(within, module);
}

void ShardingHooks::leave(std::int32_t module) {
    std::erase(open_, module);
}

}  // namespace bucketwise
