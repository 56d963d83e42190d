// What a traced step should take, what it took, and where the difference went. Each cause is a
// counterfactual: the step is simulated as traced, and again with the cause mended.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "import/replay/trace_import.h"
#include "sim/base/names.h"
#include "sim/base/units.h"
#include "sim/link/link.h"
#include "sim/report/perfetto.h"
#include "sim/scenario/scenario.h"

namespace bucketwise {

// In the order in which one is preferred that explains as much as another.
enum class TraceCause : std::uint8_t {
    unused_parameters,  // DDP looks for them in every step
    small_buckets,      // or groups: more collectives than need be
    copies,             // of gradients into buckets and back
    no_prefetch,        // FSDP2 gathers a group when it is needed
    late_rank,          // the others wait for it
    late_host,          // it does nothing that the trace shows
    host_waits,         // for the device: .item(), a copy to the host, a synchronisation
    other_streams,      // computing waits for them
    no_overlap,         // collectives and computing run one after another
    slow_link,
    slow_launching,  // operations take the host longer
    slow_computing   // operations take the device longer
};

template <>
inline constexpr auto names_of<TraceCause> =
    names("unused_parameters", "small_buckets", "copies", "no_prefetch", "late_rank", "late_host",
          "host_waits", "other_streams", "no_overlap", "slow_link", "slow_launching",
          "slow_computing");

struct DiagnosedCause {
    TraceCause kind = TraceCause::slow_computing;
    Duration costs{0};
    Duration without{0};   // the step, simulated, once this and all causes before are mended
    std::string text = {};      // what is wrong; without a full stop, as the next two
    std::string evidence = {};  // what in the trace shows it
    std::string change = {};    // what to do
    bool operator==(const DiagnosedCause&) const = default;
};

struct Diagnosis {
    Duration traced{0};
    Duration replayed{0};  // as simulated with all causes in place
    Duration expected{0};
    Duration least{0};  // 95 % of what is expected lies between these two
    Duration most{0};
    std::string binds = {};                   // as binds_text() says it
    std::vector<DiagnosedCause> causes = {};  // the largest first
    Duration noticeable{0};                   // what costs less is not named
    bool compared = false;                    // with a scenario or a link
    std::string withheld = {};                // why there are no causes; empty: there may be
    bool operator==(const Diagnosis&) const = default;

    // Of the traced step, neither expected nor of a cause; below 0: causes are said to cost too much.
    [[nodiscard]] Duration unexplained() const;
    // How much longer the step is than expected, as a share.
    [[nodiscard]] double longer() const;
};

// What the trace is compared with. Without anything, only what a trace shows by itself is found.
struct Sound {
    std::optional<Scenario> expected = {};   // the same training as it should be
    std::optional<LinkParameters> link = {};  // of the cluster; none: the scenario's
};

// A step as the simulator takes it.
struct SimulatedStep {
    StepInput input;
    SyncRequest sync;
    std::optional<ShardingRequest> sharding = {};
};

struct Diagnosed {
    Diagnosis diagnosis;
    Scenario scenario;      // as traced
    SimulatedStep mended;   // with all causes mended
    TraceProcess traced;
};

// `ranks` are traces of one run. Throws InputError as import_trace() and connect() do.
Diagnosed diagnose(const std::vector<TracedRank>& ranks, const TraceImportRequest& request,
                   const Sound& sound);

// "This step should take 2,850 ms (2,700 to 3,010) and took 4,120 ms."
std::string first_line(const Diagnosis& diagnosis);
// What is left, and what is not named.
std::string last_lines(const Diagnosis& diagnosis);
std::string text_of(const Diagnosis& diagnosis);
Json diagnosis_json(const Diagnosis& diagnosis);

}  // namespace bucketwise
