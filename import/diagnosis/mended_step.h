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

    // A rank's scenario, with the rank and the idle times that `mended` asks for.
    struct Run {
        TraceImport imported;  // with its TracedRun only where nothing is mended
        Scenario scenario;
        StepInput input;
    };
    const Run& run(const Mended& mended);
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

    SimulatedStep step(const Mended& mended);
    Duration length(const Mended& mended);
    // The expected scenario's step; none: there is no such scenario.
    [[nodiscard]] std::optional<Duration> sound_length() const;

  private:
    // DDP's defaults where no scenario says otherwise.
    [[nodiscard]] const SyncRequest& sound_sync() const;
    void mend_computing(const Mended& mended, Duration TimedOperation::*part, StepInput& input);
    void mend_settings(const Mended& mended, SimulatedStep& step);

    const std::vector<TracedRank>& ranks_;
    const TraceImportRequest& request_;
    const Sound& reference_;
    std::optional<SimulatedStep> sound_;
    std::optional<std::size_t> punctual_;
    std::map<std::pair<bool, bool>, Run> runs_;  // by late rank and late host
};

}  // namespace bucketwise
