// A link through what collectives of a trace took.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "import/run/traced_sharding.h"
#include "sim/base/units.h"
#include "sim/link/link.h"

namespace bucketwise {

// What collectives of one kind took once every rank was there, in microseconds, by size.
using WireTimes = std::map<Bytes, std::vector<double>>;

// A link through the median time of each size of all-reduces, in terms of a ring: what NCCL and
// Gloo mostly run, and as good as any other for this number of ranks, which is above 1. Nothing
// without a time above 0. Of its provenance only ranks, messages and samples are set. `file` is for
// messages only.
std::optional<LinkParameters> link_through(const WireTimes& wire_us, std::int64_t ranks,
                                           const std::string& file);

// The same through all-gathers and reduce-scatters of FSDP2, and its all-reduces, if it has any; if
// not, an all-reduce is taken to be as an all-gather a hop.
std::optional<LinkParameters> sharded_link_through(const TracedSharding& sharding,
                                                   const std::string& file);

}  // namespace bucketwise
