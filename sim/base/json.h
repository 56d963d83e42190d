// The names of JSON documents and of what reads files, without the weight of the JSON library.
#pragma once

#include <functional>
#include <string>

#include <nlohmann/json_fwd.hpp>

namespace bucketwise {

using Json = nlohmann::json;

// Returns the text of a file that an input file names. Throws InputError when it cannot.
using FileReader = std::function<std::string(const std::string& path)>;

}  // namespace bucketwise
