#include "sim/scenario/document_edit.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include <nlohmann/json.hpp>

#include "sim/base/error.h"

namespace bucketwise {
namespace {

std::string unescaped(std::string part) {  // RFC 6901
    for (const auto& [from, to] : {std::pair("~1", "/"), std::pair("~0", "~")}) {
        for (std::size_t at = part.find(from); at != std::string::npos;
             at = part.find(from, at + 1)) {
            part.replace(at, 2, to);
        }
    }
    return part;
}

// The place `part` names within `parent`. A key that is missing is made: the scenario's parser
// knows which keys may be there.
Json& child(Json& parent, const std::string& part, const std::string& pointer,
            const std::string& option) {
    if (parent.is_object() || parent.is_null()) {
        return parent[part];
    }
    if (parent.is_array()) {
        std::size_t index = 0;
        const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), index);
        if (error == std::errc{} && end == part.data() + part.size() && index < parent.size()) {
            return parent[index];
        }
    }
    throw InputError(option, pointer, "a place that the scenario has",
                     Json("none at " + part).dump(-1, ' ', true, Json::error_handler_t::replace));
}

}  // namespace

void set_at(Json& document, const std::string& pointer, Json value, const std::string& option) {
    if (pointer.empty() || pointer.front() != '/') {
        throw InputError(option, "", "a JSON pointer such as /cluster/ranks",
                         "\"" + pointer + "\"");
    }
    Json* target = &document;
    std::size_t begin = 1;
    while (begin <= pointer.size()) {
        const std::size_t end = std::min(pointer.find('/', begin), pointer.size());
        target = &child(*target, unescaped(pointer.substr(begin, end - begin)), pointer, option);
        begin = end + 1;
    }
    *target = std::move(value);
}

void set_ranks(Json& document, std::int64_t ranks, std::int64_t ranks_per_node,
               const std::string& option) {
    set_at(document, "/cluster/ranks", ranks, option);
    if (document["cluster"].contains("ranks_per_node")) {
        set_at(document, "/cluster/ranks_per_node", ranks_per_node, option);
    }
}

}  // namespace bucketwise
