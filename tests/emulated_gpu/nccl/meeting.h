// How the ranks of a communicator find each other.
#pragma once

#include <nccl.h>

#include <variant>
#include <vector>

#include "tests/emulated_gpu/nccl/sockets.h"

namespace bucketwise::emulated {

// Starts to listen for the ranks that will come. Only this process can be rank 0.
ncclUniqueId new_unique_id();

// By rank, connected: rank 0 to all others, they only to it.
using Connections = std::vector<Descriptor>;

// Returns once all ranks are here, or with the same Failure on all of them when two have the same
// rank or the same GPU of the same host, or when not all come within EMULATED_NCCL_INIT_TIMEOUT_S
// (default 30).
std::variant<Connections, Failure> meet(const ncclUniqueId& id, int rank, int ranks, int device);

}  // namespace bucketwise::emulated
