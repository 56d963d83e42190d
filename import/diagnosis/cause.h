// The causes that make a traced step longer than it should be, and the step to compare it with.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "sim/base/names.h"
#include "sim/base/units.h"
#include "sim/link/link.h"
#include "sim/plan/strategy.h"
#include "sim/program/program.h"
#include "sim/scenario/scenario.h"
#include "sim/sharding/sharding.h"

namespace bucketwise {

// The first in this order is preferred where two explain as much: settings, then what times tell,
// at last against what is expected.
enum class TraceCause : std::uint8_t {
    unused_parameters,  // DDP looks for them in every step
    small_buckets,      // or groups: more collectives than need be
    copies,             // of gradients into buckets and back
    no_prefetch,        // FSDP2 gathers a group when it is needed
    recompute,          // backward computes forward again
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
inline constexpr auto names_of<TraceCause> = names("unused_parameters", "small_buckets", "copies",
                                                   "no_prefetch", "recompute", "late_rank",
                                                   "late_host", "host_waits", "other_streams",
                                                   "no_overlap", "slow_link", "slow_launching",
                                                   "slow_computing");

struct DiagnosedCause {
    TraceCause kind = TraceCause::slow_computing;
    Duration costs{0};
    Duration without{0};        // the step, simulated, once this and all causes before are mended
    std::string text = {};      // what is wrong; without a full stop, as the next two
    std::string evidence = {};  // what in the trace shows it
    std::string change = {};    // what to do
    bool operator==(const DiagnosedCause&) const = default;
};

// The step and the link to compare a trace with. Without anything, only what a trace shows by
// itself is found.
struct Sound {
    std::optional<Scenario> expected = {};    // the same training as it should be
    std::optional<LinkParameters> link = {};  // of the cluster; none: the scenario's
};

// A step as the simulator takes it.
struct SimulatedStep {
    StepInput input;
    SyncRequest sync;
    std::optional<ShardingRequest> sharding = {};
};

}  // namespace bucketwise
