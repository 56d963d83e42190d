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

// The thread blocks of the largest all-reduce, if a link can have so many.
std::optional<std::int64_t> thread_blocks(const TraceImport& imported) {
    const auto largest =
        std::ranges::max_element(imported.all_reduces, {}, &TypicalCollective::bytes);
    return largest->blocks >= 1 && largest->blocks <= most_thread_blocks
               ? std::optional<std::int64_t>(largest->blocks)
               : std::nullopt;
}

// The cost of all-reduces to computing. Empty: the simulator's assumption about GPUs.
struct OverlapCost {
    std::vector<InterferenceSegment> interference = {};
    bool is_assumed = false;  // and not measured
};

LinkParameters fitted_link(const TraceImport& imported, const OverlapCost& cost) {
    const TracedRank& rank = imported.run->rank();
    const char* const collectives = imported.sharding ? "collectives" : "all-reduces";
    const std::int64_t shards = imported.sharding ? imported.sharding->shard_ranks : 0;
    auto link = link_through(imported.collectives(), {imported.ranks, shards}, rank.file);
    if (!link) {
        throw InputError(
            rank.file, "/traceEvents",
            fmt::format("{} on a communication stream, or a link (--link)", collectives),
            "neither");
    }
    if (cost.interference.empty()) {
        link->ctas = thread_blocks(imported);  // the assumed cost depends on them
    }
    link->interference = cost.interference;
    name_fitted(*link, rank.backend.empty() && rank.has_device ? "nccl" : rank.backend, "traced",
                imported.findings);
    link->provenance.hardware = rank.device;
    link->provenance.versions = rank.nccl_version.empty() ? "" : "NCCL " + rank.nccl_version;
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

// The cost to computing alone. Traced times of all-reduces include their own slowdown and delay.
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

// All that was not measured is as uncertain as `assumed`.
std::vector<InterferenceSegment> measured_interference(const KernelSlowdowns& slowdowns,
                                                       const LinkParameters& assumed) {
    const auto to_ppm = [](double factor) {
        return std::llround(factor * static_cast<double>(undisturbed_ppm));
    };
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

// Writes the scenario again, with the times that kernels take alone.
void take_out_interference(const LinkParameters& link, TraceImport& imported) {
    TracedRun& run = *imported.run;
    const Overlap overlap = overlap_of(run, imported.all_reduces);
    take_out_of_computing(run, imported.all_reduces, link);
    const Duration cost = overlap.computing - overlap_of(run, imported.all_reduces).computing;
    Finding& finding = imported.findings.assumed(
        "undisturbed",
        "{:.3f} of {:.3f} ms of computing ran beside all-reduces; their cost, {:.3f} ms by {}, is "
        "taken out and put back where they overlap; --undisturbed, a trace of the same steps "
        "without communication, measures it",
        to_ms(overlap.beside), to_ms(overlap.computing), to_ms(cost),
        link.assumes_interference ? "what is assumed of GPUs" : "the link's interference");
    constexpr std::int64_t noticeable = 100;  // a hundredth of a step
    const bool matters = noticeable * cost >= imported.summary.step;
    finding.weakens = link.assumes_interference && matters ? Weakens::scenario : Weakens::nothing;
    Findings nothing;  // new
    Json cluster = imported.scenario["cluster"];
    imported.scenario =
        scenario_document(run, imported.ranks, imported.gradients, imported.model, nothing);
    imported.scenario["cluster"] = std::move(cluster);
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
        none.caveats = {{.text = "a placeholder, as one rank sends nothing: for several ranks, "
                                 "give a link",
                         .withholds = true}};
        cluster_link = link_json(none);
    } else {
        cluster_link = link_json(fitted());
    }
}

void name_fitted(LinkParameters& link, const std::string& backend, const char* source,
                 const Findings& findings) {
    link.name = fmt::format("{}, as {}", backend.empty() ? "network" : backend, source);
    link.provenance.backend = backend;
    std::ranges::copy(caveats_of(findings, Weakens::link), std::back_inserter(link.caveats));
}

Scenario connect(TraceImport& imported, const std::optional<std::string>& link,
                 const FileReader& read_file) {
    if (!imported.run->rank().has_device || imported.sharding) {
        // The times of computing and collectives include their interference.
        return with_link(imported, link, {constant_interference({})}, read_file);
    }
    Scenario scenario = with_link(imported, link, {}, read_file);
    if (imported.ranks == 1 || imported.all_reduces.empty()) {
        return scenario;
    }
    LinkParameters disturbing = step_input(scenario).link;
    const bool has_wires = std::ranges::any_of(
        imported.all_reduces, [](const TypicalCollective& one) { return !one.wire_us.empty(); });
    if (link && disturbing.assumes_interference && has_wires) {
        // The traced link's thread blocks slowed the kernels, not those of `link`.
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
