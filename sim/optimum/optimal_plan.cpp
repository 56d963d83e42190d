#include "sim/optimum/optimal_plan.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "sim/base/error.h"
#include "sim/base/invariant.h"
#include "sim/engine/step_loop.h"
#include "sim/engine/step_parts.h"
#include "sim/engine/varied_steps.h"
#include "sim/optimum/cap_list.h"
#include "sim/optimum/cut_search.h"
#include "sim/optimum/max_plus_plan.h"
#include "sim/optimum/plan_bounds.h"
#include "sim/plan/gradient_line.h"
#include "sim/program/step_programs.h"

namespace bucketwise {
namespace {

constexpr std::size_t most_gradients_to_exhaust = 15;  // 2^14 plans
constexpr std::int64_t instructions_of_a_search = 2'000'000;

struct PlanStep {
    BucketPlan plan;
    Duration step{0};
    bool operator==(const PlanStep&) const = default;

    // The faster plan first, then the plan with fewer buckets.
    [[nodiscard]] bool is_better_than(const PlanStep& other) const {
        return std::pair(step, plan.buckets.size()) <
               std::pair(other.step, other.plan.buckets.size());
    }
};

void keep_better(PlanStep tried, std::optional<PlanStep>& best) {
    if (!best || tried.is_better_than(*best)) {
        best = std::move(tried);
    }
}

GradientLine checked_line(const StepInput& input, const SyncRequest& request,
                          const SyncSettings& sync) {
    const auto count = input.workload.gradients.size();
    if (!sync.communicates) {
        throw InputError("scenario", "/sync/strategy",
                         "a strategy that communicates, to look for its optimal plan",
                         std::string(name_of(request.strategy)));
    }
    if (sync.policy.pieces) {
        throw InputError("scenario", "/sync/compiled",
                         "false, to look for the optimal plan: when gradients are ready must "
                         "not depend on it",
                         "true");
    }
    const bool disturbed = interferes(input.link);
    const std::size_t most =
        disturbed ? most_gradients_with_interference : most_gradients_of_a_plan;
    if (count == 0 || count > most) {
        throw InputError("scenario", "/workload",
                         fmt::format("1 to {} gradients, to look for the optimal plan{}", most,
                                     disturbed ? " with interference" : ""),
                         fmt::format("{}", count));
    }
    return {input.workload.gradients, input.workload.readiness, sync.policy};
}

class Planning {
  public:
    Planning(const StepInput& input, const SyncRequest& request, const Progress& progress)
        : input_(input),
          request_(request),
          progress_(progress),
          base_(without_caps(request)),
          sync_(settings_with_own_list()),
          line_(checked_line(input, request, sync_)),
          accumulators_(accumulators(0)),
          before_(input, sync_),
          step_(before_),
          planner_(input, sync_, line_, before_.loop(), step_.progress().front()) {
        invariant(input.classes.empty(), "one rank stands for all");
    }

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
                  "the engine confirms the step of the optimal plan");
        for (const ExpressiblePlan& other : result_.others) {
            invariant(other.step >= result_.bound && other.step >= best_->step,
                      "no plan that is shown is faster than the best or than the bound");
        }
        add_notes();
        tell(1);
        return std::move(result_);
    }

  private:
    // A list can change more than limits: with one, DDP sorts the buckets of its first iteration.
    // A request with a list is answered with plans that lists give.
    SyncSettings settings_with_own_list() {
        base_.bucket_cap_list = request_.bucket_cap_list;
        return settings_for(base_);
    }

    // Whether the request has the policy of the search, apart from limits.
    [[nodiscard]] bool is_of_policy(const SyncRequest& request) const {
        PlanPolicy policy = settings_for(request).policy;
        policy.limits = sync_.policy.limits;
        return policy == sync_.policy;
    }

    [[nodiscard]] GradientLine accumulators(std::uint32_t left_open) const {
        return GradientLine::of_accumulators(input_.workload.gradients, input_.workload.readiness,
                                             sync_.policy, left_open);
    }

    PlanStep simulated(BucketPlan plan) {
        build_closing(input_, sync_, plan, program_);
        instructions_ += std::ssize(program_.instructions);
        const Duration step = step_.step_closed_by(program_);
        return {std::move(plan), step};
    }

    // --- plans that can be asked for ---

    [[nodiscard]] BucketPlan plan_of(const SyncRequest& request) const {
        return make_plan(input_.workload, settings_for(request).policy);
    }

    void consider(PlanStep tried, bool of_policy) {
        keep_better(std::move(tried), of_policy ? best_ : foreign_);
    }

    void add(PlanKind kind, std::vector<Bytes> caps, const PlanStep& found) {
        result_.others.push_back({kind, std::move(caps), found.plan.buckets.size(), found.step});
    }

    void add(PlanKind kind, std::vector<Bytes> caps, BucketPlan plan, bool of_policy) {
        PlanStep tried = simulated(std::move(plan));
        add(kind, std::move(caps), tried);
        consider(std::move(tried), of_policy);
    }

    void add_expressible() {
        const SyncRequest uncapped = without_caps(request_);
        add(PlanKind::framework_default, {}, plan_of(uncapped), is_of_policy(uncapped));
        if (names_caps(request_)) {
            const std::optional<Bytes> named = request_.bucket_cap.named();
            add(PlanKind::configured, named ? std::vector{*named} : request_.bucket_cap_list,
                plan_of(request_), is_of_policy(request_));
        }
        if (closes_at_caps(settings_for(uncapped).policy.closing)) {
            add_uniform();
        }
        const Cuts merged = greedy_merge(
            line_, [&](std::size_t cut) { return planner_.earliest_launch(cut); },
            [&](std::size_t begin, std::size_t end) { return collective_time(line_, begin, end); });
        // Its buckets go out as the policy closes them.
        add(PlanKind::greedy_merge, {},
            line_.uniform() ? line_.plan(merged)
                            : accumulators_.plan(accumulators_.cuts_of(line_.plan(merged)).value()),
            true);
    }

    [[nodiscard]] Duration collective_time(const GradientLine& line, std::size_t begin,
                                           std::size_t end) {
        const auto first = static_cast<std::size_t>(line.gradient(begin));
        return planner_.collective_time(input_.workload.gradients[first].dtype,
                                        line.bytes(begin, end));
    }

    // As the sweep does.
    void add_uniform() {
        SyncRequest request = without_caps(request_);
        const bool of_policy = is_of_policy(request);
        std::optional<PlanStep> best;
        walk_plans(Bytes{1}, 1.0, [&](Bytes cap) {
            request.bucket_cap = cap;
            PlanStep tried = simulated(plan_of(request));
            const CapRange same = tried.plan.same_plan;
            consider(tried, of_policy);
            keep_better(std::move(tried), best);
            return same;
        });
        add(PlanKind::uniform, {roundest_cap(best->plan.same_plan)}, *best);
        if (of_policy) {
            uniform_ = std::move(best);
        }
    }

    // --- the optimum ---

    // Never less than before: a search can begin again.
    void tell(double done) {
        told_ = std::max(told_, done);
        progress_(told_);
    }

    void find() {
        std::vector<BucketPlan> starts{best_->plan};
        if (!(is_one_line() && find_in_line(starts))) {
            raise_bounds();
            search(starts);
        }
        if (foreign_ && foreign_->step < best_->step) {  // a plan that the search does not form
            best_ = foreign_;
            result_.proved = false;
            result_.bound = std::min(result_.bound, best_->step);
        }
        invariant(best_->step >= result_.bound, "no plan is faster than the bound");
    }

    // Whether the planner knows such steps. It packs a bucket when the bucket goes out; batched
    // copies pack it when it is full, which is earlier if it has to wait for others.
    [[nodiscard]] bool is_one_line() const {
        const bool packs_early =
            sync_.batched_copies &&
            (sync_.policy.launch == LaunchRule::after_backward ||
             (sync_.policy.launch == LaunchRule::in_order && !line_.fills_in_order()));
        return line_.uniform() && !packs_early;
    }

    // Whether the planner's steps are the engine's.
    [[nodiscard]] bool reckons_exactly() const {
        Cuts every_gradient;
        for (std::size_t cut = 1; cut <= line_.size(); ++cut) {
            every_gradient.push_back(cut);
        }
        Program most;
        build_closing(input_, sync_, line_.plan(every_gradient), most);
        return !interferes(input_.link) && line_.always_keeps_order() &&
               !step_.something_may_wait(most);
    }

    // The optimum without interference: the optimum itself, or else a start and a bound.
    bool find_in_line(std::vector<BucketPlan>& starts) {
        // A plan that was tried may be as fast with needless buckets. Without interference no plan
        // is slower than with it.
        const bool in_order = line_.always_keeps_order();
        const Duration limit = in_order ? best_->step + Duration{1} : longest_duration;
        const std::optional<CutStep> undisturbed =
            planner_.best_below(limit, [&](double done) { tell(0.3 + 0.2 * done); });
        if (in_order) {
            result_.bound = (undisturbed ? undisturbed->step : limit) - planner_.slack();
        }
        if (!reckons_exactly()) {
            if (undisturbed) {  // cuts that keep order may not exist
                starts.insert(starts.begin(), line_.plan(undisturbed->cuts));
            }
            return false;
        }
        if (undisturbed) {
            best_ = {line_.plan(undisturbed->cuts), undisturbed->step};
            drop_needless_buckets(undisturbed->cuts);
        }
        result_.bound = best_->step - planner_.slack();
        result_.proved = planner_.slack() == Duration{0};
        return true;
    }

    // For the planner's best_below(), which cannot count buckets where labels become too many.
    void drop_needless_buckets(Cuts cuts) {
        for (std::size_t i = cuts.size() - 1; i-- > 0;) {
            Cuts fewer = cuts;
            fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i));
            if (PlanStep tried = simulated(line_.plan(fewer)); tried.is_better_than(*best_)) {
                best_ = std::move(tried);
                cuts = std::move(fewer);
                i = cuts.size() - 1;
            }
        }
    }

    void raise_bounds() {
        const NetworkBound sending = network_bound(
            accumulators_, [&](std::size_t count) { return planner_.earliest_sent(count); },
            [&](std::size_t begin, std::size_t end) {
                return collective_time(accumulators_, begin, end);
            });
        result_.bound = std::max(result_.bound, planner_.step_after(sending.ends));
        if (interferes(input_.link)) {
            const bool after = sync_.policy.launch == LaunchRule::after_backward;
            const std::size_t first = after ? std::numeric_limits<std::size_t>::max()
                                      : is_one_line() && line_.always_keeps_order()
                                          ? line_.ready_count(1)
                                          : 1;
            result_.bound = std::max(result_.bound,
                                     work_bound(input_, sync_, first, sending.least_communication,
                                                step_.progress().front().times.step()));
        }
    }

    // Every plan of few gradients; otherwise hill climbing from `starts`, which must be plans of
    // the policy, in each order of the last buckets until too many instructions were simulated.
    // Orders that begin above a bound that is met are left out.
    void search(const std::vector<BucketPlan>& starts) {
        const bool few = line_.size() <= most_gradients_to_exhaust;
        std::uint32_t ways = 1;
        for (std::uint32_t way = 0; way < ways; ++way) {
            const GradientLine line = accumulators(way);
            ways = line.ways_to_end();
            std::int64_t most = 0;
            const CutSearch search{line.size(),
                                   [&](std::size_t begin) { return line.longest_end(begin); },
                                   [&](const Cuts& cuts) -> std::optional<Duration> {
                                       if (!few && instructions_ > most) {
                                           return std::nullopt;
                                       }
                                       PlanStep tried = simulated(line.plan(cuts));
                                       const Duration step = tried.step;
                                       consider(std::move(tried), true);
                                       return step;
                                   }};
            if (few) {
                search.try_all();
                continue;
            }
            for (const BucketPlan& start : starts) {
                const Cuts from = line.cuts_of(start).value();
                PlanStep first = simulated(line.plan(from));
                const bool can_improve = best_->step > result_.bound || first.step == result_.bound;
                consider(std::move(first), true);
                if (can_improve) {
                    most = instructions_ + instructions_of_a_search;
                    search.climb(from);
                }
            }
            tell(0.5 + 0.2 * (way + 1) / ways);
        }
        result_.proved = few || best_->step == result_.bound;
        result_.bound = result_.proved ? best_->step : result_.bound;
    }

    // --- lists of caps ---

    [[nodiscard]] SyncRequest with_list(std::vector<Bytes> list) const {
        SyncRequest request = without_caps(request_);
        request.bucket_cap_list = std::move(list);
        return request;
    }

    // As it would be typed; empty where no list gives the plan.
    [[nodiscard]] std::vector<Bytes> list_for(const BucketPlan& plan,
                                              const PlanPolicy& policy) const {
        const std::vector<Gradient>& gradients = input_.workload.gradients;
        return cap_list_for(
            GradientLine::of_accumulators(gradients, input_.workload.readiness, policy), gradients,
            plan, policy.closing, [&](const std::vector<Bytes>& list) {
                return plan_of(with_list(list)).buckets == plan.buckets;
            });
    }

    void add_lists() {
        const SyncRequest some_list = with_list({Bytes{1}});
        const PlanPolicy policy = settings_for(some_list).policy;
        if (!closes_at_caps(policy.closing)) {
            return;
        }
        result_.cap_list = list_for(best_->plan, policy);
        if (result_.cap_list.size() != 1 && is_of_policy(some_list) && uniform_) {
            const PlanStep two = best_list_of_two();
            const std::vector<Bytes> list = list_for(two.plan, policy);
            if (!list.empty()) {
                add(PlanKind::list_of_two, list, two);
            }
            if (two.step < best_->step) {  // only after hill climbing
                best_ = two;
                result_.cap_list = list;
            }
        }
        if (!result_.cap_list.empty()) {
            add(PlanKind::cap_list, result_.cap_list, *best_);
        }
    }

    // First and other caps from a 4096th of all bytes to all, by factors of the square root of 2.
    PlanStep best_list_of_two() {
        const auto all = static_cast<double>(line_.bytes(0, line_.size()).count);
        std::vector<Bytes> grid;
        for (int half_powers = 24; half_powers >= 0; --half_powers) {
            grid.push_back(
                {std::max<std::int64_t>(std::llround(all * std::exp2(-half_powers / 2.0)), 1)});
        }
        PlanStep best = *uniform_;  // which is a list too
        for (const Bytes first : grid) {
            for (const Bytes cap : grid) {
                PlanStep tried = simulated(plan_of(with_list({first, cap})));
                if (tried.step < best.step) {
                    best = std::move(tried);
                }
            }
        }
        return best;
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
    SyncRequest base_;  // the request without caps, but with its list
    SyncSettings sync_;
    GradientLine line_;          // as buckets of one dtype go out
    GradientLine accumulators_;  // the same by dtype
    StepBeforeClosing before_;
    StepToClose step_;
    MaxPlusPlanner planner_;
    Program program_;
    std::int64_t instructions_ = 0;    // simulated so far
    double told_ = 0;                  // of the progress
    std::optional<PlanStep> best_;     // of the policy
    std::optional<PlanStep> foreign_;  // of another policy: without the request's list
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
    // The slowest rank arrives last at every collective, so the others change nothing.
    StepInput slowest = input;
    scale_computing(slowest, largest_slowdown(input.classes));
    slowest.classes.clear();
    OptimalPlan optimum = Planning(slowest, request, progress).planned();
    // Each instruction that is slowed down on its own can round by a picosecond.
    const Duration rounding =
        Duration{std::ssize(input.workload.forward) + std::ssize(input.workload.backward) +
                 std::ssize(input.step.optimizer_operations) + 2} *
        input.step.accumulation;
    optimum.bound = std::max(optimum.bound - rounding, Duration{0});
    optimum.notes.emplace_back("the plan is the slowest rank's, which everybody waits for");
    return optimum;
}

}  // namespace bucketwise
