#include "import/replay/arrival.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "import/run/traced_collectives.h"
#include "sim/base/statistics.h"
#include "sim/base/transformed.h"

namespace bucketwise {
namespace {

// In ms, by step and rank; empty where a rank's time is missing.
using TimesByStep = std::vector<std::vector<double>>;

TimesByStep times_by_step(const TracedRun& run, std::size_t k) {
    TimesByStep times;
    for (std::size_t s = 0; s < run.alike().size(); ++s) {
        const std::vector<Duration> of_step = times_of(run, k, s, true);
        if (of_step.size() != run.ranks.size()) {
            return {};
        }
        times.push_back(transformed(of_step, to_ms));
    }
    return times;
}

double start_ms(const TracedRun& run, std::size_t k) {
    return to_ms(median_of(run.alike(), [&](const TracedStep* step) {
        const TracedCollective& collective = *reductions(run, *step)[k];
        return collective.begin.value_or(collective.issued);
    }));
}

double apart(const std::vector<double>& times) {
    const auto [least, most] = std::ranges::minmax(times);
    return most - least;
}

// By the all-reduce at which ranks' own lateness differs most: where all-reduces follow one another
// at once, a late rank shows in the first of them only.
void find_rank_spread(TracedRun& run, const std::vector<TimesByStep>& times, Findings& findings) {
    constexpr std::size_t least_steps = 3;
    if (run.alike().size() < least_steps) {
        const bool one = run.alike().size() == 1;
        findings.missing("rank spread",
                         "{} step{} not tell a rank's constant lateness from lateness that differs "
                         "from step to step",
                         run.alike().size(), one ? " does" : "s do");
        return;
    }
    std::size_t clearest = 0;
    double largest_ms = -1;
    for (std::size_t k = 0; k < times.size(); ++k) {
        const double deviation = times[k].empty() ? 0.0 : own_deviation(times[k]);
        if (deviation > largest_ms) {
            largest_ms = deviation;
            clearest = k;
        }
    }
    constexpr double least_spread = 0.001;
    constexpr double most_spread = 1;  // of a scenario
    const double computed_ms = start_ms(run, clearest);
    const double spread = computed_ms > 0 ? largest_ms / computed_ms : 0.0;
    if (spread >= least_spread && spread <= most_spread) {
        run.rank_spread = std::round(spread * 1e4) / 1e4;
        findings.found("rank spread",
                       "{:.1f} % of a rank's computing until all-reduce {} differs from step to "
                       "step, each rank on its own (variation)",
                       100 * spread, clearest + 1);
    }
}

}  // namespace

void find_arrival(TracedRun& run, std::size_t all_reduces, Findings& findings) {
    if (run.ranks.size() < 2 || all_reduces == 0) {
        return;
    }
    if (!same_steps(run)) {
        findings.missing("arrival", "the ranks' traces are not of the same steps");
        return;
    }
    std::vector<TimesByStep> times;
    std::vector<std::string> means;
    double most = 0;
    for (std::size_t k = 0; k < all_reduces; ++k) {
        times.push_back(times_by_step(run, k));
        if (!times.back().empty()) {
            const std::vector<double> waits = transformed(times.back(), apart);
            means.push_back(fmt::format("{:.3f}", mean(waits)));
            most = std::max(most, std::ranges::max(waits));
        }
    }
    if (means.empty()) {
        return;
    }
    constexpr std::size_t most_listed = 12;
    const bool more = means.size() > most_listed;
    means.resize(std::min(means.size(), most_listed));
    findings.found("arrival",
                   "the first of {} ranks comes {}{} ms before the last to the all-reduces, in "
                   "this order, means of {} step{}, {:.3f} ms at most",
                   run.ranks.size(), fmt::join(means, ", "), more ? ", ..." : "",
                   run.alike().size(), run.alike().size() == 1 ? "" : "s", most);
    find_rank_spread(run, times, findings);
}

}  // namespace bucketwise
