#include "sim/predict/percentiles.h"

#include <algorithm>
#include <optional>

#include "sim/base/invariant.h"
#include "sim/base/statistics.h"
#include "sim/engine/step_loop.h"
#include "sim/engine/step_parts.h"
#include "sim/engine/varied_steps.h"

namespace bucketwise {
namespace {

// The draw of one step, for every plan.
struct Draw {
    std::vector<double> forward;  // factor of each operation
    std::vector<double> backward;
    std::vector<RankClass> classes;
    double optimizer = 1;
    std::vector<double> collectives;  // factor of the k-th collective of the closing part
};

class DrawnSteps {
  public:
    DrawnSteps(const StepInput& input, const std::vector<Setting>& choices)
        : input_(input),
          variation_(input.variation.value_or(Variation{})),
          normal_(variation_.seed) {
        open_steps(planned(input, choices), input, opened_);
        for (const OpenedStep& one : opened_) {
            most_collectives_ = std::max(most_collectives_, one.closing.collectives.size());
            check(one);
            if (!one.before->loop().starts_idle) {
                loops_.push_back(RunningLoop(*one.before, one.closing));
            }
        }
    }

    // One step with each choice.
    void next(std::vector<Duration>& steps) {
        draw();
        const auto vary_early = [this](Program program) {
            vary_instructions(program);
            vary_collectives(program, variation_, normal_);
            return program;
        };
        const Normal same = normal_;
        std::optional<StepBeforeClosing> before;
        std::vector<RankProgress> from_idle;
        for (std::size_t i = 0; i < opened_.size(); ++i) {
            const bool starts_idle = opened_[i].before->loop().starts_idle;
            if (i == 0 || opened_[i].before != opened_[i - 1].before) {
                normal_ = same;
                before = opened_[i].before->changed(vary_early, draw_.classes);
                if (starts_idle) {
                    from_idle = before->simulate();
                }
            }
            program_ = opened_[i].closing;
            vary_instructions(program_);
            for (std::size_t k = 0; k < program_.collectives.size(); ++k) {
                Duration& time = program_.collectives[k].time;
                time = scaled(time, draw_.collectives[k]);
            }
            steps[i] = starts_idle ? closed_step(program_, draw_.classes, from_idle)
                                   : loops_[i].next(*before, program_);
        }
    }

  private:
    // An upper bound of all draws: deviates lie within 4 sigmas, the slowest rank's within 40.
    void check(const OpenedStep& one) const {
        const double computing = (1 + 4 * variation_.compute_spread) *
                                 (1 + 4 * variation_.operation_spread) *
                                 variation_.straggler_slowdown * (1 + 40 * variation_.rank_spread);
        check_length((1 + 4 * variation_.collective_spread) * computing *
                     (one.before->longest_possible_seconds() +
                      largest_slowdown(input_.classes) * longest_possible_seconds(one.closing)));
    }

    void draw() {
        const double whole = 1 + variation_.compute_spread * normal_();
        const auto draw_operations = [&](std::vector<double>& factors, std::size_t count) {
            factors.resize(count);
            for (double& factor : factors) {
                factor = std::max(whole, 0.0) *
                         std::max(1 + variation_.operation_spread * normal_(), 0.0);
            }
        };
        draw_operations(draw_.forward, input_.workload.forward.size());
        draw_operations(draw_.backward, input_.workload.backward.size());
        draw_.optimizer = whole;
        draw_.classes = varied_classes(input_.classes, input_.all_ranks(), variation_, normal_);
        draw_.collectives.resize(most_collectives_);
        for (double& factor : draw_.collectives) {
            factor = 1 + variation_.collective_spread * normal_();
        }
    }

    void vary_instructions(Program& program) const {
        for (Instruction& instruction : program.instructions) {
            const auto subject = static_cast<std::size_t>(instruction.subject);
            const double factor =
                instruction.kind == InstructionKind::forward    ? draw_.forward[subject]
                : instruction.kind == InstructionKind::backward ? draw_.backward[subject]
                : instruction.kind == InstructionKind::optimizer ||
                        instruction.kind == InstructionKind::clip
                    ? draw_.optimizer
                    : 1.0;
            if (factor != 1.0 && !instruction.order.is_beside()) {
                instruction.device = scaled(instruction.device, factor);
            }
        }
    }

    const StepInput& input_;
    Variation variation_;
    Normal normal_;
    std::vector<OpenedStep> opened_;  // by choice
    std::vector<RunningLoop> loops_;  // by choice, if steps do not start from idle
    std::size_t most_collectives_ = 0;
    Draw draw_;
    Program program_;
};

// The least; of equal ones preferably the one at `preferred`.
std::size_t least(const std::vector<PercentileRow>& rows, Duration StepPercentiles::*percentile,
                  std::size_t preferred) {
    for (std::size_t i = 0; i < rows.size(); ++i) {
        preferred = rows[i].steps.*percentile < rows[preferred].steps.*percentile ? i : preferred;
    }
    return preferred;
}

}  // namespace

std::vector<StepPercentiles> percentiles_of(const StepInput& input,
                                            const std::vector<Setting>& choices,
                                            std::int64_t draws) {
    invariant(!choices.empty() && draws > 0, "there is a choice and a draw");
    DrawnSteps drawn(input, choices);
    std::vector<std::vector<Duration>> by_choice(choices.size());
    std::vector<Duration> steps(choices.size());
    for (std::int64_t i = 0; i < draws; ++i) {
        drawn.next(steps);
        for (std::size_t k = 0; k < choices.size(); ++k) {
            by_choice[k].push_back(steps[k]);
        }
    }
    std::vector<StepPercentiles> result;
    for (std::vector<Duration>& sorted : by_choice) {
        std::sort(sorted.begin(), sorted.end());
        result.push_back({.p50 = sample_at(sorted, 0.50),
                          .p90 = sample_at(sorted, 0.90),
                          .p95 = sample_at(sorted, 0.95),
                          .p99 = sample_at(sorted, 0.99)});
    }
    return result;
}

PercentileTable percentile_table(const StepInput& input, const SyncRequest& request,
                                 const Prediction& prediction, std::int64_t draws) {
    PercentileTable table;
    table.draws = draws;
    std::vector<Setting> choices;
    const auto add = [&](const Evaluation& row, const SyncRequest& replicated) {
        table.rows.push_back({.cap = row.cap});
        if (row.sharded) {
            table.rows.back().sharding = row.sharded->request;
            choices.emplace_back(row.sharded->request);
        } else {
            choices.emplace_back(settings_for(replicated, input));
        }
    };
    for (const std::size_t row : rows_that_matter(prediction)) {
        const Evaluation& evaluation = prediction.sweep[row];
        if (row == prediction.best) {
            table.chosen = table.rows.size();
        }
        add(evaluation, with_cap(request, evaluation.cap));
    }
    add(prediction.default_cap, without_caps(request));
    if (prediction.default_is_fastest) {
        table.chosen = table.default_row();
    }
    const std::vector<StepPercentiles> percentiles = percentiles_of(input, choices, draws);
    for (std::size_t i = 0; i < table.rows.size(); ++i) {
        table.rows[i].steps = percentiles[i];
    }
    table.best_p50 = least(table.rows, &StepPercentiles::p50, table.chosen);
    table.best_p99 = least(table.rows, &StepPercentiles::p99, table.chosen);
    return table;
}

}  // namespace bucketwise
