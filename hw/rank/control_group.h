// How ranks agree and report outside of what is timed. Its messages never mix with those of a
// Communicator.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sim/base/interface.h"

namespace bucketwise {

// Not thread-safe, and collective like Communicator. Throws PeerFailure likewise.
class ControlGroup : public Interface {
  public:
    [[nodiscard]] virtual int rank() const = 0;
    [[nodiscard]] virtual int ranks() const = 0;

    // Returns once every rank has called it.
    virtual void barrier() = 0;

    // The values of rank 0, on every rank. The same number of values on every rank.
    virtual void broadcast_from_first(std::span<std::int64_t> values) = 0;

    // On rank 0: the values of all ranks, rank by rank, ranks() x values.size() of them; elsewhere
    // empty. The same number of values on every rank.
    virtual std::vector<double> gather_to_first(std::span<const double> values) = 0;
};

}  // namespace bucketwise
