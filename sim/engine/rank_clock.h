// One rank's host, compute and side streams, where no queue of events moves them: when each
// instruction may begin, and what its end adds to the step. undisturbed.cpp and disturbed.cpp say
// when it ends.
#pragma once

#include <algorithm>
#include <utility>

#include "sim/base/invariant.h"
#include "sim/engine/engine.h"

namespace bucketwise {

class RankClock {
  public:
    RankClock(bool host_is_device, RankProgress start)
        : host_is_device_(host_is_device), now_(std::move(start)), accounted_(now_.device) {}

    // The host issues it. When the compute stream may begin with it, which comes after no other.
    Duration issue(const Instruction& instruction) {
        issue_on_host(instruction);
        return std::max(now_.device, now_.host);
    }

    // The same of a launch ahead of its place: when the host has issued it.
    Duration issue_ahead(const Instruction& instruction) {
        invariant(!host_is_device_, "a host that is the device has no other streams");
        issue_on_host(instruction);
        return now_.host;
    }

    // The same of one that comes after others.
    Duration issue_after(const Instruction& instruction) {
        return std::max(issue(instruction), now_.sides.awaited(instruction.order, now_.device));
    }

    // The host issues it, and it runs to its end on a side stream.
    void run_beside(const Instruction& instruction) {
        invariant(!host_is_device_, "a host that is the device has no other streams");
        issue_on_host(instruction);
        const Duration end =
            now_.sides.begin(instruction.order, now_.host, now_.device) + instruction.device;
        now_.sides.set_end(instruction.order.stream, end);
        leave_queue(instruction, end);
    }

    // What was issued last has ended.
    void finish(const Instruction& instruction, Duration end) {
        leave_queue(instruction, end);
        // A launch takes no time on the compute stream.
        if (instruction.kind == InstructionKind::launch && !host_is_device_) {
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

    // Leaves none here.
    [[nodiscard]] RankProgress take_progress() { return std::move(now_); }

  private:
    void issue_on_host(const Instruction& instruction) {
        const Duration begin =
            host_is_device_ ? std::max(now_.host, now_.device) : now_.queue.has_room(now_.host);
        now_.host = begin + instruction.host;
        if (instruction.finishing && !host_is_device_) {
            now_.times.finishing_host += instruction.host;
        }
    }

    void leave_queue(const Instruction& instruction, Duration end) {
        now_.queue.push(end);
        if (instruction.host_waits) {
            now_.host = std::max(now_.host, end);
        }
    }

    bool host_is_device_;
    RankProgress now_;
    Duration accounted_;  // the part of the step already counted to a phase
};

}  // namespace bucketwise
