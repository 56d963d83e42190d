#include "calibrate/gate/gate.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "calibrate/gate/shift.h"
#include "sim/base/invariant.h"
#include "sim/base/statistics.h"
#include "sim/base/transformed.h"
#include "sim/report/number_text.h"

namespace bucketwise {
namespace {

std::vector<double> steps_of(const GateCase& of, StepPart part) {
    std::vector<double> all;
    for (const GateRun& run : of.runs) {
        const std::vector<double>& steps = run.part(part);
        all.insert(all.end(), steps.begin(), steps.end());
    }
    return all;
}

RunSamples logarithms(const GateCase& of) {
    return transformed(of.runs, [](const GateRun& run) {
        invariant(!run.part(StepPart::step).empty(), "every run has steps");
        return transformed(run.part(StepPart::step), [](double ms) { return std::log(ms); });
    });
}

const GateCase* same_case(const std::vector<GateCase>& cases, const GateCase& wanted) {
    const auto found = std::ranges::find_if(cases, [&](const GateCase& one) {
        return one.source == wanted.source && one.name == wanted.name;
    });
    return found == cases.end() ? nullptr : &*found;
}

GateChange change_between(const GateCase& before, const GateCase& after, double false_alarms) {
    const std::vector<double> steps = steps_of(before, StepPart::step);
    const Shift shift = shift_between(logarithms(before), logarithms(after), false_alarms);
    const bool is_exact = after.source == GateSource::prediction;
    constexpr double same = 1e-9;  // rounding of written numbers
    return {.before_ms = median(steps),
            .slower = std::expm1(shift.middle),
            .low = std::expm1(is_exact ? shift.middle : shift.low),
            .high = std::expm1(is_exact ? shift.middle : shift.high),
            .is_slower = is_exact ? shift.middle > same : shift.is_more,
            .is_faster = is_exact ? shift.middle < -same : shift.is_less,
            .can_be_told = is_exact || shift.can_be_told,
            .runs_are_known = is_exact || shift.runs_are_known,
            .tellable = is_exact ? 0 : std::expm1(shift.tellable),
            .enough_steps = shift.enough,
            .steps_before = steps.size(),
            .runs_before = before.runs.size()};
}

void check_limits(const GateLimits& limits, CheckedCase& checked) {
    if (limits.max_step_ms && checked.step_ms > *limits.max_step_ms) {
        checked.broken.push_back(fmt::format("a step takes {} ms, more than the {} ms allowed",
                                             three_digits(checked.step_ms),
                                             three_digits(*limits.max_step_ms)));
    }
    if (!limits.max_exposed) {
        return;
    }
    if (!checked.exposed_ms) {
        checked.notes.emplace_back("the share of the step that waits for communication is unknown");
        return;
    }
    const double share = *checked.exposed_ms / checked.step_ms;
    if (share > *limits.max_exposed) {
        checked.broken.push_back(
            fmt::format("{} of the step ({} ms) waits for communication, more than the {} allowed",
                        percent_text(share), three_digits(*checked.exposed_ms),
                        percent_text(*limits.max_exposed)));
    }
}

// Notes on too few steps and runs.
void note_samples(const GateChange& change, CheckedCase& checked) {
    if (!change.can_be_told) {
        checked.notes.push_back(
            fmt::format("too few steps to distinguish a change from chance: {} against {} of the "
                        "baseline, where "
                        "it takes {} of each",
                        checked.steps, change.steps_before, change.enough_steps));
    } else if (!change.runs_are_known) {
        checked.notes.emplace_back(
            "the differences among runs are unknown: only the noise of steps counts; more runs in "
            "the baseline would show them");
    }
}

void check_change(const GateCase& before, const GateCase& after, const GateLimits& limits,
                  double false_alarms, CheckedCase& checked) {
    checked.change = change_between(before, after, false_alarms);
    const GateChange& change = *checked.change;
    note_samples(change, checked);
    if (!change.is_slower || change.slower <= limits.max_regression) {
        return;
    }
    checked.broken.push_back(
        fmt::format("a step takes {} longer than in the baseline, more than the {} allowed",
                    percent_text(change.slower), percent_text(limits.max_regression)));
    checked.causes = causes_of(before, after, change.slower * change.before_ms);
}

CheckedCase seen_of(const GateCase& of) {
    const std::vector<double> steps = steps_of(of, StepPart::step);
    CheckedCase checked{.name = of.name,
                        .source = of.source,
                        .steps = steps.size(),
                        .runs = of.runs.size(),
                        .step_ms = median(steps)};
    if (const std::vector<double> exposed = steps_of(of, StepPart::exposed); !exposed.empty()) {
        checked.exposed_ms = median(exposed);
    }
    return checked;
}

}  // namespace

bool GateVerdict::is_held() const {
    return std::ranges::all_of(cases, [](const CheckedCase& one) { return one.broken.empty(); });
}

GateVerdict check_cases(const std::vector<GateCase>& baseline, const std::vector<GateCase>& cases,
                        const GateLimits& limits) {
    GateVerdict verdict{.limits = limits, .cases = {}, .notes = {}};
    const auto compared = std::ranges::count_if(
        cases, [&](const GateCase& one) { return same_case(baseline, one) != nullptr; });
    const double rate =
        limits.false_alarms / static_cast<double>(std::max<std::ptrdiff_t>(compared, 1));
    for (const GateCase& one : cases) {
        CheckedCase checked = seen_of(one);
        if (const GateCase* before = same_case(baseline, one)) {
            check_change(*before, one, limits, rate, checked);
        } else if (!baseline.empty()) {
            checked.notes.emplace_back("the baseline does not have it");
        }
        check_limits(limits, checked);
        verdict.cases.push_back(std::move(checked));
    }
    for (const GateCase& before : baseline) {
        if (same_case(cases, before) == nullptr) {
            verdict.notes.push_back(
                fmt::format("the baseline also has {}, which was not given", before.name));
        }
    }
    return verdict;
}

}  // namespace bucketwise
