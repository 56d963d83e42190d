#include "import/chakra/chakra_node.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <initializer_list>

#include <nlohmann/json.hpp>

#include "import/chakra/wire_format.h"
#include "import/source/plain_text.h"
#include "sim/base/error.h"
#include "sim/base/json_input.h"

namespace bucketwise {
namespace {

constexpr std::size_t most_dependencies = 1'000'000;
constexpr std::int64_t most_elements = std::int64_t{1} << 48;

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
    return number > static_cast<std::uint64_t>(most_elements) ? -1
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

// A node of a message says what it moves; one without a type of collective is an all-reduce, whose
// number is 0.
void finish(ChakraNode& node) {
    if (node.type == ChakraType::collective && node.collective.empty()) {
        node.collective = collective_of(0);
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

void add_dependency(std::uint64_t id, const std::string& place, ChakraNode& node) {
    if (node.dependencies.size() == most_dependencies) {
        throw InputError(place, "", "at most a million dependencies of a node", "more");
    }
    node.dependencies.push_back(id);
}

// Packed, or one by one.
void add_dependencies(const WireField& field, const std::string& place, ChakraNode& node) {
    if (!field.has_bytes) {
        add_dependency(field.value, place, node);
    }
    WireMessage packed(field.bytes, place);
    while (const auto id = packed.next_number()) {
        add_dependency(*id, place, node);
    }
}

}  // namespace

ChakraNode node_of_message(std::string_view message, const std::string& place) {
    ChakraNode node;
    WireMessage fields(message, place);
    while (const auto field = fields.next()) {
        switch (field->number) {
            case 1:
                node.id = field->value;
                break;
            case 2:
                node.name = plain_text(field->bytes);
                break;
            case 3:
                node.type = type_of(field->value);
                break;
            case 4:
            case 5:
                add_dependencies(*field, place, node);
                break;
            case 7:
                node.duration_us = field->value;
                break;
            case 10:
                read_attribute(field->bytes, place, node);
                break;
            default:
                break;
        }
    }
    finish(node);
    return node;
}

// --- JSON ---

namespace {

// By any of its names.
const Json& member(const Json& object, std::initializer_list<const char*> names) {
    static const Json nothing;
    for (const char* name : names) {
        if (const auto found = object.find(name); found != object.end()) {
            return *found;
        }
    }
    return nothing;
}

// A number, or a text of one: 64 bits do not fit a number of JavaScript.
std::optional<std::uint64_t> whole(const Json& value) {
    if (value.is_boolean()) {
        return value.get<bool>() ? 1 : 0;
    }
    if (value.is_number_unsigned()) {
        return value.get<std::uint64_t>();
    }
    if (value.is_number_float()) {
        const auto number = value.get<double>();
        constexpr double exact = 9e15;
        return number >= 0 && number < exact ? std::optional(static_cast<std::uint64_t>(number))
                                             : std::nullopt;
    }
    if (!value.is_string()) {
        return std::nullopt;
    }
    const auto& text = value.get_ref<const std::string&>();
    std::uint64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    return error == std::errc{} && end == text.data() + text.size() && !text.empty()
               ? std::optional(number)
               : std::nullopt;
}

std::string_view text_in(const Json& value) {
    return value.is_string() ? std::string_view(value.get_ref<const std::string&>())
                             : std::string_view();
}

ChakraType type_of(const Json& value) {
    const std::string_view text = text_in(value);
    return text == "COMP_NODE"        ? ChakraType::compute
           : text == "COMM_SEND_NODE" ? ChakraType::send
           : text == "COMM_RECV_NODE" ? ChakraType::receive
           : text == "COMM_COLL_NODE" ? ChakraType::collective
                                      : type_of(whole(value).value_or(0));
}

// {"name": "comm_size", "int64Val": "4096"}, or PyTorch's {"name": ..., "type": ..., "value": ...}.
void read_attributes(const Json& attributes, ChakraNode& node) {
    for (const Json& attribute : attributes.is_array() ? attributes : Json::array()) {
        if (!attribute.is_object()) {
            continue;
        }
        for (const auto& [key, value] : attribute.items()) {
            if (key == "name" || key == "type") {
                continue;
            }
            const auto number = whole(value);
            const std::string_view text = text_in(value);
            const bool is_text = key == "stringVal" || key == "string_val" || key == "value";
            if (number || !text.empty()) {
                set_attribute(text_in(member(attribute, {"name"})), number.value_or(0),
                              is_text ? text : std::string_view(), node);
            }
        }
    }
}

// Elements and type of what goes in: shapes [[525312]] or [[[525312]], []] of a list of tensors,
// types "Tensor(float)" or "GenericList[Tensor(float),Tensor(float)]".
std::int64_t elements_in(const Json& shape, int depth) {
    if (!shape.is_array() || depth > 2) {
        return -1;
    }
    std::int64_t product = 1;
    std::int64_t sum = 0;
    bool of_lists = false;
    for (const Json& part : shape) {
        if (part.is_array()) {
            of_lists = true;
            // As deep as the argument says. NOLINTNEXTLINE(misc-no-recursion)
            const std::int64_t elements = elements_in(part, depth + 1);
            if (elements < 0 || elements > most_elements - sum) {
                return -1;
            }
            sum += elements;
        } else {
            const auto size = whole(part);
            if (!size || *size > static_cast<std::uint64_t>(most_elements) ||
                (product > 0 && static_cast<std::int64_t>(*size) > most_elements / product)) {
                return -1;
            }
            product *= static_cast<std::int64_t>(*size);
        }
    }
    return of_lists ? sum : product;
}

void read_tensors(const Json& inputs, ChakraNode& node) {
    if (!inputs.is_object()) {
        return;
    }
    const Json& shapes = member(inputs, {"shapes"});
    const Json& types = member(inputs, {"types"});
    if (!shapes.is_array() || !types.is_array()) {
        return;
    }
    std::int64_t elements = 0;
    for (std::size_t i = 0; i < std::min(shapes.size(), types.size()); ++i) {
        const std::string_view type = text_in(types[i]);
        const std::size_t begin = type.find("Tensor(");
        if (begin == std::string_view::npos) {
            continue;
        }
        const std::size_t first = begin + std::string_view("Tensor(").size();
        if (node.dtype.empty()) {
            node.dtype = plain_text(type.substr(first, type.find(')', first) - first));
        }
        const std::int64_t of_tensor = elements_in(shapes[i], 0);
        if (of_tensor < 0 || of_tensor > most_elements - elements) {
            return;
        }
        elements += of_tensor;
    }
    if (node.elements < 0) {
        node.elements = elements;
    }
}

// PyTorch lists process groups as the text of a JSON list, the only value that goes into a node.
void read_groups(const Json& inputs, ChakraNode& node) {
    const Json& values = inputs.is_object() ? member(inputs, {"values"}) : inputs;
    const Json list = values.is_array() && !values.empty() && values[0].is_string()
                          ? parse_json(values[0].get_ref<const std::string&>(), node.name)
                          : Json();
    for (const Json& group : list.is_array() ? list : Json::array()) {
        if (group.is_object()) {
            node.groups.emplace_back(plain_text(text_in(member(group, {"pg_name"}))),
                                     size_of(whole(member(group, {"group_size"})).value_or(0)));
        }
    }
}

// "nccl:all_reduce", "gloo:all_reduce".
std::string collective_in(std::string_view name) {
    const std::size_t colon = name.find(':');
    const bool has_backend = name.starts_with("nccl:") || name.starts_with("gloo:") ||
                             name.starts_with("mpi:") || name.starts_with("ucc:") ||
                             name.starts_with("xccl:");
    return has_backend ? plain_text(name.substr(colon + 1)) : std::string();
}

}  // namespace

ChakraNode node_of_json(const Json& json) {
    ChakraNode node;
    if (!json.is_object()) {
        return node;
    }
    node.id = whole(member(json, {"id"})).value_or(0);
    node.name = plain_text(text_in(member(json, {"name"})));
    node.type = type_of(member(json, {"type"}));
    for (const Json* list :
         {&member(json, {"ctrlDeps", "ctrl_deps"}), &member(json, {"dataDeps", "data_deps"})}) {
        // PyTorch's own control dependency is the function that called, and no list.
        for (const Json& id : list->is_array() ? *list : Json::array()) {
            if (const auto number = whole(id)) {
                add_dependency(*number, "node", node);
            }
        }
    }
    node.duration_us = whole(member(json, {"durationMicros", "duration_micros"})).value_or(0);
    read_attributes(member(json, {"attr"}), node);
    read_attributes(member(json, {"attrs"}), node);
    if (node.name.find("process_group:init") != std::string::npos) {
        read_groups(member(json, {"inputs"}), node);
    }
    if (node.type == ChakraType::other) {
        if (node.collective.empty()) {
            node.collective = collective_in(node.name);
        }
        if (!node.collective.empty()) {
            read_tensors(member(json, {"inputs"}), node);
        }
    }
    finish(node);
    return node;
}

}  // namespace bucketwise
