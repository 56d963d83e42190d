#include "import/run/typical_step.h"

#include <algorithm>
#include <cmath>
#include <map>

#include <nlohmann/json.hpp>

#include "import/run/traced_gradients.h"
#include "import/source/plain_text.h"
#include "sim/text/passed_on.h"

namespace bucketwise {
namespace {

// The side stream that the compute stream waits for there in most steps; 0: none.
std::int32_t most_common_after(const Steps& steps, std::vector<StepMark> TracedStep::*pass,
                               std::size_t mark) {
    std::map<std::int32_t, std::ptrdiff_t> counts;
    for (const TracedStep* step : steps) {
        ++counts[(step->*pass)[mark].after];
    }
    const auto most = std::ranges::max_element(counts, {}, [](const auto& c) { return c.second; });
    return 2 * most->second > std::ssize(steps) ? most->first : 0;
}

Duration sum_of(const std::vector<StepMark>& marks, Duration StepMark::*part) {
    Duration sum{0};
    for (const StepMark& mark : marks) {
        sum += mark.*part;
    }
    return sum;
}

// Every mark at its median over the steps, scaled so that the whole is as long as the median step:
// medians of many parts sum to less.
std::vector<StepMark> typical_marks(const Steps& steps, std::vector<StepMark> TracedStep::*pass,
                                    bool has_device) {
    std::vector<StepMark> marks = steps.front()->*pass;
    const auto settle = [&](Duration StepMark::*part, Duration whole) {
        for (std::size_t i = 0; i < marks.size(); ++i) {
            marks[i].*part =
                median_of(steps, [&](const TracedStep* step) { return (step->*pass)[i].*part; });
        }
        if (const Duration sum = sum_of(marks, part); sum > Duration{0}) {
            const double factor =
                static_cast<double>(whole.count()) / static_cast<double>(sum.count());
            for (StepMark& mark : marks) {
                mark.*part =
                    Duration{std::llround(static_cast<double>((mark.*part).count()) * factor)};
            }
        }
    };
    const auto whole = [&](Duration StepMark::*part) {
        return median_of(steps, [&](const TracedStep* step) { return sum_of(step->*pass, part); });
    };
    for (const auto part :
         {&StepMark::host, &StepMark::device, &StepMark::until_wait, &StepMark::beside}) {
        settle(part, whole(part));
    }
    // A host that computes and waits for others does one or the other: together they are the pass.
    const Duration both = median_of(steps, [&](const TracedStep* step) {
        return sum_of(step->*pass, &StepMark::device) + sum_of(step->*pass, &StepMark::stall);
    });
    settle(&StepMark::stall, has_device ? whole(&StepMark::stall)
                                        : std::max(both - whole(&StepMark::device), Duration{0}));
    const auto in_most = [&](std::size_t i, const auto& holds) {
        return 2 * std::ranges::count_if(
                       steps, [&](const TracedStep* step) { return holds((step->*pass)[i]); }) >
               std::ssize(steps);
    };
    for (std::size_t i = 0; i < marks.size(); ++i) {
        marks[i].host_waits = in_most(i, [](const StepMark& mark) { return mark.host_waits; });
        marks[i].after_compute =
            in_most(i, [](const StepMark& mark) { return mark.after_compute; });
        marks[i].after = most_common_after(steps, pass, i);
    }
    return marks;
}

bool same_kinds(const std::vector<StepMark>& marks, const std::vector<StepMark>& others) {
    return std::ranges::equal(marks, others, {}, &StepMark::kind, &StepMark::kind);
}

}  // namespace

bool is_simulated(const TracedRun& run, const StepMark& mark) {
    const TracedCollective* const collective = run.first().collective_of(mark);
    return collective != nullptr &&
           (collective->sends_buffers() ? collective->bytes.count > 0
                                        : is_reduction(run, run.first(), *collective) ||
                                              is_unused_map(run.first(), *collective));
}

TypicalStep typical_step(const TracedRun& run) {
    const auto marks_of = [&](std::vector<StepMark> TracedStep::*pass) {
        return typical_marks(run.alike(), pass, run.rank().has_device);
    };
    TypicalStep typical{.forward = marks_of(&TracedStep::forward),
                        .backward = marks_of(&TracedStep::backward)};
    if (std::ranges::all_of(run.alike(), [&](const TracedStep* step) {
            return same_kinds(step->optimizer, run.first().optimizer);
        })) {
        typical.optimizer = marks_of(&TracedStep::optimizer);
    }
    std::vector<Duration> copies;
    std::vector<Duration> issues;
    for (const std::vector<StepMark>* pass : {&typical.forward, &typical.backward}) {
        for (const StepMark& mark : *pass) {
            if (mark.is_copy()) {
                copies.push_back(mark.host);
            } else if (is_simulated(run, mark)) {
                issues.push_back(run.rank().has_device ? mark.host : mark.device);
            }
        }
    }
    if (!copies.empty()) {
        typical.copy_launch = median(copies);
    }
    if (!issues.empty()) {
        typical.host_issue = median(issues);
    }
    return typical;
}

double rounded_us(Duration time) {
    return std::round(to_us(time) * 1e3) / 1e3;
}
double rounded_ms(Duration time) {
    return std::round(to_ms(time) * 1e6) / 1e6;
}

std::string scenario_name(const std::string& file) {
    constexpr std::size_t longest = 150;
    const std::string name = plain_text(file_name(file), longest);
    return name.empty() ? "trace" : name;
}

Duration CarriedTime::with(Duration host) {
    const Duration with_carry = std::max(host + carry_, Duration{0});
    carry_ += host - with_carry;
    return with_carry;
}

Json operation_json(const std::string& name, Duration host, Duration device) {
    return {{"name", name}, {"host_us", rounded_us(host)}, {"device_us", rounded_us(device)}};
}

}  // namespace bucketwise
