// The kind of a file, and the command that takes it, for users who gave it to another command.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/error.h"

namespace bucketwise {

enum class FileKind : std::uint8_t {
    unknown,
    scenario,
    link,
    measurements,
    baseline,
    profiler_trace,
    execution_trace,
    flight_recorder,
    nsys_report,
    nsys_export,
    model_config,
    nccl_tests_log,
    training_script
};

// By the beginning of the text, and the name. Unknown rather than wrong.
FileKind kind_of_text(std::string_view text, const std::string& name);

// The kind of a file, compressed or not, or of a model's folder. Unknown for a file that cannot be
// read, or not be read again, such as a pipe.
FileKind kind_of_file(const std::string& path);

// "config.json" in a model's folder; any other path unchanged.
std::string config_of_folder(const std::string& path);

// Throws InputError, which names the command for files of this kind, unless the kind is wanted or
// unknown.
void refuse_other_kind(FileKind kind, const std::string& file, FileKind wanted);

// read(); an InputError is replaced where one of the files is of another kind.
template <typename Read>
auto reading(const std::vector<std::string>& files, FileKind wanted, const Read& read) {
    try {
        return read();
    } catch (const InputError&) {
        for (const std::string& file : files) {
            refuse_other_kind(kind_of_file(file), file, wanted);
        }
        throw;
    }
}

}  // namespace bucketwise
