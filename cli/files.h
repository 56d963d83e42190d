// Files and standard output: the only place that reads or writes for the user.
#pragma once

#include <string>

namespace bucketwise {

// The whole file. Throws InputError when it is missing, a folder, unreadable or above 256 MiB.
std::string read_text_file(const std::string& path);

// Writes the whole file or leaves what was there: a temporary file beside it takes its place at the
// end. Devices and pipes are written in place. Throws std::runtime_error.
void write_text_file(const std::string& path, const std::string& text);

// "-" is standard output.
void write_output(const std::string& path, const std::string& text);

}  // namespace bucketwise
