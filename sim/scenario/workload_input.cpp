#include "sim/scenario/workload_input.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "sim/scenario/gradient_input.h"
#include "sim/scenario/model_input.h"
#include "sim/scenario/recompute_input.h"
#include "sim/workload/device_input.h"

namespace bucketwise {
namespace {

// Generous for anything that exists, and small enough that no product of them overflows.
constexpr std::int64_t most_images = 1 << 16;
constexpr std::int64_t most_pixels = 1 << 12;
constexpr std::int64_t smallest_image = 32;

void refuse(const JsonObject& object, std::string_view key, std::string_view why) {
    if (const auto found = object.find(key)) {
        found->fail(fmt::format("no {} {}", key, why), found->value->dump());
    }
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

// A user's own shape may have small patches: its tokens are limited as a transformer's.
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

// Operations are of one input. Throws InputError for another.
ModelInput read_listed_input(const JsonObject& object, const ListedModel& listed) {
    refuse(object, "image_size", "for a model with listed operations");
    const auto same = [&](const char* key, std::int64_t highest, std::int64_t of_operations) {
        const JsonPlace place = object.at(key);
        if (read_integer(place, 1, highest) != of_operations) {
            place.fail(
                fmt::format("{}, of which the model's operations are: another one is "
                            "described anew (python -m bucketwise.torch.describe)",
                            of_operations));
        }
    };
    same("batch", most_tokens, listed.batch);
    if (listed.sequence_length == 0) {
        refuse(object, "sequence_length", "beside a model that has none");
    } else if (object.has("sequence_length")) {
        same("sequence_length", most_sequence, listed.sequence_length);
    }
    return {.batch = listed.batch, .sequence_length = listed.sequence_length};
}

ModelInput read_model_input(const JsonObject& object, const ModelChoice& model) {
    if (const auto* listed = std::get_if<ListedModel>(&model)) {
        return read_listed_input(object, *listed);
    }
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

// The arithmetic of the same name.
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

// Where measured times say nothing of it, only a prior knows which products run in float8.
void check_float8(const JsonObject& object, const ModelWorkload& workload) {
    if (!is_float8(workload.arithmetic)) {
        return;
    }
    const JsonPlace place = object.at("arithmetic");
    if (count_of_blocks(model_of(workload)) == 0) {
        place.fail(
            "16 bits or more for a model without repeated blocks, whose linear layers "
            "alone are in float8");
    }
    const bool is_measured = workload.forward || !workload.forward_operations.empty();
    if (!is_measured && !workload.device->prior) {
        place.fail("measured times, or a preset's device with its prior, for float8",
                   fmt::format("{} on {}", place.value->dump(), workload.device->name));
    }
}

JsonType<std::vector<Duration>> operation_times() {
    return as::list(operation_time(), most_operations);
}

void read_times(const JsonObject& object, ModelWorkload& workload) {
    if (object.has("device")) {
        workload.device = read_device(object.at("device"));
    }
    if (object.has("forward_operations_us") || object.has("backward_operations_us")) {
        workload.forward_operations = operation_times().read(object.at("forward_operations_us"));
        workload.backward_operations = operation_times().read(object.at("backward_operations_us"));
    } else if (object.has("forward_ms") || object.has("backward_ms")) {
        workload.forward = read_duration_ms(object.at("forward_ms"));
        workload.backward = read_duration_ms(object.at("backward_ms"));
    } else if (!workload.device) {
        throw InputError(object.place().file, object.place().pointer,
                         "measured totals (forward_ms and backward_ms) or a device", "neither");
    }
}

void check_recompute(const JsonObject& object, const ModelWorkload& workload) {
    if (workload.recompute && count_of_blocks(model_of(workload)) == 0) {
        refuse_recompute_without_blocks(object.at(recompute_key));
    }
}

// The inputs of a model, by its kind.
Json input_conditions() {
    std::vector<std::string_view> vision;
    std::ranges::copy_if(model_names(), std::back_inserter(vision), [](std::string_view name) {
        return !transformer_shape(std::string(name));
    });
    const auto model_is = [](Json model) {
        return Json{{"properties", {{"model", std::move(model)}}}};
    };
    const auto family_is = [&](const char* family) {
        return model_is({{"type", "object"},
                         {"properties", {{"family", {{"const", family}}}}},
                         {"required", {"family"}}});
    };
    Json of_images{{"sequence_length", false}, {"batch", {{"maximum", most_images}}}};
    Json of_mlp = of_images;
    of_mlp["image_size"] = false;
    const Json patch{{"properties", {{"image_size", {{"multipleOf", 16}}}}}};
    return {
        {"if", model_is(as::names_schema(vision))},
        {"then",
         {{"properties", of_images}, {"if", model_is({{"const", "vit_b_16"}})}, {"then", patch}}},
        {"else",
         {{"if", family_is("mlp")},
          {"then", {{"properties", of_mlp}}},
          {"else",
           {{"if", family_is("vit")},
            {"then", {{"properties", of_images}}},
            {"else",
             {{"properties", {{"image_size", false}}},
              {"if", {{"not", model_is({{"type", "object"}, {"required", {"operations"}}})}}},
              {"then", {{"required", {"sequence_length"}}}},
              {"else",
               {{"if", {{"not", model_is({{"required", {"sequence_length"}}})}}},
                {"then", {{"properties", {{"sequence_length", false}}}}}}}}}}}}}};
}

const JsonTable<ModelWorkload>& model_keys() {
    using Model = ModelWorkload;
    const auto run = [](auto member, const auto& type) {
        return target_in<Model>(
            [member](Model & model) -> auto& { return model.run.*member; }, type);
    };
    static const JsonTable<Model> table{
        "workload with a model",
        "A model with measured times or a device",
        {{"model", model_description(), "required",
          "a model of the table below, the shape of one, or one that lists its operations"},
         {"batch", as::integer(1, most_tokens), "required",
          "images or sequences per rank and micro-step; with sequences up to 2^26 tokens, else up "
          "to 65536"},
         {"sequence_length", as::integer(1, most_sequence), "required for transformers",
          "tokens, at most the model's context; transformers only"},
         {"image_size", as::integer(smallest_image, most_pixels), "224",
          "height and width in pixels; vision models only; a multiple of a vision transformer's "
          "patch, 16 for `vit_b_16`"},
         {"dtype", target(&Model::dtype, as::one_of<DType>()), "`float32`",
          "of parameters and gradients; `fp32`, `half`, `bf16` and the like are understood"},
         {"arithmetic", target(&Model::arithmetic, as::one_of<Arithmetic>()), "as `dtype`",
          "of the matrix products. Mixed precision is `dtype` float32 with `arithmetic` bfloat16: "
          "gradients travel as float32. `float8_tensorwise` and `float8_rowwise`: linear layers of "
          "blocks multiply in float8, with casts around them, and all else is as with bfloat16"},
         {"device", device_type(), "none", "what the rank computes on"},
         {"execution", run(&RunAs::execution, as::one_of<Execution>()), "`eager`",
          "how a framework runs the model: `eager`, a kernel or more for each operator; "
          "`compiled`, passes over memory fused within a graph: the whole model, or with fsdp and "
          "hsdp each block, whose gradients are then ready together. This and the next three count "
          "with a preset where nothing was measured"},
         {"attention", run(&RunAs::attention, as::one_of<AttentionKernel>()), "`automatic`",
          "`eager`, its scores in memory; `fused`, one kernel of any GPU; `flash`, one that "
          "overlaps its loads (FlashAttention-2), `flash_1` the first FlashAttention, `flash_3` "
          "the third or cuDNN's on Hopper and later; `automatic`: flash with 16 bits from Ampere "
          "on, else fused, as "
          "PyTorch's `scaled_dot_product_attention` chooses; eager for cs336, which writes it out"},
         {"channels_last", run(&RunAs::channels_last, as::boolean()), "with 16 bits",
          "whether images have their channels last. Tensor cores need it; other images are turned "
          "around each convolution"},
         {"fused_norms", run(&RunAs::fused_norms, as::boolean()), "false",
          "whether RMS norms are one kernel each way (Apex, Liger, torchtitan's in Triton), not "
          "Python as Hugging Face's. Compiled ones are"},
         {recompute_key, target(&Model::recompute, recompute_type()), "`none`",
          "what backward computes again instead of keeping it: `full`, each block; `operators`, "
          "each block but for attention and every other product (torchtitan's selective `op`). "
          "Measured backward passes contain it"},
         {"forward_ms", as::milliseconds(), "from the device",
          "measured forward pass of one micro-step, on one GPU where the device is a preset: the "
          "slowest rank then takes longer (`rank_spread`); with `backward_ms`"},
         {"backward_ms", as::milliseconds(), "from the device",
          "measured backward pass of one micro-step, without communication; with `forward_ms`"},
         {"forward_operations_us", operation_times(), "none",
          "instead of totals: the measured time of every operation of forward, in the order they "
          "run. Device times, so the host pays the device's `launch_us` as well, unless "
          "`host_is_device`. `bucketwise calibrate --scenario-output` writes them"},
         {"backward_operations_us", operation_times(), "none",
          "the times of backward: input gradient, then weight gradient of each operation, last to "
          "first; with `forward_operations_us`"}},
        {needs("forward_ms", "backward_ms"), needs("backward_ms", "forward_ms"),
         needs("forward_operations_us", "backward_operations_us"),
         needs("backward_operations_us", "forward_operations_us"),
         exclusive("forward_ms", "forward_operations_us"),
         exclusive("backward_ms", "backward_operations_us")},
        {Json{{"anyOf",
               {{{"required", {"device"}}},
                {{"required", {"forward_ms"}}},
                {{"required", {"forward_operations_us"}}}}}},
         input_conditions()}};
    return table;
}

ModelWorkload read_model_workload(const JsonPlace& place) {
    const JsonObject object = model_keys().open(place);
    ModelWorkload workload;
    workload.model = read_model(object.at("model"));
    workload.input = read_model_input(object, workload.model);
    model_keys().read(object, workload);
    if (!object.has("arithmetic")) {
        workload.arithmetic = arithmetic_of(workload.dtype);
    }
    read_times(object, workload);
    check_arithmetic(object, workload);
    check_float8(object, workload);
    check_recompute(object, workload);
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

JsonDescription workload_description() {
    const std::vector<const ObjectText*> kinds{&model_keys().text(), &gradient_lists_text(),
                                               &operation_lists_text()};
    return {
        {{"oneOf", transformed(kinds, [](const ObjectText* kind) { return reference_to(*kind); })}},
        "object",
        kinds};
}

void check_operation_counts(const JsonPlace& place, const ModelWorkload& workload,
                            BatchNormSync batch_norm) {
    if (workload.forward_operations.empty()) {
        return;
    }
    const Workload untimed = workload_from_model(model_of(workload), workload.dtype,
                                                 {.device = device_for_spreading(),
                                                  .batch_norm = batch_norm,
                                                  .recompute = workload.recompute});
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
