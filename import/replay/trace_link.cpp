#include "import/replay/trace_link.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "import/replay/scenario_document.h"
#include "import/replay/undisturbed.h"
#include "import/run/traced_link.h"
#include "sim/base/error.h"
#include "sim/link/link_input.h"

namespace bucketwise {
namespace {

WireTimes wire_times(const TraceImport& imported) {
    WireTimes by_size;
    for (const TracedAllReduce& all_reduce : imported.all_reduces) {
        std::vector<double>& times = by_size[all_reduce.bytes];
        times.insert(times.end(), all_reduce.wire_us.begin(), all_reduce.wire_us.end());
    }
    return by_size;
}

// Of the largest all-reduce, as far as links have them.
std::optional<std::int64_t> thread_blocks(const TraceImport& imported) {
    const auto largest =
        std::ranges::max_element(imported.all_reduces, {}, &TracedAllReduce::bytes);
    return largest->blocks >= 1 && largest->blocks <= most_thread_blocks
               ? std::optional<std::int64_t>(largest->blocks)
               : std::nullopt;
}

// What all-reduces cost computing. Empty: what is assumed on GPUs.
struct OverlapCost {
    std::vector<InterferenceSegment> interference = {};
    bool is_assumed = false;  // and not measured
};

LinkParameters fitted_link(const TraceImport& imported, const OverlapCost& cost) {
    const TracedRank& rank = imported.run->rank();
    const char* const collectives = imported.sharding ? "collectives" : "all-reduces";
    std::optional<LinkParameters> link =
        imported.sharding ? sharded_link_through(*imported.sharding, rank.file)
                          : link_through(wire_times(imported), imported.ranks, rank.file);
    if (!link) {
        throw InputError(
            rank.file, "/traceEvents",
            fmt::format("{} on a communication stream, or a link (--link)", collectives),
            "neither");
    }
    if (cost.interference.empty()) {
        link->ctas = thread_blocks(imported);  // by which it is assumed
    }
    link->interference = cost.interference;
    link->provenance.backend = rank.backend.empty() && rank.has_device ? "nccl" : rank.backend;
    const std::string& backend = link->provenance.backend;
    link->name = (backend.empty() ? "network" : backend) + ", as traced";
    link->provenance.hardware = rank.device;
    link->provenance.versions = rank.nccl_version.empty() ? "" : "NCCL " + rank.nccl_version;
    std::ranges::copy(caveats_of(imported.findings, Weakens::link),
                      std::back_inserter(link->caveats));
    link->provenance.source =
        fmt::format("{} of {}, {} times{}", collectives, rank.profile,
                    imported.sharding && !rank.has_device ? "mean" : "least",
                    cost.is_assumed ? "; what they cost computing is assumed" : "");
    return *link;
}

Scenario with_link(TraceImport& imported, const std::optional<std::string>& link,
                   const OverlapCost& cost, const FileReader& read_file) {
    put_link(
        imported.scenario, link, imported.ranks, [&] { return fitted_link(imported, cost); },
        read_file);
    return parse_scenario(imported.scenario, imported.run->ranks.front().file + " as a scenario",
                          read_file, StrategyKinds::all);
}

std::int64_t to_ppm(double factor) {
    return std::llround(factor * static_cast<double>(undisturbed_ppm));
}

// Of computing alone: what it costs all-reduces is in their times, and so is how late they begin.
std::vector<InterferenceSegment> of_computing(std::vector<InterferenceSegment> interference) {
    for (InterferenceSegment& segment : interference) {
        segment.slowdown.communication_slowdown_ppm = undisturbed_ppm;
        segment.slowdown.start_delay = Duration{0};
        if (segment.errors) {
            segment.errors->start_delay_us = 0;
        }
    }
    return interference;
}

// As measured; how sure of the rest as where it is assumed.
std::vector<InterferenceSegment> measured_interference(const KernelSlowdowns& slowdowns,
                                                       const LinkParameters& assumed) {
    InterferenceSegment segment;
    if (!assumed.interference.empty()) {
        segment.errors = assumed.interference.back().errors;
    }
    segment.slowdown.compute_slowdown_ppm = to_ppm(slowdowns.all.factor);
    segment.computing = {to_ppm(slowdowns.products.factor), to_ppm(slowdowns.rest.factor)};
    segment.errors = segment.errors.value_or(InterferenceErrors{});
    segment.errors->compute_slowdown = std::max(slowdowns.products.error, slowdowns.rest.error);
    return of_computing({segment});
}

// Makes the scenario anew, of the times that kernels take alone.
void take_out_interference(const LinkParameters& link, TraceImport& imported) {
    TracedRun& run = *imported.run;
    const Overlap overlap = overlap_of(run, imported.all_reduces);
    take_out_of_computing(run, imported.all_reduces, link);
    const Duration alone = overlap_of(run, imported.all_reduces).computing;
    Finding& finding = imported.findings.assumed(
        "undisturbed",
        "{:.3f} of {:.3f} ms of computing ran beside all-reduces; what that costs, {:.3f} ms by "
        "{}, "
        "is taken out and put back where they overlap; --undisturbed, a trace of the same steps "
        "without communication, measures it",
        to_ms(overlap.beside), to_ms(overlap.computing), to_ms(overlap.computing - alone),
        link.assumes_interference ? "what is assumed of GPUs" : "the link's interference");
    constexpr std::int64_t noticeable = 100;  // of a step, that part
    const bool matters = noticeable * (overlap.computing - alone) >= imported.step;
    finding.weakens = link.assumes_interference && matters ? Weakens::scenario : Weakens::nothing;
    Findings nothing;  // new
    const Json cluster = imported.scenario["cluster"];
    imported.scenario =
        scenario_document(run, imported.ranks, imported.gradients, imported.model, nothing);
    imported.scenario["cluster"] = cluster;
}

}  // namespace

void put_link(Json& scenario, const std::optional<std::string>& link, std::int64_t ranks,
              const std::function<LinkParameters()>& fitted, const FileReader& read_file) {
    Json& cluster_link = scenario["cluster"]["link"];
    if (link) {
        cluster_link = *link;
        inline_link(scenario, "", read_file);
    } else if (ranks == 1) {
        LinkParameters none;
        none.name = "none";
        none.segments = {{.bandwidth = {1'000'000'000}}};
        none.caveats = {{.text = "a placeholder, as one rank sends nothing: of several ranks, give "
                                 "a link",
                         .withholds = true}};
        cluster_link = link_json(none);
    } else {
        cluster_link = link_json(fitted());
    }
}

Scenario connect(TraceImport& imported, const std::optional<std::string>& link,
                 const FileReader& read_file) {
    if (!imported.run->rank().has_device || imported.sharding) {
        // What computing and collectives cost each other is in their times.
        return with_link(imported, link, {constant_interference({})}, read_file);
    }
    Scenario scenario = with_link(imported, link, {}, read_file);
    if (imported.ranks == 1 || imported.all_reduces.empty()) {
        return scenario;
    }
    LinkParameters disturbing = step_input(scenario).link;
    const bool has_wires = std::ranges::any_of(
        imported.all_reduces, [](const TracedAllReduce& one) { return !one.wire_us.empty(); });
    if (link && disturbing.assumes_interference && has_wires) {
        // Another link's thread blocks did not slow what was traced: those of the traced one did.
        disturbing = step_input(with_link(imported, {}, {}, read_file)).link;
    }
    OverlapCost cost;
    if (imported.slowdowns) {
        cost.interference = measured_interference(*imported.slowdowns, disturbing);
    } else {
        take_out_interference(disturbing, imported);
        cost = {of_computing(disturbing.interference), disturbing.assumes_interference};
    }
    return with_link(imported, link, cost, read_file);
}

}  // namespace bucketwise
