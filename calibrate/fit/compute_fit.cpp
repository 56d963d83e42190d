#include "calibrate/fit/compute_fit.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "sim/base/error.h"
#include "sim/base/statistics.h"
#include "sim/base/transformed.h"
#include "sim/engine/bucket_planner.h"
#include "sim/plan/plan.h"
#include "sim/plan/strategy.h"
#include "sim/program/step_programs.h"
#include "sim/sharding/sharded_step.h"

namespace bucketwise {
namespace {

using ComputeRecords = std::vector<const ComputeRecord*>;
using Round = ComputeRecords;  // one per rank

std::vector<Round> complete_rounds(const MeasuredRun& run, std::vector<std::string>& warnings) {
    std::map<std::int64_t, std::map<std::int64_t, const ComputeRecord*>> by_round;
    for (const ComputeRecord& record : run.computes) {
        by_round[record.round][record.rank] = &record;
    }
    std::vector<Round> rounds;
    for (const auto& [number, by_rank] : by_round) {
        if (static_cast<std::int64_t>(by_rank.size()) != run.transport.ranks) {
            warnings.push_back(
                fmt::format("{}: round {} has compute records of {} of {} ranks and is left out",
                            run.file, number, by_rank.size(), run.transport.ranks));
            continue;
        }
        rounds.push_back(transformed(by_rank, [](const auto& of_rank) { return of_rank.second; }));
    }
    return rounds;
}

ComputeRecords all_records(const std::vector<Round>& rounds) {
    ComputeRecords records;
    for (const Round& round : rounds) {
        records.insert(records.end(), round.begin(), round.end());
    }
    return records;
}

// The slowest rank's value, by round.
template <typename Value>
std::vector<double> slowest_by_round(const std::vector<Round>& rounds, Value value) {
    std::vector<double> by_round;
    for (const Round& round : rounds) {
        double most = 0;
        for (const ComputeRecord* record : round) {
            most = std::max(most, value(*record));
        }
        by_round.push_back(most);
    }
    return by_round;
}

// The slowest rank's value in the median round.
template <typename Value>
double slowest(const std::vector<Round>& rounds, Value value) {
    return median(slowest_by_round(rounds, value));
}

double computing_us(const ComputeRecord& record) {
    return record.forward_us + record.backward_us;
}

double step_us(const ComputeRecord& record) {
    return record.samples_us.front();
}

std::vector<double> operations_us(const ComputeRecord& record) {
    std::vector<double> times = record.forward_operations_us;
    std::ranges::copy(record.backward_operations_us, std::back_inserter(times));
    return times;
}

// The slowest rank's end of each operation of a micro-step, from its start, in us. Medians of
// values that rise with the operation rise with it too.
std::vector<double> slowest_ends(const std::vector<Round>& rounds) {
    const auto latest_ends = [](const Round& round) {
        std::vector<double> latest(operations_us(*round.front()).size());
        for (const ComputeRecord* record : round) {
            double end = 0;
            for (std::size_t i = 0; const double time : operations_us(*record)) {
                end += time;
                latest[i] = std::max(latest[i], end);
                ++i;
            }
        }
        return latest;
    };
    return medians_of(transformed(rounds, latest_ends), std::identity{});
}

// The end of the last operation if operations that end at `ends` without launches are launched one
// after another.
double last_end_us(const std::vector<double>& ends, double launch_us) {
    double now = 0;
    double host = 0;
    double before = 0;
    for (const double end : ends) {
        host += launch_us;
        now = std::max(now, host) + (end - before);
        before = end;
    }
    return now;
}

void set_operations(const std::vector<Round>& rounds, std::int64_t micro_steps, ComputeFit& fit) {
    const std::vector<double> ends = slowest_ends(rounds);
    const std::size_t forward = rounds.front().front()->forward_operations_us.size();
    const double all_us = slowest(rounds, computing_us) / static_cast<double>(micro_steps);
    const double launched_us = last_end_us(ends, fit.launch ? to_us(fit.launch->time) : 0);
    const double scale = launched_us > 0 ? all_us / launched_us : 1.0;
    double before = 0;
    for (std::size_t i = 0; i < ends.size(); ++i) {
        const Duration time = duration_from_us(scale * ends[i]) - duration_from_us(scale * before);
        before = ends[i];
        (i < forward ? fit.forward_operations : fit.backward_operations).push_back(time);
        (i < forward ? fit.forward : fit.backward) += time;
    }
}

// From the same operations, so that gradients of one operation stay together.
void set_readiness(const Workload& workload, ComputeFit& fit) {
    fit.ready.resize(workload.gradients.size());
    Duration now{0};
    std::size_t next = 0;
    for (std::size_t i = 0; i < workload.backward.size(); ++i) {
        now += fit.backward_operations[i];
        for (std::int32_t k = 0; k < workload.backward[i].ready_count; ++k) {
            fit.ready[static_cast<std::size_t>(workload.readiness[next++])] = now;
        }
    }
}

// The step behind a compute record's copies: the scenario's own, or at its default cap.
Program copying_program(const Scenario& scenario, StepInput input, bool on_host) {
    if (scenario.sharding) {
        ShardedInput sharded = sharded_input(scenario);
        input.group = sharded.step.group;
        input.replicas = sharded.step.replicas;
        input.workload.host_is_device = on_host;
        input.copy_fixed = Duration{0};
        sharded.step = std::move(input);
        return build_sharded_program(sharded, make_shard_plan(sharded)).program;
    }
    const SyncSettings sync = settings_of_replay(with_cap(scenario.sync, Cap()), input);
    return build_program(input, sync, plan_of(input, sync));
}

// The time of copies, and of sharded collectives, which may copy too.
Duration copying_time(const Scenario& scenario, const StepInput& input, bool on_host) {
    const Program program = copying_program(scenario, input, on_host);
    Duration time{0};
    for (const Instruction& instruction : program.instructions) {
        if (is_copy(instruction.kind)) {
            time += instruction.device;
        }
    }
    const bool waits_for_each =
        settings_for(scenario.sync, input).framework.wait == ComputingWaits::at_once;
    for (const Collective& collective : program.collectives) {
        time += scenario.sharding ? collective.time + collective.placing
                : waits_for_each  ? collective.copying
                                  : Duration{0};
    }
    return time;
}

// Payload that it copies and casts.
Bytes copied_bytes(const Scenario& scenario, StepInput input, bool on_host) {
    input.copy_bandwidth.reset();
    const Duration free = copying_time(scenario, input, on_host);
    input.copy_bandwidth = bandwidth_from_gb_per_s(1);  // a byte per nanosecond
    const Duration copying = copying_time(scenario, input, on_host) - free;
    constexpr std::int64_t ps_per_byte = 1000;
    return {copying.count() / ps_per_byte};
}

void set_copy_bandwidth(const std::vector<Round>& rounds, const Scenario& scenario,
                        const StepInput& input, bool on_host, ComputeFit& fit) {
    const bool within_collectives =
        scenario.sharding && scenario.sharding->strategy == ShardedStrategy::zero3;
    if (within_collectives && !on_host) {
        fit.warnings.emplace_back(
            "on a GPU the cost of the copies in stage 3's collectives is unknown, and left to the "
            "scenario's device");
        return;
    }
    const Bytes copied = copied_bytes(scenario, input, on_host);
    if (copied.count == 0) {
        return;
    }
    std::vector<double> extra_us;
    std::vector<double> copies_us;
    for (const ComputeRecord* record : all_records(rounds)) {
        extra_us.push_back(record->copying_step_us - step_us(*record));
        if (record->copies_us) {
            copies_us.push_back(*record->copies_us);
        }
    }
    constexpr double noticeable = 1e-4;  // of the step
    const double least_us = noticeable * slowest(rounds, step_us);
    const double cost_us = median(copies_us.empty() ? extra_us : copies_us);
    if (cost_us < least_us) {
        fit.warnings.emplace_back("the cost of copies is within the noise");
    }
    // Bytes per microsecond are thousandths of 10^9 bytes per second.
    fit.copy_bandwidth = bandwidth_from_gb_per_s(std::clamp(
        static_cast<double>(copied.count) / 1e3 / std::max(cost_us, least_us), 1e-6, 1e6));
}

// The variation of single operations without that of the whole step. Operations of less than a two
// hundredth of the step do not count: they vary most and matter least.
double operation_spread(const std::vector<Round>& rounds) {
    constexpr double worth = 0.005;
    std::vector<std::vector<double>> shares;  // [operation]: of the record's computing
    for (const ComputeRecord* record : all_records(rounds)) {
        const std::vector<double> times = operations_us(*record);
        const double all = std::accumulate(times.begin(), times.end(), 0.0);
        shares.resize(times.size());
        for (std::size_t i = 0; i < times.size(); ++i) {
            shares[i].push_back(all > 0 ? times[i] / all : 0);
        }
    }
    std::vector<double> spreads;
    for (const std::vector<double>& share : shares) {
        const double middle = median(share);
        if (middle >= worth) {
            spreads.push_back(robust_deviation(share) / middle);
        }
    }
    return spreads.empty() ? 0 : median(spreads);
}

void check_operations(const MeasuredRun& run, const ComputeRecord& record,
                      const Workload& workload) {
    const auto check = [&](std::size_t measured, std::size_t expected, std::string_view what) {
        if (measured != expected) {
            throw InputError(run.file, "",
                             fmt::format("compute records of the scenario's {} {}", expected, what),
                             fmt::format("records of {}", measured));
        }
    };
    check(record.forward_operations_us.size(), workload.forward.size(), "forward operations");
    check(record.backward_operations_us.size(), workload.backward.size(), "backward operations");
    check(record.ready_us.size(), workload.gradients.size(), "gradients");
}

void set_variation(const std::vector<Round>& rounds, ComputeFit& fit) {
    const std::vector<double> of_rounds = slowest_by_round(rounds, computing_us);
    const double middle = median(of_rounds);
    const auto share = [&](double us) { return std::min(middle > 0 ? us / middle : 0, 1.0); };
    fit.variation.compute_spread = share(robust_deviation(of_rounds));
    fit.variation.compute_standard_error = share(standard_error_of_median(of_rounds));
    fit.variation.operation_spread = std::min(operation_spread(rounds), 1.0);
}

// How much single all-reduces vary around their median, as a share: the median over sizes of
// 256 KiB and more, or over all if there are none.
double collective_spread(const std::vector<LinkPoint>& points) {
    constexpr Bytes large{std::int64_t{256} << 10};
    std::vector<double> of_large;
    std::vector<double> of_all;
    for (const LinkPoint& point : points) {
        const double middle = point.median_us;
        const double share = middle > 0 ? robust_deviation(point.samples_us) / middle : 0;
        of_all.push_back(share);
        if (point.size >= large) {
            of_large.push_back(share);
        }
    }
    const std::vector<double>& used = of_large.empty() ? of_all : of_large;
    return used.empty() ? 0 : std::min(median(used), 1.0);
}

}  // namespace

std::optional<HostCost> host_cost(const std::vector<double>& samples_us) {
    if (samples_us.empty()) {
        return std::nullopt;
    }
    return HostCost{.time = duration_from_us(median(samples_us)), .spread = spread(samples_us)};
}

std::optional<ComputeFit> fit_compute(const MeasuredRun& run, const Scenario& scenario) {
    ComputeFit fit;
    const StepInput input = step_input(scenario);
    const std::vector<Round> rounds = complete_rounds(run, fit.warnings);
    if (rounds.empty()) {
        return std::nullopt;
    }
    const ComputeRecords records = all_records(rounds);
    for (const ComputeRecord* record : records) {
        check_operations(run, *record, input.workload);
    }
    fit.rounds = rounds.size();
    std::vector<double> launches_us;
    std::vector<double> graph_launches_us;
    for (const ComputeRecord* record : records) {
        for (const auto* pass : {&record->forward_launches_us, &record->backward_launches_us}) {
            launches_us.insert(launches_us.end(), pass->begin(), pass->end());
        }
        if (record->graph_launch_us) {
            graph_launches_us.push_back(*record->graph_launch_us);
        }
    }
    fit.launch = host_cost(launches_us);
    fit.graph_launch = host_cost(graph_launches_us);
    set_operations(rounds, input.step.accumulation, fit);
    set_readiness(input.workload, fit);
    fit.optimizer =
        settings_for(scenario.sync, input).framework.updating_ranks *
        duration_from_us(slowest(rounds, [](const ComputeRecord& r) { return r.optimizer_us; }));
    set_copy_bandwidth(rounds, scenario, input, run.transport.computes_on_host(), fit);
    set_variation(rounds, fit);
    const auto spread_of = [&](CollectiveKind kind) {
        return collective_spread(link_points(kind, {run}));
    };
    fit.variation.collective_spread = run.has(CollectiveKind::all_reduce)
                                          ? spread_of(CollectiveKind::all_reduce)
                                          : std::max(spread_of(CollectiveKind::all_gather),
                                                     spread_of(CollectiveKind::reduce_scatter));
    return fit;
}

std::optional<double> compute_step_us(const MeasuredRun& run) {
    std::vector<std::string> ignored;
    const std::vector<Round> rounds = complete_rounds(run, ignored);
    return rounds.empty() ? std::nullopt : std::optional(slowest(rounds, step_us));
}

}  // namespace bucketwise
