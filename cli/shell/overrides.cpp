#include "cli/shell/overrides.h"

#include <utility>

#include <nlohmann/json.hpp>

#include "sim/base/error.h"
#include "sim/scenario/document_edit.h"

namespace bucketwise {

void apply_override(Json& document, const std::string& assignment) {
    const std::string option = "--set";
    const std::size_t equals = assignment.find('=');
    if (equals == std::string::npos) {
        throw InputError(option, "", "/json/pointer=value", "\"" + assignment + "\"");
    }
    const std::string text = assignment.substr(equals + 1);
    Json value = Json::parse(text, nullptr, false);
    if (value.is_discarded()) {
        value = text;
        if (Json(text).dump(-1, ' ', false, Json::error_handler_t::replace).find("\xEF\xBF\xBD") !=
            std::string::npos) {
            throw InputError(option, assignment.substr(0, equals), "UTF-8 text", "other bytes");
        }
    }
    set_at(document, assignment.substr(0, equals), std::move(value), option);
}

}  // namespace bucketwise
