// What can be measured of a scenario, and how one item of it is measured on all ranks and becomes
// records.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "hw/measure/rank_session.h"
#include "hw/rank/rank_device.h"
#include "hw/rank/sharded_calls.h"
#include "hw/rank/sharded_device.h"
#include "hw/record/measurement.h"
#include "sim/base/interface.h"
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
    all_gather,      // likewise
    reduce_scatter,  // likewise
    compute,         // a step without any communication, operation by operation
    contention,      // collectives of one size while backward runs, against both alone
    step             // a whole step at one cap or setting, and the same with free communication
};

template <>
inline constexpr auto names_of<Protocol> = names("allreduce", "allgather", "reducescatter",
                                                 "compute", "contention", "steps");

// What is measured of messages alone; none: something else.
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

// What real ranks replay of a scenario: every copy and the optimizer are in its programs, also
// where a prediction would have no price for them. Times in it mean nothing.
StepInput replay_input(const Scenario& scenario);

// The same of one that shards, with a setting of its own; `on_host`: ranks compute by themselves.
ShardedInput sharded_replay_input(const Scenario& scenario, const ShardingRequest& setting,
                                  bool on_host);

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

// The dtypes in which messages of each kind are sent in isolation.
struct MessageDtypes {
    DType all_gather = DType::float32;
    DType sum = DType::float32;
};

// Those of a scenario's own step.
MessageDtypes message_dtypes(const Scenario& scenario, const StepInput& input);

class Measurer : public Interface {
  public:
    // Collective. On rank 0 the records, on others none. Throws WrongSum, on the ranks that see
    // one.
    std::vector<Measurement> measure(const Item& item, std::int64_t round, std::uint64_t bits);

  protected:
    // All are kept by reference.
    Measurer(const Scenario& scenario, const StepInput& input, Transport transport,
             ComputingDevice& device, const RankSession& session);

    [[nodiscard]] const Scenario& scenario() const { return scenario_; }
    [[nodiscard]] const StepInput& input() const { return input_; }
    [[nodiscard]] const RankSession& session() const { return session_; }
    std::int64_t next_step() { return next_step_++; }

    // The prepared step on this rank with collectives that do nothing.
    StepTrace run_free();
    [[nodiscard]] double step_us(const StepTrace& trace) const;

  private:
    // What run(), check() and describe() are about from here on. Of no step: the scenario's own.
    virtual void prepare(const Item& item) = 0;
    [[nodiscard]] virtual const Program& program() const = 0;
    virtual StepTrace run(Communicate communicate) = 0;
    // What is wrong with what it left; nothing, where it communicates nothing.
    virtual StepCheck check() = 0;
    // The same in a step that is not timed, as thoroughly as the device can.
    virtual StepCheck check_apart() { return {}; }
    virtual void describe(const Item& item, StepRecord& record) const = 0;
    virtual ComputeRecord compute_on_this_rank(bool copies_first) = 0;

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
    ComputingDevice& device_;
    const RankSession& session_;
    MessageDtypes dtypes_;
    std::int64_t next_step_ = 0;
};

// Of steps whose gradients are all-reduced.
class ReplayMeasurer : public Measurer {
  public:
    // All are kept by reference.
    ReplayMeasurer(const Scenario& scenario, const StepInput& input, Transport transport,
                   RankDevice& device, const RankSession& session)
        : Measurer(scenario, input, std::move(transport), device, session), device_(device) {}

  private:
    void prepare(const Item& item) override;
    [[nodiscard]] const Program& program() const override { return replayed_.program; }
    StepTrace run(Communicate communicate) override;
    StepCheck check() override;
    void describe(const Item& item, StepRecord& record) const override;
    ComputeRecord compute_on_this_rank(bool copies_first) override;

    RankDevice& device_;
    ReplayedStep replayed_;
};

// Of steps of a scenario that shards.
class ShardedMeasurer : public Measurer {
  public:
    // All are kept by reference.
    ShardedMeasurer(const Scenario& scenario, const StepInput& input, const Transport& transport,
                    ShardedDevice& device, const RankSession& session)
        : Measurer(scenario, input, transport, device, session),
          device_(device),
          on_host_(transport.computes_on_host()) {}

  private:
    void prepare(const Item& item) override;
    [[nodiscard]] const Program& program() const override { return replay_.program; }
    StepTrace run(Communicate communicate) override {
        return device_.run(replay_, next_step(), communicate);
    }
    StepCheck check() override { return device_.check(); }
    StepCheck check_apart() override { return device_.run_checked(replay_, next_step()); }
    void describe(const Item& item, StepRecord& record) const override;
    ComputeRecord compute_on_this_rank(bool copies_first) override;

    ShardedDevice& device_;
    bool on_host_;
    ShardedReplay replay_;
};

}  // namespace bucketwise
