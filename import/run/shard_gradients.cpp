#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "import/run/shard_collectives.h"
#include "sim/base/error.h"
#include "sim/sharding/shard_plan.h"
#include "sim/workload/modules.h"

namespace bucketwise {

namespace {

class GradientFinder {
  public:
    GradientFinder(const TracedStep& step, const ShardCollectives& collectives,
                   const Workload& model, TracedSharding& result)
        : step_(step), collectives_(collectives), model_(model), result_(result) {}

    void find(Findings& findings) {
        for (const StepMark& mark : step_.backward) {
            if (mark.kind == MarkKind::ready) {
                group_of(mark.module).gradients.push_back(result_.gradients.size());
                result_.gradients.push_back({.name = {},
                                             .numel = mark.elements,
                                             .dtype = result_.dtype,
                                             .rows = std::max(mark.rows, 0)});
            }
        }
        bool shared = false;
        for (TracedShardGroup& group : result_.groups) {
            if (group.gradients.empty()) {
                collectives_.refuse("a gradient that becomes ready for each group",
                                    "none in " + group.text());
            }
            if (!model_.gradients.empty()) {
                take_model(group);
            } else if (std::ranges::any_of(group.gradients, [&](std::size_t i) {
                           return result_.gradients[i].numel <= 0;
                       })) {
                share_equally(group);
                shared = true;
            }
            name_gradients(group);
            check_size(group);
        }
        if (shared) {
            findings.assumed("sizes",
                             "only all-gathers tell them (record_shapes=True records each "
                             "gradient's): the gradients of a group share what it gathers equally");
        }
    }

  private:
    [[nodiscard]] TracedShardGroup& group_of(std::int32_t module) {
        const TracedShardGroup* const group = result_.group_of(module, step_.shards);
        if (group == nullptr) {
            collectives_.refuse(
                "gradients of parameters that FSDP2 gathers",
                module == no_module
                    ? std::string("one that became ready in the root, which gathers nothing")
                    : fmt::format("one of {}, which gathers nothing",
                                  collectives_.name_of_group(module)));
        }
        return result_.groups[static_cast<std::size_t>(group - result_.groups.data())];
    }

    // Parameters of the model stand in the reverse order of readiness.
    void take_model(const TracedShardGroup& group) {
        std::vector<const Gradient*> own;
        for (const Gradient& gradient : model_.gradients) {
            const TracedShardGroup* best = nullptr;
            for (const TracedShardGroup& other : result_.groups) {
                const bool holds = other.modules.empty() || in_modules(gradient.name, other);
                const std::size_t longest = best == nullptr ? 0 : best->module.size();
                best = holds && (best == nullptr || other.module.size() > longest) ? &other : best;
            }
            if (best == &group) {
                own.push_back(&gradient);
            }
        }
        if (own.size() != group.gradients.size()) {
            throw InputError("--model", "",
                             fmt::format("a model with {} parameters in {}, as the trace has",
                                         group.gradients.size(), group.text()),
                             std::to_string(own.size()));
        }
        for (std::size_t k = 0; k < own.size(); ++k) {
            Gradient& gradient = result_.gradients[group.gradients[own.size() - 1 - k]];
            const DType dtype = gradient.dtype;
            gradient = *own[k];
            gradient.dtype = dtype;
        }
    }

    static bool in_modules(const std::string& parameter, const TracedShardGroup& group) {
        constexpr std::string_view between = ", ";
        std::string_view left = group.modules;
        while (!left.empty()) {
            const std::size_t end = std::min(left.find(between), left.size());
            if (belongs_to(parameter, left.substr(0, end))) {
                return true;
            }
            left.remove_prefix(std::min(end + between.size(), left.size()));
        }
        return false;
    }

    // In whole shards.
    void share_equally(const TracedShardGroup& group) {
        const std::int64_t shards = group.gathered / result_.shard_ranks;
        const auto count = static_cast<std::int64_t>(group.gradients.size());
        if (shards < count) {
            collectives_.refuse(
                "groups with an element of each parameter on each rank",
                fmt::format("{} gradients in an all-gather of {} elements", count, group.gathered));
        }
        for (std::int64_t k = 0; k < count; ++k) {
            Gradient& gradient = result_.gradients[group.gradients[static_cast<std::size_t>(k)]];
            gradient.numel = (shards / count + (k < shards % count ? 1 : 0)) * result_.shard_ranks;
            gradient.rows = 0;
        }
    }

    // The scenario's reader finds a group's parameters by their first module.
    void name_gradients(const TracedShardGroup& group) {
        const std::size_t count = group.gradients.size();
        for (std::size_t k = 0; k < count; ++k) {
            std::string& name = result_.gradients[group.gradients[count - 1 - k]].name;
            if (name.empty() || (!group.module.empty() && !belongs_to(name, group.module))) {
                name = fmt::format("{}{}parameter_{}", group.module,
                                   group.module.empty() ? "" : ".", k);
            }
        }
    }

    void check_size(const TracedShardGroup& group) const {
        std::int64_t sum = 0;
        for (const std::size_t i : group.gradients) {
            sum += padded_numel(result_.gradients[i], result_.shard_ranks);
            if (sum > group.gathered) {
                break;
            }
        }
        if (sum != group.gathered) {
            collectives_.refuse(
                fmt::format("the {} elements that are gathered for {} among the gradients that "
                            "become ready in it",
                            group.gathered, group.text()),
                fmt::format("{}: parameters without gradients, or groups that run side by side",
                            sum));
        }
    }

    const TracedStep& step_;
    const ShardCollectives& collectives_;
    const Workload& model_;
    TracedSharding& result_;
};

}  // namespace

void find_shard_gradients(const TracedStep& step, const ShardCollectives& collectives,
                          const Workload& model, Findings& findings, TracedSharding& result) {
    GradientFinder(step, collectives, model, result).find(findings);
}

}  // namespace bucketwise
