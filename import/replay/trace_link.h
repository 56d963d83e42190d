// The link of a trace, fitted to its all-reduces, which completes the imported scenario.
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
