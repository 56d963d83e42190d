#include "cli/ranks/timed_run.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "calibrate/comparison/decision.h"
#include "calibrate/comparison/paired_steps.h"
#include "calibrate/fit/calibration.h"
#include "cli/ranks/measured_files.h"
#include "cli/ranks/time_plan.h"
#include "cli/shell/files.h"
#include "sim/base/error.h"
#include "sim/scenario/scenario.h"

namespace bucketwise {
namespace {

using Seconds = std::chrono::duration<double>;

// What rank 0 tells the others to do next.
struct Order {
    std::int64_t round = -1;               // -1: warm up, keep nothing
    std::vector<std::int64_t> new_caps;    // bytes of steps that join the items
    std::vector<std::int64_t> items = {};  // none: it is over
};

Order told(Order order, ControlGroup& control) {
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

std::vector<std::size_t> steps_among(const std::vector<Item>& items) {
    std::vector<std::size_t> steps;
    for (std::size_t item = 0; item < items.size(); ++item) {
        if (items[item].protocol == Protocol::step) {
            steps.push_back(item);
        }
    }
    return steps;
}

std::vector<std::size_t> defaults_among(const std::vector<Item>& items) {
    std::vector<std::size_t> defaults;
    for (const std::size_t step : steps_among(items)) {
        if (items[step].cap.is_default()) {
            defaults.push_back(step);
        }
    }
    return defaults;
}

// What rank 0 knows, and decides.
class Director {
  public:
    Director(const MeasureOptions& options, const std::vector<Measurement>& earlier)
        : options_(options),
          items_(options.items),
          plan_(options.items, options.time_limit->count(), options.job.order.rounds,
                defaults_among(options.items)),
          evaluator_(options.input, options.scenario.sync),
          resumed_(std::ranges::any_of(earlier, [](const Measurement& record) {
              return !std::holds_alternative<EnvironmentRecord>(record);
          })) {
        for (const Item& item : items_) {
            add_plan(item);
        }
        for (const Measurement& record : earlier) {
            keep(record);
        }
    }

    [[nodiscard]] Order probes() const { return order_of(plan_.probes()); }

    // What is still cold.
    Order warm_up() {
        plan_.choose(elapsed_s());
        std::vector<std::size_t> cold;
        const std::vector<std::size_t> probes = plan_.probes();
        if (!resumed_) {
            std::ranges::copy_if(plan_.chosen(), std::back_inserter(cold), [&](std::size_t item) {
                return std::ranges::find(probes, item) == probes.end();
            });
        }
        return order_of(cold);
    }

    Order next_round() {
        Order order;
        take_advice(order);
        const MeasuredDecision decision = decide();
        std::vector<std::size_t> wanted;
        for (const std::size_t plan : decision.open) {
            wanted.push_back(items_of_plan_[plan].front());
        }
        for (const std::size_t step : plan_.chosen()) {
            constexpr std::int64_t before_any_is_out = 3;
            if (items_[step].protocol == Protocol::step &&
                rounds_of(plan_of_[step]) < before_any_is_out) {
                wanted.push_back(step);
            }
        }
        const auto items = plan_.next_round(elapsed_s(), wanted, decision.settled);
        order.items.assign(items.begin(), items.end());
        order.round = next_round_++;
        return order;
    }

    void took(std::size_t item, double seconds) { plan_.took(item, seconds); }

    void keep(const Measurement& record) {
        records_.push_back(record);
        const auto* step = std::get_if<StepRecord>(&record);
        if (step == nullptr) {
            is_advice_new_ = true;
            return;
        }
        next_round_ = std::max(next_round_, step->round + 1);
        const Cap cap = step->is_default ? Cap() : Cap(step->cap);
        for (const std::size_t item : steps_among(items_)) {
            if (items_[item].cap == cap && !step->samples_us.empty()) {
                std::vector<std::optional<double>>& of_plan = step_us_[plan_of_[item]];
                of_plan.resize(std::max(of_plan.size(), static_cast<std::size_t>(step->round) + 1));
                of_plan[static_cast<std::size_t>(step->round)] = step->samples_us.front();
            }
        }
    }

    [[nodiscard]] double left_s() const { return plan_.left_s(elapsed_s()); }

  private:
    [[nodiscard]] double elapsed_s() const {
        return Seconds(std::chrono::steady_clock::now() - start_).count();
    }

    static Order order_of(const std::vector<std::size_t>& items) {
        Order order;
        order.items.assign(items.begin(), items.end());
        return order;
    }

    // Caps with one plan are one.
    void add_plan(const Item& item) {
        plan_of_.push_back(no_plan);
        if (item.protocol != Protocol::step) {
            return;
        }
        std::vector<Bytes> buckets = evaluator_.evaluate(item.cap).bucket_bytes;
        const auto same = std::ranges::find(buckets_of_plan_, buckets);
        plan_of_.back() = static_cast<std::size_t>(same - buckets_of_plan_.begin());
        if (same == buckets_of_plan_.end()) {
            buckets_of_plan_.push_back(std::move(buckets));
            items_of_plan_.emplace_back();
            step_us_.emplace_back();
        }
        items_of_plan_[plan_of_.back()].push_back(plan_of_.size() - 1);
    }

    [[nodiscard]] std::int64_t rounds_of(std::size_t plan) const {
        return std::ranges::count_if(step_us_[plan],
                                     [](const auto& step) { return step.has_value(); });
    }

    // Where what a calibration needs was measured again, the advice may be another.
    void take_advice(Order& order) {
        if (!std::exchange(is_advice_new_, false) || items_of_plan_.empty()) {
            return;
        }
        const std::optional<Prediction> prediction = advice_of(records_, options_.output);
        if (!prediction || prediction->advised().cap.is_none()) {
            return;
        }
        const Evaluation& advised = prediction->advised();
        const auto same = std::ranges::find(buckets_of_plan_, advised.bucket_bytes);
        if (same == buckets_of_plan_.end()) {
            const Item item{.protocol = Protocol::step, .cap = advised.cap};
            order.new_caps.push_back(advised.cap.size().value().count);
            items_.push_back(item);
            plan_.add_step(item);
            add_plan(item);
        }
        advised_ = static_cast<std::size_t>(
            std::ranges::find(buckets_of_plan_, advised.bucket_bytes) - buckets_of_plan_.begin());
    }

    MeasuredDecision decide() {
        std::size_t rounds = 0;
        for (const auto& of_plan : step_us_) {
            rounds = std::max(rounds, of_plan.size());
        }
        for (auto& of_plan : step_us_) {
            of_plan.resize(rounds);
        }
        const std::vector<std::size_t> defaults = defaults_among(items_);
        std::vector<std::size_t> essential = defaults;
        if (rounds == 0 || defaults.empty()) {
            return {.settled = false};
        }
        const PairedSteps steps(step_us_);
        const std::size_t standard = plan_of_[defaults.front()];
        MeasuredDecision decision = judge_decision(steps, advised_.value_or(standard), standard);
        for (const std::size_t plan : {advised_.value_or(standard), decision.best}) {
            essential.push_back(items_of_plan_[plan].front());
        }
        std::ranges::sort(essential);
        essential.erase(std::unique(essential.begin(), essential.end()), essential.end());
        plan_.set_essential(std::move(essential));
        return decision;
    }

    static constexpr std::size_t no_plan = static_cast<std::size_t>(-1);

    const MeasureOptions& options_;
    std::vector<Item> items_;
    TimePlan plan_;
    Evaluator evaluator_;
    bool resumed_;
    std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
    std::vector<Measurement> records_;
    bool is_advice_new_ = false;
    std::int64_t next_round_ = 0;
    std::vector<std::size_t> plan_of_;  // by item
    std::vector<std::vector<Bytes>> buckets_of_plan_;
    std::vector<std::vector<std::size_t>> items_of_plan_;
    std::vector<std::vector<std::optional<double>>> step_us_;  // [plan][round]
    std::optional<std::size_t> advised_;                       // plan
};

// One rank's part.
class TimedRun {
  public:
    TimedRun(const MeasureOptions& options, Measurer& measurer, RankSession& session,
             const std::function<std::string(const Item&)>& label, Director* director)
        : options_(options),
          measurer_(measurer),
          session_(session),
          label_(label),
          director_(director),
          items_(options.items) {}

    void run() {
        follow(told(director_ != nullptr ? director_->probes() : Order{}, session_.control()));
        follow(told(director_ != nullptr ? director_->warm_up() : Order{}, session_.control()));
        for (;;) {
            const Order order =
                told(director_ != nullptr ? director_->next_round() : Order{}, session_.control());
            if (order.items.empty()) {
                return;
            }
            follow(order);
        }
    }

  private:
    void follow(const Order& order) {
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
    Director* director_;  // rank 0's
    std::vector<Item> items_;
};

}  // namespace

void measure_in_time(const MeasureOptions& options, Measurer& measurer, RankSession& session,
                     const std::vector<Measurement>& earlier,
                     const std::function<std::string(const Item&)>& label) {
    session.expect_time(Seconds(*options.time_limit));
    std::optional<Director> director;
    if (session.is_first()) {
        director.emplace(options, earlier);
    }
    TimedRun(options, measurer, session, label, director ? &*director : nullptr).run();
}

std::optional<Prediction> advice_of(const std::vector<Measurement>& records,
                                    const std::string& file) {
    try {
        const MeasuredRun run = collect_run(records, false, file);
        const std::optional<MeasuredScenario> measured = measured_scenario(run);
        if (!measured) {
            return std::nullopt;
        }
        const Calibration calibration = calibrate({run}, measured->scenario);
        if (!calibration.compute) {
            return std::nullopt;
        }
        const Scenario scenario = parse_scenario(
            calibrated_scenario(measured->document, calibration), file, read_text_file);
        return predict(step_input(scenario), scenario.sync, {}, [](double) {});
    } catch (const InputError&) {
        return std::nullopt;  // too little was measured yet
    }
}

}  // namespace bucketwise
