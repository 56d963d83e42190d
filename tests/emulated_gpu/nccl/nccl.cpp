// Communicators of NCCL over local sockets.
#include <nccl.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "tests/emulated_gpu/capture.h"
#include "tests/emulated_gpu/completion.h"
#include "tests/emulated_gpu/emulated_gpu.h"
#include "tests/emulated_gpu/fatal.h"
#include "tests/emulated_gpu/handles.h"
#include "tests/emulated_gpu/memory.h"
#include "tests/emulated_gpu/nccl/meeting.h"
#include "tests/emulated_gpu/nccl/reduction.h"
#include "tests/emulated_gpu/nccl/star.h"
#include "tests/emulated_gpu/stream.h"

using bucketwise::emulated::CtaRange;
using bucketwise::emulated::Failure;
using bucketwise::emulated::Star;

struct ncclComm {
    ncclComm(int its_rank, int of_ranks, int on_device, CtaRange allowed,
             bucketwise::emulated::Connections connections)
        : rank(its_rank),
          ranks(of_ranks),
          device(on_device),
          ctas(allowed),
          star(its_rank, std::move(connections)) {}

    const int rank;
    const int ranks;
    const int device;
    const CtaRange ctas;
    Star star;
    std::set<cudaStream_t> streams;  // under communicating(): what destruction waits for
    // Shared with every captured collective: as the real one, an abort lasts until no graph holds
    // any.
    std::shared_ptr<int> in_graphs = std::make_shared<int>(0);

    // On the threads of streams:
    std::atomic<std::uint32_t> running{0};   // 1 while a collective is
    std::atomic<std::uint64_t> sequence{0};  // of the next collective
    std::atomic<ncclResult_t> error{ncclSuccess};
    std::string message;  // written before `error`
    std::atomic<bool> destroyed{false};
};

namespace bucketwise::emulated {
namespace {

thread_local std::string last_message;
thread_local int group_depth = 0;
thread_local std::vector<std::function<ncclResult_t()>> group_calls;

std::mutex& communicating() {
    static auto& only = *new std::mutex;
    return only;
}

// Under communicating().
Handles<ncclComm>& communicators() {
    static auto& all = *new Handles<ncclComm>;
    return all;
}

bool is_live(const ncclComm* communicator) {
    const std::lock_guard lock(communicating());
    return communicators().is_live(communicator);
}

// False for the second to destroy it.
bool end_handle(const ncclComm* communicator) {
    const std::lock_guard lock(communicating());
    const bool live = communicators().is_live(communicator);
    communicators().destroy(communicator);
    return live;
}

ncclResult_t fail(const Failure& failure) {
    last_message = failure.message;
    return failure.result;
}

ncclResult_t invalid(const std::string& what) {
    return fail({ncclInvalidArgument, what});
}

// One collective of one rank: a plain value that graphs replay.
struct Operation {
    ncclComm* communicator = nullptr;
    Collective collective;
    const void* from = nullptr;
    void* to = nullptr;

    void run() const;

  private:
    [[nodiscard]] std::optional<Failure> exchange() const;
};

void set_error(ncclComm& communicator, const Failure& failure) {
    communicator.message = failure.message;
    communicator.error.store(failure.result, std::memory_order_release);
}

// `running` and the interruption are sequentially consistent: this writes the first and then reads
// the second, ncclCommAbort the other way round, so that at least one sees the other.
void Operation::run() const {
    ncclComm& comm = *communicator;
    if (comm.destroyed) {
        fatal("collective of a communicator that has been destroyed");
    }
    if (comm.running.exchange(1) != 0) {
        fatal("two collectives of one communicator at the same time, on unordered streams");
    }
    if (!comm.star.is_interrupted()) {
        std::optional<Failure> failure;
        if (comm.error.load(std::memory_order_acquire) == ncclSuccess) {
            failure = exchange();
            if (failure) {
                set_error(comm, *failure);
            }
        }
        if (comm.error.load(std::memory_order_acquire) != ncclSuccess) {
            // As NCCL's kernels, which spin for data that does not come.
            comm.star.wait_until_interrupted();
        }
    }
    comm.running.store(0, std::memory_order_release);
    wake_all(comm.running);
}

std::optional<Failure> Operation::exchange() const {
    Collective now = collective;
    now.sequence = communicator->sequence.fetch_add(1, std::memory_order_relaxed);
    std::vector<std::byte> data(now.bytes);
    if (now.is_sent_by(communicator->rank)) {
        std::memcpy(data.data(), alias(from), now.bytes);
    }
    const std::optional<Failure> failure = communicator->star.run(now, data);
    if (!failure && !communicator->star.is_interrupted()) {
        const std::uint64_t size = now.result_bytes(communicator->ranks);
        const bool scatters = now.kind == Collective::Kind::reduce_scatter;
        const std::uint64_t before =
            scatters ? static_cast<std::uint64_t>(communicator->rank) * size : 0;
        std::memcpy(alias(to), data.data() + before, size);
    }
    return failure;
}

ncclResult_t check_live(const ncclComm* communicator) {
    if (!is_live(communicator)) {
        return invalid("no such communicator");
    }
    return communicator->error.load(std::memory_order_acquire);
}

ncclResult_t check(const Operation& operation) {
    if (const ncclResult_t result = check_live(operation.communicator); result != ncclSuccess) {
        return result;
    }
    const Collective& collective = operation.collective;
    if (size_of(collective.type) == 0 || !is_known(collective.operation)) {
        return invalid("type or operation that the emulation does not know");
    }
    if (collective.root < 0 || collective.root >= operation.communicator->ranks) {
        return invalid("no such root");
    }
    const ncclComm& comm = *operation.communicator;
    if ((collective.is_sent_by(comm.rank) &&
         !is_memory(MemoryKind::device, operation.from, collective.bytes)) ||
        !is_memory(MemoryKind::device, operation.to, collective.result_bytes(comm.ranks))) {
        return invalid("buffer that is not device memory");
    }
    return ncclSuccess;
}

ncclResult_t start(const Operation& operation, cudaStream_t stream) {
    {
        const std::lock_guard lock(issuing());
        if (stream->capture != nullptr && stream->capture->is_active()) {
            stream->capture->hold(operation.communicator->in_graphs);
        }
    }
    if (const cudaError_t error = issue(stream, [operation] { operation.run(); });
        error != cudaSuccess) {
        return fail({ncclUnhandledCudaError, cudaGetErrorString(error)});
    }
    const std::lock_guard lock(communicating());
    operation.communicator->streams.insert(stream);
    return ncclSuccess;
}

ncclResult_t call(const Operation& operation, cudaStream_t stream) {
    const ncclResult_t result = check(operation);
    if (result != ncclSuccess || operation.collective.bytes == 0) {
        return result;
    }
    if (group_depth > 0) {
        group_calls.emplace_back([=] { return start(operation, stream); });
        return ncclSuccess;
    }
    return start(operation, stream);
}

// The streams that have carried its collectives have done all they were given.
void wait_for_collectives(ncclComm& communicator) {
    std::vector<cudaStream_t> used;
    {
        const std::lock_guard lock(communicating());
        used.assign(communicator.streams.begin(), communicator.streams.end());
    }
    for (const cudaStream_t stream : used) {
        Worker::Ticket ticket = 0;
        {
            const std::lock_guard lock(issuing());
            ticket = stream->worker.issued();
        }
        stream->worker.wait(ticket);
    }
}

std::variant<CtaRange, Failure> ctas_in(const ncclConfig_t* config) {
    constexpr int any = NCCL_CONFIG_UNDEF_INT;
    if (config == nullptr) {
        return CtaRange{any, any};
    }
    const ncclConfig_t good = NCCL_CONFIG_INITIALIZER;
    if (config->size != good.size || config->magic != good.magic) {
        return Failure{ncclInvalidArgument, "ncclConfig_t that is not initialized"};
    }
    const CtaRange range{config->minCTAs, config->maxCTAs};
    if ((range.min != any && range.min < 1) || (range.max != any && range.max < 1) ||
        (range.min != any && range.max != any && range.min > range.max)) {
        return Failure{ncclInvalidArgument, "invalid config: minCTAs or maxCTAs"};
    }
    if (config->blocking != any && config->blocking != 0 && config->blocking != 1) {
        return Failure{ncclInvalidArgument, "invalid config: blocking"};
    }
    return range;
}

}  // namespace

CtaRange ctas_of(const ncclComm* comm) {
    return comm->ctas;
}

}  // namespace bucketwise::emulated

using namespace bucketwise::emulated;

ncclResult_t ncclGetVersion(int* version) {
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
    *id = new_unique_id();
    return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* communicator, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
    if (communicator == nullptr || ranks < 1 || rank < 0 || rank >= ranks) {
        return invalid("rank " + std::to_string(rank) + " of " + std::to_string(ranks));
    }
    *communicator = nullptr;
    if (group_depth > 0) {
        return fail({ncclInvalidUsage, "the emulation has no initialization in groups"});
    }
    const auto ctas = ctas_in(config);
    if (const auto* failure = std::get_if<Failure>(&ctas)) {
        return fail(*failure);
    }
    int device = 0;
    if (const cudaError_t error = cudaGetDevice(&device); error != cudaSuccess) {
        return fail({ncclUnhandledCudaError, cudaGetErrorString(error)});
    }
    auto met = meet(id, rank, ranks, device);
    if (const auto* failure = std::get_if<Failure>(&met)) {
        return fail(*failure);
    }
    const std::lock_guard lock(communicating());
    *communicator = communicators().create(rank, ranks, device, std::get<CtaRange>(ctas),
                                           std::move(std::get<Connections>(met)));
    return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t* communicator, int ranks, ncclUniqueId id, int rank) {
    return ncclCommInitRankConfig(communicator, ranks, id, rank, nullptr);
}

ncclResult_t ncclCommFinalize(ncclComm_t communicator) {
    if (const ncclResult_t result = check_live(communicator); result != ncclSuccess) {
        return result;
    }
    wait_for_collectives(*communicator);
    return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t communicator) {
    if (!is_live(communicator)) {
        return invalid("no such communicator");
    }
    wait_for_collectives(*communicator);
    if (end_handle(communicator)) {  // unless aborted meanwhile
        communicator->destroyed = true;
        communicator->star.close();
    }
    return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t communicator) {
    if (!end_handle(communicator)) {
        return invalid("no such communicator");
    }
    communicator->star.interrupt();
    while (communicator->running.load() != 0) {
        sleep_while(communicator->running, 1);
    }
    while (communicator->in_graphs.use_count() > 1) {
        std::this_thread::sleep_for(std::chrono::milliseconds{1});
    }
    communicator->star.close();
    return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t communicator, ncclResult_t* error) {
    if (!is_live(communicator)) {
        return invalid("no such communicator");
    }
    *error = communicator->error.load(std::memory_order_acquire);
    return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
    switch (result) {
        case ncclSuccess:
            return "no error";
        case ncclUnhandledCudaError:
            return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
        case ncclSystemError:
            return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
        case ncclInternalError:
            return "internal error - please report this issue to the NCCL developers";
        case ncclInvalidArgument:
            return "invalid argument (run with NCCL_DEBUG=WARN for details)";
        case ncclInvalidUsage:
            return "invalid usage (run with NCCL_DEBUG=WARN for details)";
        case ncclRemoteError:
            return "remote process exited or there was a network error";
        case ncclInProgress:
            return "NCCL operation in progress";
        default:
            return "unknown result code";
    }
}

// The communicator's error if it has failed, else the calling thread's.
const char* ncclGetLastError(ncclComm_t communicator) {
    if (is_live(communicator) &&
        communicator->error.load(std::memory_order_acquire) != ncclSuccess) {
        return communicator->message.c_str();
    }
    return last_message.c_str();
}

ncclResult_t ncclCommCount(const ncclComm_t communicator, int* count) {
    if (!is_live(communicator)) {
        return invalid("no such communicator");
    }
    *count = communicator->ranks;
    return ncclSuccess;
}

ncclResult_t ncclCommUserRank(const ncclComm_t communicator, int* rank) {
    if (!is_live(communicator)) {
        return invalid("no such communicator");
    }
    *rank = communicator->rank;
    return ncclSuccess;
}

ncclResult_t ncclCommCuDevice(const ncclComm_t communicator, int* device) {
    if (!is_live(communicator)) {
        return invalid("no such communicator");
    }
    *device = communicator->device;
    return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void* from, void* to, size_t count, ncclDataType_t type,
                           ncclRedOp_t operation, ncclComm_t communicator, cudaStream_t stream) {
    const Collective collective{.bytes = count * size_of(type),
                                .kind = Collective::Kind::all_reduce,
                                .type = type,
                                .operation = operation};
    return call({communicator, collective, from, to}, stream);
}

ncclResult_t ncclAllGather(const void* from, void* to, size_t count, ncclDataType_t type,
                           ncclComm_t communicator, cudaStream_t stream) {
    const Collective collective{
        .bytes = count * size_of(type), .kind = Collective::Kind::all_gather, .type = type};
    return call({communicator, collective, from, to}, stream);
}

ncclResult_t ncclReduceScatter(const void* from, void* to, size_t count, ncclDataType_t type,
                               ncclRedOp_t operation, ncclComm_t communicator,
                               cudaStream_t stream) {
    const std::size_t ranks =
        is_live(communicator) ? static_cast<std::size_t>(communicator->ranks) : 1;
    const Collective collective{.bytes = ranks * count * size_of(type),
                                .kind = Collective::Kind::reduce_scatter,
                                .type = type,
                                .operation = operation};
    return call({communicator, collective, from, to}, stream);
}

ncclResult_t ncclBroadcast(const void* from, void* to, size_t count, ncclDataType_t type, int root,
                           ncclComm_t communicator, cudaStream_t stream) {
    const Collective collective{.bytes = count * size_of(type),
                                .kind = Collective::Kind::broadcast,
                                .type = type,
                                .root = root};
    return call({communicator, collective, from, to}, stream);
}

ncclResult_t ncclGroupStart() {
    ++group_depth;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
    if (group_depth == 0) {
        return fail({ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart"});
    }
    ncclResult_t first = ncclSuccess;
    if (--group_depth == 0) {
        for (const auto& start_call : std::exchange(group_calls, {})) {
            const ncclResult_t result = start_call();
            first = first == ncclSuccess ? result : first;
        }
    }
    return first;
}
