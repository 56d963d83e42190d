#include "hw/cpu/cpu_devices.h"

#include <chrono>
#include <cstring>

#include "hw/compute/arena.h"
#include "hw/compute/elements.h"

namespace bucketwise {

std::vector<CopyTimes> CpuCopyBench::run(const CopyCase& c, std::int64_t rounds) {
    const std::int64_t tensor_bytes = c.numel * element_size(c.tensor_dtype).count;
    const std::int64_t place_bytes = c.numel * element_size(c.place_dtype).count;
    const std::int64_t buckets = buckets_beyond_caches(c);
    std::vector<Arena> gradients;
    std::vector<Arena> places;
    for (std::int64_t i = 0; i < buckets; ++i) {
        gradients.emplace_back(c.tensors * tensor_bytes);
        places.emplace_back(c.tensors * place_bytes);
    }
    const auto each_tensor = [&](auto act) {
        for (std::int64_t i = 0; i < c.tensors; ++i) {
            act(i * tensor_bytes, i * place_bytes);
        }
    };
    constexpr double factor = 0.5;
    const std::int64_t moved = c.tensors * (tensor_bytes + place_bytes);
    std::vector<CopyTimes> ways{{CopyWay::plain, 2 * c.tensors * place_bytes, {}},
                                {CopyWay::pack, moved, {}},
                                {CopyWay::unpack, moved, {}}};
    const auto run_once = [&](CopyWay way, std::size_t bucket) {
        Arena& from = gradients[bucket];
        Arena& to = places[bucket];
        if (way == CopyWay::plain) {
            std::memcpy(to.at(0), places[(bucket + 1) % places.size()].at(0),
                        static_cast<std::size_t>(to.size_bytes()));
        } else if (way == CopyWay::pack) {
            each_tensor([&](std::int64_t tensor, std::int64_t place) {
                cast_scaled(to.at(place), c.place_dtype, from.at(tensor), c.tensor_dtype, c.numel,
                            factor);
            });
        } else {
            each_tensor([&](std::int64_t tensor, std::int64_t place) {
                cast_scaled(from.at(tensor), c.tensor_dtype, to.at(place), c.place_dtype, c.numel,
                            1.0);
            });
        }
    };
    for (std::int64_t round = -1; round < rounds; ++round) {
        for (CopyTimes& way : ways) {
            const auto begin = std::chrono::steady_clock::now();
            for (std::size_t bucket = 0; bucket < places.size(); ++bucket) {
                run_once(way.way, bucket);
            }
            const auto time = std::chrono::steady_clock::now() - begin;
            if (round >= 0) {
                way.samples.push_back(std::chrono::duration_cast<Duration>(time) / buckets);
            }
        }
    }
    return ways;
}

}  // namespace bucketwise
