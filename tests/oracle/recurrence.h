// The oracle of the engine: without interference, copies and launch costs a step is a recurrence
// that needs no simulation. Includes nothing of the project, so it cannot share a mistake with it.
//
//   start[b] = max(ready[b], end[b-1]),  end[b] = start[b] + cost[b]
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace oracle {

struct BucketTimes {
    std::vector<std::int64_t> start_ps;
    std::vector<std::int64_t> end_ps;
};

inline BucketTimes recurrence(const std::vector<std::int64_t>& ready_ps,
                              const std::vector<std::int64_t>& cost_ps) {
    BucketTimes times;
    std::int64_t previous_end = 0;
    for (std::size_t b = 0; b < ready_ps.size(); ++b) {
        times.start_ps.push_back(std::max(ready_ps[b], previous_end));
        times.end_ps.push_back(times.start_ps.back() + cost_ps[b]);
        previous_end = times.end_ps.back();
    }
    return times;
}

// One thing after another on the compute stream, each followed by a collective, or by none of cost
// 0. Where computing waits for its collective, it goes on when that ends.
struct ComputedAndSent {
    std::int64_t compute_ps = 0;
    std::int64_t cost_ps = 0;
    bool is_waited_for = false;
};

// When everything has ended.
inline std::int64_t step_with_waits(const std::vector<ComputedAndSent>& items) {
    std::int64_t now = 0;
    std::int64_t stream_end = 0;
    for (const ComputedAndSent& item : items) {
        now += item.compute_ps;
        if (item.cost_ps > 0) {
            stream_end = std::max(now, stream_end) + item.cost_ps;
        }
        if (item.is_waited_for) {
            now = std::max(now, stream_end);
        }
    }
    return std::max(now, stream_end);
}

// Time of `bytes` over a ring of `ranks`, written out from the definition.
inline double ring_all_reduce_ps(std::int64_t bytes, std::int64_t ranks, double launch_us,
                                 double latency_us, double gb_per_s) {
    const auto p = static_cast<double>(ranks);
    return launch_us * 1e6 + 2 * (p - 1) * latency_us * 1e6 +
           2 * (p - 1) / p * static_cast<double>(bytes) / gb_per_s * 1e3;
}

}  // namespace oracle
