// Evidence of a cause in a trace, and a remedy.
#pragma once

#include "import/diagnosis/cause.h"
#include "import/diagnosis/mended_step.h"
#include "import/replay/replay.h"

namespace bucketwise {

// The shares of collectives' time on the wire beside which the device computes.
struct Overlapped {
    double traced = 0;
    double simulated = 0;
};
Overlapped overlap_of(const TraceImport& imported, const Replay& replayed);

// Sets the texts of a cause that costs so much once those of `mended` are mended.
void describe(MendedSteps& steps, const Mended& mended, DiagnosedCause& cause);

// The same for a cause that the replay does not have.
void describe_rest(const Overlapped& overlapped, const TraceImport& imported,
                   DiagnosedCause& cause);

}  // namespace bucketwise
