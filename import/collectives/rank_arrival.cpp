#include "import/collectives/rank_arrival.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <utility>

#include "sim/base/statistics.h"
#include "sim/base/transformed.h"

namespace bucketwise {
namespace {

// The arrival of each rank at one all-reduce, in microseconds from any moment.
using Arrivals = std::vector<double>;

struct StepArrivals {
    std::vector<Arrivals> all = {};
    Arrivals last = {};  // at the step's last all-reduce; empty: unknown
};

// Arrivals at all-reduces for which `time` knows every rank's.
template <typename Time>
std::vector<StepArrivals> arrivals_by(const std::vector<std::vector<OnRanks>>& steps,
                                      const Time& time) {
    return transformed(steps, [&](const std::vector<OnRanks>& step) {
        StepArrivals arrivals;
        for (const OnRanks& on_ranks : step) {
            Arrivals times;
            for (std::size_t rank = 0; rank < on_ranks.size(); ++rank) {
                if (on_ranks[rank] != nullptr) {
                    if (const std::optional<double> at = time(rank, *on_ranks[rank])) {
                        times.push_back(*at);
                    }
                }
            }
            if (times.size() == on_ranks.size()) {
                arrivals.all.push_back(times);
                if (&on_ranks == &step.back()) {
                    arrivals.last = std::move(times);
                }
            }
        }
        return arrivals;
    });
}

// Takes each rank's median distance from the mean of all ranks out of its times.
void take_out_offsets(std::vector<StepArrivals>& steps, std::size_t ranks) {
    std::vector<std::vector<double>> distances(ranks);
    for (const StepArrivals& step : steps) {
        for (const Arrivals& times : step.all) {
            const double middle = mean(times);
            for (std::size_t rank = 0; rank < ranks; ++rank) {
                distances[rank].push_back(times[rank] - middle);
            }
        }
    }
    const auto offsets = transformed(
        distances, [](const auto& of_rank) { return of_rank.empty() ? 0 : median(of_rank); });
    const auto take_out = [&](Arrivals& times) {
        for (std::size_t rank = 0; rank < times.size(); ++rank) {
            times[rank] -= offsets[rank];
        }
    };
    for (StepArrivals& step : steps) {
        std::ranges::for_each(step.all, take_out);
        take_out(step.last);
    }
}

void report(const std::vector<StepArrivals>& steps, const char* how,
            const std::vector<LoggedRank>& ranks, Findings& findings) {
    std::vector<double> waits_ms;
    std::vector<std::int64_t> latest(ranks.size());
    for (const StepArrivals& step : steps) {
        for (const Arrivals& times : step.all) {
            const auto [first, last] = std::ranges::minmax_element(times);
            waits_ms.push_back((*last - *first) / 1e3);
            ++latest[static_cast<std::size_t>(last - times.begin())];
        }
    }
    const auto most = std::ranges::max_element(latest);
    findings.found("arrival",
                   "before an all-reduce the first of {} ranks waits {:.3f} ms for the last on "
                   "average, {:.3f} ms at most; most often ({} of {} times) for {} ({})",
                   ranks.size(), mean(waits_ms), std::ranges::max(waits_ms), *most, waits_ms.size(),
                   ranks[static_cast<std::size_t>(most - latest.begin())].log->file, how);
}

}  // namespace

std::vector<std::vector<OnRanks>> matched(const std::vector<LoggedRank>& ranks) {
    const LoggedRank& primary = ranks.front();
    std::vector<std::map<std::pair<std::int64_t, std::int64_t>, const LoggedCollective*>> numbered;
    for (const LoggedRank& rank : ranks) {
        auto& of_rank = numbered.emplace_back();
        for (const LoggedCollective& collective : rank.log->collectives) {
            if (collective.group == primary.gradients.group && collective.sequence >= 0 &&
                collective.kind == LoggedKind::all_reduce) {
                of_rank[collective.number()] = &collective;
            }
        }
    }
    return transformed(primary.gradients.steps, [&](const auto& step) {
        return transformed(step, [&](std::size_t place) {
            const LoggedCollective& first = primary.log->collectives[place];
            OnRanks on_ranks{&first};
            for (std::size_t rank = 1; rank < ranks.size(); ++rank) {
                const auto found = numbered[rank].find(first.number());
                const bool same =
                    found != numbered[rank].end() && found->second->elements == first.elements;
                on_ranks.push_back(same ? found->second : nullptr);
            }
            return on_ranks;
        });
    });
}

std::optional<Duration> arrival_deviation(const std::vector<LoggedRank>& all_ranks, bool same_host,
                                          Findings& findings) {
    // Ranks of other replicas' groups reduce other gradients.
    std::vector<LoggedRank> ranks;
    std::ranges::copy_if(all_ranks, std::back_inserter(ranks), [&](const LoggedRank& rank) {
        return rank.gradients.group == all_ranks.front().gradients.group &&
               rank.log->clock == LogClock::host;
    });
    if (ranks.size() < 2) {
        return std::nullopt;
    }
    const std::vector<std::vector<OnRanks>> steps = matched(ranks);
    const auto any = [](const std::vector<StepArrivals>& arrivals) {
        return std::ranges::any_of(arrivals, [](const auto& step) { return !step.all.empty(); });
    };
    // An all-reduce ends at once on all ranks: a late rank waits less.
    std::vector<StepArrivals> arrivals =
        arrivals_by(steps, [](std::size_t, const LoggedCollective& collective) {
            return collective.duration ? std::optional(-to_us(*collective.duration)) : std::nullopt;
        });
    const char* how = "by its duration on each rank";
    if (!any(arrivals)) {
        arrivals = arrivals_by(steps, [&](std::size_t rank, const LoggedCollective& collective) {
            const double begin_us =
                static_cast<double>(ranks[rank].log->begin_ns - ranks.front().log->begin_ns) / 1e3;
            return collective.issued ? std::optional(begin_us + to_us(*collective.issued))
                                     : std::nullopt;
        });
        how = "by the hosts' clocks when it was issued, taken for one clock, as --same-host says";
        if (!same_host) {
            take_out_offsets(arrivals, ranks.size());
            how =
                "by the hosts' clocks when it was issued; each rank's median offset is taken out, "
                "and with it constant lateness, which --same-host leaves in";
        }
    }
    if (!any(arrivals)) {
        findings.missing("arrival", "no all-reduce is in the logs of all ranks with its time");
        return std::nullopt;
    }
    report(arrivals, how, ranks, findings);
    double squares = 0;
    double freedom = 0;
    for (const StepArrivals& step : arrivals) {
        const double middle = step.last.empty() ? 0 : mean(step.last);
        for (const double time : step.last) {
            squares += (time - middle) * (time - middle);
        }
        freedom += step.last.empty() ? 0 : static_cast<double>(step.last.size() - 1);
    }
    return freedom > 0 ? std::optional(duration_from_us(std::sqrt(squares / freedom)))
                       : std::nullopt;
}

}  // namespace bucketwise
