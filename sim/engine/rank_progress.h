// One rank's state between two programs: streams, launch queue, and the times so far.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "sim/base/units.h"
#include "sim/program/program.h"

namespace bucketwise {

// One rank's time in each part of a step, waits included.
struct StepTimes {
    Duration forward{0};
    Duration backward{0};
    Duration optimizer{0};
    // The part of backward in the call that finishes synchronisation: on the compute stream, from
    // the end of backward and its hooks; and on the host, which may run ahead.
    Duration finishing{0};
    Duration finishing_host{0};
    bool operator==(const StepTimes&) const = default;

    void add(const StepTimes& other, std::int64_t times = 1) {
        for (const auto part : {&StepTimes::forward, &StepTimes::backward, &StepTimes::optimizer,
                                &StepTimes::finishing, &StepTimes::finishing_host}) {
            this->*part += times * other.*part;
        }
    }
    [[nodiscard]] Duration step() const { return forward + backward + optimizer; }
    [[nodiscard]] Duration& of(Phase phase) {
        return phase == Phase::forward ? forward : phase == Phase::backward ? backward : optimizer;
    }
};

// The limit of a host's lead: it issues an instruction once the instruction a queue's length
// earlier has run.
struct LaunchQueue {
    // Ends on the device of the last instructions, as many as the queue holds; the earliest issued
    // is at `next`. Empty: the queue never fills.
    std::vector<Duration> ends;
    std::size_t next = 0;
    bool operator==(const LaunchQueue&) const = default;

    // When the host can issue the instruction `ahead` places after the first that has not run.
    [[nodiscard]] Duration has_room(Duration host, std::size_t ahead = 0) const {
        if (ends.empty()) {
            return host;
        }
        const std::size_t place = next + ahead;
        return std::max(host, ends[place < ends.size() ? place : place - ends.size()]);
    }
    // Whether enough has run to know that.
    [[nodiscard]] bool knows_room(std::size_t ahead) const {
        return ends.empty() || ahead < ends.size();
    }
    void push(Duration end) {
        if (!ends.empty()) {
            ends[next] = end;
            next = next + 1 == ends.size() ? 0 : next + 1;
        }
    }
};

// Before any moment of a step: a host this far ahead delays nothing.
constexpr Duration far_ahead = -2 * longest_duration;

struct SideStreams {
    std::vector<Duration> ends = {};  // of streams 1, 2, ...; later streams have never run anything
    bool operator==(const SideStreams&) const = default;

    [[nodiscard]] Duration end_of(std::size_t stream) const {
        return stream > ends.size() ? far_ahead : ends[stream - 1];
    }
    // When every stream that `order` follows has ended; the compute stream does at `computed`.
    [[nodiscard]] Duration awaited(StreamOrder order, Duration computed) const {
        Duration latest = order.is_after(compute_stream) ? computed : far_ahead;
        for (std::size_t stream = 1; stream <= ends.size(); ++stream) {
            latest = order.is_after(stream) ? std::max(latest, ends[stream - 1]) : latest;
        }
        return latest;
    }
    [[nodiscard]] Duration begin(StreamOrder order, Duration issued, Duration computed) const {
        return std::max({issued, end_of(order.stream), awaited(order, computed)});
    }
    void set_end(std::uint8_t stream, Duration end) {
        if (stream > ends.size()) {
            ends.resize(stream, far_ahead);
        }
        ends[stream - std::size_t{1}] = end;
    }
    // Nothing can begin before the host, so earlier ends make no difference.
    void forget_before(Duration host) {
        for (Duration& end : ends) {
            end = std::max(end, host);
        }
    }
};

// One rank's state between two programs: everything issued has run, except on side streams.
struct RankProgress {
    Duration host{0};      // when the host finished issuing
    Duration device{0};    // when the compute stream finished
    StepTimes times = {};  // so far
    LaunchQueue queue = {};
    SideStreams sides = {};
    bool operator==(const RankProgress&) const = default;
};

}  // namespace bucketwise
