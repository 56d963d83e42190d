#include "import/nsys/collective_payload.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <string>
#include <system_error>

#include <nlohmann/json.hpp>

namespace bucketwise {
namespace {

// The names that all versions of NCCL with payloads use.
std::optional<PayloadField> field_named(std::string_view name) {
    constexpr std::array<std::pair<std::string_view, PayloadField>, 4> names{
        {{"Message size [bytes]", PayloadField::bytes},
         {"NCCL communicator ID", PayloadField::communicator},
         {"No. of ranks", PayloadField::ranks},
         {"Rank", PayloadField::rank}}};
    const auto* const found =
        std::ranges::find(names, name, [](const auto& named) { return named.first; });
    return found == names.end() ? std::nullopt : std::optional(found->second);
}

void set(PayloadField field, std::uint64_t value, CollectivePayload& payload) {
    constexpr std::uint64_t most = std::uint64_t{1} << 50;
    if (field == PayloadField::communicator) {
        payload.communicator = value;
        return;
    }
    if (value > most) {
        return;
    }
    const auto number = static_cast<std::int64_t>(value);
    (field == PayloadField::bytes   ? payload.bytes
     : field == PayloadField::ranks ? payload.ranks
                                    : payload.rank) = number;
}

// A number, or the text of one, which depends on NCCL's version.
std::optional<std::uint64_t> number_in(const nlohmann::json& value) {
    if (value.is_number_unsigned()) {
        return value.get<std::uint64_t>();
    }
    if (!value.is_string()) {
        return std::nullopt;
    }
    const auto& text = value.get_ref<const std::string&>();
    const bool is_hex = text.starts_with("0x");
    std::uint64_t number = 0;
    const char* const end = text.data() + text.size();
    const auto [last, error] =
        std::from_chars(text.data() + (is_hex ? 2 : 0), end, number, is_hex ? 16 : 10);
    return error == std::errc{} && last == end ? std::optional(number) : std::nullopt;
}

std::uint64_t number_at(std::string_view bytes, std::size_t offset, std::size_t size) {
    std::uint64_t value = 0;
    std::memcpy(&value, bytes.data() + offset, size);
    return value;
}

// By NVTX's number of a type (nvtx3/nvToolsExtPayload.h): 4 bytes for NCCL's ranks, 8 for its sizes
// and identifiers; 0: another type.
std::size_t size_of_type(std::int64_t type) {
    constexpr std::array<std::int64_t, 4> of_four{5, 6, 15, 16};              // int, int32_t
    constexpr std::array<std::int64_t, 7> of_eight{7, 8, 9, 10, 17, 18, 22};  // long, size_t
    return std::ranges::find(of_four, type) != of_four.end()     ? 4
           : std::ranges::find(of_eight, type) != of_eight.end() ? 8
                                                                 : 0;
}

}  // namespace

PayloadSchemas payload_schemas(ExportDatabase& database) {
    constexpr std::size_t most_schemas = 1'000;
    constexpr std::int64_t longest_payload = 10'000;
    constexpr std::array<const char*, 5> columns{"domainId", "schemaId", "type", "name", "offset"};
    PayloadSchemas schemas;
    ExportRows rows = database.rows("NVTX_PAYLOAD_SCHEMA_ENTRIES", columns);
    while (rows.next()) {
        const auto domain = rows.number(0);
        const auto schema = rows.number(1);
        const std::optional<PayloadField> field = field_named(rows.text(3));
        const std::size_t size = size_of_type(rows.number(2).value_or(0));
        const std::int64_t offset = rows.number(4).value_or(0);  // the first one has none
        if (domain && schema && field && size > 0 && offset >= 0 && offset < longest_payload &&
            schemas.size() < most_schemas) {
            std::vector<PayloadEntry>& entries = schemas[{*domain, *schema}];
            if (entries.size() < 16) {
                entries.push_back({*field, static_cast<std::size_t>(offset), size});
            }
        }
    }
    return schemas;
}

std::optional<CollectivePayload> payload_of_json(std::string_view text) {
    constexpr std::size_t longest = 10'000;  // so not nested too deeply, either
    if (text.size() > longest) {
        return std::nullopt;
    }
    const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
    if (!json.is_structured()) {
        return std::nullopt;
    }
    const nlohmann::json flat = json.flatten();
    CollectivePayload payload;
    bool any = false;
    // Members stand at any depth.
    for (const auto& [pointer, value] : flat.items()) {
        const auto field = field_named(std::string_view(pointer).substr(pointer.rfind('/') + 1));
        const auto number = number_in(value);
        if (field && number) {
            set(*field, *number, payload);
            any = true;
        }
    }
    return any ? std::optional(payload) : std::nullopt;
}

// A header of 32 bytes (domain and schema, each with 4 bytes to spare; the payload's size and all
// of it), then the payload.
std::optional<CollectivePayload> payload_of_bytes(std::string_view bytes,
                                                  const PayloadSchemas& schemas) {
    constexpr std::size_t header_bytes = 32;
    if (bytes.size() < header_bytes) {
        return std::nullopt;
    }
    const auto found = schemas.find({static_cast<std::int64_t>(number_at(bytes, 0, 4)),
                                     static_cast<std::int64_t>(number_at(bytes, 8, 4))});
    if (found == schemas.end()) {
        return std::nullopt;
    }
    bytes.remove_prefix(header_bytes);
    CollectivePayload payload;
    bool any = false;
    for (const PayloadEntry& entry : found->second) {
        if (entry.offset + entry.size <= bytes.size()) {
            set(entry.field, number_at(bytes, entry.offset, entry.size), payload);
            any = true;
        }
    }
    return any ? std::optional(payload) : std::nullopt;
}

}  // namespace bucketwise
