#include "sim/workload/float8.h"

#include <string>

#include "sim/workload/eager_cost.h"
#include "sim/workload/models/models.h"
#include "sim/workload/workload.h"
#include "tests/catch.h"
#include "tests/sim/workload/slow_memory.h"

namespace bucketwise {
namespace {

const std::string layer = "model.layers.1.";

// Costs in bytes, as the slow memory takes a nanosecond for each.
struct Bytewise {
    Arithmetic arithmetic = Arithmetic::float8_tensorwise;
    PassPlace place = {.in_block = true};
    bool gathers_float8 = false;

    [[nodiscard]] PassCost cost(const std::string& name, Pass pass) const {
        const Model model = two_layer_llama();
        const Device device = slow_memory();
        return EagerCosts(model, device, arithmetic, DType::bfloat16, {}, gathers_float8)
            .of(named(model, name), pass, place);
    }
    [[nodiscard]] double operator()(const std::string& name, Pass pass) const {
        return cost(layer + name, pass).seconds * 1e9;
    }
    [[nodiscard]] std::int64_t kernels(const std::string& name, Pass pass) const {
        return cost(layer + name, pass).kernels;
    }
};

constexpr double tokens_in = 32 * 64;
constexpr double weight = 64 * 128;
constexpr double tokens_out = 32 * 128;

TEST_CASE("eager, a float8 product reads bytes, and each operand is cast by two passes") {
    const Bytewise tensorwise;
    // Operands of one byte, a result of two; a pass for the largest (2) and a cast (3) of both.
    CHECK(tensorwise("mlp.up_proj", Pass::forward) ==
          Approx(tokens_in + weight + 2 * tokens_out + 5 * (tokens_in + weight)));
    CHECK(tensorwise.kernels("mlp.up_proj", Pass::forward) == 1 + 2 + 2);
    CHECK(tensorwise("mlp.up_proj", Pass::input_gradient) ==
          Approx(tokens_out + weight + 2 * tokens_in + 5 * (tokens_out + weight)));
    CHECK(tensorwise("mlp.up_proj", Pass::weight_gradient) ==
          Approx(tokens_in + tokens_out + 2 * weight + 5 * tokens_in));
    // By rows the weight's gradient needs the output's gradient in other rows.
    CHECK(Bytewise{Arithmetic::float8_rowwise}("mlp.up_proj", Pass::weight_gradient) ==
          Approx(tokens_in + tokens_out + 2 * weight + 5 * (tokens_in + tokens_out)));
}

TEST_CASE("compiled, activations take one cast, weights two passes unless by rows") {
    constexpr PassPlace compiled{.in_block = true, .compiled = true};
    const Bytewise tensorwise{Arithmetic::float8_tensorwise, compiled};
    const Bytewise rowwise{Arithmetic::float8_rowwise, compiled};
    CHECK(tensorwise("mlp.up_proj", Pass::forward) ==
          Approx(tokens_in + weight + 2 * tokens_out + 3 * tokens_in + 5 * weight));
    CHECK(tensorwise.kernels("mlp.up_proj", Pass::forward) == 1 + 1 + 2);
    CHECK(rowwise("mlp.up_proj", Pass::forward) ==
          Approx(tokens_in + weight + 2 * tokens_out + 3 * (tokens_in + weight)));
    CHECK(rowwise.kernels("mlp.up_proj", Pass::forward) == 1 + 1 + 1);
    // Gate and up read the same, and gate leaves its cast to up.
    CHECK(tensorwise("mlp.gate_proj", Pass::forward) ==
          Approx(tokens_in + weight + 2 * tokens_out + 5 * weight));
    CHECK(tensorwise("mlp.gate_proj", Pass::weight_gradient) ==
          Approx(tokens_in + tokens_out + 2 * weight));
}

TEST_CASE("weights that were gathered in float8 are not cast") {
    const Bytewise gathered{.gathers_float8 = true};
    CHECK(gathered("mlp.up_proj", Pass::forward) ==
          Approx(tokens_in + weight + 2 * tokens_out + 5 * tokens_in));
    CHECK(gathered("mlp.up_proj", Pass::input_gradient) ==
          Approx(tokens_out + weight + 2 * tokens_in + 5 * tokens_out));
}

TEST_CASE("head, attention and passes stay in bfloat16, and so does all outside of blocks") {
    const Bytewise half{Arithmetic::bfloat16};
    const Bytewise float8;
    for (const char* other : {"self_attn.values", "mlp.gate_proj.silu", "input_layernorm"}) {
        CHECK(float8(other, Pass::forward) == half(other, Pass::forward));
    }
    const Model model = two_layer_llama();
    const auto forward = [&](Arithmetic arithmetic, const std::string& name) {
        const Workload workload = workload_from_model(
            model, DType::bfloat16, {.device = slow_memory(), .arithmetic = arithmetic});
        return std::ranges::find(workload.forward, name, &TimedOperation::name)->device;
    };
    CHECK(forward(Arithmetic::float8_rowwise, "lm_head") ==
          forward(Arithmetic::bfloat16, "lm_head"));
    CHECK(forward(Arithmetic::float8_rowwise, layer + "mlp.down_proj") !=
          forward(Arithmetic::bfloat16, layer + "mlp.down_proj"));
}

TEST_CASE("float8 products run at their share of the peak of float8") {
    Device device = *device_preset("H100");
    device.memory_bandwidth = {std::int64_t{1} << 50};  // casts take nothing
    device.prior->given[static_cast<std::size_t>(GpuFactor::kernel_us)] = 0;
    const Model model = make_model("llama-3-8b", {.batch = 1, .sequence_length = 8192});
    const Operation& product = named(model, "model.layers.0.mlp.down_proj");
    const auto seconds = [&](Arithmetic arithmetic) {
        return EagerCosts(model, device, arithmetic, DType::bfloat16, {})
            .of(product, Pass::forward, {.in_block = true})
            .seconds;
    };
    CHECK(seconds(Arithmetic::bfloat16) / seconds(Arithmetic::float8_tensorwise) ==
          Approx(0.88 * 1979.0 / 989).epsilon(5e-3));
}

TEST_CASE("presets have float8 from Ada and Hopper on, twice their 16-bit rate") {
    for (const DevicePreset& preset : device_presets()) {
        INFO(preset.device.name);
        const double float8 = preset.device.peak(Arithmetic::float8_tensorwise);
        CHECK(preset.device.peak(Arithmetic::float8_rowwise) == float8);
        const bool older = preset.device.name.starts_with("A") || preset.device.name == "V100" ||
                           preset.device.name == "T4" || preset.device.name == "RTX 3090";
        CHECK((float8 > 0) == !older);
        CHECK((older ||
               float8 / preset.device.peak(Arithmetic::bfloat16) == Approx(2).epsilon(0.02)));
    }
}

TEST_CASE("weights of linear layers in blocks are marked, and nothing else is") {
    const Workload workload =
        workload_from_model(two_layer_llama(), DType::float32,
                            {.device = slow_memory(), .arithmetic = Arithmetic::float8_tensorwise});
    std::int64_t marked = 0;
    for (const Gradient& gradient : workload.gradients) {
        INFO(gradient.name);
        CHECK(gradient.is_float8 == (gradient.name.find("_proj.weight") != std::string::npos));
        marked += gradient.is_float8 ? 1 : 0;
    }
    CHECK(marked == 2LL * 7);
}

}  // namespace
}  // namespace bucketwise
