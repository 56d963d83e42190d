#include "sim/optimum/levers.h"

#include <algorithm>
#include <functional>
#include <utility>

#include <fmt/format.h>

#include "sim/base/error.h"
#include "sim/link/link_presets.h"
#include "sim/predict/strategy_comparison.h"
#include "sim/scenario/memory_need.h"
#include "sim/sharding/sharded_step.h"

namespace bucketwise {
namespace {

constexpr double worth_naming = 0.02;

// --- what can be changed ---

// False where the knob has no effect on this scenario.
using Edit = std::function<bool(Scenario&)>;

struct LeverCandidate {
    LeverChange change;
    Edit edit;
    std::int64_t samples = 1;  // as many times those of the scenario's step
};

bool shards_by_fsdp(const Scenario& scenario) {
    return scenario.sharding && scenario.sharding->strategy != ShardedStrategy::zero3;
}

DType own_dtype(const Scenario& scenario) {
    const auto* model = std::get_if<ModelWorkload>(&scenario.workload);
    if (model != nullptr) {
        return model->dtype;
    }
    const auto& gradients = std::get<GradientWorkload>(scenario.workload).gradients;
    return gradients.empty() ? DType::float32 : gradients.front().gradient.dtype;
}

constexpr bool is_wide(DType dtype) {
    return element_size(dtype) > element_size(DType::bfloat16);
}

bool computes_in_bfloat16(const Scenario& scenario) {
    const auto* model = std::get_if<ModelWorkload>(&scenario.workload);
    return model != nullptr && model->arithmetic == Arithmetic::bfloat16;
}

DType reduced_as(const Scenario& scenario) {
    const ShardingRequest& request = *scenario.sharding;
    return request.reduce_dtype          ? *request.reduce_dtype
           : request.reduces_in_own_dtype ? own_dtype(scenario)
                                          : request.parameter_dtype.value_or(own_dtype(scenario));
}

void add_fsdp(const Scenario& scenario, std::vector<LeverCandidate>& candidates) {
    const auto add = [&](LeverKind kind, const char* value, bool (*edit)(Scenario&)) {
        candidates.push_back({{kind, value}, edit});
    };
    add(LeverKind::gradient_sync, "last_micro_step", [](Scenario& s) {
        const bool has = shards_by_fsdp(s) && s.step.accumulation > 1 &&
                         s.sharding->gradient_sync == MicroSteps::every;
        return has && (s.sharding->gradient_sync = MicroSteps::last, true);
    });
    add(LeverKind::all_reduce, "last_micro_step", [](Scenario& s) {
        const bool has = s.sharding && s.sharding->strategy == ShardedStrategy::hsdp &&
                         s.step.accumulation > 1 && s.sharding->all_reduce == MicroSteps::every &&
                         s.sharding->gradient_sync == MicroSteps::every;
        return has && (s.sharding->all_reduce = MicroSteps::last, true);
    });
    add(LeverKind::reshard_after_backward, "false", [](Scenario& s) {
        const bool has = shards_by_fsdp(s) && s.step.accumulation > 1 &&
                         s.sharding->reshard_after_backward;
        return has && (s.sharding->reshard_after_backward = false, true);
    });
    add(LeverKind::reduce_dtype, "bfloat16", [](Scenario& s) {
        const bool has = shards_by_fsdp(s) && is_wide(reduced_as(s)) && computes_in_bfloat16(s);
        return has && (s.sharding->reduce_dtype = DType::bfloat16, true);
    });
    add(LeverKind::parameter_dtype, "bfloat16", [](Scenario& s) {
        const bool has = shards_by_fsdp(s) && !s.sharding->parameter_dtype &&
                         is_wide(own_dtype(s)) && computes_in_bfloat16(s);
        if (has) {
            s.sharding->reduce_dtype = reduced_as(s);
            s.sharding->parameter_dtype = DType::bfloat16;
        }
        return has;
    });
    const std::int64_t sharing = shard_group_of(scenario).ranks;
    Scenario hybrid = scenario;
    hybrid.sharding->strategy = ShardedStrategy::hsdp;
    hybrid.sharding->shard_ranks.reset();
    const std::int64_t per_node = shard_group_of(hybrid).ranks;
    for (const std::int64_t ranks : {per_node, 2 * sharing, sharing / 2}) {
        const bool possible = ranks > 1 && ranks < scenario.group.ranks && ranks != sharing &&
                              scenario.group.ranks % ranks == 0 &&
                              !scenario.sharding->reshard_ranks;
        const bool is_hybrid = scenario.sharding->strategy == ShardedStrategy::hsdp;
        if (possible && (is_hybrid || (ranks == per_node && sharing > per_node))) {
            candidates.push_back(
                {{LeverKind::shard_ranks, fmt::to_string(ranks)}, [ranks](Scenario& s) {
                     const bool has = shards_by_fsdp(s);
                     if (has) {
                         s.sharding->strategy = ShardedStrategy::hsdp;
                         s.sharding->shard_ranks = ranks;
                     }
                     return has;
                 }});
        }
    }
}

// PyTorch's wrappers included.
bool is_pytorchs(const SyncRequest& sync) {
    const auto framework = sync.framework ? framework_at(*sync.framework) : std::nullopt;
    return is_ddp(sync.strategy) && framework.value_or(Framework::pytorch_ddp) ==
                                        Framework::pytorch_ddp;
}

// Horovod compresses to float16; GPUs before Ampere have no bfloat16.
CommHook hook_for(const Scenario& scenario) {
    const bool is_horovod = scenario.sync.framework == SettingPlace::horovod;
    const Device* device = device_of(scenario);
    const bool is_old = device != nullptr && device->prior && !device->flash_attention;
    return is_horovod || is_old ? CommHook::fp16 : CommHook::bf16;
}

void add_replicated(const Scenario& scenario, std::vector<LeverCandidate>& candidates) {
    const CommHook hook = hook_for(scenario);
    candidates.push_back(
        {{LeverKind::comm_hook, std::string(name_of(hook))}, [hook](Scenario& s) {
             const bool has = !s.sharding && is_ddp(s.sync.strategy) &&
                              s.sync.comm_hook == CommHook::none && is_wide(own_dtype(s));
             return has && (s.sync.comm_hook = hook, true);
         }});
    candidates.push_back({{LeverKind::views, "true"}, [](Scenario& s) {
                              const bool has = !s.sharding && !s.sync.views && is_pytorchs(s.sync);
                              return has && (s.sync.views = true, true);
                          }});
}

// Measured computing takes as long for each sample.
bool double_micro_batch(Scenario& scenario) {
    auto* model = std::get_if<ModelWorkload>(&scenario.workload);
    if (model == nullptr || scenario.step.accumulation % 2 != 0 ||
        !model->forward_operations.empty()) {
        return false;
    }
    scenario.step.accumulation /= 2;
    model->input.batch *= 2;
    for (std::optional<Duration>* measured : {&model->forward, &model->backward}) {
        if (*measured) {
            **measured = 2 * **measured;
        }
    }
    return true;
}

std::vector<LeverCandidate> candidates_for(const Scenario& scenario) {
    std::vector<LeverCandidate> candidates;
    if (scenario.sharding) {
        if (shards_by_fsdp(scenario)) {
            add_fsdp(scenario, candidates);
        }
        candidates.push_back({{LeverKind::without_sharding, "ddp"}, [](Scenario& s) {
                                  const bool has = s.sharding.has_value();
                                  if (has) {
                                      s = with_strategy(s, ComparedStrategy::ddp);
                                  }
                                  return has;
                              }});
    } else {
        add_replicated(scenario, candidates);
    }
    const auto* model = std::get_if<ModelWorkload>(&scenario.workload);
    candidates.push_back(
        {{LeverKind::micro_batch, model == nullptr ? "" : fmt::to_string(2 * model->input.batch)},
         double_micro_batch});
    candidates.push_back({{LeverKind::sync_each_step, "false"}, [](Scenario& s) {
                              return std::exchange(s.step.sync_each_step, false);
                          }});
    return candidates;
}

// --- what it gives ---

struct LeverOutcome {
    Duration step{0};
    Bytes memory;
    bool fits = true;

    [[nodiscard]] std::pair<bool, Duration> rank() const { return {!fits, step}; }
};

ShardingRequest with_groups_of(ShardingRequest request, const ShardingRequest& advised) {
    request.layers_per_group = advised.layers_per_group;
    request.groups = advised.groups;
    request.reshard_after_forward = advised.reshard_after_forward;
    request.reshard_root = advised.reshard_root;
    request.forward_prefetch = advised.forward_prefetch;
    request.backward_prefetch = advised.backward_prefetch;
    request.zero3 = advised.zero3;
    return request;
}

// Steps of changed scenarios, each the better of the scenario's own caps or groups and the advised
// ones.
class LeverTrials {
  public:
    LeverTrials(const Scenario& scenario, const StepInput& input, const Evaluation& advised)
        : workload_(input.workload), own_(scenario.workload), advised_(advised) {}

    [[nodiscard]] LeverOutcome outcome(const Scenario& scenario) const {
        return scenario.sharding ? sharded(scenario) : replicated(scenario);
    }

  private:
    [[nodiscard]] bool has_own_workload(const Scenario& scenario) const {
        return scenario.workload == own_;
    }

    [[nodiscard]] LeverOutcome sharded(const Scenario& scenario) const {
        ShardedInput input = has_own_workload(scenario) ? sharded_input(scenario, workload_)
                                                        : sharded_input(scenario);
        const auto outcome_here = [&] {
            const Evaluation row = evaluate_sharded(scenario, input);
            return LeverOutcome{row.step(), row.peak(), row.fits()};
        };
        const ShardingRequest advised =
            advised_.sharded ? with_groups_of(input.request, advised_.sharded->request)
                             : input.request;
        const LeverOutcome own = outcome_here();
        if (advised == input.request) {
            return own;
        }
        input.request = advised;
        return std::min(own, outcome_here(), by_rank);
    }

    [[nodiscard]] LeverOutcome replicated(const Scenario& scenario) const {
        const bool own_workload = has_own_workload(scenario) && !advised_.sharded;
        const StepInput input =
            own_workload ? step_input(scenario, workload_) : step_input(scenario);
        const MemoryNeed need = memory_need(scenario);
        LeverOutcome outcome{Evaluator(input, scenario.sync).step(cap_of(scenario.sync)), need.most(),
                        need.fits()};
        if (has_cap(scenario.sync)) {
            outcome.step = Evaluator(input, without_caps(scenario.sync)).step(Cap());
            if (!advised_.sharded && !advised_.cap.is_none() && !advised_.cap.is_default()) {
                outcome.step = std::min(
                    outcome.step, Evaluator(input, scenario.sync).step(advised_.cap));
            }
        }
        return outcome;
    }

    static bool by_rank(const LeverOutcome& a, const LeverOutcome& b) { return a.rank() < b.rank(); }

    const Workload& workload_;
    const std::variant<ModelWorkload, GradientWorkload>& own_;
    const Evaluation& advised_;
};

// --- over the ends of what nobody measured ---

// The scenario at both ends of its presets and without assumed costs of overlap.
std::vector<Scenario> scenario_at_ends(const Scenario& scenario, bool assumes_interference) {
    std::vector<Scenario> ends;
    const LinkPreset* preset =
        scenario.link.preset.empty() ? nullptr : find_preset(scenario.link.preset);
    for (const PresetEnd end : {PresetEnd::slow, PresetEnd::fast}) {
        if (preset != nullptr) {
            ends.push_back(scenario);
            ends.back().link = preset_end(*preset, end, scenario.link);
            ends.back().link.interference = scenario.link.interference;
        }
        if (has_prior_computing(scenario)) {
            ends.push_back(at_device_end(scenario, end));
        }
    }
    if (assumes_interference) {
        ends.push_back(scenario);
        ends.back().link.interference = constant_interference({});
    }
    return ends;
}

struct TriedLever {
    std::vector<const LeverCandidate*> made;
    Scenario scenario;
    LeverOutcome outcome;
    double saved = 0;  // of the advised step

    [[nodiscard]] std::int64_t samples() const {
        std::int64_t all = 1;
        for (const LeverCandidate* candidate : made) {
            all *= candidate->samples;
        }
        return all;
    }
};

class LeverSearch {
  public:
    LeverSearch(const Scenario& scenario, const StepInput& input, const Prediction& prediction)
        : scenario_(scenario),
          trials_(scenario, input, prediction.advised()),
          now_(trials_.outcome(scenario)),
          assumes_interference_(input.link.assumes_interference) {}

    // Empty: an edit has no effect, or the result is impossible or does not fit.
    [[nodiscard]] std::optional<TriedLever> tried(const std::vector<const LeverCandidate*>& made) const {
        TriedLever result{made, scenario_, {}};
        for (const LeverCandidate* candidate : made) {
            if (!candidate->edit(result.scenario)) {
                return std::nullopt;
            }
        }
        try {
            result.outcome = trials_.outcome(result.scenario);
        } catch (const InputError&) {
            return std::nullopt;
        }
        result.saved = saved(now_.step, result.outcome.step, result.samples());
        return result.outcome.fits ? std::optional(std::move(result)) : std::nullopt;
    }

    Lever lever(const TriedLever& tried) {
        if (ends_.empty()) {
            ends_ = scenario_at_ends(scenario_, assumes_interference_);
            for (const Scenario& end : ends_) {
                steps_at_ends_.push_back(trials_.outcome(end).step);
            }
        }
        Lever lever{.changes = {},
                    .step = tried.outcome.step / tried.samples(),
                    .saved = {tried.saved, tried.saved},
                    .memory = (tried.outcome.memory - now_.memory).count};
        for (const LeverCandidate* candidate : tried.made) {
            lever.changes.push_back(candidate->change);
        }
        for (std::size_t i = 0; i < ends_.size(); ++i) {
            Scenario there = ends_[i];
            for (const LeverCandidate* candidate : tried.made) {
                candidate->edit(there);
            }
            const double share =
                saved(steps_at_ends_[i], trials_.outcome(there).step, tried.samples());
            lever.saved.low = std::min(lever.saved.low, share);
            lever.saved.high = std::max(lever.saved.high, share);
        }
        return lever;
    }

  private:
    static double saved(Duration now, Duration then, std::int64_t samples) {
        return 1 - static_cast<double>(then.count()) / static_cast<double>(samples) /
                       std::max(static_cast<double>(now.count()), 1.0);
    }

    const Scenario& scenario_;
    LeverTrials trials_;
    LeverOutcome now_;
    bool assumes_interference_;
    std::vector<Scenario> ends_;
    std::vector<Duration> steps_at_ends_;
};

std::vector<TriedLever> singles_of(const LeverSearch& search, const std::vector<LeverCandidate>& candidates) {
    std::vector<TriedLever> found;
    for (const LeverCandidate& candidate : candidates) {
        auto tried = search.tried({&candidate});
        if (tried && tried->saved >= worth_naming) {
            found.push_back(*std::move(tried));
        }
    }
    std::ranges::stable_sort(found, std::greater<>(), &TriedLever::saved);
    return found;
}

// The pair that saves most, if noticeably more than its better half.
std::optional<TriedLever> best_pair(const LeverSearch& search, const std::vector<TriedLever>& singles,
                               std::size_t most) {
    std::optional<TriedLever> best;
    for (std::size_t i = 0; i < std::min(most, singles.size()); ++i) {
        for (std::size_t k = 0; k < i; ++k) {
            const LeverCandidate* first = singles[k].made.front();
            const LeverCandidate* second = singles[i].made.front();
            if (first->change.kind == second->change.kind) {
                continue;
            }
            auto pair = search.tried({first, second});
            if (pair && pair->saved >= singles.front().saved + worth_naming &&
                (!best || pair->saved > best->saved)) {
                best = std::move(pair);
            }
        }
    }
    return best;
}

// Where a reduction costs more than a fifth of the step.
std::optional<Lever> accumulating_lever(const Scenario& scenario, LeverSearch& search,
                                  const Prediction& prediction) {
    constexpr std::int64_t times = 4;
    constexpr double noticeable = 0.2;
    const auto every_micro_step = [](const Scenario& s) {
        return settings_for(s.sync).framework.every_micro_step;
    };
    if (scenario.sharding || !settings_for(scenario.sync).communicates ||
        every_micro_step(scenario)) {
        return std::nullopt;
    }
    const Evaluation& advised = prediction.advised();
    if (static_cast<double>(advised.exposed.count()) <
        noticeable * static_cast<double>(advised.step().count())) {
        return std::nullopt;
    }
    const LeverCandidate candidate{
        {LeverKind::accumulation, fmt::to_string(times * scenario.step.accumulation)},
        [](Scenario& s) {
            s.step.accumulation *= times;
            return true;
        },
        times};
    const auto tried = search.tried({&candidate});
    return tried && tried->saved >= worth_naming ? std::optional(search.lever(*tried))
                                                 : std::nullopt;
}

}  // namespace

Levers levers_of(const Scenario& scenario, const StepInput& input, const Prediction& prediction) {
    constexpr std::int64_t many_operations = 5'000;
    const std::int64_t operations =
        scenario.step.accumulation *
        (std::ssize(input.workload.forward) + std::ssize(input.workload.backward));
    if (scenario.group.ranks < 2 || !scenario.stragglers.empty()) {
        return {};
    }
    Levers levers;
    LeverSearch search(scenario, input, prediction);
    const std::vector<LeverCandidate> candidates = candidates_for(scenario);
    const std::vector<TriedLever> singles = singles_of(search, candidates);
    const std::size_t most = scenario.sharding && operations > many_operations ? 2 : 4;
    if (const auto pair = best_pair(search, singles, most)) {
        levers.together = search.lever(*pair);
        for (const TriedLever& single : singles) {
            if (std::ranges::find(pair->made, single.made.front()) != pair->made.end()) {
                levers.alone.push_back(search.lever(single));
            }
        }
    } else if (!singles.empty()) {
        levers.alone.push_back(search.lever(singles.front()));
        const auto other = std::ranges::find_if(singles, [&](const TriedLever& tried) {
            return tried.made.front()->change.kind != levers.alone.front().changes.front().kind;
        });
        if (other != singles.end()) {
            levers.alone.push_back(search.lever(*other));
        }
    }
    levers.accumulating = accumulating_lever(scenario, search, prediction);
    return levers;
}

}  // namespace bucketwise
