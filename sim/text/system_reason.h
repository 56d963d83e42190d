// The system's text for an error, in words that help.
#pragma once

#include <string>

namespace bucketwise {

// The text of an error number (errno), with more where the system's words alone would mislead: no
// space is also said of a file system that has room but can hold no more files.
std::string system_reason(int error);

}  // namespace bucketwise
