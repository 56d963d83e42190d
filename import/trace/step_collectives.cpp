#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "import/trace/collective_names.h"
#include "import/trace/raw_step.h"

namespace bucketwise {
namespace {

// Marks the copies that follow a broadcast and move as many bytes.
void find_buffer_copies(RawStep& raw) {
    std::int64_t awaited = 0;
    for (TracedCollective& collective : raw.step.collectives) {
        collective.bytes = Bytes{std::max<std::int64_t>(collective.elements, 0) *
                                 bytes_of_dtype(collective.dtype)};
    }
    for (TimedMark& timed : raw.marks) {
        if (const TracedCollective* const collective = raw.collective_of(timed)) {
            awaited += collective->sends_buffers() ? collective->bytes.count : 0;
        } else if (timed.copies_memory && timed.mark.kind == MarkKind::operation &&
                   timed.mark.bytes > 0 && timed.mark.bytes <= awaited) {
            timed.mark.kind = MarkKind::copy_buffer;
            awaited -= timed.mark.bytes;
        }
    }
}

// Hooks reduce gradients, so an all-reduce between them without a hook is of another tensor. DDP
// has none outside of hooks; others may reduce the rest when all gradients are ready.
void find_collectives_of_layers(RawStep& raw) {
    const auto by_hook = [](const TracedCollective& collective) {
        return collective.reduces_gradients() && collective.in_hook;
    };
    std::vector<TracedCollective>& collectives = raw.step.collectives;
    if (std::ranges::none_of(collectives, by_hook)) {
        return;
    }
    const auto gradients = static_cast<std::size_t>(std::ranges::count_if(
        raw.marks, [&](const TimedMark& timed) { return raw.is_ready(timed); }));
    for (TracedCollective& collective : collectives) {
        collective.of_layers = collective.reduces_gradients() && !collective.in_hook &&
                               (raw.step.is_ddp || collective.ready_before < gradients);
    }
}

// Where DDP copies gradients into buckets, one that it does not copy is a parameter outside of the
// module that it wraps.
void drop_unreduced(RawStep& raw) {
    if (raw.step.batched_copies) {
        return;  // a copy is of many
    }
    std::vector<TimedMark*> without_copy;
    bool any_copy = false;
    TimedMark* open = nullptr;
    for (TimedMark& timed : raw.marks) {
        if (raw.is_ready(timed)) {
            without_copy.push_back(&timed);
            open = &timed;
        } else if (timed.mark.kind == MarkKind::copy_in && open != nullptr) {
            any_copy = true;
            without_copy.pop_back();
            open = nullptr;
        }
    }
    if (any_copy) {
        for (TimedMark* timed : without_copy) {
            timed->mark.kind = MarkKind::operation;
            ++raw.step.unreduced;
        }
    }
}

void count_ready(RawStep& raw) {
    std::size_t ready = 0;
    for (const TimedMark& timed : raw.marks) {
        if (raw.is_ready(timed)) {
            ++ready;
        } else if (timed.mark.collective >= 0) {
            raw.step.collectives[static_cast<std::size_t>(timed.mark.collective)].ready_before =
                ready;
        }
    }
}

// Whether an annotation is of a collective by its name. Gloo reduces and scatters by an all-reduce.
bool runs(std::string_view name, const TracedCollective& collective) {
    return collective.gathers()    ? name.starts_with("allgather")
           : collective.scatters() ? name.starts_with("reducescatter") || name == "allreduce"
                                   : name == collective.name;
}

// The first annotation of the same kind that is not taken yet, of the same size if there is one.
const TraceEvent** matching_annotation(const ProfilerTrace& trace,
                                       const TracedCollective& collective,
                                       std::vector<const TraceEvent*>& annotations) {
    const TraceEvent** match = nullptr;
    for (const TraceEvent*& annotation : annotations) {
        if (annotation == nullptr || !runs(plain_name(trace.name_of(*annotation)), collective)) {
            continue;
        }
        // All-gathers and reduce-scatters have two sizes.
        if (collective.gathers() || collective.scatters() ||
            annotation->elements == collective.elements) {
            return &annotation;
        }
        match = match == nullptr ? &annotation : match;
    }
    return match;
}

}  // namespace

void match_annotations(const ProfilerTrace& trace, std::vector<const TraceEvent*> annotations,
                       RawStep& raw) {
    for (TracedCollective& collective : raw.step.collectives) {
        const TraceEvent** const match = matching_annotation(trace, collective, annotations);
        if (match == nullptr) {
            continue;
        }
        const TraceEvent& annotation = **match;
        *match = nullptr;
        raw.set_span(trace, annotation, collective);
        if (collective.elements < 0) {
            collective.elements = annotation.elements;
        }
        if (collective.dtype.empty()) {
            collective.dtype = dtype_of_type(trace.type_of(annotation));
        }
    }
}

void find_stalls(const TraceIndex& index, RawStep& raw) {
    TracedStep& step = raw.step;
    std::int64_t last_ready_ns = raw.phases.backward_begin_ns;
    for (const TimedMark& timed : raw.marks) {
        if (raw.is_ready(timed)) {
            last_ready_ns = std::max(last_ready_ns, timed.begin_ns);
        }
    }
    // Gradients are reduced by the groups that hooks issue to, if there are any.
    std::set<std::string> groups;
    for (const TracedCollective& collective : step.collectives) {
        if (collective.reduces_gradients() && collective.in_hook) {
            groups.insert(collective.group);
        }
    }
    const auto is_simulated = [&](const TracedCollective& collective, bool all_ready) {
        return collective.module != no_module ||
               (all_ready ? collective.reduces_gradients() &&
                                (groups.empty() || groups.contains(collective.group))
                          : collective.sends_buffers());
    };
    for (const Gap& gap : raw.gaps) {
        TimedMark& timed = raw.marks[gap.mark];
        std::int64_t simulated = 0;
        for (const TracedCollective& collective : step.collectives) {
            if (collective.begin && is_simulated(collective, timed.begin_ns >= last_ready_ns)) {
                simulated += gap.overlap_ns(raw.range.begin_ns + collective.begin->count() / 1000,
                                            raw.range.begin_ns + collective.end->count() / 1000);
            }
        }
        for (const Gap& copy : raw.shard_copies) {
            simulated += gap.overlap_ns(copy.begin_ns, copy.end_ns);
        }
        simulated = std::min(simulated, gap.end_ns - gap.begin_ns);
        step.device_communicating += from_ns(simulated);
        const std::int64_t stall = gap.end_ns - gap.begin_ns - simulated;
        if (stall <= longest_gap_ns) {
            continue;
        }
        const TraceEvent* const awaited = index.awaited(gap.begin_ns, gap.end_ns);
        step.device_stalled[awaited == nullptr ? "what the trace does not show"
                                               : short_name(index.trace().name_of(*awaited))] +=
            from_ns(stall);
        if (awaited != nullptr && simulated == 0 &&
            gap.end_ns - awaited->end_ns <= longest_gap_ns) {
            timed.mark.after = index.side_stream_of(*awaited);
        }
        (timed.mark.after != 0 ? step.device_stalled_beside : timed.mark.stall) += from_ns(stall);
    }
}

void tell_collectives_apart(RawStep& raw) {
    find_buffer_copies(raw);
    drop_unreduced(raw);
    count_ready(raw);
    find_collectives_of_layers(raw);
}

void forget_shards(bool has_device, std::vector<TimedMark>& marks, RawStep& raw) {
    std::erase_if(marks, [&](const TimedMark& timed) {
        return !has_device &&
               (timed.mark.kind == MarkKind::boundary || timed.mark.kind == MarkKind::copy_shards);
    });
    for (TimedMark& timed : marks) {
        if (timed.mark.kind == MarkKind::copy_shards) {
            timed.mark.kind = MarkKind::operation;
        }
        timed.mark.module = no_module;
    }
    for (TracedCollective& collective : raw.step.collectives) {
        collective.module = no_module;
    }
    raw.step.shards = {};
    raw.shard_copies.clear();
}

void RawStep::set_span(const ProfilerTrace& trace, const TraceEvent& work,
                       TracedCollective& collective) const {
    const Duration begin = from_ns(work.begin_ns - range.begin_ns);
    const Duration end = from_ns(work.end_ns - range.begin_ns);
    collective.begin = std::min(collective.begin.value_or(begin), begin);
    collective.end = std::max(collective.end.value_or(end), end);
    collective.blocks = std::max(collective.blocks, work.blocks);
    if (collective.elements < 0 && work.call >= 0) {
        take_call(trace.calls[static_cast<std::size_t>(work.call)], collective);
    }
}

void take_call(const CollectiveCall& call, TracedCollective& collective) {
    if (call.elements >= 0 && moves_data(plain_name(call.name))) {
        collective.elements = call.elements;
        collective.dtype = call.dtype;
        collective.group = call.group;
        collective.group_size = call.group_size;
    }
}

}  // namespace bucketwise
