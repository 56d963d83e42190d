#include "import/kineto/steps.h"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <map>
#include <set>
#include <string_view>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "sim/base/error.h"

namespace bucketwise {
namespace {

// A device that has work queued takes about a microsecond from one kernel to the next; what is
// longer is waiting.
constexpr std::int64_t longest_gap_ns = 20'000;
// A call that waits for the device this long has found it working.
constexpr std::int64_t noticeable_wait_ns = 10'000;
// Steps that follow one another this closely, as a share of a step, leave nothing between them.
constexpr double contiguous = 0.05;

Duration from_ns(std::int64_t ns) {
    return Duration{ns * 1000};
}

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
        {"float", "Float"},    {"double", "Double"},
        {"c10::Half", "Half"}, {"c10::BFloat16", "BFloat16"},
        {"long", "Long"},      {"long int", "Long"},
        {"int", "Int"}};
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

std::string short_name(const std::string& name) {
    constexpr std::size_t longest = 100;
    std::string text;
    for (const char c : name.substr(0, name.find('('))) {
        if (static_cast<unsigned char>(c) >= 0x20 && static_cast<unsigned char>(c) < 0x7f) {
            text += c;
        }
    }
    return text.empty() ? "operation" : text.substr(0, longest);
}

// What all steps of a trace share.
class TraceIndex {
  public:
    explicit TraceIndex(const KinetoTrace& trace) : trace_(trace) {
        choose_compute_stream();
        for (std::size_t i = 0; i < trace.events.size(); ++i) {
            const TraceEvent& event = trace.events[i];
            if (is_on_device(event.kind) && event.correlation >= 0) {
                launched_[event.correlation].push_back(i);
            }
            if (event.kind == TraceEventKind::accumulate_grad ||
                event.kind == TraceEventKind::step) {
                threads_.insert(event.thread);
            }
            has_operations_of_collectives_ |= event.kind == TraceEventKind::collective_op;
            has_calls_ |= event.kind == TraceEventKind::collective_call;
        }
        measure_device_times();
    }

    [[nodiscard]] const KinetoTrace& trace() const { return trace_; }
    [[nodiscard]] bool is_training_thread(std::int32_t thread) const {
        return threads_.count(thread) != 0;
    }
    [[nodiscard]] bool is_compute(const TraceEvent& event) const {
        return event.thread == compute_stream_ && event.kind != TraceEventKind::collective_kernel;
    }
    // Of an event on the device, with the gap before it where the device had work queued.
    [[nodiscard]] Duration device_time(std::size_t event) const {
        const auto found = gaps_ns_.find(event);
        return from_ns(trace_.events[event].duration_ns() +
                       (found == gaps_ns_.end() ? 0 : found->second));
    }
    [[nodiscard]] const std::vector<std::size_t>& launched_by(const TraceEvent& launch) const {
        static const std::vector<std::size_t> nothing;
        const auto found = launched_.find(launch.correlation);
        return launch.correlation < 0 || found == launched_.end() ? nothing : found->second;
    }
    // The outermost of what a trace has of a collective.
    [[nodiscard]] bool is_collective_root(TraceEventKind kind) const {
        return kind == (has_operations_of_collectives_ ? TraceEventKind::collective_op
                        : has_calls_                   ? TraceEventKind::collective_call
                                                       : TraceEventKind::annotation);
    }

  private:
    void choose_compute_stream() {
        std::map<std::int32_t, std::int64_t> busy_ns;
        for (const TraceEvent& event : trace_.events) {
            if (event.kind == TraceEventKind::kernel) {
                busy_ns[event.thread] += event.duration_ns();
            }
        }
        const auto busiest =
            std::max_element(busy_ns.begin(), busy_ns.end(),
                             [](const auto& a, const auto& b) { return a.second < b.second; });
        compute_stream_ = busiest == busy_ns.end() ? -1 : busiest->first;
    }

    void measure_device_times() {
        std::unordered_map<std::int64_t, std::int64_t> launch_end_ns;
        for (const TraceEvent& event : trace_.events) {
            if (event.kind == TraceEventKind::launch && event.correlation >= 0) {
                launch_end_ns[event.correlation] = event.end_ns;
            }
        }
        std::int64_t last_end = 0;
        bool any = false;
        for (std::size_t i = 0; i < trace_.events.size(); ++i) {
            const TraceEvent& event = trace_.events[i];
            if (!is_on_device(event.kind) || !is_compute(event)) {
                continue;
            }
            const auto launch = launch_end_ns.find(event.correlation);
            const std::int64_t gap = event.begin_ns - last_end;
            if (any && launch != launch_end_ns.end() && launch->second <= last_end && gap > 0 &&
                gap <= longest_gap_ns) {
                gaps_ns_[i] = gap;
            }
            last_end = any ? std::max(last_end, event.end_ns) : event.end_ns;
            any = true;
        }
    }

    const KinetoTrace& trace_;
    std::int32_t compute_stream_ = -1;
    std::unordered_map<std::int64_t, std::vector<std::size_t>> launched_;  // by correlation
    std::unordered_map<std::size_t, std::int64_t> gaps_ns_;                // by event
    std::set<std::int32_t> threads_;
    bool has_operations_of_collectives_ = false;
    bool has_calls_ = false;
};

struct StepRange {
    std::string name;
    std::int64_t begin_ns = 0;
    std::int64_t end_ns = 0;
    std::int64_t length_ns = 0;
};

// One step's events, in one pass by rising begin.
class StepReader {
  public:
    StepReader(const TraceIndex& index, const StepRange& range)
        : index_(index), range_(range), trace_(index.trace()) {}

    // When the device is free of what came before, and of this step's work; -1: not told.
    [[nodiscard]] std::int64_t busy_until_ns() const { return busy_until_ns_; }
    [[nodiscard]] std::int64_t last_device_end_ns() const { return last_device_end_ns_; }

    TracedStep read() {
        find_phases();
        if (backward_begin_ns_ < 0) {
            return step_;  // no gradient became ready
        }
        step_.name = range_.name;
        step_.begin_ns = range_.begin_ns;
        step_.length = from_ns(range_.length_ns);
        step_.backward_begin = from_ns(backward_begin_ns_ - range_.begin_ns);
        step_.backward_end = from_ns(backward_end_ns_ - range_.begin_ns);
        for_each_event([&](const TraceEvent& event) { visit(event); });
        for (TimedMark& timed : marks_) {
            timed.mark.at = from_ns(timed.at_ns - range_.begin_ns);
        }
        std::stable_sort(marks_.begin(), marks_.end(),
                         [](const TimedMark& a, const TimedMark& b) { return a.at_ns < b.at_ns; });
        if (!trace_.has_device) {
            for (TracedCollective& collective : step_.collectives) {
                match_annotation(collective);
            }
        }
        find_buffer_copies();
        count_ready();
        if (trace_.has_device) {
            fill_device_phases();
        } else {
            fill_host_phases();
        }
        return step_;
    }

  private:
    struct TimedMark {
        std::int64_t at_ns = 0;
        std::int64_t begin_ns = 0;
        StepMark mark;
        std::int32_t collective = -1;  // index into TracedStep::collectives
        bool copies_memory = false;    // device to device, by a copy engine's call
    };

    template <typename Visit>
    void for_each_event(Visit visit) const {
        const auto begin = std::lower_bound(
            trace_.events.begin(), trace_.events.end(), range_.begin_ns,
            [](const TraceEvent& event, std::int64_t time) { return event.begin_ns < time; });
        for (auto event = begin; event != trace_.events.end() && event->begin_ns < range_.end_ns;
             ++event) {
            visit(*event);
        }
    }

    // Where backward begins and ends on the host. Of several backwards (accumulation) the last.
    void find_phases() {
        std::int64_t last_forward_ns = range_.begin_ns;
        std::int64_t forwards = 0;
        std::int64_t optimizer_ns = range_.end_ns;
        for_each_event([&](const TraceEvent& event) {
            if (event.kind == TraceEventKind::ddp_forward) {
                last_forward_ns = event.begin_ns;
                ++forwards;
            } else if (event.kind == TraceEventKind::optimizer) {
                optimizer_ns = std::min(optimizer_ns, event.begin_ns);
            }
        });
        step_.micro_steps = std::max<std::int64_t>(forwards, 1);
        forward_begin_ns_ = range_.begin_ns;
        bool any_ready = false;
        for_each_event([&](const TraceEvent& event) {
            if (event.kind == TraceEventKind::backward_node ||
                event.kind == TraceEventKind::accumulate_grad) {
                if (event.begin_ns < last_forward_ns) {
                    forward_begin_ns_ = std::max(forward_begin_ns_, event.end_ns);
                    return;
                }
                any_ready |= event.kind == TraceEventKind::accumulate_grad;
                if (backward_begin_ns_ < 0) {
                    backward_begin_ns_ = event.begin_ns;
                }
                backward_end_ns_ = std::max(backward_end_ns_, event.end_ns);
            } else if (event.kind == TraceEventKind::bucket_to_grad &&
                       event.begin_ns >= last_forward_ns) {
                backward_end_ns_ = std::max(backward_end_ns_, event.end_ns);
            }
        });
        if (!any_ready) {
            backward_begin_ns_ = -1;
            return;
        }
        optimizer_begins_ns_ = std::max(optimizer_ns, backward_end_ns_);
    }

    [[nodiscard]] bool in_backward(std::int64_t ns) const {
        return ns >= backward_begin_ns_ && ns <= backward_end_ns_;
    }

    void visit(const TraceEvent& event) {
        if (event.kind == TraceEventKind::annotation) {
            remember_annotation(event);
        }
        if (!index_.is_training_thread(event.thread)) {
            return;
        }
        visit_on_host(event);
    }

    // Gloo's run on threads of their own.
    void remember_annotation(const TraceEvent& event) { annotations_.push_back(&event); }

    void visit_on_host(const TraceEvent& event) {
        switch (event.kind) {
            case TraceEventKind::backward_node:
                hook_end_ns_ = contains_accumulate(event) ? event.end_ns : hook_end_ns_;
                break;
            case TraceEventKind::accumulate_grad:
                add(event.end_ns, event.begin_ns, {MarkKind::ready, "AccumulateGrad"});
                hook_end_ns_ = std::max(hook_end_ns_, event.end_ns);
                break;
            case TraceEventKind::reducer_copy:
                step_.is_ddp = true;
                step_.hook_casts |= trace_.name_of(event).find("copy_") != std::string::npos;
                open_copy(event, MarkKind::copy_in);
                break;
            case TraceEventKind::division:
                if (event.begin_ns < hook_end_ns_ && in_backward(event.begin_ns) &&
                    event.begin_ns >= copy_end_ns_) {
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
            case TraceEventKind::launch:
                visit_launch(event);
                break;
            case TraceEventKind::synchronise:
                waits_.emplace_back(event.begin_ns, event.end_ns);
                break;
            default:
                visit_collective(event);
                break;
        }
    }

    [[nodiscard]] bool contains_accumulate(const TraceEvent& node) const {
        return trace_.name_of(node).find("AccumulateGrad") != std::string::npos;
    }

    void add(std::int64_t at_ns, std::int64_t begin_ns, StepMark mark) {
        marks_.push_back({at_ns, begin_ns, std::move(mark)});
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

    void visit_launch(const TraceEvent& event) {
        const std::vector<std::size_t>& launched = index_.launched_by(event);
        if (event.begin_ns < collective_end_ns_) {
            for (const std::size_t i : launched) {
                if (trace_.events[i].kind == TraceEventKind::collective_kernel) {
                    set_span(step_.collectives.back(), trace_.events[i]);
                }
            }
            return;
        }
        bool first = true;
        for (const std::size_t i : launched) {
            const TraceEvent& work = trace_.events[i];
            if (!index_.is_compute(work)) {
                if (work.kind == TraceEventKind::kernel) {
                    step_.other_streams += from_ns(work.duration_ns());
                }
                continue;
            }
            step_.device_busy += index_.device_time(i);
            note_device(event, work);
            StepMark mark{MarkKind::operation, operation_name(work)};
            mark.device = index_.device_time(i);
            mark.bytes = work.bytes;
            mark.device_begin = from_ns(work.begin_ns - range_.begin_ns);
            if (event.begin_ns < copy_end_ns_ && first) {
                mark.kind = copy_kind_;
                mark.elements = copy_elements_;
            }
            add(event.end_ns, event.begin_ns, std::move(mark));
            marks_.back().copies_memory = work.kind == TraceEventKind::copy &&
                                          trace_.name_of(work).find("DtoD") != std::string::npos;
            first = false;
        }
    }

    // A first kernel that waits though it was launched has other work before it.
    void note_device(const TraceEvent& launch, const TraceEvent& work) {
        if (last_device_end_ns_ < 0 && work.begin_ns > launch.end_ns + longest_gap_ns) {
            busy_until_ns_ = work.begin_ns;
        }
        last_device_end_ns_ = std::max(last_device_end_ns_, work.end_ns);
    }

    [[nodiscard]] std::string operation_name(const TraceEvent& work) const {
        const auto found = trace_.operation_names.find(work.external_id);
        return short_name(work.external_id >= 0 && found != trace_.operation_names.end()
                              ? trace_.names[static_cast<std::size_t>(found->second)]
                              : trace_.name_of(work));
    }

    void visit_collective(const TraceEvent& event) {
        const bool is_root = index_.is_collective_root(event.kind);
        if (is_root && event.begin_ns >= collective_end_ns_) {
            begin_collective(event);
        }
        const bool inside = event.begin_ns < collective_end_ns_ && !step_.collectives.empty();
        if (!inside) {
            return;
        }
        TracedCollective& collective = step_.collectives.back();
        if (event.call >= 0) {
            take_call(trace_.calls[static_cast<std::size_t>(event.call)], collective);
        }
        if (collective.elements < 0 && event.elements >= 0) {
            collective.elements = event.elements;
        }
    }

    void begin_collective(const TraceEvent& event) {
        TracedCollective collective;
        collective.name = plain_name(trace_.name_of(event));
        if (event.call >= 0) {
            collective.name = plain_name(trace_.calls[static_cast<std::size_t>(event.call)].name);
        }
        if (!moves_data(collective.name)) {
            return;
        }
        collective_end_ns_ = event.end_ns;
        collective.in_backward =
            event.begin_ns >= backward_begin_ns_ && event.begin_ns <= optimizer_begins_ns_;
        collective.issued = from_ns(event.end_ns - range_.begin_ns);
        step_.collectives.push_back(std::move(collective));
        add(event.end_ns, event.begin_ns, {MarkKind::collective, step_.collectives.back().name});
        marks_.back().collective = static_cast<std::int32_t>(step_.collectives.size() - 1);
    }

    static void take_call(const CollectiveCall& call, TracedCollective& collective) {
        if (!moves_data(plain_name(call.name))) {
            return;
        }
        if (call.elements_in >= 0) {
            collective.elements = call.elements_in;
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
            if (timed.collective >= 0) {
                const TracedCollective& collective =
                    step_.collectives[static_cast<std::size_t>(timed.collective)];
                if (collective.name == "broadcast" && !collective.in_backward) {
                    awaited += collective.bytes.count;
                }
            } else if (timed.copies_memory && timed.mark.kind == MarkKind::operation &&
                       timed.mark.bytes > 0 && timed.mark.bytes <= awaited) {
                timed.mark.kind = MarkKind::copy_buffer;
                awaited -= timed.mark.bytes;
            }
        }
    }

    void count_ready() {
        std::size_t ready = 0;
        for (const TimedMark& timed : marks_) {
            if (timed.mark.kind == MarkKind::ready && in_backward(timed.begin_ns)) {
                ++ready;
            } else if (timed.collective >= 0) {
                step_.collectives[static_cast<std::size_t>(timed.collective)].ready_before = ready;
            }
        }
    }

    // Of the time between, what the host spent waiting for the device.
    [[nodiscard]] std::int64_t waited_ns(std::int64_t from, std::int64_t to) const {
        std::int64_t sum = 0;
        for (const auto& [begin, end] : waits_) {
            sum += std::max<std::int64_t>(std::min(end, to) - std::max(begin, from), 0);
        }
        return sum;
    }

    void fill_device_phases() {
        std::int64_t now = forward_begin_ns_;
        const auto host_until = [&](std::int64_t at) {
            at = std::max(at, now);
            const std::int64_t host = at - now - waited_ns(now, at);
            now = at;
            return from_ns(std::max<std::int64_t>(host, 0));
        };
        for (TimedMark& timed : marks_) {
            if (timed.at_ns <= forward_begin_ns_) {
                continue;
            }
            if (timed.begin_ns > backward_end_ns_) {
                if (timed.mark.kind != MarkKind::collective) {
                    step_.optimizer_device += timed.mark.device;
                }
                continue;
            }
            const bool backward = timed.begin_ns >= backward_begin_ns_;
            timed.mark.host = host_until(timed.at_ns);
            (backward ? step_.backward : step_.forward).push_back(std::move(timed.mark));
        }
        step_.optimizer_host = host_until(range_.begin_ns + range_.length_ns);
        for (const auto& [begin, end] : waits_) {
            step_.waited += from_ns(end - begin);
            step_.waits += end - begin >= noticeable_wait_ns ? 1 : 0;
        }
    }

    // Where computing is the host's own, what lies between two marks is one operation. After the
    // last gradient the host waits for communication, but for what it copies.
    void fill_host_phases() {
        const auto last_ready =
            std::find_if(marks_.rbegin(), marks_.rend(), [&](const TimedMark& timed) {
                return timed.mark.kind == MarkKind::ready && in_backward(timed.begin_ns);
            });
        const std::int64_t last_ready_ns =
            last_ready == marks_.rend() ? backward_begin_ns_ : last_ready->at_ns;
        std::int64_t now = forward_begin_ns_;
        bool in_forward = true;
        const auto end_forward = [&] {
            StepMark mark{MarkKind::operation, "forward"};
            mark.device_begin = from_ns(now - range_.begin_ns);
            mark.device = from_ns(backward_begin_ns_ - now);
            step_.forward.push_back(std::move(mark));
            now = backward_begin_ns_;
            in_forward = false;
        };
        for (TimedMark& timed : marks_) {
            if (timed.at_ns <= forward_begin_ns_ || timed.begin_ns > backward_end_ns_) {
                continue;
            }
            if (in_forward && timed.begin_ns >= backward_begin_ns_) {
                end_forward();
            }
            const bool copies =
                timed.mark.kind == MarkKind::copy_in || timed.mark.kind == MarkKind::copy_back;
            const bool alone =
                timed.begin_ns > last_ready_ns || copies || timed.mark.kind == MarkKind::collective;
            if (alone && timed.begin_ns <= last_ready_ns) {
                StepMark between{MarkKind::operation, in_forward ? "forward" : "hooks"};
                between.device_begin = from_ns(now - range_.begin_ns);
                between.device = from_ns(std::max<std::int64_t>(timed.begin_ns - now, 0));
                (in_forward ? step_.forward : step_.backward).push_back(std::move(between));
            } else if (alone) {
                step_.waited += from_ns(std::max<std::int64_t>(timed.begin_ns - now, 0));
            }
            timed.mark.device_begin = from_ns((alone ? timed.begin_ns : now) - range_.begin_ns);
            timed.mark.device =
                from_ns(std::max<std::int64_t>(timed.at_ns - (alone ? timed.begin_ns : now), 0));
            now = std::max(now, blocking_end_ns(timed));
            step_.waited += from_ns(now - timed.at_ns);
            (in_forward ? step_.forward : step_.backward).push_back(std::move(timed.mark));
        }
        if (in_forward) {
            end_forward();
        }
        step_.waited += from_ns(std::max<std::int64_t>(backward_end_ns_ - now, 0));
        step_.device_busy = Duration{0};
        step_.optimizer_device = from_ns(
            std::max<std::int64_t>(range_.begin_ns + range_.length_ns - backward_end_ns_, 0));
    }

    // A broadcast of buffers is waited for.
    [[nodiscard]] std::int64_t blocking_end_ns(const TimedMark& timed) const {
        if (timed.collective >= 0) {
            const TracedCollective& collective =
                step_.collectives[static_cast<std::size_t>(timed.collective)];
            if (!collective.in_backward && collective.end) {
                return std::max(timed.at_ns, range_.begin_ns + collective.end->count() / 1000);
            }
        }
        return timed.at_ns;
    }

    // The first annotation of the same kind that begins once the collective is issued, or within.
    void match_annotation(TracedCollective& collective) {
        if (collective.begin) {
            return;
        }
        const TraceEvent** match = nullptr;
        for (const TraceEvent*& annotation : annotations_) {
            if (annotation == nullptr ||
                plain_name(trace_.name_of(*annotation)) != collective.name) {
                continue;
            }
            const bool same_size = annotation->elements == collective.elements;
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
    const StepRange& range_;
    const KinetoTrace& trace_;
    TracedStep step_;
    std::vector<TimedMark> marks_;
    std::vector<std::pair<std::int64_t, std::int64_t>> waits_;
    std::vector<const TraceEvent*> annotations_;
    std::int64_t forward_begin_ns_ = 0;
    std::int64_t backward_begin_ns_ = -1;
    std::int64_t backward_end_ns_ = -1;
    std::int64_t optimizer_begins_ns_ = 0;
    std::int64_t hook_end_ns_ = 0;
    std::int64_t copy_end_ns_ = 0;
    MarkKind copy_kind_ = MarkKind::copy_in;
    std::int64_t copy_elements_ = -1;
    std::int64_t collective_end_ns_ = 0;
    std::int64_t busy_until_ns_ = -1;
    std::int64_t last_device_end_ns_ = -1;
};

// Moves the step's begin to where the device has done what came before.
void begin_at(std::int64_t begin_ns, TracedStep& step) {
    const Duration later = from_ns(begin_ns - step.begin_ns);
    step.begin_ns = begin_ns;
    step.backward_begin -= later;
    step.backward_end -= later;
    for (std::vector<StepMark>* pass : {&step.forward, &step.backward}) {
        for (StepMark& mark : *pass) {
            mark.at -= later;
            mark.device_begin -= later;
        }
    }
    for (TracedCollective& collective : step.collectives) {
        collective.issued -= later;
        if (collective.begin) {
            *collective.begin -= later;
            *collective.end -= later;
        }
    }
}

std::vector<StepRange> ranges_of(const KinetoTrace& trace, TraceEventKind kind) {
    std::vector<StepRange> ranges;
    for (const TraceEvent& event : trace.events) {
        if (event.kind == kind) {
            ranges.push_back({short_name(trace.name_of(event)), event.begin_ns, event.end_ns,
                              event.duration_ns()});
        }
    }
    return ranges;
}

void make_contiguous(std::vector<StepRange>& ranges) {
    for (std::size_t i = 0; i + 1 < ranges.size(); ++i) {
        const std::int64_t period = ranges[i + 1].begin_ns - ranges[i].begin_ns;
        const auto length = static_cast<double>(ranges[i].length_ns);
        if (static_cast<double>(period) <= length * (1 + contiguous)) {
            ranges[i].length_ns = period;
            ranges[i].end_ns = std::min(ranges[i].end_ns, ranges[i + 1].begin_ns);
        }
    }
}

std::vector<StepRange> step_ranges(const KinetoTrace& trace) {
    std::vector<StepRange> ranges = ranges_of(trace, TraceEventKind::step);
    if (ranges.empty()) {
        // From the end of one optimizer step to that of the next.
        const std::vector<StepRange> optimizers = ranges_of(trace, TraceEventKind::optimizer);
        for (std::size_t i = 0; i + 1 < optimizers.size(); ++i) {
            ranges.push_back({fmt::format("step {}", i + 1), optimizers[i].end_ns,
                              optimizers[i + 1].end_ns,
                              optimizers[i + 1].end_ns - optimizers[i].end_ns});
        }
    }
    make_contiguous(ranges);
    return ranges;
}

std::string what_is_there(const KinetoTrace& trace, std::size_t ranges) {
    if (trace.events.empty()) {
        return fmt::format("{} events, none of them of PyTorch's profiler", trace.events_read);
    }
    if (ranges > 0) {
        return fmt::format(
            "{} steps in which no gradient became ready (no AccumulateGrad: "
            "inference, or a profile of the device only)",
            ranges);
    }
    return "no ProfilerStep and fewer than two Optimizer.step; call the profiler's step() after "
           "each training step";
}

}  // namespace

std::vector<TracedStep> traced_steps(const KinetoTrace& trace) {
    const TraceIndex index(trace);
    const std::vector<StepRange> ranges = step_ranges(trace);
    std::vector<TracedStep> steps;
    std::int64_t last_end_ns = -1;  // of the device with the step before
    for (std::size_t i = 0; i < ranges.size(); ++i) {
        StepReader reader(index, ranges[i]);
        TracedStep step = reader.read();
        const bool follows =
            i > 0 && ranges[i - 1].begin_ns + ranges[i - 1].length_ns == ranges[i].begin_ns;
        const std::int64_t begin_ns =
            std::max(ranges[i].begin_ns, follows ? last_end_ns : reader.busy_until_ns());
        last_end_ns = std::max(last_end_ns, reader.last_device_end_ns());
        // Until the next one, which begins when the host has come so far and the device is free.
        const std::int64_t end_ns =
            std::max(ranges[i].begin_ns + ranges[i].length_ns, reader.last_device_end_ns());
        if (!step.backward.empty()) {
            begin_at(begin_ns, step);
            step.length = from_ns(std::max<std::int64_t>(end_ns - begin_ns, 1));
            steps.push_back(std::move(step));
        }
    }
    if (steps.empty()) {
        throw InputError(trace.file, "/traceEvents", "a training step",
                         what_is_there(trace, ranges.size()));
    }
    return steps;
}

}  // namespace bucketwise
