#include "cli/ranks/time_plan.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "sim/base/invariant.h"
#include "sim/base/statistics.h"

namespace bucketwise {
namespace {

// The least rounds for a calibration and a comparison, and the most that help.
constexpr std::int64_t fewest_isolated_rounds = 2;
constexpr std::int64_t isolated_rounds_before_the_end = 4;  // where it ends early
constexpr std::int64_t most_isolated_rounds = 10;
constexpr std::int64_t fewest_step_rounds = 5;
constexpr double most_for_isolated = 0.35;  // of the time
constexpr double most_planned = 0.85;       // of the time, as some items take longer
// Isolated rounds end at this share of the time, as changed advice must still be measured.
constexpr double isolated_until = 0.75;

// Shares of the items of a kind that stay where all are too many, and the least numbers.
constexpr double shares_that_stay[] = {1.0, 0.7, 0.5, 0.35, 0.2};
constexpr std::size_t fewest_messages = 4;
constexpr std::size_t fewest_contentions = 1;
constexpr std::size_t fewest_steps = 4;
constexpr double least_message_share = 0.02;  // of the largest one's time: many are sent

std::size_t fewest_of(Protocol protocol) {
    switch (protocol) {
        case Protocol::all_reduce:
        case Protocol::all_gather:
        case Protocol::reduce_scatter:
            return fewest_messages;
        case Protocol::contention:
            return fewest_contentions;
        case Protocol::step:
            return fewest_steps;
        case Protocol::compute:
            return 1;
    }
    return 1;
}

// So many items, evenly spread, both ends among them.
std::vector<std::size_t> spread(const std::vector<std::size_t>& items, std::size_t count) {
    if (count >= items.size()) {
        return items;
    }
    std::vector<std::size_t> kept;
    for (std::size_t i = 0; i < count; ++i) {
        // A single item is the last: the largest.
        const double at =
            count == 1 ? 1.0 : static_cast<double>(i) / static_cast<double>(count - 1);
        kept.push_back(items[static_cast<std::size_t>(
            std::lround(at * static_cast<double>(items.size() - 1)))]);
    }
    return kept;
}

}  // namespace

TimePlan::TimePlan(std::vector<Item> items, double limit_s, std::int64_t most_rounds,
                   std::vector<std::size_t> essential)
    : items_(std::move(items)),
      limit_s_(limit_s),
      most_rounds_(most_rounds),
      essential_(std::move(essential)),
      seconds_(items_.size()) {
    invariant(!items_.empty(), "there is something to measure");
}

bool TimePlan::is_step(std::size_t item) const {
    return items_[item].protocol == Protocol::step;
}

std::vector<std::size_t> TimePlan::of_kind(Protocol protocol) const {
    std::vector<std::size_t> found;
    for (std::size_t item = 0; item < items_.size(); ++item) {
        if (items_[item].protocol == protocol) {
            found.push_back(item);
        }
    }
    return found;
}

std::vector<std::size_t> TimePlan::probes() const {
    std::vector<std::size_t> probes;
    for (const Protocol protocol : every<Protocol>) {
        const std::vector<std::size_t> items = of_kind(protocol);
        if (!items.empty()) {
            probes.push_back(*std::ranges::max_element(
                items, {}, [&](std::size_t item) { return items_[item].message; }));
        }
    }
    return probes;
}

void TimePlan::took(std::size_t item, double seconds) {
    seconds_[item].push_back(seconds);
}

// The item's median time, or else an estimate from a measured item of its kind.
double TimePlan::cost_of(std::size_t item) const {
    if (!seconds_[item].empty()) {
        return median(seconds_[item]);
    }
    for (const std::size_t other : of_kind(items_[item].protocol)) {
        if (seconds_[other].empty()) {
            continue;
        }
        const double of_other = median(seconds_[other]);
        const bool by_size = isolated_kind(items_[item].protocol).has_value();
        const double share = by_size ? static_cast<double>(items_[item].message.count) /
                                           static_cast<double>(items_[other].message.count)
                                     : 1.0;
        return of_other * std::max(share, least_message_share);
    }
    return 0;
}

double TimePlan::cost_of(const std::vector<std::size_t>& items) const {
    double cost = 0;
    for (const std::size_t item : items) {
        cost += cost_of(item);
    }
    return cost;
}

std::vector<std::size_t> TimePlan::thinned(double share) const {
    std::set<std::size_t> kept(essential_.begin(), essential_.end());
    for (const Protocol protocol : every<Protocol>) {
        const std::vector<std::size_t> items = of_kind(protocol);
        const auto count =
            static_cast<std::size_t>(std::ceil(share * static_cast<double>(items.size())));
        for (const std::size_t item : spread(items, std::max(count, fewest_of(protocol)))) {
            kept.insert(item);
        }
    }
    return {kept.begin(), kept.end()};
}

std::vector<std::size_t> TimePlan::isolated() const {
    std::vector<std::size_t> isolated;
    std::ranges::copy_if(chosen_, std::back_inserter(isolated),
                         [&](std::size_t item) { return !is_step(item); });
    return isolated;
}

void TimePlan::choose(double elapsed_s) {
    for (const double share : shares_that_stay) {
        chosen_ = thinned(share);
        const double all = cost_of(chosen_);
        const double of_isolated = cost_of(isolated());
        const double wanted = all + static_cast<double>(fewest_isolated_rounds + 1) * of_isolated +
                              static_cast<double>(fewest_step_rounds) * (all - of_isolated);
        if (wanted <= most_planned * left_s(elapsed_s)) {
            break;
        }
    }
    chosen_at_s_ = elapsed_s;
    const double of_isolated = std::max(cost_of(isolated()), 1e-9);
    const double after_warming_up = left_s(elapsed_s) - cost_of(chosen_);
    isolated_rounds_ =
        std::clamp(static_cast<std::int64_t>(most_for_isolated * after_warming_up / of_isolated),
                   fewest_isolated_rounds, most_isolated_rounds);
}

std::size_t TimePlan::add_step(const Item& item) {
    items_.push_back(item);
    seconds_.emplace_back();
    chosen_.push_back(items_.size() - 1);
    return items_.size() - 1;
}

double TimePlan::left_s(double elapsed_s) const {
    return std::max(limit_s_ - elapsed_s, 0.0);
}

// In the first rounds, then evenly over the time, so that isolated items and steps see the same
// drift; at once where nothing else is missing.
bool TimePlan::is_due_for_isolated(double elapsed_s, bool settled) const {
    if (isolated_done_ >= isolated_rounds_ || isolated().empty()) {
        return false;
    }
    if (rounds_ < fewest_isolated_rounds || settled) {
        return true;
    }
    const double pace =
        isolated_until * (limit_s_ - chosen_at_s_) / static_cast<double>(isolated_rounds_ - 1);
    return elapsed_s - chosen_at_s_ >= static_cast<double>(isolated_done_) * pace;
}

std::vector<std::size_t> TimePlan::next_round(double elapsed_s,
                                              const std::vector<std::size_t>& wanted,
                                              bool settled) {
    measured_isolated_ = false;
    const std::int64_t wanted_isolated =
        isolated().empty() ? 0 : std::min(isolated_rounds_, isolated_rounds_before_the_end);
    const bool measured_enough = rounds_ >= fewest_step_rounds && isolated_done_ >= wanted_isolated;
    if (rounds_ >= most_rounds_ || (settled && measured_enough)) {
        return {};
    }
    std::set<std::size_t> steps(essential_.begin(), essential_.end());
    steps.insert(wanted.begin(), wanted.end());
    std::vector<std::size_t> round(steps.begin(), steps.end());
    const double left = left_s(elapsed_s);
    const std::vector<std::size_t> apart = isolated();
    // The first round is always measured.
    const bool is_first = rounds_ == 0;
    if (is_due_for_isolated(elapsed_s, settled) &&
        (is_first || cost_of(round) + cost_of(apart) <= left)) {
        round.insert(round.end(), apart.begin(), apart.end());
        measured_isolated_ = true;
        ++isolated_done_;
    } else if (!is_first && cost_of(round) > left) {
        round = essential_;
    }
    if (round.empty() || (!is_first && cost_of(round) > left)) {
        measured_isolated_ = false;
        return {};
    }
    ++rounds_;
    std::ranges::sort(round);
    return round;
}

}  // namespace bucketwise
