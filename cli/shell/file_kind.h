// What a file is, whoever wrote it, and which command takes it: for those who gave it to another.
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

// Told by the beginning of its text, and its name. Unknown rather than wrong.
FileKind kind_of_text(std::string_view text, const std::string& name);

// The same of a file, compressed or not, or of the folder of a model. Unknown: also what cannot be
// read, or could not be read again, as a pipe.
FileKind kind_of_file(const std::string& path);

// "config.json" of a model's folder; anything else as it is.
std::string config_of_folder(const std::string& path);

// Throws InputError that says which command takes a file of this kind, unless the kind is wanted or
// unknown.
void refuse_other_kind(FileKind kind, const std::string& file, FileKind wanted);

// read(), but where it throws InputError and one of the files is none that it reads, that is said.
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
