// A link as a link file holds it.
#pragma once

#include "sim/json.h"
#include "sim/link.h"

namespace bucketwise {

// read_link() reads it back as it was. Numbers are as short as that allows.
Json link_json(const LinkParameters& link);

}  // namespace bucketwise
