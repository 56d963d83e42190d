#include "hw/batch_norm/statistics_messages.h"

#include <cstring>

#include <fmt/format.h>

#include "sim/base/invariant.h"

namespace bucketwise {
namespace {

// What kernels and NCCL like.
constexpr std::int64_t alignment = 256;

std::int64_t aligned(std::int64_t offset) {
    return (offset + alignment - 1) / alignment * alignment;
}

// Small whole numbers, so that every sum is exact; neighbours and ranks differ, so that what is
// shifted, left out or added twice is seen.
double value_of(int rank, std::int64_t element) {
    return 1 + rank + static_cast<double>(element % 7);
}

double sum_of(int ranks, std::int64_t element) {
    return 0.5 * ranks * (value_of(0, element) + value_of(ranks - 1, element));
}

void store(std::byte* block, DType dtype, std::int64_t index, double value) {
    if (dtype == DType::float64) {
        std::memcpy(block + index * element_size(dtype).count, &value, sizeof(value));
    } else {
        const auto single = static_cast<float>(value);
        std::memcpy(block + index * element_size(dtype).count, &single, sizeof(single));
    }
}

double load(const std::byte* block, DType dtype, std::int64_t index) {
    if (dtype == DType::float64) {
        double value = 0;
        std::memcpy(&value, block + index * element_size(dtype).count, sizeof(value));
        return value;
    }
    float single = 0;
    std::memcpy(&single, block + index * element_size(dtype).count, sizeof(single));
    return single;
}

}  // namespace

StatisticsMessages::StatisticsMessages(const Program& program, int rank, int ranks)
    : ranks_(ranks), exchanges_(program.collectives.size()) {
    for (std::size_t i = 0; i < program.collectives.size(); ++i) {
        if (program.collectives[i].statistics) {
            add(program.collectives[i], i, rank);
        }
    }
}

void StatisticsMessages::add(const Collective& collective, std::size_t index, int rank) {
    StatisticsExchange& exchange = exchanges_[index];
    exchange.gathers = collective.kind == CollectiveKind::all_gather;
    exchange.dtype = collective.statistics->dtype;
    exchange.elements = collective.bytes.count / (exchange.gathers ? ranks_ : 1) /
                        element_size(exchange.dtype).count;
    exchange.own_offset = aligned(std::ssize(initial_));
    exchange.all_offset = aligned(exchange.own_offset + exchange.own_size().count);
    const std::int64_t end = exchange.all_offset + (exchange.gathers ? collective.bytes.count : 0);
    initial_.resize(static_cast<std::size_t>(end));
    for (std::int64_t i = 0; i < exchange.elements; ++i) {
        store(initial_.data() + exchange.own_offset, exchange.dtype, i, value_of(rank, i));
    }
}

const StatisticsExchange& StatisticsMessages::of(std::int32_t collective) const {
    const StatisticsExchange& exchange = exchanges_.at(static_cast<std::size_t>(collective));
    invariant(exchange.elements > 0, "the collective exchanges statistics");
    return exchange;
}

std::string StatisticsMessages::what_is_wrong(const std::vector<std::byte>& block) const {
    invariant(block.size() == initial_.size(), "what is checked is what was filled");
    for (std::size_t index = 0; index < exchanges_.size(); ++index) {
        const StatisticsExchange& exchange = exchanges_[index];
        const std::byte* result =
            block.data() + (exchange.gathers ? exchange.all_offset : exchange.own_offset);
        const std::int64_t count = exchange.elements * (exchange.gathers ? ranks_ : 1);
        for (std::int64_t i = 0; i < count; ++i) {
            const double expected =
                exchange.gathers
                    ? value_of(static_cast<int>(i / exchange.elements), i % exchange.elements)
                    : sum_of(ranks_, i);
            const double got = load(result, exchange.dtype, i);
            if (got != expected) {
                return fmt::format("statistics of collective {}, element {}: expected {}, got {}",
                                   index, i, expected, got);
            }
        }
    }
    return "";
}

}  // namespace bucketwise
