#include "cli/ranks/time_plan.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "sim/base/invariant.h"
#include "sim/base/statistics.h"

namespace bucketwise {
namespace {

// The least rounds for a calibration and a comparison, and the most that help.
constexpr std::int64_t fewest_message_rounds = 2;
constexpr std::int64_t message_rounds_before_the_end = 4;  // where it ends early
constexpr std::int64_t most_message_rounds = 10;
constexpr std::int64_t fewest_step_rounds = 5;
constexpr double most_for_messages = 0.3;  // of the time
constexpr double most_planned = 0.85;      // of the time, as some items take longer
// Rounds of messages end at this share of the time, as changed advice must still be measured.
constexpr double messages_until = 0.75;

// Shares of the items of a kind that stay where all are too many, and the least numbers.
constexpr double smallest_share = 0.2;
constexpr double shares_that_stay[] = {1.0, 0.7, 0.5, 0.35, smallest_share};
// Where even these do not fit: the largest shares of the time left for one message, and for
// contention.
constexpr double most_for_a_message = 0.15;
constexpr double most_for_contention = 0.1;
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
    constexpr std::array order{Protocol::compute,        Protocol::step,
                               Protocol::all_reduce,     Protocol::all_gather,
                               Protocol::reduce_scatter, Protocol::contention};
    static_assert(order.size() == every<Protocol>.size());
    std::vector<std::size_t> probes;
    for (const Protocol protocol : order) {
        const std::vector<std::size_t> items = of_kind(protocol);
        if (!items.empty()) {
            probes.push_back(*std::ranges::max_element(
                items, {}, [&](std::size_t item) { return items_[item].message; }));
        }
    }
    return probes;
}

void TimePlan::took(std::size_t item, double seconds, double elapsed_s) {
    seconds_[item].push_back(seconds);
    if (chosen_.empty()) {
        find_too_short(least_s(thinned(smallest_share)), elapsed_s);
    }
}

double TimePlan::step_s() const {
    const std::vector<std::size_t> steps = of_kind(Protocol::step);
    return steps.empty() ? 0 : cost_of(steps.front());
}

// The item's median time, or else an estimate from a measured item of its kind. A step takes no
// less than computing, which is measured by two steps without communication.
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
    const std::vector<std::size_t> computing = of_kind(Protocol::compute);
    return is_step(item) && !computing.empty() && !seconds_[computing.front()].empty()
               ? median(seconds_[computing.front()])
               : 0;
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

std::vector<std::size_t> TimePlan::messages() const {
    std::vector<std::size_t> messages;
    std::ranges::copy_if(chosen_, std::back_inserter(messages), [&](std::size_t item) {
        return !is_step(item) && items_[item].protocol != Protocol::compute;
    });
    return messages;
}

std::vector<std::size_t> TimePlan::always() const {
    std::vector<std::size_t> always = essential_;
    std::ranges::copy_if(chosen_, std::back_inserter(always), [&](std::size_t item) {
        return items_[item].protocol == Protocol::compute;
    });
    return always;
}

// One round of what says anything: the smallest message and a large one, computing, the default and
// another step; contention where it takes little.
std::vector<std::size_t> TimePlan::barest(double left_s) const {
    std::set<std::size_t> kept(essential_.begin(), essential_.end());
    for (const Protocol protocol : every<Protocol>) {
        std::vector<std::size_t> items = of_kind(protocol);
        if (protocol == Protocol::step && !items.empty()) {
            items = {items[items.size() / 2]};
        } else if (protocol == Protocol::contention) {
            std::erase_if(items, [&](std::size_t item) {
                return cost_of(item) > most_for_contention * left_s;
            });
            items = spread(items, std::min(items.size(), fewest_contentions));
        } else if (protocol != Protocol::compute) {
            std::ranges::sort(items, {}, [&](std::size_t item) { return items_[item].message; });
            while (items.size() > 2 && cost_of(items.back()) > most_for_a_message * left_s) {
                items.pop_back();
            }
            items = spread(items, 2);
        }
        kept.insert(items.begin(), items.end());
    }
    return {kept.begin(), kept.end()};
}

// Warming up, a calibration and as many rounds as a decision needs.
double TimePlan::least_s(const std::vector<std::size_t>& items) const {
    double of_messages = 0;
    double of_others = 0;
    for (const std::size_t item : items) {
        const bool is_other = is_step(item) || items_[item].protocol == Protocol::compute;
        (is_other ? of_others : of_messages) += cost_of(item);
    }
    return static_cast<double>(fewest_message_rounds + 2) * of_messages +
           static_cast<double>(fewest_step_rounds + 1) * of_others;
}

bool TimePlan::find_too_short(double least, double elapsed_s) {
    const bool fits = least <= most_planned * left_s(elapsed_s);
    needed_s_ = fits ? std::nullopt : std::optional(elapsed_s + least / most_planned);
    return !fits;
}

void TimePlan::choose(double elapsed_s) {
    for (const double share : shares_that_stay) {
        chosen_ = thinned(share);
        if (!find_too_short(least_s(chosen_), elapsed_s)) {
            break;
        }
    }
    if (needed_s_) {
        chosen_ = barest(left_s(elapsed_s));
    }
    chosen_at_s_ = elapsed_s;
    const double of_messages = std::max(cost_of(messages()), 1e-9);
    const double after_warming_up = left_s(elapsed_s) - cost_of(chosen_);
    message_rounds_ =
        std::clamp(static_cast<std::int64_t>(most_for_messages * after_warming_up / of_messages),
                   fewest_message_rounds, most_message_rounds);
}

std::vector<std::size_t> TimePlan::cold() const {
    std::vector<std::size_t> cold;
    const std::vector<std::size_t> warm = probes();
    if (!needed_s_) {
        std::ranges::copy_if(chosen_, std::back_inserter(cold), [&](std::size_t item) {
            return std::ranges::find(warm, item) == warm.end();
        });
    }
    return cold;
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

// In the first rounds, then evenly over the time, so that messages and steps see the same drift; at
// once where nothing else is missing.
bool TimePlan::are_messages_due(double elapsed_s, bool settled) const {
    if (message_rounds_done_ >= message_rounds_ || messages().empty()) {
        return false;
    }
    if (rounds_ < fewest_message_rounds || settled) {
        return true;
    }
    const double pace =
        messages_until * (limit_s_ - chosen_at_s_) / static_cast<double>(message_rounds_ - 1);
    return elapsed_s - chosen_at_s_ >= static_cast<double>(message_rounds_done_) * pace;
}

std::vector<std::size_t> TimePlan::next_round(double elapsed_s,
                                              const std::vector<std::size_t>& wanted,
                                              bool settled) {
    const std::vector<std::size_t> apart = messages();
    const std::int64_t wanted_rounds =
        apart.empty() ? 0 : std::min(message_rounds_, message_rounds_before_the_end);
    const bool measured_enough =
        rounds_ >= fewest_step_rounds && message_rounds_done_ >= wanted_rounds;
    if (rounds_ >= most_rounds_ || (settled && measured_enough)) {
        return {};
    }
    const std::vector<std::size_t> least = always();
    std::set<std::size_t> others(least.begin(), least.end());
    others.insert(wanted.begin(), wanted.end());
    std::vector<std::size_t> round(others.begin(), others.end());
    const double left = left_s(elapsed_s);
    // The first round is always measured.
    const bool is_first = rounds_ == 0;
    if (are_messages_due(elapsed_s, settled) &&
        (is_first || cost_of(round) + cost_of(apart) <= left)) {
        round.insert(round.end(), apart.begin(), apart.end());
        ++message_rounds_done_;
    } else if (!is_first && cost_of(round) > left) {
        round = cost_of(least) <= left ? least : essential_;
    }
    if (round.empty() || (!is_first && cost_of(round) > left)) {
        return {};
    }
    ++rounds_;
    std::ranges::sort(round);
    return round;
}

}  // namespace bucketwise
