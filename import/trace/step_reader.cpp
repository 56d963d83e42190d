#include <algorithm>
#include <cctype>
#include <map>
#include <set>
#include <span>
#include <string_view>

#include <fmt/format.h>

#include "import/trace/raw_step.h"
#include "import/trace/sharding_hooks.h"
#include "sim/base/error.h"

namespace bucketwise {
namespace {

std::int64_t bytes_of_dtype(const std::string& dtype) {
    static const std::map<std::string, std::int64_t, std::less<>> sizes{
        {"Double", 8},   {"Long", 8},  {"Float", 4}, {"Int", 4},  {"Half", 2},
        {"BFloat16", 2}, {"Short", 2}, {"Byte", 1},  {"Char", 1}, {"Bool", 1}};
    const auto found = sizes.find(dtype);
    return found == sizes.end() ? 4 : found->second;
}

// C++'s names of types as c10d's of dtypes.
std::string dtype_of_type(const std::string& type) {
    static const std::map<std::string, std::string, std::less<>> dtypes{
        {"float", "Float"},
        {"double", "Double"},
        {"c10::Half", "Half"},
        {"c10::BFloat16", "BFloat16"},
        {"long", "Long"},
        {"long int", "Long"},
        {"int", "Int"},
        {"unsigned char", "Byte"},
        {"c10::Float8_e4m3fn", "Float8_e4m3fn"},
        {"c10::Float8_e5m2", "Float8_e5m2"}};
    const auto found = dtypes.find(type);
    return found == dtypes.end() ? "" : found->second;
}

// "c10d::allreduce_", "nccl:all_reduce" and "allreduce" are the same.
std::string plain_name(std::string_view name) {
    const std::size_t colon = name.rfind(':');
    if (colon != std::string_view::npos) {
        name.remove_prefix(colon + 1);
    }
    std::string plain;
    for (const char c : name) {
        if (c != '_') {
            plain += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
        }
    }
    return plain;
}

bool moves_data(const std::string& name) {
    static const std::set<std::string, std::less<>> others{
        "wait",     "barrier", "monitoredbarrier", "init",
        "finalize", "",        "startcoalescing",  "endcoalescing"};
    return others.count(name) == 0;
}

class StepReader {
  public:
    StepReader(const TraceIndex& index, const StepRange& range, std::int64_t free_ns)
        : index_(index), trace_(index.trace()), raw_{range}, free_ns_(free_ns) {}

    RawStep read() {
        find_phases();
        if (phases_.backward_begin_ns < 0) {
            return std::move(raw_);  // no gradient became ready
        }
        step_.name = range_.name;
        step_.side_streams = index_.side_stream_names();
        side_free_ns_.assign(step_.side_streams.size() + 1, -1);
        step_.backward_begin = from_ns(phases_.backward_begin_ns - range_.begin_ns);
        step_.backward_end = from_ns(phases_.backward_end_ns - range_.begin_ns);
        if (trace_.has_device) {
            // What the host waits for before it launches anything follows it.
            const std::int64_t begin_ns = phases_.forward_begin_ns + 1;
            add(begin_ns, begin_ns, {MarkKind::begin, "the step begins"});
        }
        for_each_event([&](const TraceEvent& event) { visit(event); });
        step_.shards = hooks_.shards();
        step_.shards.asynchronous = gathers_on_compute_stream_;
        if (!step_.is_fully_sharded()) {
            forget_shards();
        }
        find_stalls();
        for (TimedMark& timed : marks_) {
            timed.mark.at = from_ns(timed.at_ns - range_.begin_ns);
        }
        std::ranges::stable_sort(marks_, {}, &TimedMark::at_ns);
        if (!trace_.has_device) {
            for (TracedCollective& collective : step_.collectives) {
                match_annotation(collective);
            }
            find_asynchronous_gathers();
        }
        find_buffer_copies();
        drop_unreduced();
        count_ready();
        find_collectives_of_layers();
        return std::move(raw_);
    }

  private:
    template <typename Visit>
    void for_each_event(Visit visit) const {
        const auto begin =
            std::ranges::lower_bound(trace_.events, range_.begin_ns, {}, &TraceEvent::begin_ns);
        for (auto event = begin; event != trace_.events.end() && event->begin_ns < range_.end_ns;
             ++event) {
            visit(*event);
        }
    }

    // A wrapped module's forward begins, or a micro-step of one that FSDP2 shards.
    [[nodiscard]] bool begins_forward(const TraceEvent& event) const {
        return event.kind == TraceEventKind::ddp_forward ||
               is_hook(event, ShardingHook::root_forward);
    }
    [[nodiscard]] bool is_hook(const TraceEvent& event, ShardingHook hook) const {
        if (event.kind != TraceEventKind::sharding) {
            return false;
        }
        const auto call = sharding_call(trace_.name_of(event));
        return call && call->hook == hook;
    }

    // Where backward begins and ends on the host. Of several backwards (accumulation) the last.
    void find_phases() {
        std::int64_t last_forward_ns = range_.begin_ns;
        std::int64_t forward_before_ns = range_.begin_ns;  // of the micro-step before
        std::int64_t micro_step_ns = range_.begin_ns;
        std::int64_t forwards = 0;
        bool in_forward =
            false;  // several modules may be wrapped, one within another or side by side
        std::int64_t optimizer_ns = range_.end_ns;
        std::int64_t node_end_ns = range_.begin_ns;  // in which checkpointing runs forward again
        bool gathers = false;
        for_each_event([&](const TraceEvent& event) {
            gathers |= is_hook(event, ShardingHook::gather);
            if (event.kind == TraceEventKind::backward_node) {
                node_end_ns = std::max(node_end_ns, event.end_ns);
            } else if (begins_forward(event) && event.begin_ns >= node_end_ns) {
                last_forward_ns = event.begin_ns;
                if (!in_forward) {
                    forward_before_ns = std::exchange(micro_step_ns, event.begin_ns);
                    ++forwards;
                }
                in_forward = true;
            } else if (event.kind == TraceEventKind::accumulate_grad) {
                in_forward = false;
            } else if (event.kind == TraceEventKind::optimizer) {
                optimizer_ns = std::min(optimizer_ns, event.begin_ns);
            }
        });
        step_.micro_steps = std::max<std::int64_t>(forwards, 1);
        phases_.forward_begin_ns = range_.begin_ns;
        phases_.micro_step_before_ns = forwards > 1 ? range_.begin_ns : -1;
        bool any_ready = false;
        for_each_event([&](const TraceEvent& event) {
            if (event.kind == TraceEventKind::backward_node ||
                event.kind == TraceEventKind::accumulate_grad) {
                if (event.begin_ns < last_forward_ns) {
                    phases_.forward_begin_ns = std::max(phases_.forward_begin_ns, event.end_ns);
                    if (event.begin_ns < forward_before_ns) {
                        phases_.micro_step_before_ns = phases_.forward_begin_ns;
                    }
                    return;
                }
                any_ready |= event.kind == TraceEventKind::accumulate_grad;
                if (phases_.backward_begin_ns < 0) {
                    phases_.backward_begin_ns = event.begin_ns;
                }
                phases_.backward_end_ns = std::max(phases_.backward_end_ns, event.end_ns);
            } else if (event.kind == TraceEventKind::bucket_to_grad &&
                       event.begin_ns >= last_forward_ns) {
                phases_.backward_end_ns = std::max(phases_.backward_end_ns, event.end_ns);
            } else if (gathers && is_hook(event, ShardingHook::end_backward)) {
                std::int64_t& end_ns = event.begin_ns < last_forward_ns ? phases_.forward_begin_ns
                                                                        : phases_.backward_end_ns;
                end_ns = std::max(end_ns, event.end_ns);
            }
        });
        if (!any_ready) {
            phases_.backward_begin_ns = -1;
            return;
        }
        extend_by_reductions(optimizer_ns);
        phases_.optimizer_begin_ns = std::max(optimizer_ns, phases_.backward_end_ns);
    }

    // Loops without DDP may reduce gradients when backward is done; and what computes on the host
    // waits there for all-reduces. Backward lasts until then.
    void extend_by_reductions(std::int64_t optimizer_ns) {
        const std::int64_t ready_ns = phases_.backward_end_ns;
        std::int64_t issued_ns = ready_ns;
        std::int64_t reduced_ns = ready_ns;
        bool by_ddp = false;
        for_each_event([&](const TraceEvent& event) {
            by_ddp |= event.kind == TraceEventKind::ddp_forward ||
                      event.kind == TraceEventKind::bucket_to_grad ||
                      event.kind == TraceEventKind::reducer_copy;
            const bool runs = event.kind == TraceEventKind::annotation;
            if ((!runs && !index_.is_collective_root(event.kind)) ||
                event.begin_ns < phases_.backward_begin_ns || event.end_ns > optimizer_ns ||
                !plain_name(trace_.name_of(event)).starts_with("allreduce")) {
                return;
            }
            std::int64_t& end_ns = runs ? reduced_ns : issued_ns;
            end_ns = std::max(end_ns, event.end_ns);
        });
        phases_.backward_end_ns =
            std::max(by_ddp ? ready_ns : issued_ns, trace_.has_device ? ready_ns : reduced_ns);
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
        // Of what is gathered the copy is what lies before the collective.
        if (!trace_.has_device &&
            (call->hook == ShardingHook::copy_out || call->hook == ShardingHook::reduce)) {
            add(event.end_ns, event.begin_ns, {MarkKind::copy_shards, "copies"});
        }
    }

    // Of FSDP2 that shards nothing: its hooks are operations, its all-reduces whole gradients'.
    void forget_shards() {
        std::erase_if(marks_, [&](const TimedMark& timed) {
            return !trace_.has_device && (timed.mark.kind == MarkKind::boundary ||
                                          timed.mark.kind == MarkKind::copy_shards);
        });
        for (TimedMark& timed : marks_) {
            if (timed.mark.kind == MarkKind::copy_shards) {
                timed.mark.kind = MarkKind::operation;
            }
            timed.mark.module = no_module;
        }
        for (TracedCollective& collective : step_.collectives) {
            collective.module = no_module;
        }
        step_.shards = {};
        shard_copies_.clear();
        work_ends_ns_.clear();
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

    // For the compute stream or for all-reduces, or for what the scenario has none of: other
    // streams, other collectives and so other ranks. That time is kept, as the host's own.
    void visit_wait(const TraceEvent& event) {
        constexpr std::int64_t clocks_differ_ns = 2'000;
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
                // Of a group of one rank it is a copy.
                if (!index_.is_compute(trace_.events[i])) {
                    set_span(step_.collectives.back(), trace_.events[i]);
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
                    shard_copies_.push_back({0, work.begin_ns, work.end_ns});
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
        constexpr std::int64_t clocks_differ_ns = 2'000;
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
        constexpr std::int64_t clocks_differ_ns = 2'000;
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

    // What was launched runs once the compute stream is free, unless something else comes first.
    void note_gap(std::int64_t launched_ns, const TraceEvent& work) {
        if (free_ns_ >= 0) {
            const std::int64_t from = std::max(free_ns_, launched_ns);
            if (work.begin_ns - from > longest_gap_ns) {
                gaps_.push_back({marks_.size(), from, work.begin_ns});
            }
        }
        free_ns_ = std::max(free_ns_, work.end_ns);
    }

    // What of a collective lies between two moments.
    [[nodiscard]] std::int64_t overlap_ns(const TracedCollective& collective, std::int64_t begin_ns,
                                          std::int64_t end_ns) const {
        if (!collective.begin) {
            return 0;
        }
        const std::int64_t from = range_.begin_ns + collective.begin->count() / 1000;
        const std::int64_t to = range_.begin_ns + collective.end->count() / 1000;
        return std::max<std::int64_t>(std::min(to, end_ns) - std::max(from, begin_ns), 0);
    }

    // Of such gaps, what is not waiting that is simulated: for broadcasts of buffers, and once all
    // gradients are ready for their all-reduces.
    void find_stalls() {
        std::int64_t last_ready_ns = phases_.backward_begin_ns;
        for (const TimedMark& timed : marks_) {
            if (is_ready(timed)) {
                last_ready_ns = std::max(last_ready_ns, timed.begin_ns);
            }
        }
        // Groups that reduce gradients: those that hooks issue to, if any.
        std::set<std::string> groups;
        for (const TracedCollective& collective : step_.collectives) {
            if (collective.reduces_gradients() && collective.in_hook) {
                groups.insert(collective.group);
            }
        }
        const auto is_awaited = [&](const TracedCollective& collective) {
            return collective.reduces_gradients() &&
                   (groups.empty() || groups.count(collective.group) != 0);
        };
        for (const Gap& gap : gaps_) {
            TimedMark& timed = marks_[gap.mark];
            std::int64_t simulated = 0;
            for (const TracedCollective& collective : step_.collectives) {
                if (collective.module != no_module ||
                    (timed.begin_ns >= last_ready_ns ? is_awaited(collective)
                                                     : collective.sends_buffers())) {
                    simulated += overlap_ns(collective, gap.begin_ns, gap.end_ns);
                }
            }
            for (const Gap& copy : shard_copies_) {
                simulated += std::max<std::int64_t>(
                    std::min(copy.end_ns, gap.end_ns) - std::max(copy.begin_ns, gap.begin_ns), 0);
            }
            simulated = std::min(simulated, gap.end_ns - gap.begin_ns);
            step_.device_communicating += from_ns(simulated);
            const std::int64_t stall = gap.end_ns - gap.begin_ns - simulated;
            if (stall > longest_gap_ns) {
                const TraceEvent* const awaited = index_.awaited(gap.begin_ns, gap.end_ns);
                step_.device_stalled[awaited == nullptr ? "what the trace does not show"
                                                        : short_name(trace_.name_of(*awaited))] +=
                    from_ns(stall);
                if (awaited != nullptr && simulated == 0 &&
                    gap.end_ns - awaited->end_ns <= longest_gap_ns) {
                    timed.mark.after = index_.side_stream_of(*awaited);
                }
                (timed.mark.after != 0 ? step_.device_stalled_beside : timed.mark.stall) +=
                    from_ns(stall);
            }
        }
    }

    // A first kernel that waits though it was launched has other work before it.
    void note_device(std::int64_t launched_ns, const TraceEvent& work) {
        if (raw_.last_device_end_ns < 0 && work.begin_ns > launched_ns + longest_gap_ns) {
            raw_.busy_until_ns = busy_before(work);
        }
        raw_.last_device_end_ns = std::max(raw_.last_device_end_ns, work.end_ns);
    }

    // What FSDP2 computes first waits for what it gathers: there other work is before that.
    [[nodiscard]] std::int64_t busy_before(const TraceEvent& work) const {
        if (step_.collectives.empty() || step_.collectives.front().module == no_module ||
            !step_.collectives.front().begin) {
            return work.begin_ns;
        }
        const TracedCollective& gather = step_.collectives.front();
        std::int64_t begin_ns = range_.begin_ns + gather.begin->count() / 1000;
        if (!shard_copies_.empty()) {
            begin_ns = std::min(begin_ns, shard_copies_.front().begin_ns);
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
        const std::string type =
            event.type < 0 ? "" : trace_.names[static_cast<std::size_t>(event.type)];
        if (collective.elements < 0 && event.elements >= 0) {
            collective.elements = event.elements;
            if (collective.dtype.empty()) {
                collective.dtype = dtype_of_type(type);
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

    static void take_call(const CollectiveCall& call, TracedCollective& collective) {
        if (call.elements >= 0 && moves_data(plain_name(call.name))) {
            collective.elements = call.elements;
            collective.dtype = call.dtype;
            collective.group = call.group;
            collective.group_size = call.group_size;
        }
    }

    void set_span(TracedCollective& collective, const TraceEvent& work) const {
        const Duration begin = from_ns(work.begin_ns - range_.begin_ns);
        const Duration end = from_ns(work.end_ns - range_.begin_ns);
        collective.begin = std::min(collective.begin.value_or(begin), begin);
        collective.end = std::max(collective.end.value_or(end), end);
        collective.blocks = std::max(collective.blocks, work.blocks);
        if (collective.elements < 0 && work.call >= 0) {
            take_call(trace_.calls[static_cast<std::size_t>(work.call)], collective);
        }
    }

    // The copies that follow a broadcast and move as many bytes.
    void find_buffer_copies() {
        std::int64_t awaited = 0;
        for (TracedCollective& collective : step_.collectives) {
            collective.bytes = Bytes{std::max<std::int64_t>(collective.elements, 0) *
                                     bytes_of_dtype(collective.dtype)};
        }
        for (TimedMark& timed : marks_) {
            if (const TracedCollective* const collective = raw_.collective_of(timed)) {
                if (collective->sends_buffers()) {
                    awaited += collective->bytes.count;
                }
            } else if (timed.copies_memory && timed.mark.kind == MarkKind::operation &&
                       timed.mark.bytes > 0 && timed.mark.bytes <= awaited) {
                timed.mark.kind = MarkKind::copy_buffer;
                awaited -= timed.mark.bytes;
            }
        }
    }

    [[nodiscard]] bool is_ready(const TimedMark& timed) const {
        return timed.mark.kind == MarkKind::ready && phases_.in_backward(timed.begin_ns);
    }

    // Hooks reduce gradients, so what is reduced between them without one is another tensor. DDP
    // has none outside of hooks; others may reduce what is left when all gradients are ready.
    void find_collectives_of_layers() {
        const auto by_hook = [](const TracedCollective& collective) {
            return collective.reduces_gradients() && collective.in_hook;
        };
        if (std::ranges::none_of(step_.collectives, by_hook)) {
            return;
        }
        const auto gradients = static_cast<std::size_t>(
            std::ranges::count_if(marks_, [&](const TimedMark& timed) { return is_ready(timed); }));
        for (TracedCollective& collective : step_.collectives) {
            collective.of_layers = collective.reduces_gradients() && !collective.in_hook &&
                                   (step_.is_ddp || collective.ready_before < gradients);
        }
    }

    // Where DDP copies gradients into buckets, one that it does not copy is none of its own: a
    // parameter of what it does not wrap.
    void drop_unreduced() {
        if (step_.batched_copies) {
            return;  // a copy is of many
        }
        std::vector<TimedMark*> without_copy;
        bool any_copy = false;
        TimedMark* open = nullptr;
        for (TimedMark& timed : marks_) {
            if (is_ready(timed)) {
                if (open != nullptr) {
                    without_copy.push_back(open);
                }
                open = &timed;
            } else if (timed.mark.kind == MarkKind::copy_in && open != nullptr) {
                any_copy = true;
                open = nullptr;
            }
        }
        if (open != nullptr) {
            without_copy.push_back(open);
        }
        if (!any_copy) {
            return;
        }
        for (TimedMark* timed : without_copy) {
            timed->mark.kind = MarkKind::operation;
            ++step_.unreduced;
        }
    }

    void count_ready() {
        std::size_t ready = 0;
        for (const TimedMark& timed : marks_) {
            if (is_ready(timed)) {
                ++ready;
            } else if (timed.mark.collective >= 0) {
                step_.collectives[static_cast<std::size_t>(timed.mark.collective)].ready_before =
                    ready;
            }
        }
    }

    // Whether what runs a collective calls it as the annotation does. Gloo reduces and scatters by
    // an all-reduce.
    [[nodiscard]] bool runs(const TraceEvent& annotation,
                            const TracedCollective& collective) const {
        const std::string name = plain_name(trace_.name_of(annotation));
        return collective.gathers()    ? name.starts_with("allgather")
               : collective.scatters() ? name.starts_with("reducescatter") || name == "allreduce"
                                       : name == collective.name;
    }

    // Where all-gathers block the host, what FSDP2 does ends after them. Others may be faster.
    void find_asynchronous_gathers() {
        for (const auto& [i, end_ns] : work_ends_ns_) {
            const TracedCollective& collective = step_.collectives[i];
            step_.shards.asynchronous |= collective.gathers() && collective.end &&
                                         range_.begin_ns + collective.end->count() / 1000 > end_ns;
        }
    }

    // The first annotation of the same kind that begins once the collective is issued, or within.
    void match_annotation(TracedCollective& collective) {
        const TraceEvent** match = nullptr;
        for (const TraceEvent*& annotation : annotations_) {
            if (annotation == nullptr || !runs(*annotation, collective)) {
                continue;
            }
            // What is gathered or scattered has two sizes.
            const bool same_size = collective.gathers() || collective.scatters() ||
                                   annotation->elements == collective.elements;
            if (match == nullptr || same_size) {
                match = &annotation;
            }
            if (same_size) {
                break;
            }
        }
        if (match == nullptr) {
            return;
        }
        set_span(collective, **match);
        if (collective.elements < 0) {
            collective.elements = (*match)->elements;
        }
        if (collective.dtype.empty() && (*match)->type >= 0) {
            collective.dtype =
                dtype_of_type(trace_.names[static_cast<std::size_t>((*match)->type)]);
        }
        *match = nullptr;
    }

    const TraceIndex& index_;
    const ProfilerTrace& trace_;
    RawStep raw_;
    const StepRange& range_ = raw_.range;
    StepPhases& phases_ = raw_.phases;
    TracedStep& step_ = raw_.step;
    std::vector<TimedMark>& marks_ = raw_.marks;
    std::vector<const TraceEvent*> annotations_;
    // The compute stream had to wait, before a mark.
    struct Gap {
        std::size_t mark = 0;
        std::int64_t begin_ns = 0;
        std::int64_t end_ns = 0;
    };
    std::vector<Gap> gaps_;
    ShardingHooks hooks_;
    std::vector<Gap> shard_copies_;                     // of FSDP2, beside the compute stream
    std::map<std::size_t, std::int64_t> work_ends_ns_;  // of FSDP2, by collective in it
    std::int64_t last_shard_work_ns_ = -1;              // that a collective is in: its begin
    bool gathers_on_compute_stream_ = false;
    bool in_optimizer_ = false;
    std::int64_t free_ns_;  // when the compute stream is done with what was launched so far
    std::size_t last_ready_ = most_step_marks;  // index into marks_; beyond: none yet
    std::vector<std::int64_t> side_free_ns_;    // likewise of each side stream, from 1 on
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
