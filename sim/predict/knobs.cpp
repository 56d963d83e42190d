#include "sim/predict/knobs.h"

#include <algorithm>
#include <utility>

#include "sim/base/error.h"
#include "sim/base/invariant.h"
#include "sim/base/transformed.h"
#include "sim/predict/strategy_comparison.h"

namespace bucketwise {
namespace {

const ModelWorkload& model_workload(const Scenario& scenario) {
    return std::get<ModelWorkload>(scenario.workload);
}

KnobSetting own_setting(const Scenario& scenario) {
    const ModelWorkload& workload = model_workload(scenario);
    return {workload.recompute, workload.input.batch, scenario.step.accumulation,
            scenario.sharding};
}

// --- candidates ---

// Whether another batch, or another backward, can be reckoned: no time of either was measured.
bool is_reckoned(const Scenario& scenario) {
    const ModelWorkload& workload = model_workload(scenario);
    return !workload.forward && workload.forward_operations.empty();
}

// A search of all knobs with this many operations would take minutes.
bool is_long(const Model& model) {
    constexpr std::size_t most_operations = 5'000;
    return model.operations.size() > most_operations;
}

// Without BatchNorm, whose running statistics recomputing would update twice.
std::vector<std::optional<Recompute>> recomputes_to_try(const Scenario& scenario,
                                                        const Model& model) {
    const ModelWorkload& workload = model_workload(scenario);
    std::vector<std::optional<Recompute>> tried{workload.recompute};
    if (!is_reckoned(scenario) || has_batch_norm(model) || count_of_blocks(model) == 0) {
        return tried;
    }
    std::vector<std::optional<Recompute>> others{std::nullopt, Recompute{}};
    if (!is_long(model)) {
        others.insert(others.end(),
                      {Recompute{.keeps = CheckpointKeeps::operators}, Recompute{.every = 2}});
    }
    for (const std::optional<Recompute>& other : others) {
        if (std::ranges::find(tried, other) == tried.end()) {
            tried.push_back(other);
        }
    }
    return tried;
}

// Ways to cut a rank's samples of a step into equal micro-steps, by factors of two. They would
// change BatchNorm's statistics.
std::vector<std::pair<std::int64_t, std::int64_t>> micro_batches_to_try(const Scenario& scenario,
                                                                        const Model& model) {
    constexpr std::int64_t most_micro_steps = 64;
    const bool is_of_one_batch =
        std::holds_alternative<ListedModel>(model_workload(scenario).model);
    const bool may_vary =
        is_reckoned(scenario) && !has_batch_norm(model) && !is_long(model) && !is_of_one_batch;
    const KnobSetting own = own_setting(scenario);
    std::vector<std::pair<std::int64_t, std::int64_t>> tried{{own.micro_batch, own.micro_steps}};
    const std::int64_t samples = own.micro_batch * own.micro_steps;
    for (std::int64_t steps = 1; steps <= std::min(samples, most_micro_steps); steps *= 2) {
        if (may_vary && samples % steps == 0 && steps != own.micro_steps) {
            tried.emplace_back(samples / steps, steps);
        }
    }
    return tried;
}

// FSDP with and without resharding, hsdp within nodes, and the scenario's own.
std::vector<std::optional<ShardingRequest>> shardings_to_try(const Scenario& scenario) {
    std::vector<std::optional<ShardingRequest>> tried{scenario.sharding};
    const auto add = [&](const std::optional<ShardingRequest>& request) {
        if (std::ranges::find(tried, request) == tried.end()) {
            tried.push_back(request);
        }
    };
    const bool is_zero3 =
        scenario.sharding && scenario.sharding->strategy == ShardedStrategy::zero3;
    if (is_zero3 || scenario.group.ranks == 1) {
        return tried;
    }
    for (const ShardedStrategy strategy : {ShardedStrategy::fsdp, ShardedStrategy::hsdp}) {
        for (const bool reshard : {true, false}) {
            ShardingRequest request = scenario.sharding.value_or(ShardingRequest{});
            request.strategy = strategy;
            request.reshard_after_forward = reshard;
            request.reshard_ranks.reset();
            request.shard_ranks.reset();
            Scenario other = scenario;
            other.sharding = request;
            const bool replicates = shard_group_of(other).ranks < scenario.group.ranks;
            if (strategy == ShardedStrategy::fsdp || replicates) {
                add(request);
            }
        }
    }
    return tried;
}

// Each of the knobs that cost no computing, turned alone.
std::vector<KnobSetting> refinements_of(const KnobSetting& setting, bool host_is_device) {
    std::vector<KnobSetting> refined;
    if (!setting.sharding || setting.sharding->strategy == ShardedStrategy::zero3) {
        return refined;
    }
    const auto add = [&](const auto& change) {
        refined.push_back(setting);
        change(*refined.back().sharding);
    };
    for (const std::int64_t layers : {1, 2, 4}) {
        if (setting.sharding->groups.empty() && layers != setting.sharding->layers_per_group) {
            add([&](ShardingRequest& request) { request.layers_per_group = layers; });
        }
    }
    if (host_is_device) {
        add([](ShardingRequest& request) { request.asynchronous_unshard = true; });
    } else {
        add([](ShardingRequest& request) { request.forward_prefetch = 1; });
        add([](ShardingRequest& request) { request.backward_prefetch = 2; });
    }
    if (setting.micro_steps > 1) {
        add([](ShardingRequest& request) { request.gradient_sync = MicroSteps::last; });
    }
    return refined;
}

// --- rows ---

void keep_frontier(std::vector<KnobRow>& rows) {
    constexpr double noticeably = 0.999;
    std::ranges::stable_sort(
        rows, {}, [](const KnobRow& row) { return std::pair(row.memory.most(), row.step); });
    std::vector<KnobRow> frontier;
    for (const KnobRow& row : rows) {
        if (row.fits() &&
            (frontier.empty() || row.step < scaled(frontier.back().step, noticeably))) {
            frontier.push_back(row);
        }
    }
    rows = std::move(frontier);
}

// Evaluates settings, each once.
class Search {
  public:
    Search(const Scenario& scenario, const Progress& progress)
        : scenario_(scenario), own_(own_setting(scenario)), progress_(progress) {}

    void evaluate(const std::vector<KnobSetting>& settings, double from, double to) {
        for (std::size_t i = 0; i < settings.size(); ++i) {
            if (auto row = row_of(settings[i])) {
                if (settings[i] == own_) {
                    found_.own = *row;
                }
                if (found_.tried == 0 || row->memory.most() < found_.smallest.memory.most()) {
                    found_.smallest = *row;
                }
                ++found_.tried;
                rows_.push_back(std::move(*row));
            }
            progress_(from + (to - from) * static_cast<double>(i + 1) /
                                 static_cast<double>(settings.size()));
        }
        keep_frontier(rows_);
    }

    [[nodiscard]] const std::vector<KnobRow>& frontier() const { return rows_; }

    KnobSearch result() && {
        found_.frontier = std::move(rows_);
        if (!found_.frontier.empty()) {
            constexpr double as_fast = 1.01;
            found_.fastest = found_.frontier.size() - 1;
            const Duration limit = scaled(found_.frontier.back().step, as_fast);
            found_.least_memory = static_cast<std::size_t>(
                std::ranges::find_if(found_.frontier,
                                     [&](const KnobRow& row) { return row.step <= limit; }) -
                found_.frontier.begin());
        }
        return std::move(found_);
    }

  private:
    // Returns none where the step cannot be sharded so, or lasts too long.
    std::optional<KnobRow> row_of(const KnobSetting& setting) {
        try {
            const Scenario other = with_knobs(scenario_, setting);
            if (other.sharding) {
                const ShardedInput input = sharded_input(other, workload_of(other));
                const Evaluation row = evaluate_sharded(other, input);
                return KnobRow{setting, row.step(), *row.memory};
            }
            const StepInput input = step_input(other, workload_of(other));
            const Evaluation row = Evaluator(input, other.sync).evaluate(other.sync.bucket_cap);
            return KnobRow{setting, row.step(), memory_need(other)};
        } catch (const InputError&) {
            if (setting == own_) {
                throw;
            }
            return std::nullopt;
        }
    }

    // Neighbouring settings compute the same and differ in how they communicate.
    const Workload& workload_of(const Scenario& other) {
        const auto& model = std::get<ModelWorkload>(other.workload);
        const JointComputing joint = joint_computing(other);
        if (!computed_ || computed_->model != model || computed_->joint != joint) {
            computed_ = {model, joint, step_input(other).workload};
        }
        return computed_->workload;
    }

    const Scenario& scenario_;
    KnobSetting own_;
    const Progress& progress_;
    struct Computed {
        ModelWorkload model;
        JointComputing joint;
        Workload workload;
    };
    std::optional<Computed> computed_;
    std::vector<KnobRow> rows_;
    KnobSearch found_;
};

}  // namespace

bool KnobRow::fits() const {
    constexpr double usable = 0.95;
    return !memory.device || static_cast<double>(memory.most().count) <=
                                 usable * static_cast<double>(memory.device->count);
}

bool has_knobs(const Scenario& scenario) {
    return std::holds_alternative<ModelWorkload>(scenario.workload) &&
           device_of(scenario) != nullptr;
}

Scenario with_knobs(const Scenario& scenario, const KnobSetting& setting) {
    Scenario other = scenario;
    if (setting.sharding != scenario.sharding) {
        other = with_sharding(scenario, setting.sharding);
    }
    auto& workload = std::get<ModelWorkload>(other.workload);
    workload.recompute = setting.recompute;
    workload.input.batch = setting.micro_batch;
    other.step.accumulation = setting.micro_steps;
    return other;
}

KnobSearch search_knobs(const Scenario& scenario, const Progress& progress) {
    invariant(has_knobs(scenario), "a model on a device");
    constexpr double coarse_share = 0.6;
    const Model model = model_of(model_workload(scenario));
    const KnobSetting own = own_setting(scenario);
    Search search(scenario, progress);
    std::vector<KnobSetting> settings{own};
    for (const auto& recompute : recomputes_to_try(scenario, model)) {
        for (const auto& [micro_batch, micro_steps] : micro_batches_to_try(scenario, model)) {
            for (const auto& sharding : shardings_to_try(scenario)) {
                const KnobSetting setting{recompute, micro_batch, micro_steps, sharding};
                if (setting != own) {
                    settings.push_back(setting);
                }
            }
        }
    }
    search.evaluate(settings, 0, coarse_share);
    if (!is_long(model)) {
        const bool host_is_device = device_of(scenario)->host_is_device;
        std::vector<KnobSetting> refined;
        for (const KnobRow& row : search.frontier()) {
            std::ranges::copy(refinements_of(row.setting, host_is_device),
                              std::back_inserter(refined));
        }
        search.evaluate(refined, coarse_share, 1);
    }
    KnobSearch found = std::move(search).result();
    if (!is_reckoned(scenario)) {
        found.notes.emplace_back(
            "computing was measured, so neither recomputing nor micro-batches are varied");
    } else if (has_batch_norm(model)) {
        found.notes.emplace_back(
            "the model has BatchNorm, so neither recomputing nor micro-batches are varied");
    } else if (is_long(model)) {
        found.notes.emplace_back(
            "more than 5,000 operations: only recomputing of all blocks and sharding are varied");
    }
    return found;
}

}  // namespace bucketwise
