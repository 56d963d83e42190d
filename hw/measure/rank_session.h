// One rank's part in any measurement: it has met the others, takes items round by round, reports
// its progress, and brings all ranks' numbers to rank 0.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "hw/backend/backend.h"
#include "hw/rank/communicator.h"
#include "hw/record/measurement.h"
#include "sim/base/hash.h"
#include "sim/base/transformed.h"
#include "sim/base/units.h"

namespace bucketwise {

struct MeasuringOrder {
    std::int64_t rounds = 1;  // that are kept; one more before them may warm up
    std::uint64_t seed = 0;
    bool operator==(const MeasuringOrder&) const = default;
};

// Bits that depend on the seed, the round and the item alone. Each part is mixed before the next
// one joins, so that no two of them can stand for each other.
inline std::uint64_t seeded_bits(std::uint64_t seed, std::int64_t round, std::int64_t item) {
    const std::uint64_t with_round =
        mixed_bits(mixed_bits(seed) ^ static_cast<std::uint64_t>(round));
    return mixed_bits(with_round ^ static_cast<std::uint64_t>(item));
}

// Indices of `items` items, the same on every machine and with every compiler: by Fisher and Yates,
// as std::shuffle's result differs between standard libraries.
inline std::vector<std::int32_t> order_of_round(std::size_t items, std::uint64_t seed,
                                                std::int64_t round) {
    std::vector<std::int32_t> order(items);
    std::iota(order.begin(), order.end(), 0);
    for (std::size_t left = order.size(); left > 1; --left) {
        const std::uint64_t bits = seeded_bits(seed, round, static_cast<std::int64_t>(left));
        std::swap(order[left - 1], order[bits % left]);
    }
    return order;
}

class RankSession {
  public:
    // Both may be empty. `show` gets "items DONE TOTAL TEXT" or "ms ELAPSED LIMIT TEXT" on every
    // rank, and "note TEXT", `keep` records on rank 0.
    using Show = std::function<void(const std::string& text)>;
    using Keep = std::function<void(const std::vector<Measurement>& records)>;

    explicit RankSession(std::unique_ptr<RankConnection> connection, Show show = {}, Keep keep = {})
        : connection_(std::move(connection)), show_(std::move(show)), keep_(std::move(keep)) {}

    [[nodiscard]] RankConnection& connection() const { return *connection_; }
    [[nodiscard]] ControlGroup& control() const { return connection_->control(); }
    [[nodiscard]] bool is_first() const { return control().rank() == 0; }

    // --- how far it is ---

    // `total` items in all; `done` were done before this session.
    void expect(std::int64_t total, std::int64_t done = 0) {
        total_ = total;
        done_ = done;
    }
    // Instead, a run that ends after so long, which begins now.
    void expect_time(std::chrono::duration<double> limit) {
        limit_ = limit;
        start_ = std::chrono::steady_clock::now();
    }
    void show(const std::string& text);
    void show_again() const;  // who says nothing for long is taken for hung
    void tell(const std::string& note) const;
    void item_done() { ++done_; }

    // --- rounds ---

    using Label = std::function<std::string(std::size_t item)>;
    using Measure = std::function<void(std::int64_t round, std::size_t item)>;
    using Wanted = std::function<bool(std::int64_t round, std::size_t item)>;  // empty: all are

    // Shows each item that is wanted, measures it, and counts it as done.
    void take_rounds(const MeasuringOrder& order, std::size_t items, const Label& label,
                     const Measure& measure, const Wanted& wanted = {});

    // Collective. Nobody leaves while others may still need what it sent last.
    void leave() const { control().barrier(); }

    // --- what all ranks saw: collective, with as many values on every rank; on rank 0 only,
    // elsewhere empty ---

    // Rank by rank.
    [[nodiscard]] std::vector<std::vector<double>> gather(std::span<const double> own) const;
    // By place the largest of any rank, and no less than 0.
    [[nodiscard]] std::vector<double> greatest(std::span<const double> own) const;
    // By iteration, the microseconds of the slowest rank.
    [[nodiscard]] std::vector<double> slowest_us(const std::vector<Duration>& times) const;

    void keep(const std::vector<Measurement>& records) const;

  private:
    std::unique_ptr<RankConnection> connection_;
    Show show_;
    Keep keep_;
    std::int64_t done_ = 0;
    std::int64_t total_ = 0;
    std::optional<std::chrono::duration<double>> limit_;
    std::chrono::steady_clock::time_point start_;
    std::string shown_;
};

inline std::vector<double> microseconds(const std::vector<Duration>& times) {
    return transformed(times, to_us);
}

}  // namespace bucketwise
