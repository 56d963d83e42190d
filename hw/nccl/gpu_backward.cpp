#include "hw/nccl/gpu_backward.h"

#include "hw/nccl/contention.h"
#include "hw/nccl/nccl_communicator.h"

namespace bucketwise {

Program program_of_backward(std::size_t operations) {
    Program program;
    for (std::size_t i = 0; i < operations; ++i) {
        program.instructions.push_back({.kind = InstructionKind::backward,
                                        .phase = Phase::backward,
                                        .subject = static_cast<std::int32_t>(i)});
    }
    return program;
}

void GpuBackward::launch(std::size_t operation) {
    kernels_.backward(static_cast<std::int32_t>(operation), 1.0F, false);
}

void GpuBackward::warm_up() {
    for (std::size_t i = 0; i < plan_.backward.size(); ++i) {
        launch(i);
    }
    PatientWait(communicators_.of_steps()).until([&] { return stream_.is_idle(); }, "backward");
}

ContentionTrace GpuBackward::contend(GpuMessages& messages, const Message& message,
                                     std::int64_t iterations, const std::vector<Duration>& alone,
                                     Duration stamp_time) {
    messages.prepare(message);
    const Load collectives{messages.stream(), [&](std::size_t) { messages.launch(message); }};
    const Load backward{stream_, [&](std::size_t operation) { launch(operation); }};
    OperationsAlone operations{.times = alone};
    for (const KernelCall& call : plan_.backward) {
        operations.are_products.push_back(call.product.has_value());
    }
    const RanTogether ran = run_together(communicators_.with_ctas(message.ctas), collectives,
                                         iterations, backward, alone.size());
    return contention_of(ran, operations, stamp_time);
}

}  // namespace bucketwise
