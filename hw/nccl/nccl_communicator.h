// One NCCL communicator over all ranks of a job, and the patience with it.
//
// NCCL itself waits for ever: a kernel of a collective spins until its peers have come. So every
// wait goes through PatientWait (below), which asks NCCL for errors of its own threads and gives up
// at a deadline; and a thread watches over calls that do not return. Both abort the communicator,
// which ends its kernels. PyTorch's watchdog does the same.
#pragma once

#include <nccl.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "hw/gpu/runtime/gpu_stream.h"
#include "hw/rank/communicator.h"
#include "sim/base/dtype.h"
#include "sim/base/units.h"

namespace bucketwise {

// Return codes of NCCL as exceptions, as gpu_check.h has it for CUDA. NCCL reports a peer that is
// gone as a remote or system error: these throw PeerFailure, all others GpuError. `communicator`
// may be null.
void check_nccl(ncclResult_t result, const char* call, ncclComm_t communicator,
                const CallPlace& place = CallPlace::current());

// One thread at a time, but for has_failed().
class NcclCommunicator {
  public:
    // Collective over `control`, by which rank 0 tells the others NCCL's id. Uses the current
    // device. `ctas`: most thread blocks of a collective. Throws PeerFailure when the ranks are not
    // connected by the deadline, GpuError for what NCCL refuses.
    NcclCommunicator(ControlGroup& control, std::chrono::milliseconds deadline,
                     std::optional<std::int64_t> ctas);
    // The same for some ranks, in the given order, this one among them. Collective over all: each
    // with the group that it is in.
    NcclCommunicator(ControlGroup& control, const std::vector<std::int64_t>& ranks,
                     std::chrono::milliseconds deadline, std::optional<std::int64_t> ctas);
    // Ends collectives that are still running.
    ~NcclCommunicator();
    NcclCommunicator(const NcclCommunicator&) = delete;
    NcclCommunicator& operator=(const NcclCommunicator&) = delete;

    [[nodiscard]] int rank() const { return rank_; }
    [[nodiscard]] int ranks() const { return ranks_; }
    [[nodiscard]] std::chrono::milliseconds deadline() const { return deadline_; }

    // Puts it on the stream and returns. Its memory is on the device. NCCL averages where the
    // exchange does.
    void carry(const RankExchange& exchange, const GpuStream& stream);

    // Throws PeerFailure or GpuError once NCCL has found a failure, and aborts.
    void check();
    // Ends collectives on every stream, soon; every later call fails. May be called twice. Does not
    // wait: NCCL's abort lasts until no CUDA graph holds a collective, and the caller may hold one.
    void abort() noexcept;

  private:
    class Watch;

    [[nodiscard]] std::string doing(const char* what) const;
    void connect(const ncclUniqueId& id, std::optional<std::int64_t> ctas);
    template <typename Act>
    void call(const char* what, const Act& act);
    [[noreturn]] void fail(ncclResult_t result, const char* what);

    int rank_;
    int ranks_;
    int device_ = 0;
    std::chrono::milliseconds deadline_;
    ncclComm_t communicator_ = nullptr;
    std::atomic<bool> aborted_{false};
    std::thread aborting_;
    std::unique_ptr<Watch> watch_;  // uses all above
};

// Waits for the GPU, but not for ever.
class PatientWait {
  public:
    // `communicator` is kept by reference. `collectives`: that many may pass without a sign; each
    // has the whole deadline.
    explicit PatientWait(NcclCommunicator& communicator, std::size_t collectives = 1)
        : communicator_(communicator),
          patience_(static_cast<std::int64_t>(collectives) * communicator.deadline()),
          begin_(std::chrono::steady_clock::now()) {}

    // Returns once `has_happened`. `what` names it in messages. Throws PeerFailure when that takes
    // longer than the communicator's deadline.
    void until(const std::function<bool()>& has_happened, const char* what,
               const std::function<void()>& waiting = {});

  private:
    NcclCommunicator& communicator_;
    std::chrono::milliseconds patience_;
    std::chrono::steady_clock::time_point begin_;
};

}  // namespace bucketwise
