// A backend carries messages between ranks and has the devices they compute on. Each is one class
// in a target of its own.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "hw/batch_norm/sync_batch_norm.h"
#include "hw/launch/rank_identity.h"
#include "hw/rank/communicator.h"
#include "hw/rank/rank_device.h"
#include "hw/record/measurement.h"
#include "hw/training/training_device.h"
#include "sim/base/interface.h"
#include "sim/scenario/scenario.h"

namespace bucketwise {

// Where the ranks of a job find each other.
struct MeetingPoint {
    int rank = 0;
    int ranks = 1;
    // A directory that every rank sees, or "redis://HOST:PORT". Ranks that have met leave nothing
    // behind in it; ranks that have not may leave keys, and the same `job` does not meet over them.
    std::string store;
    std::string job;        // prefix of the keys in the store, so that jobs can share it
    std::string address;    // numeric address to listen on; empty: that of `interface`
    std::string interface;  // network interface to listen on; used when `address` is empty
    std::chrono::milliseconds deadline{60'000};  // to meet, and for each collective
};

// A user's request to a backend.
struct BackendRequest {
    AllReduceImplementation implementation = AllReduceImplementation::library;
    bool share_gpu = false;                 // several ranks on one GPU
    std::optional<std::int64_t> ctas = {};  // most thread blocks of one collective
    bool operator==(const BackendRequest&) const = default;
};

// One rank, connected to all others. Its devices must not outlive it; one at a time.
class RankConnection : public Interface {
  public:
    [[nodiscard]] virtual ControlGroup& control() = 0;

    // The device that the rank computes on; empty: its CPU.
    [[nodiscard]] virtual std::string gpu() const = 0;

    // A device that runs steps of a scenario that check_scenario() lets pass. `workload` is the
    // scenario's; `sync` decides where gradients live that are not sharded. Collective.
    [[nodiscard]] virtual std::unique_ptr<RankDevice> device(const Scenario& scenario,
                                                             const Workload& workload,
                                                             const SyncSettings& sync) = 0;

    // A device that only communicates. Collective.
    [[nodiscard]] virtual std::unique_ptr<MessageDevice> messages() = 0;

    // A device that trains. Collective.
    [[nodiscard]] virtual std::unique_ptr<TrainingDevice> training() = 0;

    // A device that synchronises BatchNorm layers, used by the thread that asked for it.
    [[nodiscard]] virtual std::unique_ptr<BatchNormDevice> batch_norm() = 0;
};

class Backend : public Interface {
  public:
    [[nodiscard]] virtual std::string_view name() const = 0;

    // Throws InputError for a request that this build of the backend cannot fulfil; its file is the
    // option.
    virtual void check(const BackendRequest& request) const = 0;
    // The same for a scenario, whose file is `file`.
    virtual void check_scenario(const Scenario& scenario, const std::string& file) const = 0;

    // The carrier of the messages, as every record names it.
    [[nodiscard]] virtual Transport transport(const BackendRequest& request,
                                              std::int64_t ranks) const = 0;

    // Its libraries, also for computing, with versions. Needs no GPU.
    [[nodiscard]] virtual std::string libraries() const = 0;

    // Collective. Throws PeerFailure when the others do not come.
    [[nodiscard]] virtual std::unique_ptr<RankConnection> connect(
        const MeetingPoint& meeting, const RankIdentity& identity,
        const BackendRequest& request) const = 0;
};

}  // namespace bucketwise
