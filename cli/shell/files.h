// Files and standard output: the only place that reads or writes for the user.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "import/source/byte_source.h"
#include "sim/base/json.h"

namespace bucketwise {

// The whole file but for a byte-order mark, or what ships under that name
// (cli/shell/shipped_files.h). Throws InputError when it is missing, a folder, unreadable or above
// 256 MiB.
std::string read_text_file(const std::string& path);

// A file of any length, a block at a time; pipes too. Throws InputError when it is missing, a
// folder or unreadable, now or while it is read.
ByteSource blocks_of_file(const std::string& path);

// 0 of what is no regular file.
std::uint64_t size_of_file(const std::string& path);

// Writes the whole file or leaves what was there: a temporary file beside it takes its place at the
// end, with its permissions. Devices and pipes are written in place, and so is a file in a folder
// that takes no new ones. Throws std::runtime_error.
void write_text_file(const std::string& path, const std::string& text);

struct OutputText {
    std::string path;  // "-": standard output
    std::string text;
};

// All of them, or, where one cannot be written, none that is a file: what was there stays. Throws
// InputError, before anything is written, where one is a file that was read or another output
// (cli/shell/read_files.h).
void write_outputs(const std::vector<OutputText>& outputs);

// The same, and prints the report where none of them goes to standard output.
void write_outputs(const std::vector<OutputText>& outputs, const std::string& report);

// "-" is standard output. What would steer a terminal there is written as an escape of JSON's.
void write_output(const std::string& path, const std::string& text);

// "bucketwise: MESSAGE" on standard error: one line, whatever the message quotes, and no longer
// than somebody reads.
void complain(const std::string& message);

// As files hold it: indented, with a final newline. Text that is not UTF-8, such as a file's name
// may be, is made so.
std::string json_text(const Json& document);

}  // namespace bucketwise
