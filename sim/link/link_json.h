// A link as a link file holds it.
#pragma once

#include "sim/base/json.h"
#include "sim/link/link.h"

namespace bucketwise {

// read_link() reads it back as it was, but for texts of the provenance that are longer than it
// allows: they are cut. Numbers are as short as that permits.
Json link_json(const LinkParameters& link);

}  // namespace bucketwise
