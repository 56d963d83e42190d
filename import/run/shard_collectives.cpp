#include "import/run/shard_collectives.h"

#include <algorithm>

#include <fmt/format.h>

#include "import/run/traced_collectives.h"
#include "sim/base/error.h"

namespace bucketwise {

namespace {

constexpr std::int64_t most_ranks = 1'000'000;  // of a scenario

}  // namespace

ShardCollectives::ShardCollectives(const TracedRun& run,
                                   std::optional<std::int64_t> requested_ranks, Findings& findings,
                                   TracedSharding& result)
    : run_(run), step_(run.first()), result_(result) {
    keep_own();
    refuse_damage();
    find_ranks();
    find_replicas(requested_ranks, findings);
}

void ShardCollectives::keep_own() {
    all_.clear();
    for (const TracedCollective& collective : step_.collectives) {
        if (result_.has(collective)) {
            all_.push_back(&collective);
        }
    }
}

void ShardCollectives::refuse(const std::string& expected, const std::string& got) const {
    throw InputError(run_.rank().file, "/traceEvents", expected, got);
}

std::string ShardCollectives::name_of_group(std::int32_t module) const {
    const std::string& name = step_.shards.modules[static_cast<std::size_t>(module)];
    return name.empty() ? "the root" : name;
}

void ShardCollectives::refuse_damage() const {
    // FSDP2 marks groups of one module, where parameters have a mesh each, by their ranks.
    for (const std::string& name : step_.shards.modules) {
        if (name.find("[pg=") != std::string::npos) {
            refuse("FSDP2 with one group of parameters for each fully_shard call",
                   fmt::format("several of \"{}\" (a mesh for each parameter)", name));
        }
    }
    // Products of these numbers must fit 64 bits.
    constexpr std::int64_t most_elements = std::int64_t{1} << 36;
    for (const TracedCollective& one : step_.collectives) {
        if (one.module != no_module &&
            (one.elements > most_elements || one.group_size > most_ranks)) {
            refuse(fmt::format("collectives of at most {} elements among {} ranks", most_elements,
                               most_ranks),
                   one.group_size > 0 ? fmt::format("{} among {}", one.elements, one.group_size)
                                      : std::to_string(one.elements));
        }
    }
}

void ShardCollectives::refuse_unknown_sizes() const {
    const auto unknown =
        std::ranges::count_if(all_, [](const TracedCollective* one) { return one->elements <= 0; });
    if (unknown > 0) {
        refuse(
            "sizes of FSDP2's collectives, which profile(record_shapes=True, "
            "activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) records",
            fmt::format("{} whose sizes nothing tells", unknown));
    }
}

// A call states the size of its input, the shape of its first tensor that of its output.
std::int64_t ShardCollectives::whole(const TracedCollective& collective) const {
    const bool is_shard = (collective.gathers() && gathers_say_shards_) ||
                          (collective.scatters() && !gathers_say_shards_);
    return collective.elements * (is_shard ? ranks_of(collective) : 1);
}

std::int64_t ShardCollectives::ranks_of(const TracedCollective& collective) const {
    return collective.group_size > 0 ? collective.group_size : result_.shard_ranks;
}

void ShardCollectives::find_ranks() {
    const TracedCollective* const gather = *std::ranges::find_if(all_, &TracedCollective::gathers);
    const auto scattered = std::ranges::find_if(all_, [&](const TracedCollective* one) {
        return one->scatters() && one->module == gather->module;
    });
    if (scattered == all_.end()) {
        refuse("a reduce-scatter for each group that is gathered",
               fmt::format("none for {}: parameters without gradients",
                           name_of_group(gather->module)));
    }
    const TracedCollective* const scatter = *scattered;
    refuse_unknown_sizes();
    const auto [least, most] = std::minmax(gather->elements, scatter->elements);
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
}

void ShardCollectives::find_replicas(std::optional<std::int64_t> requested_ranks,
                                     Findings& findings) {
    const auto reduction = std::ranges::find_if(step_.collectives, [](const TracedCollective& one) {
        return one.module != no_module && one.name == "allreduce";
    });
    const std::optional<std::int64_t> world = run_.rank().world_size;
    std::int64_t replicas = 1;
    if (reduction != step_.collectives.end()) {
        replicas = reduction->group_size > 0 ? reduction->group_size
                   : world                   ? *world / result_.shard_ranks
                                             : 2;
    }
    result_.ranks = result_.shard_ranks * std::max<std::int64_t>(replicas, 1);
    check_requested_ranks(result_.ranks, requested_ranks);
    if (world && *world > result_.ranks) {
        findings.found("ranks",
                       "{} of the run's {} share parameters: the others are of other "
                       "parallelism",
                       result_.ranks, *world);
    }
    if (result_.ranks > result_.shard_ranks) {
        result_.request.strategy = ShardedStrategy::hsdp;
        result_.request.shard_ranks = result_.shard_ranks;
        keep_own();
        refuse_unknown_sizes();
    }
}

std::vector<const TracedCollective*> ShardCollectives::of_pass(
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

}  // namespace bucketwise
