// Carries out one item of a schedule on all ranks and turns it into records.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "hw/measure/measuring_order.h"
#include "hw/rank/control_group.h"
#include "hw/rank/rank_device.h"
#include "hw/record/measurement.h"
#include "hw/record/step_trace.h"
#include "sim/plan/plan.h"
#include "sim/plan/strategy.h"
#include "sim/program/program.h"
#include "sim/scenario/scenario.h"

namespace bucketwise {

// A gradient or message that is not the sum it should be. Nothing measured with it counts.
class WrongSum : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

// What real ranks replay of a scenario: every copy and the optimizer are in its programs, also
// where a prediction would have no price for them. Times in it mean nothing.
StepInput replay_input(const Scenario& scenario);

// How the scenario synchronises at `cap`; none: the framework's default.
SyncRequest request_with_cap(const SyncRequest& request, const std::optional<Bytes>& cap);

// The dtype in which most gradients travel: what isolated all-reduces use.
DType wire_dtype(const Scenario& scenario, const Workload& workload);

class Measurer {
  public:
    // All are kept by reference.
    Measurer(const Scenario& scenario, const StepInput& input, Transport transport,
             RankDevice& device, ControlGroup& control);

    // Collective. On rank 0 the records, on others none. Throws WrongSum, on the ranks that see
    // one.
    std::vector<Measurement> measure(const Item& item, std::int64_t round, std::uint64_t bits);

  private:
    std::vector<Measurement> measure_all_reduce(const Item& item, std::int64_t round);
    ComputeRecord compute_on_this_rank(bool copies_first);
    std::vector<Measurement> measure_compute(std::int64_t round, bool copies_first);
    std::vector<Measurement> measure_contention(const Item& item, std::int64_t round);
    std::vector<Measurement> measure_step(const Item& item, std::int64_t round, bool free_first);

    // A step at one cap, as real ranks replay it.
    struct ReplayedStep {
        SyncSettings sync = {};
        BucketPlan plan = {};
        Program program = {};
    };
    // One sample on this rank.
    struct StepSample {
        StepTrace trace;
        RankStep times;
        double free_us = 0;
        double largest_difference = 0;
    };
    [[nodiscard]] ReplayedStep replayed_step(const std::optional<Bytes>& cap) const;
    double run_free(const ReplayedStep& replayed);
    StepSample run_step(const ReplayedStep& replayed, bool free_first);
    static void gather_ranks(const std::vector<double>& all, std::size_t per_rank,
                             StepRecord& record);
    static void add_collectives(const ReplayedStep& replayed, const StepTrace& trace,
                                const std::vector<double>& begins, StepRecord& record);

    std::int64_t contention_iterations(const std::vector<Duration>& all_reduces,
                                       const std::vector<Duration>& operations);

    const Scenario& scenario_;
    const StepInput& input_;
    Transport transport_;
    RankDevice& device_;
    ControlGroup& control_;
    DType wire_dtype_;
    std::int64_t next_step_ = 0;
};

}  // namespace bucketwise
