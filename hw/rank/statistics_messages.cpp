#include "hw/rank/statistics_messages.h"

#include <algorithm>

#include <fmt/format.h>

#include "hw/compute/elements.h"
#include "sim/base/invariant.h"

namespace bucketwise {
namespace {

// An alignment that suits kernels and NCCL.
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

}  // namespace

StatisticsMessages::StatisticsMessages(const Program& program, int rank, int ranks)
    : ranks_(ranks), exchanges_(program.collectives.size()) {
    for (std::size_t i = 0; i < program.collectives.size(); ++i) {
        if (stand_for(program.collectives[i])) {
            add(program.collectives[i], i, rank);
        }
    }
}

bool StatisticsMessages::stand_for(const Collective& collective) {
    return collective.statistics() != nullptr ||
           (std::holds_alternative<UpdatedParameters>(collective.cargo) &&
            collective.kind == CollectiveKind::all_gather);
}

void StatisticsMessages::add(const Collective& collective, std::size_t index, int rank) {
    StatisticsExchange& exchange = exchanges_[index];
    exchange.gathers = collective.kind == CollectiveKind::all_gather;
    exchange.dtype =
        collective.statistics() != nullptr ? collective.statistics()->dtype : DType::float32;
    exchange.elements = collective.bytes.count / (exchange.gathers ? ranks_ : 1) /
                        element_size(exchange.dtype).count;
    exchange.own_offset = aligned(std::ssize(initial_));
    exchange.all_offset = aligned(exchange.own_offset + exchange.own_size().count);
    const std::int64_t end = exchange.all_offset + (exchange.gathers ? collective.bytes.count : 0);
    initial_.resize(static_cast<std::size_t>(end));
    constexpr std::int64_t at_once = 7LL * 512;  // values repeat
    std::vector<double> values;
    for (std::int64_t i = 0; i < std::min(at_once, exchange.elements); ++i) {
        values.push_back(value_of(rank, i));
    }
    for (std::int64_t i = 0; i < exchange.elements; i += at_once) {
        cast_scaled(element(initial_.data() + exchange.own_offset, i, exchange.dtype),
                    exchange.dtype, values.data(), DType::float64,
                    std::min(at_once, exchange.elements - i), 1.0);
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
            const double got = element_at(result, exchange.dtype, i);
            if (got != expected) {
                return fmt::format("statistics of collective {}, element {}: expected {}, got {}",
                                   index, i, expected, got);
            }
        }
    }
    return "";
}

}  // namespace bucketwise
