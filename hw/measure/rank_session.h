// One rank's part in measuring, the same whatever is measured: it has met the others, takes items
// round by round, says how far it is, and brings to rank 0 what all ranks have seen.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "hw/backend/backend.h"
#include "hw/measure/measuring_order.h"
#include "hw/rank/control_group.h"
#include "hw/record/measurement.h"
#include "sim/base/transformed.h"
#include "sim/base/units.h"

namespace bucketwise {

class RankSession {
  public:
    // Both may be empty. `show` gets "items DONE TOTAL TEXT" or "ms ELAPSED LIMIT TEXT" on every
    // rank, `keep` records on rank 0.
    using Show = std::function<void(const std::string& text)>;
    using Keep = std::function<void(const std::vector<Measurement>& records)>;

    explicit RankSession(std::unique_ptr<RankConnection> connection, Show show = {}, Keep keep = {})
        : connection_(std::move(connection)), show_(std::move(show)), keep_(std::move(keep)) {}

    [[nodiscard]] RankConnection& connection() const { return *connection_; }
    [[nodiscard]] ControlGroup& control() const { return connection_->control(); }
    [[nodiscard]] bool is_first() const { return control().rank() == 0; }

    // --- how far it is ---

    // `total` items in all, of which `done` were done before this session.
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
