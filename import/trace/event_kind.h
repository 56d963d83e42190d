// The kind of an event of a trace, by its category and its name.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace bucketwise {

enum class TraceEventKind : std::uint8_t {
    // On the host:
    step,             // ProfilerStep#N
    optimizer,        // Optimizer.step#...
    ddp_forward,      // DistributedDataParallel.forward
    backward_node,    // of the autograd engine, AccumulateGrad and its hooks included
    accumulate_grad,  // in such a node; what follows in the node are hooks
    reducer_copy,     // DDP's copy or division of a gradient into its bucket, in a hook
    division,        // if in a hook, DDP's: in place of a gradient that is a view of its bucket, or
                     // into the bucket, by a reducer that does not name its copies
    bucket_to_grad,  // DDP's copy of a gradient out of its bucket, or of all of a bucket's
    batched_copy,    // if in a hook, DDP's copy of all gradients of a bucket into it at once
    sharding,        // annotations of FSDP
    loading,         // DataLoader's next batch
    compiled,        // a region that torch.compile made, or its backward
    collective_op,   // c10d::allreduce_ and its like; outside of the two that follow
    collective_call,  // record_param_comms, in such an operation: it carries sizes
    annotation,       // nccl:all_reduce, gloo:all_reduce and their like
    operation,        // another one, kept only where nothing runs on a device
    launch,           // a runtime call that gives the device work
    synchronise,      // a runtime call that waits for the device
    // On the device:
    kernel,
    collective_kernel,
    copy,
    fill
};

constexpr bool is_on_device(TraceEventKind kind) {
    return kind >= TraceEventKind::kernel;
}

enum class Category : std::uint8_t { other, operation, annotation, runtime, kernel, copy, fill };

// By Kineto's names of today and those before PyTorch 1.12 ("Operator", "Kernel", "Runtime").
Category category_of(std::string_view text);

// "mtia" of "mtia_ccp_events": an accelerator whose events are not read; empty: no such category.
std::string_view unread_device(std::string_view category);

// Whether an operation is a library's ("aten::mm"), and no range that a script names.
bool is_library_call(std::string_view name);

// Nothing for events that tell nothing about training steps.
std::optional<TraceEventKind> kind_of(Category category, std::string_view name);

}  // namespace bucketwise
