// The judgement of measured steps on an advice, and its certainty: did the advice hold, and which
// plans need more measurements to know?
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

// The most that a decision may cost over the best measured.
constexpr double regret_goal = 0.01;
// The most that noise may add to it before a decision can no longer count as held.
constexpr double most_noise_in_a_decision = 0.02;

struct MeasuredDecision {
    Verdict verdict = Verdict::inconclusive;
    std::size_t best = 0;  // measured; the advised one where none is faster
    // The 95 % interval of the advised plan's cost over the best. Empty: no bounds.
    std::optional<SlowerBy> regret = {};
    // The saving of the advised plan: how much slower the default is. Empty: no bounds, or no
    // default.
    std::optional<SlowerBy> gain = {};
    bool gain_is_likely = false;  // four times out of five there is one
    // Plans that need more measurements, and the ones they compete with; rising.
    std::vector<std::size_t> open = {};
    bool settled = false;  // more measurements would change no reader's action
    // The resolution of this measurement: the half-width of the widest interval among the
    // differences that keep the decision open, or of all.
    std::optional<double> resolution = {};
    bool operator==(const MeasuredDecision&) const = default;
};

// `advised` and `standard`, the default if there is one, are plans of `steps`.
MeasuredDecision judge_decision(const PairedSteps& steps, std::size_t advised,
                                std::optional<std::size_t> standard);

}  // namespace bucketwise
