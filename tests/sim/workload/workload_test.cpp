#include "sim/workload/workload.h"

#include <numeric>

#include "sim/workload/models/models.h"
#include "tests/catch.h"

namespace bucketwise {
namespace {

Duration total(const std::vector<TimedOperation>& operations) {
    return std::accumulate(operations.begin(), operations.end(), Duration{0},
                           [](Duration sum, const TimedOperation& o) { return sum + o.device; });
}

Duration ms(double count) {
    return duration_from_ms(count);
}

TEST_CASE("listed gradients become one operation per distinct readiness") {
    const std::vector<GradientReadiness> listed{{{"a", 1, DType::float32, false}, ms(3)},
                                                {{"b", 1, DType::float32, false}, ms(1)},
                                                {{"c", 1, DType::float32, false}, ms(1)}};
    const Workload workload = workload_from_readiness(listed, ms(2), ms(4));
    // b and c at 1 ms, the later parameter first; a at 3 ms; 1 ms of backward is left.
    CHECK(workload.readiness == std::vector<std::int32_t>{2, 1, 0});
    REQUIRE(workload.backward.size() == 3);
    CHECK(workload.backward[0].device == ms(1));
    CHECK(workload.backward[0].ready_count == 2);
    CHECK(workload.backward[1].device == ms(2));
    CHECK(workload.backward[1].ready_count == 1);
    CHECK(workload.backward[2].device == ms(1));
    CHECK(workload.backward[2].ready_count == 0);
    CHECK(total(workload.forward) == ms(2));
}

TEST_CASE("gradients may be ready at the very start and the very end of backward") {
    const Workload workload = workload_from_readiness(
        {{{"a", 1, DType::float32, false}, ms(0)}, {{"b", 1, DType::float32, false}, ms(5)}}, ms(0),
        ms(5));
    CHECK(workload.readiness == std::vector<std::int32_t>{0, 1});
    CHECK(total(workload.backward) == ms(5));
    CHECK(workload.backward.size() == 2);
}

TEST_CASE("measured totals are spread over the operations to the picosecond, launches included") {
    const Model model = make_model("resnet50", {4, 0, 224});
    ModelTiming timing{*device_preset("H100"), Arithmetic::float32, ms(123.456789), ms(234.567891)};
    const Workload workload = workload_from_model(model, DType::float32, timing);
    CHECK(total(workload.forward) == ms(123.456789));
    CHECK(total(workload.backward) == ms(234.567891));
    // Four images are launched for longer than an H100 computes: its host is late.
    for (const TimedOperation& operation : workload.backward) {
        CHECK(operation.host == operation.device);
        CHECK(operation.device >= Duration{0});
    }
    const Workload large =
        workload_from_model(make_model("resnet50", {256, 0, 224}), DType::float32, timing);
    for (const TimedOperation& operation : large.backward) {
        CHECK(operation.host == Duration{0});
    }
}

TEST_CASE("without totals or a prior every operation takes its roofline time and costs a launch") {
    const Model model = make_model("vgg16", {8, 0, 224});
    Device device = *device_preset("A100");
    device.prior.reset();
    const Workload workload = workload_from_model(
        model, DType::float32, {device, Arithmetic::float32, std::nullopt, std::nullopt});
    REQUIRE(workload.forward.size() <= model.operations.size());
    CHECK(workload.forward.front().device ==
          duration_from_us(1e6 * roofline_seconds(model.operations.front().forward, device,
                                                  Arithmetic::float32)));
    for (const TimedOperation& operation : workload.forward) {
        CHECK(operation.host == device.launch);
    }
}

TEST_CASE("every gradient becomes ready exactly once, tied weights with their last use") {
    for (const std::string_view name : model_names()) {
        const ModelInput input{1, 8, 64};
        const Model model = make_model(name, input);
        const Workload workload = workload_from_model(
            model, DType::float32,
            {*device_preset("A100"), Arithmetic::float32, std::nullopt, std::nullopt});
        std::vector<int> seen(model.parameters.size(), 0);
        for (const std::int32_t i : workload.readiness) {
            ++seen[static_cast<std::size_t>(i)];
        }
        INFO(name);
        CHECK(seen == std::vector<int>(model.parameters.size(), 1));
        const int finished =
            std::accumulate(workload.backward.begin(), workload.backward.end(), 0,
                            [](int sum, const TimedOperation& o) { return sum + o.ready_count; });
        CHECK(finished == static_cast<int>(model.parameters.size()));
    }
    // GPT-2's token embedding is also its output layer: its gradient is the last to be complete.
    const Workload gpt2 = workload_from_model(
        make_model("gpt2", {1, 8, 224}), DType::float32,
        {*device_preset("A100"), Arithmetic::float32, std::nullopt, std::nullopt});
    CHECK(gpt2.gradients[static_cast<std::size_t>(gpt2.readiness.back())].name ==
          "transformer.wte.weight");
}

TEST_CASE("buffers are grouped as DDP broadcasts them") {
    const Workload workload = workload_from_model(
        make_model("resnet50", {1, 0, 64}), DType::float32,
        {*device_preset("A100"), Arithmetic::float32, std::nullopt, std::nullopt});
    // 53 BatchNorm layers: 53,120 running means and variances in float32 (4 bytes), 53
    // counters in int64 (8 bytes).
    CHECK(workload.buffer_groups == std::vector<BufferGroup>{{{212'480}, 106}, {{424}, 53}});
}

}  // namespace
}  // namespace bucketwise
