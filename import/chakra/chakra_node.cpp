#include "import/chakra/chakra_node.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "import/chakra/wire_format.h"
#include "import/source/plain_text.h"
#include "sim/base/error.h"

namespace bucketwise {
namespace {

constexpr std::size_t most_dependencies = 1'000'000;

constexpr std::array<std::string_view, 10> collectives{
    "ALL_REDUCE", "REDUCE",         "ALL_GATHER",           "GATHER", "SCATTER", "BROADCAST",
    "ALL_TO_ALL", "REDUCE_SCATTER", "REDUCE_SCATTER_BLOCK", "BARRIER"};

std::string collective_of(std::uint64_t number) {
    return number < collectives.size() ? std::string(collectives[number]) : "UNKNOWN";
}

ChakraType type_of(std::uint64_t number) {
    return number == 4   ? ChakraType::compute
           : number == 5 ? ChakraType::send
           : number == 6 ? ChakraType::receive
           : number == 7 ? ChakraType::collective
                         : ChakraType::other;
}

std::int64_t size_of(std::uint64_t number) {
    return number > static_cast<std::uint64_t>(most_json_elements)
               ? -1
               : static_cast<std::int64_t>(number);
}

// An attribute that says something of communication.
void set_attribute(std::string_view name, std::uint64_t number, std::string_view text,
                   ChakraNode& node) {
    if (name == "comm_type") {
        node.collective = text.empty() ? collective_of(number) : plain_text(text);
    } else if (name == "comm_size") {
        node.bytes = size_of(number);
    } else if (name == "pg_name" || name == "pg_desc") {
        std::string& into = name == "pg_name" ? node.group : node.description;
        into = text.empty() ? std::to_string(number) : plain_text(text);
    } else if (name == "pg_size") {
        node.group_size = std::max(size_of(number), std::int64_t{0});
    } else if (name == "collective_name") {
        node.collective = plain_text(text);
    } else if (name == "dtype") {
        node.dtype = plain_text(text);
    } else if (name == "in_msg_nelems") {
        node.elements = size_of(number);
    } else if (name == "rf_id") {
        node.order = size_of(number);
    } else if (name == "is_cpu_op") {
        node.on_host = number != 0;
    }
}

// By the name of a function or kernel: c10d::broadcast_, ncclKernel_AllReduce_RING_LL_Sum_float. A
// collective without a type or a telling name is an all-reduce, whose number is 0.
std::string collective_named(std::string_view function) {
    const std::string plain = letters_of(function);
    for (const auto& [part, name] :
         {std::pair("allreduce", "ALL_REDUCE"), std::pair("reducescatter", "REDUCE_SCATTER"),
          std::pair("allgather", "ALL_GATHER"), std::pair("broadcast", "BROADCAST"),
          std::pair("alltoall", "ALL_TO_ALL"), std::pair("barrier", "BARRIER")}) {
        if (plain.find(part) != std::string::npos) {
            return name;
        }
    }
    return collective_of(0);
}

void finish(ChakraNode& node) {
    if (node.type == ChakraType::collective && node.collective.empty()) {
        node.collective = collective_named(node.name);
    } else if (node.type == ChakraType::send) {
        node.collective = "send";
    } else if (node.type == ChakraType::receive) {
        node.collective = "recv";
    }
}

// --- protocol buffers ---

void read_attribute(std::string_view message, const std::string& place, ChakraNode& node) {
    WireMessage fields(message, place);
    std::string_view name;
    std::string_view text;
    std::uint64_t number = 0;
    while (const auto field = fields.next()) {
        constexpr std::uint32_t sint32 = 15;
        constexpr std::uint32_t sint64 = 17;
        if (field->number == 1) {
            name = field->bytes;
        } else if (field->number == 29 || field->number == 31) {
            text = field->bytes;
        } else if (field->number == sint32 || field->number == sint64) {
            number = field->value >> 1;  // ZigZag, of what is not negative
        } else if (!field->has_bytes) {
            number = field->value;
        }
    }
    set_attribute(name, number, text, node);
}

void add_dependency(std::uint64_t id, const std::string& place, std::vector<std::uint64_t>& on) {
    if (on.size() == most_dependencies) {
        throw InputError(place, "", "at most a million dependencies of a node", "more");
    }
    on.push_back(id);
}

}  // namespace

std::optional<ChakraNode> node_of_message(std::string_view message, const std::string& place,
                                          bool may_be_metadata) {
    ChakraNode node;
    bool is_metadata = may_be_metadata;
    WireMessage fields(message, place);
    while (const auto field = fields.next()) {
        is_metadata &= field->number <= 2 && field->has_bytes;
        if (field->number == 1) {
            node.id = field->value;
        } else if (field->number == 2) {
            node.name = plain_text(field->bytes);
        } else if (field->number == 3) {
            node.type = type_of(field->value);
        } else if (field->number == 4 || field->number == 5) {
            auto& on = field->number == 4 ? node.controls : node.dependencies;
            if (!field->has_bytes) {
                add_dependency(field->value, place, on);
            }
            WireMessage packed(field->bytes, place);
            while (const auto id = packed.next_number()) {
                add_dependency(*id, place, on);
            }
        } else if (field->number == 7) {
            node.duration_us = field->value;
        } else if (field->number == 10) {
            read_attribute(field->bytes, place, node);
        }
    }
    finish(node);
    return is_metadata ? std::nullopt : std::optional(std::move(node));
}

// --- JSON ---

namespace {

// A number, or a text of one: 64 bits do not fit a number of JavaScript.
std::optional<std::uint64_t> number_in(const JsonValue& value) {
    std::uint64_t number = 0;
    if (bool truth = false; value.get(truth) == simdjson::SUCCESS) {
        return truth ? 1 : 0;
    }
    if (value.get(number) == simdjson::SUCCESS) {
        return number;
    }
    if (double fraction = 0; value.is_double() && value.get(fraction) == simdjson::SUCCESS) {
        constexpr double exact = 9e15;
        return fraction >= 0 && fraction < exact
                   ? std::optional(static_cast<std::uint64_t>(fraction))
                   : std::nullopt;
    }
    const std::string_view text = text_in(value);
    const char* const end = text.data() + text.size();
    const auto [last, error] = std::from_chars(text.data(), end, number);
    return error == std::errc{} && last == end ? std::optional(number) : std::nullopt;
}

ChakraType type_in(const JsonValue& value) {
    const std::string_view text = text_in(value);
    return text == "COMP_NODE"        ? ChakraType::compute
           : text == "COMM_SEND_NODE" ? ChakraType::send
           : text == "COMM_RECV_NODE" ? ChakraType::receive
           : text == "COMM_COLL_NODE" ? ChakraType::collective
                                      : type_of(number_in(value).value_or(0));
}

// {"name": "comm_size", "int64Val": "4096"}, or PyTorch's {"name": ..., "type": ..., "value": ...}.
void read_attributes(const JsonValue& attributes, ChakraNode& node) {
    for (const simdjson::dom::element attribute : items_in(attributes)) {
        simdjson::dom::object members;
        if (attribute.get(members) != simdjson::SUCCESS) {
            continue;
        }
        for (const auto& [key, value] : members) {
            const auto number = number_in(value);
            const std::string_view text = text_in(value);
            const bool is_text = key == "stringVal" || key == "string_val" || key == "value";
            if (key != "name" && key != "type" && (number || !text.empty())) {
                set_attribute(text_in(members["name"]), number.value_or(0),
                              is_text ? text : std::string_view(), node);
            }
        }
    }
}

// Reads the sizes and the type of the inputs: "Tensor(float)", or
// "GenericList[Tensor(float),Tensor(float)]".
void read_tensors(const JsonValue& inputs, ChakraNode& node) {
    const auto shapes = items_in(inputs["shapes"]);
    const auto types = items_in(inputs["types"]);
    if (!inputs["shapes"].is_array() || !inputs["types"].is_array()) {
        return;
    }
    constexpr std::string_view tensor = "Tensor(";
    std::int64_t elements = 0;
    for (std::size_t i = 0; i < std::min(shapes.size(), types.size()); ++i) {
        const std::string_view type = text_in(types[i]);
        const std::size_t begin = type.find(tensor);
        if (begin == std::string_view::npos) {
            continue;
        }
        const std::size_t first = begin + tensor.size();
        if (node.dtype.empty()) {
            node.dtype = plain_text(type.substr(first, type.find(')', first) - first));
        }
        const std::int64_t of_tensor = elements_in(shapes[i]);
        if (of_tensor < 0 || of_tensor > most_json_elements - elements) {
            return;
        }
        elements += of_tensor;
    }
    if (node.elements < 0) {
        node.elements = elements;
    }
}

// PyTorch lists process groups as the text of a JSON list, the only value that goes into a node.
void read_groups(const JsonValue& inputs, ChakraNode& node) {
    const auto values = items_in(inputs.is_object() ? JsonValue(inputs["values"]) : inputs);
    simdjson::dom::parser parser;
    simdjson::dom::element list;
    if (values.empty() || !values[0].is_string()) {
        return;
    }
    if (parser.parse(std::string(text_in(values[0]))).get(list) != simdjson::SUCCESS) {
        throw InputError(node.name, "", "process groups as JSON", "something else");
    }
    for (const simdjson::dom::element group : items_in(list)) {
        node.groups.emplace_back(plain_text(text_in(group["pg_name"])),
                                 size_of(number_in(group["group_size"]).value_or(0)));
    }
}

// "nccl:all_reduce", "gloo:all_reduce".
std::string collective_in(std::string_view name) {
    constexpr std::array<std::string_view, 5> backends{"nccl", "gloo", "mpi", "ucc", "xccl"};
    const std::size_t colon = name.find(':');
    return std::ranges::find(backends, name.substr(0, colon)) != backends.end() &&
                   colon != std::string_view::npos
               ? plain_text(name.substr(colon + 1))
               : std::string();
}

}  // namespace

ChakraNode node_of_json(const JsonValue& json) {
    ChakraNode node;
    node.id = number_in(member(json, {"id", "Id"})).value_or(0);
    node.name = plain_text(text_in(member(json, {"name", "Name"})));
    node.type = type_in(member(json, {"type", "NodeType"}));
    // PyTorch's own control dependency is the calling function, and no list.
    for (const auto& [list, on] :
         {std::pair(member(json, {"ctrlDeps", "ctrl_deps"}), &node.controls),
          std::pair(member(json, {"dataDeps", "data_deps"}), &node.dependencies)}) {
        for (const simdjson::dom::element id : items_in(list)) {
            if (const auto number = number_in(id)) {
                add_dependency(*number, "node", *on);
            }
        }
    }
    node.duration_us =
        number_in(member(json, {"durationMicros", "duration_micros", "runtime"})).value_or(0);
    if (const auto on_host = number_in(json["is_cpu_op"])) {
        node.on_host = *on_host != 0;
    }
    read_attributes(json["attr"], node);
    read_attributes(json["attrs"], node);
    if (node.name.find("process_group:init") != std::string::npos) {
        read_groups(json["inputs"], node);
    }
    if (node.type == ChakraType::other) {
        if (node.collective.empty()) {
            node.collective = collective_in(node.name);
        }
        if (!node.collective.empty()) {
            read_tensors(json["inputs"], node);
        }
    }
    finish(node);
    return node;
}

}  // namespace bucketwise
