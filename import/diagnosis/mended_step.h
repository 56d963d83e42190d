// A traced step with some of its causes mended, simulated.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "import/diagnosis/cause.h"
#include "import/replay/trace_import.h"
#include "sim/predict/preset_ends.h"
#include "sim/program/program.h"
#include "sim/sharding/sharding.h"

namespace bucketwise {

using Mended = std::set<TraceCause>;

// Waits that the importer keeps in place: they are no computing.
bool is_wait(const TimedOperation& operation);

// How much computing of backward is forward's.
Duration recomputed_in(const StepInput& input);

// Its buckets, or groups.
std::size_t collectives_of(const SimulatedStep& step);

class MendedSteps {
  public:
    // All are used until this ends.
    MendedSteps(const std::vector<TracedRank>& ranks, const TraceImportRequest& request,
                const Sound& sound);

    // A rank's scenario, with the idle times that `mended` asks for.
    struct Run {
        TraceImport imported;  // with its TracedRun only where nothing is mended
        Scenario scenario;
        StepInput input;
    };
    // The rank that the others wait for, or a punctual one where that is mended, or `rank`.
    const Run& run(const Mended& mended, std::optional<std::size_t> rank = std::nullopt);
    // The steps of that rank, as traced.
    const Steps& steps_of(const Mended& mended);
    [[nodiscard]] const std::optional<SimulatedStep>& sound() const { return sound_; }
    // Precondition: there is one.
    [[nodiscard]] const LinkParameters& sound_link() const {
        return reference_.link ? *reference_.link : sound_->input.link;
    }
    // A rank that is not late; none: all are the same, or one was traced.
    [[nodiscard]] std::optional<std::size_t> punctual() const { return punctual_; }

    // Whether mending it may change anything.
    bool may_be(TraceCause cause);

    // An upper bound of its cost, by the trace.
    Duration most_costs(TraceCause cause);

    SimulatedStep step(const Mended& mended, std::optional<std::size_t> rank = std::nullopt);
    // The slowest rank's, where idle times were what made another one the slowest.
    SimulatedStep slowest(const Mended& mended);
    Duration length(const Mended& mended);
    // The expected scenario's step; none: there is no such scenario.
    [[nodiscard]] std::optional<Duration> sound_length() const;
    // Where the presets of that scenario leave its step; none: it has no presets.
    [[nodiscard]] const std::optional<StepRange>& sound_range() const { return sound_range_; }

  private:
    // DDP's defaults where no scenario says otherwise.
    [[nodiscard]] const SyncRequest& sound_sync() const;
    void mend_computing(const Mended& mended, std::optional<std::size_t> rank,
                        Duration TimedOperation::*part, StepInput& input);
    void mend_settings(const Mended& mended, SimulatedStep& step);

    const std::vector<TracedRank>& ranks_;
    const TraceImportRequest& request_;
    const Sound& reference_;
    std::optional<SimulatedStep> sound_;
    std::optional<StepRange> sound_range_;
    std::optional<std::size_t> punctual_;
    std::vector<std::size_t> others_;  // that may be the slowest without idle times
    // By the rank, none for the one that the others wait for, and by whether idle times are mended.
    std::map<std::pair<std::optional<std::size_t>, bool>, Run> runs_;
};

}  // namespace bucketwise
