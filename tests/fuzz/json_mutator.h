// Mutates JSON as JSON. Most mutations of bytes break the syntax, and everything behind the parser
// then goes unexplored.
#pragma once

#include <cstdint>

#include "sim/base/json.h"

namespace bucketwise {

// Changes one value somewhere in the document: a number to a bound or a neighbour, a string to one
// of the known names, an array or object by an element more or less. Equal seeds change alike.
void mutate_json(Json& document, std::uint32_t seed);

}  // namespace bucketwise
