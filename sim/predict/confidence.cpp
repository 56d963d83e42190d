#include "sim/predict/confidence.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <numeric>
#include <utility>
#include <variant>

#include "sim/base/invariant.h"
#include "sim/base/statistics.h"
#include "sim/engine/step_loop.h"
#include "sim/engine/step_parts.h"
#include "sim/engine/varied_steps.h"
#include "sim/link/assumed_interference.h"
#include "sim/link/link_presets.h"
#include "sim/link/link_topology.h"
#include "sim/predict/drawn_link.h"

namespace bucketwise {
namespace {

constexpr int pairs_of_draws = 48;
constexpr int pairs_of_slow_draws = 12;  // if a step settles only by simulating many
constexpr double most_in_draws = 0.95;
constexpr Bytes few_bytes{4};
constexpr Bytes many_bytes = default_bucket_cap;

// The error that puts the ends of a preset two standard errors from its middle.
double error_between_ends(const LinkPreset& preset, const StepInput& input, Bytes bytes) {
    const RankGroup group{input.all_ranks(), input.group.ranks_per_node};
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
    LinkDeviates replicas;                     // of their link, if it is another
    std::optional<DrawnOverlap> overlap = {};  // where it is assumed
};

// The links of a step, drawn.
struct Links {
    LinkParameters ranks;
    LinkParameters replicas;

    [[nodiscard]] const LinkParameters& of(const CollectiveRanks& among) const {
        return among.joins_replicas() ? replicas : ranks;
    }
};

Links links_of(const StepInput& input) {
    return {input.link, input.replicas.group.ranks > 1 ? input.replicas.link : LinkParameters{}};
}

// A link has the same errors wherever it is used.
LinkDeviates deviates_of_replicas(const Links& links, const LinkDeviates& ranks, Normal& normal) {
    const bool is_another = links.replicas.segments != links.ranks.segments;
    return is_another && !links.replicas.segments.empty() ? drawn_deviates(links.replicas, normal)
                                                          : ranks;
}

Links drawn_links(const Links& links, const LinkDeviates& ranks, const LinkDeviates& replicas,
                  double sign) {
    return {drawn_link(links.ranks, ranks, sign), drawn_link(links.replicas, replicas, sign)};
}

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

Deviates drawn(const Links& links, const std::vector<double>& places, Normal& normal) {
    Deviates deviates{normal(),
                      normal(),
                      normal(),
                      normal(),
                      normal(),
                      along(places, normal),
                      std::vector<double>(places.size()),
                      {},
                      {}};
    deviates.link = drawn_deviates(links.ranks, normal);
    std::ranges::generate(deviates.measuring, std::ref(normal));
    deviates.replicas = deviates_of_replicas(links, deviates.link, normal);
    if (links.ranks.assumes_interference) {
        deviates.overlap = DrawnOverlap::drawn(normal);
    }
    return deviates;
}

// Applies a draw of errors to a part of the step. Backward's operations keep their total time,
// except for the error of `computing`.
class WrongModel {
  public:
    WrongModel(const StepInput& input, const ModelError& error)
        : input_(input), error_(error), refits_(has_segment_errors(input.link)) {
        for (const CollectiveKind kind : every<CollectiveKind>) {
            fixed_[static_cast<std::size_t>(kind)] = time_of_few_bytes(kind, {});
        }
        for (const TimedOperation& operation : input.workload.backward) {
            backward_ += operation.order.is_beside() ? Duration{0} : operation.device;
        }
    }

    // `sign` -1 gives the opposite draw.
    void apply(const Deviates& deviates, double sign, const Links& links, Program& program) const {
        const double computing = std::exp(error_.computing * (sign * deviates.computing));
        const double tilt = std::clamp(error_.readiness * (sign * deviates.readiness), -0.5, 0.5);
        const double fixed = std::exp(error_.link_fixed * (sign * deviates.link_fixed));
        const double bytes = std::exp(error_.link_bytes * (sign * deviates.link_bytes));
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
            } else if (instruction.kind == InstructionKind::forward) {
                instruction.device =
                    scaled(instruction.device, computing) + std::exchange(owed, Duration{0});
            }
        }
        for (Collective& collective : program.collectives) {
            const CollectiveRanks& among = collective.among;
            const LinkParameters& link = links.of(among);
            collective.time -= collective.copying;
            if (refits_) {
                collective.time = collective_time(collective.kind, collective.bytes,
                                                  input_.group_of(among), link);
            }
            const Duration few =
                std::min(among.are_all() ? fixed_[static_cast<std::size_t>(collective.kind)]
                                         : time_of_few_bytes(collective.kind, among),
                         collective.time);
            collective.time =
                collective.copying + scaled(few, fixed) + scaled(collective.time - few, bytes);
            if (!deviates.overlap) {
                collective.interference = interference_for(collective.kind, link, collective.bytes);
            }
        }
        if (deviates.overlap) {
            (sign > 0 ? *deviates.overlap : deviates.overlap->opposite()).apply(program);
        }
    }

  private:
    [[nodiscard]] Duration time_of_few_bytes(CollectiveKind kind,
                                             const CollectiveRanks& among) const {
        const LinkParameters& link = input_.link_of(among);
        const OwnNumbers* own = own_numbers(kind, link);
        const bool measured = own != nullptr && !own->segments.empty();
        return collective_time(measured ? kind : CollectiveKind::all_reduce, few_bytes,
                               input_.group_of(among), link);
    }

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

std::int64_t instructions_of(const std::vector<OpenedStep>& opened) {
    std::int64_t sum = 1;
    for (const OpenedStep& step : opened) {
        sum += step.instructions();
    }
    return sum;
}

// Sharded settings have a step each, and a thousand layers have tens of thousands of instructions.
int pairs_for(const std::vector<OpenedStep>& opened, bool is_fast, bool is_sharded) {
    constexpr std::int64_t most_instructions = 5'000'000;
    constexpr std::int64_t fewest = 4;
    const int pairs = is_fast ? pairs_of_draws : pairs_of_slow_draws;
    return is_sharded ? static_cast<int>(std::clamp<std::int64_t>(
                            most_instructions / (2 * instructions_of(opened)), fewest, pairs))
                      : pairs;
}

Duration length_of(const StepToClose& step, const Program& closing, bool is_paced) {
    return is_paced ? step.paced_step(closing) : step.step_closed_by(closing);
}

// `closing` is already changed, the parts before it are not.
Duration changed_length(const OpenedStep& opened, const Program& closing, bool is_paced,
                        const ProgramChange& change) {
    if (!opened.owns_before) {
        return length_of(*opened.step, closing, is_paced);
    }
    const StepBeforeClosing before = opened.before->changed(change);
    return length_of(StepToClose(before), closing, is_paced);
}

}  // namespace

ModelError model_error_of(const StepInput& input) {
    ModelError error;
    error.plan /=
        static_cast<double>(input.step.accumulation);  // no plan changes the passes before
    // For each bucket more V100s lost 10 and 44 us on one GPU, 35 to 140 on several.
    constexpr double of_gpus_us = 25;
    if (joins_gpus(input.link) && !input.workload.host_is_device &&
        !input.link.assumes_interference) {
        error.collective_us = of_gpus_us;
    }
    const LinkPreset* preset = input.link.preset.empty() ? nullptr : find_preset(input.link.preset);
    if (preset != nullptr && input.all_ranks() > 1) {
        error.link_fixed =
            std::max(error.link_fixed, error_between_ends(*preset, input, few_bytes));
        error.link_bytes =
            std::max(error.link_bytes, error_between_ends(*preset, input, many_bytes));
    }
    return error;
}

std::vector<DrawnRegret> drawn_regrets(const StepInput& input, const std::vector<Setting>& choices,
                                       const ModelError& error, double tolerance,
                                       std::optional<std::size_t> standard) {
    invariant(!choices.empty(), "there is a choice");
    const WrongModel model(input, error);
    Links links = links_of(input);
    for (LinkParameters* link : {&links.ranks, &links.replicas}) {
        *link = with_declared_errors(*link, error.interference);
    }
    std::vector<OpenedStep> opened;
    open_steps(planned(input, choices), input, opened);
    const std::vector<double> places =
        transformed(opened, [](const OpenedStep& step) { return place_of(step.closing); });
    const auto paced = transformed(opened, [&](const OpenedStep& one) {
        return one.step->is_paced_by_one(one.closing) ? 1 : 0;
    });
    const int pairs = pairs_for(opened, std::ranges::count(paced, 0) == 0,
                                std::holds_alternative<ShardingRequest>(choices.front()));
    Normal normal(input.variation.value_or(Variation{}).seed);
    std::vector<std::vector<double>> regrets(choices.size());
    std::vector<std::vector<double>> saved(choices.size());
    std::vector<Duration> steps(choices.size());
    Program program;
    for (int pair = 0; pair < pairs; ++pair) {
        const Deviates deviates = drawn(links, places, normal);
        for (const double sign : {1.0, -1.0}) {
            const Links wrong = drawn_links(links, deviates.link, deviates.replicas, sign);
            const auto change = [&](Program part) {
                model.apply(deviates, sign, wrong, part);
                return part;
            };
            for (std::size_t i = 0; i < choices.size(); ++i) {
                program = opened[i].closing;
                model.apply(deviates, sign, wrong, program);
                const Duration length = changed_length(opened[i], program, paced[i] != 0, change);
                steps[i] =
                    scaled(length, std::exp(error.plan * (sign * deviates.plans[i]) +
                                            error.measuring * (sign * deviates.measuring[i])));
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

namespace {

constexpr std::int64_t draws_of_interval = 200;
constexpr double tail = 0.025;  // on each side of an interval

// Steps by choice and draw, with parameters and variation drawn.
std::vector<std::vector<Duration>> draw_steps(const StepInput& input,
                                              const std::vector<Setting>& choices) {
    const Variation variation = input.variation.value_or(Variation{});
    std::vector<std::vector<Duration>> steps(choices.size());
    const std::vector<PlannedSetting> settings = planned(input, choices);
    const Links links = links_of(input);
    Normal normal(variation.seed);
    std::vector<OpenedStep> opened;
    std::int64_t draws = draws_of_interval;
    for (std::int64_t draw = 0; draw < draws; ++draw) {
        StepInput drawn = input;
        const LinkDeviates deviates = drawn_deviates(links.ranks, normal);
        Links other =
            drawn_links(links, deviates, deviates_of_replicas(links, deviates, normal), 1);
        drawn.link = std::move(other.ranks);
        drawn.replicas.link = std::move(other.replicas);
        scale_computing(drawn, 1 + variation.compute_standard_error * normal());
        vary_operations(drawn, variation, normal);
        open_steps(settings, drawn, opened);
        if (!settings.front().shares_before()) {
            constexpr std::int64_t most_instructions = 10'000'000;
            constexpr std::int64_t fewest = 20;
            draws = std::clamp(most_instructions / instructions_of(opened), fewest, draws);
        }
        for (std::size_t i = 0; i < choices.size(); ++i) {
            vary_collectives(opened[i].closing, variation, normal);
            steps[i].push_back(opened[i].step->step_closed_by(opened[i].closing));
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
                                          const std::vector<Setting>& choices, double tolerance,
                                          double measuring_error,
                                          std::optional<std::size_t> standard) {
    ModelError error = model_error_of(input);
    error.measuring = measuring_error;
    if (std::holds_alternative<ShardingRequest>(choices.front())) {
        error.plan = ModelError{}.plan;  // settings change all passes
    }
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
