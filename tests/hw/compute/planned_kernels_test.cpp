// The requests to a device for each operation, in order: a device that only takes notes.
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "hw/compute/gradient_pattern.h"
#include "hw/compute/planned_kernels.h"
#include "tests/catch.h"

namespace bucketwise {
namespace {

class Notes : public PlannedKernels {
  public:
    Notes(const KernelPlan& plan, const std::vector<Gradient>& gradients,
          const std::variant<Duration, Optimizer>& optimizer = Duration{7})
        : PlannedKernels(plan, gradients, optimizer) {}

    // Writing takes a nanosecond a byte.
    void calibrate() override {
        calibrate_writing([&](const Run& write) {
            write();
            return Duration{1000 * gradient(written_).size().count};
        });
    }

    std::vector<std::string> take() { return std::exchange(notes_, {}); }

  private:
    void multiply(const KernelCall& /*call*/) override { notes_.emplace_back("multiply"); }
    void multiply_for_weight(const KernelCall& /*call*/, float scale, bool accumulate) override {
        notes_.push_back("weight " + text_of(scale, accumulate));
    }
    void pass_over(std::int64_t elements) override {
        notes_.push_back("pass " + std::to_string(elements));
    }
    void write(const GradientPass& pass, float scale, bool accumulate) override {
        written_ = pass.gradient;
        notes_.push_back("write " + std::to_string(pass.gradient) + " " +
                         text_of(scale, accumulate));
    }
    void fill(Duration duration) override {
        notes_.push_back("fill " + std::to_string(duration.count()));
    }
    void update(Optimizer optimizer) override {
        notes_.push_back(optimizer == Optimizer::adam ? "adam" : "another optimizer");
    }

    static std::string text_of(float scale, bool accumulate) {
        return std::to_string(static_cast<int>(scale)) + (accumulate ? " more" : "");
    }

    std::int32_t written_ = 0;
    std::vector<std::string> notes_;
};

// `rank_value` times the gradient's own factor.
std::string scaled(int rank_value, std::int64_t gradient) {
    return std::to_string(rank_value * gradient_factor(gradient));
}

std::vector<Gradient> two_gradients() {
    return {{.name = "small", .numel = 10}, {.name = "large", .numel = 100}};
}

using Texts = std::vector<std::string>;

TEST_CASE("a weight's gradient is the product's, and all others are written after it") {
    KernelPlan plan;
    plan.backward = {{.pass = Pass::weight_gradient,
                      .product = MatrixProduct{},
                      .weight_gradient = 1,
                      .gradients = {{.gradient = 0}}},
                     {.pass = Pass::input_gradient, .product = MatrixProduct{}}};
    plan.forward = {{.streamed_elements = 30}};
    const std::vector<Gradient> gradients = two_gradients();
    Notes kernels(plan, gradients);
    kernels.backward(0, 3, true);
    CHECK(kernels.take() ==
          Texts{"weight " + scaled(3, 1) + " more", "write 0 " + scaled(3, 0) + " more"});
    kernels.backward(1, 3, false);
    CHECK(kernels.take() == Texts{"multiply", "pass 0"});
    kernels.forward(0);
    CHECK(kernels.take() == Texts{"pass 30"});
    // The larger one is never written element by element, and its rows may be too wide for that.
    kernels.calibrate();
    CHECK(kernels.take() == Texts{"write 0 1"});
}

TEST_CASE("a filler lasts as long as what is written after it leaves") {
    KernelPlan plan;
    plan.backward = {{.gradients = {{.gradient = 0}}, .filler = Duration{100'000}},
                     {.gradients = {{.gradient = 1}}, .filler = Duration{100'000}}};
    const std::vector<Gradient> gradients = two_gradients();
    Notes kernels(plan, gradients);
    kernels.calibrate();
    CHECK(kernels.take() == Texts{"write 1 1"});  // the largest
    kernels.backward(0, 1, false);                // 40 bytes
    CHECK(kernels.take() == Texts{"pass 0", "fill 60000", "write 0 " + scaled(1, 0)});
    kernels.backward(1, 1, false);  // 400 bytes
    CHECK(kernels.take() == Texts{"pass 0", "fill 0", "write 1 " + scaled(1, 1)});
}

TEST_CASE("an optimizer is itself, or as long as it is known to take") {
    const KernelPlan plan;
    const std::vector<Gradient> gradients;
    Notes timed(plan, gradients);
    timed.calibrate();
    timed.optimizer();
    CHECK(timed.take() == Texts{"fill 7"});
    Notes adam(plan, gradients, Optimizer::adam);
    adam.optimizer();
    CHECK(adam.take() == Texts{"adam"});
}

}  // namespace
}  // namespace bucketwise
