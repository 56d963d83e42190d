#include "sim/predict/training_run.h"

#include <map>
#include <utility>

#include "sim/engine/engine.h"
#include "sim/engine/step_parts.h"
#include "sim/program/step_programs.h"

namespace bucketwise {
namespace {

class StepSimulator {
  public:
    StepSimulator(const SyncSettings& sync, const BucketPlan& plan, const MicroStepInput& input_of)
        : sync_(sync), plan_(plan), input_of_(input_of) {}

    Duration step(const std::vector<SampleRange>& parts) {
        progress_ = {};
        longest_seconds_ = 0;
        for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
            run(build_micro_step(input(parts[i], i > 0), sync_, static_cast<std::int64_t>(i)));
        }
        const StepInput& last = input(parts.back(), parts.size() > 1);
        run(build_last_forward(last, sync_));
        Program closing;
        build_closing(last, sync_, plan_, closing);
        run(closing);
        return progress_.times.step();
    }

  private:
    const StepInput& input(const SampleRange& part, bool accumulates) {
        const std::pair key{part.count, accumulates};
        const auto known = inputs_.find(key);
        return known != inputs_.end()
                   ? known->second
                   : inputs_.emplace(key, input_of_(part.count, accumulates)).first->second;
    }

    void run(const Program& program) {
        longest_seconds_ += longest_possible_seconds(program);
        check_length(longest_seconds_);
        progress_ = simulate({&program, 1}, Record::times_only, progress_).progress.front();
    }

    const SyncSettings& sync_;
    const BucketPlan& plan_;
    const MicroStepInput& input_of_;
    std::map<std::pair<std::int64_t, bool>, StepInput> inputs_;
    RankProgress progress_;
    double longest_seconds_ = 0;
};

}  // namespace

TrainingTime training_time(const TrainingSchedule& schedule, const SyncSettings& sync,
                           const BucketPlan& plan, const MicroStepInput& input_of) {
    StepSimulator simulator(sync, plan, input_of);
    const std::int64_t steps = steps_per_epoch(schedule);
    TrainingTime time;
    time.full_steps = steps - 1;
    time.last_step = simulator.step(micro_steps(schedule, steps - 1, 0));
    time.full_step = steps > 1 ? simulator.step(micro_steps(schedule, 0, 0)) : time.last_step;
    return time;
}

}  // namespace bucketwise
