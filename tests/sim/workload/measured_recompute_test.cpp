// Activation checkpointing of measured steps: by hand, and against a model whose operators are
// known.
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "sim/workload/models/models.h"
#include "sim/workload/workload.h"
#include "tests/catch.h"

namespace bucketwise {
namespace {

using std::chrono::microseconds;

Gradient matrix(std::string name, std::int64_t rows, std::int64_t columns) {
    return {.name = std::move(name), .numel = rows * columns, .rows = rows};
}

Gradient vector_of(std::string name, std::int64_t numel) {
    return {.name = std::move(name), .numel = numel, .rows = numel};
}

TimedOperation operation(std::string name, int device_us, std::int32_t ready = 0) {
    return {.name = std::move(name),
            .device = microseconds{device_us},
            .host = microseconds{device_us / 10},
            .ready_count = ready};
}

// Two blocks, an embedding in front and a head behind. A block's last product has a quarter of its
// matrices.
Workload two_blocks() {
    Workload measured;
    measured.gradients = {matrix("embedding.weight", 100, 8)};
    for (const std::string block : {"layers.0", "layers.1"}) {
        measured.gradients.push_back(matrix(block + ".up.weight", 24, 8));
        measured.gradients.push_back(vector_of(block + ".up.bias", 24));
        measured.gradients.push_back(matrix(block + ".down.weight", 8, 8));
        measured.gradients.push_back(vector_of(block + ".down.bias", 8));
    }
    measured.gradients.push_back(matrix("head.weight", 100, 8));
    measured.forward = {operation("embedding forward", 10), operation("layers.0 forward", 400),
                        operation("layers.1.up forward", 600),
                        operation("layers.1.down forward", 200), operation("head forward", 50)};
    measured.backward = {
        operation("head backward", 100, 1), operation("layers.1 backward", 1600, 4),
        operation("layers.0.down backward", 300, 2), operation("layers.0.up backward", 500, 2),
        operation("embedding backward", 20, 1)};
    measured.readiness = {9, 8, 7, 6, 5, 4, 3, 2, 1, 0};
    return measured;
}

// Each as its name and its times on device and host, in us.
std::vector<std::string> told(const std::vector<TimedOperation>& pass) {
    std::vector<std::string> found;
    for (const TimedOperation& one : pass) {
        found.push_back(one.name + " " + std::to_string(one.device / microseconds{1}) + " " +
                        std::to_string(one.host / microseconds{1}));
    }
    return found;
}

TEST_CASE(
    "a measured block takes its forward again before its backward, but for its last product") {
    const std::vector<TimedOperation> backward = backward_with(Recompute{}, two_blocks());
    CHECK(told(backward) ==
          std::vector<std::string>{"head backward 100 10", "layers.1.up recomputed 450 45",
                                   "layers.1.down recomputed 150 15", "layers.1 backward 1600 160",
                                   "layers.0 recomputed 300 30", "layers.0.down backward 300 30",
                                   "layers.0.up backward 500 50", "embedding backward 20 2"});
    CHECK(backward[1].recomputed == 1);
    CHECK(backward[1].ready_count == 0);
    CHECK(backward[3].ready_count == 4);
}

TEST_CASE("a measured block runs whole again with reentry, behind a norm, and without shapes") {
    const auto again = [](const Recompute& recompute, const Workload& measured) {
        return told(backward_with(recompute, measured))[4];
    };
    CHECK(again({.reentrant = true}, two_blocks()) == "layers.0 recomputed 400 40");
    Workload unknown = two_blocks();
    for (Gradient& gradient : unknown.gradients) {
        gradient.rows = 0;
    }
    CHECK(again({}, unknown) == "layers.0 recomputed 400 40");
    Workload normed = two_blocks();  // the last parameter, whose gradient is ready first
    normed.gradients[4].name = "layers.0.norm.weight";
    CHECK(again({}, normed) == "layers.0 recomputed 400 40");
}

TEST_CASE("measured blocks are chosen, and what was measured to run again does not count") {
    Workload measured = two_blocks();
    CHECK(told(backward_with(Recompute{.every = 2}, measured)).size() == 7);
    CHECK(told(backward_with(Recompute{.blocks = 1}, measured))[2] == "layers.0 recomputed 300 30");
    CHECK(backward_with(Recompute{.every = 3}, measured) == measured.backward);
    CHECK(backward_with(std::nullopt, measured) == measured.backward);

    const std::vector<TimedOperation> without = measured.backward;
    measured.backward = backward_with(Recompute{}, measured);
    for (const auto& [recompute, size] :
         {std::pair{std::optional<Recompute>(), 8}, {Recompute{.blocks = 1}, 9}}) {
        const std::vector<TimedOperation> other = backward_with(recompute, measured);
        Duration sum{0};
        for (const TimedOperation& one : other) {
            sum += one.device;
        }
        CHECK(std::ssize(other) == size);
        CHECK(sum == microseconds{2520 + (recompute ? 300 : 0)});
    }
}

TEST_CASE("where forward is not told by blocks it takes their shares of backward") {
    const Workload named = two_blocks();
    std::vector<GradientReadiness> gradients;
    const std::vector<int> ready_us{2520, 2500, 2500, 2000, 2000, 1700, 1700, 1700, 1700, 100};
    for (std::size_t i = 0; i < named.gradients.size(); ++i) {
        gradients.push_back({named.gradients[i], microseconds{ready_us[i]}});
    }
    const Workload measured =
        workload_from_readiness(gradients, microseconds{1260}, microseconds{2520});
    // The blocks have 1600 and 800 us of 2520, and so 800 and 400 of 1260, less a fourth.
    CHECK(told(backward_with(Recompute{}, measured)) ==
          std::vector<std::string>{
              "backward until head.weight 100 0", "layers.1 recomputed 600 0",
              "backward until layers.1.down.bias 1600 0", "layers.0 recomputed 300 0",
              "backward until layers.0.down.bias 300 0", "backward until layers.0.up.bias 500 0",
              "backward until embedding.weight 20 0"});
}

TEST_CASE("what a model's measured blocks run again is near what its operators say") {
    TransformerShape shape;
    shape.family = TransformerFamily::llama;
    shape.layers = 4;
    shape.hidden = 4096;
    shape.feed_forward = 14336;
    shape.heads = 32;
    shape.vocabulary = 32000;
    shape.context = 4096;
    const Model llama = make_transformer("llama", shape, {.batch = 2, .sequence_length = 4096});
    ModelTiming timing{.device = device_preset("H100").value(), .arithmetic = Arithmetic::bfloat16};
    const Workload without = workload_from_model(llama, DType::bfloat16, timing);
    timing.recompute = Recompute{};
    const auto again = [](std::vector<TimedOperation> backward) {
        return to_ms(take_out_recomputed(backward));
    };
    const double by_operators = again(workload_from_model(llama, DType::bfloat16, timing).backward);
    const double as_measured = again(backward_with(Recompute{}, without));
    CHECK(by_operators > 10);
    CHECK(std::abs(as_measured / by_operators - 1) < 0.1);
}

}  // namespace
}  // namespace bucketwise
