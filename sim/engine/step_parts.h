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
    // With the buckets of `plan`, where they change anything of it (depends_on_plan). Throws
    // InputError when it could last longer than longest_duration.
    StepBeforeClosing(const StepInput& input, const SyncSettings& sync,
                      const BucketPlan& plan = {});

    // Nothing: the closing part is the whole step.
    explicit StepBeforeClosing(const StepLoop& loop) : loop_(loop) {}

    // So many micro-steps before the last, which the closing part is: the first one, then others
    // that are alike. Throws likewise.
    StepBeforeClosing(const StepLoop& loop, std::vector<RankClass> classes, Program first,
                      Program following, std::int64_t micro_steps);

    // The same with other collective costs. Throws likewise.
    void set_costs(const RankGroup& group, const LinkParameters& link);

    // The same with `change` applied to each program that runs, in order, and of other classes. How
    // long it can last, and its communication, is not looked at again.
    [[nodiscard]] StepBeforeClosing changed(const ProgramChange& change,
                                            const std::vector<RankClass>& classes) const;
    [[nodiscard]] StepBeforeClosing changed(const ProgramChange& change) const {
        return changed(change, classes_);
    }

    // What runs, in order, and how often each.
    void for_each_part(const std::function<void(const Program&, std::int64_t)>& use) const;

    // Moves each class of ranks on to its end.
    void run(std::vector<RankProgress>& progress) const;

    // Where each stands at its end, from `start`.
    [[nodiscard]] std::vector<RankProgress> simulate(const RankProgress& start = {}) const;

    [[nodiscard]] const std::vector<RankClass>& classes() const { return classes_; }
    [[nodiscard]] const StepLoop& loop() const { return loop_; }
    [[nodiscard]] std::int64_t instructions() const;
    [[nodiscard]] bool disturbs() const;

    // No execution of it can take longer.
    [[nodiscard]] double longest_possible_seconds() const;

    // What all its collectives take, each as long as alone.
    [[nodiscard]] Duration communication() const;

  private:
    template <typename Parts, typename Use>
    static void each_part(Parts& parts, const Use& use);
    [[nodiscard]] double sum_over_parts(double (*seconds_of)(const Program&)) const;

    Program opening_;
    Program first_micro_step_;
    Program micro_step_;  // from the second on they are alike
    Program last_forward_;
    std::int64_t accumulation_ = 1;
    double graph_launch_seconds_ = 0;
    double instruction_seconds_ = 0;  // of all but collectives, which do not disturb
    std::vector<RankClass> classes_;
    StepLoop loop_;
};

// What the collectives of one program take, each as long as alone.
Duration time_on_wire(const Program& program);

// Moves each class of ranks on through `times` executions of the program, one after another.
void run_classes(const Program& program, const std::vector<RankClass>& classes, std::int64_t times,
                 std::vector<RankProgress>& progress);

// The one that takes longest; the first of several.
const StepTimes& slowest_of(std::span<const RankProgress> progress);

}  // namespace bucketwise
