#include "tests/emulated_gpu/nccl/reduction.h"

#include <Eigen/Core>
#include <cstdint>
#include <type_traits>

namespace bucketwise::emulated {
namespace {

template <typename T>
void reduce_as(std::vector<std::vector<std::byte>>& contributions, ncclRedOp_t operation) {
    constexpr bool integer = std::is_integral_v<T>;
    const auto ranks = static_cast<double>(contributions.size());
    const std::size_t count = contributions[0].size() / sizeof(T);
    auto* sum = reinterpret_cast<T*>(contributions[0].data());
    const bool scales = operation == ncclAvg && !integer;
    const T factor = scales ? static_cast<T>(1.0 / ranks) : static_cast<T>(1);
    for (std::size_t i = 0; scales && i < count; ++i) {
        sum[i] = static_cast<T>(sum[i] * factor);
    }
    for (std::size_t rank = 1; rank < contributions.size(); ++rank) {
        const auto* addend = reinterpret_cast<const T*>(contributions[rank].data());
        for (std::size_t i = 0; i < count; ++i) {
            if (operation == ncclMax) {
                sum[i] = sum[i] < addend[i] ? addend[i] : sum[i];
            } else {
                sum[i] = static_cast<T>(sum[i] + static_cast<T>(addend[i] * factor));
            }
        }
    }
    if constexpr (integer) {
        for (std::size_t i = 0; operation == ncclAvg && i < count; ++i) {
            sum[i] = static_cast<T>(sum[i] / static_cast<T>(contributions.size()));
        }
    }
}

}  // namespace

std::size_t size_of(ncclDataType_t type) {
    switch (type) {
        case ncclInt8:
        case ncclUint8:
            return 1;
        case ncclFloat16:
        case ncclBfloat16:
            return 2;
        case ncclFloat32:
        case ncclInt32:
            return 4;
        case ncclFloat64:
        case ncclInt64:
            return 8;
        default:
            return 0;
    }
}

bool is_known(ncclRedOp_t operation) {
    return operation == ncclSum || operation == ncclAvg || operation == ncclMax;
}

void reduce(std::vector<std::vector<std::byte>>& contributions, ncclDataType_t type,
            ncclRedOp_t operation) {
    switch (type) {
        case ncclFloat16:
            return reduce_as<Eigen::half>(contributions, operation);
        case ncclBfloat16:
            return reduce_as<Eigen::bfloat16>(contributions, operation);
        case ncclFloat32:
            return reduce_as<float>(contributions, operation);
        case ncclFloat64:
            return reduce_as<double>(contributions, operation);
        case ncclInt8:
            return reduce_as<std::int8_t>(contributions, operation);
        case ncclUint8:
            return reduce_as<std::uint8_t>(contributions, operation);
        case ncclInt32:
            return reduce_as<std::int32_t>(contributions, operation);
        case ncclInt64:
            return reduce_as<std::int64_t>(contributions, operation);
        default:
            return;
    }
}

}  // namespace bucketwise::emulated
