#include <algorithm>
#include <iterator>
#include <map>
#include <span>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "import/trace/collective_names.h"
#include "import/trace/raw_step.h"
#include "import/trace/sharding_hooks.h"
#include "sim/base/error.h"

namespace bucketwise {
namespace {

class StepReader {
  public:
    StepReader(const TraceIndex& index, const StepRange& range, std::int64_t free_ns)
        : index_(index),
          trace_(index.trace()),
          raw_{.range = range, .phases = read_phases(index, range)},
          free_ns_(free_ns) {}

    RawStep read() {
        if (phases_.backward_begin_ns < 0) {
            return std::move(raw_);  // no gradient became ready
        }
        step_.name = range_.name;
        step_.micro_steps = phases_.micro_steps;
        step_.side_streams = index_.side_stream_names();
        side_free_ns_.assign(step_.side_streams.size() + 1, -1);
        step_.backward_begin = from_ns(phases_.backward_begin_ns - range_.begin_ns);
        step_.backward_end = from_ns(phases_.backward_end_ns - range_.begin_ns);
        if (trace_.has_device) {
            // The host may wait for the device before it launches anything.
            const std::int64_t begin_ns = phases_.forward_begin_ns + 1;
            add(begin_ns, begin_ns, {MarkKind::begin, "the step begins"});
        }
        for (const TraceEvent& event : index_.events_in(range_.begin_ns, range_.end_ns)) {
            note_idle(event);
            visit(event);
        }
        end_idle(range_.begin_ns + range_.length_ns, "the next step");
        std::ranges::copy_if(
            trace_.recomputed, std::back_inserter(raw_.recomputed), [&](const HostSpan& span) {
                return phases_.in_backward(span.begin_ns) && index_.is_training_thread(span.thread);
            });
        step_.shards = hooks_.shards();
        step_.shards.asynchronous = gathers_on_compute_stream_;
        if (!step_.is_fully_sharded()) {
            forget_shards(trace_.has_device, marks_, raw_);
            work_ends_ns_.clear();
        }
        find_stalls(index_, raw_);
        for (TimedMark& timed : marks_) {
            timed.mark.at = from_ns(timed.at_ns - range_.begin_ns);
        }
        std::ranges::stable_sort(marks_, {}, &TimedMark::at_ns);
        if (!trace_.has_device) {
            match_annotations(trace_, annotations_, raw_);
            find_asynchronous_gathers();
        }
        tell_collectives_apart(raw_);
        return std::move(raw_);
    }

  private:
    // Events that have others in them tell nothing.
    [[nodiscard]] static bool is_work(TraceEventKind kind) {
        using enum TraceEventKind;
        return kind == operation || kind == accumulate_grad || kind == reducer_copy ||
               kind == division || kind == bucket_to_grad || kind == batched_copy ||
               kind == collective_op || kind == collective_call || kind == compiled ||
               kind == launch || kind == synchronise;
    }

    void note_idle(const TraceEvent& event) {
        if (!index_.is_training_thread(event.thread)) {
            return;
        }
        if (event.kind == TraceEventKind::loading) {
            end_idle(event.begin_ns, trace_.name_of(event));
            end_idle(event.end_ns, "data loading");
        } else if (is_work(event.kind) && (event.kind != TraceEventKind::operation ||
                                           is_library_call(trace_.name_of(event)))) {
            end_idle(event.begin_ns, trace_.name_of(event));
            worked_until_ns_ = std::max(worked_until_ns_, event.end_ns);
        }
    }

    void end_idle(std::int64_t ns, const std::string& before) {
        if (ns - worked_until_ns_ >= least_idle_ns) {
            step_.gaps.push_back({from_ns(worked_until_ns_ - range_.begin_ns),
                                  from_ns(ns - worked_until_ns_), short_name(before)});
        }
        worked_until_ns_ = std::max(worked_until_ns_, ns);
    }

    void visit(const TraceEvent& event) {
        if (event.kind == TraceEventKind::annotation) {
            annotations_.push_back(&event);  // Gloo's run on threads of their own
        }
        if (!index_.is_training_thread(event.thread)) {
            return;
        }
        if (trace_.has_device && !in_optimizer_ && event.begin_ns > phases_.backward_end_ns) {
            in_optimizer_ = true;
            const std::int64_t begin_ns = phases_.backward_end_ns + 1;
            add(begin_ns, begin_ns, {MarkKind::begin, "the optimizer begins"});
        }
        switch (event.kind) {
            case TraceEventKind::backward_node:
                visit_node(event);
                break;
            case TraceEventKind::accumulate_grad:
                add_ready(event);
                hook_end_ns_ = std::max(hook_end_ns_, event.end_ns);
                break;
            case TraceEventKind::reducer_copy:
                step_.is_ddp = true;
                step_.hook_casts |= trace_.name_of(event).find("copy_") != std::string::npos;
                open_copy(event, MarkKind::copy_in);
                break;
            case TraceEventKind::batched_copy:
                if (is_in_hook(event)) {
                    step_.batched_copies = true;
                    open_copy(event, MarkKind::copy_in);
                }
                break;
            case TraceEventKind::division:
                // A whole bucket's is an operation beside its copy, which is one launch.
                if (is_in_hook(event) && event.begin_ns >= copy_end_ns_ && !step_.batched_copies) {
                    end_accumulation(event);
                    open_copy(event, MarkKind::copy_in);
                }
                break;
            case TraceEventKind::bucket_to_grad:
                step_.is_ddp = true;
                open_copy(event, MarkKind::copy_back);
                break;
            case TraceEventKind::ddp_forward:
                step_.is_ddp = true;
                break;
            case TraceEventKind::sharding:
                visit_sharding(event);
                break;
            case TraceEventKind::launch:
                visit_launch(event);
                break;
            case TraceEventKind::synchronise:
                visit_wait(event);
                break;
            default:
                visit_collective(event);
                break;
        }
    }

    void visit_sharding(const TraceEvent& event) {
        const std::optional<ShardingCall> call = sharding_call(trace_.name_of(event));
        if (step_.sharding.empty()) {
            step_.sharding = call ? "FSDP2" : "FSDP1";
        }
        if (!call) {
            return;
        }
        const bool enters =
            call->hook == ShardingHook::enter_forward || call->hook == ShardingHook::enter_backward;
        const bool leaves =
            call->hook == ShardingHook::leave_forward || call->hook == ShardingHook::leave_backward;
        if (!trace_.has_device && (enters || leaves)) {
            add(event.begin_ns, event.begin_ns, {MarkKind::boundary, "another module"});
        }
        hooks_.visit(*call, event.begin_ns, event.end_ns);
        // For an all-gather, the copy is the gap before the collective.
        if (!trace_.has_device &&
            (call->hook == ShardingHook::copy_out || call->hook == ShardingHook::reduce)) {
            add(event.end_ns, event.begin_ns, {MarkKind::copy_shards, "copies"});
        }
    }

    void visit_node(const TraceEvent& event) {
        const std::string& name = trace_.name_of(event);
        if (name.find("AccumulateGrad") != std::string::npos) {
            hook_end_ns_ = event.end_ns;
        } else if (name.find("PreBackwardFunction") != std::string::npos) {
            step_.sharding = zero3_name;  // its hooks of modules
        } else if (phases_.in_backward(event.begin_ns) &&
                   name.find("CompiledFunctionBackward") != std::string::npos) {
            ++step_.compiled_pieces;
        }
    }

    [[nodiscard]] bool is_in_hook(const TraceEvent& event) const {
        return event.begin_ns < hook_end_ns_ && phases_.in_backward(event.begin_ns);
    }

    // Hooks of accumulated gradients run within AccumulateGrad: what they do follows it.
    void end_accumulation(const TraceEvent& hook) {
        if (last_ready_ < marks_.size()) {
            TimedMark& ready = marks_[last_ready_];
            ready.at_ns = std::min(ready.at_ns, std::max(ready.begin_ns, hook.begin_ns));
        }
    }

    void add(std::int64_t at_ns, std::int64_t begin_ns, StepMark mark) {
        if (marks_.size() >= most_step_marks) {
            throw InputError(trace_.file, "/traceEvents",
                             fmt::format("at most {} operations in a step", most_step_marks),
                             "more in " + range_.name);
        }
        mark.module = hooks_.module();
        marks_.push_back({at_ns, begin_ns, std::move(mark)});
    }

    // Its first input is the gradient.
    void add_ready(const TraceEvent& event) {
        StepMark mark{MarkKind::ready, "AccumulateGrad"};
        mark.elements = event.elements;
        mark.rows = event.rows;
        last_ready_ = marks_.size();
        add(event.end_ns, event.begin_ns, std::move(mark));
    }

    // On a device its launch follows; on a host this is the copy.
    void open_copy(const TraceEvent& event, MarkKind kind) {
        copy_end_ns_ = event.end_ns;
        copy_kind_ = kind;
        copy_elements_ = event.elements;
        if (!trace_.has_device) {
            StepMark mark{kind, short_name(trace_.name_of(event))};
            mark.elements = event.elements;
            add(event.end_ns, event.begin_ns, std::move(mark));
        }
    }

    // The host waits for the compute stream or for all-reduces; or for other streams and other
    // collectives, and so other ranks, which the scenario has not. The latter is kept as host time.
    void visit_wait(const TraceEvent& event) {
        const bool device_is_idle = free_ns_ >= 0 && free_ns_ <= event.end_ns + clocks_differ_ns;
        const std::int64_t from =
            device_is_idle ? std::clamp(free_ns_, event.begin_ns, event.end_ns) : event.begin_ns;
        const std::int64_t others = index_.idle_ns(from, event.end_ns);
        const bool noticeable = others >= noticeable_wait_ns;
        raw_.waits.push_back(
            {event.begin_ns, event.end_ns - (noticeable || device_is_idle ? others : 0)});
        step_.waited_for_others += from_ns(noticeable ? others : 0);
        if (device_is_idle && event.begin_ns >= phases_.forward_begin_ns) {
            let_host_wait(event);
        }
    }

    // By the time the call returns, all has run that was launched before.
    void let_host_wait(const TraceEvent& event) {
        StepMark& last = marks_.back().mark;
        if (!last.host_waits) {
            last.host_waits = true;
            last.until_wait =
                from_ns(std::max<std::int64_t>(event.begin_ns - marks_.back().at_ns, 0));
        }
    }

    void visit_launch(const TraceEvent& event) {
        const std::span<const std::uint32_t> launched = index_.launched_by(event);
        if (event.begin_ns < collective_end_ns_) {
            for (const std::uint32_t i : launched) {
                // In a group of one rank it is a copy.
                if (!index_.is_compute(trace_.events[i])) {
                    raw_.set_span(trace_, trace_.events[i], step_.collectives.back());
                }
            }
            return;
        }
        note_full_queue(event);
        if (launched.size() > 1 && trace_.name_of(event).find("Graph") != std::string::npos) {
            ++step_.graph_launches;
            step_.graph_kernels += static_cast<std::int64_t>(launched.size());
        }
        const ShardingHooks::Work* const copies = hooks_.work_at(event.begin_ns);
        bool first = true;
        for (const std::uint32_t i : launched) {
            const TraceEvent& work = trace_.events[i];
            if (!index_.is_compute(work)) {
                if (copies != nullptr) {
                    raw_.shard_copies.push_back({0, work.begin_ns, work.end_ns});
                } else if (index_.side_stream_of(work) != 0) {
                    add_beside(event, work);
                } else if (work.kind == TraceEventKind::kernel) {
                    step_.other_streams += from_ns(work.duration_ns());
                }
                continue;
            }
            step_.device_busy += index_.device_time(i);
            const bool waits = waits_for_copy(event, work);
            const std::int64_t launched_ns =
                waits ? event.begin_ns + index_.typical_launch_ns() : event.end_ns;
            note_gap(launched_ns, work);
            note_device(launched_ns, work);
            StepMark mark{MarkKind::operation, operation_name(work)};
            mark.device = index_.device_time(i);
            mark.bytes = work.bytes;
            mark.device_begin = from_ns(work.begin_ns - range_.begin_ns);
            if (event.begin_ns < copy_end_ns_ && first) {
                mark.kind = copy_kind_;
                mark.elements = copy_elements_;
            } else if (copies != nullptr) {
                mark.kind = MarkKind::copy_shards;
                gathers_on_compute_stream_ |= copies->hook == ShardingHook::gather;
            }
            if (waits) {
                mark.host_waits = true;
                raw_.waits.push_back({launched_ns, std::min(work.end_ns, event.end_ns)});
            }
            add(launched_ns, event.begin_ns, std::move(mark));
            marks_.back().copies_memory = work.kind == TraceEventKind::copy &&
                                          trace_.name_of(work).find("DtoD") != std::string::npos;
            first = false;
        }
    }

    // On its own stream, once that is free, unless it waits: for what was launched before on the
    // compute stream, where it begins when that has ended; for what nothing tells, which then
    // occupies the stream as if it were its own time.
    void add_beside(const TraceEvent& launch, const TraceEvent& work) {
        StepMark mark{MarkKind::beside, operation_name(work)};
        mark.stream = index_.side_stream_of(work);
        std::int64_t& side_free_ns = side_free_ns_[static_cast<std::size_t>(mark.stream)];
        const std::int64_t from = std::max(side_free_ns, launch.end_ns);
        const std::int64_t waited = std::max<std::int64_t>(work.begin_ns - from, 0);
        const std::int64_t after_compute = work.begin_ns - free_ns_;
        mark.after_compute = waited > longest_gap_ns && after_compute >= -clocks_differ_ns &&
                             after_compute <= longest_gap_ns;
        // A gap before it is its own, too, where it was queued.
        const bool occupies =
            waited > longest_gap_ns ? !mark.after_compute : launch.end_ns <= side_free_ns;
        mark.beside = from_ns(work.duration_ns() + (occupies ? waited : 0));
        mark.bytes = work.bytes;
        mark.device_begin = from_ns(work.begin_ns - range_.begin_ns);
        side_free_ns = std::max(side_free_ns, work.end_ns);
        add(launch.end_ns, launch.begin_ns, std::move(mark));
    }

    // A copy from or to memory of the host that is not pinned: the call returns once it is done, or
    // at least all that was launched before. It shows where that took a while.
    [[nodiscard]] bool waits_for_copy(const TraceEvent& call, const TraceEvent& work) const {
        const std::int64_t launched_ns = call.begin_ns + index_.typical_launch_ns();
        return work.kind == TraceEventKind::copy && free_ns_ >= launched_ns + noticeable_wait_ns &&
               call.end_ns + clocks_differ_ns >= free_ns_;
    }

    // A launch lasts as long as others, unless the device has so much to do that the host has to
    // wait until some of it has run: about a thousand launches, which is milliseconds.
    void note_full_queue(const TraceEvent& launch) {
        constexpr std::int64_t least_ahead_ns = 1'000'000;
        const std::int64_t typical_ns = index_.typical_launch_ns();
        if (launch.duration_ns() > 2 * typical_ns + noticeable_wait_ns &&
            free_ns_ - launch.begin_ns > least_ahead_ns && free_ns_ > launch.end_ns) {
            raw_.full.push_back({launch.begin_ns + typical_ns, launch.end_ns});
        }
    }

    // A launch runs once the compute stream is free, unless something else comes first.
    void note_gap(std::int64_t launched_ns, const TraceEvent& work) {
        if (free_ns_ >= 0) {
            const std::int64_t from = std::max(free_ns_, launched_ns);
            if (work.begin_ns - from > longest_gap_ns) {
                raw_.gaps.push_back({marks_.size(), from, work.begin_ns});
            }
        }
        free_ns_ = std::max(free_ns_, work.end_ns);
    }

    // A first kernel that waits though it was launched has other work before it.
    void note_device(std::int64_t launched_ns, const TraceEvent& work) {
        if (raw_.last_device_end_ns < 0 && work.begin_ns > launched_ns + longest_gap_ns) {
            raw_.busy_until_ns = busy_before(work);
        }
        raw_.last_device_end_ns = std::max(raw_.last_device_end_ns, work.end_ns);
    }

    // The first computing of FSDP2 waits for its all-gather: other work is before that.
    [[nodiscard]] std::int64_t busy_before(const TraceEvent& work) const {
        if (step_.collectives.empty() || step_.collectives.front().module == no_module ||
            !step_.collectives.front().begin) {
            return work.begin_ns;
        }
        const TracedCollective& gather = step_.collectives.front();
        std::int64_t begin_ns = range_.begin_ns + gather.begin->count() / 1000;
        if (!raw_.shard_copies.empty()) {
            begin_ns = std::min(begin_ns, raw_.shard_copies.front().begin_ns);
        }
        const std::int64_t issued_ns = range_.begin_ns + gather.issued.count() / 1000;
        return begin_ns > issued_ns + longest_gap_ns ? begin_ns : raw_.busy_until_ns;
    }

    [[nodiscard]] std::string operation_name(const TraceEvent& work) const {
        const std::string* const name = trace_.operation_of(work.external_id);
        return short_name(name != nullptr ? *name : trace_.name_of(work));
    }

    void visit_collective(const TraceEvent& event) {
        if (index_.is_collective_root(event.kind) && event.begin_ns >= collective_end_ns_) {
            begin_collective(event);
        }
        if (event.begin_ns >= collective_end_ns_ || step_.collectives.empty()) {
            return;
        }
        TracedCollective& collective = step_.collectives.back();
        if (event.call >= 0) {
            take_call(trace_.calls[static_cast<std::size_t>(event.call)], collective);
        }
        if (collective.elements < 0 && event.elements >= 0) {
            collective.elements = event.elements;
            if (collective.dtype.empty()) {
                collective.dtype = dtype_of_type(trace_.type_of(event));
            }
        }
    }

    void begin_collective(const TraceEvent& event) {
        TracedCollective collective;
        collective.name =
            plain_name(event.call >= 0 ? trace_.calls[static_cast<std::size_t>(event.call)].name
                                       : trace_.name_of(event));
        if (!moves_data(collective.name)) {
            return;
        }
        // Several tensors at once, as Megatron issues them.
        constexpr std::string_view coalesced = "allreducecoalesced";
        if (collective.name == coalesced) {
            collective.name = "allreduce";
        }
        end_accumulation(event);
        collective_end_ns_ = event.end_ns;
        collective.in_optimizer = event.begin_ns > phases_.optimizer_begin_ns;
        collective.in_backward = event.begin_ns >= phases_.backward_begin_ns &&
                                 event.begin_ns <= phases_.optimizer_begin_ns;
        collective.in_hook = event.begin_ns < hook_end_ns_;
        collective.issued = from_ns(event.end_ns - range_.begin_ns);
        if (const ShardingHooks::Work* const work = hooks_.work_at(event.begin_ns)) {
            collective.module = work->module;
            if (!trace_.has_device && work->begin_ns != last_shard_work_ns_) {
                add(event.begin_ns, work->begin_ns, {MarkKind::copy_shards, "copies"});
                last_shard_work_ns_ = work->begin_ns;
            }
            work_ends_ns_[step_.collectives.size()] = work->end_ns;
        }
        step_.collectives.push_back(std::move(collective));
        add(event.end_ns, event.begin_ns, {MarkKind::collective, step_.collectives.back().name});
        marks_.back().mark.collective = static_cast<std::int32_t>(step_.collectives.size() - 1);
    }

    // Where all-gathers block the host, FSDP2's hook ends after them. Others may be faster.
    void find_asynchronous_gathers() {
        for (const auto& [i, end_ns] : work_ends_ns_) {
            const TracedCollective& collective = step_.collectives[i];
            step_.shards.asynchronous |= collective.gathers() && collective.end &&
                                         range_.begin_ns + collective.end->count() / 1000 > end_ns;
        }
    }

    const TraceIndex& index_;
    const ProfilerTrace& trace_;
    RawStep raw_;
    const StepRange& range_ = raw_.range;
    const StepPhases& phases_ = raw_.phases;
    TracedStep& step_ = raw_.step;
    std::vector<TimedMark>& marks_ = raw_.marks;
    std::vector<const TraceEvent*> annotations_;
    ShardingHooks hooks_;
    std::map<std::size_t, std::int64_t> work_ends_ns_;  // of FSDP2, by collective in it
    std::int64_t last_shard_work_ns_ = -1;              // that a collective is in: its begin
    bool gathers_on_compute_stream_ = false;
    bool in_optimizer_ = false;
    std::int64_t free_ns_;  // when the compute stream is done with what was launched so far
    std::size_t last_ready_ = most_step_marks;  // index into marks_; beyond: none yet
    std::vector<std::int64_t> side_free_ns_;    // the same for each side stream, from 1 on
    std::int64_t worked_until_ns_ = range_.begin_ns;
    std::int64_t hook_end_ns_ = 0;
    std::int64_t copy_end_ns_ = 0;
    MarkKind copy_kind_ = MarkKind::copy_in;
    std::int64_t copy_elements_ = -1;
    std::int64_t collective_end_ns_ = 0;
};

}  // namespace

RawStep read_raw_step(const TraceIndex& index, const StepRange& range, std::int64_t free_ns) {
    return StepReader(index, range, free_ns).read();
}

}  // namespace bucketwise
