#include "sim/workload/eager_cost.h"

#include <algorithm>
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
    // Queries, keys, values and the result, 32 x 64 each; the heads are put together: two more.
    const Operation& values = named(model, "transformer.h.0.attn.values");
    CHECK(gigabytes(fused, values, Pass::forward) == Approx(2e-9 * 32 * 64 * (4 + 2)));
    CHECK(kernels(fused, values, Pass::forward) == 2);
    // CS336's model writes it out, and no kernel takes its place.
    const Model written = make_transformer(
        "cs336", {TransformerFamily::cs336, 1, 64, 256, 2, 128, 16}, two_sequences);
    const EagerCosts eager(written, device, Arithmetic::bfloat16, DType::bfloat16, {});
    CHECK(kernels(eager, named(written, "layers.0.attn.softmax"), Pass::forward) == 5);
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
