#include "import/collectives/rank_arrival.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <numeric>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "sim/base/statistics.h"
#include "sim/base/transformed.h"

namespace bucketwise {
namespace {

using ByNumber = std::map<std::pair<std::int64_t, std::int64_t>, const LoggedCollective*>;

// The all-reduces of the first rank's group in another's log.
ByNumber by_number(const LoggedRank& rank, const std::string& group) {
    ByNumber found;
    for (const LoggedCollective& collective : rank.log->collectives) {
        if (collective.group == group && collective.sequence >= 0 &&
            collective.kind == LoggedKind::all_reduce) {
            found[collective.number()] = &collective;
        }
    }
    return found;
}

// One all-reduce of a step, as every rank has it.
using OnRanks = std::vector<const LoggedCollective*>;

// By step, then by all-reduce; empty where a rank does not have it.
std::vector<std::vector<OnRanks>> matched(const std::vector<LoggedRank>& ranks) {
    std::vector<ByNumber> others;
    for (const LoggedRank& rank : ranks) {
        others.push_back(by_number(rank, ranks.front().gradients.group));
    }
    std::vector<std::vector<OnRanks>> steps;
    for (const auto& step : ranks.front().gradients.steps) {
        std::vector<OnRanks>& matches = steps.emplace_back();
        for (const std::size_t place : step) {
            const LoggedCollective& first = ranks.front().log->collectives[place];
            OnRanks& on_ranks = matches.emplace_back();
            for (const auto& sequences : others) {
                const auto found = sequences.find(first.number());
                if (found == sequences.end() || found->second->elements != first.elements) {
                    on_ranks.clear();
                    break;
                }
                on_ranks.push_back(found->second);
            }
        }
    }
    return steps;
}

// When each rank came, of one all-reduce; in microseconds from any moment.
using Arrivals = std::vector<double>;

struct StepArrivals {
    std::vector<Arrivals> all = {};
    Arrivals last = {};  // of the step's last all-reduce; empty: not known
};

template <typename Time>
std::vector<StepArrivals> arrivals_by(const std::vector<std::vector<OnRanks>>& steps,
                                      const Time& time) {
    std::vector<StepArrivals> arrivals;
    for (const std::vector<OnRanks>& step : steps) {
        StepArrivals& of_step = arrivals.emplace_back();
        for (const OnRanks& on_ranks : step) {
            Arrivals times;
            for (std::size_t rank = 0; rank < on_ranks.size(); ++rank) {
                if (const std::optional<double> at = time(rank, *on_ranks[rank])) {
                    times.push_back(*at);
                }
            }
            if (times.size() == on_ranks.size() && times.size() > 1) {
                of_step.all.push_back(times);
                if (&on_ranks == &step.back()) {
                    of_step.last = std::move(times);
                }
            }
        }
    }
    return arrivals;
}

double mean_of(const Arrivals& times) {
    return std::reduce(times.begin(), times.end()) / static_cast<double>(times.size());
}

// Each rank's median distance from the mean of all ranks.
std::vector<double> offsets_of(const std::vector<StepArrivals>& steps, std::size_t ranks) {
    std::vector<std::vector<double>> distances(ranks);
    for (const StepArrivals& step : steps) {
        for (const Arrivals& times : step.all) {
            const double middle = mean_of(times);
            for (std::size_t rank = 0; rank < ranks; ++rank) {
                distances[rank].push_back(times[rank] - middle);
            }
        }
    }
    return transformed(distances,
                       [](const auto& of_rank) { return of_rank.empty() ? 0 : median(of_rank); });
}

void take_out(const std::vector<double>& offsets, Arrivals& times) {
    for (std::size_t rank = 0; rank < times.size(); ++rank) {
        times[rank] -= offsets[rank];
    }
}

void report(const std::vector<StepArrivals>& steps, const std::string& how,
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

std::vector<std::vector<std::vector<Duration>>> durations_by_step(
    const std::vector<LoggedRank>& ranks) {
    std::vector<std::vector<std::vector<Duration>>> durations;
    std::vector<ByNumber> others;
    for (const LoggedRank& rank : ranks) {
        others.push_back(by_number(rank, ranks.front().gradients.group));
    }
    for (const auto& step : ranks.front().gradients.steps) {
        auto& of_step = durations.emplace_back();
        for (const std::size_t place : step) {
            const LoggedCollective& first = ranks.front().log->collectives[place];
            std::vector<Duration>& of_ranks = of_step.emplace_back();
            for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
                const auto found = others[rank].find(first.number());
                const LoggedCollective* const one = rank == 0                     ? &first
                                                    : found != others[rank].end() ? found->second
                                                                                  : nullptr;
                if (one != nullptr && one->duration && one->elements == first.elements) {
                    of_ranks.push_back(*one->duration);
                }
            }
        }
    }
    return durations;
}

std::optional<Duration> arrival_deviation(const std::vector<LoggedRank>& all_ranks, bool same_host,
                                          Findings& findings) {
    // Those that reduce gradients together: of other replicas' groups nothing can be compared.
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
    // Who comes late waits less: an all-reduce ends at once on all ranks.
    std::vector<StepArrivals> arrivals =
        arrivals_by(steps, [](std::size_t, const LoggedCollective& collective) {
            return collective.duration ? std::optional(-to_us(*collective.duration)) : std::nullopt;
        });
    std::string how = "by what it takes each rank";
    if (!any(arrivals)) {
        arrivals = arrivals_by(steps, [&](std::size_t rank, const LoggedCollective& collective) {
            const double begin_us =
                static_cast<double>(ranks[rank].log->begin_ns - ranks.front().log->begin_ns) / 1e3;
            return collective.issued && ranks[rank].log->clock == LogClock::host
                       ? std::optional(begin_us + to_us(*collective.issued))
                       : std::nullopt;
        });
        how = "by the hosts' clocks when it was issued, taken for one clock, as --same-host says";
        if (!same_host) {
            const std::vector<double> offsets = offsets_of(arrivals, ranks.size());
            for (StepArrivals& step : arrivals) {
                std::ranges::for_each(step.all, [&](auto& times) { take_out(offsets, times); });
                take_out(offsets, step.last);
            }
            how =
                "by the hosts' clocks when it was issued; each rank's median offset is taken out, "
                "and with it whatever makes a rank always late, which --same-host leaves in";
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
        const double middle = step.last.empty() ? 0 : mean_of(step.last);
        for (const double time : step.last) {
            squares += (time - middle) * (time - middle);
        }
        freedom += step.last.empty() ? 0 : static_cast<double>(step.last.size() - 1);
    }
    return freedom > 0 ? std::optional(duration_from_us(std::sqrt(squares / freedom)))
                       : std::nullopt;
}

}  // namespace bucketwise
