// A rank's all-reduces of gradients, and the steps that they make.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "import/collectives/collective_log.h"
#include "import/source/findings.h"
#include "sim/base/units.h"

namespace bucketwise {

struct GradientStepsRequest {
    std::optional<std::string> group = {};      // whose all-reduces are the gradients'
    std::optional<std::int64_t> elements = {};  // of all gradients
};

// The steps of one log: the places of their all-reduces, alike in all steps.
struct GradientSteps {
    std::string group = {};
    std::int64_t group_size = 0;                       // 0: unknown
    std::vector<std::vector<std::size_t>> steps = {};  // never empty, and no step is
    // By step, the first all-reduce of the next one where that follows at once.
    std::vector<std::optional<std::size_t>> next = {};
    bool unused_map = false;  // DDP's map of unused parameters follows each step's last
    bool operator==(const GradientSteps&) const = default;
};

// From a step's first issue to the next one's, where they follow one another.
std::vector<Duration> periods_of(const CollectiveLog& log, const GradientSteps& steps);

// Elements of each all-reduce of a step, as issued.
std::vector<std::int64_t> elements_of(const CollectiveLog& log, const GradientSteps& steps);

// Reports the steps and all that is left out. Throws InputError for sharded gradients, by their
// collectives, and where there are no all-reduces of gradients or no two steps of them.
GradientSteps gradient_steps(const CollectiveLog& log, const GradientStepsRequest& request,
                             Findings& findings);

// The same steps in another rank's log, by the numbers of collectives in the group. Nothing where
// it has none of them.
std::optional<GradientSteps> same_steps(const CollectiveLog& log, const GradientSteps& steps,
                                        const CollectiveLog& other);

}  // namespace bucketwise
