#include "cli/shell/file_kind.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <system_error>
#include <vector>

#include <fmt/format.h>

#include "cli/shell/files.h"
#include "cli/shell/shipped_files.h"
#include "import/source/inflate.h"

namespace bucketwise {
namespace {

namespace fs = std::filesystem;

// The beginning of a file, enough to tell its kind: traces describe devices before events.
constexpr std::size_t telling_bytes = std::size_t{1} << 16;

struct KindText {
    FileKind kind;
    std::string_view what;
    std::string_view way_out;  // {} is the file
};
constexpr std::array<KindText, 12> kind_texts{
    {{FileKind::scenario, "a scenario", "bucketwise predict {} takes it"},
     {FileKind::link, "a link file",
      "bucketwise link show {} shows it, and --link {} takes it for a scenario"},
     {FileKind::measurements, "measurements",
      "bucketwise calibrate {} -o link.json makes a link of them"},
     {FileKind::baseline, "a baseline of a gate",
      "bucketwise check FILE --baseline {} compares with it"},
     {FileKind::profiler_trace, "a trace of PyTorch's profiler",
      "bucketwise import kineto {} -o scenario.json makes a scenario of it"},
     {FileKind::execution_trace, "an execution trace",
      "bucketwise import chakra {} --link LINK -o scenario.json makes a scenario of it"},
     {FileKind::flight_recorder, "a dump of PyTorch's flight recorder",
      "bucketwise import flight-recorder {} --link LINK -o scenario.json makes a scenario of it"},
     {FileKind::nsys_report, "a report of Nsight Systems",
      "nsys export --type sqlite --include-blobs=true {} makes an export of it, which bucketwise "
      "import nsys takes"},
     {FileKind::nsys_export, "an export of Nsight Systems",
      "bucketwise import nsys {} -o scenario.json makes a scenario of it"},
     {FileKind::model_config, "a model of Hugging Face",
      "bucketwise import hf {} -o scenario.json makes a scenario of it"},
     {FileKind::nccl_tests_log, "a log of nccl-tests",
      "bucketwise import nccl-tests {} -o measurements.jsonl makes measurements of it"},
     {FileKind::training_script, "a training script",
      "from within it bucketwise.torch writes a scenario: put from bucketwise.torch import capture "
      "and capture(model, \"workload.json\") before the training loop"}}};

const KindText& words_for(FileKind kind) {
    return *std::ranges::find(kind_texts, kind, &KindText::kind);
}

using Keys = std::vector<std::string_view>;

bool has_any(std::string_view text, const Keys& parts) {
    return std::ranges::any_of(
        parts, [&](std::string_view part) { return text.find(part) != std::string_view::npos; });
}

// A JSON document is of the first kind with one of the keys in every group.
struct JsonKind {
    FileKind kind;
    std::vector<Keys> groups;
};

const std::vector<JsonKind>& json_kinds() {
    // Measurements come before scenarios, as they hold one, perhaps longer than the text looked at.
    static const std::vector<JsonKind> kinds{
        {FileKind::profiler_trace, {{R"("traceEvents")"}}},
        {FileKind::measurements, {{R"("implementation")"}}},
        {FileKind::measurements, {{R"("kind")"}, {R"("environment")", R"("samples_us")"}}},
        {FileKind::baseline, {{R"("cases")"}, {R"("step_ms")", R"("runs")"}}},
        {FileKind::scenario, {{R"("workload")", R"("cluster")"}}},
        {FileKind::execution_trace, {{R"("nodes")"}, {R"("schema")", R"("ctrl_deps")"}}},
        {FileKind::flight_recorder, {{R"("pg_config")", R"("collective_seq_id")"}}},
        {FileKind::model_config, {{R"("model_type")", R"("architectures")"}}},
        {FileKind::link, {{R"("algorithm")"}, {R"("segments")", R"("topology")"}}}};
    return kinds;
}

FileKind kind_of_json(std::string_view text) {
    if (text.front() == '[' && has_any(text, {R"("ph")"})) {
        return FileKind::profiler_trace;
    }
    const auto found = std::ranges::find_if(json_kinds(), [&](const JsonKind& known) {
        return std::ranges::all_of(known.groups,
                                   [&](const Keys& keys) { return has_any(text, keys); });
    });
    return found == json_kinds().end() ? FileKind::unknown : found->kind;
}

}  // namespace

FileKind kind_of_text(std::string_view text, const std::string& name) {
    text = text.substr(0, telling_bytes);
    if (name.ends_with(".py") || text.starts_with("#!/usr/bin/env python")) {
        return FileKind::training_script;
    }
    if (name.ends_with(".nsys-rep") || name.ends_with(".qdrep")) {
        return FileKind::nsys_report;
    }
    if (text.starts_with("SQLite format 3")) {
        return FileKind::nsys_export;
    }
    // A pickle's first two bytes name its protocol.
    if (text.size() > 1 && text[0] == '\x80' && text[1] >= 2 && text[1] <= 5) {
        return FileKind::flight_recorder;
    }
    const std::size_t begin = text.find_first_not_of(" \t\r\n");
    if (begin == std::string_view::npos) {
        return FileKind::unknown;
    }
    if (text[begin] == '{' || text[begin] == '[') {
        const FileKind kind = kind_of_json(text.substr(begin));
        if (kind != FileKind::unknown) {
            return kind;
        }
    }
    const bool is_log =
        has_any(text, {"algbw", "out-of-place"}) && has_any(text, {"busbw", "nThread", "redop"});
    return is_log ? FileKind::nccl_tests_log : FileKind::unknown;
}

FileKind kind_of_file(const std::string& path) {
    const std::string file = config_of_folder(here_or_shipped(path));
    std::error_code error;
    if (!fs::is_regular_file(file, error)) {
        return FileKind::unknown;
    }
    std::string text(telling_bytes, '\0');
    std::size_t size = 0;
    try {
        const ByteSource source = inflated(blocks_of_file(file), file);
        for (std::size_t count = 1; count > 0 && size < text.size(); size += count) {
            count = source(text.data() + size, text.size() - size);
        }
    } catch (const InputError&) {
        return FileKind::unknown;  // its reader reports the error
    }
    return kind_of_text(std::string_view(text).substr(0, size), file);
}

std::string config_of_folder(const std::string& path) {
    const fs::path config = fs::path(path) / "config.json";
    std::error_code error;
    return fs::is_directory(path, error) && fs::is_regular_file(config, error) ? config.string()
                                                                               : path;
}

void refuse_other_kind(FileKind kind, const std::string& file, FileKind wanted) {
    if (kind == FileKind::unknown || kind == wanted) {
        return;
    }
    const KindText& other = words_for(kind);
    std::string way_out(other.way_out);
    for (std::size_t at = way_out.find("{}"); at != std::string::npos;
         at = way_out.find("{}", at + file.size())) {
        way_out.replace(at, 2, file);
    }
    throw InputError(file, "", std::string(words_for(wanted).what),
                     fmt::format("{}; {}", other.what, way_out));
}

}  // namespace bucketwise
