#include "sim/predict/sharded_prediction.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>

#include "sim/base/transformed.h"
#include "sim/engine/step_loop.h"
#include "sim/sharding/modules.h"

namespace bucketwise {
namespace {

StepLoop loop_of_sharded(const ShardedInput& input) {
    SyncSettings sync;
    sync.framework.host_waits = input.request.strategy == ShardedStrategy::zero3;
    return loop_of(input.step, sync);
}

// The parts of a sharded step.
class ShardedParts {
  public:
    ShardedParts(const ShardedInput& input, const ShardPlan& plan)
        : before_(parts_before(input, plan)),
          closing_(built(
              input, plan,
              input.step.step.accumulation == 1 ? MicroStepPlace::only : MicroStepPlace::last)) {}

    [[nodiscard]] StepTimes times() const { return StepToClose(before_).closed_by(closing_); }
    [[nodiscard]] Duration step_with(const ProgramChange& change) const {
        const StepBeforeClosing before = before_.changed(change);
        return StepToClose(before).step_closed_by(change(closing_));
    }
    [[nodiscard]] Duration communication() const {
        return before_.communication() + time_on_wire(closing_);
    }
    [[nodiscard]] const ShardedMemory& memory() const { return memory_; }

  private:
    Program built(const ShardedInput& input, const ShardPlan& plan, MicroStepPlace place) {
        ShardedProgram part = build_sharded_micro_step(input, plan, place, memory_);
        memory_.go_on_with(part.memory);
        return std::move(part.program);
    }

    StepBeforeClosing parts_before(const ShardedInput& input, const ShardPlan& plan) {
        const std::int64_t before = input.step.step.accumulation - 1;
        Program first = before > 0 ? built(input, plan, MicroStepPlace::first) : Program{};
        Program following = before > 1 ? built(input, plan, MicroStepPlace::middle) : Program{};
        return {loop_of_sharded(input), input.step.classes, std::move(first), std::move(following),
                before};
    }

    ShardedMemory memory_;
    StepBeforeClosing before_;
    Program closing_;
};

Program with_free_communication_and_launches(Program program) {
    return with_free_launches(with_free_communication(std::move(program)));
}

Bytes largest_gather_of(const ShardPlan& plan) {
    Bytes largest;
    for (const ShardGroup& group : plan.groups) {
        largest = std::max(largest, group.gathered());
    }
    return largest;
}

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
constexpr std::size_t most_operations_for_all = 5'000;

std::vector<ShardingRequest> settings_to_try(const ShardedInput& input, std::int64_t blocks) {
    if (input.request.strategy == ShardedStrategy::zero3) {
        return zero3_settings_to_try(input.request);
    }
    std::vector<ShardingRequest> requests;
    if (input.step.workload.forward.size() > most_operations_for_all) {
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

bool gives_the_same(const ShardedEvaluation& a, const ShardedEvaluation& b) {
    return a.times == b.times && a.memory == b.memory && a.groups == b.groups;
}

// Leaves out rows with the same results as an earlier row, which asks for less.
void add_unless_known(ShardedEvaluation row, std::vector<ShardedEvaluation>& sweep) {
    const bool known = std::ranges::any_of(
        sweep, [&](const ShardedEvaluation& other) { return gives_the_same(other, row); });
    if (!known) {
        sweep.push_back(std::move(row));
    }
}

std::vector<std::size_t> rows_by_memory(const std::vector<ShardedEvaluation>& sweep) {
    std::vector<std::size_t> rows(sweep.size());
    std::iota(rows.begin(), rows.end(), 0);
    std::ranges::stable_sort(rows, [&](std::size_t a, std::size_t b) {
        return std::pair(sweep[a].peak(), sweep[a].step()) <
               std::pair(sweep[b].peak(), sweep[b].step());
    });
    return rows;
}

// Steps within the tolerance of the fastest come first, by least memory to a hundredth, then by the
// fewest knobs turned.
std::tuple<bool, double, int, Duration> rank_of(const ShardedEvaluation& row, Duration fastest) {
    constexpr double as_much = 1.01;
    const bool is_choice =
        row.memory.fits() && static_cast<double>(row.step().count()) <=
                                 (1 + plateau_tolerance) * static_cast<double>(fastest.count());
    const ShardingRequest& request = row.request;
    const int knobs =
        (request.forward_prefetch > 0 ? 1 : 0) + (request.backward_prefetch > 1 ? 1 : 0) +
        (request.asynchronous_unshard ? 1 : 0) + (request.layers_per_group > 1 ? 1 : 0);
    const double held =
        std::floor(std::log(static_cast<double>(std::max<std::int64_t>(row.peak().count, 1))) /
                   std::log(as_much));
    return {!is_choice, held, knobs, row.step()};
}

void choose_best(ShardedPrediction& prediction) {
    const std::vector<ShardedEvaluation>& sweep = prediction.sweep;
    const std::vector<std::size_t> rows = rows_by_memory(sweep);
    constexpr double noticeably = 0.999;
    std::optional<Duration> fastest;
    for (const std::size_t row : rows) {
        if (!fastest || sweep[row].step() < scaled(*fastest, noticeably)) {
            prediction.frontier.push_back(row);
            fastest = sweep[row].step();
        }
    }
    std::optional<Duration> fastest_fitting;
    for (const std::size_t row : rows) {
        if (sweep[row].memory.fits()) {
            fastest_fitting =
                std::min(fastest_fitting.value_or(sweep[row].step()), sweep[row].step());
        }
    }
    prediction.best_fits = fastest_fitting.has_value();
    prediction.best = rows.front();
    if (fastest_fitting) {
        prediction.best = *std::ranges::min_element(
            rows, {}, [&](std::size_t row) { return rank_of(sweep[row], *fastest_fitting); });
    }
}

Binding binding_of(const ShardedInput& input, const ShardPlan& plan) {
    const ShardedParts parts(input, plan);
    const Duration step = parts.times().step();
    const Duration no_communication = parts.step_with(with_free_communication);
    const Duration computing = parts.step_with(with_free_communication_and_launches);
    return {step - no_communication, no_communication - computing, computing};
}

}  // namespace

ShardedEvaluation evaluate_sharded(const Scenario& scenario, const ShardedInput& input) {
    const ShardPlan plan = make_shard_plan(input);
    const ShardedParts parts(input, plan);
    const StepTimes times = parts.times();
    return {.request = input.request,
            .groups = plan.groups.size(),
            .largest_gather = largest_gather_of(plan),
            .times = times,
            .communication = parts.communication(),
            .exposed = times.step() - parts.step_with(with_free_communication),
            .memory = memory_need(scenario, parts.memory()),
            .sharded = parts.memory()};
}

ShardedPrediction predict_sharded(const Scenario& scenario, const ShardedInput& input,
                                  const Progress& progress) {
    ShardedPrediction prediction;
    prediction.configured = evaluate_sharded(scenario, input);
    const std::vector<std::string> names =
        transformed(input.step.workload.gradients, &Gradient::name);
    const std::vector<ShardingRequest> requests =
        settings_to_try(input, std::ssize(blocks_of(names)));
    ShardedInput tried = input;
    for (std::size_t i = 0; i < requests.size(); ++i) {
        tried.request = requests[i];
        add_unless_known(evaluate_sharded(scenario, tried), prediction.sweep);
        progress(static_cast<double>(i + 1) / static_cast<double>(requests.size()));
    }
    add_unless_known(prediction.configured, prediction.sweep);
    if (input.step.workload.forward.size() > most_operations_for_all) {
        prediction.notes.emplace_back(
            "more than 5,000 operations: only resharding and groups of 1, 2, 4 and so on layers "
            "are "
            "tried, with the scenario's own prefetching");
    }
    if (input.request.strategy == ShardedStrategy::hsdp && input.step.replicas.group.ranks == 1) {
        prediction.notes.emplace_back(
            "all ranks share parameters: there are no replicas, and hsdp is fsdp");
    }
    choose_best(prediction);
    tried.request = prediction.advised().request;
    prediction.binding = binding_of(tried, make_shard_plan(tried));
    return prediction;
}

Program sharded_program(const ShardedInput& input) {
    return on_slowest_rank(build_sharded_program(input, make_shard_plan(input)).program,
                           input.step.classes);
}

Simulation sharded_simulation(const ShardedInput& input, const Program& program) {
    return settled_simulation(program, loop_of_sharded(input));
}

}  // namespace bucketwise
