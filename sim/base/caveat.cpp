#include "sim/base/caveat.h"

#include "sim/base/json_input.h"
#include "sim/base/json_output.h"
#include "sim/base/transformed.h"
#include "sim/text/foreign_text.h"

namespace bucketwise {
namespace {

// A screen of them is more than anybody reads.
constexpr std::size_t most_caveats = 64;
constexpr std::size_t longest_caveat = 500;

Caveat read_caveat(const JsonPlace& place) {
    if (place.value->is_string()) {
        return {.text = read_text(place, longest_caveat)};
    }
    if (!place.value->is_object()) {
        place.fail("a text, or an object with the key text");
    }
    const JsonObject object(place, {"text", "withholds_advice"});
    Caveat caveat{.text = read_text(object.at("text"), longest_caveat)};
    object.read_optional("withholds_advice", caveat.withholds, read_boolean);
    return caveat;
}

Json caveat_json(const Caveat& caveat) {
    const std::string text = cut_text(caveat.text, longest_caveat);
    return caveat.withholds ? Json{{"text", text}, {"withholds_advice", true}} : Json(text);
}

}  // namespace

std::vector<Caveat> read_caveats(const JsonPlace& place) {
    return transformed(read_array(place, most_caveats), read_caveat);
}

Json caveats_json(const std::vector<Caveat>& caveats) {
    return json_list(caveats, caveat_json);
}

void add_caveat(Json& document, const Caveat& caveat) {
    Json& caveats = document["caveats"];
    if (caveats.is_null()) {
        caveats = Json::array();
    }
    // What a file may not hold any more helps nobody.
    if (caveats.size() < most_caveats) {
        caveats.push_back(caveat_json(caveat));
    }
}

}  // namespace bucketwise
