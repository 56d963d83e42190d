#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "import/run/shard_collectives.h"
#include "import/run/traced_collectives.h"
#include "import/run/traced_gradients.h"
#include "import/run/traced_sharding.h"
#include "import/source/dtype_names.h"
#include "sim/workload/modules.h"

namespace bucketwise {

namespace {

// The marks of the last micro-step's passes.
template <typename Visit>
void for_each_mark(const TracedStep& step, Visit visit) {
    for (const std::vector<StepMark>* pass : {&step.forward, &step.backward}) {
        std::ranges::for_each(*pass, visit);
    }
}

class ShardingReader {
  public:
    ShardingReader(const TracedRun& run, const Workload& model,
                   std::optional<std::int64_t> requested, Findings& findings)
        : run_(run),
          step_(run.first()),
          model_(model),
          findings_(findings),
          found_(run, requested, findings, result_) {}

    TracedSharding read() {
        find_groups();
        find_dtypes();
        find_shard_gradients(step_, found_, model_, findings_, result_);
        find_settings();
        find_collectives();
        count_copies();
        report();
        return std::move(result_);
    }

  private:
    // --- groups ---

    void find_groups() {
        std::set<std::int32_t> with_gathers;
        for (const TracedCollective* const one : found_.all()) {
            if (one->gathers()) {
                with_gathers.insert(one->module);
            }
        }
        for (std::size_t i = 0; i < step_.shards.modules.size(); ++i) {
            const auto module = static_cast<std::int32_t>(i);
            if (!with_gathers.contains(module)) {
                continue;
            }
            const std::string& modules = step_.shards.modules[i];
            result_.groups.insert(
                modules.empty() ? result_.groups.begin() : result_.groups.end(),
                {modules, modules.substr(0, modules.find(", ")), elements_of_group(module), {}});
        }
    }

    // Throws where its collectives differ in size.
    [[nodiscard]] std::int64_t elements_of_group(std::int32_t module) const {
        std::int64_t elements = -1;
        bool scatters = false;
        for (const TracedCollective* const one : found_.all()) {
            if (one->module != module || !(one->gathers() || one->scatters())) {
                continue;
            }
            if (elements < 0) {
                elements = found_.whole(*one);
            } else if (found_.whole(*one) != elements) {
                found_.refuse(
                    "as many elements in every all-gather and reduce-scatter of a group",
                    fmt::format("{} and {} in {}: parameters without gradients, or modules "
                                "that are used apart",
                                elements, found_.whole(*one), found_.name_of_group(module)));
            }
            scatters |= one->scatters();
        }
        if (!scatters) {
            found_.refuse("a reduce-scatter for each group that is gathered",
                          fmt::format("none for {}: parameters without gradients",
                                      found_.name_of_group(module)));
        }
        return elements;
    }

    // --- element types ---

    DType only_dtype(bool (TracedCollective::*is_one)() const) const {
        std::optional<DType> dtype;
        for (const TracedCollective* const one : found_.all()) {
            if (!(one->*is_one)()) {
                continue;
            }
            const std::optional<DType> own = dtype_named(one->dtype);
            if (!own) {
                found_.refuse("collectives of one type of parameters",
                              fmt::format("a {} of type {} in {}", one->name, one->dtype,
                                          found_.name_of_group(one->module)));
            }
            if (dtype && *dtype != *own) {
                found_.refuse(
                    "one type in which all groups are gathered, and one in which all are "
                    "reduced",
                    fmt::format("{} and {}", name_of(*dtype), name_of(*own)));
            }
            dtype = own;
        }
        return *dtype;
    }

    void find_dtypes() {
        result_.gathered_dtype = only_dtype(&TracedCollective::gathers);
        result_.reduced_dtype = only_dtype(&TracedCollective::scatters);
        // The optimizer's type is at least as wide as either.
        result_.dtype = element_size(result_.reduced_dtype) > element_size(result_.gathered_dtype)
                            ? result_.reduced_dtype
                            : result_.gathered_dtype;
        if (result_.gathered_dtype != result_.dtype) {
            result_.request.parameter_dtype = result_.gathered_dtype;
            result_.request.reduce_dtype = result_.reduced_dtype;
        } else if (result_.reduced_dtype != result_.dtype) {
            result_.request.reduce_dtype = result_.reduced_dtype;
        }
        if (result_.dtype != DType::float32) {
            findings_.assumed("element type",
                              "parameters and optimizer in {}, as no collective has a wider one; "
                              "float32 would need more memory",
                              name_of(result_.dtype));
        }
    }

    // --- settings ---

    void find_settings() {
        ShardingRequest& request = result_.request;
        const TracedShards& shards = step_.shards;
        request.forward_prefetch = shards.forward_ahead;
        request.backward_prefetch = std::max<std::int64_t>(shards.backward_ahead, 1);
        request.asynchronous_unshard = std::ranges::any_of(
            run_.alike(), [](const TracedStep* step) { return step->shards.asynchronous; });
        request.reduce_scatter_buffers = std::max<std::int64_t>(shards.buffers, 1);
        find_resharding();
        find_accumulation();
        name_groups();
    }

    void find_resharding() {
        ShardingRequest& request = result_.request;
        std::set<std::int32_t> again;  // gathered in backward
        for (const TracedCollective* const one : found_.of_pass(step_.backward)) {
            if (one->gathers()) {
                again.insert(one->module);
                if (!is_root(one->module) && found_.ranks_of(*one) < result_.shard_ranks) {
                    request.reshard_ranks = found_.ranks_of(*one);
                }
            }
        }
        request.reshard_root =
            std::ranges::any_of(again, [&](std::int32_t module) { return is_root(module); });
        const std::size_t others = again.size() - (request.reshard_root ? 1U : 0U);
        const std::size_t groups =
            result_.groups.size() - (result_.groups.front().modules.empty() ? 1U : 0U);
        request.reshard_after_forward = groups == 0 || 2 * others > groups;
        if (others > 0 && others < groups) {
            findings_
                .missing("resharding",
                         "{} of {} groups are gathered again in backward; the scenario has it so "
                         "of {}",
                         others, groups, request.reshard_after_forward ? "all" : "none")
                .weakens = Weakens::scenario;
        }
    }

    [[nodiscard]] bool is_root(std::int32_t module) const {
        return step_.shards.modules[static_cast<std::size_t>(module)].empty();
    }

    void find_accumulation() {
        if (step_.micro_steps < 2) {
            return;
        }
        const auto of_step = std::ranges::count_if(found_.all(), &TracedCollective::scatters);
        const auto of_last =
            std::ranges::count_if(found_.of_pass(step_.backward), &TracedCollective::scatters);
        result_.request.gradient_sync = of_step > of_last ? MicroSteps::every : MicroSteps::last;
        result_.request.reshard_after_backward =
            std::ranges::any_of(found_.of_pass(step_.forward), &TracedCollective::gathers);
        const auto is_reduction = [](const TracedCollective* one) {
            return one->name == "allreduce";
        };
        if (result_.request.strategy == ShardedStrategy::hsdp &&
            result_.request.gradient_sync == MicroSteps::every &&
            std::ranges::count_if(found_.all(), is_reduction) < of_step) {
            result_.request.all_reduce = MicroSteps::last;
        }
    }

    void name_groups() {
        std::vector<std::string> names;
        std::vector<std::string> modules;
        bool together = false;
        for (const TracedShardGroup& group : result_.groups) {
            for (const std::size_t i : group.gradients) {
                names.push_back(result_.gradients[i].name);
            }
            if (!group.modules.empty()) {
                modules.push_back(group.module);
                together |= group.module != group.modules;
            }
        }
        if (blocks_of(names) == modules) {
            result_.request.layers_per_group = modules.empty() ? 0 : 1;
        } else {
            for (const std::string& module : modules) {
                result_.request.groups.push_back({module});
            }
        }
        if (together) {
            findings_
                .assumed("groups",
                         "modules that were traced together are called by the first of them and "
                         "count as one layer: neighbours can be joined, but not cut")
                .weakens = Weakens::scenario;
        }
    }

    // --- collectives ---

    void find_collectives() {
        const Bytes gathered = element_size(result_.gathered_dtype);
        const Bytes reduced = element_size(result_.reduced_dtype);
        // By collective.
        std::vector<std::vector<Duration>> starts(found_.all().size());
        for (const TracedStep* step : run_.alike()) {
            for_each_own(*step, [&](std::size_t k, const TracedCollective& one) {
                starts[k].push_back(one.begin.value_or(one.issued));
            });
        }
        for (std::size_t k = 0; k < found_.all().size(); ++k) {
            const TracedCollective& one = *found_.all()[k];
            const CollectiveKind kind = one.gathers()    ? CollectiveKind::all_gather
                                        : one.scatters() ? CollectiveKind::reduce_scatter
                                                         : CollectiveKind::all_reduce;
            result_.collectives.push_back(
                {.kind = kind,
                 .bytes = found_.whole(one) * (one.gathers() ? gathered : reduced),
                 .start = median(starts[k])});
        }
        find_wire_times();
    }

    // Visits FSDP2's collectives of the step, numbered as issued, up to the first step's number.
    template <typename Visit>
    void for_each_own(const TracedStep& step, Visit visit) const {
        std::size_t k = 0;
        for (const TracedCollective& one : step.collectives) {
            if (result_.has(one) && k < found_.all().size()) {
                visit(k++, one);
            }
        }
    }

    void find_wire_times() {
        const bool all_ranks = std::ssize(run_.ranks) >= result_.ranks && same_steps(run_);
        // By collective, step and rank.
        std::vector<std::vector<std::vector<Duration>>> times(
            found_.all().size(), std::vector<std::vector<Duration>>(run_.alike().size()));
        for (std::size_t s = 0; s < run_.alike().size(); ++s) {
            for (const Steps& steps : run_.steps) {
                if (&steps == &run_.alike() || all_ranks) {
                    add_times(*steps[s],
                              [&](std::size_t k, Duration time) { times[k][s].push_back(time); });
                }
            }
        }
        bool any = false;
        for (std::size_t k = 0; k < found_.all().size(); ++k) {
            result_.collectives[k].wire_us = wire_estimates(times[k], all_ranks);
            any |= !result_.collectives[k].wire_us.empty();
        }
        report_wire_times(run_, result_.ranks, any, all_ranks, "all-gather", findings_);
    }

    // The time that each ran, or blocked the computing host.
    template <typename Add>
    void add_times(const TracedStep& step, Add add) const {
        std::vector<Duration> blocked(step.collectives.size(), Duration{0});
        for_each_mark(step, [&](const StepMark& mark) {
            if (mark.collective >= 0) {
                blocked[static_cast<std::size_t>(mark.collective)] += mark.stall;
            }
        });
        for_each_own(step, [&](std::size_t k, const TracedCollective& one) {
            if (one.begin) {
                const auto index = static_cast<std::size_t>(&one - step.collectives.data());
                add(k, blocked[index] > Duration{0} ? blocked[index] : *one.end - *one.begin);
            }
        });
    }

    // Counts as the simulator does.
    void count_copies() {
        const bool on_host = !run_.rank().has_device;
        const Bytes own = element_size(result_.dtype);
        const Bytes gathered = element_size(result_.gathered_dtype);
        const Bytes reduced = element_size(result_.reduced_dtype);
        std::int64_t bytes = 0;
        for_each_mark(step_, [&](const StepMark& mark) {
            const TracedCollective* const one = step_.collective_of(mark);
            if (one == nullptr || !result_.has(*one) || one->name == "allreduce") {
                return;
            }
            const std::int64_t elements = found_.whole(*one);
            const std::int64_t shard = elements / result_.shard_ranks;
            if (one->gathers()) {
                const bool casts = own != gathered;
                const std::int64_t in =
                    shard * gathered.count + (casts ? shard * (own + gathered).count / 2 : 0);
                bytes += elements * gathered.count;
                bytes += on_host || result_.request.asynchronous_unshard ? in : 0;
            } else {
                // Autograd leaves gradients in the narrower type.
                bytes += elements * (std::min(gathered, reduced) + reduced).count / 2;
                bytes += on_host && own != reduced ? shard * (own + reduced).count / 2 : 0;
            }
        });
        result_.copied = Bytes{bytes};
    }

    // --- the report ---

    void report() {
        const ShardingRequest& request = result_.request;
        std::vector<std::string> groups;
        for (const TracedShardGroup& group : result_.groups) {
            groups.push_back(fmt::format("{} ({})", group.modules.empty() ? "root" : group.modules,
                                         group.gathered));
        }
        constexpr std::size_t most_listed = 6;
        const std::size_t left = groups.size() - std::min(groups.size(), most_listed);
        groups.resize(groups.size() - left);
        findings_.found("groups", "{} of FSDP2, with their elements: {}{}", result_.groups.size(),
                        fmt::join(groups, "; "),
                        left > 0 ? fmt::format("; and {} more", left) : "");
        findings_.found("gradients", "{} became ready, with {} elements", result_.gradients.size(),
                        elements_of(result_.gradients));
        findings_.found(
            "sharding",
            "{}gathered in {} and reduced in {} over {} ranks; parameters {} after forward{}; "
            "gathered ahead: {} in forward, {} in backward{}",
            request.strategy == ShardedStrategy::hsdp
                ? fmt::format("hybrid, all-reduced between {} groups of ranks; ",
                              result_.ranks / result_.shard_ranks)
                : "",
            name_of(result_.gathered_dtype), name_of(result_.reduced_dtype), result_.shard_ranks,
            request.reshard_after_forward ? "freed" : "kept",
            request.reshard_root ? ", the root's too" : "", request.forward_prefetch,
            request.backward_prefetch, request.asynchronous_unshard ? "; asynchronously" : "");
        const auto count = [&](CollectiveKind kind) {
            return std::ranges::count(result_.collectives, kind, &TypicalCollective::kind);
        };
        findings_.found("collectives", "{} all-gathers and {} reduce-scatters a step",
                        count(CollectiveKind::all_gather), count(CollectiveKind::reduce_scatter));
    }

    const TracedRun& run_;
    const TracedStep& step_;
    const Workload& model_;
    Findings& findings_;
    TracedSharding result_;
    ShardCollectives found_;
};

}  // namespace

const TracedShardGroup* TracedSharding::group_of(std::int32_t module,
                                                 const TracedShards& shards) const {
    const std::string name =
        module == no_module ? "" : shards.modules[static_cast<std::size_t>(module)];
    const auto found = std::ranges::find(groups, name, &TracedShardGroup::modules);
    return found == groups.end() ? nullptr : &*found;
}

bool TracedSharding::has(const TracedCollective& collective) const {
    return collective.module != no_module &&
           (collective.gathers() || collective.scatters() ||
            (collective.name == "allreduce" && request.strategy == ShardedStrategy::hsdp));
}

Duration TracedSharding::on_link(const TracedStep& step, const TracedCollective& collective) const {
    std::size_t k = 0;
    for (const TracedCollective& one : step.collectives) {
        if (has(one) && &one == &collective) {
            return collectives[k].on_link;
        }
        k += has(one) ? 1U : 0U;
    }
    return Duration{0};
}

TracedSharding traced_sharding(const TracedRun& run, const Workload& model,
                               std::optional<std::int64_t> requested_ranks, Findings& findings) {
    return ShardingReader(run, model, requested_ranks, findings).read();
}

}  // namespace bucketwise
