// The link of a trace, fitted to its collectives, which completes the imported scenario.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "import/replay/trace_import.h"
#include "sim/base/json.h"
#include "sim/link/link.h"
#include "sim/scenario/scenario.h"

namespace bucketwise {

// Puts `link`, a file or a preset, into the document of a scenario of so many ranks. Without it, a
// single rank gets a link that costs nothing, several get the `fitted` one.
void put_link(Json& scenario, const std::optional<std::string>& link, std::int64_t ranks,
              const std::function<LinkParameters()>& fitted, const FileReader& read_file);

// Completes a link fitted to a source ("traced") of that backend, "" if unknown. The findings that
// weaken it become its caveats.
void name_fitted(LinkParameters& link, const std::string& backend, const char* source,
                 const Findings& findings);

// Puts a link into the imported document and reads the complete scenario: `link`, a file or a
// preset, else one fitted to the collectives' wire times. Takes the interference of computing and
// all-reduces on that link out of the traced times, unless a trace told it: the simulator puts it
// back. Throws InputError where there is no link.
Scenario connect(TraceImport& imported, const std::optional<std::string>& link,
                 const FileReader& read_file);

}  // namespace bucketwise
