// The plan of a run with a limit of time: the items to measure, the rounds of messages for a
// calibration, and further rounds for undecided caps. Every round measures computing, whose speed
// drifts most. Arithmetic on the times of items; no clock, no ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "hw/measure/measurer.h"

namespace bucketwise {

class TimePlan {
  public:
    // `limit_s` counts from the same instant as every `elapsed_s`. `essential`: steps that every
    // round measures, such as the default.
    TimePlan(std::vector<Item> items, double limit_s, std::int64_t most_rounds,
             std::vector<std::size_t> essential);

    // The longest item of each kind, by which the others are estimated; computing and a step, which
    // say whether the time is enough, first.
    [[nodiscard]] std::vector<std::size_t> probes() const;

    // An item was measured, or warmed up, in that time, which ended then.
    void took(std::size_t item, double seconds, double elapsed_s);

    // After the probes: chooses the items that fit a few times into the time left.
    void choose(double elapsed_s);
    [[nodiscard]] const std::vector<std::size_t>& chosen() const { return chosen_; }
    // The chosen items to warm up; none where the time is too short.
    [[nodiscard]] std::vector<std::size_t> cold() const;

    // The least limit with which a decision is possible, as far as known, from the first probe on.
    // Empty: this one may do.
    [[nodiscard]] std::optional<double> needed_s() const { return needed_s_; }
    // A step with its counterpart that does not communicate, as far as known.
    [[nodiscard]] double step_s() const;

    // Adds a new step. Returns its index.
    std::size_t add_step(const Item& item);
    void choose_too(std::size_t item) { chosen_.push_back(item); }
    void set_essential(std::vector<std::size_t> essential) { essential_ = std::move(essential); }

    // The items of the next round, rising; empty: the end. `wanted`: steps that the decision still
    // needs, or all chosen ones in the first rounds; `settled`: it needs none.
    std::vector<std::size_t> next_round(double elapsed_s, const std::vector<std::size_t>& wanted,
                                        bool settled);

    [[nodiscard]] std::int64_t rounds() const { return rounds_; }
    // The time left, at least 0.
    [[nodiscard]] double left_s(double elapsed_s) const;

  private:
    [[nodiscard]] double cost_of(std::size_t item) const;
    [[nodiscard]] double cost_of(const std::vector<std::size_t>& items) const;
    [[nodiscard]] bool is_step(std::size_t item) const;
    [[nodiscard]] std::vector<std::size_t> of_kind(Protocol protocol) const;
    [[nodiscard]] std::vector<std::size_t> thinned(double share) const;
    [[nodiscard]] std::vector<std::size_t> barest(double left_s) const;
    [[nodiscard]] double least_s(const std::vector<std::size_t>& items) const;
    bool find_too_short(double least, double elapsed_s);
    // Those chosen: messages alone and beside computing, or what every round measures.
    [[nodiscard]] std::vector<std::size_t> messages() const;
    [[nodiscard]] std::vector<std::size_t> always() const;
    [[nodiscard]] bool are_messages_due(double elapsed_s, bool settled) const;

    std::vector<Item> items_;
    double limit_s_;
    std::int64_t most_rounds_;
    std::vector<std::size_t> essential_;
    std::vector<std::vector<double>> seconds_;  // by item, each time
    std::vector<std::size_t> chosen_;
    double chosen_at_s_ = 0;
    std::optional<double> needed_s_;
    std::int64_t message_rounds_ = 0;  // planned
    std::int64_t message_rounds_done_ = 0;
    std::int64_t rounds_ = 0;  // begun
};

}  // namespace bucketwise
