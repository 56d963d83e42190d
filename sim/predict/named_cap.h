// Caps that may be named where overlap's costs are assumed. No advice is surer than the assumption.
//
// A cap is never named above 1,000 MiB. Above 100 MiB, or with fewer than four buckets (and than
// the default), only where it saves time over the default at both ends of overlap's costs and,
// unless the host is late, in 97.5 % of draws, and where the device has memory for its buckets.
// Every cap may be named where these costs are known.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "sim/plan/strategy.h"
#include "sim/predict/evaluation.h"
#include "sim/predict/overlap.h"
#include "sim/program/program.h"

namespace bucketwise {

// Above it a cap has to earn its name.
constexpr Bytes largest_usual_cap{100 * bytes_per_mib};

// Why the default is kept although another cap may be faster.
struct OverlapDoubt {
    bool larger_buckets = true;             // of that cap
    DrawnShare saved = {};                  // by that cap, from end to end
    std::optional<DecidingCost> cost = {};  // none: no single one decides
    bool operator==(const OverlapDoubt&) const = default;
};

// The caps of one sweep.
class NamedCaps {
  public:
    NamedCaps(const StepInput& input, const SyncRequest& request,
              const std::vector<Evaluation>& sweep, const Evaluation& default_cap)
        : input_(input), request_(request), sweep_(sweep), default_(default_cap) {}

    // The row that is expected to cost the least among those that may be named.
    [[nodiscard]] std::size_t best(std::size_t fastest) const;

    // Set where the row that would be chosen among all hangs on overlap's costs.
    [[nodiscard]] std::optional<OverlapDoubt> doubt(std::size_t fastest) const;

    // The last row up to `high`, and from `best` on, that may be named.
    [[nodiscard]] std::size_t last(std::size_t best, std::size_t high) const;

    // The fastest row of at most 100 MiB that has enough buckets.
    [[nodiscard]] std::size_t fastest_of_usual_size() const;

  private:
    [[nodiscard]] bool has_usual_size(const Evaluation& row) const;
    [[nodiscard]] bool has_memory(const Evaluation& row) const;
    [[nodiscard]] bool may_be_named(const Evaluation& row) const;
    [[nodiscard]] std::size_t least_costly(
        const std::vector<std::optional<StepConfidence>>& confidences, std::size_t fastest) const;

    const StepInput& input_;
    const SyncRequest& request_;
    const std::vector<Evaluation>& sweep_;
    const Evaluation& default_;
};

// Whether the default is to be kept because the saving of `chosen` hangs on overlap's costs.
bool hangs_on_overlap(const Evaluation& chosen);

}  // namespace bucketwise
