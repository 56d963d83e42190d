#include "import/nsys/export_process.h"

#include <algorithm>
#include <tuple>

#include <fmt/format.h>

#include "sim/base/error.h"

namespace bucketwise {

std::int32_t HostThread::innermost(std::int64_t at_ns) const {
    const auto after = std::ranges::upper_bound(ranges, at_ns, {}, &HostRange::begin_ns);
    auto range = static_cast<std::int32_t>(after - ranges.begin()) - 1;
    while (range >= 0 && ranges[static_cast<std::size_t>(range)].end_ns < at_ns) {
        range = ranges[static_cast<std::size_t>(range)].parent;
    }
    return range;
}

std::size_t HostThread::nest() {
    const auto order = [](const HostRange& range) {
        return std::tuple(range.begin_ns, -range.end_ns);
    };
    if (!std::ranges::is_sorted(ranges, {}, order)) {
        std::ranges::stable_sort(ranges, {}, order);
    }
    std::size_t deepest = 0;
    std::vector<std::int32_t> open;
    for (std::size_t i = 0; i < ranges.size(); ++i) {
        HostRange& range = ranges[i];
        while (!open.empty() &&
               ranges[static_cast<std::size_t>(open.back())].end_ns < range.end_ns) {
            open.pop_back();
        }
        range.parent = open.empty() ? -1 : open.back();
        open.push_back(static_cast<std::int32_t>(i));
        deepest = std::max(deepest, open.size());
    }
    std::ranges::stable_sort(notes, {}, &CollectiveNote::begin_ns);
    return deepest;
}

// Within a group (ncclGroupStart to ncclGroupEnd, as PyTorch has around each) the calls come first
// and the launch is the group's end.
void HostThread::match_notes() {
    std::ranges::stable_sort(collectives, {}, &CollectiveLaunch::begin_ns);
    auto note = notes.begin();
    for (CollectiveLaunch& launch : collectives) {
        for (; note != notes.end() && note->begin_ns <= launch.begin_ns; ++note) {
            if (note->bytes >= 0) {
                launch.bytes = std::max<std::int64_t>(launch.bytes, 0) + note->bytes;
            }
            launch.communicator =
                note->communicator != 0 ? note->communicator : launch.communicator;
        }
    }
}

std::int32_t ExportProcess::thread_number(std::int64_t global_id) {
    const auto number = static_cast<std::int32_t>(threads.size());
    const auto [found, is_new] = thread_numbers.emplace(global_id, number);
    if (is_new) {
        constexpr std::size_t thread_bytes = 300;
        kept.hold(thread_bytes);
        threads.push_back({.label = fmt::format("{}", global_id)});
    }
    return found->second;
}

std::int64_t ExportProcess::device() const {
    constexpr std::int64_t least_share = 20;  // a twentieth; less is no part of its steps
    const auto busiest =
        std::ranges::max_element(device_ns, {}, [](const auto& entry) { return entry.second; });
    for (const auto& [other, ns] : device_ns) {
        if (other != busiest->first && ns > busiest->second / least_share) {
            throw InputError(file, "/CUPTI_ACTIVITY_KIND_KERNEL",
                             "one GPU for each process (DistributedDataParallel)",
                             fmt::format("process {} with kernels on GPUs {} and {}", id & 0xffffff,
                                         busiest->first, other));
        }
    }
    return busiest->first;
}

const LaunchCall* ExportProcess::launch_of(std::int64_t correlation) const {
    const auto found =
        std::ranges::lower_bound(launches, correlation, {}, &LaunchCall::correlation);
    return found == launches.end() || found->correlation != correlation ? nullptr : &*found;
}

}  // namespace bucketwise
