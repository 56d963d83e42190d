// Known weaknesses of an input, for those who rely on results made from it. Scenario and link files
// state them under the key `caveats`, as the writer of a file knows best.
#pragma once

#include <string>
#include <vector>

#include "sim/base/json.h"

namespace bucketwise {

struct JsonPlace;

struct Caveat {
    std::string text;        // a sentence without its end
    bool withholds = false;  // so weak that nothing should be advised by it
    bool operator==(const Caveat&) const = default;
};

// A list of texts, or of objects that may also say withholds_advice. Throws InputError.
std::vector<Caveat> read_caveats(const JsonPlace& place);

// Appends one to the caveats of a scenario's or a link's document. A text longer than allowed is
// cut.
void add_caveat(Json& document, const Caveat& caveat);

}  // namespace bucketwise
