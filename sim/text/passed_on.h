// Names of files and commands in files that are passed on. The folders of the machine that they
// were made on mean nothing to who gets them, and say who made them: they are left out.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace bucketwise {

// A file's name without the folders it lies in.
std::string file_name(std::string_view path);

// The words of a command with absolute paths, also behind "--option=" and within a list, as names.
// A JSON pointer, as --set and --vary take it, is none. Words that are names already stay.
std::vector<std::string> passed_on_command(const std::vector<std::string>& words);

// The words as a shell takes them, each in quotes where it has to be.
std::string shell_line(const std::vector<std::string>& words);

}  // namespace bucketwise
