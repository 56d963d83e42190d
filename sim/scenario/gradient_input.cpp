#include "sim/scenario/gradient_input.h"

#include <algorithm>
#include <array>
#include <map>

#include <fmt/format.h>

#include "sim/scenario/measured_workload.h"
#include "sim/scenario/recompute_input.h"
#include "sim/workload/device_input.h"
#include "sim/workload/modules.h"

namespace bucketwise {
namespace {

constexpr std::int64_t most_elements = std::int64_t{1} << 40;  // generous for anything that exists
constexpr std::size_t most_dimensions = 16;

// The first extent of the shape. The product of all extents is numel.
std::int64_t read_rows(const JsonPlace& place, std::int64_t numel) {
    std::int64_t rows = 0;
    std::int64_t product = 1;
    for (const JsonPlace& extent : read_array(place, most_dimensions)) {
        const std::int64_t size = read_integer(extent, 1, most_elements);
        rows = rows == 0 ? size : rows;
        product = size > most_elements / product ? most_elements + 1 : product * size;
    }
    if (product != numel) {
        place.fail(fmt::format("extents whose product is numel ({})", numel));
    }
    return rows;
}

// `listed`: by operations, which make them ready.
JsonTable<GradientReadiness> gradient_table(std::string_view name, bool listed) {
    const auto in = [](auto member, const auto& type) {
        return target_in<GradientReadiness>(
            [member](GradientReadiness & entry) -> auto& { return entry.gradient.*member; }, type);
    };
    const JsonType<std::int64_t> extent = as::integer(1, most_elements);
    std::vector<JsonKey<GradientReadiness>> keys{
        {"name", in(&Gradient::name, as::text()), "required", "the parameter's; no two alike"},
        {"numel", in(&Gradient::numel, extent), "required", "number of elements"},
        {"dtype", in(&Gradient::dtype, as::one_of<DType>()), "required",
         "each dtype has buckets of its own"},
        {"sparse", in(&Gradient::sparse, as::boolean()), "false",
         "PyTorch gives a sparse gradient a bucket of its own"},
        {"shape", as::list(extent, most_dimensions), "none",
         "extents whose product is `numel`: a sharded step cuts the first, and pads it"}};
    if (!listed) {
        keys.push_back({"ready_ms", target(&GradientReadiness::ready, as::milliseconds()),
                        "required",
                        "when the gradient is ready, from the start of backward; at most "
                        "`backward_ms`"});
        keys.push_back({"recomputed", target(&GradientReadiness::recomputed, as::number({0, 1})),
                        "0",
                        "the share that computes forward again (activation checkpointing) of the "
                        "time since another gradient was ready"});
    }
    return {name, "One gradient", std::move(keys)};
}

const JsonTable<GradientReadiness>& gradient_keys(bool listed) {
    static const JsonTable<GradientReadiness> timed = gradient_table("gradient", false);
    static const JsonTable<GradientReadiness> by_operations =
        gradient_table("listed gradient", true);
    return listed ? by_operations : timed;
}

GradientReadiness read_gradient(const JsonPlace& place, bool listed) {
    const JsonTable<GradientReadiness>& keys = gradient_keys(listed);
    const JsonObject object = keys.open(place);
    GradientReadiness entry;
    keys.read(object, entry);
    object.read_optional("shape", entry.gradient.rows, read_rows, entry.gradient.numel);
    return entry;
}

GradientReadiness read_gradient_readiness(const JsonPlace& place, Duration backward) {
    GradientReadiness entry = read_gradient(place, false);
    if (entry.ready > backward) {
        gradient_keys(false)
            .open(place)
            .at("ready_ms")
            .fail(fmt::format("at most backward_ms ({} ms)", to_ms(backward)));
    }
    return entry;
}

using IndexByName = std::map<std::string, std::int32_t, std::less<>>;

IndexByName index_by_name(const JsonPlace& place, const std::vector<GradientReadiness>& gradients) {
    IndexByName indices;
    for (std::size_t i = 0; i < gradients.size(); ++i) {
        const std::string& name = gradients[i].gradient.name;
        if (!indices.emplace(name, static_cast<std::int32_t>(i)).second) {
            JsonPlace{&place.value->at(i), place.file, fmt::format("{}/{}", place.pointer, i)}.fail(
                "a name that no other gradient has", name);
        }
    }
    return indices;
}

constexpr std::array<const char*, 3> operation_passes{"forward_operations", "backward_operations",
                                                      "optimizer_operations"};
constexpr std::string_view compute_stream_name = "compute";

// The side streams of all passes, as an operation may come after what another pass, in the step
// before, issued.
std::vector<std::string> read_side_streams(const JsonObject& object) {
    std::vector<std::string> names;
    for (const char* pass : operation_passes) {
        const auto list = object.find(pass);
        for (std::size_t i = 0; list && list->value->is_array() && i < list->value->size(); ++i) {
            const Json& element = list->value->at(i);
            if (!element.is_object() || !element.contains("stream")) {
                continue;
            }
            const JsonPlace place{&element.at("stream"), list->file,
                                  fmt::format("{}/{}/stream", list->pointer, i)};
            const std::string name = read_string(place);
            if (name == compute_stream_name || std::ranges::count(names, name) > 0) {
                continue;
            }
            if (names.size() == most_side_streams) {
                place.fail(fmt::format("at most {} streams beside {}", most_side_streams,
                                       compute_stream_name),
                           "one more, " + name);
            }
            names.push_back(name);
        }
    }
    return names;
}

std::size_t read_stream(const JsonPlace& place, const std::vector<std::string>& side_streams) {
    const std::string name = read_string(place);
    if (name == compute_stream_name) {
        return compute_stream;
    }
    const auto found = std::ranges::find(side_streams, name);
    if (found == side_streams.end()) {
        place.fail(fmt::format("{}, or the stream of an operation", compute_stream_name), name);
    }
    return static_cast<std::size_t>(found - side_streams.begin()) + 1;
}

StreamOrder read_order(const JsonObject& object, const std::vector<std::string>& side_streams) {
    StreamOrder order;
    if (const auto stream = object.find("stream")) {
        order.stream = static_cast<std::uint8_t>(read_stream(*stream, side_streams));
    }
    if (const auto after = object.find("after")) {
        for (const JsonPlace& name : read_array(*after, most_side_streams + 1)) {
            order.after =
                static_cast<std::uint8_t>(order.after | 1U << read_stream(name, side_streams));
        }
    }
    return order;
}

// An operation of a pass; only backward's make gradients `ready`.
JsonTable<TimedOperation> operation_table(std::string_view name, bool backward) {
    using Operation = TimedOperation;
    std::vector<JsonKey<Operation>> keys{
        {"name", target(&Operation::name, as::text()), "required", "shown in traces"},
        {"host_us", target(&Operation::host, operation_time()), "required",
         "host time until it is launched, from the launch before"},
        {"device_us", target(&Operation::device, operation_time()), "required", "time it runs"},
        {"host_waits", target(&Operation::host_waits, as::boolean()), "false",
         "the host goes on when it has run (`.item()`, `cudaStreamSynchronize`). Not with "
         "`host_is_device` or `cuda_graph`"},
        {"stream", as::text(), "`compute`",
         "the CUDA stream that it runs on, `compute` or a side stream. Not with `host_is_device` "
         "or `cuda_graph`"},
        {"after", as::list(as::text(), most_side_streams + 1), "none",
         "streams of operations or `compute`: it begins when all has ended that was issued before "
         "it on them (`cudaStreamWaitEvent`). Not with `host_is_device` or `cuda_graph`"}};
    if (backward) {
        keys.push_back({"recomputed", target(&Operation::recomputed, as::number({0, 1})), "0",
                        "the share of it that computes forward again (activation checkpointing)"});
        keys.push_back({"ready", as::list(as::text(), most_gradients), "none",
                        "names of the gradients that are ready when it ends, in the order PyTorch "
                        "is told; each gradient once. Not on a side stream"});
    }
    return {name, "One operation", std::move(keys)};
}

const JsonTable<TimedOperation>& operation_keys(bool backward) {
    static const JsonTable<TimedOperation> other = operation_table("operation", false);
    static const JsonTable<TimedOperation> in_backward =
        operation_table("operation of backward", true);
    return backward ? in_backward : other;
}

TimedOperation read_operation(const JsonObject& object, bool backward,
                              const std::vector<std::string>& side_streams) {
    TimedOperation operation;
    operation_keys(backward).read(object, operation);
    operation.order = read_order(object, side_streams);
    return operation;
}

std::vector<TimedOperation> read_pass(const JsonPlace& place,
                                      const std::vector<std::string>& side_streams) {
    return transformed(read_array(place, most_operations), [&](const JsonPlace& element) {
        return read_operation(operation_keys(false).open(element), false, side_streams);
    });
}

// `indices` are of the gradients that are not ready yet.
std::int32_t read_ready(const JsonPlace& place, IndexByName& indices,
                        std::vector<std::int32_t>& readiness) {
    std::int32_t count = 0;
    for (const JsonPlace& name : read_array(place, most_gradients)) {
        const auto found = indices.find(read_string(name));
        if (found == indices.end()) {
            name.fail("the name of a gradient that no earlier operation makes ready");
        }
        readiness.push_back(found->second);
        indices.erase(found);
        ++count;
    }
    return count;
}

ListedOperations read_operations(const JsonObject& object, IndexByName indices) {
    ListedOperations operations;
    operations.side_streams = read_side_streams(object);
    const std::vector<std::string>& streams = operations.side_streams;
    operations.forward = read_pass(object.at("forward_operations"), streams);
    object.read_optional("optimizer_operations", operations.optimizer,
                         [&](const JsonPlace& place) { return read_pass(place, streams); });
    const JsonPlace backward = object.at("backward_operations");
    for (const JsonPlace& element : read_array(backward, most_operations)) {
        const JsonObject listed = operation_keys(true).open(element);
        operations.backward.push_back(read_operation(listed, true, streams));
        if (const auto ready = listed.find("ready")) {
            if (operations.backward.back().order.is_beside()) {
                ready->fail("no gradient that is ready on another stream than compute");
            }
            operations.backward.back().ready_count =
                read_ready(*ready, indices, operations.readiness);
        }
    }
    if (!indices.empty()) {
        backward.fail(fmt::format("an operation that makes {} ready", indices.begin()->first),
                      "none");
    }
    return operations;
}

const JsonTable<BufferGroup>& buffer_keys() {
    static const JsonTable<BufferGroup> table{
        "buffers",
        "Buffers that travel as one broadcast",
        {{"bytes", target(&BufferGroup::size, as::bytes()), "required", "all of them together"},
         {"tensors", target(&BufferGroup::tensors, as::integer(1, most_gradients)), "required",
          "how many"}}};
    return table;
}

// The lists of a workload and the keys that both kinds of lists have.
JsonTable<GradientWorkload> lists_table(std::string_view name, std::string_view meaning,
                                        std::vector<JsonKey<GradientWorkload>> keys) {
    using Lists = GradientWorkload;
    constexpr std::size_t most_groups = 16;  // one per element size
    const std::vector<JsonKey<Lists>> common{
        {"buffers", target(&Lists::buffers, as::list(buffer_keys().type(), most_groups)), "none",
         "what DDP broadcasts in forward (BatchNorm's running statistics), one broadcast per "
         "element size"},
        {"copy_launch_us", target(&Lists::copy_launch, as::microseconds()), "the device's, or 0",
         "host time to launch one copy"},
        {"collective_issue_us", target(&Lists::collective_issue, as::microseconds()), "0",
         "host time to issue a collective, where the link has no `host_issue_us`"},
        {"copy_gb_per_s", target(&Lists::copy_bandwidth, as::gb_per_s()),
         "the device's, or copies are free",
         "payload copied into and out of buckets, where the link has no `copy_gb_per_s`"},
        {"host_is_device", target(&Lists::host_is_device, as::boolean()), "as the device, or false",
         "a CPU: the thread that launches also computes; then `host_us` counts as computing too"},
        {"device", target(&Lists::device, device_type()), "none", "what copies cost"},
        {recompute_key, block_recompute_type(), "as measured",
         "what backward would compute again instead of keeping it, and not as it was measured: "
         "`none`, `full` (each block) or an object that chooses blocks. A block takes its forward "
         "once more"}};
    return {name, meaning, joined(std::move(keys), common)};
}

const JsonTable<GradientWorkload>& gradient_lists() {
    static const JsonTable<GradientWorkload> table =
        lists_table("workload with gradients", "Gradients and their readiness, one by one",
                    {{"gradients", as::list(gradient_keys(false).type(), most_gradients),
                      "required", "every gradient, in parameter order"},
                     {"forward_ms", target(&GradientWorkload::forward, as::milliseconds()),
                      "required", "forward pass of one micro-step"},
                     {"backward_ms", target(&GradientWorkload::backward, as::milliseconds()),
                      "required", "backward pass of one micro-step, without communication"}});
    return table;
}

const JsonTable<GradientWorkload>& operation_lists() {
    const auto pass = [](bool backward) {
        return as::list(operation_keys(backward).type(), most_operations);
    };
    static const JsonTable<GradientWorkload> table = lists_table(
        "workload with operations", "Gradients, and the operations that make them ready",
        {{"gradients", as::list(gradient_keys(true).type(), most_gradients), "required",
          "every gradient, in parameter order, without `ready_ms`"},
         {"forward_operations", pass(false), "required",
          "the forward pass of one micro-step, in the order it runs"},
         {"backward_operations", pass(true), "required",
          "the backward pass of one micro-step, without communication and copies, in the order it "
          "runs"},
         {"optimizer_operations", pass(false), "none",
          "the optimizer, in the order it runs, instead of `step`'s `optimizer_ms`, `optimizer`, "
          "`optimizer_kernels` and `optimizer_launch_ms`"}});
    return table;
}

// A host that is the device goes on when an operation has run, whichever it is, and has no streams.
void refuse_streams_and_waits(const JsonObject& object) {
    for (const char* pass : operation_passes) {
        const auto list = object.find(pass);
        for (const JsonPlace& element :
             list ? read_array(*list, most_operations) : std::vector<JsonPlace>{}) {
            for (const char* key : {"host_waits", "stream", "after"}) {
                if (element.value->contains(key)) {
                    element.fail(
                        fmt::format("no {} where the host is the device (host_is_device)", key),
                        key);
                }
            }
        }
    }
}

// The key takes the place of what was measured.
void apply_recompute(const JsonObject& object, GradientWorkload& workload) {
    const auto place = object.find(recompute_key);
    if (!place) {
        return;
    }
    const std::optional<Recompute> recompute = block_recompute_type().read(*place);
    const std::vector<std::string> names = transformed(
        workload.gradients, [](const GradientReadiness& entry) { return entry.gradient.name; });
    if (recompute && blocks_of(names).empty()) {
        refuse_recompute_without_blocks(*place);
    }
    set_recompute(recompute, workload);
}

}  // namespace

GradientWorkload read_gradient_workload(const JsonPlace& place) {
    const JsonObject object = gradient_lists().open(place);
    GradientWorkload workload;
    gradient_lists().read(object, workload);
    const JsonPlace gradients = object.at("gradients");
    for (const JsonPlace& element : read_array(gradients, most_gradients)) {
        workload.gradients.push_back(read_gradient_readiness(element, workload.backward));
    }
    static_cast<void>(index_by_name(gradients, workload.gradients));
    apply_recompute(object, workload);
    return workload;
}

GradientWorkload read_operation_workload(const JsonPlace& place) {
    const JsonObject object = operation_lists().open(place);
    GradientWorkload workload;
    operation_lists().read(object, workload);
    const JsonPlace gradients = object.at("gradients");
    for (const JsonPlace& element : read_array(gradients, most_gradients)) {
        workload.gradients.push_back(read_gradient(element, true));
    }
    workload.operations = read_operations(object, index_by_name(gradients, workload.gradients));
    if (workload.host_is_device.value_or(workload.device && workload.device->host_is_device)) {
        refuse_streams_and_waits(object);
    }
    apply_recompute(object, workload);
    return workload;
}

const ObjectText& gradient_lists_text() {
    return gradient_lists().text();
}

const ObjectText& operation_lists_text() {
    return operation_lists().text();
}

JsonType<Duration> operation_time() {
    return as::microseconds(longest_operation_us);
}

}  // namespace bucketwise
