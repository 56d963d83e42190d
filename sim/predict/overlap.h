// The costs of overlap that nobody measured (sim/link/overlap_prior.h), applied to a step: drawn,
// or at both ends.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <vector>

#include "sim/base/names.h"
#include "sim/base/units.h"
#include "sim/engine/varied_steps.h"
#include "sim/link/overlap_prior.h"
#include "sim/plan/strategy.h"
#include "sim/program/program.h"

namespace bucketwise {

// The range of a share.
struct DrawnShare {
    double low = 0;
    double high = 0;
    bool operator==(const DrawnShare&) const = default;
};

// One place for each octave of a collective's size.
class DrawnOverlap {
  public:
    // The same at every size.
    explicit DrawnOverlap(const OverlapPlace& place) { places_.fill(place); }

    // Places along sizes are uniform between both ends and keep nine tenths of their deviation (in
    // normal deviates) from octave to octave; the fixed costs of each collective are the same at
    // every size.
    static DrawnOverlap drawn(Normal& normal);
    [[nodiscard]] DrawnOverlap opposite() const;

    // Linear between octaves.
    [[nodiscard]] OverlapPlace at(Bytes size) const;

    // Replaces the assumed costs in a closing part (build_closing()).
    void apply(Program& closing) const;

  private:
    static constexpr std::size_t octaves = 44;  // beyond 8 TiB nothing changes
    std::array<OverlapPlace, octaves> places_;
};

// The shares of the standard choice's step that each choice saves where overlap costs nothing or
// the most, by byte and by collective: the least and the greatest. A device that waits for a late
// host (Workload::late_host) has room for what collectives cost computing. Precondition (asserted):
// the link's interference is assumed.
std::vector<DrawnShare> savings_at_ends(const StepInput& input,
                                        const std::vector<SyncSettings>& choices,
                                        std::size_t standard);

// The assumption on which a saving hangs.
enum class OverlapTerm : std::uint8_t { computing, collective, each };

template <>
inline constexpr auto names_of<OverlapTerm> = names("compute_slowdown", "communication_slowdown",
                                                    "cost_of_each_collective_us");

struct DecidingCost {
    OverlapTerm cost = OverlapTerm::computing;
    double assumed = 0;  // a factor, or microseconds
    double turns = 0;    // where the saving crosses the least one that counts
    bool saves_above = false;
    bool operator==(const DecidingCost&) const = default;
};

// The cost that moves the saving of `choice` over `standard` the most and across `least` between
// both ends, with the others as assumed; empty: no single one does. Precondition (asserted): as
// above.
std::optional<DecidingCost> deciding_cost(const StepInput& input, const SyncSettings& choice,
                                          const SyncSettings& standard, double least);

}  // namespace bucketwise
