// The findings of an import, a line each.
#pragma once

#include <string>

#include "import/replay/trace_import.h"

namespace bucketwise {

inline std::string findings_of(const TraceImport& imported) {
    std::string text;
    for (const Finding& finding : imported.findings.all) {
        text += finding.item + ": " + finding.text + "\n";
    }
    return text;
}

}  // namespace bucketwise
