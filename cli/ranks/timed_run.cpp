#include "cli/ranks/timed_run.h"

#include <chrono>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "sim/base/json_input.h"
#include "sim/base/json_output.h"
#include "sim/base/transformed.h"
#include "sim/scenario/sharding_input.h"

namespace bucketwise {
namespace {

using Seconds = std::chrono::duration<double>;

std::string text_of_steps(const std::vector<Item>& steps) {
    const auto json = [](const Item& item) {
        return item.sharding ? sharding_json(*item.sharding) : Json(item.cap.size().value().count);
    };
    return steps.empty() ? "" : json_list(steps, json).dump();
}

std::vector<Item> steps_in(const std::string& text, const Scenario& scenario) {
    const Json list = text.empty() ? Json::array() : parse_json(text, "rank 0");
    return transformed(list, [&](const Json& json) {
        Item item{.protocol = Protocol::step};
        if (scenario.sharding) {
            item.sharding =
                read_sharding_settings({&json, "rank 0", ""}, scenario.sharding->strategy);
            item.sharding->reduces_in_own_dtype = scenario.sharding->reduces_in_own_dtype;
        } else {
            item.cap = Cap(Bytes{json.get<std::int64_t>()});
        }
        return item;
    });
}

std::string text_of_letters(const std::vector<std::int64_t>& letters) {
    std::string text;
    for (const std::int64_t letter : letters) {
        text += static_cast<char>(letter);
    }
    return text;
}

RoundOrder shared(RoundOrder order, const Scenario& scenario, ControlGroup& control) {
    const std::string text = text_of_steps(order.new_steps);
    std::vector<std::int64_t> letters(text.begin(), text.end());
    std::vector<std::int64_t> message{order.round, std::ssize(letters), std::ssize(order.items)};
    control.broadcast_from_first(message);
    order.round = message[0];
    letters.resize(static_cast<std::size_t>(message[1]));
    order.items.resize(static_cast<std::size_t>(message[2]));
    for (std::vector<std::int64_t>* list : {&letters, &order.items}) {
        if (!list->empty()) {
            control.broadcast_from_first(*list);
        }
    }
    order.new_steps = steps_in(text_of_letters(letters), scenario);
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
        tell_news();
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
        return shared(director_ != nullptr ? decide(*director_) : RoundOrder{}, options_.scenario,
                      session_.control());
    }

    void follow(const RoundOrder& order) {
        for (const Item& step : order.new_steps) {
            items_.push_back(step);
            measure(items_.size() - 1, -1);
        }
        std::vector<std::int64_t> items = order.items;
        if (order.round >= 0) {  // drift falls on all alike
            const std::uint64_t seed = options_.job.order.seed;
            items = transformed(
                order_of_round(items.size(), seed, order.round),
                [&](std::int32_t at) { return order.items[static_cast<std::size_t>(at)]; });
        }
        for (const std::int64_t item : items) {
            measure(static_cast<std::size_t>(item), order.round);
        }
    }

    void tell_news() {
        if (const std::string note = director_ != nullptr ? director_->note() : ""; !note.empty()) {
            session_.tell(note);
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
            tell_news();
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
