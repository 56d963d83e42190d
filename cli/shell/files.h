// Files and standard output: the only place that reads or writes for the user.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "import/source/byte_source.h"
#include "sim/base/json.h"

namespace bucketwise {

// The whole file without a byte-order mark, or the shipped file of that name
// (cli/shell/shipped_files.h). Throws InputError when it is missing, a folder, unreadable or above
// 256 MiB.
std::string read_text_file(const std::string& path);

// A file of any length, a block at a time; pipes too. Throws InputError when it is missing, a
// folder or unreadable, now or while it is read.
ByteSource blocks_of_file(const std::string& path);

// 0 unless it is a regular file.
std::uint64_t size_of_file(const std::string& path);

// Writes the whole file or leaves the old one: a temporary file replaces it at the end, with its
// permissions. Devices and pipes are written in place, and so is a file in a folder that takes no
// new ones. Throws std::runtime_error.
void write_text_file(const std::string& path, const std::string& text);

struct OutputText {
    std::string path;  // "-": standard output
    std::string text;
};

// Writes all, or, where one cannot be written, no file. Throws InputError, before anything is
// written, where one is a file that was read or another output (cli/shell/read_files.h).
void write_outputs(const std::vector<OutputText>& outputs);

// The same, and prints the report unless an output goes to standard output.
void write_outputs(const std::vector<OutputText>& outputs, const std::string& report);

// "-" is standard output, where characters that steer a terminal are escaped as in JSON.
void write_output(const std::string& path, const std::string& text);

// "bucketwise: MESSAGE" on standard error: one line of bounded length, whatever the message quotes.
void complain(const std::string& message);

// Indented, with a final newline. Text that is not UTF-8, such as a file's name, is made so.
std::string json_text(const Json& document);

}  // namespace bucketwise
