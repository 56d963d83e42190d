// How often the gate misses a regression, and how often it sees one that is not there, on steps
// that were measured (tests/calibrate/gate/planted.h). Prints what docs/check.md says.
#include <array>
#include <cstdio>
#include <iterator>
#include <optional>

#include <fmt/format.h>

#include "calibrate/gate/gate.h"
#include "tests/calibrate/gate/planted.h"
#include "tests/catch.h"

namespace bucketwise {
namespace {

constexpr std::size_t steps_of_a_side = 10;
constexpr std::array kinds{CauseKind::late_gradient, CauseKind::slower_link,
                           CauseKind::more_copies};

const std::vector<Job>& jobs() {
    static const std::vector<Job> read = validation_jobs();
    return read;
}

CheckedCase checked(const GateCase& before, const GateCase& after) {
    return check_cases({before}, {after}, {}).cases.front();
}

CheckedCase planted_pair(const Job& job, const Planted& planted, std::mt19937_64& bits) {
    const std::vector<Moment> before = drawn(job, steps_of_a_side, bits);
    const std::vector<Moment> after = drawn(job, steps_of_a_side, bits);
    return checked(seen(job, nothing_planted(job), before), seen(job, planted, after));
}

struct Counts {
    int pairs = 0;
    int seen = 0;
    int explained = 0;  // of those seen: first of all by what was planted
    int misled = 0;     // first of all by something else
    void add(const CheckedCase& found, const Planted& planted, CauseKind kind) {
        ++pairs;
        if (found.broken.empty()) {
            return;
        }
        ++seen;
        const bool is_kind = !found.causes.empty() && found.causes.front().kind == kind;
        const bool is_right = is_kind && (kind != CauseKind::late_gradient ||
                                          found.causes.front().bucket == planted.late_bucket);
        explained += is_right ? 1 : 0;
        misled += is_right || found.causes.empty() ? 0 : 1;
    }
    [[nodiscard]] double share() const { return static_cast<double>(seen) / pairs; }
};

bool is_within(const Job& job, double least, double most) {
    return job.noise > least && job.noise <= most;
}

// Pairs of the jobs with so much noise, in turn.
template <typename Visit>
void for_pairs(int pairs, double least, double most, const Visit& visit) {
    std::vector<const Job*> found;
    for (const Job& job : jobs()) {
        if (is_within(job, least, most)) {
            found.push_back(&job);
        }
    }
    REQUIRE(!found.empty());
    for (int i = 0; i < pairs; ++i) {
        visit(*found[static_cast<std::size_t>(i) % found.size()], i);
    }
}

double false_alarms(int pairs, std::uint64_t seed) {
    std::mt19937_64 bits(seed);
    Counts counts;
    for_pairs(pairs, 0, 1, [&](const Job& job, int) {
        const Planted nothing = nothing_planted(job);
        counts.add(planted_pair(job, nothing, bits), nothing, CauseKind::waiting);
    });
    return counts.share();
}

TEST_CASE("of unchanged steps at most two in a hundred are called a regression", "[study]") {
    const double of_200 = false_alarms(200, 1);
    const double of_many = false_alarms(5000, 2);
    fmt::print(
        "unchanged, 10 steps against 10: {:.1f} % of 200 pairs are called a regression, "
        "{:.2f} % of 5000\n",
        100 * of_200, 100 * of_many);
    CHECK(of_200 <= 0.02);
    CHECK(of_many <= 0.02);
}

TEST_CASE("planted regressions of 1 to 10 % are seen, and explained by what was planted",
          "[study]") {
    std::mt19937_64 bits(3);
    std::array<Counts, 10> by_share;
    for_pairs(200, 0, 1, [&](const Job& job, int i) {
        const CauseKind kind = kinds[static_cast<std::size_t>(i) % kinds.size()];
        const auto percent = static_cast<std::size_t>(i / 3 % 10 + 1);
        const Planted planted = plant(job, kind, static_cast<double>(percent) / 100, bits);
        by_share[percent - 1].add(planted_pair(job, planted, bits), planted, kind);
    });
    Counts all;
    fmt::print("200 planted, 10 steps against 10, jobs of every noise:\n");
    for (std::size_t i = 0; i < by_share.size(); ++i) {
        fmt::print("  {:2} %: {:2} of {:2} seen, {:2} explained\n", i + 1, by_share[i].seen,
                   by_share[i].pairs, by_share[i].explained);
        all.pairs += by_share[i].pairs;
        all.seen += by_share[i].seen;
        all.explained += by_share[i].explained;
    }
    fmt::print("  missed {:.0f} % of {}\n", 100 * (1 - all.share()), all.pairs);
    CHECK(all.explained >= 0.9 * all.seen);
    CHECK(all.misled <= 0.1 * all.seen);
}

// 5 % planted in jobs, each kind in turn; says how many were seen.
Counts planted_5_percent(const std::vector<Job>& among, std::uint64_t seed, const char* what) {
    std::mt19937_64 bits(seed);
    std::array<Counts, kinds.size()> by_kind;
    Counts all;
    for (std::size_t i = 0; i < 600; ++i) {
        const std::size_t k = i % kinds.size();
        const Job& job = among[i / kinds.size() % among.size()];
        const Planted planted = plant(job, kinds[k], 0.05, bits);
        const CheckedCase found = planted_pair(job, planted, bits);
        by_kind[k].add(found, planted, kinds[k]);
        all.add(found, planted, kinds[k]);
    }
    fmt::print("  {}: {:.1f} % of 600 seen", what, 100 * all.share());
    for (std::size_t k = 0; k < kinds.size(); ++k) {
        const Counts& counts = by_kind[k];
        fmt::print("; {} {:.0f} %, explained {:.0f} %, misled {:.0f} %", name_of(kinds[k]),
                   100 * counts.share(), 100.0 * counts.explained / counts.seen,
                   100.0 * counts.misled / counts.seen);
    }
    fmt::print("\n");
    return all;
}

TEST_CASE("95 of 100 regressions of 5 % are seen where steps vary by 2.5 % or less", "[study]") {
    fmt::print("5 % planted, 10 steps against 10, by how much the job's steps varied:\n");
    constexpr std::array bounds{0.0, 0.025, 0.035, 0.07, 1.0};
    for (std::size_t i = 0; i + 1 < bounds.size(); ++i) {
        const double least = bounds[i];
        const double most = bounds[i + 1];
        std::vector<Job> among;
        std::ranges::copy_if(jobs(), std::back_inserter(among), [&](const Job& job) {
            return job.noise > least && job.noise <= most;
        });
        const Counts counts = planted_5_percent(
            among, 4,
            fmt::format("{:g} to {:g} % ({} jobs)", 100 * least, 100 * most, among.size()).c_str());
        if (most <= 0.025) {
            CHECK(counts.share() >= 0.95);
            CHECK(counts.misled <= 0.02 * counts.seen);
        }
    }
}

TEST_CASE("what is seen of 5 % depends on how much steps vary", "[study]") {
    fmt::print("the same, all jobs, with what their steps vary by scaled:\n");
    for (const double noise : {0.005, 0.01, 0.02, 0.03, 0.05, 0.1}) {
        const std::vector<Job> scaled =
            transformed(jobs(), [&](const Job& job) { return with_noise(job, noise); });
        const Counts counts =
            planted_5_percent(scaled, 5, fmt::format("to {:g} %", 100 * noise).c_str());
        if (noise <= 0.01) {
            CHECK(counts.share() >= 0.95);
            CHECK(counts.explained >= 0.95 * counts.seen);
        }
    }
}

// A job's three runs, as the gate would see them if they were traces: steps over medians of all.
std::vector<GateRun> runs_of(const std::string& name) {
    std::map<std::string, std::vector<double>> by_cap;
    std::vector<MeasuredRun> runs;
    const auto key = [](const StepRecord& step) {
        return fmt::format("{} {}", step.cap ? step.cap->count : 0, step.is_default);
    };
    for (const char* suffix : {"_1", "_2", "_3"}) {
        runs.push_back(read_validation(validation_results / (name + suffix)));
        for (const StepRecord& step : runs.back().steps) {
            by_cap[key(step)].push_back(step.samples_us.front());
        }
    }
    return transformed(runs, [&](const MeasuredRun& run) {
        GateRun seen_run{.file = name};
        std::map<std::string, std::vector<double>> own;
        for (const StepRecord& step : run.steps) {
            if (by_cap[key(step)].size() > run.steps.size() / 6) {
                seen_run.part(StepPart::step)
                    .push_back(step.samples_us.front() / median(by_cap[key(step)]));
            }
        }
        return seen_run;
    });
}

TEST_CASE("whole runs of one job differ by more than their steps tell, and that is counted",
          "[study]") {
    int alarms_of_one = 0;
    int pairs = 0;
    double largest = 0;
    for (const char* link : {"1gbit", "300mbit", "loopback"}) {
        for (const char* model : {"resnet", "transformer"}) {
            const std::vector<GateRun> runs = runs_of(fmt::format("{}_{}", model, link));
            for (std::size_t a = 0; a < runs.size(); ++a) {
                for (std::size_t b = 0; b < runs.size(); ++b) {
                    if (a != b) {
                        const CheckedCase found = checked({.name = "job", .runs = {runs[a]}},
                                                          {.name = "job", .runs = {runs[b]}});
                        alarms_of_one += found.broken.empty() ? 0 : 1;
                        largest = std::max(largest, found.change->slower);
                        ++pairs;
                    }
                }
            }
        }
    }
    fmt::print(
        "whole runs of one job, one against one: {} of {} pairs are called a regression; "
        "the largest difference is {:.1f} %\n",
        alarms_of_one, pairs, 100 * largest);
    CHECK(pairs == 36);
    CHECK(alarms_of_one <= 4);
}

}  // namespace
}  // namespace bucketwise
