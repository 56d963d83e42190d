// What this command has read: none of it is written to. Files know of each other here, not
// commands, so that none can forget one, be it named by an option, by a scenario or by a link's
// link.
#pragma once

#include <string>
#include <vector>

namespace bucketwise {

// cli/shell/files notes what it opens, whatever thread does; this is for what others open, such as
// SQLite. Does nothing for what is no regular file.
void note_read(const std::string& path);
void note_read(int descriptor, const std::string& path);

// Throws InputError where an output is a file that was read until now, whichever of its names that
// was read by, or another output's. Devices, pipes and "-" are nobody's.
void refuse_overwriting(const std::vector<std::string>& outputs);

// A command begins.
void forget_reads();

}  // namespace bucketwise
