// A step as one of many: the period of a settled loop.
//
// A GPU's host issues a step while the device still runs earlier ones, and waits for the device
// only when its launch queue is full. With a queue longer than a step, the slower of host and
// device sets the pace: the period is the host's time to issue a step, or the device's time to run
// an issued step, whichever is longer. The phases of such a step, and steps that fill the queue,
// come from running one step after another until two are alike; so do steps whose host waits within
// the step, or whose streams wait for one another. A host that waits for the device at the end of
// every step starts each step from idle.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/base/units.h"
#include "sim/engine/engine.h"
#include "sim/engine/step_parts.h"
#include "sim/program/program.h"

namespace bucketwise {

// Steps that differ in their closing part.
class StepToClose {
  public:
    // `before` must outlive it.
    explicit StepToClose(const StepBeforeClosing& before);

    // The slowest rank's settled step that ends with `closing` (build_closing()); if 64 steps do
    // not settle, the mean of the last 32. Throws InputError if it could exceed longest_duration.
    [[nodiscard]] StepTimes closed_by(const Program& closing) const;

    // Its length.
    [[nodiscard]] Duration step_closed_by(const Program& closing) const;
    // Whether the slower of host and device sets the pace; paced_step() is then the length of this
    // step and of steps that differ little from it.
    [[nodiscard]] bool is_paced_by_one(const Program& closing) const;
    [[nodiscard]] Duration paced_step(const Program& closing) const;
    // closed_by() without its check.
    [[nodiscard]] StepTimes settled(const Program& closing) const;

    // Where each class of ranks stands when the settled step begins: the last device ends the step
    // before at 0.
    [[nodiscard]] std::vector<RankProgress> start_of(const Program& closing) const;

    // Whether the host may wait for the device within a step, for an instruction or for room in its
    // launch queue, or one stream for another.
    [[nodiscard]] bool something_may_wait(const Program& closing) const;

    // Where each class stands when the closing part begins: from idle, or with hosts that are far
    // ahead. Where hosts or streams wait, this leaves out waits and interference, which gives lower
    // bounds.
    [[nodiscard]] const std::vector<RankProgress>& progress() const { return progress_; }

  private:
    // An instruction on a device that never waits for its host.
    struct Issued {
        Duration host{0};
        Duration end{0};  // on the device
    };
    // The step from progress_.
    struct Device {
        StepTimes times;
        Duration issuing{0};            // host time of the step
        std::int64_t queue = 0;         // length of the launch queue
        std::vector<Issued> step = {};  // if few instructions, and the launch queue may fill
        [[nodiscard]] bool waits_for_host() const { return issuing > times.step(); }
    };
    [[nodiscard]] bool queue_may_fill(const Program& closing) const;
    [[nodiscard]] std::int64_t queue_length(const Program& closing) const;
    [[nodiscard]] std::int64_t kept_queue(const Program& closing) const;
    [[nodiscard]] std::int64_t instructions_with(const Program& closing) const;
    // Whether each step depends on the one before, so that steps must be run.
    [[nodiscard]] bool is_coupled() const;
    [[nodiscard]] Device device(const Program& closing) const;
    [[nodiscard]] static bool stays_ahead(const Device& device);
    [[nodiscard]] bool must_be_run(const Program& closing, const Device& device) const;
    enum class Wanted : std::uint8_t { times, length_only };
    [[nodiscard]] StepTimes settled(const Program& closing, Wanted wanted) const;
    void check(const Program& closing) const;
    struct Settled {
        std::vector<RankProgress> start;
        StepTimes times = {};
    };
    [[nodiscard]] Settled settle(const Program& closing, bool from_idle,
                                 SideStreams behind = {}) const;
    [[nodiscard]] Settled settle_coupled(const Program& closing) const;
    // The time of one step on the host, and on each side stream.
    [[nodiscard]] Duration issuing(const Program& closing) const;
    [[nodiscard]] std::vector<Duration> work_beside(const Program& closing) const;
    void run_step(const Program& closing, std::vector<RankProgress>& progress) const;

    const StepBeforeClosing& before_;
    double longest_seconds_;  // of the parts before
    std::vector<RankProgress> progress_;
    std::vector<Issued> issued_;  // the parts before, if few instructions and equal ranks
};

// Different steps one after another, from a settled one on.
class RunningLoop {
  public:
    // `closing` as in StepToClose. Precondition: steps do not start from idle.
    RunningLoop(const StepBeforeClosing& before, const Program& closing);

    // How much later the last device ends this step than the one before. Both have as many classes
    // of ranks, or one of them has equal ranks.
    Duration next(const StepBeforeClosing& before, const Program& closing);

  private:
    std::vector<RankProgress> progress_;
};

// The slowest rank's step that ends with `closing`, from the end of StepBeforeClosing from idle.
Duration closed_step(const Program& closing, const std::vector<RankClass>& classes,
                     std::vector<RankProgress> progress);

// The settled step of a whole program, and where it begins.
StepTimes settled_times(const Program& program, const StepLoop& loop);
RankProgress settled_start(const Program& program, const StepLoop& loop);
// The settled step with its timeline.
Simulation settled_simulation(const Program& program, const StepLoop& loop);

}  // namespace bucketwise
