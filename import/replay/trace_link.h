// The link of a trace, fitted to its all-reduces, which completes the imported scenario.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "import/replay/trace_import.h"
#include "sim/base/json.h"
#include "sim/base/units.h"
#include "sim/link/link.h"
#include "sim/scenario/scenario.h"

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

// Puts the link into the document of a scenario of so many ranks: `link`, a file or a preset; where
// there is none, one that costs nothing for a single rank, else `fitted`'s.
void put_link(Json& scenario, const std::optional<std::string>& link, std::int64_t ranks,
              const std::function<LinkParameters()>& fitted, const FileReader& read_file);

// Puts a link into the imported document, and reads the scenario that it then is: `link`, a file or
// a preset, or, where there is none, one through the wire times of the run's all-reduces. What
// computing and all-reduces cost each other on that link is taken out of the traced times, unless
// these are known without it: the simulator puts it back. Throws InputError where there is no link.
Scenario connect(TraceImport& imported, const std::optional<std::string>& link,
                 const FileReader& read_file);

}  // namespace bucketwise
