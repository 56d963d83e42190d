#include "sim/predict/model_error.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>

#include "sim/base/invariant.h"
#include "sim/base/statistics.h"
#include "sim/engine/step_loop.h"
#include "sim/engine/step_parts.h"
#include "sim/engine/varied_steps.h"
#include "sim/link/assumed_interference.h"
#include "sim/link/link_presets.h"
#include "sim/link/link_topology.h"
#include "sim/predict/drawn_link.h"
#include "sim/program/step_programs.h"

namespace bucketwise {
namespace {

constexpr int pairs_of_draws = 48;
constexpr int pairs_of_slow_draws = 12;  // if a step settles only by simulating many
constexpr double most_in_draws = 0.95;
constexpr Bytes few_bytes{4};
constexpr Bytes many_bytes = default_bucket_cap;

// The error that puts the ends of a preset two standard errors from its middle.
double error_between_ends(const LinkPreset& preset, const StepInput& input, Bytes bytes) {
    const RankGroup& group = input.group;
    const auto time = [&](PresetEnd end) {
        LinkParameters link = preset_end(preset, end, input.link);
        return to_us(collective_time(CollectiveKind::all_reduce, bytes, group, link));
    };
    constexpr double standard_errors = 4;
    const double fast = time(PresetEnd::fast);
    return fast > 0 ? std::log(time(PresetEnd::slow) / fast) / standard_errors : 0.0;
}

// One draw of all errors, in standard errors.
struct Deviates {
    double computing = 0;
    double readiness = 0;
    double link_fixed = 0;
    double link_bytes = 0;
    double collective = 0;
    std::vector<double> plans;  // by choice
    std::vector<double> measuring;
    LinkDeviates link;
};

// The place of a choice's plan: the binary logarithm of its largest bucket.
double place_of(const Program& program) {
    double largest = 1;
    for (const Collective& collective : program.collectives) {
        largest = std::max(largest, static_cast<double>(collective.bytes.count));
    }
    return std::log2(largest);
}

// Normal deviates whose correlation halves with every step of one between places: a stationary
// autoregression along them (Ornstein and Uhlenbeck 1930).
std::vector<double> along(const std::vector<double>& places, Normal& normal) {
    std::vector<std::size_t> order(places.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::sort(order, {}, [&](std::size_t i) { return places[i]; });
    std::vector<double> deviates(places.size());
    for (std::size_t k = 0; k < order.size(); ++k) {
        const double shared = k == 0 ? 0.0 : std::exp2(places[order[k - 1]] - places[order[k]]);
        deviates[order[k]] = (k == 0 ? 0.0 : shared * deviates[order[k - 1]]) +
                             std::sqrt(1 - shared * shared) * normal();
    }
    return deviates;
}

Deviates drawn(const LinkParameters& link, const std::vector<double>& places, Normal& normal) {
    Deviates deviates{normal(),
                      normal(),
                      normal(),
                      normal(),
                      normal(),
                      along(places, normal),
                      std::vector<double>(places.size()),
                      drawn_deviates(link, normal)};
    for (double& one : deviates.measuring) {
        one = normal();
    }
    return deviates;
}

Deviates opposite(Deviates deviates) {
    for (double* one : {&deviates.computing, &deviates.readiness, &deviates.link_fixed,
                        &deviates.link_bytes, &deviates.collective}) {
        *one = -*one;
    }
    for (auto* by_choice : {&deviates.plans, &deviates.measuring}) {
        for (double& one : *by_choice) {
            one = -one;
        }
    }
    deviates.link = opposite(std::move(deviates.link));
    return deviates;
}

// Applies a draw of errors to a closing part. Backward's operations keep their total time, except
// for the error of `computing`.
class WrongModel {
  public:
    WrongModel(const StepInput& input, const ModelError& error)
        : input_(input), error_(error), refits_(has_segment_errors(input.link)) {
        for (const CollectiveKind kind : every<CollectiveKind>) {
            const OwnNumbers* own = own_numbers(kind, input.link);
            const bool measured = own != nullptr && !own->segments.empty();
            fixed_[static_cast<std::size_t>(kind)] = collective_time(
                measured ? kind : CollectiveKind::all_reduce, few_bytes, input.group, input.link);
        }
        for (const TimedOperation& operation : input.workload.backward) {
            backward_ += operation.order.is_beside() ? Duration{0} : operation.device;
        }
    }

    void apply(const Deviates& deviates, const LinkParameters& link, Program& program) const {
        const double computing = std::exp(error_.computing * deviates.computing);
        const double tilt = std::clamp(error_.readiness * deviates.readiness, -0.5, 0.5);
        const double fixed = std::exp(error_.link_fixed * deviates.link_fixed);
        const double bytes = std::exp(error_.link_bytes * deviates.link_bytes);
        const auto whole = static_cast<double>(std::max(backward_, Duration{1}).count());
        const Duration costs =
            duration_from_us(error_.collective_us * std::abs(deviates.collective));
        Duration before{0};
        Duration owed{0};
        for (Instruction& instruction : program.instructions) {
            if (instruction.kind == InstructionKind::launch) {
                owed += costs;
            } else if (instruction.kind == InstructionKind::backward &&
                       !instruction.order.is_beside()) {
                const Duration device = instruction.device;
                const double middle = static_cast<double>((before + device / 2).count()) / whole;
                instruction.device = scaled(device, computing * (1 + tilt * (2 * middle - 1))) +
                                     std::exchange(owed, Duration{0});
                before += device;
            }
        }
        for (Collective& collective : program.collectives) {
            if (refits_) {
                collective.time =
                    collective_time(collective.kind, collective.bytes, input_.group, link);
            }
            const Duration few =
                std::min(fixed_[static_cast<std::size_t>(collective.kind)], collective.time);
            collective.time = scaled(few, fixed) + scaled(collective.time - few, bytes);
            collective.interference = interference_for(collective.kind, link, collective.bytes);
        }
    }

  private:
    const StepInput& input_;
    const ModelError& error_;
    bool refits_;
    std::array<Duration, every<CollectiveKind>.size()> fixed_{};  // of few bytes, by kind
    Duration backward_{0};
};

double saved_of(Duration standard, Duration step) {
    return standard.count() > 0 ? static_cast<double>((standard - step).count()) /
                                      static_cast<double>(standard.count())
                                : 0.0;
}

}  // namespace

ModelError model_error_of(const StepInput& input) {
    ModelError error;
    error.plan /=
        static_cast<double>(input.step.accumulation);  // no plan changes the passes before
    // For each bucket more V100s lost 10 and 44 us on one GPU, 35 to 140 on several.
    constexpr double of_gpus_us = 25;
    if (joins_gpus(input.link) && !input.workload.host_is_device) {
        error.collective_us = of_gpus_us;
    }
    const LinkPreset* preset = input.link.preset.empty() ? nullptr : find_preset(input.link.preset);
    if (preset != nullptr && input.group.ranks > 1) {
        error.link_fixed =
            std::max(error.link_fixed, error_between_ends(*preset, input, few_bytes));
        error.link_bytes =
            std::max(error.link_bytes, error_between_ends(*preset, input, many_bytes));
    }
    return error;
}

std::vector<DrawnRegret> drawn_regrets(const StepInput& input,
                                       const std::vector<SyncSettings>& choices,
                                       const ModelError& error, double tolerance,
                                       std::optional<std::size_t> standard) {
    invariant(!choices.empty(), "there is a choice");
    const WrongModel model(input, error);
    const LinkParameters link = with_declared_errors(input.link, error.interference);
    const auto programs = transformed(choices, [&](const SyncSettings& choice) {
        Program program;
        build_closing(input, choice, make_plan(input.workload, choice.policy), program);
        return program;
    });
    const std::vector<double> places = transformed(programs, place_of);
    const StepBeforeClosing before(input, choices.front());
    const StepToClose step(before);
    const auto paced = transformed(
        programs, [&](const Program& closing) { return step.is_paced_by_one(closing) ? 1 : 0; });
    const int pairs = std::ranges::count(paced, 0) == 0 ? pairs_of_draws : pairs_of_slow_draws;
    Normal normal(input.variation.value_or(Variation{}).seed);
    std::vector<std::vector<double>> regrets(choices.size());
    std::vector<std::vector<double>> saved(choices.size());
    std::vector<Duration> steps(choices.size());
    Program program;
    for (int pair = 0; pair < pairs; ++pair) {
        Deviates deviates = drawn(link, places, normal);
        for (int side = 0; side < 2; ++side, deviates = opposite(std::move(deviates))) {
            const LinkParameters wrong = drawn_link(link, deviates.link);
            for (std::size_t i = 0; i < choices.size(); ++i) {
                program = programs[i];
                model.apply(deviates, wrong, program);
                const Duration length =
                    paced[i] != 0 ? step.paced_step(program) : step.step_closed_by(program);
                steps[i] = scaled(length, std::exp(error.plan * deviates.plans[i] +
                                                   error.measuring * deviates.measuring[i]));
            }
            const Duration best = *std::ranges::min_element(steps);
            for (std::size_t i = 0; i < choices.size(); ++i) {
                const auto over = static_cast<double>((steps[i] - best).count());
                regrets[i].push_back(best.count() > 0 ? over / static_cast<double>(best.count())
                                                      : 0.0);
                saved[i].push_back(saved_of(steps[standard.value_or(i)], steps[i]));
            }
        }
    }
    std::vector<DrawnRegret> result;
    for (std::size_t i = 0; i < choices.size(); ++i) {
        result.push_back({mean(regrets[i]), quantile(regrets[i], most_in_draws),
                          quantile(regrets[i], 1 - most_in_draws) > tolerance});
        if (standard) {
            result.back().saved = {quantile(saved[i], (1 - most_in_draws) / 2),
                                   quantile(saved[i], (1 + most_in_draws) / 2)};
        }
    }
    return result;
}

}  // namespace bucketwise
