#include "sim/step_parts.h"

namespace bucketwise {

RankProgress simulate_before_closing(const StepInput& input, const SyncSettings& sync,
                                     ProgramChange change) {
    RankProgress progress;
    const auto run = [&](const Program& program) {
        progress = simulate({&program, 1}, Record::times_only, progress).progress.front();
    };
    run(change(build_opening(input, sync)));
    const Program micro_step = change(build_micro_step(input));
    for (std::int64_t i = 1; i < input.step.accumulation; ++i) {
        run(micro_step);
    }
    run(change(build_last_forward(input)));
    return progress;
}

}  // namespace bucketwise
