// One rank's host, compute stream and side streams: when each instruction can begin, and its part
// of the step. The engine and undisturbed.cpp say when it ends.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>

#include "sim/base/invariant.h"
#include "sim/engine/rank_progress.h"

namespace bucketwise {

class RankClock {
  public:
    RankClock(bool host_is_device, RankProgress start)
        : host_is_device_(host_is_device), now_(std::move(start)), accounted_(now_.device) {}

    // The host issues the next instruction. When it begins to do so.
    Duration issue(const Instruction& instruction) {
        const Duration begin = host_is_device_ ? std::max(now_.host, now_.device)
                                               : now_.queue.has_room(now_.host, ahead_);
        ++ahead_;
        now_.host = begin + instruction.host;
        if (instruction.finishing && !host_is_device_) {
            now_.times.finishing_host += instruction.host;
        }
        return begin;
    }
    // Whether enough has run to know when the host can issue another one.
    [[nodiscard]] bool knows_room() const { return now_.queue.knows_room(ahead_); }

    [[nodiscard]] Duration host() const { return now_.host; }

    // The earliest begin on the compute stream of an instruction issued at `issued`.
    [[nodiscard]] Duration begin(const Instruction& instruction, Duration issued) const {
        const Duration free = std::max(now_.device, issued);
        return instruction.order.after == 0
                   ? free
                   : std::max(free, now_.sides.awaited(instruction.order, now_.device));
    }

    // Begin and end of the last issued instruction on its side stream. finish() follows.
    std::pair<Duration, Duration> run_beside(const Instruction& instruction) {
        invariant(!host_is_device_, "a host that is the device has no other streams");
        const Duration begin = now_.sides.begin(instruction.order, now_.host, now_.device);
        const Duration end = begin + instruction.device;
        now_.sides.set_end(instruction.order.stream, end);
        return {begin, end};
    }

    // The first instruction of those issued has ended.
    void finish(const Instruction& instruction, Duration end) {
        now_.queue.push(end);
        --ahead_;
        if (instruction.host_waits) {
            now_.host = std::max(now_.host, end);
        }
        // A launch takes no time on the compute stream.
        if (instruction.order.is_beside() ||
            (instruction.kind == InstructionKind::launch && !host_is_device_)) {
            return;
        }
        now_.device = end;
        const Duration passed = end - accounted_;
        accounted_ = end;
        now_.times.of(instruction.phase) += passed;
        if (instruction.finishing) {
            now_.times.finishing += passed;
            now_.times.finishing_host += host_is_device_ ? passed : Duration{0};
        }
    }

    // Leaves the clock empty.
    [[nodiscard]] RankProgress take_progress() { return std::move(now_); }

  private:
    bool host_is_device_;
    RankProgress now_;
    Duration accounted_;     // the part of the step already counted to a phase
    std::size_t ahead_ = 0;  // instructions issued and not finished
};

}  // namespace bucketwise
