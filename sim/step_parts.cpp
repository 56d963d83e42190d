#include "sim/step_parts.h"

#include <fmt/format.h>

#include "sim/error.h"

namespace bucketwise {

void check_length(double longest_possible_seconds) {
    constexpr double longest_s = std::chrono::duration<double>(longest_duration).count();
    constexpr double seconds_per_day = 86400;
    if (!(longest_possible_seconds < longest_s)) {
        throw InputError(
            "scenario", "", "a step shorter than ten days",
            fmt::format("one of up to {:.3g} days", longest_possible_seconds / seconds_per_day));
    }
}

double longest_seconds_before_closing(const StepInput& input, const SyncSettings& sync) {
    const double graph_launch_s =
        std::chrono::duration<double>(input.step.graph_launch.value_or(Duration{0})).count();
    const double seconds = graph_launch_s + longest_possible_seconds(build_opening(input, sync)) +
                           longest_possible_seconds(build_micro_step(input, sync, 0)) *
                               static_cast<double>(input.step.accumulation);
    check_length(seconds);
    return seconds;
}

RankProgress simulate_before_closing(const StepInput& input, const SyncSettings& sync,
                                     ProgramChange change) {
    RankProgress progress;
    const auto run = [&](const Program& program) {
        progress = simulate({&program, 1}, Record::times_only, progress).progress.front();
    };
    run(change(build_opening(input, sync)));
    Program micro_step;
    for (std::int64_t i = 0; i + 1 < input.step.accumulation; ++i) {
        if (i <= 1) {  // from the second on they are alike
            micro_step = change(build_micro_step(input, sync, i));
        }
        run(micro_step);
    }
    run(change(build_last_forward(input, sync)));
    return progress;
}

}  // namespace bucketwise
