#include "hw/training/training_check.h"

#include <bit>
#include <cstddef>

#include <fmt/format.h>

namespace bucketwise {
namespace {

// Element by element, each step a bijection of the hash so far for any element: two tensors that
// differ in one element never collide, others with a chance of 2^-64. Four chains, so that this
// takes little of the time that lies between steps.
std::int64_t hash_of(const std::vector<float>& values) {
    constexpr std::size_t chains = 4;
    constexpr std::uint64_t factor = 0x9E3779B97F4A7C15U;  // odd
    std::uint64_t hashes[chains] = {1, 2, 3, 4};
    for (std::size_t i = 0; i < values.size(); ++i) {
        std::uint64_t& hash = hashes[i % chains];
        hash = (hash ^ std::bit_cast<std::uint32_t>(values[i])) * factor;
        hash ^= hash >> 32U;
    }
    std::uint64_t all = 0;
    for (const std::uint64_t hash : hashes) {
        all = (std::rotl(all, 17) ^ hash) * factor;
    }
    return static_cast<std::int64_t>(all);
}

}  // namespace

std::vector<std::int64_t> hashes_of(const Trainer& trainer, CheckedTensors tensors) {
    std::vector<std::int64_t> hashes;
    const auto count = static_cast<std::int32_t>(trainer.workload().gradients.size());
    for (std::int32_t i = 0; i < count; ++i) {
        hashes.push_back(hash_of(tensors == CheckedTensors::gradients ? trainer.gradient(i)
                                                                      : trainer.parameter(i)));
    }
    return hashes;
}

void check_equal_on_all_ranks(const Trainer& trainer, CheckedTensors tensors, ControlGroup& control,
                              const std::string& when) {
    const std::vector<std::int64_t> own = hashes_of(trainer, tensors);
    std::vector<std::int64_t> of_first = own;
    control.broadcast_from_first(of_first);
    for (std::size_t i = 0; i < own.size(); ++i) {
        if (own[i] != of_first[i]) {
            throw RanksDiffer(fmt::format(
                "the {} {} {} is not bit for bit that of rank 0",
                tensors == CheckedTensors::gradients ? "reduced gradient of" : "parameter",
                trainer.workload().gradients[i].name, when));
        }
    }
}

}  // namespace bucketwise
