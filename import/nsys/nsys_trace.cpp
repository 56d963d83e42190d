#include "import/nsys/nsys_trace.h"

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "import/nsys/collective_payload.h"
#include "import/nsys/export_names.h"
#include "import/nsys/export_process.h"
#include "import/nsys/export_steps.h"
#include "import/nsys/host_events.h"
#include "import/source/plain_text.h"
#include "import/trace/trace_builder.h"
#include "sim/base/error.h"

namespace bucketwise {
namespace {

constexpr const char* kernel_table = "CUPTI_ACTIVITY_KIND_KERNEL";
constexpr const char* copy_table = "CUPTI_ACTIVITY_KIND_MEMCPY";
constexpr const char* fill_table = "CUPTI_ACTIVITY_KIND_MEMSET";
constexpr const char* graph_table = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE";
constexpr const char* call_table = "CUPTI_ACTIVITY_KIND_RUNTIME";
constexpr const char* range_table = "NVTX_EVENTS";
constexpr const char* how_to_record =
    "nsys profile -t cuda,nvtx --pytorch=autograd-shapes-nvtx, then nsys export --type sqlite "
    "--include-blobs=true";

// Serialized identifiers: the lowest 24 bits are the thread's.
std::int64_t process_of(std::int64_t global_id) {
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(global_id) >> 24U);
}

// As Kineto calls copies, by CUPTI's number of the kind (CUpti_ActivityMemcpyKind).
const char* name_of_copy(std::int64_t kind) {
    return kind == 1    ? "Memcpy HtoD (Host -> Device)"
           : kind == 2  ? "Memcpy DtoH (Device -> Host)"
           : kind == 8  ? "Memcpy DtoD (Device -> Device)"
           : kind == 10 ? "Memcpy PtoP (Device -> Device)"
                        : "Memcpy";
}

// Calls of NCCL that move data, and those that make communicators.
bool is_collective_note(std::string_view name) {
    return name.starts_with("nccl") && !name.starts_with("ncclGroup") &&
           name.find(':') == std::string_view::npos;
}

class ExportReader {
  public:
    ExportReader(ExportDatabase& database, const NsysRequest& request)
        : database_(database),
          request_(request),
          kept_(database.name(), "",
                "record fewer steps: nsys profile --capture-range=cudaProfilerApi") {}

    std::vector<ProfilerTrace> read() {
        constexpr std::array<const char*, 8> tables{"StringIds", range_table,  range_table,
                                                    call_table,  kernel_table, copy_table,
                                                    fill_table,  graph_table};
        refuse_foreign();
        database_.expect_rows_of(tables);
        names_.emplace(database_, request_.step_range, kept_);
        schemas_ = payload_schemas(database_);
        read_ranges(&ExportReader::take_loop_range);
        choose_steps();
        read_ranges(&ExportReader::take_range);
        nest_ranges();
        read_calls();
        read_device_work();
        return traces();
    }

  private:
    void refuse_foreign() const {
        if (database_.has(kernel_table) || database_.has(graph_table)) {
            return;
        }
        const std::vector<std::string>& tables = database_.tables();
        throw InputError(database_.name(), "",
                         fmt::format("an export of Nsight Systems with kernels ({}: {})",
                                     kernel_table, how_to_record),
                         tables.empty()
                             ? "a database without tables"
                             : plain_text(fmt::format("a database of {} tables: {}", tables.size(),
                                                      fmt::join(tables, ", "))));
    }

    // Where rows do not name their process there must be one.
    ExportProcess& process_of_row(const ExportRows& rows, std::size_t column) {
        const std::optional<std::int64_t> global = rows.number(column);
        if (!global && processes_.size() > 1) {
            throw InputError(database_.name(), "", "rows that say of which process they are",
                             fmt::format("{} processes and rows of any", processes_.size()));
        }
        const std::int64_t id = global               ? process_of(*global)
                                : processes_.empty() ? 0
                                                     : processes_.begin()->first;
        if (last_process_ == nullptr || last_process_->id != id) {
            std::unique_ptr<ExportProcess>& found = processes_[id];
            if (found == nullptr) {
                kept_.hold(sizeof(ExportProcess));
                found = std::make_unique<ExportProcess>(id, database_.name(), kept_);
            }
            last_process_ = found.get();
        }
        return *last_process_;
    }

    // Since the first that is read. A run lasts seconds, so no sum overflows.
    std::int64_t time(const ExportRows& rows, std::size_t column) {
        constexpr std::int64_t latest = 4'000'000'000'000'000'000;
        constexpr std::int64_t longest = 1'000'000'000'000'000;
        const std::int64_t at = rows.required_number(column);
        const std::int64_t first = first_time_.value_or(at);
        if (at < -latest || at > latest || first < -latest || first > latest ||
            (at > first ? at - first : first - at) > longest) {
            throw InputError(database_.name(), rows.place(column),
                             "times of one run, in nanoseconds", "one of weeks");
        }
        first_time_ = first;
        return at - first;
    }

    // --- ranges ---

    struct RangeRow {
        ExportProcess& process;
        std::int32_t thread;
        std::int64_t begin_ns;
        std::int64_t end_ns;
        NamedText text;
        bool nests;
        const ExportRows& rows;
    };

    static constexpr std::array<const char*, 9> range_columns{
        "start",     "end",      "eventType",  "text",      "textId",
        "globalTid", "jsonText", "jsonTextId", "binaryData"};

    // The second time what lies outside of a process's window is passed over before it is read.
    template <typename Take>
    void read_ranges(Take take) {
        constexpr std::int64_t pushed = 59;
        constexpr std::int64_t started = 60;
        constexpr std::int64_t pushed_in_text = 70;
        constexpr std::int64_t started_in_text = 71;
        ExportRows rows = database_.rows(range_table, range_columns);
        while (rows.next()) {
            const std::int64_t type = rows.number(2).value_or(pushed);
            const bool nests = type == pushed || type == pushed_in_text;
            if ((!nests && type != started && type != started_in_text) || !rows.number(1)) {
                continue;  // a mark, a domain, a name; or one that was open at the end
            }
            const std::int64_t begin_ns = time(rows, 0);
            ExportProcess& owner = process_of_row(rows, 5);
            ++owner.rows;
            if (!owner.in_window(begin_ns)) {
                continue;
            }
            const std::string_view text = rows.text(3);
            const NamedText named =
                text.empty() ? names_->text_of(rows.number(4)) : names_->text_of(text);
            if (named.name < 0) {
                continue;
            }
            const std::int64_t end_ns = std::max(time(rows, 1), begin_ns);
            const std::int32_t thread = owner.thread_number(rows.number(5).value_or(0));
            (this->*take)({owner, thread, begin_ns, end_ns, named, nests, rows});
        }
    }

    // The first time: what marks steps, and which communicators there are.
    void take_loop_range(const RangeRow& row) {
        const ExportName& name = (*names_)[row.text.name];
        if (name.loop != LoopMark::none) {
            kept_.keep(row.process.loop_ranges, {row.begin_ns, row.end_ns, row.text.name,
                                                 row.thread, name.loop == LoopMark::optimizer});
        }
        if (name.kind == TraceEventKind::accumulate_grad || name.text == "ncclAllReduce") {
            kept_.keep(name.kind ? row.process.ready_ns : row.process.reduced_ns, row.begin_ns);
        }
        if (name.text.starts_with("ncclCommInit") || name.text.starts_with("ncclCommSplit")) {
            take_communicator(row);
        }
    }

    void take_communicator(const RangeRow& row) {
        const std::optional<CollectivePayload> payload = payload_of(row.rows);
        if (!payload || payload->ranks < 1) {
            return;
        }
        if (payload->communicator != 0) {
            constexpr std::size_t entry_bytes = 100;
            kept_.hold(entry_bytes);
            row.process.ranks_of[payload->communicator] = payload->ranks;
        }
        // The largest is all ranks'.
        TraceHead& head = row.process.builder.head();
        if (payload->ranks > head.world_size.value_or(0)) {
            head.world_size = payload->ranks;
            head.rank = payload->rank >= 0 ? std::optional(payload->rank) : std::nullopt;
        }
    }

    [[nodiscard]] std::optional<CollectivePayload> payload_of(const ExportRows& rows) const {
        if (const std::string_view text = rows.text(6); !text.empty()) {
            return payload_of_json(text);
        }
        // Short enough to be kept whole, as names are.
        if (const NamedText text = names_->text_of(rows.number(7)); text.name >= 0) {
            return payload_of_json((*names_)[text.name].text);
        }
        return payload_of_bytes(rows.bytes(8), schemas_);
    }

    // The second time: operations, and what NCCL notes.
    void take_range(const RangeRow& row) {
        ExportProcess& owner = row.process;
        if (!row.nests) {
            return;
        }
        const ExportName& name = (*names_)[row.text.name];
        HostThread& thread = owner.threads[static_cast<std::size_t>(row.thread)];
        if (is_collective_note(name.text)) {
            const auto payload = payload_of(row.rows).value_or(CollectivePayload{});
            if (payload.ranks < 0) {
                kept_.keep(thread.notes,
                           {row.begin_ns, payload.bytes, payload.communicator, row.text.name});
            }
            return;
        }
        if (!name.kind && !name.is_function && !row.text.of_operation && !name.is_backward) {
            return;
        }
        owner.gradients += name.kind == TraceEventKind::accumulate_grad ? 1 : 0;
        const bool is_operation =
            (name.is_function || row.text.of_operation) && name.loop == LoopMark::none &&
            name.kind != TraceEventKind::ddp_forward && name.kind != TraceEventKind::annotation;
        kept_.keep(thread.ranges, {.begin_ns = row.begin_ns,
                                   .end_ns = row.end_ns,
                                   .elements = row.text.elements,
                                   .name = row.text.name,
                                   .is_operation = is_operation});
    }

    void choose_steps() {
        for (auto& [id, owner] : processes_) {
            owner->steps = marked_steps(*owner, *names_);
            keep_last_steps(*owner);
            owner->rows = 0;  // ranges are read twice
        }
    }

    // A launch is looked for in all ranges around it.
    void nest_ranges() {
        constexpr std::size_t deepest = 2'000;
        for (auto& [id, owner] : processes_) {
            std::int64_t ranges = 0;
            for (HostThread& thread : owner->threads) {
                thread.first_range = std::exchange(ranges, ranges + std::ssize(thread.ranges));
                if (thread.nest() > deepest) {
                    throw InputError(database_.name(), std::string("/") + range_table,
                                     fmt::format("ranges nested at most {} deep", deepest),
                                     "deeper ones");
                }
            }
        }
    }

    // --- calls ---

    void read_calls() {
        constexpr std::array<const char*, 5> columns{"start", "end", "nameId", "globalTid",
                                                     "correlationId"};
        ExportRows rows = database_.rows(call_table, columns);
        while (rows.next()) {
            ExportProcess& owner = process_of_row(rows, 3);
            ++owner.rows;
            const NamedText named = names_->text_of(rows.number(2));
            if (named.name < 0 || !(*names_)[named.name].runtime) {
                continue;
            }
            const std::int64_t begin_ns = time(rows, 0);
            if (!owner.in_window(begin_ns)) {
                continue;
            }
            const std::int64_t end_ns = std::max(time(rows, 1), begin_ns);
            const std::int32_t thread = owner.thread_number(rows.number(3).value_or(0));
            const std::int64_t correlation = rows.number(4).value_or(-1);
            const ExportName& name = (*names_)[named.name];
            if (*name.runtime == TraceEventKind::launch && correlation >= 0) {
                keep_launch(owner, {correlation, begin_ns, end_ns, thread});
            }
            RawEvent raw = owner.host_event(name.text, thread, begin_ns, end_ns);
            raw.event.correlation = correlation;
            owner.builder.add(*name.runtime, raw, rows.row());
        }
        for (auto& [id, owner] : processes_) {
            if (!std::ranges::is_sorted(owner->launches, {}, &LaunchCall::correlation)) {
                std::ranges::stable_sort(owner->launches, {}, &LaunchCall::correlation);
            }
        }
    }

    void keep_launch(ExportProcess& owner, LaunchCall launch) {
        const HostThread& thread = owner.threads[static_cast<std::size_t>(launch.thread)];
        launch.range = thread.innermost(launch.begin_ns);
        while (launch.range >= 0 &&
               !thread.ranges[static_cast<std::size_t>(launch.range)].is_operation) {
            launch.range = thread.ranges[static_cast<std::size_t>(launch.range)].parent;
        }
        kept_.keep(owner.launches, launch);
    }

    // --- the device ---

    void read_device_work() {
        constexpr std::array<const char*, 10> kernel_columns{
            "start",     "end",      "globalPid",     "correlationId", "deviceId",
            "contextId", "streamId", "demangledName", "shortName",     "mangledName"};
        ExportRows kernels = database_.rows(kernel_table, kernel_columns);
        while (kernels.next()) {
            NamedText named = names_->text_of(kernels.number(7));
            for (const std::size_t other : {8U, 9U}) {
                named = named.name < 0 ? names_->text_of(kernels.number(other)) : named;
            }
            take_work(kernels, TraceEventKind::kernel,
                      named.name < 0 ? names_->text_of("kernel").name : named.name, -1);
        }
        constexpr std::array<const char*, 9> copy_columns{"start",         "end",      "globalPid",
                                                          "correlationId", "deviceId", "contextId",
                                                          "streamId",      "bytes",    "copyKind"};
        ExportRows copies = database_.rows(copy_table, copy_columns);
        while (copies.next()) {
            const char* const name = name_of_copy(copies.number(8).value_or(0));
            take_work(copies, TraceEventKind::copy, names_->text_of(name).name,
                      copies.number(7).value_or(-1));
        }
        ExportRows fills =
            database_.rows(fill_table, std::span(copy_columns).first(copy_columns.size() - 1));
        while (fills.next()) {
            take_work(fills, TraceEventKind::fill, names_->text_of("Memset (Device)").name,
                      fills.number(7).value_or(-1));
        }
        // One row for all of a graph; with --cuda-graph-trace=node there are kernels instead.
        ExportRows graphs = database_.rows(graph_table, std::span(copy_columns).first(7));
        while (graphs.next()) {
            take_work(graphs, TraceEventKind::kernel, names_->text_of("CUDA graph").name, -1);
        }
    }

    void take_work(const ExportRows& rows, TraceEventKind kind, std::int32_t name,
                   std::int64_t bytes) {
        ExportProcess& owner = process_of_row(rows, 2);
        ++owner.rows;
        const std::int64_t correlation = rows.number(3).value_or(-1);
        const LaunchCall* const launch = correlation < 0 ? nullptr : owner.launch_of(correlation);
        if (launch == nullptr && !owner.all_steps) {
            return;
        }
        const std::int64_t begin_ns = time(rows, 0);
        const std::int64_t end_ns = std::max(time(rows, 1), begin_ns);
        const std::int64_t device = rows.number(4).value_or(0);
        const std::int64_t stream = rows.number(6).value_or(0);
        const ExportName& named = (*names_)[name];
        const bool is_collective = kind == TraceEventKind::kernel && named.is_collective_kernel;
        if (kind == TraceEventKind::kernel) {
            const auto [found, is_new] = owner.device_ns.emplace(device, 0);
            found->second += end_ns - begin_ns;
            constexpr std::size_t entry_bytes = 60;
            kept_.hold(is_new ? entry_bytes : 0);
        }
        const std::string gpu = fmt::format("GPU {}", device);
        const std::string on_gpu = fmt::format("{}.{}", rows.number(5).value_or(0), stream);
        RawEvent raw{.name = named.text,
                     .process = gpu,
                     .stream = on_gpu,
                     .event = {.begin_ns = begin_ns,
                               .end_ns = end_ns,
                               .correlation = correlation,
                               .bytes = bytes}};
        if (launch != nullptr) {
            HostThread& thread = owner.threads[static_cast<std::size_t>(launch->thread)];
            if (launch->range >= 0) {
                thread.ranges[static_cast<std::size_t>(launch->range)].launched = true;
                raw.event.external_id = thread.first_range + launch->range;
            }
            if (is_collective) {
                owner.reduces = true;
                kept_.keep(thread.collectives,
                           {launch->begin_ns, launch->end_ns, end_ns - begin_ns, stream, name});
            }
            if (owner.steps.empty()) {
                kept_.hold(sizeof(std::uint32_t));
                kept_.keep(owner.work,
                           {launch->begin_ns, launch->end_ns, launch->thread, name,
                            is_collective && named.text.find("AllReduce") != std::string::npos});
            }
        }
        owner.builder.add(is_collective ? TraceEventKind::collective_kernel : kind, raw,
                          rows.row());
    }

    // --- traces ---

    std::vector<ProfilerTrace> traces() {
        std::vector<std::pair<std::int64_t, ExportProcess*>> by_device;
        for (auto& [id, owner] : processes_) {
            if (!owner->device_ns.empty()) {
                by_device.emplace_back(owner->device(), owner.get());
            }
        }
        if (by_device.empty()) {
            throw InputError(database_.name(), std::string("/") + kernel_table,
                             fmt::format("kernels ({})", how_to_record), "none");
        }
        std::ranges::stable_sort(by_device, {}, [](const auto& entry) { return entry.first; });
        // Processes that use a GPU beside training reduce nothing while others do.
        const auto reduces = [](const auto& entry) { return entry.second->reduces; };
        if (std::ranges::any_of(by_device, reduces)) {
            std::erase_if(by_device, [&](const auto& entry) { return !reduces(entry); });
        }
        const std::map<std::int64_t, std::string> gpus = gpu_names();
        std::vector<ProfilerTrace> result;
        for (const auto& [device, owner] : by_device) {
            TraceHead& head = owner->builder.head();
            if (by_device.size() > 1) {
                head.file = fmt::format("{} (process {}, GPU {})", database_.name(),
                                        owner->id & 0xffffff, device);
            }
            const auto gpu = gpus.find(device);
            head.device = gpu != gpus.end() ? gpu->second
                          : gpus.empty()    ? ""
                                            : gpus.begin()->second;
            head.events_read = owner->rows;
            head.profile = "an Nsight Systems trace";
            result.push_back(trace_of(*owner));
        }
        return result;
    }

    ProfilerTrace trace_of(ExportProcess& owner) {
        for (HostThread& thread : owner.threads) {
            thread.match_notes();
        }
        owner.builder.head().backend = owner.reduces ? "nccl" : "";
        if (owner.steps.empty()) {
            find_repeated_steps(request_.step_range, *names_, owner);
        }
        add_steps(owner);
        if (owner.gradients > 0) {
            add_operations(owner, *names_);
        } else {
            add_standing_gradients(owner, *names_, request_.all_reduce_bytes);
        }
        return owner.builder.take();
    }

    std::map<std::int64_t, std::string> gpu_names() {
        constexpr std::array<const char*, 2> columns{"id", "name"};
        constexpr std::size_t most = 1'000;
        std::map<std::int64_t, std::string> names;
        ExportRows rows = database_.rows("TARGET_INFO_GPU", columns);
        while (rows.next()) {
            if (const auto id = rows.number(0); id && names.size() < most) {
                names.emplace(*id, plain_text(rows.text(1)));
            }
        }
        return names;
    }

    ExportDatabase& database_;
    const NsysRequest& request_;
    KeptBytes kept_;
    std::optional<ExportNames> names_;
    PayloadSchemas schemas_;
    std::map<std::int64_t, std::unique_ptr<ExportProcess>> processes_;
    ExportProcess* last_process_ = nullptr;  // of the row before
    std::optional<std::int64_t> first_time_;
};

}  // namespace

std::vector<ProfilerTrace> read_nsys_export(ExportDatabase& database, const NsysRequest& request) {
    return ExportReader(database, request).read();
}

}  // namespace bucketwise
