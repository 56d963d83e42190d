// What measured steps say of an advice, and how sure they are: did it hold, and which plans would
// have to be measured more often to know?
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "calibrate/comparison/paired_steps.h"
#include "sim/base/names.h"

namespace bucketwise {

enum class Verdict : std::uint8_t {
    held,         // the advised plan costs little over the best, whatever the noise
    missed,       // another one is faster by more than the goal, whatever the noise
    inconclusive  // the noise leaves both open
};

template <>
inline constexpr auto names_of<Verdict> = names("held", "missed", "inconclusive");

// What a decision may cost over the best measured.
constexpr double regret_goal = 0.01;
// How much more than that the noise may leave open before a decision cannot be said to have held.
constexpr double most_noise_in_a_decision = 0.02;

struct MeasuredDecision {
    Verdict verdict = Verdict::inconclusive;
    std::size_t best = 0;  // measured; the advised one where none is faster
    // Of the advised plan over the best, whichever that is: 95 % of cases. Empty: no bounds.
    std::optional<SlowerBy> regret = {};
    // What the advised plan saves: how much slower the default is. Empty: no bounds, or no default.
    std::optional<SlowerBy> gain = {};
    bool gain_is_likely = false;  // four times out of five there is one
    // To be measured again, with what they are held against; rising.
    std::vector<std::size_t> open = {};
    bool settled = false;  // measuring more would change nothing that a reader would act upon
    // Half the width of the interval of the difference that is least known among those that keep
    // the decision open, or of all: what this measurement can tell apart.
    std::optional<double> resolution = {};
    bool operator==(const MeasuredDecision&) const = default;
};

// `advised` and `standard`, the default if there is one, are plans of `steps`.
MeasuredDecision judge_decision(const PairedSteps& steps, std::size_t advised,
                                std::optional<std::size_t> standard);

}  // namespace bucketwise
