// The keys of a link file, but for what one says of another and for the files it names.
#pragma once

#include "sim/base/json_table.h"
#include "sim/link/link.h"

namespace bucketwise {

// Tiers, which may be files, are described and written, not read.
const JsonTable<LinkParameters>& link_keys();

// The document scenarios/link.schema.json: its root is the link, to which tiers refer.
const ObjectText& link_text();

// Numbers of one kind of collectives.
const JsonTable<OwnNumbers>& own_number_keys();

}  // namespace bucketwise
