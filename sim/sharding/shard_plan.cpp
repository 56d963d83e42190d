#include "sim/sharding/shard_plan.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "sim/base/error.h"
#include "sim/base/transformed.h"
#include "sim/workload/modules.h"

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

// Groups by their modules, from 1 on; the root is 0. The modules must outlive it.
class ModuleIndex {
  public:
    explicit ModuleIndex(const Modules& modules) : within_(modules.size() + 1) {
        for (std::size_t group = 0; group < modules.size(); ++group) {
            for (const std::string& module : modules[group]) {
                groups_.emplace(module, group + 1);
            }
        }
        for (std::size_t group = 0; group < modules.size(); ++group) {
            std::set<std::size_t> found{group + 1};
            for (const std::string& module : modules[group]) {
                for_each_module_of(module, [&](std::size_t outer) { found.insert(outer); });
            }
            within_[group + 1].assign(found.begin(), found.end());
        }
    }

    // The group with the longest module that the name belongs to.
    [[nodiscard]] std::size_t owner_of(const std::string& name) const {
        std::size_t found = root;
        for_each_module_of(name, [&](std::size_t group) { found = group; });
        return found;
    }

    // The group and the groups around it, without the root.
    [[nodiscard]] const std::vector<std::size_t>& within(std::size_t group) const {
        return within_[group];
    }

  private:
    // In the order of length.
    template <typename Use>
    void for_each_module_of(std::string_view name, const Use& use) const {
        for (std::size_t end = 0; end <= name.size(); ++end) {
            if (end == name.size() || name[end] == '.' || name[end] == ' ') {
                if (const auto group = groups_.find(name.substr(0, end)); group != groups_.end()) {
                    use(group->second);
                }
            }
        }
    }

    std::unordered_map<std::string_view, std::size_t> groups_;
    std::vector<std::vector<std::size_t>> within_;
};

// By operation of one pass.
using Owners = std::vector<std::size_t>;

Owners owners_in_forward(const Workload& workload, const ModuleIndex& index) {
    return transformed(workload.forward, [&](const TimedOperation& operation) {
        return index.owner_of(operation.name);
    });
}

Owners owners_in_backward(const Workload& workload, const ModuleIndex& index) {
    Owners owners;
    std::size_t ready = 0;
    for (const TimedOperation& operation : workload.backward) {
        std::size_t owner = index.owner_of(operation.name);
        for (std::int32_t i = 0; i < operation.ready_count; ++i, ++ready) {
            const auto gradient = static_cast<std::size_t>(workload.readiness[ready]);
            if (owner == root) {
                owner = index.owner_of(workload.gradients[gradient].name);
            }
        }
        owners.push_back(owner);
    }
    return owners;
}

// By group: stretches of its operations and those of groups within; the root has all operations.
using CallsByGroup = std::vector<std::vector<GroupCall>>;

CallsByGroup calls_of_pass(const Owners& owners, const ModuleIndex& index, std::size_t groups) {
    CallsByGroup calls(groups);
    calls[root] = {{root, 0, owners.size()}};
    for (std::size_t i = 0; i < owners.size(); ++i) {
        if (owners[i] == root) {
            continue;
        }
        for (const std::size_t group : index.within(owners[i])) {
            std::vector<GroupCall>& of_group = calls[group];
            if (!of_group.empty() && of_group.back().end == i) {
                of_group.back().end = i + 1;
            } else {
                of_group.push_back({group, i, i + 1});
            }
        }
    }
    return calls;
}

// Several modules count as one call, from the first to the last. So does a group that backward
// enters more often than forward: its modules do not run again, their gradients are not
// consecutive.
void merge_calls(const Modules& modules, CallsByGroup& forward, CallsByGroup& backward) {
    const auto merge = [](std::vector<GroupCall>& calls) {
        calls = {{calls.front().group, calls.front().first, calls.back().end}};
    };
    for (std::size_t group = 1; group < forward.size(); ++group) {
        if (forward[group].empty() || backward[group].empty()) {
            refuse(
                "operations of each group's modules in forward and in backward, named after them",
                fmt::format("none of {}", fmt::join(modules[group - 1], ", ")));
        }
        const bool all_at_once =
            modules[group - 1].size() > 1 || forward[group].size() != backward[group].size();
        if (all_at_once) {
            merge(forward[group]);
            merge(backward[group]);
        }
    }
}

std::vector<GroupCall> in_their_order(const CallsByGroup& by_group,
                                      const std::vector<bool>& exists) {
    std::vector<GroupCall> calls;
    for (std::size_t group = 0; group < by_group.size(); ++group) {
        if (exists[group]) {
            std::ranges::copy(by_group[group], std::back_inserter(calls));
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
                    const ModuleIndex& index, ShardPlan& plan) {
    constexpr std::int64_t most_padded = std::int64_t{1} << 56;
    std::int64_t all_padded = 0;
    for (std::size_t i = 0; i < workload.gradients.size(); ++i) {
        const Gradient& parameter = workload.gradients[i];
        const std::size_t owner = index.owner_of(parameter.name);
        plan.group_of.push_back(owner);
        ShardGroup& group = plan.groups[owner];
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
        const std::int64_t padded = padded_numel(parameter, ranks);
        group.padded_numel += padded;
        if (request.float8_all_gather && parameter.is_float8) {
            group.float8_numel += padded;
            ++group.float8_weights;
        }
        all_padded += padded;
        if (all_padded > most_padded) {
            refuse("parameters that can be padded to the ranks",
                   fmt::format("{} elements so far", all_padded));
        }
    }
}

void check_once(const Modules& modules) {
    std::set<std::string> known;
    for (const std::vector<std::string>& of_group : modules) {
        for (const std::string& module : of_group) {
            if (!known.insert(module).second) {
                refuse("each module in one group", module + " in two");
            }
        }
    }
}

void check_modules(const Modules& modules, const std::vector<ShardGroup>& groups) {
    for (std::size_t group = 0; group < modules.size(); ++group) {
        if (groups[group + 1].parameters.empty()) {
            refuse("modules with parameters of their own in each group",
                   fmt::format("{}, to which none belongs", fmt::join(modules[group], ", ")));
        }
    }
}

// A group that begins with forward's first operation has the batch as its input.
std::vector<bool> without_input_gradient(const ShardPlan& plan) {
    std::vector<bool> without(plan.groups.size(), false);
    for (const GroupCall& call : plan.forward) {
        if (call.first == 0) {
            without[call.group] = true;
        }
    }
    return without;
}

// Groups count with the root until it turns out to have no parameters.
void drop_root(ShardPlan& plan) {
    plan.groups.erase(plan.groups.begin());
    for (std::vector<GroupCall>* calls : {&plan.forward, &plan.backward}) {
        for (GroupCall& call : *calls) {
            --call.group;
        }
    }
    for (std::size_t& group : plan.group_of) {
        --group;
    }
}

}  // namespace

std::int64_t padded_numel(const Gradient& parameter, std::int64_t ranks) {
    const std::int64_t rows = parameter.rows > 0 ? parameter.rows : parameter.numel;
    return divided(rows, ranks) * ranks * (parameter.numel / std::max<std::int64_t>(rows, 1));
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

namespace {

// Splits operations that make several gradients ready, which may be of several groups, into one for
// each; the first has all the time.
void split_backward(Workload& workload) {
    std::vector<TimedOperation> split;
    std::size_t ready = 0;
    for (TimedOperation& operation : workload.backward) {
        const std::int32_t count = std::exchange(operation.ready_count, 0);
        split.push_back(operation);
        for (std::int32_t i = 0; i < count; ++i, ++ready) {
            if (i > 0) {
                split.push_back({.name = operation.name});
            }
            const auto gradient = static_cast<std::size_t>(workload.readiness[ready]);
            split.back().name = workload.gradients[gradient].name + " backward";
            split.back().ready_count = 1;
        }
    }
    workload.backward = std::move(split);
}

}  // namespace

Workload with_passes_by_gradient(Workload workload) {
    if (workload.forward.size() != 1 || workload.forward.front().source) {
        return workload;
    }
    split_backward(workload);
    Duration backward{0};
    for (const TimedOperation& operation : workload.backward) {
        backward += operation.device;
    }
    const TimedOperation whole = std::exchange(workload.forward, {}).front();
    const auto part = [&](Duration time, Duration so_far) {
        return backward == Duration{0} ? time
                                       : scaled(time, static_cast<double>(so_far.count()) /
                                                          static_cast<double>(backward.count()));
    };
    Duration so_far{0};
    Duration placed{0};
    Duration issued{0};
    std::size_t ready = workload.readiness.size();
    for (std::size_t i = workload.backward.size(); i-- > 0;) {
        const TimedOperation& operation = workload.backward[i];
        so_far += operation.device;
        TimedOperation piece = whole;
        ready -= static_cast<std::size_t>(operation.ready_count);
        if (operation.ready_count > 0) {
            const auto gradient = static_cast<std::size_t>(workload.readiness[ready]);
            piece.name = workload.gradients[gradient].name + " forward";
        }
        piece.device = part(whole.device, so_far) - placed;
        piece.host = part(whole.host, so_far) - issued;
        placed += piece.device;
        issued += piece.host;
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
    const ModuleIndex index(modules);
    check_once(modules);
    add_parameters(workload, request, ranks, index, plan);
    check_modules(modules, plan.groups);
    std::vector<bool> exists(plan.groups.size(), true);
    exists[root] = !plan.groups[root].parameters.empty();
    CallsByGroup forward =
        calls_of_pass(owners_in_forward(workload, index), index, plan.groups.size());
    CallsByGroup backward =
        calls_of_pass(owners_in_backward(workload, index), index, plan.groups.size());
    merge_calls(modules, forward, backward);
    plan.forward = in_their_order(forward, exists);
    plan.backward = in_their_order(backward, exists);
    if (!exists[root]) {
        drop_root(plan);
    }
    plan.ends_with_backward = without_input_gradient(plan);
    return plan;
}

}  // namespace bucketwise
