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

// NCCL's names of them, in all versions that have any.
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

// Wherever in the text they stand, as numbers or as texts of them, which depends on the version.
class PayloadHandler : public nlohmann::json_sax<nlohmann::json> {
  public:
    [[nodiscard]] bool any() const { return any_; }
    [[nodiscard]] const CollectivePayload& payload() const { return payload_; }

    bool null() override { return true; }
    bool boolean(bool /*value*/) override { return true; }
    bool number_integer(number_integer_t value) override {
        return value < 0 || take(static_cast<std::uint64_t>(value));
    }
    bool number_unsigned(number_unsigned_t value) override { return take(value); }
    bool number_float(number_float_t /*value*/, const string_t& /*text*/) override { return true; }
    bool string(string_t& value) override {
        const bool is_hex = value.starts_with("0x");
        std::uint64_t number = 0;
        const char* const end = value.data() + value.size();
        const auto [last, error] =
            std::from_chars(value.data() + (is_hex ? 2 : 0), end, number, is_hex ? 16 : 10);
        return error != std::errc{} || last != end || take(number);
    }
    bool binary(binary_t& /*value*/) override { return true; }
    bool start_object(std::size_t /*size*/) override { return open(); }
    bool key(string_t& value) override {
        field_ = field_named(value);
        return true;
    }
    bool end_object() override { return close(); }
    bool start_array(std::size_t /*size*/) override { return open(); }
    bool end_array() override { return close(); }
    bool parse_error(std::size_t /*position*/, const std::string& /*token*/,
                     const nlohmann::detail::exception& /*error*/) override {
        return false;
    }

  private:
    bool open() {
        constexpr int deepest = 20;
        return ++depth_ <= deepest;
    }
    bool close() {
        --depth_;
        return true;
    }
    bool take(std::uint64_t value) {
        if (field_) {
            set(*field_, value, payload_);
            any_ = true;
        }
        return true;
    }

    int depth_ = 0;
    std::optional<PayloadField> field_;
    CollectivePayload payload_;
    bool any_ = false;
};

std::uint64_t number_at(std::string_view bytes, std::size_t offset, std::size_t size) {
    std::uint64_t value = 0;
    std::memcpy(&value, bytes.data() + offset, size);
    return value;
}

// By NVTX's number of a type (nvtx3/nvToolsExtPayload.h): those of 4 bytes that are NCCL's ranks
// and those of 8 that are its sizes and identifiers. 0: another.
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
    PayloadHandler handler;
    nlohmann::json::sax_parse(text.begin(), text.end(), &handler);
    return handler.any() ? std::optional(handler.payload()) : std::nullopt;
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
