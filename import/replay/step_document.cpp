#include "import/replay/step_document.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

#include <nlohmann/json.hpp>

#include "import/source/plain_text.h"
#include "sim/base/json_output.h"
#include "sim/base/transformed.h"
#include "sim/text/passed_on.h"

namespace bucketwise {
namespace {

using Pass = std::vector<StepMark> TracedStep::*;

Duration sum_of(const std::vector<StepMark>& marks, Duration StepMark::*part) {
    Duration sum{0};
    for (const StepMark& mark : marks) {
        sum += mark.*part;
    }
    return sum;
}

// Every mark at its median over the steps, scaled so that the pass is as long as its median:
// medians of many parts sum to less.
std::vector<StepMark> typical_marks(const Steps& steps, Pass pass, bool has_device) {
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
    // A computing host either computes or waits for others: both together are the pass.
    const Duration both = median_of(steps, [&](const TracedStep* step) {
        return sum_of(step->*pass, &StepMark::device) + sum_of(step->*pass, &StepMark::stall);
    });
    settle(&StepMark::stall, has_device ? whole(&StepMark::stall)
                                        : std::max(both - whole(&StepMark::device), Duration{0}));
    // The value in more than half of the steps; else none.
    const auto in_most = [&](std::size_t i, auto part) {
        std::map<std::decay_t<decltype(marks[i].*part)>, std::ptrdiff_t> counts;
        for (const TracedStep* step : steps) {
            ++counts[(step->*pass)[i].*part];
        }
        const auto most =
            std::ranges::max_element(counts, {}, [](const auto& count) { return count.second; });
        return 2 * most->second > std::ssize(steps) ? most->first : decltype(most->first){};
    };
    for (std::size_t i = 0; i < marks.size(); ++i) {
        marks[i].recomputed = mean(transformed(
            steps, [&](const TracedStep* step) { return (step->*pass)[i].recomputed; }));
        marks[i].host_waits = in_most(i, &StepMark::host_waits);
        marks[i].after_compute = in_most(i, &StepMark::after_compute);
        marks[i].after = in_most(i, &StepMark::after);
    }
    return marks;
}

TypicalStep typical_step(const TracedRun& run) {
    const auto marks_of = [&](Pass pass) {
        return typical_marks(run.alike(), pass, run.rank().has_device);
    };
    TypicalStep typical{marks_of(&TracedStep::forward), marks_of(&TracedStep::backward), {}};
    if (std::ranges::all_of(run.alike(), [&](const TracedStep* step) {
            return std::ranges::equal(step->optimizer, run.first().optimizer, {}, &StepMark::kind,
                                      &StepMark::kind);
        })) {
        typical.optimizer = marks_of(&TracedStep::optimizer);
    }
    return typical;
}

}  // namespace

double rounded_us(Duration time) {
    return std::round(to_us(time) * 1e3) / 1e3;
}
double rounded_ms(Duration time) {
    return std::round(to_ms(time) * 1e6) / 1e6;
}

std::string scenario_name(const std::string& file, const char* otherwise) {
    constexpr std::size_t longest = 150;
    const std::string name = plain_text(file_name(file), longest);
    return name.empty() ? otherwise : name;
}

std::vector<std::size_t> by_parameter(const std::vector<std::int32_t>& readiness,
                                      std::size_t gradients) {
    std::vector<std::size_t> order(gradients);
    std::iota(order.rbegin(), order.rend(), 0);
    for (std::size_t i = 0; i < readiness.size(); ++i) {
        order[static_cast<std::size_t>(readiness[i])] = i;
    }
    return order;
}

Json gradient_json(const Gradient& gradient) {
    return {{"name", gradient.name}, {"numel", gradient.numel}, {"dtype", name_of(gradient.dtype)}};
}

Json operation_json(const std::string& name, Duration host, Duration device) {
    return {{"name", name}, {"host_us", rounded_us(host)}, {"device_us", rounded_us(device)}};
}

StepDocument::StepDocument(const TracedRun& run, Findings& findings)
    : run_(run), findings_(findings), typical_(typical_step(run)) {
    std::vector<Duration> copies;
    for_each_mark([&](const StepMark& mark) {
        if (mark.is_copy()) {
            copies.push_back(mark.host);
        }
    });
    if (!copies.empty()) {
        copy_launch_ = median(copies);
    }
}

// Its last operation is the mark's.
void StepDocument::tell_recomputed(const StepMark& mark, Json& operations) {
    constexpr double least = 0.001;
    if (mark.recomputed >= least) {
        operations.back()["recomputed"] = std::min(std::round(mark.recomputed * 1e3) / 1e3, 1.0);
        recomputed_ += scaled(mark.device, mark.recomputed);
    }
}

Json StepDocument::document(Json workload, std::int64_t ranks, Json sync,
                            bool (*is_listed)(const StepMark& mark)) {
    workload["forward_operations"] = operations_json(typical_.forward);
    workload["backward_operations"] = operations_json(typical_.backward);
    if (recomputed_ > Duration{0}) {
        const Duration backward = sum_of(typical_.backward, &StepMark::device);
        findings_.found("recompute",
                        "of backward's {:.4g} ms of computing, {:.4g} compute forward again "
                        "(activation checkpointing)",
                        to_ms(backward), to_ms(recomputed_));
    }
    add_optional(workload, "collective_issue_us", host_issue_, rounded_us);
    add_optional(workload, "copy_gb_per_s", copy_gb_per_s_,
                 [](double rate) { return std::clamp(rate, 1e-6, 1e6); });
    if (run_.rank().has_device) {
        workload["copy_launch_us"] = rounded_us(copy_launch_);
    } else {
        workload["host_is_device"] = true;
    }
    Json step = step_json(workload, is_listed);
    add_if(run_.first().micro_steps > 1, step, "accumulation", run_.first().micro_steps);
    return {{"name", scenario_name(run_.rank().file, "trace")},
            {"workload", std::move(workload)},
            {"cluster", {{"ranks", ranks}}},
            {"sync", std::move(sync)},
            {"step", std::move(step)}};
}

Json StepDocument::step_json(Json& workload, bool (*is_listed)(const StepMark& mark)) {
    const Duration host = run_.typical(&TracedStep::optimizer_host);
    if (std::ranges::any_of(typical_.optimizer, is_listed)) {
        const Duration listed = sum_of(typical_.optimizer, &StepMark::host) +
                                sum_of(typical_.optimizer, &StepMark::until_wait);
        Json operations = operations_json(typical_.optimizer);
        operations.push_back(operation_json("until the next step", carried(host - listed)));
        workload["optimizer_operations"] = std::move(operations);
        return Json::object();
    }
    Json step{{"optimizer_ms", rounded_ms(run_.typical(&TracedStep::optimizer_device))}};
    if (run_.rank().has_device) {
        step["optimizer_launch_ms"] = rounded_ms(carried(host));
    }
    return step;
}

Json StepDocument::host_wait_json(const std::string& name, const StepMark& mark) {
    Json wait = operation_json(name, carried(mark.until_wait));
    wait["host_waits"] = true;
    return wait;
}

Duration StepDocument::carried(Duration host) {
    const Duration with_carry = std::max(host + carry_, Duration{0});
    carry_ += host - with_carry;
    return with_carry;
}

}  // namespace bucketwise
