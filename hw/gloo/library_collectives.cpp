#include <gloo/allgather.h>
#include <gloo/allreduce.h>

#include <cstring>

#include "hw/compute/elements.h"
#include "hw/gloo/gloo_collectives.h"

namespace bucketwise {
namespace {

// Gloo's form of the sum: out = a + b; out may be a or b.
gloo::AllreduceOptions::Func three_operand_sum(DType dtype) {
    const ElementSum add = element_sum(dtype);
    const auto element = static_cast<std::size_t>(element_size(dtype).count);
    return [add, element](void* out, const void* a, const void* b, std::size_t elements) {
        const void* const addend = out == b ? a : b;
        if (out != a && out != b) {
            std::memcpy(out, a, elements * element);
        }
        add(out, addend, static_cast<std::int64_t>(elements));
    };
}

// Gloo asks for a type only to learn its size.
template <typename Element>
void set_output(gloo::AllreduceOptions& options, void* data, std::int64_t elements) {
    options.setOutput(static_cast<Element*>(data), static_cast<std::size_t>(elements));
}

void set_output(gloo::AllreduceOptions& options, void* data, std::int64_t elements, DType dtype) {
    switch (element_size(dtype).count) {
        case 2:
            return set_output<std::uint16_t>(options, data, elements);
        case 4:
            return set_output<float>(options, data, elements);
        default:
            return set_output<double>(options, data, elements);
    }
}

void all_reduce(GlooGroup& group, Scratch& /*scratch*/, void* data, std::int64_t elements,
                DType dtype) {
    gloo::AllreduceOptions options(group.context());
    set_output(options, data, elements, dtype);
    options.setReduceFunction(three_operand_sum(dtype));
    group.collective("all-reduce", options, gloo::allreduce);
}

// In place: Gloo would copy what it is given as its input, too.
void all_gather(GlooGroup& group, void* data, std::int64_t bytes) {
    gloo::AllgatherOptions options(group.context());
    options.setOutput(static_cast<char*>(data), static_cast<std::size_t>(bytes));
    group.collective("all-gather", options, gloo::allgather);
}

void reduce_scatter(GlooGroup& group, Scratch& scratch, void* data, std::int64_t elements,
                    DType dtype) {
    ring_collectives.reduce_scatter(group, scratch, data, elements, dtype);
}

}  // namespace

const GlooCollectives library_collectives{all_reduce, reduce_scatter, all_gather};

}  // namespace bucketwise
