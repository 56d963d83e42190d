#include "calibrate/gate/measured_cases.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>

#include <fmt/format.h>

#include "sim/base/error.h"
#include "sim/base/statistics.h"
#include "sim/base/transformed.h"
#include "sim/report/sharding_text.h"
#include "sim/report/sweep_table.h"
#include "sim/text/passed_on.h"

namespace bucketwise {
namespace {

constexpr double us_in_ms = 1000;

std::string case_name(const StepRecord& step) {
    if (step.sharding) {
        return fmt::format("{}, {}", step.strategy, setting_label(*step.sharding));
    }
    const std::string cap = step.is_default ? "default cap"
                            : step.cap      ? fmt::format("cap {}", bucket_cap_text(step.cap))
                                            : "no cap";
    return fmt::format("{}, {}", step.strategy, cap);
}

// Rank 0's collectives; the first ones may be broadcasts before backward.
void add_collectives(const StepRecord& step, GateRun& run) {
    if (step.collective_begin_us.size() < run.buckets.size()) {
        return;
    }
    const std::size_t first = step.collective_begin_us.size() - run.buckets.size();
    const double backward_us = step.by_rank.front().forward_us;
    double free_us = 0;
    for (std::size_t b = 0; b < run.buckets.size(); ++b) {
        const double begin_us = step.collective_begin_us[first + b];
        const double end_us = step.collective_end_us[first + b];
        GateBucket& bucket = run.buckets[b];
        const double last_us = std::max(begin_us, step.collective_last_begin_us[first + b]);
        bucket.collective_ms.push_back(std::max(end_us - last_us, 0.0) / us_in_ms);
        // Where collectives follow one another at once, a bucket's readiness is unknown.
        constexpr double noticeable_us = 50;
        if (begin_us > free_us + noticeable_us) {
            bucket.ready_ms.push_back((begin_us - backward_us) / us_in_ms);
        }
        free_us = end_us;
    }
}

// By round, the slowest rank's cost of copies, in steps without communication.
std::map<std::int64_t, double> copying_by_round(const MeasuredRun& run) {
    std::map<std::int64_t, double> by_round;
    for (const ComputeRecord& compute : run.computes) {
        double& most = by_round[compute.round];
        most = std::max(most, (compute.copying_step_us - median(compute.samples_us)) / us_in_ms);
    }
    return by_round;
}

// A step without communication computes, and copies, where its round knows that.
void add_step(const StepRecord& step, const std::map<std::int64_t, double>& copying, GateRun& run) {
    const double step_ms = median(step.samples_us) / us_in_ms;
    const double free_ms = median(step.free_communication_us) / us_in_ms;
    const auto of_round = copying.find(step.round);
    const double copying_ms = of_round == copying.end() ? 0.0 : std::min(of_round->second, free_ms);
    run.part(StepPart::step).push_back(step_ms);
    run.part(StepPart::exposed).push_back(std::max(step_ms - free_ms, 0.0));
    run.part(StepPart::computing).push_back(free_ms - copying_ms);
    if (of_round != copying.end()) {
        run.part(StepPart::copying).push_back(copying_ms);
    }
    add_collectives(step, run);
}

GateRun run_of(const MeasuredRun& measured, const std::vector<const StepRecord*>& steps) {
    const std::map<std::int64_t, double> copying = copying_by_round(measured);
    GateRun run{.file = file_name(measured.file)};
    run.buckets = transformed(steps.front()->bucket_bytes,
                              [](Bytes bytes) { return GateBucket{.bytes = bytes}; });
    for (const StepRecord* step : steps) {
        add_step(*step, copying, run);
    }
    const auto keep_whole = [&](std::vector<double>& of_steps) {
        if (of_steps.size() < steps.size()) {
            of_steps.clear();
        }
    };
    keep_whole(run.part(StepPart::copying));
    for (GateBucket& bucket : run.buckets) {
        keep_whole(bucket.ready_ms);
        keep_whole(bucket.collective_ms);
    }
    return run;
}

// From steps without communication: medians over rounds, of the slowest rank.
std::vector<GateGradient> gradients_of(const MeasuredRun& run) {
    if (!run.environment || run.computes.empty()) {
        return {};
    }
    const std::vector<std::string>& names = run.environment->gradients;
    std::vector<GateGradient> gradients;
    for (std::size_t i = 0; i < names.size(); ++i) {
        std::map<std::int64_t, double> by_round;
        for (const ComputeRecord& compute : run.computes) {
            if (compute.ready_us.size() != names.size()) {
                return {};
            }
            double& latest = by_round[compute.round];
            latest = std::max(latest, compute.ready_us[i]);
        }
        gradients.push_back(
            {.name = names[i],
             .ready_ms =
                 median_of(by_round, [](const auto& round) { return round.second; }) / us_in_ms});
    }
    std::ranges::stable_sort(gradients, {}, &GateGradient::ready_ms);
    return gradients;
}

GateCase& case_named(const std::string& name, std::vector<GateCase>& cases) {
    const auto found = std::ranges::find(cases, name, &GateCase::name);
    return found != cases.end()
               ? *found
               : cases.emplace_back(GateCase{.name = name, .source = GateSource::measurement});
}

}  // namespace

std::vector<GateCase> measured_cases(const std::vector<MeasuredRun>& runs) {
    std::vector<GateCase> cases;
    for (const MeasuredRun& measured : runs) {
        std::vector<std::string> names;
        std::map<std::string, std::vector<const StepRecord*>> steps;
        for (const StepRecord& step : measured.steps) {
            const std::string name = case_name(step);
            std::vector<const StepRecord*>& of_name = steps[name];
            if (of_name.empty()) {
                names.push_back(name);
            } else if (of_name.front()->bucket_bytes != step.bucket_bytes) {
                throw InputError(measured.file, "", "the same buckets in all steps of a cap",
                                 fmt::format("others in round {} of the {}", step.round, name));
            }
            of_name.push_back(&step);
        }
        if (names.empty()) {
            throw InputError(measured.file, "", "measured steps", "none");
        }
        for (const std::string& name : names) {
            GateRun run = run_of(measured, steps[name]);
            run.gradients = gradients_of(measured);
            case_named(name, cases).runs.push_back(std::move(run));
        }
    }
    return cases;
}

}  // namespace bucketwise
