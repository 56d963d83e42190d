#include "sim/sharding/shard_plan.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "sim/base/error.h"
#include "sim/base/transformed.h"
#include "sim/sharding/modules.h"

namespace bucketwise {
namespace {

constexpr std::size_t root = 0;
using Modules = std::vector<std::vector<std::string>>;

[[noreturn]] void refuse(const std::string& expected, const std::string& got) {
    throw InputError("scenario", "/sync/sharding", expected, got);
}

std::vector<std::string> names_of_parameters(const Workload& workload) {
    return transformed(workload.gradients, &Gradient::name);
}

// The group, from 1 on, with the longest module that it belongs to; the root: none.
std::size_t group_of_name(const std::string& name, const Modules& modules) {
    std::size_t found = root;
    std::size_t longest = 0;
    for (std::size_t group = 0; group < modules.size(); ++group) {
        for (const std::string& module : modules[group]) {
            if (module.size() > longest && belongs_to(name, module)) {
                found = group + 1;
                longest = module.size();
            }
        }
    }
    return found;
}

// Of one pass, by operation.
using Owners = std::vector<std::size_t>;

Owners owners_in_forward(const Workload& workload, const Modules& modules) {
    return transformed(workload.forward, [&](const TimedOperation& operation) {
        return group_of_name(operation.name, modules);
    });
}

Owners owners_in_backward(const Workload& workload, const Modules& modules) {
    Owners owners;
    std::size_t ready = 0;
    for (const TimedOperation& operation : workload.backward) {
        std::size_t owner = group_of_name(operation.name, modules);
        for (std::int32_t i = 0; i < operation.ready_count; ++i, ++ready) {
            const auto gradient = static_cast<std::size_t>(workload.readiness[ready]);
            if (owner == root) {
                owner = group_of_name(workload.gradients[gradient].name, modules);
            }
        }
        owners.push_back(owner);
    }
    return owners;
}

// Whether a group's modules lie within another's: some module of it belongs to one of the other.
bool lies_within(const std::vector<std::string>& inner, const std::vector<std::string>& outer) {
    return std::ranges::any_of(inner, [&](const std::string& module) {
        return std::ranges::any_of(
            outer, [&](const std::string& other) { return belongs_to(module, other); });
    });
}

// Stretches of operations of the group and of groups within; of several modules all of them at
// once, from the first to the last.
std::vector<GroupCall> calls_of(std::size_t group, const Owners& owners, const Modules& modules) {
    if (group == root) {
        return {{root, 0, owners.size()}};
    }
    const std::vector<std::string>& own = modules[group - 1];
    std::vector<GroupCall> calls;
    for (std::size_t i = 0; i < owners.size(); ++i) {
        const bool inside =
            owners[i] == group || (owners[i] != root && lies_within(modules[owners[i] - 1], own));
        if (!inside) {
            continue;
        }
        const bool goes_on = !calls.empty() && (own.size() > 1 || calls.back().end == i);
        if (goes_on) {
            calls.back().end = i + 1;
        } else {
            calls.push_back({group, i, i + 1});
        }
    }
    return calls;
}

std::vector<GroupCall> calls_of_pass(const Owners& owners, const Modules& modules,
                                     const std::vector<bool>& exists) {
    std::vector<GroupCall> calls;
    for (std::size_t group = 0; group <= modules.size(); ++group) {
        if (exists[group]) {
            std::ranges::copy(calls_of(group, owners, modules), std::back_inserter(calls));
        }
    }
    std::ranges::stable_sort(calls, [](const GroupCall& a, const GroupCall& b) {
        return a.first != b.first ? a.first < b.first : a.end > b.end;
    });
    return calls;
}

ShardGroup empty_group(std::vector<std::string> modules) {
    ShardGroup group;
    group.modules = std::move(modules);
    return group;
}

void add_parameters(const Workload& workload, const ShardingRequest& request, std::int64_t ranks,
                    const Modules& modules, std::vector<ShardGroup>& groups) {
    for (std::size_t i = 0; i < workload.gradients.size(); ++i) {
        const Gradient& parameter = workload.gradients[i];
        ShardGroup& group = groups[group_of_name(parameter.name, modules)];
        if (!group.parameters.empty() && group.dtype != parameter.dtype) {
            refuse("parameters of one dtype in each group, as PyTorch asks for",
                   fmt::format("{}, which is {}, beside {}", parameter.name,
                               name_of(parameter.dtype), name_of(group.dtype)));
        }
        group.dtype = parameter.dtype;
        group.gathered_dtype = request.parameter_dtype.value_or(parameter.dtype);
        group.reduced_dtype = request.reduce_dtype.value_or(
            request.reduces_in_own_dtype ? parameter.dtype : group.gathered_dtype);
        group.gradient_dtype =
            element_size(group.reduced_dtype) < element_size(group.gathered_dtype)
                ? group.reduced_dtype
                : group.gathered_dtype;
        group.parameters.push_back(static_cast<std::int32_t>(i));
        group.numel += parameter.numel;
        group.padded_numel += padded_numel(parameter, ranks);
    }
}

void check_modules(const Modules& modules, const std::vector<ShardGroup>& groups) {
    std::set<std::string> known;
    for (std::size_t group = 0; group < modules.size(); ++group) {
        for (const std::string& module : modules[group]) {
            if (!known.insert(module).second) {
                refuse("each module in one group", module + " in two");
            }
        }
        if (groups[group + 1].parameters.empty()) {
            refuse("modules with parameters of their own in each group",
                   fmt::format("{}, to which none belongs", fmt::join(modules[group], ", ")));
        }
    }
}

// A group whose first operation is forward's first has the batch as its input.
std::vector<bool> without_input_gradient(const ShardPlan& plan) {
    std::vector<bool> without(plan.groups.size(), false);
    for (const GroupCall& call : plan.forward) {
        if (call.first == 0) {
            without[call.group] = true;
        }
    }
    return without;
}

// Groups are counted with the root until it is known that it has no parameters.
void drop_root(ShardPlan& plan) {
    plan.groups.erase(plan.groups.begin());
    for (std::vector<GroupCall>* calls : {&plan.forward, &plan.backward}) {
        for (GroupCall& call : *calls) {
            --call.group;
        }
    }
}

}  // namespace

std::int64_t padded_numel(const Gradient& parameter, std::int64_t ranks) {
    const std::int64_t rows = parameter.rows > 0 ? parameter.rows : parameter.numel;
    return divided(rows, ranks) * ranks * (parameter.numel / std::max<std::int64_t>(rows, 1));
}

Bytes ShardPlan::shard_bytes() const {
    Bytes sum;
    for (const ShardGroup& group : groups) {
        sum += group.padded_numel / ranks * element_size(group.dtype);
    }
    return sum;
}

std::vector<std::vector<std::string>> modules_of_groups(
    const ShardingRequest& request, const std::vector<std::string>& parameters) {
    if (request.strategy == ShardedStrategy::zero3) {
        return transformed(modules_with_parameters(parameters),
                           [](const std::string& module) { return std::vector{module}; });
    }
    return request.groups.empty() ? grouped_blocks(blocks_of(parameters), request.layers_per_group)
                                  : request.groups;
}

Workload with_forward_by_gradient(Workload workload) {
    Duration backward{0};
    for (const TimedOperation& operation : workload.backward) {
        backward += operation.device;
    }
    if (workload.forward.size() != 1 || workload.forward.front().source ||
        backward == Duration{0}) {
        return workload;
    }
    const TimedOperation whole = std::exchange(workload.forward, {}).front();
    const auto part = [&](Duration time, Duration so_far) {
        return scaled(time,
                      static_cast<double>(so_far.count()) / static_cast<double>(backward.count()));
    };
    Duration so_far{0};
    std::size_t ready = workload.readiness.size();
    for (std::size_t i = workload.backward.size(); i-- > 0;) {
        const TimedOperation& operation = workload.backward[i];
        const Duration before = so_far;
        so_far += operation.device;
        TimedOperation piece = whole;
        ready -= static_cast<std::size_t>(operation.ready_count);
        if (operation.ready_count > 0) {
            const auto gradient = static_cast<std::size_t>(workload.readiness[ready]);
            piece.name = workload.gradients[gradient].name + " forward";
        }
        piece.device = part(whole.device, so_far) - part(whole.device, before);
        piece.host = part(whole.host, so_far) - part(whole.host, before);
        workload.forward.push_back(std::move(piece));
    }
    return workload;
}

ShardPlan make_shard_plan(const Workload& workload, const ShardingRequest& request,
                          std::int64_t ranks) {
    const Modules modules = modules_of_groups(request, names_of_parameters(workload));
    ShardPlan plan;
    plan.ranks = ranks;
    plan.groups.push_back(empty_group({}));
    for (const std::vector<std::string>& of_group : modules) {
        plan.groups.push_back(empty_group(of_group));
    }
    add_parameters(workload, request, ranks, modules, plan.groups);
    check_modules(modules, plan.groups);
    std::vector<bool> exists(plan.groups.size(), true);
    exists[root] = !plan.groups[root].parameters.empty();
    plan.forward = calls_of_pass(owners_in_forward(workload, modules), modules, exists);
    plan.backward = calls_of_pass(owners_in_backward(workload, modules), modules, exists);
    if (!exists[root]) {
        drop_root(plan);
    }
    plan.ends_with_backward = without_input_gradient(plan);
    return plan;
}

}  // namespace bucketwise
