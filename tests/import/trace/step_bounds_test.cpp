// How much of a trace is kept.
#include <cmath>
#include <cstdint>
#include <string>

#include <fmt/format.h>

#include "import/trace/raw_step.h"
#include "import/trace/trace_builder.h"
#include "sim/base/error.h"
#include "tests/catch.h"
#include "tests/contains.h"

namespace bucketwise {
namespace {

using testing::contains;

class Builder {
  public:
    void add(Category category, const std::string& name, double begin_us, double duration_us,
             std::int64_t correlation = -1) {
        RawEvent raw;
        raw.name = name;
        raw.process = category == Category::kernel ? "0" : "1";
        raw.thread = "7";
        raw.event.begin_ns = std::llround(begin_us * 1e3);
        raw.event.end_ns = std::llround((begin_us + duration_us) * 1e3);
        raw.event.correlation = correlation;
        builder_.add(*kind_of(category, name), raw, place_++);
    }

    // A step of so many kernels and one gradient.
    void add_step(std::int64_t kernels) {
        const double begin_us = now_us_;
        for (std::int64_t i = 0; i < kernels; ++i) {
            now_us_ += 2;
            add(Category::runtime, "cudaLaunchKernel", now_us_, 1, ++correlation_);
            add(Category::kernel, "kernel", now_us_ + 1, 1, correlation_);
        }
        add(Category::operation, "torch::autograd::AccumulateGrad", now_us_, 1);
        now_us_ += 2;
        add(Category::annotation, fmt::format("ProfilerStep#{}", ++step_), begin_us,
            now_us_ - begin_us);
    }

    ProfilerTrace take() { return builder_.take(); }

  private:
    KeptBytes kept_{"trace.json", "/traceEvents", "profile fewer steps"};
    TraceBuilder builder_{"trace.json", kept_};
    std::int64_t place_ = 0;
    std::int64_t correlation_ = 0;
    std::int64_t step_ = 0;
    double now_us_ = 0;
};

std::string refusal_of(const ProfilerTrace& trace) {
    try {
        traced_steps(trace);
    } catch (const InputError& error) {
        return error.what();
    }
    return "none";
}

// 10 fewer than fit, as each step also has marks where it and its passes begin.
constexpr auto most_kernels = static_cast<std::int64_t>(most_step_marks) - 10;

TEST_CASE("a step of too many operations is refused by its name", "[trace]") {
    Builder builder;
    builder.add_step(10);
    builder.add_step(most_kernels + 20);
    CHECK(contains(refusal_of(builder.take()),
                   "expected at most 250000 operations in a step, got more in ProfilerStep#2"));
}

TEST_CASE("a step of as many operations as fit is read", "[trace]") {
    Builder builder;
    builder.add_step(most_kernels);
    CHECK(refusal_of(builder.take()) == "none");
}

}  // namespace
}  // namespace bucketwise
