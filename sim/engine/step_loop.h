// A step as one of many: the period of a loop that has settled.
//
// A GPU's host issues a step while the device still runs those before it, and nothing but a full
// launch queue makes it wait for the device. So with a queue that holds more than a step, whoever
// is slower sets the pace: the period is what the host takes to issue a step, or what the device
// takes to run it when all of it has been issued, whichever is longer. Parts of a step say when
// within it time passes; those, and longer steps, are found by running one step after another until
// two are alike. Where the host waits for the device at the end of every step, each starts from
// idle; where it waits within the step, or streams wait for one another, steps are run until two
// are alike.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/base/units.h"
#include "sim/engine/engine.h"
#include "sim/engine/step_parts.h"
#include "sim/program/program.h"

namespace bucketwise {

// Steps that differ in their closing part only.
class StepToClose {
  public:
    // `before` must outlive it.
    explicit StepToClose(const StepBeforeClosing& before);

    // The settled step that ends with `closing`, which build_closing() gave, as the slowest rank
    // sees it. Where 64 steps do not settle, the mean of the last 32. Throws InputError when it
    // could last longer than longest_duration.
    [[nodiscard]] StepTimes closed_by(const Program& closing) const;

    // How long that is.
    [[nodiscard]] Duration step_closed_by(const Program& closing) const;
    // The same where the slower of host and device alone sets the pace, whatever the launch queue,
    // and of steps that differ a little from one of which that is known.
    [[nodiscard]] bool is_paced_by_one(const Program& closing) const;
    [[nodiscard]] Duration paced_step(const Program& closing) const;
    // The same as closed_by(), of a step that cannot last longer.
    [[nodiscard]] StepTimes settled(const Program& closing) const;

    // Where each class of ranks stands when a settled step begins that ends with `closing`: the
    // last device is done with the one before at 0.
    [[nodiscard]] std::vector<RankProgress> start_of(const Program& closing) const;

    // Whether the host may have to wait for the device within a step, by an instruction, or, where
    // steps do not start from idle, as its launch queue is full; or one stream for another.
    [[nodiscard]] bool something_may_wait(const Program& closing) const;

    // Where each class stands when the closing part begins: from idle, or else with hosts that are
    // far ahead, and never wait, and streams that wait for no other. Not where they do, but no
    // later, then without interference.
    [[nodiscard]] const std::vector<RankProgress>& progress() const { return progress_; }

  private:
    // An instruction of a device that never waits for its host.
    struct Issued {
        Duration host{0};
        Duration end{0};  // on the device
    };
    // The step from progress_.
    struct Device {
        StepTimes times;
        Duration issuing{0};            // what the host takes for all of it
        std::int64_t queue = 0;         // so many instructions may be launched ahead
        std::vector<Issued> step = {};  // each instruction, if kept and a launch queue may fill
        [[nodiscard]] bool waits_for_host() const { return issuing > times.step(); }
    };
    [[nodiscard]] bool queue_may_fill(const Program& closing) const;
    [[nodiscard]] std::int64_t queue_length(const Program& closing) const;
    [[nodiscard]] std::int64_t kept_queue(const Program& closing) const;
    [[nodiscard]] std::int64_t instructions_with(const Program& closing) const;
    // Steps that follow one another, of which one tells nothing of the next without being run.
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
    // What one step takes the host, and each side stream.
    [[nodiscard]] Duration issuing(const Program& closing) const;
    [[nodiscard]] std::vector<Duration> work_beside(const Program& closing) const;
    void run_step(const Program& closing, std::vector<RankProgress>& progress) const;

    const StepBeforeClosing& before_;
    double longest_seconds_;  // of what comes before
    std::vector<RankProgress> progress_;
    std::vector<Issued> issued_;  // what comes before, of few instructions and ranks that are alike
};

// One step after another that are not alike, from a settled one on.
class RunningLoop {
  public:
    // `closing` as in StepToClose. Precondition: steps do not start from idle.
    RunningLoop(const StepBeforeClosing& before, const Program& closing);

    // How much later the last device is done with this step than with the one before. It has as
    // many classes of ranks, or all ranks are alike in one of both.
    Duration next(const StepBeforeClosing& before, const Program& closing);

  private:
    std::vector<RankProgress> progress_;
};

// From where StepBeforeClosing ended, from idle, the length of the step that ends with `closing`,
// as the slowest rank sees it.
Duration closed_step(const Program& closing, const std::vector<RankClass>& classes,
                     std::vector<RankProgress> progress);

// The settled step of a whole program, and where it begins.
StepTimes settled_times(const Program& program, const StepLoop& loop);
RankProgress settled_start(const Program& program, const StepLoop& loop);
// It with its timeline, from there.
Simulation settled_simulation(const Program& program, const StepLoop& loop);

}  // namespace bucketwise
