#include "hw/gpu/gpu_copy_bench.h"

#include <cstddef>
#include <optional>
#include <stdexcept>

#include <fmt/format.h>

#include "hw/compute/elements.h"
#include "hw/compute/known_message.h"
#include "hw/gpu/chunk_table.h"
#include "hw/gpu/kernels/kernels.h"
#include "hw/gpu/runtime/device_memory.h"

namespace bucketwise {
namespace {

constexpr double pack_factor = 0.5;  // exact in every dtype

// From the beginning of one gradient to the next.
std::int64_t aligned_bytes(const CopyCase& c) {
    constexpr std::int64_t alignment = DeviceMemory::alignment_bytes;
    const std::int64_t bytes = c.numel * element_size(c.tensor_dtype).count;
    return (bytes + alignment - 1) / alignment * alignment;
}

std::vector<std::byte> gradient_values(const CopyCase& c) {
    std::vector<std::byte> values(static_cast<std::size_t>(c.tensors * aligned_bytes(c)));
    for (std::int64_t i = 0; i < c.tensors; ++i) {
        write_known_message(values.data() + i * aligned_bytes(c), c.numel, c.tensor_dtype,
                            static_cast<int>(i));
    }
    return values;
}

// Equal gradients in memory of their own, and the bucket they are packed into.
class BucketOnGpu {
  public:
    // `values`: the gradients', aligned_bytes(c) apart.
    BucketOnGpu(const CopyCase& c, const std::vector<std::byte>& values)
        : case_(c), tensors_(DeviceMemory::of(values)), bucket_(c.tensors * place_bytes()) {
        std::vector<TensorPlace> places;
        for (std::int64_t i = 0; i < c.tensors; ++i) {
            places.push_back({.tensor = tensor(i), .place = place(i), .numel = c.numel});
        }
        chunks_ = ChunkTable(places);
    }

    void launch(CopyWay way, const BucketOnGpu& other, const GpuStream& stream) const {
        switch (way) {
            case CopyWay::plain:
                return stream.copy(bucket_.at(0), other.bucket_.at(0), bucket_.size_bytes(),
                                   cudaMemcpyDeviceToDevice);
            case CopyWay::pack:
                return launch_pack(stream.get(), PackDirection::into_place, chunks_.data(),
                                   chunks_.count(), case_.place_dtype, case_.tensor_dtype,
                                   pack_factor);
            case CopyWay::unpack:
                return launch_pack(stream.get(), PackDirection::out_of_place, chunks_.data(),
                                   chunks_.count(), case_.tensor_dtype, case_.place_dtype,
                                   1.0 / pack_factor);
            case CopyWay::one_by_one:
                for (std::int64_t i = 0; i < case_.tensors; ++i) {
                    launch_copy(stream.get(), place(i), case_.place_dtype, tensor(i),
                                case_.tensor_dtype, case_.numel, pack_factor);
                }
                return;
        }
    }

    // Looks at the last tensor, which is wrong if anything before it was misplaced.
    void check_packed() const {
        std::vector<std::byte> packed(static_cast<std::size_t>(place_bytes()));
        bucket_.copy_out(packed.data(), (case_.tensors - 1) * place_bytes(), place_bytes());
        std::vector<std::byte> tensor(
            static_cast<std::size_t>(case_.numel * element_size(case_.tensor_dtype).count));
        write_known_message(tensor.data(), case_.numel, case_.tensor_dtype,
                            static_cast<int>(case_.tensors - 1));
        std::vector<std::byte> expected(packed.size());
        cast_scaled(expected.data(), case_.place_dtype, tensor.data(), case_.tensor_dtype,
                    case_.numel, pack_factor);
        if (packed != expected) {
            throw std::runtime_error(fmt::format("packing {} tensors of {} {} left wrong values",
                                                 case_.tensors, case_.numel,
                                                 name_of(case_.tensor_dtype)));
        }
    }

    [[nodiscard]] std::int64_t place_bytes() const {
        return case_.numel * element_size(case_.place_dtype).count;
    }

  private:
    [[nodiscard]] std::byte* tensor(std::int64_t i) const {
        return tensors_.at(i * aligned_bytes(case_));
    }
    [[nodiscard]] std::byte* place(std::int64_t i) const { return bucket_.at(i * place_bytes()); }

    CopyCase case_;
    DeviceMemory tensors_;
    DeviceMemory bucket_;
    ChunkTable chunks_;
};

}  // namespace

std::vector<CopyTimes> GpuCopyBench::run(const CopyCase& c, std::int64_t rounds) {
    std::vector<BucketOnGpu> buckets;
    const std::vector<std::byte> values = gradient_values(c);
    for (std::int64_t i = 0; i < buckets_beyond_caches(c); ++i) {
        buckets.emplace_back(c, values);
    }
    const std::int64_t place_bytes = c.tensors * buckets.front().place_bytes();
    const std::int64_t moved =
        place_bytes + c.tensors * c.numel * element_size(c.tensor_dtype).count;
    std::vector<CopyTimes> ways{{CopyWay::plain, 2 * place_bytes, {}},
                                {CopyWay::pack, moved, {}},
                                {CopyWay::unpack, moved, {}},
                                {CopyWay::one_by_one, moved, {}}};
    const GpuEvent begin(Timing::on);
    const GpuEvent end(Timing::on);
    for (std::int64_t round = -1; round < rounds; ++round) {
        for (CopyTimes& way : ways) {
            // So many launches are not held up: the host's pace is part of their time.
            const bool held = round >= 0 && way.way != CopyWay::one_by_one &&
                              buckets.size() < HeadStart::most_launches;
            std::optional<HeadStart::Hold> hold;
            if (held) {
                hold.emplace(head_start_, stream_);
            }
            begin.record(stream_);
            for (std::size_t i = 0; i < buckets.size(); ++i) {
                buckets[i].launch(way.way, buckets[(i + 1) % buckets.size()], stream_);
            }
            end.record(stream_);
            hold.reset();
            stream_.wait();
            head_start_.check();
            if (round >= 0) {
                way.samples.push_back(between(begin, end) / std::ssize(buckets));
            } else if (way.way == CopyWay::pack || way.way == CopyWay::one_by_one) {
                buckets.front().check_packed();
                buckets.back().check_packed();
            }
        }
    }
    return ways;
}

}  // namespace bucketwise
