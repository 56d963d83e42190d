// The items that a scenario is measured by, and one item's way from all ranks to records.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "hw/measure/rank_session.h"
#include "hw/rank/rank_device.h"
#include "hw/rank/replayed_step.h"
#include "hw/record/measurement.h"
#include "sim/base/names.h"
#include "sim/link/collective.h"
#include "sim/plan/cap.h"
#include "sim/plan/plan.h"
#include "sim/plan/strategy.h"
#include "sim/program/program.h"
#include "sim/scenario/scenario.h"
#include "sim/sharding/sharding.h"

namespace bucketwise {

// A gradient or message that is not the sum it should be. Nothing measured with it counts.
class WrongSum : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

enum class Protocol : std::uint8_t {
    all_reduce,      // isolated all-reduces of one size
    all_gather,      // isolated all-gathers
    reduce_scatter,  // isolated reduce-scatters
    compute,         // a step without any communication, operation by operation
    contention,      // collectives of one size while backward runs, against both alone
    step             // a whole step at one cap or setting, and the same with free communication
};

template <>
inline constexpr auto names_of<Protocol> = names("allreduce", "allgather", "reducescatter",
                                                 "compute", "contention", "steps");

// The kind of isolated messages; none: the protocol is another.
std::optional<CollectiveKind> isolated_kind(Protocol protocol);

struct Item {
    Protocol protocol = Protocol::step;
    Bytes message{0};  // isolated messages, contention
    Cap cap = {};      // step
    // contention; most thread blocks of a collective; none: as many as in steps
    std::optional<std::int64_t> ctas = {};
    CollectiveKind collective = CollectiveKind::all_reduce;  // contention
    std::optional<ShardingRequest> sharding = {};            // step; none: it has a cap
    bool operator==(const Item&) const = default;
};

// The dtype of most gradients on the wire, and of isolated all-reduces.
DType wire_dtype(const Scenario& scenario, const Workload& workload);

// The dtypes of isolated messages by kind, as the scenario's own step sends them.
struct MessageDtypes {
    DType all_gather = DType::float32;
    DType sum = DType::float32;
};

MessageDtypes message_dtypes(const Scenario& scenario, const StepInput& input);

class Measurer {
  public:
    // All are kept by reference.
    Measurer(const Scenario& scenario, const StepInput& input, Transport transport,
             MakePlan make_plan, RankDevice& device, const RankSession& session);

    // Collective. Returns the records on rank 0, none on others. Throws WrongSum, on the ranks that
    // see one.
    std::vector<Measurement> measure(const Item& item, std::int64_t round, std::uint64_t bits);

  private:
    // Builds the item's step; for an item that is no step, the scenario's own.
    void prepare(const Item& item);
    // The prepared step on this rank with collectives that do nothing.
    StepTrace run_free();
    [[nodiscard]] double step_us(const StepTrace& trace) const;
    void describe(const Item& item, StepRecord& record) const;
    ComputeRecord compute_on_this_rank(bool copies_first);

    std::vector<Measurement> measure_isolated(CollectiveKind kind, const Item& item,
                                              std::int64_t round);
    std::vector<Measurement> measure_compute(std::int64_t round, bool copies_first);
    std::vector<Measurement> measure_contention(const Item& item, std::int64_t round);
    std::vector<Measurement> measure_step(const Item& item, std::int64_t round, bool free_first);

    [[nodiscard]] DType dtype_of(CollectiveKind kind) const {
        return kind == CollectiveKind::all_gather ? dtypes_.all_gather : dtypes_.sum;
    }
    std::int64_t contention_iterations(const std::vector<Duration>& collectives,
                                       const std::vector<Duration>& operations);

    const Scenario& scenario_;
    const StepInput& input_;
    Transport transport_;
    MakePlan make_plan_;
    RankDevice& device_;
    const RankSession& session_;
    MessageDtypes dtypes_;
    ReplayedStep step_;
    std::int64_t next_step_ = 0;
};

}  // namespace bucketwise
