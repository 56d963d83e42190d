#include "hw/gpu/head_start.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "hw/gpu/kernels/kernels.h"
#include "sim/base/statistics.h"

namespace bucketwise {

void HeadStart::hold(const GpuStream& stream) {
    gave_up_.set(0);
    ++held_;
    launch_wait_for_flag(stream.get(), flag_.get(), held_, gave_up_.get());
}

void HeadStart::release() {
    flag_.set(held_);
}

void HeadStart::check() const {
    if (gave_up_.value() != 0) {
        throw GpuError(
            "the GPU did not wait for the host to launch what it was to time: the driver made the "
            "host wait for the GPU first; CUDA_MODULE_LOADING=EAGER or a larger "
            "CUDA_DEVICE_MAX_CONNECTIONS may help");
    }
}

Duration time_of_a_stamp(const GpuStream& stream, HeadStart& head_start,
                         const DeviceMemory& memory) {
    constexpr std::size_t count = 64;
    constexpr std::int64_t word_bytes = 16;
    std::vector<GpuEvent> stamps;
    for (std::size_t i = 0; i < count; ++i) {
        stamps.emplace_back(Timing::on);
    }
    const GpuEvent begin(Timing::on);
    const GpuEvent end(Timing::on);
    const auto timed = [&](bool with_stamps) {
        {
            const HeadStart::Hold hold(head_start, stream);
            begin.record(stream);
            for (const GpuEvent& event : stamps) {
                launch_copy(stream.get(), memory.at(word_bytes), DType::float32, memory.at(0),
                            DType::float32, word_bytes / 4, 1.0);
                if (with_stamps) {
                    event.record(stream);
                }
            }
            end.record(stream);
        }
        stream.wait();
        head_start.check();
        return between(begin, end);
    };
    launch_copy(stream.get(), memory.at(word_bytes), DType::float32, memory.at(0), DType::float32,
                word_bytes / 4, 1.0);  // loads the kernel
    stream.wait();
    std::vector<Duration> differences;
    for (int round = 0; round < 9; ++round) {
        const Duration without = timed(false);
        differences.push_back(timed(true) - without);
    }
    return std::max(Duration{0},
                    upper_median(std::move(differences)) / static_cast<std::int64_t>(count));
}

}  // namespace bucketwise
