#include "calibrate/comparison/step_comparison.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "calibrate/comparison/error_measures.h"
#include "calibrate/fit/compute_fit.h"
#include "sim/base/error.h"
#include "sim/base/json_input.h"
#include "sim/engine/engine.h"
#include "sim/engine/step_loop.h"
#include "sim/predict/confidence.h"

namespace bucketwise {
namespace {

// Attribution simulates whole steps many times.
void check_unrolled(const StepInput& input) {
    constexpr std::int64_t most = 100'000;
    const std::int64_t operations =
        input.step.accumulation *
        static_cast<std::int64_t>(input.workload.forward.size() + input.workload.backward.size());
    if (operations > most) {
        throw InputError("scenario", "", fmt::format("a step of at most {} operations", most),
                         fmt::format("one of {}", operations));
    }
}

void check_run(const Scenario& scenario, const MeasuredRun& run) {
    if (run.steps.empty()) {
        throw InputError(run.file, "", "measured steps", "none");
    }
    if (run.transport.ranks != scenario.group.ranks) {
        throw InputError(run.file, "",
                         fmt::format("steps of {} ranks, as in the scenario", scenario.group.ranks),
                         fmt::format("steps of {}", run.transport.ranks));
    }
    const std::string_view strategy = name_of(scenario.sync.strategy);
    if (run.steps.front().strategy != strategy) {
        throw InputError(run.file, "",
                         fmt::format("steps of the strategy {}, as in the scenario", strategy),
                         run.steps.front().strategy);
    }
}

void check_collectives(const MeasuredRun& run, const CapComparison& point, const Program& program) {
    if (program.collectives.size() != point.measured.begin_us.size()) {
        throw InputError(
            run.file, "",
            fmt::format("steps with the scenario's {} collectives", program.collectives.size()),
            fmt::format("steps with {}", point.measured.begin_us.size()));
    }
    if (point.predicted.bucket_bytes != point.measured.bucket_bytes) {
        throw InputError(
            run.file, "",
            fmt::format("steps with the buckets of the scenario ({} at a cap of {} bytes)",
                        point.predicted.bucket_bytes.size(),
                        point.measured.cap.value_or(Bytes{0}).count),
            fmt::format("others ({})", point.measured.bucket_bytes.size()));
    }
}

// What the run itself says it replayed.
void check_same_scenario(const Scenario& scenario, const MeasuredRun& run) {
    if (!run.environment || run.environment->scenario.empty()) {
        return;
    }
    const auto no_files = [](const std::string& path) -> std::string {
        throw InputError(path, "", "a scenario with its link written out", "a file's name");
    };
    const Scenario measured =
        parse_scenario(parse_json(run.environment->scenario, run.file), run.file, no_files);
    const auto check = [&](bool same, const char* pointer) {
        if (!same) {
            throw InputError(run.file, pointer, "measurements of the scenario's step", "another's");
        }
    };
    SyncRequest sync = measured.sync;  // caps were varied
    sync.bucket_cap = scenario.sync.bucket_cap;
    check(sync == scenario.sync, "/sync");
    check(measured.step.accumulation == scenario.step.accumulation, "/step/accumulation");
    const Workload workload = step_input(measured).workload;
    const Workload expected = step_input(scenario).workload;
    check(workload.gradients == expected.gradients && workload.readiness == expected.readiness,
          "/workload");
    const auto* model = std::get_if<ModelWorkload>(&measured.workload);
    const auto* expected_model = std::get_if<ModelWorkload>(&scenario.workload);
    check((model == nullptr) == (expected_model == nullptr) &&
              (model == nullptr ||
               (model->model == expected_model->model && model->input == expected_model->input)),
          "/workload");
}

constexpr double standard_errors_of_95_percent = 1.96;

// The median half-width of the measured steps' 95 % intervals, as a share.
double noise_of(const std::vector<CapComparison>& points) {
    return median_of(points, [](const CapComparison& point) {
        return (point.measured_interval_ms.high - point.measured_interval_ms.low) / 2 /
               point.measured_ms;
    });
}

std::vector<CapComparison> compare_caps(const StepInput& input, const Scenario& scenario,
                                        const MeasuredRun& run) {
    Evaluator evaluator(input, scenario.sync);
    std::vector<CapComparison> points;
    std::vector<SyncSettings> choices;
    for (MeasuredCap& measured : measured_caps(run)) {
        CapComparison point;
        point.measured = std::move(measured);
        choices.push_back(settings_for(with_cap(scenario.sync, point.measured.asked_cap())));
        point.predicted = evaluator.evaluate(point.measured.asked_cap());
        check_collectives(run, point, evaluator.program(point.measured.asked_cap()));
        point.predicted_ms = to_ms(point.predicted.times.step());
        point.measured_ms = median(point.measured.step_us) / 1e3;
        const MedianInterval us = median_interval(point.measured.step_us);
        point.measured_interval_ms = {us.low / 1e3, us.high / 1e3};
        points.push_back(std::move(point));
    }
    const IsolatedMeasurements isolated{.compute_step_us = compute_step_us(run),
                                        .all_reduces = all_reduce_samples({run})};
    for (std::size_t i = 0; i < points.size(); ++i) {
        points[i].attribution =
            attribute(input, choices[i], make_plan(input.workload, choices[i].policy),
                      points[i].measured, isolated);
    }
    const auto confidences = confidence_of(input, choices, plateau_tolerance,
                                           noise_of(points) / standard_errors_of_95_percent);
    for (std::size_t i = 0; i < points.size(); ++i) {
        points[i].predicted.confidence = confidences[i];
    }
    return points;
}

void judge(Comparison& comparison) {
    std::vector<ComparedPoint> plain;
    for (const CapComparison& point : comparison.points) {
        plain.push_back({.bucket_cap_mib = to_mib(point.measured.cap.value_or(Bytes{0})),
                         .predicted_step_ms = point.predicted_ms,
                         .measured_step_ms = point.measured_ms});
    }
    comparison.mape = mean_absolute_percentage_error(plain);
    comparison.max_error = largest_absolute_error(plain);
    comparison.rank_correlation = rank_correlation(plain);
    comparison.noise_floor = noise_of(comparison.points);
    const auto least = [&](double ComparedPoint::*ms) {
        return static_cast<std::size_t>(std::ranges::min_element(plain, {}, ms) - plain.begin());
    };
    const auto confidence_of = [](const CapComparison& point) {
        return point.predicted.confidence;
    };
    comparison.chosen = least_expected_regret(transformed(comparison.points, confidence_of),
                                              least(&ComparedPoint::predicted_step_ms));
    comparison.fastest = least(&ComparedPoint::measured_step_ms);
    comparison.regret = regret(plain, comparison.chosen);
    for (std::size_t i = 0; i < comparison.points.size(); ++i) {
        if (comparison.points[i].measured.is_default) {
            comparison.default_cap = i;
            comparison.gain_over_default =
                plain[i].measured_step_ms / plain[comparison.chosen].measured_step_ms - 1;
        }
    }
}

// The extremes of five samples hold their median with a probability of 94 %: no interval of theirs
// holds it with 95 %.
void note_few_samples(Comparison& comparison) {
    constexpr std::size_t few = 6;
    const std::size_t fewest =
        std::ranges::min(transformed(comparison.points, [](const CapComparison& point) {
            return point.measured.step_us.size();
        }));
    if (fewest < few) {
        comparison.notes.push_back(
            fmt::format("{} steps per cap: intervals are their extremes, which say less than 95 %, "
                        "and the noise floor is uncertain; {} rounds or more are better",
                        fewest, few));
    }
}

// --- what if ---

void scale_bandwidth(LinkParameters& link, std::int64_t factor) {
    for (Segment& segment : link.segments) {
        segment.bandwidth.count *= factor;
    }
    for (LinkParameters& tier : link.tiers) {
        scale_bandwidth(tier, factor);
    }
}

void remove_latency(LinkParameters& link) {
    link.launch = link.meeting = link.message = Duration{0};
    for (Segment& segment : link.segments) {
        segment.latency = Duration{0};
    }
    for (LinkParameters& tier : link.tiers) {
        remove_latency(tier);
    }
}

ChangedMachine best_of(const std::string& change, const StepInput& input, const Scenario& scenario,
                       const std::vector<CapComparison>& points) {
    Evaluator evaluator(input, scenario.sync);
    ChangedMachine result;
    result.change = change;
    for (const CapComparison& point : points) {
        const Evaluation evaluation = evaluator.evaluate(point.measured.asked_cap());
        const double ms = to_ms(evaluation.times.step());
        if (&point == &points.front() || ms < result.step_ms) {
            result.step_ms = ms;
            result.cap = point.measured.cap;
        }
    }
    return result;
}

std::vector<ChangedMachine> what_if(const StepInput& input, const Scenario& scenario,
                                    const std::vector<CapComparison>& points) {
    StepInput faster = input;
    scale_bandwidth(faster.link, 2);
    StepInput prompt = input;
    remove_latency(prompt.link);
    StepInput undisturbed = input;
    undisturbed.link.interference.clear();
    StepInput alone = input;
    alone.group = {};  // one rank communicates with nobody
    remove_latency(alone.link);
    alone.link.interference.clear();
    return {best_of("as it is", input, scenario, points),
            best_of("twice the bandwidth", faster, scenario, points),
            best_of("no latency", prompt, scenario, points),
            best_of("no interference", undisturbed, scenario, points),
            best_of("free communication", alone, scenario, points)};
}

// --- pictures ---

std::string label_of(const Collective& collective) {
    return collective.bucket       ? fmt::format("bucket {}", *collective.bucket + 1)
           : collective.statistics ? std::string("statistics")
                                   : std::string(name_of(collective.kind));
}

StepPicture predicted_picture(const Program& program, const StepLoop& loop) {
    const Simulation simulation = settled_simulation(program, loop);
    StepPicture picture;
    picture.step_ms = to_ms(simulation.ranks.front().step());
    std::vector<PictureSpan>& phases = picture.computing;
    for (const Span& span : simulation.timeline.spans) {
        const auto subject = static_cast<std::size_t>(span.subject);
        if (span.track == Track::communication) {
            picture.communicating.push_back(
                {label_of(program.collectives[subject]), to_ms(span.start), to_ms(span.end)});
            continue;
        }
        if (span.track != Track::compute) {
            continue;
        }
        const Phase phase = program.instructions[subject].phase;
        const std::string what = phase == Phase::forward    ? "forward"
                                 : phase == Phase::backward ? "backward"
                                                            : "optimizer";
        // One span per phase, interrupted only by gaps that can be seen, or a picture would be
        // thousands of slivers.
        constexpr double visible = 0.003;  // of the step
        if (!phases.empty() && phases.back().what == what &&
            phases.back().end_ms + visible * picture.step_ms >= to_ms(span.start)) {
            phases.back().end_ms = to_ms(span.end);
        } else {
            phases.push_back({what, to_ms(span.start), to_ms(span.end)});
        }
    }
    return picture;
}

// The step of medians: forward, then backward as far as rank 0 computed, then the optimizer at the
// end.
StepPicture measured_picture(const MeasuredCap& measured, const Program& program) {
    StepPicture picture;
    const double step_us = measured.forward_us + measured.backward_us + measured.optimizer_us;
    const double waiting_us = std::max(step_us - measured.computing_us, 0.0);
    const double backward_end_us =
        std::max(measured.forward_us + measured.backward_us - waiting_us, measured.forward_us);
    picture.step_ms = step_us / 1e3;
    picture.computing = {{"forward", 0, measured.forward_us / 1e3},
                         {"backward", measured.forward_us / 1e3, backward_end_us / 1e3},
                         {"optimizer", (step_us - measured.optimizer_us) / 1e3, step_us / 1e3}};
    for (std::size_t i = 0; i < measured.begin_us.size(); ++i) {
        picture.communicating.push_back({label_of(program.collectives[i]),
                                         measured.begin_us[i] / 1e3, measured.end_us[i] / 1e3});
    }
    return picture;
}

std::string machine_of(const MeasuredRun& run) {
    if (!run.environment) {
        return "unknown machine";
    }
    const EnvironmentRecord& e = *run.environment;
    return fmt::format("{}{}{}, {} cores, {} {} on {} ranks{}{}, {}, {}", e.gpu,
                       e.gpu.empty() ? "" : "; ", e.machine.cpu, e.machine.cores,
                       run.transport.backend, run.transport.algorithm, run.transport.ranks,
                       run.transport.shared_gpu ? " of one shared GPU" : "",
                       e.link_rate.empty() ? "" : ", links of " + e.link_rate, e.machine.kernel,
                       e.date.substr(0, 10));
}

}  // namespace

Comparison compare_steps(const Scenario& scenario, const MeasuredRun& run) {
    check_run(scenario, run);
    check_same_scenario(scenario, run);
    const StepInput input = step_input(scenario);
    check_unrolled(input);
    Comparison comparison;
    comparison.scenario = scenario.name;
    comparison.strategy = name_of(scenario.sync.strategy);
    comparison.ranks = scenario.group.ranks;
    comparison.machine = machine_of(run);
    comparison.shared_gpu = run.transport.shared_gpu;
    if (run.environment) {
        comparison.command = fmt::format("{}", fmt::join(run.environment->command, " "));
    }
    comparison.notes = run.warnings;
    comparison.points = compare_caps(input, scenario, run);
    judge(comparison);
    note_few_samples(comparison);
    comparison.what_if = what_if(input, scenario, comparison.points);
    const MeasuredCap& chosen = comparison.points[comparison.chosen].measured;
    const Program program = Evaluator(input, scenario.sync).program(chosen.asked_cap());
    comparison.predicted_picture =
        predicted_picture(program, loop_of(input, settings_for(scenario.sync)));
    comparison.measured_picture = measured_picture(chosen, program);
    return comparison;
}

}  // namespace bucketwise
