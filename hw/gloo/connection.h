// The ranks of one job, connected over Gloo's TCP transport.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "hw/backend/backend.h"
#include "hw/rank/communicator.h"

namespace bucketwise {

// Connects every rank to every other when constructed. Throws PeerFailure when they do not all
// arrive within the deadline, and InputError or std::runtime_error when the store, the address or
// the interface cannot be used.
//
// The process ignores SIGPIPE from then on unless it handles it: Gloo writes to peers that are
// gone.
class GlooConnection {
  public:
    explicit GlooConnection(const MeetingPoint& meeting);
    ~GlooConnection();
    GlooConnection(const GlooConnection&) = delete;
    GlooConnection& operator=(const GlooConnection&) = delete;

    // Owned by the connection. All of them share one set of sockets and so exclude each other: one
    // collective of one of them at a time.
    [[nodiscard]] Communicator& communicator(AllReduceImplementation implementation);

    // For some ranks, in the given order, with sockets of their own. Collective: every rank calls
    // it at the same time, with a group that it is in, and each with the same one as those in it.
    // Owned by the connection, as long as that lasts. Throws as the constructor.
    [[nodiscard]] Communicator& communicator_among(const std::vector<std::int64_t>& ranks,
                                                   AllReduceImplementation implementation);

    // Has sockets of its own: may be used by another thread than the communicators.
    [[nodiscard]] ControlGroup& control();

  private:
    struct ConnectedRanks;
    struct State;
    std::unique_ptr<State> state_;
};

// Such as "Gloo 0.5.0".
std::string gloo_version();

}  // namespace bucketwise
