// Ranks that train apart for some steps before they average their parameters: local SGD (Stich
// 2018, arXiv 1805.09767), DiLoCo (Douillard et al. 2023, arXiv 2311.08105), and its streaming
// form, which sends the parameters in fragments, each while the next steps compute (Douillard et
// al. 2025, arXiv 2501.18512). Time only: what it does to convergence is not judged.
//
// Of a period of H steps of T each, and fragments whose all-reduce takes C:
//   at once     a period takes H T + C; the share that communication costs is C / (H T + C)
//   streamed    a fragment has H / fragments steps to arrive in. What is left after them is waited
//               for; while it is under way computing is slowed as interference says.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "sim/base/dtype.h"
#include "sim/base/units.h"
#include "sim/program/program.h"

namespace bucketwise {

struct LocalStepsRequest {
    double share = 0.05;              // of the step that communication may cost at most; above 0
    std::int64_t fragments = 1;       // 1: everything at once, which is waited for
    std::optional<DType> dtype = {};  // that travels; none: the parameters'
    bool operator==(const LocalStepsRequest&) const = default;
};

struct LocalStepsRow {
    std::int64_t period = 1;  // steps between two averages of the same parameter
    Duration step{0};         // the mean, communication included
    double share = 0;         // of it that communication costs
    bool operator==(const LocalStepsRow&) const = default;
};

struct LocalSteps {
    Duration alone{0};       // a step without communication
    Bytes fragment;          // that travels at a time
    Duration all_reduce{0};  // of it
    std::vector<LocalStepsRow>
        rows;  // periods by powers of four times the fragments, up to the answer
    std::optional<LocalStepsRow> smallest =
        {};  // whose share is low enough; none: no period up to 10^6
    bool operator==(const LocalSteps&) const = default;
};

// Preconditions (asserted): share above 0, fragments at least 1. Throws InputError as predict().
LocalSteps local_steps(const StepInput& input, const LocalStepsRequest& request);

}  // namespace bucketwise
