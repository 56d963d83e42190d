// Written traces, imported, and their findings.
#pragma once

#include <string>
#include <utility>

#include "import/kineto/kineto_trace.h"
#include "import/replay/trace_import.h"
#include "sim/base/error.h"
#include "tests/import/replay/written_trace.h"
#include "tests/import/source/text_source.h"

namespace bucketwise {

inline TracedRank rank_of_text(const std::string& text, const std::string& file = "trace.json") {
    return traced_rank(read_kineto_trace(text_source(text, 4096), file));
}

inline TracedRank traced(TraceShape shape, const std::string& file = "trace.json") {
    return rank_of_text(SyntheticTrace(std::move(shape)).document().dump(), file);
}

inline TraceImport import_of(TraceShape shape, TraceImportRequest request = {}) {
    return import_trace({traced(std::move(shape))}, std::move(request));
}

// For scenarios that name no file.
inline std::string no_file(const std::string& path) {
    throw InputError(path, "", "no file", "one");
}

// A line for each finding.
inline std::string findings_of(const TraceImport& imported) {
    std::string text;
    for (const Finding& finding : imported.findings.all) {
        text += finding.item + ": " + finding.text + "\n";
    }
    return text;
}

}  // namespace bucketwise
