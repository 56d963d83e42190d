#include "cli/deciding_rounds.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <set>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "calibrate/comparison/advised_setting.h"
#include "calibrate/comparison/decision.h"
#include "calibrate/comparison/measured_setting.h"
#include "calibrate/comparison/paired_steps.h"
#include "calibrate/comparison/setting_steps.h"
#include "calibrate/fit/calibration.h"
#include "cli/measured_files.h"
#include "cli/prediction.h"
#include "cli/ranks/measure_rank.h"
#include "cli/ranks/time_plan.h"
#include "cli/sharded_settings.h"
#include "cli/shell/files.h"
#include "sim/base/error.h"
#include "sim/scenario/scenario.h"

namespace bucketwise {
namespace {

using Seconds = std::chrono::duration<double>;

std::vector<std::size_t> steps_among(const std::vector<Item>& items) {
    std::vector<std::size_t> steps;
    for (std::size_t item = 0; item < items.size(); ++item) {
        if (items[item].protocol == Protocol::step) {
            steps.push_back(item);
        }
    }
    return steps;
}

// Steps with the default cap, or with the scenario's own sharding.
std::vector<std::size_t> defaults_among(const std::vector<Item>& items, const Scenario& scenario) {
    std::vector<std::size_t> defaults;
    for (const std::size_t step : steps_among(items)) {
        if (items[step].cap.is_default() && items[step].sharding == scenario.sharding) {
            defaults.push_back(step);
        }
    }
    return defaults;
}

// As it is typed, in whole minutes from two on.
std::string limit_text(double seconds) {
    return seconds < 120 ? fmt::format("{:.0f}s", std::ceil(seconds / 10) * 10)
                         : fmt::format("{:.0f}min", std::ceil(seconds / 60));
}

// Rank 0's knowledge and decisions.
class DecidingRounds : public RoundDirector {
  public:
    DecidingRounds(const MeasureOptions& options, const std::vector<Measurement>& earlier)
        : options_(options),
          items_(options.items),
          plan_(options.items, options.time_limit->count(), options.job.order.rounds,
                defaults_among(options.items, options.scenario)),
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

    [[nodiscard]] RoundOrder probes() const override { return order_of(plan_.probes()); }

    // The cold items.
    RoundOrder warm_up() override {
        plan_.choose(elapsed_s());
        return order_of(resumed_ ? std::vector<std::size_t>{} : plan_.cold());
    }

    RoundOrder next_round() override {
        RoundOrder order;
        take_advice(order);
        const MeasuredDecision decision = decide();
        std::vector<std::size_t> wanted;
        for (const std::size_t plan : decision.open) {
            wanted.push_back(plans_[plan].items.front());
        }
        for (const std::size_t step : plan_.chosen()) {
            // A setting that is out keeps a share of the rounds: its error counts, too.
            constexpr std::int64_t before_any_is_out = 3;
            constexpr std::int64_t rounds_for_one = 4;
            if (items_[step].protocol == Protocol::step &&
                rounds_of(plan_of_[step]) <
                    std::max(before_any_is_out, next_round_ / rounds_for_one)) {
                wanted.push_back(step);
            }
        }
        const auto items = plan_.next_round(elapsed_s(), wanted, decision.settled);
        order.items.assign(items.begin(), items.end());
        order.round = next_round_++;
        return order;
    }

    void took(std::size_t item, double seconds) override { plan_.took(item, seconds, elapsed_s()); }

    // As soon as it is beyond doubt, and then by how much.
    std::string note() override {
        constexpr double beyond_doubt = 1.5;
        const bool knows_all = !plan_.chosen().empty();
        if (resumed_ || !plan_.needed_s() ||
            (!knows_all && *plan_.needed_s() < beyond_doubt * options_.time_limit->count())) {
            return {};
        }
        if (!std::exchange(has_said_short_, true)) {
            return fmt::format(
                "the time is too short to choose by: to measure one step takes {:.1f} s or more "
                "here",
                plan_.step_s());
        }
        if (!knows_all || std::exchange(has_said_needed_, true)) {
            return {};
        }
        return fmt::format("--time {} might do, or a smaller batch or model",
                           limit_text(*plan_.needed_s()));
    }

    void keep(const Measurement& record) override {
        records_.push_back(record);
        const auto* step = std::get_if<StepRecord>(&record);
        if (step == nullptr) {
            // Computing alone comes in every round, which a fast step's advice would take longer
            // than.
            is_advice_new_ = is_advice_new_ || !std::holds_alternative<ComputeRecord>(record);
            return;
        }
        next_round_ = std::max(next_round_, step->round + 1);
        const Item measured = item_of(*step, options_.scenario);
        for (const std::size_t item : steps_among(items_)) {
            if (items_[item] == measured && !step->samples_us.empty()) {
                std::vector<std::optional<double>>& of_plan = plans_[plan_of_[item]].step_us;
                of_plan.resize(std::max(of_plan.size(), static_cast<std::size_t>(step->round) + 1));
                of_plan[static_cast<std::size_t>(step->round)] = step->samples_us.front();
            }
        }
    }

  private:
    [[nodiscard]] double elapsed_s() const {
        return Seconds(std::chrono::steady_clock::now() - start_).count();
    }

    static RoundOrder order_of(const std::vector<std::size_t>& items) {
        RoundOrder order;
        order.items.assign(items.begin(), items.end());
        return order;
    }

    // Settings with which ranks do the same have one plan.
    struct Plan {
        std::vector<Bytes> buckets = {};
        std::optional<ShardingRequest> sharding = {};
        std::vector<std::size_t> items = {};
        std::vector<std::optional<double>> step_us = {};  // by round
    };

    // The number of plans, where it is a new one.
    [[nodiscard]] std::size_t plan_with(const std::vector<Bytes>& buckets,
                                        const std::optional<ShardingRequest>& sharding) const {
        const auto same = std::ranges::find_if(plans_, [&](const Plan& plan) {
            return sharding ? does_the_same(*plan.sharding, *sharding, options_.scenario)
                            : plan.buckets == buckets;
        });
        return static_cast<std::size_t>(same - plans_.begin());
    }

    void add_plan(const Item& item) {
        plan_of_.push_back(no_plan);
        if (item.protocol != Protocol::step) {
            return;
        }
        std::vector<Bytes> buckets =
            item.sharding ? std::vector<Bytes>{} : evaluator_.evaluate(item.cap).bucket_bytes;
        plan_of_.back() = plan_with(buckets, item.sharding);
        if (plan_of_.back() == plans_.size()) {
            plans_.push_back({.buckets = std::move(buckets), .sharding = item.sharding});
        }
        plans_[plan_of_.back()].items.push_back(plan_of_.size() - 1);
    }

    [[nodiscard]] std::int64_t rounds_of(std::size_t plan) const {
        return std::ranges::count_if(plans_[plan].step_us,
                                     [](const auto& step) { return step.has_value(); });
    }

    // New isolated measurements may change the advice.
    void take_advice(RoundOrder& order) {
        constexpr std::int64_t before_it_is_known = 3;
        if (plans_.empty() || plan_.rounds() < before_it_is_known ||
            !std::exchange(is_advice_new_, false)) {
            return;
        }
        const std::optional<Evaluation> advised = advice_of(records_, options_.output);
        if (!advised) {
            return;
        }
        Item item{.protocol = Protocol::step, .cap = advised->cap};
        if (advised->sharded) {
            item.cap = Cap();
            item.sharding = advised->sharded->request;
        } else if (advised->cap.is_none()) {
            return;
        }
        const std::size_t known = plan_with(advised->bucket_bytes, item.sharding);
        const std::vector<std::size_t> chosen = chosen_plans();
        if (known < plans_.size()) {
            advised_ = known;
            if (std::ranges::find(chosen, known) == chosen.end()) {
                plan_.choose_too(plans_[known].items.front());
            }
            return;
        }
        // A limit, as an unsure calibration might add every setting.
        constexpr int most_added = 3;
        if (added_ < most_added) {
            ++added_;
            order.new_steps.push_back(item);
            items_.push_back(item);
            plan_.add_step(item);
            add_plan(item);
            advised_ = plan_of_.back();
        }
    }

    // Plans that are measured, in the order of their items.
    [[nodiscard]] std::vector<std::size_t> chosen_plans() const {
        std::vector<std::size_t> plans;
        for (const std::size_t item : plan_.chosen()) {
            const std::size_t plan = plan_of_[item];
            if (plan != no_plan && std::ranges::find(plans, plan) == plans.end()) {
                plans.push_back(plan);
            }
        }
        return plans;
    }

    // The decision's plans are our indices.
    MeasuredDecision decide() {
        const std::vector<std::size_t> plans = chosen_plans();
        const std::vector<std::size_t> defaults = defaults_among(items_, options_.scenario);
        std::size_t rounds = 0;
        for (const std::size_t plan : plans) {
            rounds = std::max(rounds, plans_[plan].step_us.size());
        }
        if (rounds == 0 || defaults.empty()) {
            return {};
        }
        auto steps = transformed(plans, [&](std::size_t plan) { return plans_[plan].step_us; });
        for (auto& of_plan : steps) {
            of_plan.resize(rounds);
        }
        const auto place_of = [&](std::size_t plan) {
            return static_cast<std::size_t>(std::ranges::find(plans, plan) - plans.begin());
        };
        const std::size_t standard = place_of(plan_of_[defaults.front()]);
        const std::size_t advised = advised_ ? place_of(*advised_) : standard;
        MeasuredDecision decision = judge_decision(PairedSteps(steps), advised, standard);
        std::set<std::size_t> essential(defaults.begin(), defaults.end());
        for (const std::size_t place : {advised, decision.best}) {
            essential.insert(plans_[plans[place]].items.front());
        }
        plan_.set_essential({essential.begin(), essential.end()});
        decision.best = plans[decision.best];
        for (std::size_t& place : decision.open) {
            place = plans[place];
        }
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
    std::vector<Plan> plans_;
    std::optional<std::size_t> advised_;  // plan
    bool has_said_short_ = false;
    bool has_said_needed_ = false;
    int added_ = 0;
};

}  // namespace

std::unique_ptr<RoundDirector> deciding_rounds(const MeasureOptions& options,
                                               const std::vector<Measurement>& earlier) {
    return std::make_unique<DecidingRounds>(options, earlier);
}

std::optional<Evaluation> advice_of(const std::vector<Measurement>& records,
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
        const Scenario scenario =
            parse_scenario(calibrated_scenario(measured->document, calibration), file,
                           read_text_file, StrategyKinds::all);
        const StepInput input = compared_input(scenario, run);
        SettingSteps steps(scenario, input);
        std::vector<PredictedSetting> predicted;
        for (const MeasuredSetting& setting : measured_settings(scenario, run)) {
            predicted.push_back({steps.evaluate(setting), setting.step_us.size()});
        }
        const Prediction prediction = predict_any(scenario, input, {}, [](double) {});
        const auto measured_one = as_advised(predicted, prediction.advised());
        return measured_one ? predicted[*measured_one].predicted : prediction.advised();
    } catch (const InputError&) {
        return std::nullopt;  // too little was measured yet
    }
}

}  // namespace bucketwise
