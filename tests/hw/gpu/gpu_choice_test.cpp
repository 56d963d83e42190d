// The choice of a rank's GPU, and the settings of several ranks on one. Nothing here needs a GPU.
#include <algorithm>
#include <string>

#include "hw/gpu/runtime/gpu_check.h"
#include "hw/gpu/runtime/gpu_choice.h"
#include "hw/nccl/nccl_communicator.h"
#include "hw/rank/communicator.h"
#include "tests/catch.h"
#include "tests/contains.h"
#include "tests/hw/gloo/gloo_ranks.h"

namespace bucketwise {
namespace {

using testing::contains;

RankIdentity local(int rank, int ranks) {
    RankIdentity identity;
    identity.rank = identity.local_rank = rank;
    identity.ranks = identity.local_ranks = ranks;
    return identity;
}

TEST_CASE("a rank takes the GPU of its number on its machine") {
    for (int rank = 0; rank < 8; ++rank) {
        CHECK(gpu_for(local(rank, 8), 8, false) == rank);
        CHECK(gpu_for(local(rank, 8), 8, true) == rank);
    }
    // Rank 11 of 16 on two machines is the fourth of the second one.
    RankIdentity identity = local(3, 8);
    identity.rank = 11;
    identity.ranks = 16;
    CHECK(gpu_for(identity, 8, false) == 3);
}

TEST_CASE("ranks share GPUs in turn only where they were told to") {
    CHECK(gpu_for(local(1, 2), 1, true) == 0);
    CHECK(gpu_for(local(5, 8), 4, true) == 1);
    CHECK_THROWS_WITH(gpu_for(local(2, 3), 2, false),
                      "expected a GPU for each of the 3 ranks on this machine, or --share-gpu, got "
                      "2 GPUs");
}

TEST_CASE("the only visible GPU is taken, as a launcher may show each rank its own") {
    CHECK(gpu_for(local(3, 8), 1, false) == 0);
}

TEST_CASE("two ranks of one GPU are named") {
    CHECK(!ranks_of_one_gpu({}));
    CHECK(!ranks_of_one_gpu({5, 6, 7}));
    CHECK(ranks_of_one_gpu({5, 6, 7, 6, 5}) == std::pair<std::int64_t, std::int64_t>{1, 3});
}

TEST_CASE("GPUs of one machine have different fingerprints, each always the same") {
    std::vector<std::int64_t> fingerprints;
    for (int gpu = 0; gpu < visible_gpus(); ++gpu) {
        fingerprints.push_back(gpu_fingerprint(gpu));
        CHECK(gpu_fingerprint(gpu) == fingerprints.back());
        // Exchanged as a double.
        CHECK(static_cast<std::int64_t>(static_cast<double>(fingerprints.back())) ==
              fingerprints.back());
    }
    CHECK(!ranks_of_one_gpu(fingerprints));
}

TEST_CASE("every rank hears of two ranks on one GPU") {
    const std::vector<testing::RankOutcome> outcomes =
        testing::on_ranks(3, [](GlooConnection& connection, int rank) {
            check_gpus_differ(connection.control(), rank == 2 ? 0 : rank);
        });
    for (const testing::RankOutcome& outcome : outcomes) {
        CHECK(outcome.ending == testing::Ending::other_failure);
        CHECK(outcome.reason ==
              "ranks 0 and 2 have the same GPU: expected one for each rank, or --share-gpu");
    }
}

TEST_CASE("a GPU is described by name, memory, multiprocessors and driver") {
    const std::string text = describe_gpu(0);
    CHECK(contains(text, " multiprocessors, compute capability "));
    CHECK(contains(text, "driver for CUDA "));
}

TEST_CASE("ranks that share a GPU pass for hosts of their own and talk over sockets") {
    const auto value_of = [](const auto& variables, const std::string& name) {
        const auto found = std::find_if(variables.begin(), variables.end(),
                                        [&](const auto& v) { return v.first == name; });
        return found == variables.end() ? "" : found->second;
    };
    const auto first = share_gpu_environment(0, "");
    const auto second = share_gpu_environment(1, "eth7");
    CHECK(value_of(first, "NCCL_HOSTID") != value_of(second, "NCCL_HOSTID"));
    CHECK(value_of(first, "NCCL_NET") == "Socket");
    CHECK(value_of(first, "NCCL_SOCKET_IFNAME") == "lo");
    CHECK(value_of(second, "NCCL_SOCKET_IFNAME") == "eth7");
}

// NOLINTBEGIN(concurrency-mt-unsafe): this test runs in one thread
TEST_CASE("what the user has set in the environment stays") {
    ::setenv("BUCKETWISE_TEST_SET", "mine", 1);
    ::unsetenv("BUCKETWISE_TEST_UNSET");
    apply_environment({{"BUCKETWISE_TEST_SET", "ours"}, {"BUCKETWISE_TEST_UNSET", "ours"}});
    CHECK(std::string(::getenv("BUCKETWISE_TEST_SET")) == "mine");
    CHECK(std::string(::getenv("BUCKETWISE_TEST_UNSET")) == "ours");
}
// NOLINTEND(concurrency-mt-unsafe)

TEST_CASE("an error of CUDA, cuBLAS or NCCL names the call, the code and the place") {
    CHECK_THROWS_WITH(check_gpu(cudaErrorInvalidValue, "cudaMalloc"),
                      Catch::Matchers::Contains("cudaMalloc: cudaErrorInvalidValue (") &&
                          Catch::Matchers::Contains("gpu_choice_test.cpp:"));
    CHECK_THROWS_WITH(check_gpu(CUBLAS_STATUS_NOT_SUPPORTED, "cublasGemmEx"),
                      Catch::Matchers::Contains("CUBLAS_STATUS_NOT_SUPPORTED"));
    CHECK_THROWS_AS(check_nccl(ncclRemoteError, "ncclAllReduce", nullptr), PeerFailure);
    CHECK_THROWS_AS(check_nccl(ncclInvalidUsage, "ncclAllReduce", nullptr), GpuError);
    CHECK_NOTHROW(check_nccl(ncclSuccess, "ncclAllReduce", nullptr));
}

}  // namespace
}  // namespace bucketwise
