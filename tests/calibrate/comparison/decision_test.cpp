#include "calibrate/comparison/decision.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>

#include <nlohmann/json.hpp>

#include "sim/base/statistics.h"
#include "sim/engine/varied_steps.h"
#include "tests/catch.h"

namespace bucketwise {
namespace {

using Rounds = std::vector<std::optional<double>>;

// [plan][round] of plans that take so many milliseconds, with that relative deviation.
PairedSteps measured(const std::vector<double>& ms, int rounds, double deviation) {
    Normal normal(3);
    std::vector<Rounds> steps(ms.size());
    for (int round = 0; round < rounds; ++round) {
        for (std::size_t plan = 0; plan < ms.size(); ++plan) {
            steps[plan].emplace_back(1e3 * ms[plan] * std::exp(deviation * normal()));
        }
    }
    return PairedSteps(steps);
}

TEST_CASE("an advice that costs nothing has held, with what it saves of the default") {
    // Plan 1 is advised, plan 2 the default: 100 and 110 ms.
    const MeasuredDecision decision = judge_decision(measured({120, 100, 110}, 12, 0.002), 1, 2);
    CHECK(decision.verdict == Verdict::held);
    CHECK(decision.best == 1);
    CHECK(decision.settled);
    CHECK(decision.open.empty());
    CHECK(decision.gain->low > 0.095);
    CHECK(decision.gain->high < 0.105);
    CHECK(decision.regret->low == 0);
    CHECK(decision.regret->high < 0.005);
}

TEST_CASE("an advice has missed only where the noise leaves no doubt") {
    // 5 % slower than the best.
    const std::vector<double> ms{100, 105, 120};
    const MeasuredDecision sure = judge_decision(measured(ms, 12, 0.002), 1, 2);
    CHECK(sure.verdict == Verdict::missed);
    CHECK(sure.best == 0);
    CHECK(sure.settled);
    CHECK(sure.regret->low > regret_goal);
    const MeasuredDecision unsure = judge_decision(measured(ms, 4, 0.08), 1, 2);
    CHECK(unsure.verdict == Verdict::inconclusive);
    CHECK_FALSE(unsure.settled);
    CHECK_FALSE(unsure.open.empty());
    CHECK(unsure.resolution.value() > 0.03);
}

TEST_CASE("plans that can no longer be the best are not measured again, those that may be are") {
    // 100.2 ms beside 100 cannot be told apart, 130 can.
    const MeasuredDecision decision =
        judge_decision(measured({100, 100.2, 130, 104}, 6, 0.02), 0, 3);
    CHECK(std::ranges::count(decision.open, 1U) == 1);
    CHECK(std::ranges::count(decision.open, 2U) == 0);
}

TEST_CASE("before three rounds nobody is out") {
    const MeasuredDecision decision = judge_decision(measured({100, 200, 300}, 2, 0.001), 0, 2);
    CHECK(std::ranges::count(decision.open, 1U) == 1);
}

TEST_CASE("without a default there is no gain to know") {
    const MeasuredDecision decision = judge_decision(measured({100, 110}, 8, 0.002), 0, {});
    CHECK(decision.verdict == Verdict::held);
    CHECK_FALSE(decision.gain.has_value());
    CHECK(decision.settled);
}

// --- stored runs ---

struct StoredRun {
    std::string name = {};
    std::vector<Rounds> steps = {};  // [cap][round], only rounds that all caps have
    std::size_t advised = 0;
    std::size_t standard = 0;
};

StoredRun stored(const std::filesystem::path& folder) {
    StoredRun run;
    run.name = folder.filename().string();
    std::map<std::pair<double, bool>, std::map<std::int64_t, double>> by_cap;
    std::ifstream lines(folder / "measurements.jsonl");
    for (std::string line; std::getline(lines, line);) {
        const auto record = nlohmann::json::parse(line);
        if (record["kind"] == "step") {
            by_cap[{record["bucket_cap_mib"], record["is_default"]}][record["round"]] =
                record["samples_us"][0];
        }
    }
    const auto comparison = nlohmann::json::parse(std::ifstream(folder / "comparison.json"));
    const std::pair<double, bool> advised{comparison["predicted_best_mib"],
                                          comparison["predicted_best_is_default"]};
    for (const auto& [cap, steps] : by_cap) {
        run.advised = cap == advised ? run.steps.size() : run.advised;
        run.standard = cap.second ? run.steps.size() : run.standard;
        run.steps.emplace_back();
        for (const auto& [round, us] : steps) {
            const bool everywhere = std::ranges::all_of(by_cap, [round = round](const auto& other) {
                return other.second.contains(round);
            });
            if (everywhere) {
                run.steps.back().emplace_back(us);
            }
        }
    }
    return run;
}

std::vector<StoredRun> stored_runs() {
    std::vector<StoredRun> runs;
    const std::filesystem::path folder = BUCKETWISE_TEST_DATA_DIR "/validation";
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
        runs.push_back(stored(entry.path()));
    }
    std::ranges::sort(runs, {}, &StoredRun::name);
    return runs;
}

// The cap that a reader would set.
std::size_t acted_upon(const MeasuredDecision& decision, const StoredRun& run) {
    if (decision.verdict == Verdict::missed) {
        return decision.best;
    }
    return decision.verdict == Verdict::held || decision.gain_is_likely ? run.advised
                                                                        : run.standard;
}

struct Raced {
    MeasuredDecision decision;
    std::int64_t steps = 0;
};

// Rounds drawn from the stored ones. `race`: after three rounds only what is open is measured, and
// what it is held against, up to so many steps; else everything in ten rounds.
Raced simulated(const StoredRun& run, bool race, Normal& normal) {
    constexpr std::int64_t rounds_of_today = 10;
    const auto caps = std::ssize(run.steps);
    const std::int64_t most = race ? rounds_of_today * caps / 2 : rounds_of_today * caps;
    std::vector<Rounds> steps(run.steps.size());
    Raced raced;
    std::vector<bool> measured(run.steps.size(), true);
    while (raced.steps + std::ranges::count(measured, true) <= most) {
        const auto stored_rounds = run.steps.front().size();
        const double uniform = std::erfc(-normal() / std::sqrt(2.0)) / 2;
        const auto round =
            std::min(static_cast<std::size_t>(uniform * static_cast<double>(stored_rounds)),
                     stored_rounds - 1);
        for (std::size_t cap = 0; cap < steps.size(); ++cap) {
            steps[cap].push_back(measured[cap] ? run.steps[cap][round] : std::nullopt);
        }
        raced.steps += std::ranges::count(measured, true);
        if (steps.front().size() < 3) {
            continue;
        }
        raced.decision = judge_decision(PairedSteps(steps), run.advised, run.standard);
        if (race && raced.decision.settled && steps.front().size() >= 5) {
            break;
        }
        if (race) {
            measured.assign(measured.size(), false);
            for (const std::size_t cap : raced.decision.open) {
                measured[cap] = true;
            }
            measured[run.advised] = measured[run.standard] = measured[raced.decision.best] = true;
        }
    }
    return raced;
}

// The cost of acting upon it over the best stored cap, and the share of draws where two
// races lead to equally good caps.
struct Races {
    double same = 0;        // of all rounds and half of the steps
    double same_again = 0;  // of all rounds and all rounds drawn again
    double cost_of_all = 0;
    double cost_of_half = 0;
    double steps = 0;  // raced, as a share of all
};

Races race(const StoredRun& run, int draws, Normal& normal) {
    const auto typical = transformed(run.steps, [](const Rounds& steps) {
        return mean(transformed(steps, [](const auto& us) { return *us; }));
    });
    const double best = *std::ranges::min_element(typical);
    const auto alike = [&](std::size_t one, std::size_t other) {
        return std::abs(typical[one] / typical[other] - 1) <= regret_goal ? 1.0 : 0.0;
    };
    Races races;
    for (int draw = 0; draw < draws; ++draw) {
        const std::size_t all = acted_upon(simulated(run, false, normal).decision, run);
        const std::size_t again = acted_upon(simulated(run, false, normal).decision, run);
        const Raced raced = simulated(run, true, normal);
        const std::size_t half = acted_upon(raced.decision, run);
        const double share = 1.0 / draws;
        races.same += share * alike(half, all);
        races.same_again += share * alike(again, all);
        races.cost_of_all += share * (typical[all] / best - 1);
        races.cost_of_half += share * (typical[half] / best - 1);
        races.steps +=
            share * static_cast<double>(raced.steps) / static_cast<double>(10 * run.steps.size());
    }
    return races;
}

TEST_CASE("half of the steps lead to the same decision where they go to what is open") {
    // Some 1,000 draws over the stored runs; -s prints them.
    Normal normal(1);
    const std::vector<StoredRun> runs = stored_runs();
    REQUIRE(runs.size() == 18);
    constexpr int draws = 56 / BUCKETWISE_TEST_SHARE;
    Races all;
    std::string table;
    for (const StoredRun& run : runs) {
        const Races races = race(run, draws, normal);
        CHECK(races.steps <= 0.5);
        const auto share = 1.0 / static_cast<double>(runs.size());
        all.same += share * races.same;
        all.same_again += share * races.same_again;
        all.cost_of_all += share * races.cost_of_all;
        all.cost_of_half += share * races.cost_of_half;
        all.steps += share * races.steps;
        table += run.name + ": same " + std::to_string(races.same) + ", all again " +
                 std::to_string(races.same_again) + ", cost of all " +
                 std::to_string(races.cost_of_all) + ", of half " +
                 std::to_string(races.cost_of_half) + ", steps " + std::to_string(races.steps) +
                 "\n";
    }
    INFO(table << "all: same " << all.same << ", all again " << all.same_again << ", cost of all "
               << all.cost_of_all << ", of half " << all.cost_of_half << ", steps " << all.steps);
    // Two runs of all rounds do not always agree; half of the steps are as good as another run.
    // Fewer draws say that less surely.
    const double doubt = std::sqrt(static_cast<double>(BUCKETWISE_TEST_SHARE));
    CHECK(all.same >= all.same_again - 0.03 * doubt);
    CHECK(all.cost_of_half <= all.cost_of_all + 0.002 * doubt);
}

}  // namespace
}  // namespace bucketwise
