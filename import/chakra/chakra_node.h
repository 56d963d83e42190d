// A node of a Chakra execution trace (MLCommons), whichever of its three forms it was written in.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "import/source/json_value.h"

namespace bucketwise {

enum class ChakraType : std::uint8_t { other, compute, send, receive, collective };

struct ChakraNode {
    std::uint64_t id = 0;
    std::string name = {};
    ChakraType type = ChakraType::other;
    std::vector<std::uint64_t> dependencies = {};  // on data
    std::vector<std::uint64_t> controls = {};      // dependencies on control
    std::uint64_t duration_us = 0;
    std::optional<bool> on_host = {};  // is_cpu_op
    // Communication:
    std::string collective = {};  // ALL_REDUCE, allreduce; empty: it is none
    std::string group = {};
    std::string description = {};  // of the group
    std::int64_t group_size = 0;   // 0: not said
    std::int64_t bytes = -1;       // that a rank puts in; -1: not said
    std::int64_t elements = -1;    // the same
    std::string dtype = {};        // empty: not said
    // Only in PyTorch's own traces:
    std::vector<std::pair<std::string, std::int64_t>> groups = {};  // listed: name and size
    std::int64_t order = -1;  // of functions as PyTorch entered them; -1: not said
    bool operator==(const ChakraNode&) const = default;
};

// Reads a message Node of et_def.proto. Nothing for GlobalMetadata (a version, which is a text
// where a Node has its number), if the message may be one. `place`: file and message, for errors.
std::optional<ChakraNode> node_of_message(std::string_view message, const std::string& place,
                                          bool may_be_metadata = false);

// Reads a node as google.protobuf's json_format writes that message, which is what chakra_jsonizer
// does, with names in camel or snake case; or as PyTorch's ExecutionTraceObserver writes its own
// ("schema": "1.1.1-chakra.0.0.4"); or in MLCommons' workload_graph, which names a collective by
// its function alone. Members of other types are passed over.
ChakraNode node_of_json(const JsonValue& json);

}  // namespace bucketwise
