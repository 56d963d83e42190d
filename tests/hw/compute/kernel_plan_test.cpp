#include "hw/compute/kernel_plan.h"

#include <optional>
#include <string>
#include <vector>

#include "sim/workload/models/models.h"
#include "tests/catch.h"

namespace bucketwise {
namespace {

Workload workload_of(const Model& model) {
    ModelTiming timing;
    timing.device = *device_preset("A100");
    return workload_from_model(model, DType::float32, timing);
}

Model model_named(std::string_view name) {
    return make_model(name, {.batch = 1, .sequence_length = 8, .image_size = 64});
}

TEST_CASE("every gradient is written exactly once, and no later than it becomes ready") {
    for (const std::string_view name : model_names()) {
        INFO(name);
        const Model model = model_named(name);
        const Workload workload = workload_of(model);
        const KernelPlan plan = plan_kernels(workload, model);
        std::vector<int> writes(workload.gradients.size(), 0);
        std::size_t ready = 0;
        REQUIRE(plan.backward.size() == workload.backward.size());
        for (std::size_t i = 0; i < plan.backward.size(); ++i) {
            const KernelCall& call = plan.backward[i];
            if (call.weight_gradient) {
                ++writes[static_cast<std::size_t>(*call.weight_gradient)];
            }
            for (const GradientPass& pass : call.gradients) {
                const auto index = static_cast<std::size_t>(pass.gradient);
                if (pass.write == GradientWrite::again) {
                    CHECK(writes[index] == 1);
                } else {
                    ++writes[index];
                }
            }
            for (std::int32_t k = 0; k < workload.backward[i].ready_count; ++k) {
                CHECK(writes[static_cast<std::size_t>(workload.readiness[ready++])] == 1);
            }
        }
        for (const int count : writes) {
            CHECK(count == 1);
        }
    }
}

TEST_CASE("a layer's three products have its shapes, and its weight's gradient is the third") {
    const Model model = model_named("resnet18");
    const KernelPlan plan = plan_kernels(workload_of(model), model);
    // The first convolution needs no input gradient, so the last call of backward with a product
    // is its weight gradient: k = 3 x 7 x 7 taps, n = 64 channels, m = 32 x 32 pixels.
    std::optional<KernelCall> last;
    for (const KernelCall& call : plan.backward) {
        last = call.product ? call : last;
    }
    REQUIRE(last);
    CHECK(last->product == MatrixProduct{.m = 1024, .n = 64, .k = 147});
    CHECK(last->pass == Pass::weight_gradient);
    CHECK(last->weight_gradient == 0);
    CHECK(plan.columns[0] == 64);
}

TEST_CASE("a grouped convolution is computed as many products, its gradient written after them") {
    const Model model = model_named("resnext50_32x4d");
    const KernelPlan plan = plan_kernels(workload_of(model), model);
    int written = 0;
    for (const KernelCall& call : plan.backward) {
        if (call.pass == Pass::weight_gradient && call.product && call.product->count == 32) {
            CHECK_FALSE(call.weight);
            CHECK_FALSE(call.weight_gradient);
            REQUIRE(call.gradients.size() == 1);
            const GradientPass& pass = call.gradients.front();
            CHECK(pass.write == GradientWrite::pattern);
            const auto index = static_cast<std::size_t>(pass.gradient);
            CHECK(model.parameters[index].name.find(".conv2.weight") != std::string::npos);
            CHECK(plan.columns[index] == widest_pattern);
            ++written;
        }
    }
    CHECK(written == 3 + 4 + 6 + 3);  // one a block
}

TEST_CASE("a tied weight's gradient comes from the output layer and is touched again") {
    const Model model = model_named("gpt2");
    const KernelPlan plan = plan_kernels(workload_of(model), model);
    // wte is parameter 0: the head's product comes first in backward, the embedding last.
    CHECK(plan.backward.front().gradients.empty());
    int products = 0;
    int again = 0;
    for (const KernelCall& call : plan.backward) {
        products += call.weight_gradient == 0 ? 1 : 0;
        for (const GradientPass& pass : call.gradients) {
            again += pass == GradientPass{0, GradientWrite::again} ? 1 : 0;
        }
    }
    CHECK(products == 1);
    CHECK(again == 1);
}

TEST_CASE("attention's second factors are activations, not parameters") {
    const Model model = model_named("gpt2");
    const KernelPlan plan = plan_kernels(workload_of(model), model);
    int activations = 0;
    for (const KernelCall& call : plan.forward) {
        activations += call.product && !call.weight ? 1 : 0;
    }
    CHECK(activations == 2 * 12);  // scores and values of 12 layers
}

TEST_CASE("operations of which only the time is known become fillers") {
    const Workload workload =
        workload_from_readiness({{{.name = "a", .numel = 5000}, duration_from_ms(2)},
                                 {{.name = "b", .numel = 3}, Duration{0}}},
                                duration_from_ms(1), duration_from_ms(3));
    const KernelPlan plan = plan_kernels(workload, std::nullopt);
    REQUIRE(plan.forward.size() == 1);
    CHECK(plan.forward[0].filler == duration_from_ms(1));
    // b at once, a after 2 ms, 1 ms of rest.
    REQUIRE(plan.backward.size() == 3);
    CHECK(plan.backward[0].gradients == std::vector<GradientPass>{{1, GradientWrite::pattern}});
    CHECK(plan.backward[1].filler == duration_from_ms(2));
    CHECK(plan.backward[1].gradients == std::vector<GradientPass>{{0, GradientWrite::pattern}});
    CHECK(plan.backward[2].filler == duration_from_ms(1));
    CHECK(plan.columns == std::vector<std::int64_t>{widest_pattern, 3});
}

}  // namespace
}  // namespace bucketwise
