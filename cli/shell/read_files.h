// Files that the command has read, which it must not overwrite, whether an option, a scenario or a
// link named them.
#pragma once

#include <string>
#include <vector>

namespace bucketwise {

// cli/shell/files notes what it opens, in any thread; this is for files that others open, such as
// SQLite. Only regular files count.
void note_read(const std::string& path);
void note_read(int descriptor, const std::string& path);

// Throws InputError where an output is a file that was read, by whichever name, or another output.
// Devices, pipes and "-" are free.
void refuse_overwriting(const std::vector<std::string>& outputs);

// A command begins.
void forget_reads();

}  // namespace bucketwise
