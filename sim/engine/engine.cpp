#include "sim/engine/engine.h"

#include <algorithm>
#include <vector>

#include "sim/base/invariant.h"
#include "sim/engine/undisturbed.h"

namespace bucketwise {

void run_programs(std::span<const Program> ranks, std::span<RankProgress> progress) {
    invariant(!ranks.empty(), "a simulation has a rank");
    if (!disturbs(ranks.front())) {
        return run_undisturbed(ranks, progress);
    }
    const std::vector<RankProgress> ends = simulate(ranks, Record::times_only, progress).progress;
    std::copy(ends.begin(), ends.end(), progress.begin());
}

StepTimes simulate_times(const Program& program, const RankProgress& start) {
    RankProgress progress = start;
    run_programs({&program, 1}, {&progress, 1});
    return progress.times;
}

}  // namespace bucketwise
