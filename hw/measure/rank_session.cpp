#include "hw/measure/rank_session.h"

#include <algorithm>

#include <fmt/format.h>

namespace bucketwise {

void RankSession::show(const std::string& text) {
    shown_ = text;
    show_again();
}

void RankSession::show_again() const {
    if (!show_) {
        return;
    }
    if (!limit_) {
        show_(fmt::format("items {} {} {}", done_, total_, shown_));
        return;
    }
    const std::chrono::duration<double, std::milli> elapsed =
        std::chrono::steady_clock::now() - start_;
    show_(fmt::format("ms {:.0f} {:.0f} {}", elapsed.count(), 1e3 * limit_->count(), shown_));
}

void RankSession::tell(const std::string& note) const {
    if (show_) {
        show_("note " + note);
    }
}

void RankSession::take_rounds(const MeasuringOrder& order, std::size_t items, const Label& label,
                              const Measure& measure, const Wanted& wanted) {
    for (std::int64_t round = 0; round < order.rounds; ++round) {
        for (const std::int32_t index : order_of_round(items, order.seed, round)) {
            const auto item = static_cast<std::size_t>(index);
            if (!wanted || wanted(round, item)) {
                show(fmt::format("{}, round {} of {}", label(item), round + 1, order.rounds));
                measure(round, item);
                item_done();
            }
        }
    }
}

std::vector<std::vector<double>> RankSession::gather(std::span<const double> own) const {
    const std::vector<double> all = control().gather_to_first(own);
    std::vector<std::vector<double>> by_rank;
    for (int rank = 0; is_first() && rank < control().ranks(); ++rank) {
        const auto begin = all.begin() + rank * std::ssize(own);
        by_rank.emplace_back(begin, begin + std::ssize(own));
    }
    return by_rank;
}

std::vector<double> RankSession::greatest(std::span<const double> own) const {
    std::vector<double> result(is_first() ? own.size() : 0, 0.0);
    for (const std::vector<double>& of_rank : gather(own)) {
        for (std::size_t i = 0; i < result.size(); ++i) {
            result[i] = std::max(result[i], of_rank[i]);
        }
    }
    return result;
}

std::vector<double> RankSession::slowest_us(const std::vector<Duration>& times) const {
    return greatest(microseconds(times));
}

void RankSession::keep(const std::vector<Measurement>& records) const {
    if (keep_ && is_first()) {
        keep_(records);
    }
}

}  // namespace bucketwise
