#include "hw/cpu/cpu_rank.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "hw/compute/elements.h"
#include "hw/compute/gradient_pattern.h"

namespace bucketwise {

CpuRank::CpuRank(const Scenario& scenario, const Workload& workload, const SyncSettings& sync,
                 Communicator& communicator)
    : OnCpu(communicator, scenario, workload, sync, communicator.rank(), communicator.ranks()),
      memory_(this->workload(), sync),
      kernels_(kernel_plan(), this->workload().gradients, memory_.buffers, scenario.step.optimizer),
      communicator_(communicator) {
    CpuRank::lay_out();
}

StepTrace CpuRank::run(const ReplayedStep& step, std::int64_t number, Communicate communicate) {
    begin_step(step, number, communicate);
    tickets_.assign(step.program.collectives.size(), {});
    std::fill_n(memory_.unused_map.floats(), workload().gradients.size(), 1.0F);
    const std::vector<std::byte>& initial = statistics().initial();
    if (memory_.statistics.size_bytes() < std::ssize(initial)) {
        memory_.statistics = Arena(std::ssize(initial));
    }
    std::ranges::copy(initial, memory_.statistics.at(0));
    set_out_together(communicate == Communicate::yes);
    return traced_step(step.program.instructions.size(), tickets_,
                       [&](std::size_t i) { execute(step.program.instructions[i]); });
}

void CpuRank::copy(InstructionKind kind, std::int32_t subject) {
    const Copy c = copy_of(kind, subject, memory_.buffers);
    if (kind == InstructionKind::copy_in || kind == InstructionKind::copy_back) {
        copy_scaled(c.to, c.from, c.numel, c.to_dtype, c.factor);
    } else {
        cast_scaled(c.to, c.to_dtype, c.from, c.from_dtype, c.numel, c.factor);
    }
}

// A CPU has no launches to save: copy by copy, each with its cast.
void CpuRank::pack(std::int32_t index, PackDirection direction, double factor) {
    const bool in = direction == PackDirection::into_place;
    const DType packed = packed_dtype_of(index);
    const DType own = bucket(index).dtype;
    pack_all(places_in(index, memory_.buffers), direction, in ? packed : own, in ? own : packed,
             factor);
}

void CpuRank::copy_buffers(std::int32_t group) {
    const auto index = static_cast<std::size_t>(group);
    std::memcpy(memory_.module_buffers[index].at(0), memory_.broadcast[index].at(0),
                static_cast<std::size_t>(memory_.broadcast[index].size_bytes()));
}

void CpuRank::launch(std::int32_t collective) {
    tickets_[static_cast<std::size_t>(collective)] = thread().launch(
        [this, exchange = exchange_of(collective, memory_),
         communicates = step().communicate == Communicate::yes, mean = step().rules.mean_factor()] {
            if (communicates) {
                carry(communicator_, exchange);
            }
            // Where no copy divides, the collective averages, as NCCL's does. Averaging is
            // computing, so it is not free.
            if (exchange.averages) {
                copy_scaled(exchange.own, exchange.own, exchange.elements(), exchange.dtype, mean);
            }
        });
}

StepCheck CpuRank::check() {
    StepCheck check;
    const double mean = exact_mean();
    const std::vector<double> relative = tolerances();
    for (std::size_t i = 0; i < relative.size(); ++i) {
        const Gradient& gradient = workload().gradients[i];
        const auto index = static_cast<std::int32_t>(i);
        check.add(
            check_gradient(memory_.buffers.gradient(index), gradient.dtype, gradient.numel,
                           kernel_plan().columns[i], gradient_factor(index) * mean, relative[i]),
            "gradient " + gradient.name, "the mean ");
    }
    if (step().reduces_unused_map) {
        check_unused_map({memory_.unused_map.floats(), relative.size()}, check);
    }
    const std::byte* exchanged = memory_.statistics.at(0);
    check_statistics({exchanged, exchanged + statistics().initial().size()}, check);
    return check;
}

}  // namespace bucketwise
