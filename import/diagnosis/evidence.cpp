#include "import/diagnosis/evidence.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "import/replay/changed_step.h"
#include "sim/link/collective.h"
#include "sim/report/number_text.h"
#include "sim/report/sharding_text.h"
#include "sim/text/passed_on.h"

namespace bucketwise {
namespace {

// --- collectives ---

// The collective that loses most on its link.
std::string link_evidence(const MendedSteps::Run& run, const LinkParameters& sound) {
    struct Loss {
        std::size_t number = 0;
        Duration took{0};
        Duration should{0};
    };
    Loss most;
    const std::vector<TypicalCollective>& all = run.imported.collectives();
    double sum = 0;
    double sum_should = 0;
    for (std::size_t i = 0; i < all.size(); ++i) {
        if (all[i].wire_us.empty()) {
            continue;
        }
        const Duration took = duration_from_us(median(all[i].wire_us));
        const RankGroup& group = run.input.group_of({});
        const Duration should = collective_time(all[i].kind, all[i].bytes, group, sound);
        sum += to_us(took);
        sum_should += to_us(should);
        if (took - should > most.took - most.should) {
            most = {i, took, should};
        }
    }
    if (most.took == Duration{0} || sum_should <= 0) {
        return "";
    }
    const TypicalCollective& worst = all[most.number];
    return fmt::format(
        "{} {} of {}, {:.4g} MiB: {} on the wire, {} expected; all together {:.2g} "
        "times as long",
        name_of(worst.kind), most.number + 1, all.size(), to_mib(worst.bytes), ms_text(most.took),
        ms_text(most.should), sum / sum_should);
}

// --- ranks ---

std::string rank_name(const TracedRank& rank) {
    return rank.rank ? fmt::format("rank {}", *rank.rank) : file_name(rank.file);
}

struct PlacedGap {
    const TracedStep* step = nullptr;
    HostGap gap = {};
};

// Where the host does nothing for longest; without a step: nowhere.
PlacedGap longest_gap(const Steps& steps) {
    PlacedGap longest;
    for (const TracedStep* step : steps) {
        for (const HostGap& gap : step->gaps) {
            if (gap.counted > longest.gap.counted) {
                longest = {step, gap};
            }
        }
    }
    return longest;
}

std::string pass_of(const TracedStep& step, const HostGap& gap) {
    return gap.at < step.backward_begin ? "forward"
           : gap.at < step.backward_end ? "backward"
                                        : "the optimizer or between steps";
}

std::string gap_text(const Steps& steps) {
    const auto [step, gap] = longest_gap(steps);
    return step == nullptr
               ? ""
               : fmt::format("its host does nothing for {} before {}, in {} of {}, {}",
                             ms_text(gap.counted), gap.before, pass_of(*step, gap), step->name,
                             gap.at < Duration{0} ? "before the device began it"
                                                  : ms_text(gap.at) + " after the step began");
}

void describe_late_rank(MendedSteps& steps, DiagnosedCause& cause) {
    const TracedRun& run = *steps.run({}).imported.run;
    cause.change = run.rank().has_device
                       ? "look at that rank's data loading, at other processes on its cores, and "
                         "at its device's clocks"
                       : "look at that rank's data loading, and at other processes on its cores";
    if (!steps.punctual()) {
        cause.text = fmt::format("{} waits for other ranks", rank_name(run.rank()));
        cause.evidence = "its collectives take longer than their sizes take on the link";
        return;
    }
    const Steps& own = run.steps[run.primary];
    const Steps& others = run.steps[*steps.punctual()];
    cause.text = fmt::format("{} is late, and the others wait for it", rank_name(run.rank()));
    cause.evidence =
        fmt::format("collectives take it {} a step, and {} {}", ms_text(time_in_collectives(own)),
                    rank_name(run.ranks[*steps.punctual()]), ms_text(time_in_collectives(others)));
    if (const std::string gap = gap_text(own); !gap.empty()) {
        cause.evidence += "; " + gap;
    }
}

void describe_late_host(MendedSteps& steps, const Mended& mended, DiagnosedCause& cause) {
    const Steps& own = steps.steps_of(mended);
    const bool loads = longest_gap(own).gap.before == "data loading";
    cause.text = loads ? "the host waits for data" : "the host does nothing that the trace shows";
    cause.evidence = gap_text(own);
    cause.change = loads ? "more workers of DataLoader, pinned memory, a larger prefetch_factor"
                         : "see what Python does there: a lock, a print, a garbage collection, a "
                           "callback, a sleep (with_stack=True shows it)";
}

// --- operations ---

// Computing, or launching, of each pass as it is and as expected.
std::string operations_evidence(const StepInput& traced, const StepInput& sound,
                                Duration TimedOperation::*part) {
    const auto total = [part](const std::vector<TimedOperation>& pass) {
        Duration sum{0};
        for (const TimedOperation& operation : pass) {
            sum += is_wait(operation) ? Duration{0} : operation.*part;
        }
        return sum;
    };
    std::vector<std::string> texts;
    for (const auto& [pass, name] :
         {std::pair(&Workload::backward, "backward"), std::pair(&Workload::forward, "forward")}) {
        const Duration before = total(sound.workload.*pass);
        const Duration after = total(traced.workload.*pass);
        if (before > Duration{0}) {
            texts.push_back(fmt::format("{} {} in place of {} ({:+.0f} %)", name, ms_text(after),
                                        ms_text(before), 100 * (share(after, before) - 1)));
        }
    }
    return fmt::format("{}", fmt::join(texts, ", "));
}

// How many times as long the operations take, where they are the same.
std::string factors_text(const StepInput& traced, const StepInput& sound) {
    constexpr std::size_t fewest = 8;
    constexpr std::size_t quarters = 4;
    constexpr double one_factor = 1.1;
    std::vector<double> factors;
    for (const auto pass : {&Workload::forward, &Workload::backward}) {
        const auto& own = traced.workload.*pass;
        if (!std::ranges::equal(own, sound.workload.*pass, {}, &TimedOperation::name,
                                &TimedOperation::name)) {
            return "";
        }
        for (std::size_t i = 0; i < own.size(); ++i) {
            const Duration before = (sound.workload.*pass)[i].device;
            if (before > Duration{0} && !is_wait(own[i])) {
                factors.push_back(share(own[i].device, before));
            }
        }
    }
    if (factors.size() < fewest) {
        return "";
    }
    std::ranges::sort(factors);
    const double low = factors[factors.size() / quarters];
    const double high = factors[factors.size() * (quarters - 1) / quarters];
    return fmt::format(
        "; half of the operations take {:.2f} to {:.2f} times as long{}", low, high,
        high < one_factor * low ? ", all by about one factor, as lower clocks do" : "");
}

void describe_recompute(const StepInput& traced, DiagnosedCause& cause) {
    std::string first;
    Duration backward{0};
    for (const TimedOperation& operation : traced.workload.backward) {
        first = first.empty() && operation.recomputed > 0 ? operation.name : first;
        backward += is_wait(operation) ? Duration{0} : operation.device;
    }
    cause.text = "backward computes forward again, which was not expected";
    cause.evidence = fmt::format("{} of backward's {} of computing, from {} on",
                                 ms_text(recomputed_in(traced)), ms_text(backward), first);
    cause.change =
        "no checkpoint_wrapper where memory holds the activations, or on every Nth block "
        "(activation_checkpointing)";
}

void describe_buckets(MendedSteps& steps, const Mended& mended, DiagnosedCause& cause) {
    Mended more = mended;
    more.insert(TraceCause::small_buckets);
    const SimulatedStep traced = steps.step(mended);
    const SimulatedStep sound = steps.step(more);
    const std::size_t now = collectives_of(traced);
    const std::size_t then = collectives_of(sound);
    cause.text = now > then ? "gradients travel in more collectives than need be"
                            : "gradients travel in larger collectives than need be";
    cause.evidence =
        fmt::format("{} {} in place of {}", now, traced.sharding ? "groups" : "buckets", then);
    cause.change = traced.sharding
                       ? setting_text(*sound.sharding)
                       : fmt::format("bucket_cap_mb={}",
                                     typed_mib(sound.sync.bucket_cap.size().value_or(Bytes{})));
}

}  // namespace

Overlapped overlap_of(const TraceImport& imported, const Replay& replayed) {
    const TracedStep& step = imported.typical;
    double wire = 0;
    double beside = 0;
    for (const TracedCollective& collective : step.collectives) {
        if (!collective.begin) {
            continue;
        }
        wire += to_us(*collective.end - *collective.begin);
        for (const auto* pass : {&step.forward, &step.backward}) {
            for (const StepMark& mark : *pass) {
                const Duration from = std::max(mark.device_begin, *collective.begin);
                const Duration to = std::min(mark.device_begin + mark.device, *collective.end);
                beside += std::max(to_us(to - from), 0.0);
            }
        }
    }
    Overlapped overlapped{.traced = wire > 0 ? beside / wire : 0.0};
    double simulated = 0;
    double exposed = 0;
    for (const BucketWait& bucket : replayed.simulated.buckets) {
        simulated += to_us(bucket.end - bucket.begin);
        exposed += std::min(to_us(bucket.waited), to_us(bucket.end - bucket.begin));
    }
    overlapped.simulated = simulated > 0 ? 1 - exposed / simulated : 0.0;
    return overlapped;
}

void describe(MendedSteps& steps, const Mended& mended, DiagnosedCause& cause) {
    const MendedSteps::Run& run = steps.run(mended);
    const Steps& own = steps.steps_of(mended);
    const bool has_device = !run.input.workload.host_is_device;
    switch (cause.kind) {
        case TraceCause::unused_parameters:
            cause.text = "unused parameters are looked for in every step";
            cause.evidence = "an all-reduce of their map follows the last bucket";
            cause.change =
                "find_unused_parameters=False, or static_graph=True where the same are "
                "unused in every step";
            return;
        case TraceCause::small_buckets:
            describe_buckets(steps, mended, cause);
            return;
        case TraceCause::copies:
            cause.text = "gradients are copied into buckets and back";
            cause.evidence = "copies out of buckets follow the all-reduces";
            cause.change = "gradient_as_bucket_view=True";
            return;
        case TraceCause::no_prefetch:
            cause.text = "groups are gathered when they are needed, not ahead";
            cause.evidence =
                fmt::format("{} ahead in forward, {} in backward",
                            counted(run.scenario.sharding->forward_prefetch, "group"),
                            counted(run.scenario.sharding->backward_prefetch, "group"));
            cause.change = "set_modules_to_forward_prefetch, set_modules_to_backward_prefetch";
            return;
        case TraceCause::recompute:
            describe_recompute(steps.step(mended).input, cause);
            return;
        case TraceCause::late_rank:
            describe_late_rank(steps, cause);
            return;
        case TraceCause::late_host:
            describe_late_host(steps, mended, cause);
            return;
        case TraceCause::host_waits:
            cause.text = "the host waits for the device within the step";
            cause.evidence = fmt::format(
                "{} a step, {} in all", counted(own.front()->waits, "wait"),
                ms_text(median_of(own, [](const TracedStep* step) { return step->waited; })));
            cause.change =
                "no .item(), .cpu() or print of tensors in the step; copies with "
                "non_blocking=True from pinned memory";
            return;
        case TraceCause::other_streams: {
            std::string stream = "other streams";
            Duration most{0};
            for (const auto& [name, stall] : own.front()->device_stalled) {
                stream = stall > most ? name : stream;
                most = std::max(most, stall);
            }
            cause.text = "computing waits for other streams";
            cause.evidence = fmt::format("{} a step for {}", ms_text(most), stream);
            cause.change = "see what these streams do, and what waits for them";
            return;
        }
        case TraceCause::slow_link: {
            const LinkParameters& sound = steps.sound_link();
            cause.text = fmt::format("collectives are slower than on {}",
                                     sound.name.empty() ? "the expected link" : sound.name);
            cause.evidence = link_evidence(run, sound);
            cause.change = has_device
                               ? "NCCL_DEBUG=INFO says which network NCCL chose: NET/Socket in "
                                 "place of NET/IB, SHM in place of P2P; else other jobs on the link"
                               : "the network interface that the backend chose "
                                 "(GLOO_SOCKET_IFNAME), its rate, other jobs on the link";
            return;
        }
        case TraceCause::slow_launching:
        case TraceCause::slow_computing: {
            const bool launches = cause.kind == TraceCause::slow_launching;
            cause.text =
                launches ? "operations take the host longer to launch" : "computing takes longer";
            cause.evidence =
                operations_evidence(steps.step(mended).input, steps.sound()->input,
                                    launches ? &TimedOperation::host : &TimedOperation::device);
            if (!launches) {
                cause.evidence += factors_text(steps.step(mended).input, steps.sound()->input);
            }
            cause.change = launches ? "other processes on the host's cores, CUDA_LAUNCH_BLOCKING, "
                                      "a debugger or a profiler; CPU frequency"
                           : has_device ? "the device's clocks and power limit, other processes "
                                          "on it, larger shapes than expected"
                                        : "other processes on the host's cores, fewer threads, "
                                          "CPU frequency, larger shapes than expected";
            return;
        }
        case TraceCause::no_overlap:
            return;
    }
}

void describe_rest(const Overlapped& overlapped, const TraceImport& imported,
                   DiagnosedCause& cause) {
    if (cause.kind == TraceCause::no_overlap) {
        cause.text = "collectives and computing run one after another";
        cause.evidence = fmt::format(
            "computing runs beside {:.0f} % of collectives' time, where "
            "{:.0f} % would fit",
            100 * overlapped.traced, 100 * overlapped.simulated);
        cause.change =
            "CUDA_DEVICE_MAX_CONNECTIONS unset or above 1, CUDA_LAUNCH_BLOCKING unset, "
            "no synchronisation of the default stream";
        return;
    }
    cause.text = "collectives wait for other ranks";
    cause.evidence = fmt::format("{} waits longer for them than they take on the link",
                                 file_name(imported.summary.file));
    cause.change = "trace other ranks, too, and diagnose all together: that tells which is late";
}

}  // namespace bucketwise
