// A scenario: model, cluster, link, strategy and step, as a user writes them. The same file is
// simulated and run on real ranks.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "sim/base/caveat.h"
#include "sim/base/dtype.h"
#include "sim/base/json.h"
#include "sim/base/names.h"
#include "sim/base/units.h"
#include "sim/link/link.h"
#include "sim/plan/strategy.h"
#include "sim/program/program.h"
#include "sim/sharding/sharded_step.h"
#include "sim/sharding/sharding.h"
#include "sim/workload/device.h"
#include "sim/workload/models/models.h"
#include "sim/workload/variation.h"
#include "sim/workload/workload.h"

namespace bucketwise {

// A model that ships, or one of the user's own.
struct ModelWorkload {
    ModelChoice model;
    ModelInput input;
    DType dtype = DType::float32;                 // of parameters and gradients
    Arithmetic arithmetic = Arithmetic::float32;  // of the matrix products
    std::optional<Device> device;
    std::optional<Duration> forward;  // measured totals; both or neither
    std::optional<Duration> backward;
    std::vector<Duration> forward_operations;   // measured one by one, in the order they run; both
    std::vector<Duration> backward_operations;  // or, if empty, neither
    RunAs run = {};                             // where nothing was measured
    std::optional<Recompute> recompute = {};    // activation checkpointing
    bool operator==(const ModelWorkload&) const = default;
};

// Operations one by one, as a profiler sees them.
struct ListedOperations {
    std::vector<TimedOperation> forward;
    std::vector<TimedOperation> backward;
    std::vector<TimedOperation> optimizer;  // empty: step.optimizer says what it takes
    std::vector<std::int32_t> readiness;    // gradient indices in the order backward finishes them
    std::vector<std::string> side_streams;  // by name, in the order of their first operations
    bool operator==(const ListedOperations&) const = default;
};

struct GradientWorkload {
    Duration forward{0};  // without listed operations, from here on ...
    Duration backward{0};
    std::vector<GradientReadiness> gradients;  // ... and when each is ready
    std::optional<ListedOperations> operations = {};
    std::vector<BufferGroup> buffers = {};     // what DDP broadcasts in forward
    std::optional<Duration> copy_launch = {};  // host time to launch one copy; none: the
                                               // device's, or nothing
    // Host time to issue a collective, and what copying costs, where the link does not say.
    std::optional<Duration> collective_issue = {};
    std::optional<BytesPerSecond> copy_bandwidth = {};  // payload; none: as the device's
    std::optional<bool> host_is_device = {};            // none: as the device, or false
    std::optional<Device> device;                       // what copies cost
    bool operator==(const GradientWorkload&) const = default;
};

enum class Optimizer : std::uint8_t { sgd, sgd_momentum, adam };

template <>
inline constexpr auto names_of<Optimizer> = names("sgd", "sgd_momentum", "adam");
// Weight decay moves nothing more in a fused step.
template <>
inline constexpr std::array other_names_of<Optimizer>{
    OtherName<Optimizer>{"adamw", Optimizer::adam}};

// How eager PyTorch steps an optimizer: a kernel over many parameters for each of its operations;
// one for all of them; or one for each operation and parameter.
enum class OptimizerKernels : std::uint8_t { foreach, fused, for_loop };

template <>
inline constexpr auto names_of<OptimizerKernels> = names("foreach", "fused", "for_loop");

struct ClipGradients {
    bool host_wait = false;
    bool operator==(const ClipGradients&) const = default;
};

struct StepRequest {
    std::int64_t accumulation = 1;
    std::variant<Duration, Optimizer> optimizer = Duration{0};
    // Empty: fused where computing was measured, else foreach.
    std::optional<OptimizerKernels> optimizer_kernels = {};
    Duration optimizer_launch{0};  // host time to launch all of it
    std::optional<ClipGradients> clip_gradients = {};
    bool cuda_graph = false;      // captured once, launched as one
    bool sync_each_step = false;  // the host reads something back before the next step
    bool one_hardware_queue = false;
    std::int64_t launch_queue = 1024;
    bool operator==(const StepRequest&) const = default;
};

// A rank that is always slower than the others.
struct Straggler {
    std::int64_t rank = 0;
    double compute_slowdown = 1;
    bool operator==(const Straggler&) const = default;
};

struct Scenario {
    std::string name;
    std::variant<ModelWorkload, GradientWorkload> workload;
    RankGroup group;
    std::vector<Straggler> stragglers;
    LinkParameters link;
    SyncRequest sync;  // where nothing is sharded
    std::optional<ShardingRequest> sharding = {};
    StepRequest step;
    std::optional<Variation> variation;
    std::vector<Caveat> caveats = {};  // weaknesses that the author of the file knew
    bool operator==(const Scenario&) const = default;
};

// The strategies that a reader of scenarios takes: those that keep all parameters on every rank, or
// also those that shard them.
enum class StrategyKinds : std::uint8_t { replicated, all };

// `document` is the scenario file `file`. Link files it names are taken relative to its folder and
// read through `read_file`. Throws InputError.
Scenario parse_scenario(const Json& document, const std::string& file, const FileReader& read_file,
                        StrategyKinds kinds = StrategyKinds::replicated);

// The sections of a scenario file.
enum class ScenarioSection : std::uint8_t {
    name,
    workload,
    cluster,
    sync,
    step,
    variation,
    caveats
};

template <>
inline constexpr auto names_of<ScenarioSection> = names("name", "workload", "cluster", "sync",
                                                        "step", "variation", "caveats");

using ScenarioSections = std::set<ScenarioSection>;

// Reads those sections anew into a scenario that parse_scenario() made of an earlier state of the
// document; the others have not changed since. Throws InputError.
void reread_scenario(const Json& document, const std::string& file, const FileReader& read_file,
                     const ScenarioSections& sections, Scenario& scenario,
                     StrategyKinds kinds = StrategyKinds::replicated);

// The model behind a model workload, built.
Model model_of(const ModelWorkload& workload);

// The device of the scenario's workload; null: only its times are known.
const Device* device_of(const Scenario& scenario);

// Whether computing is what a preset makes of a model, and not measured.
bool has_prior_computing(const Scenario& scenario);

// The same scenario with that at one end of its range: as far from what is typical as all factors
// at their ends are, their effects on computing added in quadrature. Precondition (asserted): it
// has it.
Scenario at_device_end(Scenario scenario, PresetEnd end);

// How the scenario's ranks and their strategy change computing.
JointComputing joint_computing(const Scenario& scenario);

// Turns a scenario into what the simulator runs.
StepInput step_input(const Scenario& scenario);

// The same with the workload that step_input() has built before, of the same section workload, the
// same batch_norm and the same joint_computing(): for large models most of the work.
StepInput step_input(const Scenario& scenario, Workload workload);

// The ranks that share parameters, of a scenario that shards: all, or hsdp's.
RankGroup shard_group_of(const Scenario& scenario);

// The input of the simulator for a scenario that shards. Precondition (asserted): it does.
ShardedInput sharded_input(const Scenario& scenario);
ShardedInput sharded_input(const Scenario& scenario, Workload workload);  // as step_input() above

// Sets what the section cluster says of that.
void set_cluster(const Scenario& scenario, StepInput& input);

// Notes for a user before trusting a prediction, one sentence each: the caveats of the scenario and
// its link, keys that the strategy does not look at, a link measured on
// another number of ranks, and memory that is too small.
std::vector<std::string> caveats(const Scenario& scenario);

// The caveats of the scenario and its link that withhold advice.
std::vector<std::string> reasons_to_withhold(const Scenario& scenario);

}  // namespace bucketwise
