#include "sim/predict/confidence.h"

#include <algorithm>
#include <cmath>

#include "sim/base/invariant.h"
#include "sim/base/statistics.h"
#include "sim/engine/step_loop.h"
#include "sim/engine/step_parts.h"
#include "sim/engine/varied_steps.h"
#include "sim/program/step_programs.h"

namespace bucketwise {
namespace {

constexpr std::size_t draws_of_interval = 200;
constexpr double tail = 0.025;   // on each side of an interval
constexpr double seldom = 0.05;  // of the draws

void draw_segment(Segment& segment, Normal& normal) {
    const double first = normal();
    const double second = normal();
    if (!segment.errors) {
        return;
    }
    const SegmentErrors& errors = *segment.errors;
    const double with_first = errors.correlation * first +
                              std::sqrt(1 - errors.correlation * errors.correlation) * second;
    const double latency_us = to_us(segment.latency) + errors.latency_us * first;
    const double gb_per_s = to_gb_per_s(segment.bandwidth);
    // A fit that leaves more than a factor of e open says nothing, and no more than that is drawn.
    const double relative_error = std::min(errors.bandwidth_gb_per_s / gb_per_s, 1.0);
    // As wide as the files may say they are.
    constexpr double longest_latency_us = 1e6;
    segment.latency = duration_from_us(std::clamp(latency_us, 0.0, longest_latency_us));
    segment.bandwidth = bandwidth_from_gb_per_s(
        std::clamp(gb_per_s * std::exp(relative_error * with_first), 1e-6, 1e6));
}

std::int64_t drawn_slowdown(std::int64_t ppm, double error, double deviate) {
    constexpr double largest = 100;
    const double slowdown = static_cast<double>(ppm) * 1e-6 + error * deviate;
    return std::llround(1e6 * std::clamp(slowdown, 1.0, largest));
}

// What is wrong with the factors is wrong with them at every size.
void draw_interference(std::vector<InterferenceSegment>& segments, Normal& normal) {
    const double compute = normal();
    const double communication = normal();
    const double delay = normal();
    constexpr double longest_us = 1e6;
    for (InterferenceSegment& segment : segments) {
        const InterferenceErrors errors = segment.errors.value_or(InterferenceErrors{});
        Interference& slowdown = segment.slowdown;
        slowdown.compute_slowdown_ppm =
            drawn_slowdown(slowdown.compute_slowdown_ppm, errors.compute_slowdown, compute);
        slowdown.communication_slowdown_ppm = drawn_slowdown(
            slowdown.communication_slowdown_ppm, errors.communication_slowdown, communication);
        slowdown.start_delay = duration_from_us(std::clamp(
            to_us(slowdown.start_delay) + errors.start_delay_us * delay, 0.0, longest_us));
    }
}

void draw_link(LinkParameters& link, Normal& normal) {
    for (Segment& segment : link.segments) {
        draw_segment(segment, normal);
    }
    draw_interference(link.interference, normal);
    for (LinkParameters& tier : link.tiers) {
        draw_link(tier, normal);
    }
}

// Every choice's step in every draw.
struct Draws {
    std::vector<std::vector<Duration>> expected;  // [choice][draw]: parameters drawn
    std::vector<std::vector<Duration>> single;    // and varied
};

Draws draw_steps(const StepInput& input, const std::vector<SyncSettings>& choices) {
    const Variation variation = input.variation.value_or(Variation{});
    Draws result;
    result.expected.resize(choices.size());
    result.single.resize(choices.size());
    const auto plans = transformed(choices, [&](const SyncSettings& choice) {
        return make_plan(input.workload, choice.policy);
    });
    Normal normal(variation.seed);
    Program program;
    for (std::size_t draw = 0; draw < draws_of_interval; ++draw) {
        StepInput drawn = input;
        draw_link(drawn.link, normal);
        scale_computing(drawn, 1 + variation.compute_standard_error * normal());
        StepInput varied = drawn;
        vary_operations(varied, variation, normal);
        const StepBeforeClosing before_expected(drawn, choices.front());
        const StepBeforeClosing before_single(varied, choices.front());
        const StepToClose expected(before_expected);
        const StepToClose single(before_single);
        for (std::size_t i = 0; i < choices.size(); ++i) {
            build_closing(drawn, choices[i], plans[i], program);
            result.expected[i].push_back(expected.step_closed_by(program));
            build_closing(varied, choices[i], plans[i], program);
            vary_collectives(program, variation, normal);
            result.single[i].push_back(single.step_closed_by(program));
        }
    }
    return result;
}

bool has_errors(const LinkParameters& link) {
    const auto uncertain = [](const auto& segment) { return segment.errors.has_value(); };
    return std::any_of(link.segments.begin(), link.segments.end(), uncertain) ||
           std::any_of(link.interference.begin(), link.interference.end(), uncertain) ||
           std::any_of(link.tiers.begin(), link.tiers.end(), has_errors);
}

}  // namespace

bool is_uncertain(const StepInput& input) {
    return input.variation.has_value() || has_errors(input.link);
}

std::vector<StepConfidence> confidence_of(const StepInput& input,
                                          const std::vector<SyncSettings>& choices,
                                          double tolerance) {
    invariant(!choices.empty(), "there is a choice to be sure of");
    Draws steps = draw_steps(input, choices);
    std::vector<std::vector<double>> regrets(choices.size());
    for (std::size_t draw = 0; draw < draws_of_interval; ++draw) {
        Duration best = steps.expected.front()[draw];
        for (const std::vector<Duration>& choice : steps.expected) {
            best = std::min(best, choice[draw]);
        }
        for (std::size_t i = 0; i < choices.size(); ++i) {
            const auto over = static_cast<double>((steps.expected[i][draw] - best).count());
            regrets[i].push_back(best.count() > 0 ? over / static_cast<double>(best.count()) : 0.0);
        }
    }
    std::vector<StepConfidence> result;
    for (std::size_t i = 0; i < choices.size(); ++i) {
        const double expected = mean(regrets[i]);
        std::sort(steps.single[i].begin(), steps.single[i].end());
        std::sort(regrets[i].begin(), regrets[i].end());
        result.push_back({.low = sample_at(steps.single[i], tail),
                          .high = sample_at(steps.single[i], 1 - tail),
                          .expected_regret = expected,
                          .told_from_best = sample_at(regrets[i], seldom) > tolerance});
    }
    return result;
}

std::size_t least_expected_regret(const std::vector<std::optional<StepConfidence>>& rows,
                                  std::size_t fastest) {
    constexpr double noticeable = 1e-4;  // as a share
    const auto regrets = transformed(rows, [](const std::optional<StepConfidence>& confidence) {
        return confidence ? confidence->expected_regret : 1e300;
    });
    std::size_t least = fastest;
    for (std::size_t i = 0; i < regrets.size(); ++i) {
        least = regrets[i] + noticeable < regrets[least] ? i : least;
    }
    return least;
}

}  // namespace bucketwise
