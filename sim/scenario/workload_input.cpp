#include "sim/scenario/workload_input.h"

#include <algorithm>
#include <array>
#include <map>

#include <fmt/format.h>

#include "sim/base/transformed.h"
#include "sim/workload/device_input.h"

namespace bucketwise {
namespace {

// Generous for anything that exists, and small enough that no product of them overflows.
constexpr std::int64_t most_elements = std::int64_t{1} << 40;
constexpr std::int64_t most_layers = 4096;
constexpr std::int64_t most_width = 1 << 18;
constexpr std::int64_t most_hidden = 1 << 15;
constexpr std::int64_t most_feed_forward = 1 << 18;
constexpr std::int64_t most_heads = 1 << 10;
constexpr std::int64_t most_experts = 1 << 12;
constexpr std::int64_t most_vocabulary = 1 << 20;
constexpr std::int64_t most_tokens = 1 << 26;
constexpr std::int64_t most_sequence = 1 << 20;
constexpr std::int64_t most_images = 1 << 16;
constexpr std::int64_t most_pixels = 1 << 12;
constexpr std::int64_t most_patch = 1 << 8;
constexpr std::int64_t most_channels = 1 << 10;
constexpr std::size_t most_operations = 1'000'000;

// A name of a family of shapes: the transformers', and those that have another shape.
struct ShapeFamily {
    std::optional<TransformerFamily> transformer = {};
    std::string_view other = {};
};
constexpr std::string_view vit_family = "vit";
constexpr std::string_view mlp_family = "mlp";
std::string_view name_of(const ShapeFamily& family) {
    return family.transformer ? name_of(*family.transformer) : family.other;
}
constexpr std::array<ShapeFamily, 7> all_families{{{TransformerFamily::gpt2},
                                                   {TransformerFamily::bert},
                                                   {TransformerFamily::llama},
                                                   {TransformerFamily::cs336},
                                                   {TransformerFamily::t5},
                                                   {{}, vit_family},
                                                   {{}, mlp_family}}};

using ModelChoice = std::variant<std::string, TransformerShape, VitShape, MlpShape>;

// Ahead of the keys, which depend on it. Nothing where there is none, which then is missed among
// the keys.
std::optional<ShapeFamily> read_family(const JsonPlace& place) {
    const auto family = place.value->find("family");
    if (family == place.value->end()) {
        return std::nullopt;
    }
    return read_choice(JsonPlace{&*family, place.file, place.pointer + "/family"}, all_families);
}

// What every transformer's shape has.
template <typename Shape>
void read_widths(const JsonObject& object, Shape& shape) {
    shape.layers = read_integer(object.at("layers"), 1, most_layers);
    shape.hidden = read_integer(object.at("hidden"), 1, most_hidden);
    shape.feed_forward = read_integer(object.at("feed_forward"), 1, most_feed_forward);
    shape.heads = read_integer(object.at("heads"), 1, most_heads);
}

MlpShape read_mlp_shape(const JsonPlace& place) {
    const JsonObject object(place, {"family", "layers"});
    MlpShape shape;
    const JsonPlace layers = object.at("layers");
    for (const JsonPlace& width : read_array(layers, static_cast<std::size_t>(most_layers))) {
        shape.layers.push_back(read_integer(width, 1, most_width));
    }
    if (shape.layers.size() < 2) {
        layers.fail("the width of a sample, of each hidden layer, and the number of classes",
                    "one number");
    }
    return shape;
}

void check_heads(const JsonObject& object, std::int64_t heads, std::int64_t hidden) {
    if (hidden % heads != 0) {
        object.at("heads").fail(fmt::format("a number of heads that divides hidden ({})", hidden));
    }
}

VitShape read_vit_shape(const JsonPlace& place) {
    const JsonObject object(place, {"family", "layers", "hidden", "feed_forward", "heads", "patch",
                                    "channels", "classes", "hugging_face", "query_key_value_bias"});
    VitShape shape;
    read_widths(object, shape);
    check_heads(object, shape.heads, shape.hidden);
    object.read_optional("patch", shape.patch, read_integer, 1, most_patch);
    object.read_optional("channels", shape.channels, read_integer, 1, most_channels);
    object.read_optional("classes", shape.classes, read_integer, 1, most_vocabulary);
    object.read_optional("hugging_face", shape.hugging_face, read_boolean);
    object.read_optional("query_key_value_bias", shape.query_key_value_bias, read_boolean);
    if (!shape.query_key_value_bias && !shape.hugging_face) {
        object.at("query_key_value_bias").fail("true, or hugging_face true beside it");
    }
    return shape;
}

void refuse(const JsonObject& object, std::string_view key, std::string_view why) {
    if (const auto found = object.find(key)) {
        found->fail(fmt::format("no {} {}", key, why), found->value->dump());
    }
}

// Of one head, which llama and t5 may have apart from the stream's width.
void read_head_width(const JsonObject& object, TransformerShape& shape) {
    if (shape.family != TransformerFamily::llama && shape.family != TransformerFamily::t5) {
        refuse(object, "head_width", "but for llama and t5");
    }
    if (const auto width = object.find("head_width")) {
        shape.head_width = read_integer(*width, 1, most_hidden);
        if (shape.query_width() > most_hidden) {
            width->fail(fmt::format("a width of which heads ({}) together have at most {}",
                                    shape.heads, most_hidden));
        }
    } else {
        check_heads(object, shape.heads, shape.hidden);
    }
}

// A mixture of experts: both numbers or neither.
void read_experts(const JsonObject& object, TransformerShape& shape) {
    const auto experts = object.find("experts");
    const auto per_token = object.find("experts_per_token");
    if (!experts && !per_token) {
        return;
    }
    shape.experts = read_integer(object.at("experts"), 1, most_experts);
    shape.experts_per_token = read_integer(object.at("experts_per_token"), 1, shape.experts);
    if (shape.experts_per_token * shape.feed_forward > most_feed_forward) {
        object.at("experts_per_token")
            .fail(fmt::format("a number which times feed_forward ({}) is at most {}",
                              shape.feed_forward, most_feed_forward));
    }
    if (shape.feed_forward_bias) {
        object.at("feed_forward_bias").fail("false beside experts");
    }
}

// What only Llama's layers vary in.
void read_llama_shape(const JsonObject& object, TransformerShape& shape) {
    if (shape.family != TransformerFamily::llama) {
        for (const char* key : {"key_value_heads", "attention_bias", "feed_forward_bias",
                                "query_key_value_bias", "experts", "experts_per_token"}) {
            refuse(object, key, "but for llama");
        }
    }
    if (const auto heads = object.find("key_value_heads")) {
        shape.key_value_heads = read_integer(*heads, 1, most_heads);
        if (shape.heads % shape.key_value_heads != 0) {
            heads->fail(fmt::format("a number that divides heads ({})", shape.heads));
        }
    }
    object.read_optional("attention_bias", shape.attention_bias, read_boolean);
    object.read_optional("feed_forward_bias", shape.feed_forward_bias, read_boolean);
    object.read_optional("query_key_value_bias", shape.query_key_value_bias, read_boolean);
    read_experts(object, shape);
}

// What only T5's stacks vary in.
void read_t5_shape(const JsonObject& object, TransformerShape& shape) {
    if (shape.family != TransformerFamily::t5) {
        for (const char* key : {"decoder_layers", "relative_buckets", "gated"}) {
            refuse(object, key, "but for t5");
        }
    }
    object.read_optional("decoder_layers", shape.decoder_layers, read_integer, 1, most_layers);
    object.read_optional("relative_buckets", shape.relative_buckets, read_integer, 1,
                         most_sequence);
    object.read_optional("gated", shape.gated, read_boolean);
}

// What only GPT-2's layers vary in.
void read_gpt2_shape(const JsonObject& object, TransformerShape& shape) {
    if (shape.family != TransformerFamily::gpt2) {
        refuse(object, "linear_bias", "but for gpt2");
        refuse(object, "norm_bias", "but for gpt2");
    }
    object.read_optional("linear_bias", shape.linear_bias, read_boolean);
    object.read_optional("norm_bias", shape.norm_bias, read_boolean);
}

// What is before and behind the layers.
void read_ends(const JsonObject& object, TransformerShape& shape) {
    if (shape.family == TransformerFamily::bert || shape.family == TransformerFamily::cs336) {
        refuse(object, "tied_embeddings", "but for gpt2, llama and t5");
    }
    if (shape.family != TransformerFamily::bert) {
        refuse(object, "token_types", "but for bert");
        refuse(object, "bert_head", "but for bert");
        refuse(object, "labels", "but for bert");
    }
    if (shape.family != TransformerFamily::gpt2 && shape.family != TransformerFamily::bert) {
        refuse(object, "hugging_face", "but for gpt2 and bert");
    }
    object.read_optional("hugging_face", shape.hugging_face, read_boolean);
    object.read_optional("tied_embeddings", shape.tied_embeddings, read_boolean);
    object.read_optional("token_types", shape.token_types, read_integer, 1, most_vocabulary);
    object.read_optional_choice("bert_head", shape.bert_head, every<BertHead>);
    object.read_optional("labels", shape.labels, read_integer, 1, most_vocabulary);
}

TransformerShape read_transformer_shape(const JsonPlace& place) {
    const JsonObject object(place, {"family",
                                    "layers",
                                    "hidden",
                                    "feed_forward",
                                    "heads",
                                    "vocabulary",
                                    "context",
                                    "key_value_heads",
                                    "head_width",
                                    "attention_bias",
                                    "feed_forward_bias",
                                    "tied_embeddings",
                                    "token_types",
                                    "bert_head",
                                    "labels",
                                    "linear_bias",
                                    "norm_bias",
                                    "hugging_face",
                                    "query_key_value_bias",
                                    "experts",
                                    "experts_per_token",
                                    "decoder_layers",
                                    "relative_buckets",
                                    "gated"});
    TransformerShape shape;
    shape.family = *read_choice(object.at("family"), all_families).transformer;
    read_widths(object, shape);
    shape.vocabulary = read_integer(object.at("vocabulary"), 1, most_vocabulary);
    shape.context = read_integer(object.at("context"), 1, most_sequence);
    read_head_width(object, shape);
    read_llama_shape(object, shape);
    read_t5_shape(object, shape);
    read_gpt2_shape(object, shape);
    read_ends(object, shape);
    return shape;
}

ModelChoice read_model(const JsonPlace& place) {
    if (place.value->is_object()) {
        const std::optional<ShapeFamily> family = read_family(place);
        if (!family || family->transformer) {
            return read_transformer_shape(place);
        }
        return family->other == vit_family ? ModelChoice(read_vit_shape(place))
                                           : read_mlp_shape(place);
    }
    const std::vector<std::string_view>& names = model_names();
    if (!place.value->is_string() ||
        std::find(names.begin(), names.end(), place.value->get_ref<const std::string&>()) ==
            names.end()) {
        place.fail_name(
            fmt::format("a model ({}) or an object with the shape of one", fmt::join(names, ", ")),
            names);
    }
    return place.value->get<std::string>();
}

std::optional<TransformerShape> shape_of(const ModelChoice& model) {
    if (const auto* shape = std::get_if<TransformerShape>(&model)) {
        return *shape;
    }
    const auto* name = std::get_if<std::string>(&model);
    return name == nullptr ? std::nullopt : transformer_shape(*name);
}

std::int64_t patch_of(const ModelChoice& model) {
    if (const auto* shape = std::get_if<VitShape>(&model)) {
        return shape->patch;
    }
    return image_patch(std::get<std::string>(model));
}

// Of a shape of the user's own, whose patches may be small, as many tokens as of a transformer.
std::int64_t most_images_of(const JsonObject& object, const ModelChoice& model,
                            const ModelInput& input) {
    const auto* shape = std::get_if<VitShape>(&model);
    if (shape == nullptr) {
        return most_images;
    }
    const std::int64_t side = input.image_size / shape->patch;
    const std::int64_t tokens = side * side + 1;
    if (tokens > most_sequence) {
        object.at("image_size")
            .fail(fmt::format("at most {} patches of {} x {} pixels in an image", most_sequence - 1,
                              shape->patch, shape->patch));
    }
    return std::min(most_images, most_tokens / tokens);
}

ModelInput read_model_input(const JsonObject& object, const ModelChoice& model) {
    ModelInput input;
    const std::optional<TransformerShape> shape = shape_of(model);
    if (std::holds_alternative<MlpShape>(model)) {
        refuse(object, "sequence_length", "for a multilayer perceptron");
        refuse(object, "image_size", "for a multilayer perceptron");
        input.batch = read_integer(object.at("batch"), 1, most_images);
    } else if (shape) {
        refuse(object, "image_size", "for a transformer");
        const JsonPlace length = object.at("sequence_length");
        input.sequence_length = read_integer(length, 1, most_sequence);
        if (input.sequence_length > shape->context) {
            length.fail(fmt::format("at most the model's context of {}", shape->context));
        }
        input.batch = read_integer(object.at("batch"), 1, most_tokens / input.sequence_length);
    } else {
        refuse(object, "sequence_length", "for a vision model");
        constexpr std::int64_t smallest_image = 32;
        object.read_optional("image_size", input.image_size, read_integer, smallest_image,
                             most_pixels);
        const std::int64_t patch = patch_of(model);
        if (input.image_size % patch != 0) {
            object.at("image_size")
                .fail(fmt::format("a multiple of the model's patch ({})", patch));
        }
        input.batch = read_integer(object.at("batch"), 1, most_images_of(object, model, input));
    }
    return input;
}

// That of the same name.
Arithmetic arithmetic_of(DType dtype) {
    return *std::find_if(every<Arithmetic>.begin(), every<Arithmetic>.end(),
                         [&](Arithmetic a) { return name_of(a) == name_of(dtype); });
}

void check_arithmetic(const JsonObject& object, const ModelWorkload& workload) {
    if (!workload.device || workload.device->peak(workload.arithmetic) > 0) {
        return;
    }
    std::string supported;
    for (const Arithmetic arithmetic : every<Arithmetic>) {
        if (workload.device->peak(arithmetic) > 0) {
            supported += (supported.empty() ? "" : ", ") + std::string(name_of(arithmetic));
        }
    }
    const JsonPlace place = object.has("arithmetic") ? object.at("arithmetic")
                            : object.has("dtype")    ? object.at("dtype")
                                                     : object.at("device");
    place.fail(
        fmt::format("arithmetic that {} has a peak for ({})", workload.device->name, supported),
        std::string(name_of(workload.arithmetic)));
}

Duration read_operation_time(const JsonPlace& place) {
    return duration_from_us(read_number(place, {0, 1e10}));
}

std::vector<Duration> read_operation_times(const JsonPlace& place) {
    return transformed(read_array(place, most_operations), read_operation_time);
}

void read_times(const JsonObject& object, ModelWorkload& workload) {
    if (object.has("device")) {
        workload.device = read_device(object.at("device"));
    }
    if (object.has("forward_operations_us") || object.has("backward_operations_us")) {
        object.exclusive("forward_ms", "forward_operations_us");
        object.exclusive("backward_ms", "backward_operations_us");
        workload.forward_operations = read_operation_times(object.at("forward_operations_us"));
        workload.backward_operations = read_operation_times(object.at("backward_operations_us"));
    } else if (object.has("forward_ms") || object.has("backward_ms")) {
        workload.forward = read_duration_ms(object.at("forward_ms"));
        workload.backward = read_duration_ms(object.at("backward_ms"));
    } else if (!workload.device) {
        throw InputError(object.place().file, object.place().pointer,
                         "measured totals (forward_ms and backward_ms) or a device", "neither");
    }
}

ModelWorkload read_model_workload(const JsonPlace& place) {
    const JsonObject object(
        place, {"model", "batch", "sequence_length", "image_size", "dtype", "arithmetic", "device",
                "forward_ms", "backward_ms", "forward_operations_us", "backward_operations_us",
                "execution", "attention", "channels_last"});
    ModelWorkload workload;
    workload.model = read_model(object.at("model"));
    workload.input = read_model_input(object, workload.model);
    object.read_optional_choice("dtype", workload.dtype, every<DType>);
    const auto arithmetic = object.find("arithmetic");
    workload.arithmetic =
        arithmetic ? read_choice(*arithmetic, every<Arithmetic>) : arithmetic_of(workload.dtype);
    object.read_optional_choice("execution", workload.run.execution, every<Execution>);
    object.read_optional_choice("attention", workload.run.attention, every<AttentionKernel>);
    object.read_optional("channels_last", workload.run.channels_last, read_boolean);
    read_times(object, workload);
    check_arithmetic(object, workload);
    return workload;
}

// The first extent of the shape, all of which make numel.
std::int64_t read_rows(const JsonPlace& place, std::int64_t numel) {
    constexpr std::size_t most_dimensions = 16;
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

Gradient read_gradient(const JsonObject& object) {
    Gradient gradient;
    gradient.name = read_string(object.at("name"));
    gradient.numel = read_integer(object.at("numel"), 1, most_elements);
    object.read_optional("shape", gradient.rows, read_rows, gradient.numel);
    gradient.dtype = read_choice(object.at("dtype"), every<DType>);
    object.read_optional("sparse", gradient.sparse, read_boolean);
    return gradient;
}

GradientReadiness read_gradient_readiness(const JsonPlace& place, Duration backward) {
    const JsonObject object(place, {"name", "numel", "dtype", "ready_ms", "sparse", "shape"});
    GradientReadiness entry{read_gradient(object)};
    const JsonPlace ready = object.at("ready_ms");
    entry.ready = read_duration_ms(ready);
    if (entry.ready > backward) {
        ready.fail(fmt::format("at most backward_ms ({} ms)", to_ms(backward)));
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

// Of all passes, as an operation may come after what another pass, in the step before, issued.
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

TimedOperation read_operation(const JsonObject& object,
                              const std::vector<std::string>& side_streams) {
    TimedOperation operation{.name = read_string(object.at("name")),
                             .device = read_operation_time(object.at("device_us")),
                             .host = read_operation_time(object.at("host_us"))};
    object.read_optional("host_waits", operation.host_waits, read_boolean);
    operation.order = read_order(object, side_streams);
    return operation;
}

std::vector<TimedOperation> read_pass(const JsonPlace& place,
                                      const std::vector<std::string>& side_streams) {
    return transformed(read_array(place, most_operations), [&](const JsonPlace& element) {
        return read_operation(
            {element, {"name", "host_us", "device_us", "host_waits", "stream", "after"}},
            side_streams);
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
        const JsonObject listed(
            element, {"name", "host_us", "device_us", "host_waits", "stream", "after", "ready"});
        operations.backward.push_back(read_operation(listed, streams));
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

std::vector<BufferGroup> read_buffers(const JsonPlace& place) {
    constexpr std::size_t most_groups = 16;  // one per element size
    return transformed(read_array(place, most_groups), [](const JsonPlace& element) {
        const JsonObject object(element, {"bytes", "tensors"});
        return BufferGroup{read_bytes(object.at("bytes")),
                           read_integer(object.at("tensors"), 1, std::int64_t{most_gradients})};
    });
}

// What both kinds of lists have in common.
void read_rest(const JsonObject& object, GradientWorkload& workload) {
    object.read_optional("buffers", workload.buffers, read_buffers);
    object.read_optional("copy_launch_us", workload.copy_launch, read_duration_us);
    object.read_optional("collective_issue_us", workload.collective_issue, read_duration_us);
    object.read_optional("copy_gb_per_s", workload.copy_bandwidth, read_bandwidth_gb_per_s);
    object.read_optional("host_is_device", workload.host_is_device, read_boolean);
    object.read_optional("device", workload.device, read_device);
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

GradientWorkload read_gradient_workload(const JsonPlace& place) {
    const JsonObject object(place,
                            {"gradients", "forward_ms", "backward_ms", "buffers", "copy_launch_us",
                             "collective_issue_us", "copy_gb_per_s", "host_is_device", "device"});
    GradientWorkload workload;
    workload.forward = read_duration_ms(object.at("forward_ms"));
    workload.backward = read_duration_ms(object.at("backward_ms"));
    const JsonPlace gradients = object.at("gradients");
    for (const JsonPlace& element : read_array(gradients, most_gradients)) {
        workload.gradients.push_back(read_gradient_readiness(element, workload.backward));
    }
    static_cast<void>(index_by_name(gradients, workload.gradients));
    read_rest(object, workload);
    return workload;
}

GradientWorkload read_operation_workload(const JsonPlace& place) {
    const JsonObject object(
        place, {"gradients", "forward_operations", "backward_operations", "optimizer_operations",
                "buffers", "copy_launch_us", "collective_issue_us", "copy_gb_per_s",
                "host_is_device", "device"});
    GradientWorkload workload;
    const JsonPlace gradients = object.at("gradients");
    for (const JsonPlace& element : read_array(gradients, most_gradients)) {
        workload.gradients.push_back(
            {read_gradient({element, {"name", "numel", "dtype", "sparse", "shape"}})});
    }
    workload.operations = read_operations(object, index_by_name(gradients, workload.gradients));
    read_rest(object, workload);
    if (workload.host_is_device.value_or(workload.device && workload.device->host_is_device)) {
        refuse_streams_and_waits(object);
    }
    return workload;
}

}  // namespace

std::variant<ModelWorkload, GradientWorkload> read_workload(const JsonPlace& place) {
    const bool lists_gradients = place.value->is_object() && place.value->contains("gradients") &&
                                 !place.value->contains("model");
    if (lists_gradients) {
        const bool lists_operations = place.value->contains("forward_operations") ||
                                      place.value->contains("backward_operations");
        return lists_operations ? read_operation_workload(place) : read_gradient_workload(place);
    }
    if (place.value->is_object() && place.value->contains("gradients")) {
        throw InputError(place.file, place.pointer, "either a model or gradients", "both");
    }
    if (place.value->is_object() && !place.value->contains("model")) {
        throw InputError(place.file, place.pointer, "the key model or the key gradients",
                         "neither");
    }
    return read_model_workload(place);
}

void check_operation_counts(const JsonPlace& place, const ModelWorkload& workload,
                            BatchNormSync batch_norm) {
    if (workload.forward_operations.empty()) {
        return;
    }
    const Workload untimed =
        workload_from_model(model_of(workload), workload.dtype,
                            {.device = device_for_spreading(), .batch_norm = batch_norm});
    const auto check = [&](const char* key, std::size_t given, std::size_t operations) {
        if (given != operations) {
            JsonPlace{&place.value->at(key), place.file, fmt::format("{}/{}", place.pointer, key)}
                .fail(fmt::format("{} times, one per operation of the model's pass", operations),
                      std::to_string(given));
        }
    };
    check("forward_operations_us", workload.forward_operations.size(), untimed.forward.size());
    check("backward_operations_us", workload.backward_operations.size(), untimed.backward.size());
}

Device device_for_spreading() {
    Device device = device_preset("A100").value();
    device.launch = device.graph_launch = Duration{0};
    device.prior.reset();
    return device;
}

}  // namespace bucketwise
