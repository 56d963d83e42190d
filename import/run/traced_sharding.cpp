#include "import/run/traced_sharding.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "import/run/traced_gradients.h"
#include "sim/base/error.h"
#include "sim/sharding/modules.h"
#include "sim/sharding/shard_plan.h"

namespace bucketwise {

namespace {

constexpr std::int64_t most_ranks = 1'000'000;  // as scenarios have

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
        : run_(run), step_(run.first()), model_(model), requested_(requested), findings_(findings) {
        keep_own_collectives();
    }

    TracedSharding read() {
        refuse_parts_of_groups();
        refuse_more_than_any_model();
        find_ranks();
        find_groups();
        find_dtypes();
        find_gradients();
        find_settings();
        find_collectives();
        count_copies();
        report();
        return std::move(result_);
    }

  private:
    void keep_own_collectives() {
        found_.clear();
        for (const TracedCollective& collective : step_.collectives) {
            if (result_.has(collective)) {
                found_.push_back(&collective);
            }
        }
    }

    [[noreturn]] void refuse(const std::string& expected, const std::string& got) const {
        throw InputError(run_.rank().file, "/traceEvents", expected, got);
    }

    [[nodiscard]] std::string name_of_group(std::int32_t module) const {
        const std::string& name = step_.shards.modules[static_cast<std::size_t>(module)];
        return name.empty() ? "the root" : name;
    }

    // Per-parameter meshes: FSDP2 marks the groups of one module by their ranks.
    void refuse_parts_of_groups() const {
        for (const std::string& name : step_.shards.modules) {
            if (name.find("[pg=") != std::string::npos) {
                refuse("FSDP2 with one group of parameters for each fully_shard call",
                       fmt::format("several of \"{}\" (a mesh for each parameter)", name));
            }
        }
    }

    // So that no product of what a trace says is too large for 64 bits.
    void refuse_more_than_any_model() const {
        constexpr std::int64_t most_elements = std::int64_t{1} << 36;
        for (const TracedCollective& one : step_.collectives) {
            if (one.module != no_module &&
                (one.elements > most_elements || one.group_size > most_ranks)) {
                refuse(fmt::format("collectives of at most {} elements among {} ranks",
                                   most_elements, most_ranks),
                       one.group_size > 0 ? fmt::format("{} among {}", one.elements, one.group_size)
                                          : std::to_string(one.elements));
            }
        }
    }

    void refuse_unknown_sizes() const {
        const auto unknown = std::ranges::count_if(
            found_, [](const TracedCollective* one) { return one->elements <= 0; });
        if (unknown > 0) {
            refuse(
                "sizes of FSDP2's collectives, which profile(record_shapes=True, "
                "activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) records",
                fmt::format("{} whose sizes nothing tells", unknown));
        }
    }

    // --- ranks ---

    // Elements of all ranks: a call says what goes in, the shape of its first tensor what comes
    // out.
    [[nodiscard]] std::int64_t whole(const TracedCollective& collective) const {
        const bool is_shard = collective.gathers()    ? gathers_say_shards_
                              : collective.scatters() ? !gathers_say_shards_
                                                      : false;
        return collective.elements * (is_shard ? ranks_of(collective) : 1);
    }
    [[nodiscard]] std::int64_t ranks_of(const TracedCollective& collective) const {
        return collective.group_size > 0 ? collective.group_size : result_.shard_ranks;
    }

    void find_ranks() {
        const TracedCollective* gather = nullptr;
        const TracedCollective* scatter = nullptr;
        for (const TracedCollective* const one : found_) {
            gather = gather == nullptr && one->gathers() ? one : gather;
        }
        for (const TracedCollective* const one : found_) {
            scatter = scatter == nullptr && one->scatters() && one->module == gather->module
                          ? one
                          : scatter;
        }
        if (scatter == nullptr) {
            refuse("a reduce-scatter for each group that is gathered",
                   fmt::format("none for {}: parameters without gradients",
                               name_of_group(gather->module)));
        }
        refuse_unknown_sizes();
        const std::int64_t most = std::max(gather->elements, scatter->elements);
        const std::int64_t least = std::min(gather->elements, scatter->elements);
        gathers_say_shards_ = gather->elements < scatter->elements;
        result_.shard_ranks = gather->group_size > 0 ? gather->group_size : most / least;
        const std::int64_t world = run_.rank().world_size.value_or(result_.shard_ranks);
        if (result_.shard_ranks > most_ranks || most != least * result_.shard_ranks ||
            world % result_.shard_ranks != 0) {
            refuse("as many gradients reduced as parameters gathered",
                   fmt::format("an all-gather of {} and a reduce-scatter of {} elements in {}: "
                               "parameters without gradients",
                               gather->elements, scatter->elements, name_of_group(gather->module)));
        }
        find_replicas();
    }

    void find_replicas() {
        const auto reduction =
            std::ranges::find_if(step_.collectives, [](const TracedCollective& one) {
                return one.module != no_module && one.name == "allreduce";
            });
        const bool is_hybrid = reduction != step_.collectives.end();
        const std::optional<std::int64_t> world = run_.rank().world_size;
        std::int64_t replicas = 1;
        if (is_hybrid) {
            replicas = reduction->group_size > 0 ? reduction->group_size
                       : world                   ? *world / result_.shard_ranks
                                                 : 2;
        }
        result_.ranks = result_.shard_ranks * std::max<std::int64_t>(replicas, 1);
        if (requested_ && *requested_ != result_.ranks) {
            throw InputError("--ranks", "",
                             fmt::format("{}, as the trace says, or nothing (predict takes --set "
                                         "/cluster/ranks=N)",
                                         result_.ranks),
                             std::to_string(*requested_));
        }
        if (world && *world > result_.ranks) {
            findings_.found("ranks",
                            "{} of the run's {} share parameters: the others are of other "
                            "parallelism",
                            result_.ranks, *world);
        }
        if (result_.ranks > result_.shard_ranks) {
            result_.request.strategy = ShardedStrategy::hsdp;
            result_.request.shard_ranks = result_.shard_ranks;
            keep_own_collectives();
            refuse_unknown_sizes();
        }
    }

    // --- groups ---

    void find_groups() {
        std::set<std::int32_t> with_gathers;
        for (const TracedCollective* const one : found_) {
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
            TracedShardGroup group{modules, modules.substr(0, modules.find(", ")), 0, {}};
            group.gathered = elements_of_group(module);
            result_.groups.insert(modules.empty() ? result_.groups.begin() : result_.groups.end(),
                                  std::move(group));
        }
    }

    // Throws where its collectives do not move as much as one another.
    [[nodiscard]] std::int64_t elements_of_group(std::int32_t module) const {
        std::int64_t elements = -1;
        bool scatters = false;
        for (const TracedCollective* const one : found_) {
            if (one->module != module || !(one->gathers() || one->scatters())) {
                continue;
            }
            if (elements < 0) {
                elements = whole(*one);
            } else if (whole(*one) != elements) {
                refuse("as many elements in every all-gather and reduce-scatter of a group",
                       fmt::format("{} and {} in {}: parameters without gradients, or modules "
                                   "that are used apart",
                                   elements, whole(*one), name_of_group(module)));
            }
            scatters |= one->scatters();
        }
        if (!scatters) {
            refuse("a reduce-scatter for each group that is gathered",
                   fmt::format("none for {}: parameters without gradients", name_of_group(module)));
        }
        return elements;
    }

    // --- element types ---

    DType only_dtype(bool (TracedCollective::*is_one)() const) const {
        std::optional<DType> dtype;
        for (const TracedCollective* const one : found_) {
            if (!(one->*is_one)()) {
                continue;
            }
            const std::optional<DType> own = travelling_dtype(*one);
            if (!own) {
                refuse("collectives of one type of parameters",
                       fmt::format("a {} of type {} in {}", one->name, one->dtype,
                                   name_of_group(one->module)));
            }
            if (dtype && *dtype != *own) {
                refuse(
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
        // The optimizer's is at least as wide as either.
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
                              "were they float32, memory would be more",
                              name_of(result_.dtype));
        }
    }

    // --- gradients ---

    [[nodiscard]] TracedShardGroup& group_of(std::int32_t module) {
        const TracedShardGroup* const group = result_.group_of(module, step_.shards);
        if (group == nullptr) {
            refuse("gradients of what FSDP2 gathers",
                   module == no_module
                       ? std::string("one that became ready in the root, which gathers nothing")
                       : fmt::format("one of {}, which gathers nothing", name_of_group(module)));
        }
        return result_.groups[static_cast<std::size_t>(group - result_.groups.data())];
    }

    void find_gradients() {
        for (const StepMark& mark : step_.backward) {
            if (mark.kind != MarkKind::ready) {
                continue;
            }
            TracedShardGroup& group = group_of(mark.module);
            group.gradients.push_back(result_.gradients.size());
            Gradient& gradient = result_.gradients.emplace_back();
            gradient.numel = mark.elements;
            gradient.dtype = result_.dtype;
            gradient.rows = std::max(mark.rows, 0);
        }
        std::vector<std::string> shared;
        for (TracedShardGroup& group : result_.groups) {
            if (group.gradients.empty()) {
                refuse(
                    "a gradient that becomes ready for each group",
                    fmt::format("none in {}", group.modules.empty() ? "the root" : group.modules));
            }
            if (!model_.gradients.empty()) {
                take_model(group);
            } else if (std::ranges::any_of(group.gradients, [&](std::size_t i) {
                           return result_.gradients[i].numel <= 0;
                       })) {
                share_equally(group);
                shared.push_back(group.modules);
            }
            name_gradients(group);
            check_size(group);
        }
        if (!shared.empty()) {
            findings_.assumed("sizes",
                              "nothing tells those of gradients (record_shapes=True does), but "
                              "what all-gathers move: those of a group share that equally");
        }
    }

    // By parameter, the reverse of readiness.
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
                                         group.gradients.size(),
                                         group.modules.empty() ? "the root" : group.modules),
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
        for (std::int64_t k = 0; k < count; ++k) {
            Gradient& gradient = result_.gradients[group.gradients[static_cast<std::size_t>(k)]];
            gradient.numel = (shards / count + (k < shards % count ? 1 : 0)) * result_.shard_ranks;
            gradient.rows = 0;
            if (gradient.numel == 0) {
                refuse("groups with an element of each parameter on each rank",
                       fmt::format("{} gradients in an all-gather of {} elements", count,
                                   group.gathered));
            }
        }
    }

    // Whoever reads the scenario finds a group's parameters by their first module.
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
            refuse(fmt::format("the {} elements that are gathered for {} among the gradients that "
                               "become ready in it",
                               group.gathered, group.modules.empty() ? "the root" : group.modules),
                   fmt::format("{}: parameters without gradients, or groups that run side by side",
                               sum));
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

    // The collectives of the last micro-step, by their marks.
    [[nodiscard]] std::vector<const TracedCollective*> of_pass(
        const std::vector<StepMark>& pass) const {
        std::vector<const TracedCollective*> found;
        for (const StepMark& mark : pass) {
            const TracedCollective* const one = step_.collective_of(mark);
            if (one != nullptr && result_.has(*one)) {
                found.push_back(one);
            }
        }
        return found;
    }

    void find_resharding() {
        ShardingRequest& request = result_.request;
        std::set<std::int32_t> again;  // gathered in backward
        for (const TracedCollective* const one : of_pass(step_.backward)) {
            if (one->gathers()) {
                again.insert(one->module);
                if (!is_root(one->module) && ranks_of(*one) < result_.shard_ranks) {
                    request.reshard_ranks = ranks_of(*one);
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
        const auto of_step = std::ranges::count_if(found_, &TracedCollective::scatters);
        const auto of_last =
            std::ranges::count_if(of_pass(step_.backward), &TracedCollective::scatters);
        result_.request.gradient_sync = of_step > of_last ? MicroSteps::every : MicroSteps::last;
        result_.request.reshard_after_backward =
            std::ranges::any_of(of_pass(step_.forward), &TracedCollective::gathers);
        const auto is_reduction = [](const TracedCollective* one) {
            return one->name == "allreduce";
        };
        if (result_.request.strategy == ShardedStrategy::hsdp &&
            result_.request.gradient_sync == MicroSteps::every &&
            std::ranges::count_if(found_, is_reduction) < of_step) {
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
        for (std::size_t k = 0; k < found_.size(); ++k) {
            const TracedCollective& one = *found_[k];
            TracedShardCollective collective;
            collective.kind = one.gathers()    ? CollectiveKind::all_gather
                              : one.scatters() ? CollectiveKind::reduce_scatter
                                               : CollectiveKind::all_reduce;
            collective.bytes = whole(one) * (one.gathers() ? gathered : reduced);
            std::vector<Duration> starts;
            for (const TracedStep* step : run_.alike()) {
                if (const TracedCollective* const same = of_step(*step, k)) {
                    starts.push_back(same->begin.value_or(same->issued));
                }
            }
            collective.start = median(starts);
            result_.collectives.push_back(std::move(collective));
        }
        find_wire_times();
    }

    // The k-th of FSDP2's; null: the step has fewer.
    [[nodiscard]] const TracedCollective* of_step(const TracedStep& step, std::size_t k) const {
        for (const TracedCollective& collective : step.collectives) {
            if (result_.has(collective) && k-- == 0) {
                return &collective;
            }
        }
        return nullptr;
    }

    void find_wire_times() {
        const bool all_ranks = std::ssize(run_.ranks) >= result_.ranks && same_steps(run_);
        bool any = false;
        for (std::size_t k = 0; k < found_.size(); ++k) {
            std::vector<std::vector<Duration>> by_step;
            for (std::size_t s = 0; s < run_.alike().size(); ++s) {
                std::vector<Duration>& times = by_step.emplace_back();
                for (const Steps& steps : run_.steps) {
                    if (&steps == &run_.alike() || all_ranks) {
                        add_time(*steps[s], k, times);
                    }
                }
            }
            result_.collectives[k].wire_us = wire_estimates(by_step, all_ranks);
            any |= !result_.collectives[k].wire_us.empty();
        }
        report_wire_times(run_, result_.ranks, any, all_ranks, "all-gather", findings_);
    }

    // How long it ran, or blocked the host that computes.
    void add_time(const TracedStep& step, std::size_t k, std::vector<Duration>& times) const {
        const TracedCollective* const one = of_step(step, k);
        if (one == nullptr || !one->begin) {
            return;
        }
        Duration blocked{0};
        for_each_mark(step, [&](const StepMark& mark) {
            blocked += step.collective_of(mark) == one ? mark.stall : Duration{0};
        });
        times.push_back(blocked > Duration{0} ? blocked : *one->end - *one->begin);
    }

    // As the simulator counts it.
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
            const std::int64_t elements = whole(*one);
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

    // --- what is said ---

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
                        elements_in_all());
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
            return std::ranges::count(result_.collectives, kind, &TracedShardCollective::kind);
        };
        findings_.found("collectives", "{} all-gathers and {} reduce-scatters a step",
                        count(CollectiveKind::all_gather), count(CollectiveKind::reduce_scatter));
    }

    [[nodiscard]] std::int64_t elements_in_all() const {
        std::int64_t sum = 0;
        for (const Gradient& gradient : result_.gradients) {
            sum += gradient.numel;
        }
        return sum;
    }

    const TracedRun& run_;
    const TracedStep& step_;
    const Workload& model_;
    std::optional<std::int64_t> requested_;
    Findings& findings_;
    std::vector<const TracedCollective*> found_;  // FSDP2's, as issued
    bool gathers_say_shards_ = false;
    TracedSharding result_;
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
