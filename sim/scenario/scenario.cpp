#include "sim/scenario/scenario.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "sim/base/json_input.h"
#include "sim/link/link_input.h"
#include "sim/link/link_presets.h"
#include "sim/link/link_topology.h"
#include "sim/link/network/topology_cost.h"
#include "sim/workload/device_input.h"

namespace bucketwise {
namespace {

// Generous for anything that exists, and small enough that no product of them overflows.
constexpr std::size_t most_gradients = 100'000;
constexpr std::int64_t most_elements = std::int64_t{1} << 40;
constexpr std::int64_t most_ranks = 1'000'000;
constexpr std::size_t most_stragglers = 1024;
constexpr std::size_t most_slowdowns = 32;  // different ones: each is simulated on its own
constexpr std::int64_t most_layers = 4096;
constexpr std::int64_t most_width = 1 << 18;
constexpr std::int64_t most_hidden = 1 << 15;
constexpr std::int64_t most_feed_forward = 1 << 18;
constexpr std::int64_t most_heads = 1 << 10;
constexpr std::int64_t most_vocabulary = 1 << 20;
constexpr std::int64_t most_tokens = 1 << 26;
constexpr std::int64_t most_sequence = 1 << 20;
constexpr std::int64_t most_images = 1 << 16;
constexpr std::int64_t most_pixels = 1 << 12;
constexpr std::int64_t most_micro_steps = 10'000;
constexpr std::size_t most_operations = 1'000'000;
constexpr double largest_slowdown_read = 100;

// A name of a family of shapes: the transformers', and that of a multilayer perceptron.
struct ShapeFamily {
    std::optional<TransformerFamily> transformer = {};  // none: a multilayer perceptron
};
std::string_view name_of(const ShapeFamily& family) {
    return family.transformer ? name_of(*family.transformer) : "mlp";
}
constexpr std::array<ShapeFamily, 5> all_families{{{TransformerFamily::gpt2},
                                                   {TransformerFamily::bert},
                                                   {TransformerFamily::llama},
                                                   {TransformerFamily::cs336},
                                                   {}}};
constexpr std::array<BertHead, 3> all_bert_heads{BertHead::none, BertHead::masked_lm,
                                                 BertHead::pretraining};
constexpr std::array<CommHook, 3> all_hooks{CommHook::none, CommHook::fp16, CommHook::bf16};
constexpr std::array<Closing, 4> all_closings{Closing::overshoot, Closing::strict,
                                              Closing::per_gradient, Closing::single};
constexpr std::array<Order, 3> all_orders{Order::forward, Order::reverse, Order::readiness};
constexpr std::array<LaunchRule, 3> all_launch_rules{LaunchRule::in_order, LaunchRule::as_filled,
                                                     LaunchRule::after_backward};
constexpr std::array<Optimizer, 3> all_optimizers{Optimizer::sgd, Optimizer::sgd_momentum,
                                                  Optimizer::adam};

using ModelChoice = std::variant<std::string, TransformerShape, MlpShape>;

bool is_mlp(const JsonPlace& place) {
    const auto family = place.value->find("family");
    return family != place.value->end() && *family == "mlp";
}

MlpShape read_mlp_shape(const JsonPlace& place) {
    const JsonObject object(place, {"family", "layers"});
    static_cast<void>(read_choice(object.at("family"), all_families));
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

void refuse(const JsonObject& object, std::string_view key, std::string_view why) {
    if (const auto found = object.find(key)) {
        found->fail(fmt::format("no {} {}", key, why), found->value->dump());
    }
}

// What only Llama's layers vary in.
void read_llama_shape(const JsonObject& object, TransformerShape& shape) {
    const bool is_llama = shape.family == TransformerFamily::llama;
    if (!is_llama) {
        for (const char* key :
             {"key_value_heads", "head_width", "attention_bias", "feed_forward_bias"}) {
            refuse(object, key, "but for llama");
        }
    }
    if (const auto width = object.find("head_width")) {
        shape.head_width = read_integer(*width, 1, most_hidden);
        if (shape.query_width() > most_hidden) {
            width->fail(fmt::format("a width of which heads ({}) together have at most {}",
                                    shape.heads, most_hidden));
        }
    } else if (shape.hidden % shape.heads != 0) {
        object.at("heads").fail(
            fmt::format("a number of heads that divides hidden ({})", shape.hidden));
    }
    if (const auto heads = object.find("key_value_heads")) {
        shape.key_value_heads = read_integer(*heads, 1, most_heads);
        if (shape.heads % shape.key_value_heads != 0) {
            heads->fail(fmt::format("a number that divides heads ({})", shape.heads));
        }
    }
    if (const auto bias = object.find("attention_bias")) {
        shape.attention_bias = read_boolean(*bias);
    }
    if (const auto bias = object.find("feed_forward_bias")) {
        shape.feed_forward_bias = read_boolean(*bias);
    }
}

// What is before and behind the layers.
void read_ends(const JsonObject& object, TransformerShape& shape) {
    const bool has_head =
        shape.family == TransformerFamily::gpt2 || shape.family == TransformerFamily::llama;
    if (!has_head) {
        refuse(object, "tied_embeddings", "but for gpt2 and llama");
    }
    if (shape.family != TransformerFamily::bert) {
        refuse(object, "token_types", "but for bert");
        refuse(object, "bert_head", "but for bert");
    }
    if (const auto tied = object.find("tied_embeddings")) {
        shape.tied_embeddings = read_boolean(*tied);
    }
    if (const auto types = object.find("token_types")) {
        shape.token_types = read_integer(*types, 1, most_vocabulary);
    }
    if (const auto head = object.find("bert_head")) {
        shape.bert_head = read_choice(*head, all_bert_heads);
    }
}

TransformerShape read_transformer_shape(const JsonPlace& place) {
    const JsonObject object(
        place, {"family", "layers", "hidden", "feed_forward", "heads", "vocabulary", "context",
                "key_value_heads", "head_width", "attention_bias", "feed_forward_bias",
                "tied_embeddings", "token_types", "bert_head"});
    TransformerShape shape;
    shape.family = *read_choice(object.at("family"), all_families).transformer;
    shape.layers = read_integer(object.at("layers"), 1, most_layers);
    shape.hidden = read_integer(object.at("hidden"), 1, most_hidden);
    shape.feed_forward = read_integer(object.at("feed_forward"), 1, most_feed_forward);
    shape.heads = read_integer(object.at("heads"), 1, most_heads);
    shape.vocabulary = read_integer(object.at("vocabulary"), 1, most_vocabulary);
    shape.context = read_integer(object.at("context"), 1, most_sequence);
    read_llama_shape(object, shape);
    read_ends(object, shape);
    return shape;
}

ModelChoice read_model(const JsonPlace& place) {
    if (place.value->is_object()) {
        return is_mlp(place) ? ModelChoice(read_mlp_shape(place)) : read_transformer_shape(place);
    }
    const std::vector<std::string_view>& names = model_names();
    if (!place.value->is_string() ||
        std::find(names.begin(), names.end(), place.value->get_ref<const std::string&>()) ==
            names.end()) {
        place.fail(
            fmt::format("a model ({}) or an object with the shape of one", fmt::join(names, ", ")));
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
        if (const auto size = object.find("image_size")) {
            input.image_size = read_integer(*size, smallest_image, most_pixels);
        }
        input.batch = read_integer(object.at("batch"), 1, most_images);
    }
    return input;
}

Arithmetic arithmetic_of(DType dtype) {
    switch (dtype) {
        case DType::float32:
            return Arithmetic::float32;
        case DType::float16:
            return Arithmetic::float16;
        case DType::bfloat16:
            return Arithmetic::bfloat16;
        case DType::float64:
            return Arithmetic::float64;
    }
    return Arithmetic::float32;
}

void check_arithmetic(const JsonObject& object, const ModelWorkload& workload) {
    if (!workload.device || workload.device->peak(workload.arithmetic) > 0) {
        return;
    }
    std::string supported;
    for (const Arithmetic arithmetic : all_arithmetics) {
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

std::vector<Duration> read_operation_times(const JsonPlace& place) {
    std::vector<Duration> times;
    for (const JsonPlace& element : read_array(place, most_operations)) {
        times.push_back(duration_from_us(read_number(element, {0, 1e10})));
    }
    return times;
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

// Only the ratio of arithmetic to memory rate matters where totals are measured and no device is
// given; an A100 stands for all.
Device device_for_spreading() {
    Device device = device_preset("A100").value();
    device.launch = device.graph_launch = Duration{0};
    return device;
}

// A synchronised BatchNorm has one operation more.
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

ModelWorkload read_model_workload(const JsonPlace& place) {
    const JsonObject object(
        place, {"model", "batch", "sequence_length", "image_size", "dtype", "arithmetic", "device",
                "forward_ms", "backward_ms", "forward_operations_us", "backward_operations_us"});
    ModelWorkload workload;
    workload.model = read_model(object.at("model"));
    workload.input = read_model_input(object, workload.model);
    if (const auto dtype = object.find("dtype")) {
        workload.dtype = read_choice(*dtype, all_dtypes);
    }
    const auto arithmetic = object.find("arithmetic");
    workload.arithmetic =
        arithmetic ? read_choice(*arithmetic, all_arithmetics) : arithmetic_of(workload.dtype);
    read_times(object, workload);
    check_arithmetic(object, workload);
    return workload;
}

Gradient read_gradient(const JsonObject& object) {
    Gradient gradient;
    gradient.name = read_string(object.at("name"));
    gradient.numel = read_integer(object.at("numel"), 1, most_elements);
    gradient.dtype = read_choice(object.at("dtype"), all_dtypes);
    if (const auto sparse = object.find("sparse")) {
        gradient.sparse = read_boolean(*sparse);
    }
    return gradient;
}

GradientReadiness read_gradient_readiness(const JsonPlace& place, Duration backward) {
    const JsonObject object(place, {"name", "numel", "dtype", "ready_ms", "sparse"});
    GradientReadiness entry{read_gradient(object)};
    const JsonPlace ready = object.at("ready_ms");
    entry.ready = read_duration_ms(ready);
    if (entry.ready > backward) {
        ready.fail(fmt::format("at most backward_ms ({} ms)", to_ms(backward)));
    }
    return entry;
}

GradientReadiness read_listed_gradient(const JsonPlace& place) {
    const JsonObject object(place, {"name", "numel", "dtype", "sparse"});
    return {read_gradient(object)};
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

TimedOperation read_operation(const JsonObject& object) {
    return {.name = read_string(object.at("name")),
            .device = duration_from_us(read_number(object.at("device_us"), {0, 1e10})),
            .host = duration_from_us(read_number(object.at("host_us"), {0, 1e10}))};
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
    for (const JsonPlace& element : read_array(object.at("forward_operations"), most_operations)) {
        operations.forward.push_back(read_operation({element, {"name", "host_us", "device_us"}}));
    }
    const JsonPlace backward = object.at("backward_operations");
    for (const JsonPlace& element : read_array(backward, most_operations)) {
        const JsonObject listed(element, {"name", "host_us", "device_us", "ready"});
        operations.backward.push_back(read_operation(listed));
        if (const auto ready = listed.find("ready")) {
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
    std::vector<BufferGroup> groups;
    for (const JsonPlace& element : read_array(place, most_groups)) {
        const JsonObject object(element, {"bytes", "tensors"});
        groups.push_back({read_bytes(object.at("bytes")),
                          read_integer(object.at("tensors"), 1, std::int64_t{most_gradients})});
    }
    return groups;
}

// What both kinds of lists have in common.
void read_rest(const JsonObject& object, GradientWorkload& workload) {
    if (const auto buffers = object.find("buffers")) {
        workload.buffers = read_buffers(*buffers);
    }
    if (const auto launch = object.find("copy_launch_us")) {
        workload.copy_launch = read_duration_us(*launch);
    }
    if (const auto issue = object.find("collective_issue_us")) {
        workload.collective_issue = read_duration_us(*issue);
    }
    if (const auto rate = object.find("copy_gb_per_s")) {
        workload.copy_bandwidth = read_bandwidth_gb_per_s(*rate);
    }
    if (const auto host_is_device = object.find("host_is_device")) {
        workload.host_is_device = read_boolean(*host_is_device);
    }
    if (const auto device = object.find("device")) {
        workload.device = read_device(*device);
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
    const JsonObject object(place, {"gradients", "forward_operations", "backward_operations",
                                    "buffers", "copy_launch_us", "collective_issue_us",
                                    "copy_gb_per_s", "host_is_device", "device"});
    GradientWorkload workload;
    const JsonPlace gradients = object.at("gradients");
    for (const JsonPlace& element : read_array(gradients, most_gradients)) {
        workload.gradients.push_back(read_listed_gradient(element));
    }
    workload.operations = read_operations(object, index_by_name(gradients, workload.gradients));
    read_rest(object, workload);
    return workload;
}

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

// The topology says how many ranks a node has. With a preset, which the scenario's own link may
// have made way for, the same number is no contradiction.
void place_on_topology(const JsonObject& object, Scenario& scenario) {
    const auto per_node = object.find("ranks_per_node");
    const bool as_preset =
        !scenario.link.preset.empty() &&
        scenario.group.ranks_per_node == std::min(preset_node_gpus, scenario.group.ranks);
    if (per_node && !as_preset) {
        per_node->fail("no ranks_per_node beside a topology, which says it");
    }
    const JsonPlace link = object.at("link");
    if (const LinkPreset* preset = find_preset(scenario.link.preset)) {
        const std::optional<std::int64_t> most = most_ranks_of(*preset);
        if (most && scenario.group.ranks > *most) {
            object.at("ranks").fail(fmt::format(
                "at most {} ranks on one node with the preset {}; of several nodes are {}", *most,
                preset->name, larger_presets(*preset)));
        }
    }
    if (const auto fault = prepare_topology(scenario.link, scenario.group.ranks)) {
        const bool inlined = link.value->is_object();
        const std::string file =
            inlined ? link.file : path_beside(link.file, link.value->get<std::string>());
        throw InputError(file, (inlined ? link.pointer : "") + fault->pointer, fault->expected,
                         fault->got);
    }
}

std::vector<Straggler> read_stragglers(const JsonPlace& place, std::int64_t ranks) {
    std::vector<Straggler> stragglers;
    std::set<std::int64_t> taken;
    for (const JsonPlace& element : read_array(place, most_stragglers)) {
        const JsonObject object(element, {"rank", "compute_slowdown"});
        const JsonPlace rank = object.at("rank");
        Straggler straggler;
        straggler.rank = read_integer(rank, 0, most_ranks - 1);
        if (straggler.rank >= ranks) {
            rank.fail(fmt::format("a rank below the number of ranks ({})", ranks));
        }
        if (!taken.insert(straggler.rank).second) {
            rank.fail("a rank that no other straggler is");
        }
        straggler.compute_slowdown =
            read_number(object.at("compute_slowdown"), {1, largest_slowdown_read});
        stragglers.push_back(straggler);
    }
    std::set<double> slowdowns;
    for (const Straggler& straggler : stragglers) {
        slowdowns.insert(straggler.compute_slowdown);
    }
    if (slowdowns.size() > most_slowdowns) {
        place.fail(fmt::format("at most {} different slowdowns", most_slowdowns),
                   std::to_string(slowdowns.size()));
    }
    return stragglers;
}

void read_cluster(const JsonPlace& place, const FileReader& read_file, Scenario& scenario) {
    const JsonObject object(place, {"ranks", "ranks_per_node", "link", "stragglers"});
    RankGroup& group = scenario.group;
    group.ranks = group.ranks_per_node = read_integer(object.at("ranks"), 1, most_ranks);
    if (const auto per_node = object.find("ranks_per_node")) {
        group.ranks_per_node = read_integer(*per_node, 1, group.ranks);
        if (group.ranks % group.ranks_per_node != 0) {
            per_node->fail(fmt::format("a number that divides ranks ({})", group.ranks));
        }
    }
    scenario.stragglers.clear();
    if (const auto stragglers = object.find("stragglers")) {
        scenario.stragglers = read_stragglers(*stragglers, group.ranks);
    }
    scenario.link = read_link(object.at("link"), read_file);
    if (scenario.link.topology) {
        place_on_topology(object, scenario);
    } else if (scenario.link.algorithm == Algorithm::hierarchical) {
        static_cast<void>(object.at("ranks_per_node"));  // required: the link asks for it
    }
}

// "2.4" or "2.4.1": whether an explicit cap is also the first bucket's, as from PyTorch 2.4 on.
bool read_explicit_cap_sets_first(const JsonPlace& place) {
    if (!place.value->is_string()) {
        place.fail("a PyTorch version as a string, such as \"2.4\"");
    }
    const std::string text = read_string(place);
    unsigned major = 0;
    unsigned minor = 0;
    const char* const end = text.data() + text.size();
    const auto [dot, error] = std::from_chars(text.data(), end, major);
    const bool has_minor = error == std::errc{} && dot != end && *dot == '.';
    const auto [rest, minor_error] = std::from_chars(has_minor ? dot + 1 : end, end, minor);
    if (minor_error != std::errc{} || (rest != end && *rest != '.' && *rest != '+') || major == 0) {
        place.fail("a PyTorch version such as \"1.13\" or \"2.4\"");
    }
    return major > 2 || (major == 2 && minor >= 4);
}

void read_policy(const JsonObject& object, SyncRequest& sync) {
    if (const auto closing = object.find("closing")) {
        sync.closing = read_choice(*closing, all_closings);
    }
    if (const auto order = object.find("order")) {
        sync.order = read_choice(*order, all_orders);
    }
    if (const auto launch = object.find("launch")) {
        sync.launch = read_choice(*launch, all_launch_rules);
    }
}

void read_caps(const JsonObject& object, SyncRequest& sync) {
    object.exclusive("bucket_cap_mib", "bucket_cap_mib_list");
    object.exclusive("first_bucket_mib", "bucket_cap_mib_list");
    if (const auto cap = object.find("bucket_cap_mib")) {
        sync.bucket_cap = read_cap_mib(*cap);
    }
    if (const auto first = object.find("first_bucket_mib")) {
        sync.first_bucket = read_cap_mib(*first);
    }
    if (const auto list = object.find("bucket_cap_mib_list")) {
        for (const JsonPlace& element : read_array(*list, most_gradients)) {
            sync.bucket_cap_list.push_back(read_cap_mib(element));
        }
    }
}

SyncRequest read_sync(const JsonPlace& place) {
    const JsonObject object(
        place, {"strategy", "bucket_cap_mib", "first_bucket_mib", "bucket_cap_mib_list", "views",
                "fused_copies", "comm_hook", "pytorch_version", "find_unused_parameters",
                "broadcast_buffers", "batch_norm", "closing", "order", "launch"});
    SyncRequest sync;
    sync.strategy = read_choice(object.at("strategy"), all_strategies);
    read_caps(object, sync);
    read_policy(object, sync);
    if (const auto views = object.find("views")) {
        sync.views = read_boolean(*views);
    }
    if (const auto fused = object.find("fused_copies")) {
        sync.fused_copies = read_boolean(*fused);
    }
    if (const auto hook = object.find("comm_hook")) {
        sync.comm_hook = read_choice(*hook, all_hooks);
    }
    if (const auto version = object.find("pytorch_version")) {
        sync.explicit_cap_sets_first = read_explicit_cap_sets_first(*version);
    }
    if (const auto unused = object.find("find_unused_parameters")) {
        sync.find_unused_parameters = read_boolean(*unused);
    }
    if (const auto broadcast = object.find("broadcast_buffers")) {
        sync.broadcast_buffers = read_boolean(*broadcast);
    }
    if (const auto batch_norm = object.find("batch_norm")) {
        sync.batch_norm = read_choice(*batch_norm, all_batch_norm_syncs);
    }
    return sync;
}

StepRequest read_step(const JsonPlace& place, const Scenario& scenario) {
    const JsonObject object(
        place, {"accumulation", "optimizer_ms", "optimizer", "optimizer_launch_ms", "cuda_graph"});
    object.exclusive("optimizer_ms", "optimizer");
    StepRequest step;
    if (const auto accumulation = object.find("accumulation")) {
        step.accumulation = read_integer(*accumulation, 1, most_micro_steps);
    }
    if (const auto time = object.find("optimizer_ms")) {
        step.optimizer = read_duration_ms(*time);
    }
    if (const auto optimizer = object.find("optimizer")) {
        step.optimizer = read_choice(*optimizer, all_optimizers);
        if (device_of(scenario) == nullptr) {
            optimizer->fail("a workload with a device, or optimizer_ms", "a workload without one");
        }
    }
    const Device* device = device_of(scenario);
    if (const auto launch = object.find("optimizer_launch_ms")) {
        step.optimizer_launch = read_duration_ms(*launch);
        if (device != nullptr && device->host_is_device) {
            launch->fail("no launches with a device that is its own host (host_is_device)",
                         "a time for them");
        }
    }
    if (const auto graph = object.find("cuda_graph")) {
        step.cuda_graph = read_boolean(*graph);
        if (step.cuda_graph && device != nullptr && device->host_is_device) {
            graph->fail("no CUDA graph with a device that is its own host (host_is_device)",
                        "true");
        }
    }
    return step;
}

Variation read_variation(const JsonPlace& place) {
    const JsonObject object(place, {"seed", "compute_spread", "operation_spread",
                                    "collective_spread", "compute_standard_error", "rank_spread",
                                    "straggler_probability", "straggler_slowdown"});
    Variation variation;
    if (const auto seed = object.find("seed")) {
        variation.seed = static_cast<std::uint64_t>(read_integer(*seed, 0, std::int64_t{1} << 50));
    }
    const auto share = [&](std::string_view key, double& target) {
        if (const auto found = object.find(key)) {
            target = read_number(*found, {0, 1});
        }
    };
    share("compute_spread", variation.compute_spread);
    share("operation_spread", variation.operation_spread);
    share("collective_spread", variation.collective_spread);
    share("compute_standard_error", variation.compute_standard_error);
    share("rank_spread", variation.rank_spread);
    if (object.has("straggler_probability") || object.has("straggler_slowdown")) {
        variation.straggler_probability = read_number(object.at("straggler_probability"), {0, 1});
        variation.straggler_slowdown =
            read_number(object.at("straggler_slowdown"), {1, largest_slowdown_read});
    }
    return variation;
}

// Elements the optimizer reads and writes per parameter. SGD reads parameter and gradient and
// writes the parameter; momentum and Adam's two moments are each read and written besides.
std::int64_t elements_per_parameter(Optimizer optimizer) {
    switch (optimizer) {
        case Optimizer::sgd:
            return 3;
        case Optimizer::sgd_momentum:
            return 5;
        case Optimizer::adam:
            return 7;
    }
    return 0;
}

// Memory-bound: every element passes once between memory and the device (a fused or foreach step).
Duration optimizer_time(const StepRequest& step, const Workload& workload, const Device* device) {
    if (const auto* time = std::get_if<Duration>(&step.optimizer)) {
        return *time;
    }
    constexpr std::int64_t directions_of_a_copy = 2;
    return (step.cuda_graph ? Duration{0} : device->launch) +
           transfer_time(
               workload.gradient_bytes(), copy_bandwidth(*device),
               {elements_per_parameter(std::get<Optimizer>(step.optimizer)), directions_of_a_copy});
}

// One class for each distinct slowdown, the slowest first, and one of all other ranks.
std::vector<RankClass> classes_of(const std::vector<Straggler>& stragglers, std::int64_t ranks) {
    std::map<double, std::int64_t, std::greater<>> slower;
    for (const Straggler& straggler : stragglers) {
        if (straggler.compute_slowdown > 1) {
            ++slower[straggler.compute_slowdown];
            --ranks;
        }
    }
    std::vector<RankClass> classes;
    for (const auto& [slowdown, count] : slower) {
        classes.push_back({count, slowdown});
    }
    if (!classes.empty() && ranks > 0) {
        classes.push_back({ranks, 1});
    }
    return classes;
}

Workload timed_workload(const ModelWorkload& workload, BatchNormSync batch_norm) {
    const ModelTiming timing{.device = workload.device.value_or(device_for_spreading()),
                             .arithmetic = workload.arithmetic,
                             .measured_forward = workload.forward,
                             .measured_backward = workload.backward,
                             .measured_forward_operations = workload.forward_operations,
                             .measured_backward_operations = workload.backward_operations,
                             .batch_norm = batch_norm};
    return workload_from_model(model_of(workload), workload.dtype, timing);
}

Workload timed_workload(const GradientWorkload& workload, BatchNormSync /*batch_norm*/) {
    Workload result =
        workload_from_readiness(workload.gradients, workload.forward, workload.backward);
    if (workload.operations) {
        result.forward = workload.operations->forward;
        result.backward = workload.operations->backward;
        result.readiness = workload.operations->readiness;
    }
    result.buffer_groups = workload.buffers;
    if (workload.device) {
        result.copy_launch = workload.device->time_to_launch_copy();
        result.host_is_device = workload.device->host_is_device;
    }
    result.copy_launch = workload.copy_launch.value_or(result.copy_launch);
    result.host_is_device = workload.host_is_device.value_or(result.host_is_device);
    return result;
}

}  // namespace

std::string_view name_of(Optimizer optimizer) {
    switch (optimizer) {
        case Optimizer::sgd:
            return "sgd";
        case Optimizer::sgd_momentum:
            return "sgd_momentum";
        case Optimizer::adam:
            return "adam";
    }
    return {};
}

void reread_scenario(const Json& document, const std::string& file, const FileReader& read_file,
                     const ScenarioSections& sections, Scenario& scenario) {
    const JsonObject object({&document, file, ""},
                            {"name", "workload", "cluster", "sync", "step", "variation"});
    if (sections.name) {
        scenario.name = read_string(object.at("name"));
    }
    if (sections.workload) {
        scenario.workload = read_workload(object.at("workload"));
    }
    if (sections.cluster) {
        read_cluster(object.at("cluster"), read_file, scenario);
    }
    if (sections.sync) {
        scenario.sync = read_sync(object.at("sync"));
    }
    const auto* model = std::get_if<ModelWorkload>(&scenario.workload);
    if (model != nullptr && (sections.workload || sections.sync)) {
        check_operation_counts(object.at("workload"), *model, scenario.sync.batch_norm);
    }
    if (sections.step || sections.workload) {
        const auto step = object.find("step");
        scenario.step = step ? read_step(*step, scenario) : StepRequest{};
    }
    if (sections.variation) {
        const auto variation = object.find("variation");
        scenario.variation =
            variation ? std::optional(read_variation(*variation)) : std::optional<Variation>{};
    }
}

Scenario parse_scenario(const Json& document, const std::string& file,
                        const FileReader& read_file) {
    Scenario scenario;
    reread_scenario(document, file, read_file,
                    {.name = true,
                     .workload = true,
                     .cluster = true,
                     .sync = true,
                     .step = true,
                     .variation = true},
                    scenario);
    return scenario;
}

Model model_of(const ModelWorkload& workload) {
    if (const auto* shape = std::get_if<TransformerShape>(&workload.model)) {
        return make_transformer(std::string(name_of(shape->family)), *shape, workload.input);
    }
    if (const auto* shape = std::get_if<MlpShape>(&workload.model)) {
        return make_mlp(*shape, workload.input);
    }
    return make_model(std::get<std::string>(workload.model), workload.input);
}

const Device* device_of(const Scenario& scenario) {
    return std::visit(
        [](const auto& workload) { return workload.device ? &*workload.device : nullptr; },
        scenario.workload);
}

void set_cluster(const Scenario& scenario, StepInput& input) {
    input.group = scenario.group;
    input.classes = classes_of(scenario.stragglers, scenario.group.ranks);
    input.link = scenario.link;
    const Device* device = device_of(scenario);
    input.copy_bandwidth = scenario.link.copy_bandwidth;
    if (const auto* listed = std::get_if<GradientWorkload>(&scenario.workload)) {
        if (!input.copy_bandwidth) {
            input.copy_bandwidth = listed->copy_bandwidth;
        }
        if (input.link.host_issue == Duration{0}) {
            input.link.host_issue = listed->collective_issue.value_or(Duration{0});
        }
    }
    if (!input.copy_bandwidth && device != nullptr) {
        input.copy_bandwidth = copy_bandwidth(*device);
    }
}

StepInput step_input(const Scenario& scenario) {
    return step_input(scenario, std::visit(
                                    [&](const auto& workload) {
                                        return timed_workload(workload, scenario.sync.batch_norm);
                                    },
                                    scenario.workload));
}

StepInput step_input(const Scenario& scenario, Workload workload) {
    StepInput input;
    input.workload = std::move(workload);
    set_cluster(scenario, input);
    const Device* device = device_of(scenario);
    input.variation = scenario.variation;
    input.step.accumulation = scenario.step.accumulation;
    input.step.optimizer_launch = scenario.step.optimizer_launch;
    input.step.optimizer = optimizer_time(scenario.step, input.workload, device);
    if (scenario.step.cuda_graph) {
        input.step.graph_launch = device != nullptr ? device->graph_launch : Duration{0};
    }
    return input;
}

namespace {

void note_ctas(const LinkParameters& link, std::vector<std::string>& notes) {
    for (const LinkParameters& tier : link.tiers) {
        note_ctas(tier, notes);
    }
    if (!link.ctas) {
        return;
    }
    if (!has_cta_groups(link)) {
        notes.push_back(fmt::format(
            "link {}: ctas has no effect, as its interference does not say for how many it is",
            link.name));
        return;
    }
    const std::int64_t fewest = link.interference.front().ctas.value();
    const std::int64_t most = link.interference.back().ctas.value();
    if (*link.ctas < fewest || *link.ctas > most) {
        notes.push_back(fmt::format(
            "link {}: interference was measured with {} CTAs; with {} it is taken as with {}",
            link.name,
            fewest == most ? std::to_string(most) : fmt::format("{} to {}", fewest, most),
            *link.ctas, std::clamp(*link.ctas, fewest, most)));
    }
}

}  // namespace

namespace {

bool has_batch_norm(const Scenario& scenario) {
    const auto* workload = std::get_if<ModelWorkload>(&scenario.workload);
    if (workload == nullptr) {
        return false;
    }
    const Model model = model_of(*workload);
    return std::any_of(model.operations.begin(), model.operations.end(),
                       [](const Operation& o) { return o.batch_norm_channels > 0; });
}

}  // namespace

std::vector<std::string> caveats(const Scenario& scenario) {
    const SyncRequest& sync = scenario.sync;
    const SyncSettings settings = settings_for(sync);
    const bool ddp = is_ddp(sync.strategy);
    const bool caps_matter =
        settings.communicates && (settings.policy.closing == Closing::overshoot ||
                                  settings.policy.closing == Closing::strict);
    std::vector<std::string> notes;
    const auto note = [&](bool given, bool effective, std::string_view key) {
        if (given && !effective) {
            notes.push_back(fmt::format("/sync/{} has no effect with the strategy {}", key,
                                        name_of(sync.strategy)));
        }
    };
    note(!sync.bucket_cap.is_default(), caps_matter, "bucket_cap_mib");
    note(sync.first_bucket.has_value(), caps_matter, "first_bucket_mib");
    note(!sync.bucket_cap_list.empty(), caps_matter, "bucket_cap_mib_list");
    note(sync.views, settings.copies_in, "views");
    note(sync.fused_copies, settings.copies_in, "fused_copies");
    note(sync.comm_hook != CommHook::none, settings.communicates, "comm_hook");
    note(sync.find_unused_parameters, ddp, "find_unused_parameters");
    note(!sync.broadcast_buffers, ddp, "broadcast_buffers");
    note(sync.batch_norm != BatchNormSync::local, settings.communicates, "batch_norm");
    if (sync.batch_norm != BatchNormSync::local && !has_batch_norm(scenario)) {
        notes.emplace_back("/sync/batch_norm has no effect on a workload without BatchNorm");
    }
    const std::optional<std::int64_t> measured = scenario.link.provenance.ranks;
    if (measured && *measured != scenario.group.ranks) {
        notes.push_back(
            fmt::format("link {} was measured on {} ranks; its cost on {} is an extrapolation",
                        scenario.link.name, *measured, scenario.group.ranks));
    }
    note_ctas(scenario.link, notes);
    return notes;
}

}  // namespace bucketwise
