#include "sim/frameworks/framework_advice.h"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "sim/base/invariant.h"
#include "sim/base/transformed.h"
#include "sim/frameworks/framework_step.h"
#include "sim/link/overlap_prior.h"
#include "sim/optimum/cap_list.h"
#include "sim/predict/named_cap.h"

namespace bucketwise {
namespace {

// Cycles tried with Horovod, beside the default.
constexpr std::array<Duration, 6> tried_cycles{
    std::chrono::microseconds{500}, std::chrono::milliseconds{2},  std::chrono::milliseconds{5},
    std::chrono::milliseconds{10},  std::chrono::milliseconds{20}, std::chrono::milliseconds{50}};

// A limit of a framework, simulated.
struct Tried {
    std::optional<Bytes> limit;  // none: the default
    Duration cycle;              // Horovod's
    FusedPlan fused;
    Duration step{0};
};

// The default where it is in the range, else the roundest: of MiB, or of elements.
Bytes roundest_limit(const FrameworkRule& rule, Bytes default_value, const CapRange& range) {
    constexpr std::int64_t most = std::int64_t{1} << 53;  // that JSON readers keep
    const std::int64_t highest = range.highest ? range.highest->count : most;
    if (range.lowest <= default_value && default_value.count <= highest) {
        return default_value;
    }
    return rule.unit == SettingUnit::elements
               ? Bytes{roundest_number(range.lowest.count, std::max(highest, range.lowest.count))}
               : roundest_cap(range);
}

Tried tried(FrameworkStep& step, std::optional<Bytes> limit, Duration cycle) {
    Tried result{limit, cycle, step.plan(limit, cycle), {}};
    result.step = step.step(result.fused);
    return result;
}

// The fastest of all plans. A plan whose network alone takes longer is not simulated.
Tried best_of_sweep(FrameworkStep& step, std::size_t gradients, Duration cycle) {
    const double growth = growth_of_caps(gradients);
    Tried best = tried(step, std::nullopt, cycle);
    walk_plans(step.least_limit(), growth, [&](Bytes limit) {
        FusedPlan fused = step.plan(limit, cycle);
        const CapRange same = fused.plan.same_plan;
        if (best.limit && fused.plan.is_same_step(best.fused.plan)) {
            best.fused.plan.same_plan.highest = same.highest;
        } else if (step.at_least(fused) <= best.step) {
            const Duration duration = step.step(fused);
            const bool fewer = duration == best.step && best.limit &&
                               fused.plan.buckets.size() < best.fused.plan.buckets.size();
            if (duration < best.step || fewer) {
                best = {limit, cycle, std::move(fused), duration};
            }
        }
        return same;
    });
    return best;
}

// --- overlap's costs, where they are assumed ---

// The framework's steps at both ends of these costs. A limit other than the default is typed only
// where it saves time at each of them, and only up to 100 MiB or the advised cap.
class OverlapEnds {
  public:
    OverlapEnds(const StepInput& input, const SyncRequest& request, const FrameworkUse& use,
                const Prediction& prediction)
        : most_(std::max(largest_usual_cap,
                         prediction.advised().cap.named().value_or(largest_usual_cap))) {
        if (!input.link.assumes_interference) {
            return;
        }
        if (rule_of(use).unit == SettingUnit::elements && !input.workload.gradients.empty()) {
            unit_ = element_size(input.workload.gradients.front().dtype).count;
        }
        for (const OverlapPlace& end : overlap_ends) {
            StepInput other = input;
            for (InterferenceSegment& segment : other.link.interference) {
                segment.slowdown = at_place(segment.slowdown, end);
            }
            other.link.host_issue = scaled(other.link.host_issue, host_issue_factor(end));
            steps_.push_back(std::make_unique<FrameworkStep>(other, request, use));
        }
    }

    // The one tried, or the default in its place.
    [[nodiscard]] Tried checked(const Tried& best, FrameworkStep& step) const {
        const bool is_default = !best.limit && best.cycle == default_cycle;
        const bool is_typed =
            may_be_typed({best.limit.value_or(Bytes{0})}) &&
            saves([&](const FrameworkStep& end) { return end.plan(best.limit, best.cycle); });
        return is_default || is_typed ? best : tried(step, std::nullopt, default_cycle);
    }

    [[nodiscard]] bool saves_with(const std::vector<Bytes>& list) const {
        return may_be_typed(list) &&
               saves([&](const FrameworkStep& end) { return end.plan_of_list(list); });
    }

  private:
    [[nodiscard]] bool may_be_typed(const std::vector<Bytes>& limits) const {
        return steps_.empty() || std::ranges::all_of(limits, [&](Bytes limit) {
                   return limit.count <= most_.count / unit_;
               });
    }

    // Whether the plans are faster than the default at every end. True where nothing is assumed.
    template <typename Plan>
    [[nodiscard]] bool saves(const Plan& plan_at) const {
        return std::ranges::all_of(steps_, [&](const std::unique_ptr<FrameworkStep>& end) {
            return end->step(plan_at(*end)) < tried(*end, std::nullopt, default_cycle).step;
        });
    }

    Bytes most_;
    std::int64_t unit_ = 1;                              // bytes of a limit's unit
    std::vector<std::unique_ptr<FrameworkStep>> steps_;  // empty: nothing is assumed
};

// --- Horovod ---

// Keeps a default that is equally good, as predict() advises for PyTorch.
Tried best_or_default(FrameworkStep& step, std::size_t gradients, Duration cycle) {
    Tried best = best_of_sweep(step, gradients, cycle);
    Tried left = tried(step, std::nullopt, cycle);
    const bool keep = static_cast<double>(left.step.count()) <=
                      static_cast<double>(best.step.count()) * (1 + plateau_tolerance);
    return keep ? left : best;
}

Tried best_with_any_cycle(FrameworkStep& step, std::size_t gradients) {
    Tried best = best_or_default(step, gradients, default_cycle);
    const auto with_default =
        transformed(tried_cycles, [&](Duration cycle) { return tried(step, std::nullopt, cycle); });
    const Duration cycle = std::ranges::min_element(with_default, {}, &Tried::step)->cycle;
    Tried other = best_of_sweep(step, gradients, cycle);
    const auto gain = static_cast<double>((best.step - other.step).count());
    return gain > noticeable_gain * static_cast<double>(best.step.count()) ? other : best;
}

// --- PyTorch ---

// Whether the prediction is of PyTorch's DDP with one cap.
bool predicts_ddp(const SyncRequest& request, const Prediction& prediction) {
    return request.strategy == Strategy::ddp && !request.closing && !request.order &&
           !request.launch && request.bucket_cap_list.empty() &&
           !prediction.sweep[prediction.best].cap.is_none();
}

// With the other arguments that the simulated step needs.
std::string ddp_with(const SyncRequest& request, const std::string& argument) {
    return fmt::format("DistributedDataParallel(model{}{}{}{}{}{})", argument.empty() ? "" : ", ",
                       argument, request.views ? ", gradient_as_bucket_view=True" : "",
                       request.find_unused_parameters ? ", find_unused_parameters=True" : "",
                       request.static_graph ? ", static_graph=True" : "",
                       request.batched_grad_copy ? ", batched_grad_copy=True" : "");
}

// Up to 2.3 the first bucket is torch.distributed._DEFAULT_FIRST_BUCKET_BYTES, 1 MiB; since 2.4
// (pull request 121640) a named cap is also the first bucket's; lists of caps came with pull
// request 169026, of November 2025.
void type_ddp_cap(const SyncRequest& request, Bytes cap, FrameworkSetting& setting) {
    const double mib = typed_mib(cap);
    const std::string named = ddp_with(request, fmt::format("bucket_cap_mb={}", mib));
    const Bytes first =
        request.first_bucket.value_or(request.explicit_cap_sets_first ? cap : default_first_bucket);
    const std::string with_first =
        fmt::format("torch.distributed._DEFAULT_FIRST_BUCKET_BYTES = {}; {}", first.count, named);
    const std::string before =
        first == default_first_bucket ? named : with_first;  // for 2.3 and older
    const std::string since =
        first == cap
            ? named
            : ddp_with(request, fmt::format("bucket_cap_mb_list=[{}, {}]", typed_mib(first), mib));
    setting.typed = request.explicit_cap_sets_first ? since : before;
    const std::string& other = request.explicit_cap_sets_first ? before : since;
    if (other != setting.typed) {
        setting.typed_elsewhere = (request.explicit_cap_sets_first ? "before PyTorch 2.4: "
                                   : first == cap                  ? "from PyTorch 2.4 on: "
                                                                   : "from the end of 2025 on: ") +
                                  other;
    }
}

// `single`: the shortest step with one cap.
void add_list(FrameworkStep& step, const OverlapEnds& ends, const Workload& workload,
              const SyncRequest& request, const Cuts& cuts, Duration single,
              FrameworkSetting& setting) {
    const auto gain = static_cast<double>((single - setting.ideal).count());
    if (gain < noticeable_gain * static_cast<double>(single.count())) {
        return;
    }
    const BucketPlan plan = step.line().plan(cuts);
    PlanPolicy policy = step.in_order_settings().policy;
    policy.closing = Closing::overshoot;
    const std::vector<Bytes> list =
        cap_list_for(GradientLine::of_accumulators(workload.gradients, workload.readiness, policy),
                     workload.gradients, plan, policy.closing, [&](const std::vector<Bytes>& caps) {
                         return step.plan_of_list(caps).plan.buckets == plan.buckets;
                     });
    if (list.size() < 2 || !ends.saves_with(list)) {
        return;
    }
    const FusedPlan fused = step.plan_of_list(list);
    setting.list = {std::nullopt, transformed(plan.buckets, &Bucket::size), step.step(fused),
                    step.buffers(plan, std::nullopt)};
    setting.typed_list = ddp_with(
        request,
        fmt::format("bucket_cap_mb_list=[{}]", fmt::join(transformed(list, typed_mib), ", ")));
}

// --- the ideal ---

class Ideals {
  public:
    // `advised`: the buckets of the prediction's best cap, to fall back on. Returns the cuts where
    // they are known.
    std::optional<Cuts> set(FrameworkStep& step, const BucketPlan& advised,
                            FrameworkSetting& setting) {
        setting.ideal = std::min(setting.best.step, setting.framework_default.step);
        if (step.in_pieces()) {
            return std::nullopt;  // its cap decides when a bucket can go out
        }
        if (!step.can_be_optimised()) {
            setting.ideal = std::min(setting.ideal, step.step_in_order(advised));
            return std::nullopt;
        }
        const SyncSettings sync = step.in_order_settings();
        const auto known = std::ranges::find(known_, sync, &KnownOptimum::sync);
        if (known == known_.end()) {
            FrameworkStep::Optimum optimum = step.optimum_below(setting.ideal + Duration{1});
            setting.ideal_is_optimum = optimum.exact;
            if (!optimum.found) {
                return std::nullopt;  // nothing is shorter than its own best
            }
            setting.ideal = optimum.found->step;
            if (optimum.exact) {
                known_.push_back({sync, *optimum.found});
            }
            return optimum.found->cuts;
        }
        setting.ideal_is_optimum = true;
        setting.ideal = std::min(setting.ideal, known->plan.step);
        return known->plan.cuts;
    }

  private:
    struct KnownOptimum {
        SyncSettings sync;
        CutStep plan;
    };
    std::vector<KnownOptimum> known_;
};

// `limit`: one with the buckets that were tried.
FrameworkChoice choice_of(const FrameworkStep& step, const Tried& tried, std::optional<Bytes> limit,
                          std::optional<double> value) {
    return {value, transformed(tried.fused.plan.buckets, &Bucket::size), tried.step,
            step.buffers(tried.fused.plan, limit)};
}

// The request under the rule of the version in use.
SyncRequest of_version(SyncRequest request, const FrameworkUse& use) {
    constexpr FrameworkVersion pull_request_121640{2, 4, 0};
    if (use.framework == Framework::pytorch_ddp && use.version) {
        request.explicit_cap_sets_first = *use.version >= pull_request_121640;
    }
    return request;
}

// `is_predicted`: whether `prediction` is of that request.
FrameworkSetting pytorch_setting(FrameworkStep& step, const OverlapEnds& ends,
                                 const StepInput& input, const SyncRequest& request,
                                 const Prediction& prediction, bool is_predicted) {
    FrameworkSetting setting;
    setting.framework_default = choice_of(step, tried(step, std::nullopt, default_cycle),
                                          std::nullopt, typed_mib(default_bucket_cap));
    Tried best =
        is_predicted
            ? tried(step, prediction.advised().cap.named(), default_cycle)
            : ends.checked(best_or_default(step, input.workload.gradients.size(), default_cycle),
                           step);
    if (best.limit && !is_predicted) {
        best.limit = roundest_cap(best.fused.plan.same_plan);
    }
    setting.same_plan = best.fused.plan.same_plan;
    setting.best = choice_of(step, best, best.limit,
                             best.limit ? std::optional(typed_mib(*best.limit)) : std::nullopt);
    if (best.limit) {
        type_ddp_cap(request, *best.limit, setting);
    } else {
        setting.typed = ddp_with(request, "") + ", bucket_cap_mb left out";
    }
    return setting;
}

FrameworkSetting other_setting(FrameworkStep& step, const OverlapEnds& ends, const StepInput& input,
                               const FrameworkUse& use) {
    const FrameworkRule& rule = rule_of(use);
    const Bytes default_value = default_limit(use, input.group.ranks);
    const std::size_t gradients = input.workload.gradients.size();
    FrameworkSetting setting;
    setting.use = use;
    setting.framework_default = choice_of(step, tried(step, std::nullopt, default_cycle),
                                          std::nullopt, static_cast<double>(default_value.count));
    const bool has_cycle = use.framework == Framework::horovod;
    const Tried best = ends.checked(has_cycle ? best_with_any_cycle(step, gradients)
                                              : best_or_default(step, gradients, default_cycle),
                                    step);
    const Bytes limit =
        best.limit ? roundest_limit(rule, default_value, best.fused.plan.same_plan) : default_value;
    setting.best = choice_of(step, best, limit, static_cast<double>(limit.count));
    setting.same_plan = best.fused.plan.same_plan;
    if (has_cycle) {
        setting.cycle = best.cycle;
    }
    if (use.framework == Framework::megatron_lm) {
        setting.without_overlap = step.step_after_backward();
    }
    setting.typed = fmt::format(fmt::runtime(rule.typed), limit.count, to_ms(best.cycle));
    return setting;
}

}  // namespace

std::int64_t roundest_number(std::int64_t lowest, std::int64_t highest) {
    invariant(0 < lowest && lowest <= highest, "a range of positive numbers");
    std::int64_t unit = 1;
    while (unit <= highest / 10) {
        unit *= 10;
    }
    for (; unit > 1; unit /= 10) {
        const std::int64_t multiple = (lowest / unit + (lowest % unit == 0 ? 0 : 1)) * unit;
        if (multiple <= highest) {
            return multiple;
        }
    }
    return lowest;
}

std::vector<FrameworkSetting> framework_settings(const StepInput& input, const SyncRequest& request,
                                                 const Prediction& prediction,
                                                 const std::vector<FrameworkUse>& uses) {
    const BucketPlan simulated =
        FrameworkStep(input, request, {}).plan(prediction.sweep[prediction.best].cap.named()).plan;
    Ideals ideals;
    std::vector<FrameworkSetting> settings;
    for (const FrameworkUse& use : uses) {
        const SyncRequest asked = of_version(request, use);
        FrameworkStep step(input, asked, use);
        const OverlapEnds ends(input, asked, use, prediction);
        const bool pytorch = use.framework == Framework::pytorch_ddp;
        const bool is_predicted = asked == request && predicts_ddp(request, prediction);
        FrameworkSetting setting =
            pytorch ? pytorch_setting(step, ends, input, asked, prediction, is_predicted)
                    : other_setting(step, ends, input, use);
        setting.use = use;
        const std::optional<Cuts> cuts = ideals.set(step, simulated, setting);
        // Lists of caps came with pull request 169026.
        constexpr FrameworkVersion takes_lists{2, 12, 0};
        if (pytorch && cuts && use.version.value_or(takes_lists) >= takes_lists) {
            const Duration single =
                is_predicted ? prediction.chosen().times.step() : setting.best.step;
            add_list(step, ends, input.workload, asked, *cuts, std::min(single, setting.best.step),
                     setting);
        }
        settings.push_back(std::move(setting));
    }
    return settings;
}

std::vector<Destination> usual_destinations(const SyncRequest& request) {
    if (const auto own = framework_of(request.strategy)) {
        return {{static_cast<SettingPlace>(*own), request.framework_version}};
    }
    std::vector<Destination> destinations{{}};
    const SettingPlace origin = request.framework.value_or(SettingPlace::pytorch_ddp);
    if (request.framework == SettingPlace::pytorch_ddp) {
        destinations.front().version = request.framework_version;
    }
    if (origin != SettingPlace::pytorch_ddp) {
        destinations.push_back({origin, request.framework_version});
    }
    return destinations;
}

SettingAdvice setting_advice(const StepInput& input, const SyncRequest& request,
                             const Prediction& prediction,
                             const std::vector<Destination>& destinations) {
    std::vector<FrameworkUse> uses;
    bool wraps = false;
    for (const Destination& destination : destinations) {
        if (const auto framework = framework_at(destination.place)) {
            uses.push_back({.framework = *framework, .version = destination.version});
        } else {
            wraps = true;
        }
    }
    SettingAdvice advice{framework_settings(input, request, prediction, uses), {}};
    if (!wraps) {
        return advice;
    }
    const auto known = std::ranges::find(advice.frameworks, FrameworkUse{}, &FrameworkSetting::use);
    const FrameworkSetting pytorch =
        known != advice.frameworks.end()
            ? *known
            : framework_settings(input, request, prediction, {FrameworkUse{}}).front();
    for (const Destination& destination : destinations) {
        if (!framework_at(destination.place)) {
            advice.wrappers.push_back(wrapper_setting(destination.place, request, pytorch));
        }
    }
    return advice;
}

CheckedSettings checked_settings(const StepInput& input, const SyncRequest& request,
                                 const FrameworkUse& use, std::optional<Bytes> limit) {
    FrameworkStep step(input, request, use);
    const FusedPlan fused = request.bucket_cap_list.empty()
                                ? step.plan(limit)
                                : step.plan_of_list(request.bucket_cap_list);
    CheckedSettings checked;
    checked.typed = {std::nullopt, transformed(fused.plan.buckets, &Bucket::size), step.step(fused),
                     step.buffers(fused.plan, limit)};
    if (const std::optional<StepTimes> times = step.times(fused)) {
        checked.backward = times->backward;
    }
    if (limit) {
        checked.typed.value = use.framework == Framework::pytorch_ddp
                                  ? typed_mib(*limit)
                                  : static_cast<double>(limit->count);
    }
    // The best of all settings, with overlap.
    FrameworkUse best = use;
    best.overlaps = true;
    best.gathers_in_forward = true;
    SyncRequest ddp = without_list(request);
    ddp.strategy = Strategy::ddp;
    ddp.find_unused_parameters = false;
    const Prediction prediction = predict(input, ddp, {}, [](double) {});
    checked.best = framework_settings(input, ddp, prediction, {best}).front();
    return checked;
}

}  // namespace bucketwise
