// The part of a rank on a GPU that is the same for every kind of step: a stream computes, others
// communicate, and the host launches for all of them.
//
// A step is timed as one of many, with a host that runs ahead of the GPU, unless the scenario has
// it start from idle. Times are the GPU's, by events. A step is stamped only where somebody waits
// and where its phases end: a stamp after every operation would slow a host that can hardly keep
// up.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <utility>
#include <vector>

#include "hw/compute/kernel_plan.h"
#include "hw/compute/planned_kernels.h"
#include "hw/gpu/runtime/gpu_stream.h"
#include "hw/nccl/contention.h"
#include "hw/nccl/gpu_messages.h"
#include "hw/nccl/nccl_communicator.h"
#include "hw/nccl/step_stamps.h"
#include "hw/rank/rank_device.h"
#include "sim/base/transformed.h"
#include "sim/program/program.h"
#include "sim/scenario/scenario.h"

namespace bucketwise {

// Replaying: a kind of step on any device.
template <typename Replaying>
class OnGpu : public Replaying {
  public:
    MessageTrace measure(const Message& message, std::int64_t iterations) override {
        return messages_.measure(message, iterations);
    }
    std::vector<Duration> repeat(const Message& message, std::int64_t iterations,
                                 const std::function<void()>& waiting) override {
        return messages_.repeat(message, iterations, waiting);
    }

    std::vector<Duration> backward_alone() override {
        const std::size_t operations = this->workload().backward.size();
        Program program;
        for (std::size_t i = 0; i < operations; ++i) {
            program.instructions.push_back({.kind = InstructionKind::backward,
                                            .phase = Phase::backward,
                                            .subject = static_cast<std::int32_t>(i)});
        }
        stamps_.reserve(program);
        const auto warm_up = [&] {
            for (std::size_t i = 0; i < operations; ++i) {
                launch_backward(i);
            }
            PatientWait(communicator()).until([&] { return compute_.is_idle(); }, "backward");
        };
        const auto time = [&] {
            const StepTrace trace = stamps_.run_each(
                program, [this](std::size_t i) { launch_backward(i); }, this->kernel_plan(),
                communicator());
            return transformed(trace.instructions, &Interval::length);
        };
        return times_alone(operations, warm_up, time);
    }

    ContentionTrace contend(const Message& message, std::int64_t iterations,
                            const std::vector<Duration>& alone) override {
        messages_.prepare(message);
        const Load collectives{messages_.stream(), [&](std::size_t) { messages_.launch(message); }};
        const Load backward{compute_, [&](std::size_t i) { launch_backward(i); }};
        OperationsAlone operations{.times = alone};
        for (const KernelCall& call : this->kernel_plan().backward) {
            operations.are_products.push_back(call.product.has_value());
        }
        const RanTogether ran = run_together(communicators_.with_ctas(message.ctas), collectives,
                                             iterations, backward, alone.size());
        return contention_of(ran, operations, stamps_.stamp_time());
    }

  protected:
    // `communicators` is kept by reference.
    template <typename... Arguments>
    OnGpu(const Scenario& scenario, Communicators& communicators, Arguments&&... arguments)
        : Replaying(scenario, std::forward<Arguments>(arguments)...),
          communicators_(communicators),
          messages_(communicators),
          lead_in_(steps_leading_in(scenario)) {}

    // For destructors: memory that a collective still uses must not go, and cudaFree would wait
    // for the collective for ever.
    void end(std::initializer_list<const GpuStream*> others = {}) {
        stamps_.release();
        bool are_well = ends_well(compute_) && ends_well(messages_.stream());
        for (const GpuStream* stream : others) {
            are_well = ends_well(*stream) && are_well;
        }
        if (!are_well) {
            communicators_.abort();
        }
    }

    [[nodiscard]] NcclCommunicator& communicator() const { return communicators_.of_steps(); }
    [[nodiscard]] std::size_t led_in() const { return static_cast<std::size_t>(lead_in_); }

    Communicators& communicators_;
    GpuStream compute_;
    GpuMessages messages_;  // has the communication stream
    int lead_in_;           // steps before the one that is timed
    StepStamps stamps_{compute_};

  private:
    PlannedKernels& kernels() override = 0;

    // Puts an operation on the stream. Its result is no gradient of any step.
    void launch_backward(std::size_t operation) {
        kernels().backward(static_cast<std::int32_t>(operation), 1.0F, false);
    }
};

}  // namespace bucketwise
