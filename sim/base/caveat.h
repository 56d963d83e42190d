// What is known to be weak about an input, for whoever relies on what is made of it. Scenario and
// link files state it under the key `caveats`: whoever writes one knows best.
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

// A list of texts, or of objects that may say withholds_advice besides. Throws InputError.
std::vector<Caveat> read_caveats(const JsonPlace& place);

// As read_caveats() reads it; texts that are longer than it allows are cut.
Json caveats_json(const std::vector<Caveat>& caveats);

// Puts one more behind those that a scenario's or a link's document states.
void add_caveat(Json& document, const Caveat& caveat);

}  // namespace bucketwise
