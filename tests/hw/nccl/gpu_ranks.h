// Several ranks with a GPU each in one process, a thread for each.
#pragma once

#include <cuda_runtime_api.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "hw/gloo/connection.h"
#include "hw/gpu/runtime/gpu_check.h"
#include "hw/gpu/runtime/gpu_choice.h"
#include "hw/nccl/gpu_messages.h"
#include "tests/hw/gloo/gloo_ranks.h"

namespace bucketwise::testing {

// Sanitizers take their time.
constexpr bool is_thorough = BUCKETWISE_TEST_SHARE == 1;

// Those of these numbers of ranks for which there are GPUs.
inline std::vector<int> possible_ranks(const std::vector<int>& wanted) {
    std::vector<int> possible;
    for (const int ranks : wanted) {
        if (ranks <= visible_gpus()) {
            possible.push_back(ranks);
        }
    }
    return possible;
}

// Connects the ranks and runs act(communicators, control, rank) on each.
template <typename Act>
std::vector<RankOutcome> on_gpus(int ranks, const Act& act,
                                 std::chrono::milliseconds deadline = std::chrono::seconds{180},
                                 std::optional<std::int64_t> ctas = {}) {
    return on_ranks(ranks, [&](GlooConnection& connection, int rank) {
        check_gpu(cudaSetDevice(rank), "cudaSetDevice");
        Communicators communicators(connection.control(), deadline, ctas);
        act(communicators, connection.control(), rank);
        connection.control().barrier();
    });
}

}  // namespace bucketwise::testing
