#include "sim/base/caveat.h"

#include "sim/base/json_table.h"
#include "sim/text/foreign_text.h"

namespace bucketwise {
namespace {

// A screen of them is more than anybody reads.
constexpr std::size_t most_caveats = 64;
constexpr std::size_t longest_caveat = 500;

const JsonTable<Caveat>& caveat_keys() {
    static const JsonTable<Caveat> table{
        "caveat",
        "A weakness that may be bad enough for no advice",
        {{"text", target(&Caveat::text, as::text(longest_caveat)), "required",
          "the weakness, a sentence without its end"},
         {"withholds_advice", target(&Caveat::withholds, as::boolean()), "false",
          "so weak that nothing should be advised by it"}}};
    return table;
}

Caveat read_caveat(const JsonPlace& place) {
    if (place.value->is_string()) {
        return {.text = read_text(place, longest_caveat)};
    }
    if (!place.value->is_object()) {
        place.fail("a text, or an object with the key text");
    }
    return caveat_keys().read(place);
}

Json caveat_json(const Caveat& caveat) {
    const std::string text = cut_text(caveat.text, longest_caveat);
    return caveat.withholds ? Json{{"text", text}, {"withholds_advice", true}} : Json(text);
}

}  // namespace

std::vector<Caveat> read_caveats(const JsonPlace& place) {
    return transformed(read_array(place, most_caveats), read_caveat);
}

namespace as {

JsonType<std::vector<Caveat>> caveats() {
    const JsonType<Caveat> caveat{
        {{{"oneOf", {text(longest_caveat).schema, reference_to(caveat_keys().text())}}},
         "texts or objects",
         {&caveat_keys().text()}},
        read_caveat,
        caveat_json};
    return list(caveat, most_caveats);
}

}  // namespace as

void add_caveat(Json& document, const Caveat& caveat) {
    Json& caveats = document["caveats"];
    if (caveats.is_null()) {
        caveats = Json::array();
    }
    // A file holds no more.
    if (caveats.size() < most_caveats) {
        caveats.push_back(caveat_json(caveat));
    }
}

}  // namespace bucketwise
