#include <algorithm>
#include <utility>

#include "import/trace/collective_names.h"
#include "import/trace/raw_step.h"
#include "import/trace/sharding_hooks.h"

namespace bucketwise {
namespace {

class PhaseReader {
  public:
    PhaseReader(const TraceIndex& index, const StepRange& range)
        : index_(index), trace_(index.trace()), range_(range) {}

    StepPhases read() {
        find_forwards();
        phases_.forward_begin_ns = range_.begin_ns;
        phases_.micro_step_before_ns = phases_.micro_steps > 1 ? range_.begin_ns : -1;
        for (const TraceEvent& event : index_.events_in(range_.begin_ns, range_.end_ns)) {
            visit(event);
        }
        if (!any_ready_) {
            phases_.backward_begin_ns = -1;
            return phases_;
        }
        extend_by_reductions();
        phases_.optimizer_begin_ns = std::max(optimizer_ns_, phases_.backward_end_ns);
        return phases_;
    }

  private:
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

    void find_forwards() {
        std::int64_t micro_step_ns = range_.begin_ns;
        std::int64_t forwards = 0;
        bool in_forward = false;  // wrapped modules may lie within one another or side by side
        std::int64_t node_end_ns = range_.begin_ns;  // checkpointing runs forward again in a node
        for (const TraceEvent& event : index_.events_in(range_.begin_ns, range_.end_ns)) {
            gathers_ |= is_hook(event, ShardingHook::gather);
            if (event.kind == TraceEventKind::backward_node) {
                node_end_ns = std::max(node_end_ns, event.end_ns);
            } else if (begins_forward(event) && event.begin_ns >= node_end_ns) {
                last_forward_ns_ = event.begin_ns;
                if (!std::exchange(in_forward, true)) {
                    forward_before_ns_ = std::exchange(micro_step_ns, event.begin_ns);
                    ++forwards;
                }
            } else if (event.kind == TraceEventKind::accumulate_grad) {
                in_forward = false;
            } else if (event.kind == TraceEventKind::optimizer) {
                optimizer_ns_ = std::min(optimizer_ns_, event.begin_ns);
            }
        }
        phases_.micro_steps = std::max<std::int64_t>(forwards, 1);
    }

    void visit(const TraceEvent& event) {
        const bool of_last = event.begin_ns >= last_forward_ns_;
        std::int64_t& end_ns = of_last ? phases_.backward_end_ns : phases_.forward_begin_ns;
        if (event.kind == TraceEventKind::backward_node ||
            event.kind == TraceEventKind::accumulate_grad) {
            end_ns = std::max(end_ns, event.end_ns);
            if (event.begin_ns < forward_before_ns_) {
                phases_.micro_step_before_ns = phases_.forward_begin_ns;
            }
            any_ready_ |= of_last && event.kind == TraceEventKind::accumulate_grad;
            if (of_last && phases_.backward_begin_ns < 0) {
                phases_.backward_begin_ns = event.begin_ns;
            }
        } else if ((event.kind == TraceEventKind::bucket_to_grad && of_last) ||
                   (gathers_ && is_hook(event, ShardingHook::end_backward))) {
            end_ns = std::max(end_ns, event.end_ns);
        }
    }

    // Loops without DDP may reduce gradients when backward is done, and a host that computes waits
    // there for all-reduces. Backward lasts until then.
    void extend_by_reductions() {
        const std::int64_t ready_ns = phases_.backward_end_ns;
        std::int64_t issued_ns = ready_ns;
        std::int64_t reduced_ns = ready_ns;
        bool by_ddp = false;
        for (const TraceEvent& event : index_.events_in(range_.begin_ns, range_.end_ns)) {
            by_ddp |= event.kind == TraceEventKind::ddp_forward ||
                      event.kind == TraceEventKind::bucket_to_grad ||
                      event.kind == TraceEventKind::reducer_copy;
            const bool runs = event.kind == TraceEventKind::annotation;
            if ((runs || index_.is_collective_root(event.kind)) &&
                event.begin_ns >= phases_.backward_begin_ns && event.end_ns <= optimizer_ns_ &&
                plain_name(trace_.name_of(event)).starts_with("allreduce")) {
                std::int64_t& end_ns = runs ? reduced_ns : issued_ns;
                end_ns = std::max(end_ns, event.end_ns);
            }
        }
        phases_.backward_end_ns =
            std::max(by_ddp ? ready_ns : issued_ns, trace_.has_device ? ready_ns : reduced_ns);
    }

    const TraceIndex& index_;
    const ProfilerTrace& trace_;
    const StepRange& range_;
    StepPhases phases_;
    std::int64_t last_forward_ns_ = range_.begin_ns;
    std::int64_t forward_before_ns_ = range_.begin_ns;  // of the micro-step before
    std::int64_t optimizer_ns_ = range_.end_ns;
    bool gathers_ = false;
    bool any_ready_ = false;
};

}  // namespace

StepPhases read_phases(const TraceIndex& index, const StepRange& range) {
    return PhaseReader(index, range).read();
}

}  // namespace bucketwise
