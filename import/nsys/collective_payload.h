// The payload that NCCL adds to the NVTX range of a call (src/include/nvtx_payload_schemas.h of
// NCCL), as Nsight Systems exports it: as JSON (jsonText), or as bytes with a schema
// (binaryData, NVTX_PAYLOAD_SCHEMA_ENTRIES; exported with --include-blobs=true).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "import/nsys/export_database.h"

namespace bucketwise {

struct CollectivePayload {
    std::int64_t bytes = -1;         // that a rank sends; -1: not said
    std::uint64_t communicator = 0;  // 0: not said
    std::int64_t ranks = -1;         // of a new communicator; -1: not said
    std::int64_t rank = -1;
};

enum class PayloadField : std::uint8_t { bytes, communicator, ranks, rank };

// A number within a payload.
struct PayloadEntry {
    PayloadField field = PayloadField::bytes;
    std::size_t offset = 0;
    std::size_t size = 8;
};

// By domain and schema.
using PayloadSchemas = std::map<std::pair<std::int64_t, std::int64_t>, std::vector<PayloadEntry>>;

PayloadSchemas payload_schemas(ExportDatabase& database);

// Nothing if no field is there.
std::optional<CollectivePayload> payload_of_json(std::string_view text);
std::optional<CollectivePayload> payload_of_bytes(std::string_view bytes,
                                                  const PayloadSchemas& schemas);

}  // namespace bucketwise
