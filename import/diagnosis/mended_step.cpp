#include "import/diagnosis/mended_step.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "import/replay/changed_step.h"
#include "import/replay/step_document.h"
#include "import/replay/trace_link.h"
#include "sim/base/error.h"
#include "sim/base/transformed.h"
#include "sim/link/collective.h"
#include "sim/predict/prediction.h"
#include "sim/sharding/sharded_input.h"

namespace bucketwise {
namespace {

SimulatedStep simulated(const Scenario& scenario) {
    return {scenario.sharding ? sharded_input(scenario).step : step_input(scenario), scenario.sync,
            scenario.sharding};
}

Duration length_of(const SimulatedStep& step) {
    if (step.sharding) {
        const ShardedInput input{step.input, *step.sharding};
        return sharded_simulation(input, sharded_program(input)).ranks.front().step();
    }
    return Evaluator(step.input, step.sync).step(step.sync.bucket_cap);
}

// Sizes of its buckets, or groups.
std::vector<Bytes> sizes_of(const SimulatedStep& step) {
    if (step.sharding) {
        return transformed(make_shard_plan({step.input, *step.sharding}).groups,
                           [](const ShardGroup& group) { return group.gathered(); });
    }
    return transformed(Evaluator(step.input, step.sync).plan(step.sync.bucket_cap).buckets,
                       &Bucket::size);
}

// Whether the link was measured up to sizes that tell about the step's largest collective.
bool reaches(const SimulatedStep& step) {
    constexpr std::int64_t most_times = 4;
    const std::optional<Bytes> measured = step.input.link.provenance.largest_message;
    const std::vector<Bytes> sizes = sizes_of(step);
    return measured && !sizes.empty() &&
           std::ranges::max(sizes).count <= most_times * measured->count;
}

// Work of other streams, or a wait for it.
bool is_others(const TimedOperation& operation) {
    return operation.order.is_beside() || operation.name.ends_with(stall_name);
}

Duration late_in(const StepInput& input) {
    Duration sum{0};
    for_each_operation(input, [&](const TimedOperation& operation) {
        sum += operation.name.ends_with(late_name) ? operation.device : Duration{0};
    });
    return sum;
}

// How many times as long as on `link` the run's collectives take on its own.
double slower_than(const LinkParameters& link, const MendedSteps::Run& run) {
    Duration own{0};
    Duration other{0};
    for (const TypicalCollective& one : run.imported.collectives()) {
        own += collective_time(one.kind, one.bytes, run.input.group, run.input.link);
        other += collective_time(one.kind, one.bytes, run.input.group, link);
    }
    return other > Duration{0} ? share(own, other) : 1.0;
}

// Operations that compute.
template <typename List>
auto computing(List& operations) {
    std::vector<decltype(operations.data())> found;
    for (auto& operation : operations) {
        if (!is_wait(operation) && !operation.order.is_beside()) {
            found.push_back(&operation);
        }
    }
    return found;
}

Duration total(const std::vector<const TimedOperation*>& operations,
               Duration TimedOperation::*part) {
    Duration sum{0};
    for (const TimedOperation* const operation : operations) {
        sum += operation->*part;
    }
    return sum;
}

// Gives operations the times of sound ones, one by one where they are the same, else as one factor
// for all. `busy_ones` are the operations without idle times, which stay.
void take_times(const std::vector<TimedOperation>& sound_ones,
                const std::vector<TimedOperation>& busy_ones, Duration TimedOperation::*part,
                std::vector<TimedOperation>& operations) {
    const std::vector<const TimedOperation*> sound = computing(sound_ones);
    const std::vector<const TimedOperation*> busy = computing(busy_ones);
    const std::vector<TimedOperation*> own = computing(operations);
    const auto name = [](const TimedOperation* operation) -> const std::string& {
        return operation->name;
    };
    const bool one_by_one = std::ranges::equal(sound, own, {}, name, name);
    const Duration all = total(busy, part);
    const double factor = all > Duration{0} ? share(total(sound, part), all) : 1.0;
    for (std::size_t i = 0; i < own.size(); ++i) {
        const Duration now = busy.size() == own.size() ? busy[i]->*part : own[i]->*part;
        const Duration then = one_by_one ? sound[i]->*part : scaled(now, factor);
        own[i]->*part = std::max(own[i]->*part + then - now, Duration{0});
    }
}

// The median of the steps.
Duration idle_time(const Steps& steps) {
    return median_of(steps, [](const TracedStep* step) {
        Duration idle{0};
        for (const HostGap& gap : step->gaps) {
            idle += gap.counted;
        }
        return idle;
    });
}

// The ranks by a time of their steps, the least first.
std::vector<std::size_t> ranks_by(const TracedRun& run, Duration (*time_of)(const Steps&)) {
    std::vector<std::size_t> order(run.ranks.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::stable_sort(order, {}, [&](std::size_t rank) { return time_of(run.steps[rank]); });
    return order;
}

// The rank that is punctual by as much as half of them.
std::optional<std::size_t> punctual_rank(const TracedRun& run) {
    return run.ranks.size() < 2
               ? std::nullopt
               : std::optional(ranks_by(run, time_in_collectives)[run.ranks.size() / 2]);
}

// Those that wait and idle least first.
std::vector<std::size_t> ranks_by_work(const TracedRun& run) {
    return ranks_by(
        run, [](const Steps& steps) { return time_in_collectives(steps) + idle_time(steps); });
}

}  // namespace

bool is_wait(const TimedOperation& operation) {
    return operation.name.ends_with(stall_name) || operation.name.ends_with(late_name);
}

Duration recomputed_in(const StepInput& input) {
    Duration sum{0};
    for (const TimedOperation& operation : input.workload.backward) {
        sum += scaled(operation.device, operation.recomputed);
    }
    return sum;
}

std::size_t collectives_of(const SimulatedStep& step) {
    return sizes_of(step).size();
}

MendedSteps::MendedSteps(const std::vector<TracedRank>& ranks, const TraceImportRequest& request,
                         const Sound& sound)
    : ranks_(ranks), request_(request), reference_(sound) {
    if (sound.expected) {
        sound_ = simulated(*sound.expected);
        sound_range_ = step_range(*sound.expected, sound_->input, length_of(*sound_),
                                  [](const Scenario& there, const StepInput& input) {
                                      return length_of({input, there.sync, there.sharding});
                                  });
    }
    const TracedRun& traced = *run({}).imported.run;
    punctual_ = punctual_rank(traced);
    others_ = ranks_by_work(traced);
    std::erase(others_, traced.primary);
    constexpr std::size_t most_others = 7;  // each is imported anew
    others_.resize(std::min(others_.size(), most_others));
}

const MendedSteps::Run& MendedSteps::run(const Mended& mended, std::optional<std::size_t> rank) {
    if (mended.contains(TraceCause::late_rank) && punctual_) {
        rank = punctual_;
    }
    const bool busy = mended.contains(TraceCause::late_host);
    if (const auto found = runs_.find({rank, busy}); found != runs_.end()) {
        return found->second;
    }
    TraceImportRequest request = request_;
    request.primary = rank;
    request.without_idle = busy;
    Run run{.imported = import_trace(ranks_, std::move(request)), .scenario = {}, .input = {}};
    run.scenario = connect(run.imported, std::nullopt, {});
    run.input = simulated(run.scenario).input;
    if (rank || busy) {
        run.imported.run.reset();  // as large as the traces
    }
    return runs_.emplace(std::pair(rank, busy), std::move(run)).first->second;
}

const Steps& MendedSteps::steps_of(const Mended& mended) {
    const TracedRun& traced = *run({}).imported.run;
    return mended.contains(TraceCause::late_rank) && punctual_ ? traced.steps[*punctual_]
                                                               : traced.alike();
}

bool MendedSteps::may_be(TraceCause cause) {
    const Run& traced = run({});
    const SimulatedStep step{traced.input, traced.scenario.sync, traced.scenario.sharding};
    const std::optional<SimulatedStep>& sound = sound_;
    const auto any = [&](const auto& holds) {
        bool found = false;
        for_each_operation(step.input, [&](const TimedOperation& operation) {
            found = found || holds(operation);
        });
        return found;
    };
    const bool ddp = !step.sharding && is_ddp(step.sync.strategy);
    const bool has_device = !step.input.workload.host_is_device;
    const bool same_kind = sound && sound->sharding.has_value() == step.sharding.has_value();
    switch (cause) {
        case TraceCause::unused_parameters:
            return ddp && step.sync.find_unused_parameters && !step.sync.static_graph &&
                   !(same_kind && sound->sync.find_unused_parameters);
        case TraceCause::small_buckets:
            return step.input.group.ranks > 1 && (ddp || (same_kind && step.sharding)) &&
                   collectives_of(step) != collectives_of(this->step({TraceCause::small_buckets}));
        case TraceCause::copies:
            return ddp && !step.sync.views && (!same_kind || sound->sync.views);
        case TraceCause::no_prefetch:
            return step.sharding &&
                   (same_kind
                        ? sound->sharding->forward_prefetch > step.sharding->forward_prefetch ||
                              sound->sharding->backward_prefetch > step.sharding->backward_prefetch
                        : step.sharding->backward_prefetch == 0);
        case TraceCause::recompute:
            return sound && recomputed_in(step.input) > Duration{0} &&
                   recomputed_in(sound->input) == Duration{0};
        case TraceCause::late_rank:
            return punctual_ || any([](const TimedOperation& operation) {
                       return operation.name.ends_with(late_name);
                   });
        case TraceCause::late_host:
            return std::ranges::any_of(traced.imported.run->alike(),
                                       [](const TracedStep* one) { return !one->gaps.empty(); });
        case TraceCause::host_waits:
            return has_device &&
                   any([](const TimedOperation& operation) { return operation.host_waits; });
        case TraceCause::other_streams:
            return any(is_others);
        case TraceCause::slow_link:
            return step.input.group.ranks > 1 && (reference_.link || sound);
        case TraceCause::slow_launching:
            return sound && has_device && !sound->input.workload.host_is_device;
        case TraceCause::slow_computing:
            return sound.has_value();
        case TraceCause::no_overlap:
            break;  // told from what the replay leaves unexplained
    }
    return false;
}

const SyncRequest& MendedSteps::sound_sync() const {
    static const SyncRequest usual;
    return sound_ && !sound_->sharding ? sound_->sync : usual;
}

void MendedSteps::mend_computing(const Mended& mended, std::optional<std::size_t> rank,
                                 Duration TimedOperation::*part, StepInput& input) {
    Mended without_idle = mended;
    without_idle.insert(TraceCause::late_host);
    StepInput busy = run(without_idle, rank).input;
    const StepInput& sound = sound_->input;
    if (recomputed_in(sound) == Duration{0}) {
        take_out_recomputed(busy.workload.backward);  // a cause of its own
    }
    take_times(sound.workload.forward, busy.workload.forward, part, input.workload.forward);
    take_times(sound.workload.backward, busy.workload.backward, part, input.workload.backward);
    if (part == &TimedOperation::device) {
        input.step.optimizer = std::max(
            input.step.optimizer + sound.step.optimizer - busy.step.optimizer, Duration{0});
    } else {
        input.step.optimizer_launch = std::max(
            input.step.optimizer_launch + sound.step.optimizer_launch - busy.step.optimizer_launch,
            Duration{0});
    }
}

Duration MendedSteps::most_costs(TraceCause cause) {
    if (cause != TraceCause::late_rank || !punctual_) {
        return Duration::max();
    }
    // The others wait for a late rank in collectives.
    const TracedRun& traced = *run({}).imported.run;
    return std::max(
        time_in_collectives(traced.steps[*punctual_]) - time_in_collectives(traced.alike()),
        Duration{0});
}

void MendedSteps::mend_settings(const Mended& mended, SimulatedStep& step) {
    const auto is_mended = [&](TraceCause cause) { return mended.contains(cause); };
    if (is_mended(TraceCause::unused_parameters)) {
        step.sync.find_unused_parameters = false;
    }
    if (is_mended(TraceCause::copies)) {
        step.sync.views = true;
    }
    if (is_mended(TraceCause::small_buckets) && step.sharding) {
        step.sharding->groups = sound_->sharding->groups;
        step.sharding->layers_per_group = sound_->sharding->layers_per_group;
    } else if (is_mended(TraceCause::small_buckets)) {
        step.sync.bucket_cap = sound_sync().bucket_cap;
        step.sync.bucket_cap_list = sound_sync().bucket_cap_list;
        step.sync.first_bucket = sound_sync().first_bucket;
    }
    if (is_mended(TraceCause::no_prefetch)) {
        const bool told = sound_ && sound_->sharding;
        step.sharding->forward_prefetch =
            told ? sound_->sharding->forward_prefetch : step.sharding->forward_prefetch;
        step.sharding->backward_prefetch = told ? sound_->sharding->backward_prefetch : 1;
    }
}

SimulatedStep MendedSteps::step(const Mended& mended, std::optional<std::size_t> rank) {
    const auto is_mended = [&](TraceCause cause) { return mended.contains(cause); };
    const Run& of = run(mended, rank);
    SimulatedStep step{of.input, of.scenario.sync, of.scenario.sharding};
    mend_settings(mended, step);
    // Where each collective blocks the host, all wait for each other a little; the late rank least.
    const Duration late = late_in(step.input);
    const Duration usual =
        !punctual_ ? sound_ ? late_in(sound_->input) : Duration{0} : late_in(run({}).input);
    double kept = is_mended(TraceCause::late_rank) && late > usual ? share(usual, late) : 1;
    kept = rank ? 0 : kept;  // it waits for the rank whose step is asked for
    if (is_mended(TraceCause::slow_link)) {
        // Waits that a fitted link leaves over are as long as the link is slow.
        kept /= std::max(slower_than(sound_link(), of), 1.0);
    }
    if (is_mended(TraceCause::recompute)) {
        take_out_recomputed(step.input.workload.backward);
    }
    for_each_operation(step.input, [&](TimedOperation& operation) {
        if (operation.name.ends_with(late_name)) {
            operation.device = scaled(operation.device, kept);
        }
        if (is_others(operation) && is_mended(TraceCause::other_streams)) {
            operation.device = Duration{0};
        }
        operation.host_waits = operation.host_waits && !is_mended(TraceCause::host_waits);
    });
    if (is_mended(TraceCause::slow_link)) {
        step.input.link = sound_link();
    } else if (is_mended(TraceCause::small_buckets) && sound_) {
        // Neither link was measured at both sizes: the faster one is taken. A sound one that is a
        // little faster at the traced sizes is as uncertain there as the traced one.
        constexpr double as_fast = 1.15;
        const double slower = slower_than(sound_->input.link, of);
        SimulatedStep other = step;
        other.input.link = slowed(sound_->input.link, slower > as_fast ? slower : 1.0);
        if (!reaches(step) || length_of(other) < length_of(step)) {
            step = std::move(other);
        }
    }
    if (is_mended(TraceCause::slow_computing)) {
        mend_computing(mended, rank, &TimedOperation::device, step.input);
    }
    if (is_mended(TraceCause::slow_launching)) {
        mend_computing(mended, rank, &TimedOperation::host, step.input);
    }
    return step;
}

SimulatedStep MendedSteps::slowest(const Mended& mended) {
    SimulatedStep found = step(mended);
    if (!mended.contains(TraceCause::late_host) || mended.contains(TraceCause::late_rank)) {
        return found;
    }
    Duration longest = length_of(found);
    std::erase_if(others_, [&](std::size_t rank) {
        try {
            SimulatedStep other = step(mended, rank);
            if (const Duration length = length_of(other); length > longest) {
                longest = length;
                found = std::move(other);
            }
            return false;
        } catch (const InputError&) {
            return true;  // its trace makes no scenario
        }
    });
    return found;
}

Duration MendedSteps::length(const Mended& mended) {
    return length_of(slowest(mended));
}

std::optional<Duration> MendedSteps::sound_length() const {
    return sound_ ? std::optional(length_of(*sound_)) : std::nullopt;
}

}  // namespace bucketwise
