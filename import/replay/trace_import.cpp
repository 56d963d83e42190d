#include "import/replay/trace_import.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "import/replay/arrival.h"
#include "import/replay/scenario_document.h"
#include "import/replay/training_form.h"
#include "import/run/traced_collectives.h"
#include "import/run/traced_gradients.h"
#include "import/run/traced_link.h"
#include "sim/base/error.h"
#include "sim/base/transformed.h"
#include "sim/link/collective.h"

namespace bucketwise {
namespace {

void find_all_reduces(TracedRun& run, const TraceImportRequest& request, TraceImport& result) {
    result.all_reduces = all_reduces_of(run);
    result.ranks = number_of_ranks(run, request.ranks, result.findings);
    if (result.all_reduces.empty()) {
        Finding& finding = result.findings.missing(
            "all-reduces",
            "none in backward: a run of one rank, or of a strategy without them; the scenario "
            "synchronises as DistributedDataParallel would");
        finding.weakens = result.ranks > 1 ? Weakens::scenario : Weakens::nothing;
        return;
    }
    const auto bytes = transformed(result.all_reduces, [](const auto& r) { return r.bytes.count; });
    result.findings.found("all-reduces", "{} a step, of {} {} bytes in this order", bytes.size(),
                          fmt::join(bytes, ", "), name_of(result.all_reduces.front().dtype));
    find_wire_times(run, result.ranks, result.all_reduces, result.findings);
    find_arrival(run, result.all_reduces.size(), result.findings);
    check_sums(run, result.gradients, result.findings);
}

// By the work that ended last before the compute stream went on.
void report_stalls(const TracedStep& step, Findings& findings) {
    using Named = std::pair<std::string, Duration>;
    std::vector<Named> stalls(step.device_stalled.begin(), step.device_stalled.end());
    std::ranges::stable_sort(stalls, std::ranges::greater{}, &Named::second);
    constexpr std::size_t most_listed = 4;
    Duration sum{0};
    std::vector<std::string> texts;
    for (const Named& stall : stalls) {
        sum += stall.second;
        if (texts.size() < most_listed) {
            texts.push_back(fmt::format("{} ({:.3f} ms)", stall.first, to_ms(stall.second)));
        }
    }
    if (sum > Duration{0}) {
        findings.assumed(
            "stalls",
            "the compute stream waits for other streams or ranks for {:.3f} ms a "
            "step, for {}{}: {}",
            to_ms(sum), fmt::join(texts, ", "), stalls.size() > most_listed ? " and others" : "",
            step.device_stalled_beside == sum ? "simulated, by the order that the times show"
            : step.device_stalled_beside > Duration{0}
                ? fmt::format("for {:.3f} ms of it the streams are simulated, the rest is "
                              "kept in place, as long as it was",
                              to_ms(step.device_stalled_beside))
                : "kept in place, as long as they were");
    }
}

// Waits of the host for the device, and of the device for the host.
void report_waits(const TracedRun& run, const StepSummary& summary, Findings& findings) {
    const TracedStep& step = run.first();
    constexpr double launch_bound_share = 0.5;
    const Duration busy = summary.account.computing;
    const double share =
        static_cast<double>(busy.count()) / static_cast<double>(summary.step.count());
    findings.found(
        "launching", "the compute stream is busy for {:.3f} ms of {:.3f} ms ({:.0f} %){}",
        to_ms(busy), to_ms(summary.step), 100 * share,
        share < launch_bound_share ? ": the device waits for the host, the step is launch-bound"
                                   : "");
    if (step.waits > 0) {
        findings.found("waiting",
                       "the host waits for the device {} times a step, {:.3f} ms in all (.item(), "
                       "a copy to the host, a synchronisation)",
                       step.waits, to_ms(step.waited));
    }
    if (const Duration queue = run.typical(&TracedStep::waited_for_queue);
        100 * queue > summary.step) {
        findings.found(
            "launch queue",
            "the host is so far ahead that it waits for room for {:.3f} ms a step: taken "
            "for idle, not for launching",
            to_ms(queue));
    }
    if (step.waited_for_others > Duration{0}) {
        findings.assumed("waits in place",
                         "for {:.3f} ms a step the host waits for other streams or ranks that are "
                         "not simulated, while the device computes nothing: kept in place, as time "
                         "of the host",
                         to_ms(run.typical(&TracedStep::waited_for_others)));
    }
}

void report_device(const TracedRun& run, const TraceImport& result, Findings& findings) {
    const TracedStep& step = run.first();
    if (const std::string& device = run.rank().unread_device;
        !device.empty() && !run.rank().has_device) {
        findings
            .missing("device",
                     "the trace is of an accelerator, {}, whose kernels are not read: times are "
                     "the host's alone",
                     device)
            .weakens = Weakens::scenario;
    } else if (!run.rank().has_device) {
        findings.found("device",
                       "no kernels: the host computes (a CPU, or a profile without CUDA "
                       "activities)");
    }
    if (!run.rank().has_device) {
        findings.found("waiting",
                       "the host waits for collectives and for other ranks for {:.3f} ms of a step",
                       to_ms(run.typical(&TracedStep::waited)));
        return;
    }
    report_waits(run, result.summary, findings);
    if (step.unreduced > 0) {
        findings.missing("unreduced gradients",
                         "{} became ready and were copied into no bucket: of parameters that "
                         "DistributedDataParallel does not wrap; they are left out",
                         step.unreduced);
    }
    report_stalls(step, findings);
    if (result.sharding && !step.side_streams.empty()) {
        findings.missing(
            "streams",
            "the busiest stream's waits for {} more ({}) are kept in place, as its own "
            "time",
            step.side_streams.size(), fmt::join(step.side_streams, ", "));
    } else if (!step.side_streams.empty()) {
        findings.found("streams",
                       "{} more, for which the busiest stream waits, are simulated ({}); their "
                       "order is told from the times",
                       step.side_streams.size(), fmt::join(step.side_streams, ", "));
    }
    if (step.other_streams > Duration{0}) {
        findings.missing("streams",
                         "{:.3f} ms a step of kernels on other streams than the busiest are left "
                         "out, unless it waits for them",
                         to_ms(step.other_streams));
    }
}

void report_other_collectives(const TracedRun& run, const std::optional<TracedSharding>& sharding,
                              Findings& findings) {
    std::map<std::string, std::size_t> others;
    const TracedStep& step = run.first();
    const std::vector<const TracedCollective*> found = reductions(run, step);
    const std::set<const TracedCollective*> reduced(found.begin(), found.end());
    for (const TracedCollective& collective : step.collectives) {
        const bool is_map = run.unused_map && is_unused_map(step, collective);
        const bool is_known =
            sharding ? sharding->has(collective)
                     : reduced.contains(&collective) || collective.sends_buffers() || is_map;
        if (!is_known) {
            ++others[fmt::format("{} in {} of {} bytes", collective.name,
                                 collective.in_backward    ? "backward"
                                 : collective.in_optimizer ? "the optimizer"
                                                           : "forward",
                                 collective.bytes.count)];
        }
    }
    if (others.empty()) {
        return;
    }
    const bool kept = !run.rank().has_device;  // as operations of the host
    Finding& finding = findings.missing(
        "other collectives", "{}: {} (SyncBatchNorm, metrics, other parallelism)",
        text_of_kinds(others),
        kept ? "the scenario has them as computing" : "left out, unless computing waits for them");
    finding.weakens = kept ? Weakens::nothing : Weakens::scenario;
}

void find_times_on_link(const std::string& file, TracedSharding& sharding) {
    const auto link =
        link_through(sharding.collectives, {sharding.ranks, sharding.shard_ranks}, file);
    if (!link) {
        return;
    }
    for (TypicalCollective& collective : sharding.collectives) {
        const RankGroup ranks{.ranks = collective.kind == CollectiveKind::all_reduce
                                           ? sharding.ranks / sharding.shard_ranks
                                           : sharding.shard_ranks};
        collective.on_link = collective_time(collective.kind, collective.bytes, ranks, *link);
    }
}

void import_sharded(const TraceImportRequest& request, TraceImport& result) {
    TracedRun& run = *result.run;
    Findings& findings = result.findings;
    if (request.undisturbed) {
        throw InputError("--undisturbed", "",
                         "a trace of all-reduces, beside which kernels are slowed", "one of FSDP2");
    }
    result.sharding = traced_sharding(run, result.model, request.ranks, findings);
    result.ranks = result.sharding->ranks;
    find_times_on_link(run.rank().file, *result.sharding);
    result.summary = summary_of(run, result.sharding->collectives, true);
    ShardedDocument document = sharded_document(run, *result.sharding, findings);
    result.scenario = std::move(document.json);
    result.late = document.late;
    report_device(run, result, findings);
    if (run.rank().has_device) {
        findings.assumed("undisturbed",
                         "kernels' times include what collectives beside them cost them");
    }
}

void import_reduced(const TraceImportRequest& request, TraceImport& result) {
    TracedRun& run = *result.run;
    Findings& findings = result.findings;
    refuse_sharded(run);
    find_group(run, findings);
    result.gradients = traced_gradients(run, result.model, findings);
    complete_sizes(run, result.gradients, findings);
    refuse_compressed(run, result.gradients);
    add_unused(run, result.gradients, findings);
    find_all_reduces(run, request, result);
    result.summary = summary_of(run, result.all_reduces, false);
    result.slowdowns = take_plain_times(run, result.all_reduces, request.undisturbed, findings);
    result.scenario =
        scenario_document(run, result.ranks, result.gradients, result.model, findings);
    report_device(run, result, findings);
    report_form(run, findings);
}

void take_out_idle(TracedRank& rank) {
    for (TracedStep& step : rank.steps) {
        Duration StepMark::*const part = rank.has_device ? &StepMark::host : &StepMark::device;
        for (std::vector<StepMark>* pass : {&step.forward, &step.backward, &step.optimizer}) {
            for (StepMark& mark : *pass) {
                mark.*part -= mark.idle;
            }
        }
        (rank.has_device ? step.optimizer_host : step.optimizer_device) -= step.optimizer_idle;
    }
}

}  // namespace

TraceImport import_trace(std::vector<TracedRank> ranks, TraceImportRequest request) {
    check_ranks(ranks);
    TraceImport result;
    Findings& findings = result.findings;
    result.run = std::make_unique<TracedRun>(TracedRun{std::move(ranks)});
    TracedRun& run = *result.run;
    if (request.without_idle) {
        std::ranges::for_each(run.ranks, take_out_idle);
    }
    choose_steps(run, findings);
    run.primary = request.primary.value_or(run.primary);
    for (const TraceNote& note : run.rank().notes) {
        findings.assumed(note.item.c_str(), "{}", note.text).weakens =
            note.weakens ? Weakens::scenario : Weakens::nothing;
    }
    const Duration length = run.typical(&TracedStep::length);
    result.typical = **std::ranges::min_element(run.alike(), {}, [&](const TracedStep* step) {
        return std::max(step->length - length, length - step->length);
    });
    result.model = std::move(request.model);
    if (run.first().is_fully_sharded()) {
        import_sharded(request, result);
    } else {
        import_reduced(request, result);
    }
    report_other_collectives(run, result.sharding, findings);
    findings.assumed("profiler",
                     "what tracing itself costs the host is in the times of operations");
    return result;
}

}  // namespace bucketwise
