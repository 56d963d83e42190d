// What an import knows to be weak in its scenario, stated in the scenario itself.
#pragma once

#include <optional>
#include <string_view>

#include "import/replay/replay.h"
#include "import/replay/trace_import.h"
#include "sim/base/caveat.h"
#include "sim/base/units.h"

namespace bucketwise {

// How far a scenario may replay off its source, as shares of what that shows.
constexpr double noticeable_replay_error = 0.02;
constexpr double poor_replay_error = 0.1;  // so far that nothing is advised by it

// Of a step that a scenario predicts, where `source` ("the trace") shows how long it took. None: it
// is near enough.
std::optional<Caveat> replay_caveat(Duration predicted, Duration shown, std::string_view source);

// All that is known of the scenario but for its link, which states its own.
void state_caveats(const Replay& replayed, TraceImport& imported);

}  // namespace bucketwise
