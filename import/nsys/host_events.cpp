#include "import/nsys/host_events.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "import/trace/collective_names.h"
#include "sim/base/error.h"

namespace bucketwise {
namespace {

// --- collectives ---

// The type that NCCL's kernels reduce, c10d's name by theirs: "..._Sum_f32_RING_LL" since 2.19,
// "..._RING_LL_Sum_float" before.
constexpr std::array<std::pair<std::string_view, std::string_view>, 17> kernel_types{
    {{"f32", "Float"},
     {"float", "Float"},
     {"f16", "Half"},
     {"half", "Half"},
     {"bf16", "BFloat16"},
     {"bfloat16", "BFloat16"},
     {"f64", "Double"},
     {"double", "Double"},
     {"i8", "Char"},
     {"int8", "Char"},
     {"u8", "Byte"},
     {"uint8", "Byte"},
     {"i32", "Int"},
     {"int32", "Int"},
     {"i64", "Long"},
     {"int64", "Long"},
     {"u64", "Long"}}};

// Empty: its name has none.
std::string_view type_of_kernel(std::string_view kernel) {
    kernel = kernel.substr(0, kernel.find('('));
    while (!kernel.empty()) {
        const std::string_view word = kernel.substr(0, kernel.find('_'));
        kernel.remove_prefix(std::min(kernel.size(), word.size() + 1));
        const auto* const found =
            std::ranges::find(kernel_types, word, [](const auto& type) { return type.first; });
        if (found != kernel_types.end()) {
            return found->second;
        }
    }
    return {};
}

// A reduction has the type in its kernel's name. All else is moved as bytes: there, and where the
// name has no type, the number of elements and the bytes tell.
std::string_view type_of(const CollectiveLaunch& launch, std::int64_t elements, bool reduces,
                         std::string_view kernel) {
    const std::string_view named = reduces ? type_of_kernel(kernel) : std::string_view();
    return !named.empty()                                 ? named
           : elements > 0 && launch.bytes == 2 * elements ? "Half"
           : elements > 0 && launch.bytes == 8 * elements ? "Double"
           : elements < 0 && !reduces                     ? "Byte"
                                                          : "";
}

// As c10d calls them; empty: one whose kernel does not tell.
std::string_view collective_of_kernel(std::string_view kernel) {
    constexpr std::array<std::pair<std::string_view, std::string_view>, 6> collectives{
        {{"AllReduce", "allreduce"},
         {"ReduceScatter", "reduce_scatter"},
         {"AllGather", "allgather"},
         {"Broadcast", "broadcast"},
         {"SendRecv", "send"},
         {"Reduce", "reduce"}}};
    const auto* const found = std::ranges::find_if(collectives, [&](const auto& named) {
        return kernel.find(named.first) != std::string_view::npos;
    });
    return found == collectives.end() ? std::string_view() : found->second;
}

bool is_all_reduce(const CollectiveLaunch& launch, const ExportNames& names) {
    return collective_of_kernel(names[launch.name].text) == "allreduce";
}

// Those that a span of a thread's time launched.
std::span<const CollectiveLaunch> launched_within(const HostThread& thread, std::int64_t begin_ns,
                                                  std::int64_t end_ns) {
    const auto begin =
        std::ranges::lower_bound(thread.collectives, begin_ns, {}, &CollectiveLaunch::begin_ns);
    const auto end =
        std::ranges::upper_bound(thread.collectives, end_ns, {}, &CollectiveLaunch::begin_ns);
    return begin < end ? std::span(begin, end) : std::span<const CollectiveLaunch>();
}

// --- events ---

void add_collective(const CollectiveLaunch& launch, std::int32_t thread, CollectiveCall call,
                    ExportProcess& process) {
    const std::string name = "c10d::" + call.name;
    RawEvent raw = process.host_event(name, thread, launch.begin_ns - 1, launch.end_ns + 1);
    raw.has_call = call.elements >= 0;
    raw.call = std::move(call);
    process.add(TraceEventKind::collective_op, std::move(raw));
}

bool is_collective(TraceEventKind kind) {
    return kind == TraceEventKind::collective_op || kind == TraceEventKind::collective_call ||
           kind == TraceEventKind::annotation;
}

// --- gradients that all-reduces stand for ---

// A collective within a step.
struct StepCollective {
    std::size_t step = 0;
    std::int32_t thread = 0;
    const CollectiveLaunch* launch = nullptr;
};

std::optional<std::size_t> step_at(const std::vector<StepSpan>& steps, std::int64_t ns) {
    const auto after = std::ranges::upper_bound(steps, ns, {}, &StepSpan::begin_ns);
    if (after == steps.begin() || ns >= std::prev(after)->end_ns) {
        return std::nullopt;
    }
    return static_cast<std::size_t>(after - steps.begin()) - 1;
}

// Where a step's backward begins, by its first all-reduce of gradients.
struct Backward {
    std::int32_t thread = -1;  // -1: the step has no such all-reduce
    std::int64_t begin_ns = -1;
    std::int64_t first_reduce_ns = -1;
    std::int64_t before_ns = -1;  // the launch before, on the thread that does it all
};

// A communicator, or, where NCCL notes none, the stream of one: PyTorch gives each its own.
using Group = std::pair<std::uint64_t, std::int64_t>;

Group group_of(const CollectiveLaunch& launch) {
    return launch.communicator != 0 ? Group{launch.communicator, 0} : Group{0, launch.stream};
}

class StandingGradients {
  public:
    StandingGradients(ExportProcess& process, const ExportNames& names,
                      const std::vector<std::int64_t>& bytes)
        : process_(process), names_(names), bytes_(bytes) {
        for (std::size_t t = 0; t < process.threads.size(); ++t) {
            for (const CollectiveLaunch& launch : process.threads[t].collectives) {
                if (const auto step = step_at(process.steps, launch.begin_ns)) {
                    collectives_.push_back({*step, static_cast<std::int32_t>(t), &launch});
                }
            }
        }
        std::ranges::stable_sort(collectives_, {}, [](const StepCollective& collective) {
            return std::pair(collective.step, collective.launch->begin_ns);
        });
    }

    void add() {
        const Group group = choose_group();
        find_backwards(group);
        std::vector<std::size_t> before(process_.steps.size());
        for (const StepCollective& collective : collectives_) {
            const bool stands = is_all_reduce(*collective.launch, names_) &&
                                group_of(*collective.launch) == group &&
                                collective.launch->begin_ns >= backwards_[collective.step].begin_ns;
            if (stands) {
                add_gradient(collective, before[collective.step]++);
            } else if (is_other(*collective.launch)) {
                add_collective(*collective.launch, collective.thread,
                               collective_call(*collective.launch, -1, process_, names_), process_);
            }
        }
        note_assumptions();
    }

  private:
    // Broadcasts stay what computing waits for, and the copies after them operations: without
    // ranges nothing tells what a copy costs, as which buffers would be simulated.
    [[nodiscard]] bool is_other(const CollectiveLaunch& launch) const {
        const std::string_view name = collective_of_kernel(names_[launch.name].text);
        return !name.empty() && name != "broadcast";
    }

    // Layers reduce in forward too, where gradients do not: on the thread that runs the loop.
    Group choose_group() const {
        struct Reduced {
            bool in_loop = false;
            std::int64_t bytes = 0;
            std::int64_t device_ns = 0;
        };
        std::map<Group, Reduced> groups;
        for (const StepCollective& collective : collectives_) {
            if (is_all_reduce(*collective.launch, names_)) {
                Reduced& reduced = groups[group_of(*collective.launch)];
                reduced.in_loop |= collective.thread == process_.steps[collective.step].thread;
                reduced.bytes += std::max<std::int64_t>(collective.launch->bytes, 0);
                reduced.device_ns += collective.launch->device_ns;
            }
        }
        if (groups.empty()) {
            throw InputError(process_.builder.head().file, "/CUPTI_ACTIVITY_KIND_KERNEL",
                             "ranges of PyTorch's operations (nsys profile -t cuda,nvtx "
                             "--pytorch=autograd-shapes-nvtx), or all-reduces of NCCL in the steps",
                             fmt::format("neither, in {} steps", process_.steps.size()));
        }
        return std::ranges::max_element(groups, {},
                                        [](const auto& entry) {
                                            const Reduced& reduced = entry.second;
                                            return std::tuple(!reduced.in_loop, reduced.bytes,
                                                              reduced.device_ns);
                                        })
            ->first;
    }

    // Backward begins with the first launch of the thread of the step's first such all-reduce, or
    // with a range of the user's. Where one thread does it all, with the launch before that
    // all-reduce.
    void find_backwards(const Group& group) {
        backwards_.resize(process_.steps.size());
        for (const StepCollective& collective : collectives_) {
            Backward& backward = backwards_[collective.step];
            const std::int64_t at_ns = collective.launch->begin_ns;
            if (backward.thread < 0 && is_all_reduce(*collective.launch, names_) &&
                group_of(*collective.launch) == group) {
                backward = {collective.thread, at_ns, at_ns, -1};
                one_thread_ |= collective.thread == process_.steps[collective.step].thread;
            }
        }
        for (const LaunchCall& launch : process_.launches) {
            const auto step = step_at(process_.steps, launch.begin_ns);
            if (!step || launch.thread != backwards_[*step].thread ||
                launch.begin_ns >= backwards_[*step].first_reduce_ns) {
                continue;
            }
            Backward& backward = backwards_[*step];
            if (launch.thread != process_.steps[*step].thread) {
                backward.begin_ns = std::min(backward.begin_ns, launch.begin_ns);
            } else {
                backward.before_ns = std::max(backward.before_ns, launch.begin_ns);
            }
        }
        for (Backward& backward : backwards_) {
            backward.begin_ns = backward.before_ns >= 0 ? backward.before_ns : backward.begin_ns;
        }
        use_ranges();
        for (std::size_t s = 0; s < backwards_.size(); ++s) {
            if (backwards_[s].thread >= 0) {
                add_backward(process_.steps[s], backwards_[s]);
            }
        }
    }

    void use_ranges() {
        for (const HostThread& thread : process_.threads) {
            for (const HostRange& range : thread.ranges) {
                const auto step = names_[range.name].is_backward
                                      ? step_at(process_.steps, range.begin_ns)
                                      : std::nullopt;
                if (step && range.begin_ns < backwards_[*step].first_reduce_ns) {
                    backwards_[*step].begin_ns = range.begin_ns;
                    marked_ = true;
                }
            }
        }
    }

    void add_backward(const StepSpan& step, const Backward& backward) {
        process_.add(
            TraceEventKind::backward_node,
            process_.host_event("autograd::engine::evaluate_function: of what is not traced",
                                backward.thread, backward.begin_ns - 1, backward.begin_ns));
        // Buckets that are reduced while backward runs are DistributedDataParallel's.
        const std::int64_t begin_ns = step.begin_ns + 1;
        process_.add(TraceEventKind::ddp_forward,
                     process_.host_event("DistributedDataParallel.forward", step.thread, begin_ns,
                                         std::max(backward.begin_ns - 2, begin_ns)));
    }

    void add_gradient(const StepCollective& collective, std::size_t place) {
        CollectiveLaunch launch = *collective.launch;
        if (launch.bytes < 0 && !bytes_.empty()) {
            if (place >= bytes_.size()) {
                throw InputError("--all-reduce-bytes", "",
                                 fmt::format("the bytes of each all-reduce of a step, of which {} "
                                             "has more",
                                             process_.steps[collective.step].name),
                                 fmt::format("{}", bytes_.size()));
            }
            launch.bytes = bytes_[place];
        }
        CollectiveCall call = collective_call(launch, -1, process_, names_);
        if (call.elements < 0) {
            throw InputError(process_.builder.head().file, "/NVTX_EVENTS",
                             "the sizes of all-reduces: ranges of PyTorch's operations (nsys "
                             "profile -t cuda,nvtx --pytorch=autograd-shapes-nvtx), NCCL's "
                             "payloads (nsys export --include-blobs=true), or --all-reduce-bytes",
                             fmt::format("all-reduces of unknown size in {}",
                                         process_.steps[collective.step].name));
        }
        const std::int64_t begin_ns = launch.begin_ns - 3;
        process_.add(TraceEventKind::accumulate_grad,
                     process_.host_event("torch::autograd::AccumulateGrad", collective.thread,
                                         begin_ns + 1, begin_ns + 2));
        process_.add(TraceEventKind::backward_node,
                     process_.host_event(
                         "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad",
                         collective.thread, begin_ns, launch.end_ns + 1));
        add_collective(launch, collective.thread, std::move(call), process_);
    }

    void note_assumptions() {
        std::vector<TraceNote>& notes = process_.builder.head().notes;
        notes.push_back({"gradients",
                         "there are no ranges of PyTorch's operations: each all-reduce of backward "
                         "is taken for a bucket of DistributedDataParallel's, and stands for one "
                         "gradient, ready when it is launched, so that other caps than the traced "
                         "one can only join buckets (nsys profile --pytorch=autograd-shapes-nvtx "
                         "tells gradients)",
                         true});
        if (one_thread_ && !marked_) {
            notes.push_back({"passes",
                             "one thread launches all of a step, so nothing tells where backward "
                             "begins: taken to begin just before its first all-reduce",
                             true});
        }
    }

    ExportProcess& process_;
    const ExportNames& names_;
    const std::vector<std::int64_t>& bytes_;
    std::vector<StepCollective> collectives_;  // by step and time
    std::vector<Backward> backwards_;          // by step
    bool one_thread_ = false;
    bool marked_ = false;
};

}  // namespace

CollectiveCall collective_call(const CollectiveLaunch& launch, std::int64_t elements,
                               const ExportProcess& process, const ExportNames& names) {
    const std::string& kernel = names[launch.name].text;
    CollectiveCall call;
    call.name = collective_of_kernel(kernel);
    call.elements = elements;
    call.dtype = type_of(launch, elements, call.name.find("reduce") != std::string::npos, kernel);
    if (elements < 0 && launch.bytes >= 0) {
        call.elements = launch.bytes / bytes_of_dtype(call.dtype);
    }
    if (const auto found = process.ranks_of.find(launch.communicator);
        found != process.ranks_of.end()) {
        call.group_size = found->second;
    }
    call.group = launch.communicator != 0 ? fmt::format("{:#x}", launch.communicator)
                                          : fmt::format("stream {}", launch.stream);
    return call;
}

void add_steps(ExportProcess& process) {
    for (const StepSpan& step : process.steps) {
        process.add(TraceEventKind::step,
                    process.host_event(step.name, step.thread, step.begin_ns, step.end_ns));
    }
    for (const LoopRange& range : process.loop_ranges) {
        if (range.is_optimizer && process.in_window(range.begin_ns)) {
            process.add(
                TraceEventKind::optimizer,
                process.host_event("Optimizer.step", range.thread, range.begin_ns, range.end_ns));
        }
    }
}

void add_operations(ExportProcess& process, const ExportNames& names) {
    bool any_collective = false;
    for (std::size_t t = 0; t < process.threads.size(); ++t) {
        const HostThread& thread = process.threads[t];
        for (std::size_t i = 0; i < thread.ranges.size(); ++i) {
            const HostRange& range = thread.ranges[i];
            const ExportName& name = names[range.name];
            const bool skipped =
                name.kind == TraceEventKind::step || name.kind == TraceEventKind::optimizer;
            if (skipped || (!name.kind && !range.launched)) {
                continue;
            }
            const auto launched = launched_within(thread, range.begin_ns, range.end_ns);
            if (name.kind == TraceEventKind::collective_call && launched.empty()) {
                continue;  // of waiting, or other bookkeeping: the name of the call is not told
            }
            RawEvent raw =
                process.host_event(name.kind == TraceEventKind::accumulate_grad
                                       ? std::string_view("torch::autograd::AccumulateGrad")
                                       : name.text,
                                   static_cast<std::int32_t>(t), range.begin_ns, range.end_ns);
            raw.event.elements = range.elements;
            raw.event.external_id =
                range.launched ? thread.first_range + static_cast<std::int64_t>(i) : -1;
            if (name.kind && is_collective(*name.kind)) {
                any_collective = true;
                if (!launched.empty()) {
                    raw.call = collective_call(launched.front(), range.elements, process, names);
                    if (*name.kind != TraceEventKind::collective_call || raw.call.name.empty()) {
                        raw.call.name = name.text;
                    }
                    raw.has_call = true;
                }
            }
            raw.names_work = true;
            const auto kind = kind_of(Category::operation, raw.name);
            process.add(kind.value_or(TraceEventKind::operation), std::move(raw));
        }
    }
    if (any_collective) {
        return;
    }
    for (std::size_t t = 0; t < process.threads.size(); ++t) {
        for (const CollectiveLaunch& launch : process.threads[t].collectives) {
            CollectiveCall call = collective_call(launch, -1, process, names);
            if (!call.name.empty()) {
                add_collective(launch, static_cast<std::int32_t>(t), std::move(call), process);
            }
        }
    }
}

void add_standing_gradients(ExportProcess& process, const ExportNames& names,
                            const std::vector<std::int64_t>& bytes) {
    StandingGradients(process, names, bytes).add();
}

}  // namespace bucketwise
