// The table that `bucketwise bench allreduce` prints, made from the records alone.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "hw/measurement.h"
#include "sim/units.h"

namespace bucketwise {

enum class BenchFormat : std::uint8_t {
    text,
    csv,        // one row per ranks, size and algorithm
    nccl_tests  // as all_reduce_perf prints it, a block per ranks and algorithm
};

constexpr std::array<BenchFormat, 3> all_formats{BenchFormat::text, BenchFormat::csv,
                                                 BenchFormat::nccl_tests};

std::string_view name_of(BenchFormat format);

// A size as it was typed, most likely: "10MB" for 10,000,000 bytes, where text_of() says 9.54MiB.
std::string message_text(Bytes size);

std::string bench_allreduce_report(const std::vector<Measurement>& records, BenchFormat format);

}  // namespace bucketwise
