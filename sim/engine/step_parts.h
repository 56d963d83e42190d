// A step in its parts: what no bucket plan changes is simulated once, and each plan's closing part
// from there.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "sim/engine/engine.h"
#include "sim/plan/strategy.h"
#include "sim/program/program.h"
#include "sim/program/step_programs.h"

namespace bucketwise {

// Throws InputError for a step that could last longer than longest_duration.
void check_length(double longest_possible_seconds);

using ProgramChange = std::function<Program(Program)>;  // empty: none

// All that comes before the last backward: broadcasts, all micro-steps but the last, and the last
// one's forward.
class StepBeforeClosing {
  public:
    // Throws InputError when it could last longer than longest_duration.
    StepBeforeClosing(const StepInput& input, const SyncSettings& sync);

    // The same with other collective costs. Throws likewise.
    void set_costs(const RankGroup& group, const LinkParameters& link);

    // Where each class of ranks stands at its end, `change` applied to each program first.
    [[nodiscard]] std::vector<RankProgress> simulate(const ProgramChange& change = {}) const {
        return simulate(change, classes_);
    }
    // The same of other classes.
    [[nodiscard]] std::vector<RankProgress> simulate(const ProgramChange& change,
                                                     const std::vector<RankClass>& classes) const;

    [[nodiscard]] const std::vector<RankClass>& classes() const { return classes_; }

    // No execution of it can take longer.
    [[nodiscard]] double longest_possible_seconds() const;

    // What all its collectives take, each as long as alone.
    [[nodiscard]] Duration communication() const;

  private:
    [[nodiscard]] double sum_over_parts(double (*seconds_of)(const Program&)) const;

    Program opening_;
    Program first_micro_step_;
    Program micro_step_;  // from the second on they are alike
    Program last_forward_;
    std::int64_t accumulation_;
    double graph_launch_seconds_;
    double instruction_seconds_ = 0;  // of all but collectives, which do not disturb
    std::vector<RankClass> classes_;
};

// What the collectives of one program take, each as long as alone.
Duration time_on_wire(const Program& program);

// The one that takes longest; the first of several.
const StepTimes& slowest_of(std::span<const RankProgress> progress);

// From where StepBeforeClosing ended, the step that ends with `closing`, which build_closing()
// gave, as the slowest rank sees it.
StepTimes close_step(const Program& closing, const std::vector<RankClass>& classes,
                     std::vector<RankProgress> progress);

// Steps that differ in their closing part only: all before it is simulated once.
class StepToClose {
  public:
    explicit StepToClose(const StepBeforeClosing& before)
        : longest_seconds_(before.longest_possible_seconds()),
          classes_(before.classes()),
          progress_(before.simulate()) {}

    // The step that ends with `closing`, as the slowest rank sees it. Throws InputError when it
    // could last longer than longest_duration.
    [[nodiscard]] StepTimes closed_by(const Program& closing) const;

    // Where each class of ranks stands when the closing part begins.
    [[nodiscard]] const std::vector<RankProgress>& progress() const { return progress_; }

  private:
    double longest_seconds_;  // of what comes before
    std::vector<RankClass> classes_;
    std::vector<RankProgress> progress_;
};

}  // namespace bucketwise
