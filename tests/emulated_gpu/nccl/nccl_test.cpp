#include <fcntl.h>
#include <nccl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <latch>
#include <string>
#include <thread>
#include <vector>

#include "tests/catch.h"
#include "tests/emulated_gpu/device_numbers.h"
#include "tests/emulated_gpu/gate.h"

namespace bucketwise {
namespace {

using testing::check_cuda;
using testing::DeviceNumbers;
using testing::new_stream;
using Values = std::vector<double>;

void check_nccl(ncclResult_t result) {
    if (result != ncclSuccess) {
        throw std::runtime_error(std::string(ncclGetErrorString(result)) + ": " +
                                 ncclGetLastError(nullptr));
    }
}

ncclUniqueId new_id() {
    ncclUniqueId id;
    check_nccl(ncclGetUniqueId(&id));
    return id;
}

ncclComm_t join(const ncclUniqueId& id, int rank, int ranks) {
    check_cuda(cudaSetDevice(rank));
    ncclComm_t communicator = nullptr;
    check_nccl(ncclCommInitRank(&communicator, ranks, id, rank));
    return communicator;
}

// Runs act(communicator, rank) in a thread for each rank; what one throws ends the program.
template <typename Act>
void on_ranks(int ranks, const Act& act) {
    const ncclUniqueId id = new_id();
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank) {
        threads.emplace_back([&, rank] { act(join(id, rank, ranks), rank); });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
}

ncclResult_t error_of(ncclComm_t communicator) {
    ncclResult_t error = ncclSuccess;
    check_nccl(ncclCommGetAsyncError(communicator, &error));
    return error;
}

ncclResult_t wait_for_error(ncclComm_t communicator) {
    while (error_of(communicator) == ncclSuccess) {
        std::this_thread::yield();
    }
    return error_of(communicator);
}

// By rank, the one-element results of an all-reduce of one element of each rank.
Values reduced(const testing::NumberFormat& format, ncclDataType_t type, ncclRedOp_t operation,
               const Values& of_ranks) {
    Values results(of_ranks.size());
    on_ranks(static_cast<int>(of_ranks.size()), [&](ncclComm_t communicator, int rank) {
        const auto index = static_cast<std::size_t>(rank);
        const cudaStream_t stream = new_stream();
        const DeviceNumbers from(format, {of_ranks[index]}, stream);
        const DeviceNumbers to(format, {0.0}, stream);
        check_nccl(ncclAllReduce(from.get(), to.get(), 1, type, operation, communicator, stream));
        results[index] = to.values().front();
        check_nccl(ncclCommDestroy(communicator));
    });
    return results;
}

TEST_CASE("an all-reduce combines in the order of the ranks and rounds after each step") {
    const auto all = [](double value) { return Values(3, value); };
    constexpr auto f16 = testing::format_of_float16;
    constexpr auto bf16 = testing::format_of_bfloat16;
    constexpr auto f32 = testing::format_of_float32;
    constexpr auto f64 = testing::format_of_float64;
    // bfloat16 knows no 257: the tie goes to 256. From the other end, 1 + 1 + 256 is exact.
    CHECK(reduced(bf16, ncclBfloat16, ncclSum, {256, 1, 1}) == all(256));
    CHECK(reduced(bf16, ncclBfloat16, ncclSum, {1, 1, 256}) == all(258));
    // The same with 11 bits in place of 8.
    CHECK(reduced(f16, ncclFloat16, ncclSum, {2048, 1, 1}) == all(2048));
    CHECK(reduced(f32, ncclFloat32, ncclSum, {1, 2, 4}) == all(7));
    CHECK(reduced(f64, ncclFloat64, ncclSum, {1, 0x1p-40, 4}) == all(5 + 0x1p-40));
    CHECK(reduced(f32, ncclFloat32, ncclMax, {1, -2, 0.5}) == all(1));
    CHECK(reduced(f32, ncclFloat32, ncclAvg, {1, 2}) == Values(2, 1.5));
    // 1/3 in 11 bits is 1365/4096: 682.5 + 0.333 gives 683 in steps of 0.5, and 0.333 more 683.5.
    // The rounded sum divided by 3 would be 682.5.
    CHECK(reduced(f16, ncclFloat16, ncclAvg, {2048, 1, 1}) == all(683.5));
    CHECK(reduced(f32, ncclFloat32, ncclAvg, {5}) == Values(1, 5.0));
}

template <typename Integer>
Integer mean_of_integers(ncclDataType_t type) {
    Integer result = 0;
    on_ranks(2, [&](ncclComm_t communicator, int rank) {
        const cudaStream_t stream = new_stream();
        void* memory = nullptr;
        check_cuda(cudaMalloc(&memory, sizeof(Integer)));
        const Integer value = rank == 0 ? 4 : 7;
        check_cuda(cudaMemcpyAsync(memory, &value, sizeof(value), cudaMemcpyHostToDevice, stream));
        check_nccl(ncclAllReduce(memory, memory, 1, type, ncclAvg, communicator, stream));
        Integer mine = 0;
        check_cuda(cudaMemcpyAsync(&mine, memory, sizeof(mine), cudaMemcpyDeviceToHost, stream));
        if (rank == 1) {
            result = mine;
        }
        check_nccl(ncclCommDestroy(communicator));
    });
    return result;
}

TEST_CASE("a mean of integers is rounded towards zero") {
    CHECK(mean_of_integers<std::int32_t>(ncclInt32) == 5);  // of 5.5
    CHECK(mean_of_integers<std::int64_t>(ncclInt64) == 5);
}

// More than sockets hold: who sent without looking would wait for who does the same.
TEST_CASE("long messages, broadcasts and groups get through") {
    constexpr std::size_t count = 1 << 20;
    std::array<Values, 3> sums;
    std::array<Values, 3> copies;
    on_ranks(3, [&](ncclComm_t communicator, int rank) {
        const auto index = static_cast<std::size_t>(rank);
        const cudaStream_t stream = new_stream();
        const DeviceNumbers data(testing::format_of_float32, Values(count, rank + 1), stream);
        const DeviceNumbers copied(testing::format_of_float32, Values(count, rank + 1), stream);
        check_nccl(ncclGroupStart());
        check_nccl(ncclAllReduce(data.get(), data.get(), count, ncclFloat32, ncclSum, communicator,
                                 stream));
        check_nccl(
            ncclBroadcast(copied.get(), copied.get(), count, ncclFloat32, 1, communicator, stream));
        check_nccl(ncclGroupEnd());
        sums.at(index) = data.values();
        copies.at(index) = copied.values();
        check_nccl(ncclCommDestroy(communicator));
    });
    for (std::size_t rank = 0; rank < 3; ++rank) {
        CHECK((sums.at(rank) == Values(count, 6)));  // 1 + 2 + 3
        CHECK((copies.at(rank) == Values(count, 2)));
    }
}

TEST_CASE("an all-gather puts each rank's block in its place, and needs room for all of them") {
    std::array<Values, 3> gathered;
    std::array<ncclResult_t, 3> too_small{};
    on_ranks(3, [&](ncclComm_t communicator, int rank) {
        const auto index = static_cast<std::size_t>(rank);
        const cudaStream_t stream = new_stream();
        const double first = 10.0 * rank;
        const DeviceNumbers own(testing::format_of_float32, {first, first + 1}, stream);
        const DeviceNumbers all(testing::format_of_float32, Values(6, -1), stream);
        too_small.at(index) =
            ncclAllGather(own.get(), own.get(), 2, ncclFloat32, communicator, stream);
        check_nccl(ncclAllGather(own.get(), all.get(), 2, ncclFloat32, communicator, stream));
        gathered.at(index) = all.values();
        check_nccl(ncclCommDestroy(communicator));
    });
    for (std::size_t rank = 0; rank < 3; ++rank) {
        CHECK((gathered.at(rank) == Values{0, 1, 10, 11, 20, 21}));
        CHECK(too_small.at(rank) == ncclInvalidArgument);
    }
}

TEST_CASE("a reduce-scatter gives each rank its block of the sum, in place too") {
    std::array<Values, 2> apart;
    std::array<Values, 2> in_place;
    std::array<ncclResult_t, 2> too_small{};
    on_ranks(2, [&](ncclComm_t communicator, int rank) {
        const auto index = static_cast<std::size_t>(rank);
        const cudaStream_t stream = new_stream();
        const double first = 10.0 * (rank + 1);
        const DeviceNumbers all(testing::format_of_float32,
                                {first, first + 1, first + 2, first + 3}, stream);
        const DeviceNumbers own(testing::format_of_float32, Values(2, -1), stream);
        too_small.at(index) =
            ncclReduceScatter(own.get(), own.get(), 2, ncclFloat32, ncclSum, communicator, stream);
        check_nccl(
            ncclReduceScatter(all.get(), own.get(), 2, ncclFloat32, ncclSum, communicator, stream));
        apart.at(index) = own.values();
        void* const block = static_cast<float*>(all.get()) + std::ptrdiff_t{2} * rank;
        check_nccl(
            ncclReduceScatter(all.get(), block, 2, ncclFloat32, ncclSum, communicator, stream));
        in_place.at(index) = all.values();
        check_nccl(ncclCommDestroy(communicator));
    });
    // 10 + 20, 11 + 21, 12 + 22, 13 + 23; what the other has stays as it was.
    CHECK((apart[0] == Values{30, 32}));
    CHECK((apart[1] == Values{34, 36}));
    CHECK((in_place[0] == Values{30, 32, 12, 13}));
    CHECK((in_place[1] == Values{20, 21, 34, 36}));
    CHECK((too_small == std::array{ncclInvalidArgument, ncclInvalidArgument}));
}

TEST_CASE("a collective starts in its place in the stream, and destruction waits for it") {
    std::array<Values, 2> results;
    std::latch launched(2);
    on_ranks(2, [&](ncclComm_t communicator, int rank) {
        const cudaStream_t stream = new_stream();
        const DeviceNumbers data(testing::format_of_float32, {1.0}, stream);
        testing::Gate gate;
        gate.block(stream);
        emulated::enqueue(stream, [&] { *emulated::alias(static_cast<float*>(data.get())) = 3; });
        check_nccl(
            ncclAllReduce(data.get(), data.get(), 1, ncclFloat32, ncclSum, communicator, stream));
        launched.arrive_and_wait();
        gate.open();
        check_nccl(ncclCommDestroy(communicator));
        if (cudaStreamQuery(stream) == cudaSuccess) {
            results.at(static_cast<std::size_t>(rank)) = data.values();
        }
    });
    CHECK(results == std::array<Values, 2>{Values{6}, Values{6}});
}

TEST_CASE("a captured all-reduce is carried out at each replay") {
    std::array<Values, 2> results;
    on_ranks(2, [&](ncclComm_t communicator, int rank) {
        const cudaStream_t stream = new_stream();
        const DeviceNumbers data(testing::format_of_float32, {1.0}, stream);
        check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
        check_nccl(
            ncclAllReduce(data.get(), data.get(), 1, ncclFloat32, ncclSum, communicator, stream));
        cudaGraph_t graph = nullptr;
        check_cuda(cudaStreamEndCapture(stream, &graph));
        cudaGraphExec_t executable = nullptr;
        check_cuda(cudaGraphInstantiate(&executable, graph, 0));
        for (int replay = 0; replay < 3; ++replay) {
            check_cuda(cudaGraphLaunch(executable, stream));
        }
        results.at(static_cast<std::size_t>(rank)) = data.values();
        check_nccl(ncclCommDestroy(communicator));
    });
    CHECK(results == std::array<Values, 2>{Values{8}, Values{8}});  // doubled three times
}

TEST_CASE("what is wrong with a call is said when it is made") {
    const ncclUniqueId id = new_id();
    ncclComm_t communicator = nullptr;
    CHECK(ncclCommInitRank(&communicator, 2, id, 2) == ncclInvalidArgument);
    ncclConfig_t raw{};
    CHECK(ncclCommInitRankConfig(&communicator, 1, id, 0, &raw) == ncclInvalidArgument);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.minCTAs = 4;
    config.maxCTAs = 2;
    CHECK(ncclCommInitRankConfig(&communicator, 1, id, 0, &config) == ncclInvalidArgument);
    config.minCTAs = 1;
    REQUIRE(ncclCommInitRankConfig(&communicator, 1, id, 0, &config) == ncclSuccess);
    CHECK(emulated::ctas_of(communicator).min == 1);
    CHECK(emulated::ctas_of(communicator).max == 2);
    int ranks = 0;
    CHECK(ncclCommCount(communicator, &ranks) == ncclSuccess);
    CHECK(ranks == 1);
    const cudaStream_t stream = new_stream();
    const DeviceNumbers data(testing::format_of_float32, {1.0}, stream);
    float on_host = 0;
    const auto reduce = [&](void* memory, std::size_t count, ncclDataType_t type) {
        return ncclAllReduce(memory, memory, count, type, ncclSum, communicator, stream);
    };
    CHECK(reduce(&on_host, 1, ncclFloat32) == ncclInvalidArgument);
    CHECK(reduce(data.get(), 2, ncclFloat32) == ncclInvalidArgument);  // one too many
    CHECK(reduce(data.get(), 1, ncclFloat8e4m3) == ncclInvalidArgument);
    CHECK(reduce(data.get(), 1, ncclFloat32) == ncclSuccess);
    CHECK(ncclGroupEnd() == ncclInvalidUsage);
    CHECK(ncclCommDestroy(communicator) == ncclSuccess);
    CHECK(ncclCommAbort(communicator) == ncclInvalidArgument);
}

struct Initialized {
    ncclResult_t result = ncclSuccess;
    std::string message;
};

struct Place {
    int rank = 0;
    int device = 0;
};

std::vector<Initialized> initialize(const std::vector<Place>& places) {
    const ncclUniqueId id = new_id();
    std::vector<Initialized> outcomes(places.size());
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < places.size(); ++i) {
        threads.emplace_back([&, i] {
            check_cuda(cudaSetDevice(places[i].device));
            ncclComm_t communicator = nullptr;
            outcomes[i].result = ncclCommInitRank(&communicator, static_cast<int>(places.size()),
                                                  id, places[i].rank);
            outcomes[i].message = ncclGetLastError(nullptr);
        });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    return outcomes;
}

TEST_CASE("ranks that share a GPU are refused, all of them") {
    for (const Initialized& outcome : initialize({{0, 0}, {1, 3}, {2, 3}})) {
        CHECK(outcome.result == ncclInvalidUsage);
        CHECK(outcome.message.find("Duplicate GPU detected") == 0);
        CHECK(outcome.message.find("0000:03:00.0") != std::string::npos);
    }
}

TEST_CASE("two ranks of one number are refused, as is a rank that stays alone") {
    for (const Initialized& outcome : initialize({{0, 0}, {1, 1}, {1, 2}})) {
        CHECK(outcome.result == ncclInvalidArgument);
        CHECK(outcome.message == "two ranks are rank 1");
    }
    ::setenv("EMULATED_NCCL_INIT_TIMEOUT_S", "0", 1);
    ncclComm_t communicator = nullptr;
    CHECK(ncclCommInitRank(&communicator, 2, new_id(), 0) == ncclSystemError);
    CHECK(communicator == nullptr);
    ::unsetenv("EMULATED_NCCL_INIT_TIMEOUT_S");
}

TEST_CASE("ranks that call different collectives all fail with invalid usage") {
    std::array<ncclResult_t, 3> errors{};
    std::array<std::string, 3> messages;
    on_ranks(3, [&](ncclComm_t communicator, int rank) {
        const auto index = static_cast<std::size_t>(rank);
        const cudaStream_t stream = new_stream();
        const DeviceNumbers data(testing::format_of_float32, {1.0, 2.0}, stream);
        const std::size_t count = rank == 2 ? 1 : 2;
        check_nccl(ncclAllReduce(data.get(), data.get(), count, ncclFloat32, ncclSum, communicator,
                                 stream));
        errors.at(index) = wait_for_error(communicator);
        messages.at(index) = ncclGetLastError(communicator);
        check_nccl(ncclCommAbort(communicator));
        check_cuda(cudaStreamSynchronize(stream));
    });
    for (std::size_t rank = 0; rank < 3; ++rank) {
        CHECK(errors.at(rank) == ncclInvalidUsage);
        CHECK(messages.at(rank).find("mismatch: rank 2 calls all-reduce 0 of 4 bytes") == 0);
    }
}

TEST_CASE("abort frees a rank that waits for another, which then gets a remote error") {
    std::array<ncclResult_t, 2> errors{};
    std::latch aborted(1);
    on_ranks(2, [&](ncclComm_t communicator, int rank) {
        const auto index = static_cast<std::size_t>(rank);
        const cudaStream_t stream = new_stream();
        const DeviceNumbers data(testing::format_of_float32, {1.0}, stream);
        if (rank == 1) {
            aborted.wait();
        }
        check_nccl(
            ncclAllReduce(data.get(), data.get(), 1, ncclFloat32, ncclSum, communicator, stream));
        // Rank 1 is only late: nothing is wrong yet.
        errors.at(index) = rank == 0 ? error_of(communicator) : wait_for_error(communicator);
        check_nccl(ncclCommAbort(communicator));
        check_cuda(cudaStreamSynchronize(stream));
        if (rank == 0) {
            aborted.count_down();
        }
    });
    CHECK(errors[0] == ncclSuccess);
    CHECK(errors[1] == ncclRemoteError);
}

std::string text_of(const ncclUniqueId& id) {
    return {id.internal, ::strnlen(id.internal, sizeof(id.internal))};
}

ncclUniqueId id_in_environment() {
    ncclUniqueId id{};
    const std::string text = std::getenv("BUCKETWISE_TEST_NCCL_ID");
    std::memcpy(id.internal, text.data(), text.size());
    return id;
}

int rank_in_environment() {
    return std::atoi(std::getenv("BUCKETWISE_TEST_RANK"));
}

// This program once more, for one test case: threads do not survive a fork.
pid_t spawn(const std::string& test_case, const ncclUniqueId& id, int rank) {
    ::setenv("BUCKETWISE_TEST_NCCL_ID", text_of(id).c_str(), 1);
    ::setenv("BUCKETWISE_TEST_RANK", std::to_string(rank).c_str(), 1);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    std::string program = "/proc/self/exe";
    std::string argument = test_case;
    std::array<char*, 3> arguments{program.data(), argument.data(), nullptr};
    pid_t child = 0;
    const int error =
        ::posix_spawn(&child, program.c_str(), &actions, nullptr, arguments.data(), environ);
    ::posix_spawn_file_actions_destroy(&actions);
    REQUIRE(error == 0);
    return child;
}

int exit_code_of(pid_t child) {
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

double sum_over(ncclComm_t communicator, double value) {
    const cudaStream_t stream = new_stream();
    const DeviceNumbers data(testing::format_of_float32, {value}, stream);
    check_nccl(
        ncclAllReduce(data.get(), data.get(), 1, ncclFloat32, ncclSum, communicator, stream));
    return data.values().front();
}

TEST_CASE("child that sums", "[.]") {
    const int rank = rank_in_environment();
    const ncclComm_t communicator = join(id_in_environment(), rank, 3);
    CHECK(sum_over(communicator, rank + 1.0) == 6);
    CHECK(ncclCommDestroy(communicator) == ncclSuccess);
}

TEST_CASE("an all-reduce works between processes") {
    const ncclUniqueId id = new_id();
    const pid_t first = spawn("child that sums", id, 1);
    const pid_t second = spawn("child that sums", id, 2);
    const ncclComm_t communicator = join(id, 0, 3);
    CHECK(sum_over(communicator, 1) == 6);  // 1 + 2 + 3
    CHECK(ncclCommDestroy(communicator) == ncclSuccess);
    CHECK(exit_code_of(first) == 0);
    CHECK(exit_code_of(second) == 0);
}

TEST_CASE("child that exits", "[.]") {
    join(id_in_environment(), rank_in_environment(), 3);
    ::_exit(0);
}

void outlive_a_peer(ncclComm_t communicator) {
    const cudaStream_t stream = new_stream();
    const DeviceNumbers data(testing::format_of_float32, {1.0}, stream);
    const auto reduce = [&] {
        return ncclAllReduce(data.get(), data.get(), 1, ncclFloat32, ncclSum, communicator, stream);
    };
    CHECK(reduce() == ncclSuccess);
    CHECK(wait_for_error(communicator) == ncclRemoteError);
    CHECK(ncclGetLastError(communicator) == std::string("connection closed by rank 2"));
    CHECK(cudaStreamQuery(stream) == cudaErrorNotReady);
    CHECK(reduce() == ncclRemoteError);
    CHECK(ncclCommAbort(communicator) == ncclSuccess);
    CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
}

TEST_CASE("child that outlives a peer", "[.]") {
    outlive_a_peer(join(id_in_environment(), rank_in_environment(), 3));
}

TEST_CASE("when a process is gone, the others learn of it and stay stuck until they abort") {
    const ncclUniqueId id = new_id();
    const pid_t survivor = spawn("child that outlives a peer", id, 1);
    const pid_t leaver = spawn("child that exits", id, 2);
    const ncclComm_t communicator = join(id, 0, 3);
    CHECK(exit_code_of(leaver) == 0);
    // Rank 1 hears of it from rank 0, which must not hang up before.
    outlive_a_peer(communicator);
    CHECK(exit_code_of(survivor) == 0);
}

TEST_CASE("child that leaves a collective behind", "[.]") {
    const ncclComm_t communicator = join(id_in_environment(), rank_in_environment(), 2);
    const cudaStream_t stream = new_stream();
    void* memory = nullptr;
    CHECK(cudaMalloc(&memory, 4) == cudaSuccess);
    CHECK(ncclAllReduce(memory, memory, 1, ncclFloat32, ncclSum, communicator, stream) ==
          ncclSuccess);
}

TEST_CASE("a process can exit while a collective is stuck") {
    const ncclUniqueId id = new_id();
    const pid_t child = spawn("child that leaves a collective behind", id, 1);
    const ncclComm_t communicator = join(id, 0, 2);
    CHECK(exit_code_of(child) == 0);
    CHECK(ncclCommAbort(communicator) == ncclSuccess);
}

}  // namespace
}  // namespace bucketwise
