// Tells how long a traced step should take, and where the rest of its time went. Each cause is a
// counterfactual: the step is simulated as traced, and again with the cause mended.
#pragma once

#include <string>
#include <vector>

#include "import/diagnosis/cause.h"
#include "import/replay/trace_import.h"
#include "sim/base/units.h"
#include "sim/report/perfetto.h"
#include "sim/scenario/scenario.h"

namespace bucketwise {

struct Diagnosis {
    Duration traced{0};
    Duration replayed{0};  // as simulated with all causes in place
    Duration expected{0};
    Duration least{0};  // 95 % of what is expected lies between these two
    Duration most{0};
    std::string binds = {};                   // as binds_text() says it
    std::vector<DiagnosedCause> causes = {};  // the largest first
    Duration noticeable{0};                   // what costs less is not named
    bool compared = false;                    // with a scenario or a link
    std::string withheld = {};                // why there are no causes; empty: there may be
    bool operator==(const Diagnosis&) const = default;

    // The part of the traced step that is neither expected nor a cause's; below 0: causes are said
    // to cost too much.
    [[nodiscard]] Duration unexplained() const;
    // How much longer the step is than expected, as a share.
    [[nodiscard]] double longer() const;
};

struct Diagnosed {
    Diagnosis diagnosis;
    Scenario scenario;     // as traced
    SimulatedStep mended;  // with all causes mended
    TraceProcess traced;
};

// `ranks` are traces of one run. Throws InputError as import_trace() and connect() do.
Diagnosed diagnose(const std::vector<TracedRank>& ranks, const TraceImportRequest& request,
                   const Sound& sound);

// "This step should take 2,850 ms (2,700 to 3,010) and took 4,120 ms."
std::string first_line(const Diagnosis& diagnosis);
// The rest, and the least cost that is named.
std::string last_lines(const Diagnosis& diagnosis);
std::string text_of(const Diagnosis& diagnosis);
Json diagnosis_json(const Diagnosis& diagnosis);

}  // namespace bucketwise
