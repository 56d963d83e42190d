#include "cli/ranks/timed_run.h"

#include <chrono>

#include <fmt/format.h>

namespace bucketwise {
namespace {

using Seconds = std::chrono::duration<double>;

RoundOrder shared(RoundOrder order, ControlGroup& control) {
    std::vector<std::int64_t> message{order.round, std::ssize(order.new_caps),
                                      std::ssize(order.items)};
    control.broadcast_from_first(message);
    order.round = message[0];
    order.new_caps.resize(static_cast<std::size_t>(message[1]));
    order.items.resize(static_cast<std::size_t>(message[2]));
    for (std::vector<std::int64_t>* list : {&order.new_caps, &order.items}) {
        if (!list->empty()) {
            control.broadcast_from_first(*list);
        }
    }
    return order;
}

// One rank's part.
class TimedRun {
  public:
    TimedRun(const MeasureOptions& options, Measurer& measurer, RankSession& session,
             const std::function<std::string(const Item&)>& label, RoundDirector* director)
        : options_(options),
          measurer_(measurer),
          session_(session),
          label_(label),
          director_(director),
          items_(options.items) {}

    void run() {
        follow(order_by([](RoundDirector& director) { return director.probes(); }));
        follow(order_by([](RoundDirector& director) { return director.warm_up(); }));
        for (;;) {
            const RoundOrder order =
                order_by([](RoundDirector& director) { return director.next_round(); });
            if (order.items.empty()) {
                return;
            }
            follow(order);
        }
    }

  private:
    // Rank 0's director decides.
    RoundOrder order_by(RoundOrder (*decide)(RoundDirector& director)) {
        return shared(director_ != nullptr ? decide(*director_) : RoundOrder{}, session_.control());
    }

    void follow(const RoundOrder& order) {
        for (const std::int64_t cap : order.new_caps) {
            items_.push_back({.protocol = Protocol::step, .cap = Cap(Bytes{cap})});
            measure(items_.size() - 1, -1);
        }
        const std::uint64_t seed = options_.job.order.seed;
        for (const std::int32_t place : order_of_round(order.items.size(), seed, order.round)) {
            measure(static_cast<std::size_t>(order.items[static_cast<std::size_t>(place)]),
                    order.round);
        }
    }

    void measure(std::size_t item, std::int64_t round) {
        const std::string what = label_(items_[item]);
        session_.show(round < 0 ? "warming up: " + what
                                : fmt::format("{}, round {}", what, round + 1));
        const auto start = std::chrono::steady_clock::now();
        const std::vector<Measurement> records = measurer_.measure(
            items_[item], round,
            seeded_bits(options_.job.order.seed, round, static_cast<std::int64_t>(item)));
        if (director_ != nullptr) {
            director_->took(item, Seconds(std::chrono::steady_clock::now() - start).count());
        }
        if (round < 0) {
            return;
        }
        session_.keep(records);
        if (director_ != nullptr) {
            for (const Measurement& record : records) {
                director_->keep(record);
            }
        }
    }

    const MeasureOptions& options_;
    Measurer& measurer_;
    RankSession& session_;
    const std::function<std::string(const Item&)>& label_;
    RoundDirector* director_;  // rank 0's
    std::vector<Item> items_;
};

}  // namespace

void measure_in_time(const MeasureOptions& options, Measurer& measurer, RankSession& session,
                     RoundDirector* director,
                     const std::function<std::string(const Item&)>& label) {
    session.expect_time(Seconds(*options.time_limit));
    TimedRun(options, measurer, session, label, director).run();
}

}  // namespace bucketwise
