// Whether a text has another in it.
#pragma once

#include <string>

namespace bucketwise::testing {

inline bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

}  // namespace bucketwise::testing
