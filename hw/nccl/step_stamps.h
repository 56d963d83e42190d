// The begins and ends of a step's work on a GPU's streams: events around its instructions and
// collectives, issued one after another, or each by itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "hw/compute/kernel_plan.h"
#include "hw/gpu/head_start.h"
#include "hw/gpu/runtime/device_memory.h"
#include "hw/gpu/runtime/gpu_stream.h"
#include "hw/nccl/nccl_communicator.h"
#include "hw/record/step_trace.h"
#include "sim/program/program.h"
#include "sim/scenario/scenario.h"

namespace bucketwise {

// How many steps are issued before the one that is timed, for the host to be as far ahead of the
// GPU as it gets; none where each begins with both idle.
int steps_leading_in(const Scenario& scenario);

class StepStamps {
  public:
    // Kept by reference: where a step computes.
    explicit StepStamps(const GpuStream& compute) : compute_(compute), scratch_(scratch_bytes) {}

    struct CollectiveEvents {
        GpuEvent launched{Timing::off};
        GpuEvent begin{Timing::on};
        GpuEvent end{Timing::on};
        GpuEvent done{Timing::off};
    };

    // Measures the time that a stamp adds to an interval.
    void calibrate();
    [[nodiscard]] Duration stamp_time() const { return stamp_time_; }
    // Room for the events of such a program.
    void reserve(const Program& program);

    [[nodiscard]] const CollectiveEvents& of_collective(std::int32_t collective) const {
        return collectives_[static_cast<std::size_t>(collective)];
    }
    [[nodiscard]] const GpuEvent& start() const { return start_; }
    [[nodiscard]] const GpuEvent& end() const { return end_; }
    // While a stream is captured events are recorded as part of the graph.
    void stamp(const GpuEvent& event, const GpuStream& stream, bool is_captured) const;

    // execute(i) puts instruction i on its stream. Returns when the host issued each, from the
    // first one on.
    std::vector<Interval> issue(const Program& program,
                                const std::function<void(std::size_t)>& execute,
                                bool is_captured = false) const;
    // Waits for a step behind `steps` others. Each collective may take as long as the
    // communicator's deadline, and so may the end. `is_idle`: nothing is left on other streams.
    void finish(const Program& program, NcclCommunicator& communicator, std::size_t steps,
                const std::function<bool()>& is_idle) const;
    // The same for a step that is one graph: its events tell nothing before they have been
    // recorded.
    void finish_graph(const Program& program, NcclCommunicator& communicator, std::size_t steps,
                      const std::function<bool()>& is_idle) const;
    // Reads the times of a finished step.
    void read(const Program& program, StepTrace& trace) const;

    // Every instruction that computes by itself, none waiting for its launch; operations are those
    // of `plan`. Collectives are left out.
    StepTrace run_each(const Program& program, const std::function<void(std::size_t)>& execute,
                       const KernelPlan& plan, NcclCommunicator& communicator);

    // Lets go of what is held up.
    void release() { head_start_.release(); }

  private:
    static constexpr std::int64_t scratch_bytes = 32;  // two words of 16

    const GpuStream& compute_;
    HeadStart head_start_;
    DeviceMemory scratch_;  // for timing stamps
    Duration stamp_time_{0};
    GpuEvent start_{Timing::on};
    GpuEvent end_{Timing::on};
    std::vector<GpuEvent> stamps_;  // by instruction; those that are used are recorded
    std::vector<CollectiveEvents> collectives_;
};

}  // namespace bucketwise
