// What can be measured of a scenario, and how one item of it is measured on all ranks and becomes
// records.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <vector>

#include "hw/measure/rank_session.h"
#include "hw/rank/rank_device.h"
#include "hw/record/measurement.h"
#include "sim/base/names.h"
#include "sim/plan/cap.h"
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

enum class Protocol : std::uint8_t {
    all_reduce,  // isolated all-reduces of one size
    compute,     // a step without any communication, operation by operation
    contention,  // all-reduces of one size while backward runs, against both alone
    step         // a whole step at one cap, and the same with free communication
};

template <>
inline constexpr auto names_of<Protocol> = names("allreduce", "compute", "contention", "steps");

struct Item {
    Protocol protocol = Protocol::step;
    Bytes message{0};  // all_reduce, contention
    Cap cap = {};      // step
    // contention; most thread blocks of a collective; none: as many as in steps
    std::optional<std::int64_t> ctas = {};
    bool operator==(const Item&) const = default;
};

// What real ranks replay of a scenario: every copy and the optimizer are in its programs, also
// where a prediction would have no price for them. Times in it mean nothing.
StepInput replay_input(const Scenario& scenario);

// The dtype in which most gradients travel: what isolated all-reduces use.
DType wire_dtype(const Scenario& scenario, const Workload& workload);

// A step at one cap, as real ranks replay it.
struct ReplayedStep {
    SyncSettings sync = {};
    BucketPlan plan = {};
    Program program = {};
};

// `input`: replay_input() of the scenario.
ReplayedStep replayed_step(const Scenario& scenario, const StepInput& input, Cap cap);

class Measurer {
  public:
    // All are kept by reference.
    Measurer(const Scenario& scenario, const StepInput& input, Transport transport,
             RankDevice& device, const RankSession& session);

    // Collective. On rank 0 the records, on others none. Throws WrongSum, on the ranks that see
    // one.
    std::vector<Measurement> measure(const Item& item, std::int64_t round, std::uint64_t bits);

  private:
    std::vector<Measurement> measure_all_reduce(const Item& item, std::int64_t round);
    ComputeRecord compute_on_this_rank(bool copies_first);
    std::vector<Measurement> measure_compute(std::int64_t round, bool copies_first);
    std::vector<Measurement> measure_contention(const Item& item, std::int64_t round);
    std::vector<Measurement> measure_step(const Item& item, std::int64_t round, bool free_first);

    double run_free(const ReplayedStep& replayed);
    std::int64_t contention_iterations(const std::vector<Duration>& all_reduces,
                                       const std::vector<Duration>& operations);

    const Scenario& scenario_;
    const StepInput& input_;
    Transport transport_;
    RankDevice& device_;
    const RankSession& session_;
    DType wire_dtype_;
    std::int64_t next_step_ = 0;
};

}  // namespace bucketwise
