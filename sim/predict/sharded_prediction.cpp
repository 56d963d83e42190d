// The settings that a sharded step is tried with, and the choice among them.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>

#include "sim/base/error.h"
#include "sim/base/transformed.h"
#include "sim/predict/prediction.h"
#include "sim/workload/modules.h"

namespace bucketwise {
namespace {

enum class Spacing : std::uint8_t { quarters, doubled };

// Numbers of layers per group: all up to eight, then rising by a quarter, or powers of two; then
// all layers, and 0 for none.
std::vector<std::int64_t> layers_to_try(std::int64_t blocks, Spacing spacing) {
    constexpr std::int64_t all_up_to = 8;
    const auto further = [&](std::int64_t n) {
        return spacing == Spacing::doubled ? n : n < all_up_to ? 1 : n / 4;
    };
    std::vector<std::int64_t> numbers;
    for (std::int64_t n = 1; n < blocks; n += further(n)) {
        numbers.push_back(n);
    }
    if (blocks > 0) {
        numbers.push_back(blocks);
    }
    numbers.push_back(0);
    return numbers;
}

void add_groupings(const ShardingRequest& base, std::int64_t blocks, Spacing spacing,
                   std::vector<ShardingRequest>& requests) {
    ShardingRequest request = base;
    if (!base.groups.empty()) {
        requests.push_back(request);
        request.groups.clear();
    }
    for (const std::int64_t layers : layers_to_try(blocks, spacing)) {
        request.layers_per_group = layers;
        requests.push_back(request);
    }
}

// DeepSpeed's knobs, each by factors around its default; the scenario's own first.
std::vector<ShardingRequest> zero3_settings_to_try(const ShardingRequest& base) {
    std::vector<ShardingRequest> requests{base};
    for (const std::int64_t prefetch : {0, 5'000'000, 50'000'000, 200'000'000, 500'000'000}) {
        for (const std::int64_t reduced : {5'000'000, 50'000'000, 200'000'000, 500'000'000}) {
            for (const std::int64_t reused : {std::int64_t{0}, std::int64_t{1'000'000'000}}) {
                ShardingRequest request = base;
                request.zero3.prefetch_elements = prefetch;
                request.zero3.reduce_bucket_elements = reduced;
                request.zero3.max_reuse_distance = reused;
                requests.push_back(request);
            }
        }
    }
    return requests;
}

// Settings that do not change the computation. Prefetching matters only where collectives do not
// block the host; where they do, asynchronous all-gathers matter. A sweep of all knobs with this
// many operations would take minutes, so only a few groupings are tried.
bool is_long(const StepInput& input) {
    constexpr std::size_t most_operations_for_all = 5'000;
    return input.workload.forward.size() > most_operations_for_all;
}

std::vector<ShardingRequest> settings_to_try(const ShardedInput& input, std::int64_t blocks) {
    if (input.request.strategy == ShardedStrategy::zero3) {
        return zero3_settings_to_try(input.request);
    }
    std::vector<ShardingRequest> requests;
    if (is_long(input.step)) {
        for (const bool reshard : {true, false}) {
            ShardingRequest base = input.request;
            base.reshard_after_forward = reshard;
            base.reshard_ranks.reset();
            add_groupings(base, blocks, Spacing::doubled, requests);
        }
        return requests;
    }
    const bool blocks_host = input.step.workload.host_is_device;
    for (const bool reshard : {true, false}) {
        for (const std::int64_t forward : {0, 1, 2}) {
            for (const std::int64_t backward : {1, 2}) {
                for (const bool asynchronous : {false, true}) {
                    const bool prefetches = forward > 0 || backward > 1;
                    if (blocks_host ? prefetches && !asynchronous : asynchronous) {
                        continue;
                    }
                    ShardingRequest base = input.request;
                    base.reshard_after_forward = reshard;
                    base.reshard_ranks.reset();
                    base.forward_prefetch = forward;
                    base.backward_prefetch = backward;
                    base.asynchronous_unshard = asynchronous;
                    add_groupings(base, blocks, Spacing::quarters, requests);
                }
            }
        }
    }
    return requests;
}

bool gives_the_same(const Evaluation& a, const Evaluation& b) {
    return a.times == b.times && a.memory == b.memory && a.sharded->groups == b.sharded->groups;
}

// Leaves out rows with the same results as an earlier row, which asks for less.
void add_unless_known(Evaluation row, std::vector<Evaluation>& sweep) {
    const bool known = std::ranges::any_of(
        sweep, [&](const Evaluation& other) { return gives_the_same(other, row); });
    if (!known) {
        sweep.push_back(std::move(row));
    }
}

// --- the choice ---

std::vector<std::size_t> rows_by_memory(const std::vector<Evaluation>& sweep) {
    std::vector<std::size_t> rows(sweep.size());
    std::iota(rows.begin(), rows.end(), 0);
    std::ranges::stable_sort(
        rows, {}, [&](std::size_t row) { return std::pair(sweep[row].peak(), sweep[row].step()); });
    return rows;
}

// The least memory to a hundredth, then the fewest knobs turned.
std::tuple<double, int, Duration> rank_of(const Evaluation& row) {
    constexpr double as_much = 1.01;
    const ShardingRequest& request = row.sharded->request;
    const int knobs =
        (request.forward_prefetch > 0 ? 1 : 0) + (request.backward_prefetch > 1 ? 1 : 0) +
        (request.asynchronous_unshard ? 1 : 0) + (request.layers_per_group > 1 ? 1 : 0);
    const double held =
        std::floor(std::log(static_cast<double>(std::max<std::int64_t>(row.peak().count, 1))) /
                   std::log(as_much));
    return {held, knobs, row.step()};
}

bool is_within(double tolerance, Duration step, Duration fastest) {
    return static_cast<double>(step.count()) <=
           (1 + tolerance) * static_cast<double>(fastest.count());
}

// Up to a dozen, of long steps four, of `fitting` close to the fastest: that one, the frontier's,
// and those that come first among equally fast ones.
std::vector<std::size_t> rows_to_be_sure_of(const StepInput& input, const Prediction& prediction,
                                            const std::vector<std::size_t>& fitting,
                                            std::size_t fastest) {
    const std::size_t most = is_long(input) ? 4 : 12;
    constexpr double looked_at = 0.05;
    const std::vector<Evaluation>& sweep = prediction.sweep;
    std::vector<std::size_t> close;
    std::ranges::copy_if(fitting, std::back_inserter(close), [&](std::size_t row) {
        return is_within(looked_at, sweep[row].step(), sweep[fastest].step());
    });
    std::ranges::stable_sort(close, {}, [&](std::size_t row) {
        const bool on_frontier =
            std::ranges::find(prediction.frontier, row) != prediction.frontier.end();
        const bool as_fast = is_within(plateau_tolerance, sweep[row].step(), sweep[fastest].step());
        return std::tuple(row != fastest, !on_frontier, !as_fast, rank_of(sweep[row]));
    });
    close.resize(std::min(close.size(), most));
    return close;
}

void add_confidence(const StepInput& input, const std::vector<std::size_t>& rows,
                    Prediction& prediction) {
    std::vector<Evaluation*> drawn =
        transformed(rows, [&](std::size_t row) { return &prediction.sweep[row]; });
    drawn.push_back(&prediction.default_cap);
    const auto choices =
        transformed(drawn, [](const Evaluation* row) { return Setting(row->sharded->request); });
    const std::vector<StepConfidence> confidences =
        confidence_of(input, choices, plateau_tolerance, 0, choices.size() - 1);
    for (std::size_t i = 0; i < drawn.size(); ++i) {
        drawn[i]->confidence = confidences[i];
    }
}

void find_frontier(const std::vector<std::size_t>& by_memory, Prediction& prediction) {
    constexpr double noticeably = 0.999;
    std::optional<Duration> fastest;
    for (const std::size_t row : by_memory) {
        const Duration step = prediction.sweep[row].step();
        if (!fastest || step < scaled(*fastest, noticeably)) {
            prediction.frontier.push_back(row);
            fastest = step;
        }
    }
}

void choose_best(const StepInput& input, Prediction& prediction) {
    const std::vector<Evaluation>& sweep = prediction.sweep;
    std::vector<std::size_t> rows = rows_by_memory(sweep);
    find_frontier(rows, prediction);
    prediction.best = rows.front();
    std::erase_if(rows, [&](std::size_t row) { return !sweep[row].fits(); });
    prediction.best_fits = !rows.empty();
    if (rows.empty()) {
        return;
    }
    const std::size_t fastest =
        *std::ranges::min_element(rows, {}, [&](std::size_t row) { return sweep[row].step(); });
    add_confidence(input, rows_to_be_sure_of(input, prediction, rows, fastest), prediction);
    const auto confidences = transformed(sweep, &Evaluation::confidence);
    const auto expected = [&](std::size_t row) { return confidences[row]->regret.expected; };
    const double least = expected(least_expected_regret(confidences, fastest));
    std::erase_if(rows, [&](std::size_t row) {
        return !confidences[row] || expected(row) > least + plateau_tolerance;
    });
    prediction.best =
        *std::ranges::min_element(rows, {}, [&](std::size_t row) { return rank_of(sweep[row]); });
    prediction.plateau_low = prediction.plateau_high = prediction.best;
}

// A captured step may have no operations of its blocks' own: then they cannot be grouped.
void try_setting(const Scenario& scenario, const ShardedInput& tried, Prediction& prediction) {
    try {
        add_unless_known(evaluate_sharded(scenario, tried), prediction.sweep);
    } catch (const InputError& error) {
        if (error.pointer() != "/sync/sharding") {
            throw;
        }
    }
}

}  // namespace

Prediction predict_sharded(const Scenario& scenario, const ShardedInput& input,
                           const Progress& progress) {
    Prediction prediction;
    prediction.default_cap = evaluate_sharded(scenario, input);
    const std::vector<std::string> names =
        transformed(input.step.workload.gradients, &Gradient::name);
    const std::vector<ShardingRequest> requests =
        settings_to_try(input, std::ssize(blocks_of(names)));
    ShardedInput tried = input;
    for (std::size_t i = 0; i < requests.size(); ++i) {
        tried.request = requests[i];
        try_setting(scenario, tried, prediction);
        progress(static_cast<double>(i + 1) / static_cast<double>(requests.size()));
    }
    add_unless_known(prediction.default_cap, prediction.sweep);
    if (is_long(input.step)) {
        prediction.notes.emplace_back(
            "more than 5,000 operations: only resharding and groups of 1, 2, 4 and so on layers "
            "are "
            "tried, with the scenario's own prefetching");
    }
    if (input.request.strategy == ShardedStrategy::hsdp && input.step.replicas.group.ranks == 1) {
        prediction.notes.emplace_back(
            "all ranks share parameters: there are no replicas, and hsdp is fsdp");
    }
    choose_best(input.step, prediction);
    prediction.configured = prediction.default_cap;
    tried.request = prediction.advised().sharded->request;
    prediction.binding = sharded_binding(tried);
    return prediction;
}

}  // namespace bucketwise
