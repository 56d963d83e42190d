#include "sim/workload/eager_cost.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "sim/workload/models/models.h"
#include "sim/workload/workload.h"
#include "tests/catch.h"
#include "tests/sim/workload/slow_memory.h"

namespace bucketwise {
namespace {

std::int64_t kernels(const EagerCosts& costs, const Operation& operation, Pass pass) {
    return costs.of(operation, pass).kernels;
}

double gigabytes(const EagerCosts& costs, const Operation& operation, Pass pass) {
    return costs.of(operation, pass).seconds;
}

TransformerShape small_gpt() {
    return {TransformerFamily::gpt2, 1, 64, 256, 2, 128, 16};
}
const ModelInput two_sequences{2, 16, 224};  // 32 tokens

TEST_CASE("eager PyTorch launches what its operators are made of") {
    const Device device = slow_memory();
    const Model model = make_transformer("gpt", small_gpt(), two_sequences);
    const EagerCosts costs(model, device, Arithmetic::float32, DType::float32,
                           {.attention = AttentionKernel::eager});
    // A linear layer: a product forward; two backward, and the sum that is the bias's gradient.
    const Operation& linear = named(model, "transformer.h.0.mlp.c_fc");
    CHECK(kernels(costs, linear, Pass::forward) == 1);
    CHECK(kernels(costs, linear, Pass::input_gradient) == 1);
    CHECK(kernels(costs, linear, Pass::weight_gradient) == 2);
    // 32 x 64 and 64 x 256 make 32 x 256; the sum reads the last again. 4 bytes each.
    CHECK(gigabytes(costs, linear, Pass::forward) ==
          Approx(4e-9 * (32 * 64 + 64 * 256 + 32 * 256)));
    CHECK(gigabytes(costs, linear, Pass::weight_gradient) ==
          Approx(4e-9 * (32 * 64 + 64 * 256 + 2 * 32 * 256)));
    // GELU reads and writes; published as Hugging Face has it, it is eight kernels of Python.
    CHECK(gigabytes(costs, named(model, "transformer.h.0.mlp.act"), Pass::forward) ==
          Approx(4e-9 * 2 * 32 * 256));
    TransformerShape published = small_gpt();
    published.hugging_face = true;
    CHECK(
        kernels(costs,
                named(make_transformer("gpt", published, two_sequences), "transformer.h.0.mlp.act"),
                Pass::forward) == 8);
}

TEST_CASE("autocast casts weights each time, and keeps the stream in float32") {
    const Device device = slow_memory();
    const Model model = make_transformer("gpt", small_gpt(), two_sequences);
    const EagerCosts autocast(model, device, Arithmetic::bfloat16, DType::float32, {});
    const EagerCosts half(model, device, Arithmetic::bfloat16, DType::bfloat16, {});
    const Operation& linear = named(model, "transformer.h.0.mlp.c_fc");
    // 64 x 256 weights from 4 to 2 bytes, and a bias.
    CHECK(gigabytes(autocast, linear, Pass::forward) - gigabytes(half, linear, Pass::forward) ==
          Approx(6e-9 * 64 * 256));
    CHECK(kernels(autocast, linear, Pass::forward) == 3);
    CHECK(kernels(half, linear, Pass::forward) == 1);
    // 32 x 64 read and written at 4 bytes, then cast from 4 to 2.
    CHECK(gigabytes(autocast, named(model, "transformer.h.0.ln_1"), Pass::forward) ==
          Approx(1e-9 * 32 * 64 * (8 + 6)));
    // A sum of two tensors of images is of 16 bits as they are.
    const Model images = make_model("resnet18", {1, 0, 32});
    const EagerCosts vision(images, device, Arithmetic::float16, DType::float32, {});
    const Operation& sum = named(images, "layer1.0.add");
    CHECK(gigabytes(vision, sum, Pass::forward) ==
          Approx(2e-9 * static_cast<double>(sum.forward.elements)));
}

TEST_CASE("a fused attention is one kernel, and moves no scores") {
    const Device device = slow_memory();
    const Model model = make_transformer("gpt", small_gpt(), two_sequences);
    const EagerCosts fused(model, device, Arithmetic::bfloat16, DType::bfloat16, {});
    for (const char* part : {"scores", "scale_and_mask", "softmax"}) {
        for (const Pass pass : {Pass::forward, Pass::input_gradient, Pass::weight_gradient}) {
            const PassCost cost =
                fused.of(named(model, std::string("transformer.h.0.attn.") + part), pass);
            CHECK(cost.kernels == 0);
            CHECK(cost.seconds == 0);
        }
    }
    // Queries, keys, values and the result, 32 x 64 each, and with all gradients twice as much.
    const Operation& values = named(model, "transformer.h.0.attn.values");
    CHECK(gigabytes(fused, values, Pass::forward) == Approx(2e-9 * 32 * 64 * 4));
    CHECK(kernels(fused, values, Pass::forward) == 1);
    CHECK(gigabytes(fused, values, Pass::input_gradient) == Approx(2e-9 * 32 * 64 * 8));
    CHECK(kernels(fused, values, Pass::input_gradient) == 2);
    // One layer made all three, so that their gradients are put together: read and written.
    const Operation& joint = named(model, "transformer.h.0.attn.c_attn");
    CHECK(kernels(fused, joint, Pass::input_gradient) == 2);
    CHECK(gigabytes(fused, joint, Pass::input_gradient) ==
          Approx(2e-9 * (32 * 64 + 64 * 192 + 32 * 192 + 2 * 32 * 192)));
    // CS336's model writes it out, and no kernel takes its place.
    const Model written = make_transformer(
        "cs336", {TransformerFamily::cs336, 1, 64, 256, 2, 128, 16}, two_sequences);
    const EagerCosts eager(written, device, Arithmetic::bfloat16, DType::bfloat16, {});
    CHECK(kernels(eager, named(written, "layers.0.attn.softmax"), Pass::forward) == 5);
}

// One layer of 2 heads of 128 on 1024 tokens, where only products take time: flops per second is
// 10^12 times what the kernel's share of it is.
double attention_seconds(const Device& preset, AttentionKernel kernel, Pass pass) {
    Device device = preset;
    device.memory_bandwidth = {1'000'000'000'000'000'000};
    device.peak_tflop_per_s.fill(1);
    device.prior->given.fill(1.0);
    device.prior->given[static_cast<std::size_t>(GpuFactor::kernel_us)] = 0;
    const Model model = make_transformer(
        "gpt", {TransformerFamily::gpt2, 1, 256, 1024, 2, 128, 1024}, {1, 1024, 224});
    const EagerCosts costs(model, device, Arithmetic::bfloat16, DType::bfloat16,
                           {.attention = kernel});
    return costs.of(named(model, "transformer.h.0.attn.values"), pass, {}).seconds;
}

TEST_CASE("attention in one kernel runs at its kernel's share of the rate of products") {
    // Two products of 1024 x 1024 x 256 forward, five backward; a causal mask leaves half of them
    // and half of the tiles of 128 on the diagonal.
    const double product = 2.0 * 1024 * 1024 * 256 * 0.5 * (1 + 128.0 / 1024) * 1e-12;
    const Device ampere = *device_preset("A100");
    using enum AttentionKernel;
    CHECK(attention_seconds(ampere, flash, Pass::forward) == Approx(2 * product / 1.15));
    CHECK(attention_seconds(ampere, flash, Pass::input_gradient) == Approx(5 * product / 0.95));
    CHECK(attention_seconds(ampere, flash_1, Pass::forward) == Approx(2 * product / 1.15 / 0.53));
    // Hopper holds 0.825 of its rate, and synchronous instructions reach 0.6 of it at full clock.
    const Device hopper = *device_preset("H100");
    CHECK(attention_seconds(hopper, flash, Pass::forward) == Approx(2 * product / 1.15 / 0.6));
    CHECK(attention_seconds(hopper, flash_3, Pass::forward) == Approx(2 * product / 1.15 / 0.825));
}

TEST_CASE("losses and RMS norms of 16-bit models are computed in float32") {
    const Device device = slow_memory();
    const Model model = make_transformer(
        "llama", {TransformerFamily::llama, 1, 64, 256, 2, 128, 16}, two_sequences);
    const EagerCosts half(model, device, Arithmetic::bfloat16, DType::bfloat16, {});
    const EagerCosts single(model, device, Arithmetic::float32, DType::float32, {});
    // 32 x 128 logits: cast from 2 bytes to 4, then two passes at 4; backward four, and the cast.
    const Operation& loss = named(model, "loss");
    CHECK(gigabytes(half, loss, Pass::forward) == Approx(1e-9 * 32 * 128 * (6 + 8)));
    CHECK(gigabytes(half, loss, Pass::input_gradient) == Approx(1e-9 * 32 * 128 * (6 + 16)));
    CHECK(gigabytes(single, loss, Pass::forward) == Approx(1e-9 * 32 * 128 * 8));
    CHECK(kernels(half, loss, Pass::forward) == kernels(single, loss, Pass::forward) + 1);
    // 32 x 64: square 2, mean 1, product with the root 2, with the weight 2.
    const Operation& norm = named(model, "model.layers.0.input_layernorm");
    CHECK(gigabytes(single, norm, Pass::forward) == Approx(4e-9 * 32 * 64 * 7));
    CHECK(gigabytes(half, norm, Pass::forward) == Approx(1e-9 * 32 * 64 * (4 * 7 + 6)));
    CHECK(kernels(single, norm, Pass::forward) == 6);
    CHECK(kernels(single, norm, Pass::input_gradient) +
              kernels(single, norm, Pass::weight_gradient) ==
          13);
}

TEST_CASE("the slowest of many ranks holds the others up, where a prior knows the device") {
    const Model model = make_transformer("gpt", small_gpt(), two_sequences);
    const auto forward = [&](const Device& device, std::int64_t ranks,
                             std::optional<Duration> measured) {
        const Workload workload = workload_from_model(model, DType::float32,
                                                      {.device = device,
                                                       .measured_forward = measured,
                                                       .measured_backward = measured,
                                                       .joint = {.ranks = ranks}});
        return std::accumulate(
            workload.forward.begin(), workload.forward.end(), Duration{0},
            [](Duration sum, const TimedOperation& one) { return sum + one.device; });
    };
    const Device device = *device_preset("A100");
    const double slower = 1 + 0.012 * std::log(8.0);
    CHECK(to_ms(forward(device, 8, {})) == Approx(slower * to_ms(forward(device, 1, {}))));
    CHECK(forward(device, 8, std::chrono::seconds(1)) == scaled(std::chrono::seconds(1), slower));
    Device unknown = device;
    unknown.prior.reset();
    CHECK(forward(unknown, 8, std::chrono::seconds(1)) == std::chrono::seconds(1));
}

TEST_CASE("tensor cores convolve channels last, and what is not is turned around it") {
    const Device device = slow_memory();
    const Model model = make_model("resnet18", {1, 0, 32});
    const Operation& convolution = named(model, "layer1.0.conv1");
    const auto bytes = [&](Arithmetic arithmetic, std::optional<bool> last) {
        const EagerCosts costs(model, device, arithmetic, DType::float32, {.channels_last = last});
        return gigabytes(costs, convolution, Pass::forward);
    };
    // 64 x 8 x 8 in and out, each read and written once more; 4 bytes each.
    CHECK(bytes(Arithmetic::tfloat32, {}) - bytes(Arithmetic::tfloat32, true) ==
          Approx(4e-9 * 2 * 2 * 64 * 8 * 8));
    CHECK(bytes(Arithmetic::float32, {}) == Approx(bytes(Arithmetic::float32, true)));
    CHECK(bytes(Arithmetic::float16, {}) == Approx(bytes(Arithmetic::float16, true)));
}

TEST_CASE("each end of the range is slower than the next, on every preset") {
    const Model model = make_model("resnet50", {8, 0, 224});
    for (const DevicePreset& preset : device_presets()) {
        INFO(preset.device.name);
        std::vector<Duration> sums;
        std::vector<Duration> hosts;
        for (const PresetEnd end : every<PresetEnd>) {
            Device device = preset.device;
            device.prior->end = end;
            const Workload workload = workload_from_model(
                model, DType::float32, {.device = device, .arithmetic = Arithmetic::float16});
            Duration sum{0};
            Duration host{0};
            for (const TimedOperation& operation : workload.backward) {
                sum += operation.device;
                host += operation.host;
            }
            sums.push_back(sum);
            hosts.push_back(host);
        }
        CHECK(sums[0] > sums[1]);
        CHECK(sums[1] > sums[2]);
        CHECK(hosts[0] > hosts[1]);
        CHECK(hosts[1] > hosts[2]);
    }
}

TEST_CASE("the host pays for operations, kernels and gradients") {
    const Device device = slow_memory();
    const Model model = make_transformer("gpt", small_gpt(), two_sequences);
    const EagerCosts costs(model, device, Arithmetic::float32, DType::float32, {});
    // 23 us for the operation and 15 for each of two kernels.
    CHECK(costs.host({1, 2}, Pass::forward, true, 0) == duration_from_us(53));
    // 15 us for autograd's node, if it is the first of its passes, and 11 for each gradient.
    CHECK(costs.host({1, 2}, Pass::input_gradient, true, 0) == duration_from_us(45));
    CHECK(costs.host({1, 2}, Pass::weight_gradient, false, 2) == duration_from_us(52));
    CHECK(costs.host({0, 0}, Pass::forward, true, 0) == Duration{0});
}

}  // namespace
}  // namespace bucketwise
