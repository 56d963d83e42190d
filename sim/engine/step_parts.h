// A step in parts: the parts that no bucket plan changes are simulated once, and each plan's
// closing part from there.
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

// The parts before the last backward: broadcasts, all micro-steps but the last, and the last
// forward.
class StepBeforeClosing {
  public:
    // `plan` matters where depends_on_plan() says so. Throws InputError if it could last longer
    // than longest_duration, and so do the constructor of micro-steps and set_costs().
    StepBeforeClosing(const StepInput& input, const SyncSettings& sync,
                      const BucketPlan& plan = {});

    // Empty: the closing part is the whole step.
    explicit StepBeforeClosing(const StepLoop& loop) : loop_(loop) {}

    // Micro-steps before the closing part: the first one, then equal ones.
    StepBeforeClosing(const StepLoop& loop, std::vector<RankClass> classes, Program first,
                      Program following, std::int64_t micro_steps);

    // Changes the costs of collectives.
    void set_costs(const StepInput& input);

    // With `change` applied to each program in order, and other classes. Does not check the length
    // again.
    [[nodiscard]] StepBeforeClosing changed(const ProgramChange& change,
                                            const std::vector<RankClass>& classes) const;
    [[nodiscard]] StepBeforeClosing changed(const ProgramChange& change) const {
        return changed(change, classes_);
    }

    // The programs in order, and how often each runs.
    void for_each_part(const std::function<void(const Program&, std::int64_t)>& use) const;

    // Moves each class of ranks on to its end.
    void run(std::vector<RankProgress>& progress) const;

    // Where each class stands at the end, from `start`.
    [[nodiscard]] std::vector<RankProgress> simulate(const RankProgress& start = {}) const;

    [[nodiscard]] const std::vector<RankClass>& classes() const { return classes_; }
    [[nodiscard]] const StepLoop& loop() const { return loop_; }
    [[nodiscard]] std::int64_t instructions() const;
    [[nodiscard]] bool disturbs() const;

    // An upper bound of its duration.
    [[nodiscard]] double longest_possible_seconds() const;

    // The time of all its collectives, each alone.
    [[nodiscard]] Duration communication() const;

  private:
    void check_parts();
    template <typename Parts, typename Use>
    static void each_part(Parts& parts, const Use& use);
    [[nodiscard]] double sum_over_parts(double (*seconds_of)(const Program&)) const;

    Program opening_;
    Program first_micro_step_;
    Program micro_step_;  // each from the second on
    Program last_forward_;
    std::int64_t accumulation_ = 1;
    double graph_launch_seconds_ = 0;
    double instruction_seconds_ = 0;  // without collectives and interference
    std::vector<RankClass> classes_;
    StepLoop loop_;
};

// The time of a program's collectives, each alone.
Duration time_on_wire(const Program& program);

// Moves each class of ranks on through `times` executions of the program, one after another.
void run_classes(const Program& program, const std::vector<RankClass>& classes, std::int64_t times,
                 std::vector<RankProgress>& progress);

// The first of the longest.
const StepTimes& slowest_of(std::span<const RankProgress> progress);

}  // namespace bucketwise
