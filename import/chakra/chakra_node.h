// A node of a Chakra execution trace (MLCommons), whichever of its three forms it was written in.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/base/json.h"

namespace bucketwise {

enum class ChakraType : std::uint8_t { other, compute, send, receive, collective };

struct ChakraNode {
    std::uint64_t id = 0;
    std::string name = {};
    ChakraType type = ChakraType::other;
    std::vector<std::uint64_t> dependencies = {};  // on control and data
    std::uint64_t duration_us = 0;
    std::optional<bool> on_host = {};  // is_cpu_op
    // Of communication:
    std::string collective = {};  // ALL_REDUCE, allreduce; empty: it is none
    std::string group = {};
    std::string description = {};  // of the group
    std::int64_t group_size = 0;   // 0: not said
    std::int64_t bytes = -1;       // that a rank puts in; -1: not said
    std::int64_t elements = -1;    // likewise
    std::string dtype = {};        // empty: not said
    // Of PyTorch's own traces:
    std::vector<std::pair<std::string, std::int64_t>> groups = {};  // listed: name and size
    std::int64_t order = -1;  // in which functions were entered; -1: not said
    bool operator==(const ChakraNode&) const = default;
};

// A message Node of et_def.proto. `place`: file and message, for errors.
ChakraNode node_of_message(std::string_view message, const std::string& place);

// A node as google.protobuf's json_format writes that message, which is what chakra_jsonizer does,
// with names in camel or snake case; or as PyTorch's ExecutionTraceObserver writes its own
// ("schema": "1.1.1-chakra.0.0.4"). Members of other types than there are passed over.
ChakraNode node_of_json(const Json& json);

}  // namespace bucketwise
