// What is known to be weak about an input, for whoever relies on what is made of it.
#pragma once

#include <string>

namespace bucketwise {

struct Caveat {
    std::string text;        // a sentence without its end
    bool withholds = false;  // so weak that nothing should be advised by it
    bool operator==(const Caveat&) const = default;
};

}  // namespace bucketwise
