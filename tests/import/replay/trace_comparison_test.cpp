// Two traces side by side.
#include "import/replay/trace_comparison.h"

#include <string>
#include <utility>

#include "tests/catch.h"
#include "tests/contains.h"
#include "tests/import/replay/imported_trace.h"

namespace bucketwise {
namespace {

using testing::contains;

StepSummary summary(TraceShape shape) {
    return import_of(std::move(shape)).summary;
}

std::string compared(const TraceShape& before, const TraceShape& after) {
    return comparison_text(summary(before), summary(after));
}

TEST_CASE("what a change saved is said by where the device no longer waits", "[comparison]") {
    TraceShape faster;
    faster.host_us = 40;  // of 50: launch-bound
    const StepSummary before = summary({});
    const StepSummary after = summary(faster);
    // 4 + 4 + 1 kernels, 4 copies in and 4 back, 2 all-reduces: 19 launches, each 10 us less.
    CHECK(to_us(before.step - after.step) == Approx(190));
    CHECK(before.account.computing == after.account.computing);
    CHECK(to_us(before.launching - after.launching) == Approx(190));
    const std::string text = comparison_text(before, after);
    CHECK(contains(text, "A step takes 0.19 ms less"));
    CHECK(contains(text, "ms waiting for launches"));
    CHECK_FALSE(contains(text, "ms computing"));
    CHECK_FALSE(contains(text, "Operations that changed most"));
}

TEST_CASE("operations that changed are listed, by their names, with how often they run",
          "[comparison]") {
    TraceShape slower;
    slower.kernel_us = 45;
    slower.forward_kernels = 5;
    const std::string text = compared({}, slower);
    CHECK(contains(text, "forward_kernel"));
    CHECK(contains(text, "    4     5        0.040        0.225       +0.185"));
    CHECK(contains(text, "    4     4        0.040        0.180       +0.140"));
}

TEST_CASE("of traces whose steps vary more than they differ nothing is claimed", "[comparison]") {
    TraceShape noisy;
    noisy.lateness_us = {0, 500, 1000};
    const std::string text = compared({}, noisy);
    CHECK(contains(text, "whether anything changed cannot be told"));
}

TEST_CASE("other buckets show in the number of all-reduces, not of bytes", "[comparison]") {
    TraceShape one;
    one.bucket_ends = {4};
    const StepSummary before = summary({});
    const StepSummary after = summary(one);
    CHECK(before.collectives == 2);
    CHECK(after.collectives == 1);
    CHECK(before.communicated == after.communicated);
    CHECK(to_us(before.wire) == Approx(200));
    CHECK(to_us(after.wire) == Approx(100));
}

}  // namespace
}  // namespace bucketwise
