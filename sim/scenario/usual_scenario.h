// The scenario that a model's name alone means: "resnet50".
//
// Whoever types a name says nothing of batch, arithmetic, GPU and link. Usual values are assumed,
// and stated as a caveat, so that nobody takes the times for measured.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>

#include "sim/base/json.h"
#include "sim/base/json_input.h"

namespace bucketwise {

// Parts named beside the model; empty: not named.
struct NamedParts {
    std::optional<std::int64_t> ranks = {};
    std::string device = {};
    std::string link = {};  // a preset or a file
    std::string dtype = {};
};

// The link is, where none is named, the first preset that holds the ranks of the device; the
// device, where none is named, the link's own. Throws InputError where there is no such device or
// link. Precondition: the model is one that ships.
Json usual_scenario(const std::string& model, const NamedParts& named);

// Completes a document that was made of `usual` by changes: says how many ranks a node has, where
// its link asks for it, and states as a caveat what is still as in `usual`, but for the keys that
// somebody said. Throws InputError where its link cannot be read.
void complete_usual(const Json& usual, const std::set<std::string>& said,
                    const FileReader& read_file, Json& document);

}  // namespace bucketwise
