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
#include "sim/optimum/accumulator_search.h"
#include "sim/optimum/cap_list.h"
#include "sim/optimum/max_plus_plan.h"
#include "sim/optimum/network_bound.h"
#include "sim/optimum/plan_search.h"
#include "sim/optimum/work_bound.h"
#include "sim/program/program_builder.h"

namespace bucketwise {
namespace {

constexpr std::size_t most_gradients_to_exhaust = 15;  // 2^14 plans
constexpr std::int64_t instructions_of_a_search = 2'000'000;
constexpr std::int64_t most_lists = 50'000;
constexpr std::size_t most_gradients_for_lists = 700;

bool closes_at_caps(Closing closing) {
    return closing == Closing::overshoot || closing == Closing::strict;
}

class Planning {
  public:
    Planning(const StepInput& input, const SyncRequest& request, const Progress& progress)
        : input_(input),
          request_(request),
          progress_(progress),
          base_(with_own_list(request)),
          sync_(settings_for(base_)),
          line_(checked_line()),
          accumulators_(GradientLine::of_accumulators(input.workload.gradients,
                                                      input.workload.readiness, sync_.policy)),
          steps_(input, sync_, line_),
          planner_(input, sync_, line_, loop_of(input, sync_), steps_.start()) {}

    OptimalPlan planned() {
        add_expressible();
        tell(0.3);
        find();
        tell(0.7);
        add_lists();
        Evaluator evaluator(input_, base_);
        result_.plan = best_->plan;
        result_.evaluation = evaluator.evaluate(Cap::none(), result_.plan);
        result_.evaluation.cap = Cap::none();
        invariant(result_.evaluation.times.step() == best_->step,
                  "the engine takes as long for the optimal plan as was reckoned");
        for (const ExpressiblePlan& other : result_.others) {
            invariant(other.step >= result_.bound && other.step >= best_->step,
                      "no plan that is shown is faster than the best or than the bound");
        }
        add_notes();
        tell(1);
        return std::move(result_);
    }

  private:
    // A list may change more than limits: with one, DDP sorts the buckets of its first iteration.
    // Whoever has a list is told of plans that lists give.
    static SyncRequest with_own_list(const SyncRequest& request) {
        SyncRequest base = without_caps(request);
        base.bucket_cap_list = request.bucket_cap_list;
        return base;
    }

    // But for limits, the policy that is looked for the best plan of.
    [[nodiscard]] bool is_of_policy(const SyncRequest& request) const {
        PlanPolicy policy = settings_for(request).policy;
        policy.limits = sync_.policy.limits;
        return policy == sync_.policy;
    }

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

    void consider(PlanStep tried, bool of_policy) {
        std::optional<PlanStep>& best = of_policy ? best_ : foreign_;
        if (!best || rank_of(tried) < rank_of(*best)) {
            best = std::move(tried);
        }
    }

    void add(PlanKind kind, std::vector<Bytes> caps, const BucketPlan& plan, bool of_policy) {
        const Duration step = steps_.step(plan);
        consider({plan, step}, of_policy);
        result_.others.push_back({kind, std::move(caps), plan.buckets.size(), step});
    }

    void add(PlanKind kind, std::vector<Bytes> caps, const SyncRequest& request) {
        add(kind, std::move(caps), plan_of(request), is_of_policy(request));
    }

    void add_expressible() {
        add(PlanKind::framework_default, {}, without_caps(request_));
        const std::optional<Bytes> named = request_.bucket_cap.named();
        if (names_caps(request_)) {
            std::vector<Bytes> caps = named ? std::vector{*named} : request_.bucket_cap_list;
            add(PlanKind::configured, std::move(caps), request_);
        }
        if (closes_at_caps(settings_for(without_caps(request_)).policy.closing)) {
            add_uniform();
        }
        const Cuts merged = greedy_merge(
            line_, [&](std::size_t cut) { return planner_.earliest_launch(cut); },
            [&](std::size_t begin, std::size_t end) {
                return planner_.collective_time(begin, end);
            });
        // Its buckets go out as the policy closes them.
        add(PlanKind::greedy_merge, {},
            line_.uniform() ? line_.plan(merged)
                            : accumulators_.plan(accumulators_.cuts_of(line_.plan(merged)).value()),
            true);
    }

    // As the sweep does.
    void add_uniform() {
        SyncRequest request = without_caps(request_);
        request.first_bucket = request_.first_bucket;
        const bool of_policy = is_of_policy(request);
        std::optional<PlanStep> best;
        walk_plans(Bytes{1}, 1.0, [&](Bytes cap) {
            request.bucket_cap = cap;
            const BucketPlan plan = plan_of(request);
            PlanStep tried{plan, steps_.step(plan)};
            consider(tried, of_policy);
            if (!best || rank_of(tried) < rank_of(*best)) {
                best = std::move(tried);
            }
            return plan.same_plan;
        });
        result_.others.push_back({PlanKind::uniform,
                                  {roundest_cap(best->plan.same_plan)},
                                  best->plan.buckets.size(),
                                  best->step});
        if (of_policy) {
            uniform_ = std::move(best);
        }
    }

    // --- the optimum ---

    // Never less than before: a search may begin again.
    void tell(double done) {
        told_ = std::max(told_, done);
        progress_(told_);
    }

    // From `begin` to `end` of all there is to do.
    [[nodiscard]] Progress part(double begin, double end) {
        return [this, begin, end](double done) { tell(begin + (end - begin) * done); };
    }

    void find() {
        if (is_one_line()) {
            find_in_line();
        } else {
            find_in_accumulators();
        }
        if (foreign_ && foreign_->step < best_->step) {  // which is not one of those looked at
            best_ = foreign_;
            result_.proved = false;
            result_.bound = std::min(result_.bound, best_->step);
        }
        invariant(best_->step >= result_.bound, "no plan is faster than the bound");
    }

    void find_in_line() {
        CutStep best = cuts_of(*best_);
        // What was tried may be the fastest, but with more buckets than need be. Undisturbed it is
        // no slower than disturbed.
        const Duration limit =
            line_.always_keeps_order() ? best.step + Duration{1} : longest_duration;
        const std::optional<CutStep> undisturbed = planner_.best_below(limit, part(0.3, 0.5));
        if (reckons_exactly()) {
            best = undisturbed.value_or(std::move(best));
            result_.bound = best.step - planner_.slack();
            result_.proved = planner_.slack() == Duration{0};
            invariant(undisturbed || !result_.proved, "some cuts are as fast as those tried");
        } else {
            const Duration no_faster = undisturbed ? undisturbed->step : limit;
            result_.bound = line_.always_keeps_order() ? no_faster - planner_.slack()
                                                       : planner_.bound_in_any_order();
            raise_bound_by_work(planner_.least_communication());
            search_line(best, undisturbed);
        }
        best_ = PlanStep{line_.plan(best.cuts), best.step};
    }

    // Whether the planner knows such steps. It packs a bucket when it goes out; where copies are
    // batched that is done when it is full, which is earlier where it has to wait for others.
    [[nodiscard]] bool is_one_line() const {
        const bool packs_early =
            sync_.batched_copies &&
            (sync_.policy.launch == LaunchRule::after_backward ||
             (sync_.policy.launch == LaunchRule::in_order && !line_.fills_in_order()));
        return line_.uniform() && !packs_early;
    }

    [[nodiscard]] CutStep cuts_of(const PlanStep& found) const {
        return {line_.cuts_of(found.plan).value(), found.step};
    }

    // Whether the planner's steps are the engine's.
    [[nodiscard]] bool reckons_exactly() const {
        return is_one_line() && !interferes(input_.link) && line_.always_keeps_order() &&
               !steps_.something_may_wait();
    }

    void raise_bound_by_work(Duration least_communication) {
        if (!interferes(input_.link)) {
            return;
        }
        const bool after = sync_.policy.launch == LaunchRule::after_backward;
        const std::size_t first = after            ? std::numeric_limits<std::size_t>::max()
                                  : !is_one_line() ? 1
                                  : line_.always_keeps_order() ? line_.ready_count(1)
                                                               : line_.least_ready_count(1);
        result_.bound = std::max(
            result_.bound,
            work_bound(input_, sync_, first, least_communication, steps_.start().times.step()));
    }

    void search_line(CutStep& best, const std::optional<CutStep>& undisturbed) {
        std::vector<Cuts> starts{best.cuts};
        if (undisturbed) {  // buckets that fill in another order may leave no cuts that keep it
            starts.insert(starts.begin(), undisturbed->cuts);
        }
        const bool few = line_.size() <= most_gradients_to_exhaust;
        for (const Cuts& cuts : starts) {
            CutStep from{cuts, steps_.step(cuts)};
            if (rank_of(from) < rank_of(best)) {
                best = from;
            }
            if (!few && best.step > result_.bound) {
                CutStep found = locally_improved(line_, steps_, std::move(from),
                                                 instructions_of_a_search, part(0.5, 0.6));
                if (rank_of(found) < rank_of(best)) {
                    best = std::move(found);
                }
            }
        }
        result_.proved = best.step == result_.bound;
        if (!result_.proved && (few || line_.always_keeps_order())) {
            exhaust(best, few);
        }
        result_.bound = result_.proved ? best.step : result_.bound;
    }

    void exhaust(CutStep& best, bool to_the_end) {
        ExhaustiveSearch search = exhaustive_search(
            line_, steps_, line_.always_keeps_order() ? &planner_ : nullptr, std::move(best),
            to_the_end ? std::numeric_limits<std::int64_t>::max() / 2 : instructions_of_a_search,
            part(0.6, 0.7));
        best = std::move(search.best);
        result_.proved = search.complete || best.step == result_.bound;
    }

    // Plans of several dtypes have no order that all of them keep, so nothing but trying finds the
    // best; what the network and the work take at least bounds it.
    void find_in_accumulators() {
        const NetworkBound sending = network_bound(
            accumulators_, [&](std::size_t count) { return planner_.earliest_sent(count); },
            [&](std::size_t begin, std::size_t end) {
                return planner_.collective_time(dtype_at(begin), accumulators_.bytes(begin, end));
            });
        tell(0.4);
        result_.bound = planner_.step_after(sending.ends);
        raise_bound_by_work(sending.least_communication);
        AccumulatorSearch search =
            search_accumulators(input_, sync_, *best_, result_.bound, most_gradients_to_exhaust,
                                instructions_of_a_search, part(0.4, 0.7));
        best_ = std::move(search.best);
        result_.proved = search.complete || best_->step == result_.bound;
        result_.bound = result_.proved ? best_->step : result_.bound;
    }

    [[nodiscard]] DType dtype_at(std::size_t place) const {
        const auto gradient = static_cast<std::size_t>(accumulators_.gradient(place));
        return input_.workload.gradients[gradient].dtype;
    }

    // --- lists of caps ---

    [[nodiscard]] SyncRequest with_list(std::vector<Bytes> list) const {
        SyncRequest request = without_caps(request_);
        request.bucket_cap_list = std::move(list);
        return request;
    }

    // Whatever the list.
    [[nodiscard]] SyncRequest with_some_list() const { return with_list({Bytes{1}}); }

    // As it would be typed; empty where no list gives the plan.
    [[nodiscard]] std::vector<Bytes> list_for(const BucketPlan& plan) const {
        const PlanPolicy policy = settings_for(with_some_list()).policy;
        const std::vector<Gradient>& gradients = input_.workload.gradients;
        return cap_list_for(
            GradientLine::of_accumulators(gradients, input_.workload.readiness, policy), gradients,
            plan, policy, [&](const std::vector<Bytes>& list) {
                return plan_of(with_list(list)).buckets == plan.buckets;
            });
    }

    void add_lists() {
        if (!closes_at_caps(settings_for(with_some_list()).policy.closing)) {
            return;
        }
        result_.cap_list = list_for(best_->plan);
        if (result_.cap_list.size() != 1 && is_of_policy(with_some_list()) && uniform_) {
            const PlanStep two = is_one_line() ? best_list_of_two() : best_on_grid();
            const std::vector<Bytes> list = list_for(two.plan);
            if (!list.empty()) {
                result_.others.push_back(
                    {PlanKind::list_of_two, list, two.plan.buckets.size(), two.step});
            }
            if (two.step < best_->step) {  // only where the best was looked for by trying
                best_ = two;
                result_.cap_list = list;
            }
        }
        if (!result_.cap_list.empty()) {
            result_.others.push_back(
                {PlanKind::cap_list, result_.cap_list, best_->plan.buckets.size(), best_->step});
        }
    }

    // From a grid of first and other caps; then, where a step need not be simulated, every first
    // bucket and every cap for the rest that gives another plan, as long as they are not too many.
    PlanStep best_list_of_two() {
        const bool fast = reckons_exactly() && line_.size() <= most_gradients_for_lists;
        CutStep best = cuts_of(*uniform_);  // which is a list too
        planner_.set_limit(best.step);
        std::int64_t visits = 0;
        const auto visit = [&](const Cuts& cuts) {
            const std::optional<Duration> step =
                fast ? planner_.step_below_limit(cuts) : std::optional(steps_.step(cuts));
            if (step && *step < best.step) {
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
        return {line_.plan(best.cuts), best.step};
    }

    PlanStep best_on_grid() {
        PlanStep best = *uniform_;
        const std::vector<Bytes> grid = grid_of_caps();
        for (const Bytes first : grid) {
            for (const Bytes cap : grid) {
                BucketPlan plan = plan_of(with_list({first, cap}));
                const Duration step = steps_.step(plan);
                if (step < best.step) {
                    best = {std::move(plan), step};
                }
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
                "gradients of several dtypes, or sparse ones: each dtype has its own open bucket, "
                "and the optimum is of all places where each of them may close");
        }
        if (!result_.proved) {
            const double gap = static_cast<double>((best_->step - result_.bound).count()) /
                               std::max(static_cast<double>(result_.bound.count()), 1.0);
            result_.notes.push_back(fmt::format(
                "the optimal plan is the best found, at most {:.2g} % slower than the best there "
                "is",
                100 * gap));
        }
        if (is_one_line() && !line_.always_keeps_order()) {
            result_.notes.emplace_back(
                "buckets may fill in another order than that of their gradients; plans in which "
                "they do were tried one by one");
        }
    }

    const StepInput& input_;
    const SyncRequest& request_;
    const Progress& progress_;
    SyncRequest base_;  // without caps, but a list where the request has one
    SyncSettings sync_;
    GradientLine line_;          // as buckets of one dtype go out
    GradientLine accumulators_;  // the same by dtype
    SimulatedCuts steps_;
    MaxPlusPlanner planner_;
    double told_ = 0;                  // of the progress
    std::optional<PlanStep> best_;     // of those tried
    std::optional<PlanStep> foreign_;  // of another policy: without a list, where there is one
    std::optional<PlanStep> uniform_;  // of one cap
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
    // Slowed down one by one, instructions may round otherwise, each by a picosecond.
    const Duration rounding =
        Duration{std::ssize(input.workload.forward) + std::ssize(input.workload.backward) +
                 std::ssize(input.step.optimizer_operations) + 2} *
        input.step.accumulation;
    optimum.bound = std::max(optimum.bound - rounding, Duration{0});
    optimum.notes.emplace_back("the plan is the slowest rank's, which everybody waits for");
    return optimum;
}

}  // namespace bucketwise
