#include "sim/predict/confidence.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "sim/base/statistics.h"
#include "sim/engine/step_loop.h"
#include "sim/engine/step_parts.h"
#include "sim/engine/varied_steps.h"
#include "sim/predict/drawn_link.h"
#include "sim/program/step_programs.h"

namespace bucketwise {
namespace {

constexpr std::size_t draws_of_interval = 200;
constexpr double tail = 0.025;  // on each side of an interval

// Steps by choice and draw, with parameters and variation drawn.
std::vector<std::vector<Duration>> draw_steps(const StepInput& input,
                                              const std::vector<SyncSettings>& choices) {
    const Variation variation = input.variation.value_or(Variation{});
    std::vector<std::vector<Duration>> steps(choices.size());
    const auto plans = transformed(choices, [&](const SyncSettings& choice) {
        return make_plan(input.workload, choice.policy);
    });
    Normal normal(variation.seed);
    Program program;
    for (std::size_t draw = 0; draw < draws_of_interval; ++draw) {
        StepInput drawn = input;
        drawn.link = drawn_link(drawn.link, drawn_deviates(drawn.link, normal));
        scale_computing(drawn, 1 + variation.compute_standard_error * normal());
        vary_operations(drawn, variation, normal);
        const StepBeforeClosing before(drawn, choices.front());
        const StepToClose step(before);
        for (std::size_t i = 0; i < choices.size(); ++i) {
            build_closing(drawn, choices[i], plans[i], program);
            vary_collectives(program, variation, normal);
            steps[i].push_back(step.step_closed_by(program));
        }
    }
    return steps;
}

bool is_fitted(const LinkParameters& link) {
    return has_segment_errors(link) ||
           (has_interference_errors(link) && !link.assumes_interference) ||
           std::any_of(link.tiers.begin(), link.tiers.end(), is_fitted);
}

// Infinite for rows without a confidence.
std::vector<double> expected_regrets(const std::vector<std::optional<StepConfidence>>& rows) {
    return transformed(rows, [](const std::optional<StepConfidence>& confidence) {
        return confidence ? confidence->regret.expected : 1e300;
    });
}

double octaves_from_default(Bytes cap) {
    return std::abs(
        std::log2(static_cast<double>(cap.count) / static_cast<double>(default_bucket_cap.count)));
}

}  // namespace

std::vector<StepConfidence> confidence_of(const StepInput& input,
                                          const std::vector<SyncSettings>& choices,
                                          double tolerance, double measuring_error,
                                          std::optional<std::size_t> standard) {
    ModelError error = model_error_of(input);
    error.measuring = measuring_error;
    auto result = transformed(drawn_regrets(input, choices, error, tolerance, standard),
                              [](const DrawnRegret& regret) {
                                  return StepConfidence{regret, {}};
                              });
    if (!input.variation && !is_fitted(input.link)) {
        return result;
    }
    std::vector<std::vector<Duration>> steps = draw_steps(input, choices);
    for (std::size_t i = 0; i < choices.size(); ++i) {
        std::sort(steps[i].begin(), steps[i].end());
        result[i].interval = {sample_at(steps[i], tail), sample_at(steps[i], 1 - tail)};
    }
    return result;
}

std::size_t least_expected_regret(const std::vector<std::optional<StepConfidence>>& rows,
                                  std::size_t fastest) {
    constexpr double noticeable = 5e-4;  // as a share; draws leave as much open
    const std::vector<double> expected = expected_regrets(rows);
    std::size_t least = fastest;
    for (std::size_t i = 0; i < expected.size(); ++i) {
        least = expected[i] + noticeable < expected[least] ? i : least;
    }
    return least;
}

std::size_t shortest_to_type(const std::vector<std::optional<StepConfidence>>& rows,
                             const std::vector<Cap>& caps, std::size_t chosen) {
    constexpr double cannot_be_told = 1e-3;  // as shares
    constexpr double worth_a_round_number = 5e-3;
    constexpr int digits_of_a_round_number = 3;
    if (!rows[chosen]) {
        return chosen;
    }
    const std::vector<double> expected = expected_regrets(rows);
    const double least = expected[chosen];
    const auto cap = [&](std::size_t row) { return caps[row].size().value_or(default_bucket_cap); };
    const auto rank = [&](std::size_t row) {
        return std::pair(digits_to_type(cap(row)), octaves_from_default(cap(row)));
    };
    for (std::size_t row = 0; row < rows.size(); ++row) {
        const bool candidate = expected[row] <= least + cannot_be_told;
        chosen = candidate && rank(row) < rank(chosen) ? row : chosen;
    }
    std::optional<std::size_t> round;
    for (std::size_t row = 0; row < rows.size(); ++row) {
        const bool candidate = digits_to_type(cap(row)) <= digits_of_a_round_number &&
                               expected[row] <= least + worth_a_round_number;
        round = candidate && (!round || expected[row] < expected[*round]) ? row : round;
    }
    return digits_to_type(cap(chosen)) > digits_of_a_round_number ? round.value_or(chosen) : chosen;
}

}  // namespace bucketwise
