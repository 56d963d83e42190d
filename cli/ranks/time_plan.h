// The plan of a run with a limit of time: the items to measure, the rounds of isolated items for a
// calibration, and further rounds for undecided caps. Arithmetic on the times of items; no clock,
// no ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "hw/measure/measurer.h"

namespace bucketwise {

class TimePlan {
  public:
    // `limit_s` counts from the same instant as every `elapsed_s`. `essential`: steps that every
    // round measures, such as the default.
    TimePlan(std::vector<Item> items, double limit_s, std::int64_t most_rounds,
             std::vector<std::size_t> essential);

    // The longest item of each kind, by which the others are estimated.
    [[nodiscard]] std::vector<std::size_t> probes() const;

    // An item was measured, or warmed up, in that time.
    void took(std::size_t item, double seconds);

    // After the probes: chooses the items that fit a few times into the time left.
    void choose(double elapsed_s);
    [[nodiscard]] const std::vector<std::size_t>& chosen() const { return chosen_; }

    // Adds a new step. Returns its index.
    std::size_t add_step(const Item& item);
    void choose_too(std::size_t item) { chosen_.push_back(item); }
    void set_essential(std::vector<std::size_t> essential) { essential_ = std::move(essential); }

    // The items of the next round, rising; empty: the end. `wanted`: steps that the decision still
    // needs, or all chosen ones in the first rounds; `settled`: it needs none.
    std::vector<std::size_t> next_round(double elapsed_s, const std::vector<std::size_t>& wanted,
                                        bool settled);

    // Whether that round measured isolated items.
    [[nodiscard]] bool measured_isolated() const { return measured_isolated_; }
    [[nodiscard]] std::int64_t rounds() const { return rounds_; }
    // The time left, at least 0.
    [[nodiscard]] double left_s(double elapsed_s) const;

  private:
    [[nodiscard]] double cost_of(std::size_t item) const;
    [[nodiscard]] double cost_of(const std::vector<std::size_t>& items) const;
    [[nodiscard]] bool is_step(std::size_t item) const;
    [[nodiscard]] std::vector<std::size_t> of_kind(Protocol protocol) const;
    [[nodiscard]] std::vector<std::size_t> thinned(double share) const;
    [[nodiscard]] std::vector<std::size_t> isolated() const;
    [[nodiscard]] bool is_due_for_isolated(double elapsed_s, bool settled) const;

    std::vector<Item> items_;
    double limit_s_;
    std::int64_t most_rounds_;
    std::vector<std::size_t> essential_;
    std::vector<std::vector<double>> seconds_;  // by item, each time
    std::vector<std::size_t> chosen_;
    double chosen_at_s_ = 0;
    std::int64_t isolated_rounds_ = 0;  // planned
    std::int64_t isolated_done_ = 0;
    std::int64_t rounds_ = 0;  // begun
    bool measured_isolated_ = false;
};

}  // namespace bucketwise
