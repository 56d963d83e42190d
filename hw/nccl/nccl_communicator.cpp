#include "hw/nccl/nccl_communicator.h"

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstring>
#include <future>
#include <mutex>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "hw/nccl/nccl_library.h"
#include "sim/base/invariant.h"

namespace bucketwise {
namespace {

using Clock = std::chrono::steady_clock;

ncclDataType_t nccl_type(DType dtype) {
    constexpr std::array types{ncclFloat32, ncclFloat16, ncclBfloat16, ncclFloat64};
    return types[static_cast<std::size_t>(dtype)];
}

// Words are numbers that a control group carries exactly.
constexpr std::size_t id_words = NCCL_UNIQUE_ID_BYTES / sizeof(std::uint32_t);
static_assert(id_words * sizeof(std::uint32_t) == sizeof(ncclUniqueId));

std::vector<double> words_of(const ncclUniqueId& id) {
    std::array<std::uint32_t, id_words> words{};
    std::memcpy(words.data(), &id, sizeof(id));
    return {words.begin(), words.end()};
}

// The id of rank `leader`, which makes one, as does every rank that leads a group.
ncclUniqueId exchanged_id(ControlGroup& control, std::int64_t leader) {
    ncclUniqueId id{};
    if (control.rank() == leader) {
        check_nccl(nccl().ncclGetUniqueId(&id), "ncclGetUniqueId", nullptr);
    }
    std::vector<std::int64_t> all(static_cast<std::size_t>(control.ranks()) * id_words);
    const std::vector<double> gathered = control.gather_to_first(words_of(id));
    std::ranges::transform(gathered, all.begin(),
                           [](double word) { return static_cast<std::int64_t>(word); });
    control.broadcast_from_first(all);
    std::array<std::uint32_t, id_words> words{};
    std::ranges::transform(all.begin() + leader * static_cast<std::ptrdiff_t>(id_words),
                           all.begin() + (leader + 1) * static_cast<std::ptrdiff_t>(id_words),
                           words.begin(),
                           [](std::int64_t word) { return static_cast<std::uint32_t>(word); });
    std::memcpy(&id, words.data(), sizeof(id));
    return id;
}

std::vector<std::int64_t> all_ranks(const ControlGroup& control) {
    std::vector<std::int64_t> ranks(static_cast<std::size_t>(control.ranks()));
    std::iota(ranks.begin(), ranks.end(), 0);
    return ranks;
}

double seconds_of(std::chrono::milliseconds time) {
    return static_cast<double>(time.count()) / 1e3;
}

}  // namespace

void check_nccl(ncclResult_t result, const char* call, ncclComm_t communicator,
                const CallPlace& place) {
    if (result == ncclSuccess) {
        return;
    }
    // NCCL keeps it for the communicator, or for the thread where there is none yet.
    const char* last = nccl().ncclGetLastError(communicator);
    const bool is_known = last != nullptr && *last != '\0';
    const std::string text = gpu_error_text(call, nccl().ncclGetErrorString(result),
                                            is_known ? last : "NCCL_DEBUG=WARN tells more", place);
    if (result == ncclRemoteError || result == ncclSystemError) {
        throw PeerFailure(text);
    }
    throw GpuError(text);
}

// A thread that aborts the communicator when a call into NCCL has not returned by the deadline.
class NcclCommunicator::Watch {
  public:
    explicit Watch(NcclCommunicator& communicator)
        : communicator_(communicator), thread_([this] { serve(); }) {}

    ~Watch() {
        {
            const std::lock_guard lock(mutex_);
            stopping_ = true;
        }
        wake_.notify_one();
        thread_.join();
    }
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;

    // No lock: they are part of the time to launch.
    void begin() { begun_.store(Clock::now().time_since_epoch().count()); }
    // False: the call came back because the communicator has been aborted under it.
    [[nodiscard]] bool end() { return begun_.exchange(0) != aborting; }

  private:
    static constexpr Clock::rep aborting = -1;

    void serve() {
        std::unique_lock lock(mutex_);
        const auto pause = std::min(communicator_.deadline_ / 4, std::chrono::milliseconds{250});
        while (!wake_.wait_for(lock, pause, [this] { return stopping_; })) {
            Clock::rep begun = begun_.load();
            const Clock::time_point since{Clock::duration{begun}};
            // Only a call that is still running: nobody else may be using the communicator.
            if (begun != 0 && Clock::now() - since > communicator_.deadline_ &&
                begun_.compare_exchange_strong(begun, aborting)) {
                communicator_.abort();
                return;
            }
        }
    }

    NcclCommunicator& communicator_;
    std::atomic<Clock::rep> begun_{0};  // 0: no call is running
    std::mutex mutex_;
    std::condition_variable wake_;
    bool stopping_ = false;
    std::thread thread_;
};

NcclCommunicator::NcclCommunicator(ControlGroup& control, std::chrono::milliseconds deadline,
                                   std::optional<std::int64_t> ctas)
    : NcclCommunicator(control, all_ranks(control), deadline, ctas) {}

NcclCommunicator::NcclCommunicator(ControlGroup& control, const std::vector<std::int64_t>& ranks,
                                   std::chrono::milliseconds deadline,
                                   std::optional<std::int64_t> ctas)
    : rank_(static_cast<int>(std::ranges::find(ranks, control.rank()) - ranks.begin())),
      ranks_(static_cast<int>(ranks.size())),
      deadline_(deadline) {
    invariant(rank_ < ranks_, "a group that this rank is in");
    connect(exchanged_id(control, ranks.front()), ctas);
    watch_ = std::make_unique<Watch>(*this);
}

// Until NCCL returns there is no communicator to abort, so it runs on a thread that is left behind
// when it takes too long.
void NcclCommunicator::connect(const ncclUniqueId& id, std::optional<std::int64_t> ctas) {
    check_gpu(cudaGetDevice(&device_), "cudaGetDevice");
    std::packaged_task<ncclComm_t()> connecting(
        [id, ctas, device = device_, rank = rank_, ranks = ranks_] {
            ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
            // As in PyTorch, so that a launch costs the same.
            config.blocking = 1;
            if (ctas) {
                config.minCTAs = 1;
                config.maxCTAs = static_cast<int>(*ctas);
            }
            cudaSetDevice(device);  // of a thread; NCCL reports it if that failed
            ncclComm_t communicator = nullptr;
            check_nccl(nccl().ncclCommInitRankConfig(&communicator, ranks, id, rank, &config),
                       "ncclCommInitRankConfig", nullptr);
            return communicator;
        });
    std::future<ncclComm_t> connected = connecting.get_future();
    std::thread(std::move(connecting)).detach();
    if (connected.wait_for(deadline_) != std::future_status::ready) {
        throw PeerFailure(fmt::format("NCCL had not connected rank {} to all {} after {} s", rank_,
                                      ranks_, seconds_of(deadline_)));
    }
    communicator_ = connected.get();
}

NcclCommunicator::~NcclCommunicator() {
    watch_.reset();
    // Not ncclCommDestroy: it would wait for the other ranks, and here nobody waits for anything.
    abort();
    if (aborting_.joinable()) {
        aborting_.join();
    }
}

void NcclCommunicator::abort() noexcept {
    if (communicator_ == nullptr || aborted_.exchange(true)) {
        return;
    }
    const auto act = [communicator = communicator_, device = device_] {
        cudaSetDevice(device);  // of this thread
        nccl().ncclCommAbort(communicator);
    };
    try {
        aborting_ = std::thread(act);
    } catch (...) {
        act();  // no thread is left to be had
    }
}

std::string NcclCommunicator::doing(const char* what) const {
    return fmt::format("{} on rank {} of {}", what, rank_, ranks_);
}

template <typename Act>
void NcclCommunicator::call(const char* what, const Act& act) {
    if (aborted_) {
        throw PeerFailure(doing(what) + ": an earlier collective failed");
    }
    watch_->begin();
    const ncclResult_t result = act();
    if (!watch_->end()) {
        throw PeerFailure(
            fmt::format("{}: NCCL did not return for {} s, as another rank does not "
                        "answer",
                        doing(what), seconds_of(deadline_)));
    }
    if (result != ncclSuccess) {
        fail(result, what);
    }
}

void NcclCommunicator::fail(ncclResult_t result, const char* what) {
    // Its message is gone once it is aborted.
    try {
        check_nccl(result, doing(what).c_str(), communicator_);
    } catch (...) {
        abort();
        throw;
    }
    invariant(false, "a failure throws");
    std::terminate();
}

void NcclCommunicator::carry(const RankExchange& exchange, const GpuStream& stream) {
    const auto bytes = static_cast<std::size_t>(exchange.size.count);
    const auto elements = static_cast<std::size_t>(exchange.elements());
    const ncclDataType_t type = nccl_type(exchange.dtype);
    std::byte* const own = exchange.own;
    switch (exchange.kind) {
        case CollectiveKind::all_reduce:
            return call("all-reduce", [&] {
                return nccl().ncclAllReduce(own, own, elements, type,
                                            exchange.averages ? ncclAvg : ncclSum, communicator_,
                                            stream.get());
            });
        case CollectiveKind::reduce_scatter:
            return call("reduce-scatter", [&] {
                return nccl().ncclReduceScatter(own, own + rank_ * exchange.size.count, elements,
                                                type, ncclSum, communicator_, stream.get());
            });
        case CollectiveKind::all_gather:
            return call("all-gather", [&] {
                return nccl().ncclAllGather(own, exchange.all, bytes, ncclUint8, communicator_,
                                            stream.get());
            });
        case CollectiveKind::broadcast:
            return call("broadcast", [&] {
                return nccl().ncclBroadcast(own, own, bytes, ncclUint8, 0, communicator_,
                                            stream.get());
            });
    }
}

void NcclCommunicator::check() {
    if (aborted_) {
        throw PeerFailure(doing("waiting") + ": an earlier collective failed");
    }
    ncclResult_t asynchronous = ncclSuccess;
    const ncclResult_t result = nccl().ncclCommGetAsyncError(communicator_, &asynchronous);
    if (result != ncclSuccess || asynchronous != ncclSuccess) {
        fail(result != ncclSuccess ? result : asynchronous, "a collective");
    }
}

// Spins at first, so that short waits end when they end; then sleeps, for processors are few.
void PatientWait::until(const std::function<bool()>& has_happened, const char* what,
                        const std::function<void()>& waiting) {
    constexpr std::chrono::milliseconds spinning{2};
    constexpr std::chrono::microseconds pause{50};
    constexpr std::chrono::seconds between_calls{1};
    Clock::time_point called = begin_;
    while (!has_happened()) {
        const Clock::time_point now = Clock::now();
        communicator_.check();
        if (now - begin_ > patience_) {
            communicator_.abort();
            throw PeerFailure(fmt::format("{} on rank {} of {}: not done after {} s", what,
                                          communicator_.rank(), communicator_.ranks(),
                                          seconds_of(patience_)));
        }
        if (waiting && now - called > between_calls) {
            waiting();
            called = now;
        }
        if (now - begin_ < spinning) {
            std::this_thread::yield();
        } else {
            std::this_thread::sleep_for(pause);
        }
    }
    begin_ = Clock::now();  // the next wait has the whole deadline
}

}  // namespace bucketwise
