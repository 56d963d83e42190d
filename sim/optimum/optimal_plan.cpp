#include "sim/optimum/optimal_plan.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "sim/base/error.h"
#include "sim/base/invariant.h"
#include "sim/engine/step_parts.h"
#include "sim/engine/varied_steps.h"
#include "sim/optimum/cap_list.h"
#include "sim/optimum/max_plus_plan.h"
#include "sim/optimum/plan_search.h"
#include "sim/program/program_builder.h"

namespace bucketwise {
namespace {

constexpr std::size_t most_gradients_to_exhaust = 15;  // 2^14 plans
constexpr std::int64_t instructions_of_a_search = 2'000'000;
constexpr std::int64_t most_lists = 50'000;
constexpr std::size_t most_gradients_for_lists = 700;

// The slowdowns of the link that disturb least.
Interference least_interference(const LinkParameters& link) {
    if (link.interference.empty()) {
        return {};
    }
    Interference least = link.interference.front().slowdown;
    for (const InterferenceSegment& segment : link.interference) {
        least.compute_slowdown_ppm =
            std::min(least.compute_slowdown_ppm, segment.slowdown.compute_slowdown_ppm);
        least.communication_slowdown_ppm =
            std::min(least.communication_slowdown_ppm, segment.slowdown.communication_slowdown_ppm);
    }
    return least;
}

// Device work of the closing part that every plan has, and what of it may run beside a bucket.
struct ClosingWork {
    Duration all{0};
    Duration beside_buckets{0};
    Duration exchanges{0};  // of statistics
};

ClosingWork closing_work(const StepInput& input, const SyncSettings& sync,
                         std::size_t first_launch) {
    ClosingWork work;
    const BucketPlan no_buckets;
    Program program;
    ProgramBuilder builder(input, sync, no_buckets, program);
    const auto take = [&](bool beside_buckets) {
        for (const Instruction& instruction : program.instructions) {
            if (instruction.order.is_beside()) {
                continue;
            }
            work.all += instruction.device;
            work.beside_buckets += beside_buckets ? instruction.device : Duration{0};
        }
        program.instructions.clear();
    };
    std::size_t ready = 0;
    for (std::size_t i = 0; i < input.workload.backward.size(); ++i) {
        builder.backward_operation(i);
        take(ready >= first_launch);
        for (std::int32_t k = 0; k < input.workload.backward[i].ready_count; ++k) {
            builder.collect(input.workload.readiness[ready]);
            take(ready++ >= first_launch);
        }
    }
    for (const Collective& collective : program.collectives) {
        work.exchanges += collective.time;
    }
    for (const std::int32_t gradient : input.workload.readiness) {
        builder.gather(gradient);
        builder.return_copy(gradient);
    }
    take(true);
    builder.optimizer();
    take(false);
    return work;
}

// A bound by work. Say computing is W of work, the least of any plan, and all-reduces C, and both
// run side by side during O. In that time computing does at most O / s of its work and the
// all-reduce O / t, with s and t the least slowdowns. So computing takes at least W + O (1 - 1/s),
// all-reduces C + O (1 - 1/t), and together, O counted once, T >= W + C - O k with k = 1/s + 1/t
// - 1. Where k is not positive, nothing is gained by overlapping: T >= W + C. Else O is at most t
// C, and at most s V with V what of W may run beside a bucket: nothing before the first one is
// ready, not the optimizer. T >= W + C - k min(t C, s V) rises with C: its slope is 1 or 1 - k t =
// t (1 - 1/s) >= 0. So the least C counts. Likewise for what packing and casting add to both W and
// V. Statistics in backward are waited for and overlap nothing.
Duration work_bound(const ClosingWork& work, Duration least_communication, Interference least,
                    Duration before) {
    const double s = static_cast<double>(least.compute_slowdown_ppm) / undisturbed_ppm;
    const double t = static_cast<double>(least.communication_slowdown_ppm) / undisturbed_ppm;
    const double k = std::max(1 / s + 1 / t - 1, 0.0);
    const auto c = static_cast<double>(least_communication.count());
    const auto v = static_cast<double>(work.beside_buckets.count());
    const double saved = std::min(k * std::min(t * c, s * v), c);
    // Doubles hold a step of hours to the picosecond; what rounding could add is taken off.
    constexpr double rounding = 1e-12;
    const double hidden = std::ceil(saved * (1 + rounding)) + 1;
    return before + work.all + work.exchanges +
           std::max(least_communication - Duration{std::llround(hidden)}, Duration{0});
}

bool closes_at_caps(Closing closing) {
    return closing == Closing::overshoot || closing == Closing::strict;
}

class Planning {
  public:
    Planning(const StepInput& input, const SyncRequest& request, const Progress& progress)
        : input_(input),
          request_(request),
          progress_(progress),
          sync_(settings_for(without_caps(request))),
          line_(checked_line()),
          steps_(input, sync_, line_),
          planner_(input, sync_, line_, loop_of(input, sync_), steps_.start()) {}

    OptimalPlan planned() {
        add_expressible();
        progress_(0.3);
        find();
        progress_(0.7);
        Evaluator evaluator(input_, without_caps(request_));
        result_.plan = line_.plan(best_->cuts);
        result_.evaluation = evaluator.evaluate(Cap::none(), result_.plan);
        result_.evaluation.cap = Cap::none();
        invariant(result_.evaluation.times.step() == best_->step,
                  "the engine takes as long for the optimal plan as was reckoned");
        add_lists();
        add_notes();
        progress_(1);
        return std::move(result_);
    }

  private:
    GradientLine checked_line() const {
        const auto count = input_.workload.gradients.size();
        if (!sync_.communicates) {
            throw InputError("scenario", "/sync/strategy",
                             "a strategy that communicates, to look for its optimal plan",
                             std::string(name_of(request_.strategy)));
        }
        if (sync_.policy.pieces) {
            throw InputError("scenario", "/sync/compiled",
                             "false, to look for the optimal plan: when gradients are ready must "
                             "not depend on it",
                             "true");
        }
        const bool disturbed = interferes(input_.link);
        const std::size_t most =
            disturbed ? most_gradients_with_interference : most_gradients_of_a_plan;
        if (count == 0 || count > most) {
            throw InputError("scenario", "/workload",
                             fmt::format("1 to {} gradients, to look for the optimal plan{}", most,
                                         disturbed ? " with interference" : ""),
                             fmt::format("{}", count));
        }
        return {input_.workload.gradients, input_.workload.readiness, sync_.policy};
    }

    // --- plans that can be asked for ---

    [[nodiscard]] BucketPlan plan_of(const SyncRequest& request) const {
        return make_plan(input_.workload, settings_for(request).policy);
    }

    // Notes the plan if it is one of cuts and the fastest so far.
    void consider(const BucketPlan& plan, Duration step) {
        if (!best_ || step < best_->step) {
            if (std::optional<Cuts> cuts = line_.cuts_of(plan)) {
                best_ = CutStep{std::move(*cuts), step};
            }
        }
    }

    void add(PlanKind kind, std::vector<Bytes> caps, const BucketPlan& plan) {
        const Duration step = steps_.step(plan);
        consider(plan, step);
        result_.others.push_back({kind, std::move(caps), plan.buckets.size(), step});
    }

    void add_expressible() {
        add(PlanKind::framework_default, {}, plan_of(without_caps(request_)));
        const std::optional<Bytes> named = request_.bucket_cap.named();
        if (names_caps(request_)) {
            std::vector<Bytes> caps = named ? std::vector{*named} : request_.bucket_cap_list;
            add(PlanKind::configured, std::move(caps), plan_of(request_));
        }
        if (closes_at_caps(sync_.policy.closing)) {
            add_uniform();
        }
        const Cuts merged = greedy_merge(
            line_, [&](std::size_t cut) { return planner_.earliest_launch(cut); },
            [&](std::size_t begin, std::size_t end) {
                return planner_.collective_time(begin, end);
            });
        add(PlanKind::greedy_merge, {}, line_.plan(merged));
    }

    // As the sweep does, with no first bucket but the one that naming a cap gives.
    void add_uniform() {
        SyncRequest request = without_caps(request_);
        request.first_bucket = request_.first_bucket;
        std::optional<ExpressiblePlan> best;
        walk_plans(Bytes{1}, 1.0, [&](Bytes cap) {
            request.bucket_cap = cap;
            const BucketPlan plan = plan_of(request);
            const Duration step = steps_.step(plan);
            consider(plan, step);
            const bool fewer = best && step == best->step && plan.buckets.size() < best->buckets;
            if (!best || step < best->step || fewer) {
                best = {
                    PlanKind::uniform, {roundest_cap(plan.same_plan)}, plan.buckets.size(), step};
                const std::optional<Cuts> cuts = line_.cuts_of(plan);
                uniform_ = cuts ? std::optional(CutStep{*cuts, step}) : std::nullopt;
            }
            return plan.same_plan;
        });
        result_.others.push_back(std::move(*best));
    }

    // --- the optimum ---

    void find() {
        const auto share = [&](double done) { progress_(0.3 + 0.4 * done); };
        const bool exact = reckons_exactly();
        // What was tried may be the fastest, but with more buckets than need be. Undisturbed it is
        // no slower than disturbed.
        const bool beats_what_was_tried = line_.always_keeps_order() && best_;
        const Duration limit = beats_what_was_tried ? best_->step + Duration{1} : longest_duration;
        const std::optional<CutStep> undisturbed = planner_.best_below(limit, share);
        if (exact) {
            best_ = undisturbed ? undisturbed : best_;
            result_.bound = best_->step - planner_.slack();
            result_.proved = planner_.slack() == Duration{0};
            invariant(undisturbed || !result_.proved, "some cuts are as fast as those tried");
            return;
        }
        const Duration no_faster = undisturbed ? undisturbed->step : limit;
        result_.bound = line_.always_keeps_order() ? no_faster - planner_.slack()
                                                   : planner_.bound_in_any_order();
        if (interferes(input_.link)) {
            result_.bound = std::max(result_.bound, bound_by_work());
        }
        search(undisturbed);
    }

    // Whether the planner's steps are the engine's.
    [[nodiscard]] bool reckons_exactly() const {
        return !interferes(input_.link) && line_.always_keeps_order() &&
               !steps_.something_may_wait();
    }

    [[nodiscard]] Duration bound_by_work() {
        const bool after = sync_.policy.launch == LaunchRule::after_backward;
        const std::size_t first = after ? std::numeric_limits<std::size_t>::max()
                                  : line_.always_keeps_order() ? line_.ready_count(1)
                                                               : line_.least_ready_count(1);
        return work_bound(closing_work(input_, sync_, first), planner_.least_communication(),
                          least_interference(input_.link), steps_.start().times.step());
    }

    void search(const std::optional<CutStep>& undisturbed) {
        std::vector<Cuts> starts{best_->cuts};
        if (undisturbed) {  // several dtypes may leave no cuts that keep order
            starts.insert(starts.begin(), undisturbed->cuts);
        }
        const bool few = line_.size() <= most_gradients_to_exhaust;
        for (const Cuts& cuts : starts) {
            CutStep from{cuts, steps_.step(cuts)};
            const bool fewer =
                best_ && from.step == best_->step && cuts.size() < best_->cuts.size();
            if (!best_ || from.step < best_->step || fewer) {
                best_ = from;
            }
            if (!few && best_->step > result_.bound) {
                CutStep found =
                    locally_improved(line_, steps_, std::move(from), instructions_of_a_search);
                best_ = found.step < best_->step ? std::move(found) : std::move(best_);
            }
        }
        result_.proved = best_->step == result_.bound;
        if (!result_.proved && (few || line_.always_keeps_order())) {
            exhaust(few);
        }
        invariant(best_->step >= result_.bound, "no plan is faster than the bound");
        result_.bound = result_.proved ? best_->step : result_.bound;
    }

    void exhaust(bool to_the_end) {
        ExhaustiveSearch search = exhaustive_search(
            line_, steps_, line_.always_keeps_order() ? &planner_ : nullptr, std::move(*best_),
            to_the_end ? std::numeric_limits<std::int64_t>::max() / 2 : instructions_of_a_search);
        best_ = std::move(search.best);
        result_.proved = search.complete || best_->step == result_.bound;
    }

    // --- lists of caps ---

    // Only if planning with the list, as it would be typed, gives the same buckets.
    [[nodiscard]] std::vector<Bytes> list_for(const Cuts& cuts) const {
        const auto list = cap_list_for(line_, cuts, sync_.policy.closing);
        if (!list) {
            return {};
        }
        SyncRequest request = without_caps(request_);
        request.bucket_cap_list = *list;
        return plan_of(request).buckets == line_.plan(cuts).buckets ? *list : std::vector<Bytes>{};
    }

    void add_list(PlanKind kind, const CutStep& found) {
        std::vector<Bytes> list = list_for(found.cuts);
        if (!list.empty()) {
            result_.others.push_back({kind, std::move(list), found.cuts.size(), found.step});
        }
    }

    void add_lists() {
        result_.cap_list = list_for(best_->cuts);
        if (!line_.uniform() || !closes_at_caps(sync_.policy.closing)) {
            return;
        }
        if (result_.cap_list.size() > 2) {
            const std::optional<CutStep> two = best_list_of_two();
            if (two) {
                add_list(PlanKind::list_of_two, *two);
            }
        }
        if (!result_.cap_list.empty()) {
            add_list(PlanKind::cap_list, *best_);
        }
    }

    // From a grid of first and other caps; then, where a step need not be simulated, every first
    // bucket and every cap for the rest that gives another plan, as long as they are not too many.
    std::optional<CutStep> best_list_of_two() {
        const bool fast = reckons_exactly() && line_.size() <= most_gradients_for_lists;
        std::optional<CutStep> best = uniform_;  // which is a list too
        planner_.set_limit(best ? best->step : longest_duration);
        std::int64_t visits = 0;
        const auto visit = [&](const Cuts& cuts) {
            const std::optional<Duration> step =
                fast ? planner_.step_below_limit(cuts) : std::optional(steps_.step(cuts));
            if (step && (!best || *step < best->step)) {
                best = CutStep{cuts, *step};
                planner_.set_limit(*step);
            }
            return ++visits < most_lists;
        };
        const std::vector<Bytes> grid = grid_of_caps();
        for (const Bytes first : grid) {
            for (const Bytes cap : grid) {
                visit(cuts_with(line_, {first, cap}, sync_.policy.closing));
            }
        }
        for (const Bytes first : fast ? every_first_bucket() : std::vector<Bytes>{}) {
            if (visits < most_lists) {
                visit_last_caps(line_, {first}, sync_.policy.closing, visit);
            }
        }
        return best;
    }

    [[nodiscard]] std::vector<Bytes> every_first_bucket() const {
        std::vector<Bytes> sizes;
        const std::size_t n = line_.size();
        for (std::size_t length = 1; length <= n; ++length) {
            const Bytes size =
                line_.joins_backwards() ? line_.bytes(n - length, n) : line_.bytes(0, length);
            sizes.push_back(std::max(size, Bytes{1}));
        }
        return sizes;
    }

    // From a 4096th of all bytes to all of them, by factors of the square root of 2.
    [[nodiscard]] std::vector<Bytes> grid_of_caps() const {
        std::vector<Bytes> grid;
        const auto all = static_cast<double>(line_.bytes(0, line_.size()).count);
        for (int half_powers = 24; half_powers >= 0; --half_powers) {
            grid.push_back(
                {std::max<std::int64_t>(std::llround(all * std::exp2(-half_powers / 2.0)), 1)});
        }
        return grid;
    }

    // --- notes ---

    void add_notes() {
        if (!line_.uniform()) {
            result_.notes.emplace_back(
                "the optimum is over buckets of gradients that follow one another; a plan with a "
                "bucket per dtype open at the same time could do better");
        }
        if (!result_.proved) {
            const double gap = static_cast<double>((best_->step - result_.bound).count()) /
                               std::max(static_cast<double>(result_.bound.count()), 1.0);
            result_.notes.push_back(fmt::format(
                "the optimal plan is the best found, at most {:.2g} % slower than the best there "
                "is",
                100 * gap));
        }
        if (!line_.always_keeps_order()) {
            result_.notes.emplace_back(
                "buckets may fill in another order than that of their gradients; plans in which "
                "they do were tried one by one");
        }
    }

    const StepInput& input_;
    const SyncRequest& request_;
    const Progress& progress_;
    SyncSettings sync_;
    GradientLine line_;
    SimulatedCuts steps_;
    MaxPlusPlanner planner_;
    std::optional<CutStep> best_;     // of those tried
    std::optional<CutStep> uniform_;  // of one cap
    OptimalPlan result_;
};

}  // namespace

double gap_to(const OptimalPlan& optimum, Duration step) {
    const Duration least = optimum.evaluation.times.step();
    return static_cast<double>((step - least).count()) /
           std::max(static_cast<double>(least.count()), 1.0);
}

OptimalPlan optimal_plan(const StepInput& input, const SyncRequest& request,
                         const Progress& progress) {
    if (input.classes.empty()) {
        return Planning(input, request, progress).planned();
    }
    // Whoever computes slowest arrives last everywhere, so the others change nothing.
    StepInput slowest = input;
    scale_computing(slowest, largest_slowdown(input.classes));
    slowest.classes.clear();
    OptimalPlan optimum = Planning(slowest, request, progress).planned();
    optimum.notes.emplace_back("the plan is the slowest rank's, which everybody waits for");
    return optimum;
}

}  // namespace bucketwise
