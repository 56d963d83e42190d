// The caps behind buckets that were seen.
#include "import/replay/bucket_caps.h"

#include <cstdint>
#include <vector>

#include "tests/catch.h"
#include "tests/contains.h"

namespace bucketwise {
namespace {

using testing::contains;

std::vector<Gradient> gradients_of_sizes(const std::vector<std::int64_t>& elements) {
    std::vector<Gradient> gradients;
    for (const std::int64_t numel : elements) {
        gradients.push_back({.name = "g", .numel = numel});
    }
    return gradients;
}

// By readiness; 4 bytes each, so that the first six reach the first bucket's 1 MiB = 262,144.
const std::vector<std::int64_t> of_two_modules{
    1, 256, 256, 131'072, 512, 262'144, 512, 187'904, 112, 16, 2048, 128, 32'768, 256, 3328};

TEST_CASE("a gradient whose module is wrapped by itself has a bucket of its own", "[caps]") {
    // 394,241 are the first six, 226,960 all others but for 112.
    const TracedCaps caps =
        caps_of(gradients_of_sizes(of_two_modules), {394'241, 112, 226'960}, false);
    CHECK(caps.explained);
    CHECK(caps.alone == std::vector<std::size_t>{8});
    CHECK(contains(caps.text, "with its default caps"));
    CHECK(contains(caps.text, "but for a gradient with a bucket of its own"));
}

TEST_CASE("buckets of which some are no sum of gradients stay unexplained", "[caps]") {
    const TracedCaps caps =
        caps_of(gradients_of_sizes(of_two_modules), {394'241, 112, 226'961}, false);
    CHECK_FALSE(caps.explained);
    CHECK(caps.alone.empty());
}

TEST_CASE("a gradient that caps alone put into a bucket by itself is nobody's own", "[caps]") {
    const TracedCaps caps = caps_of(gradients_of_sizes({10, 300'000, 20}), {300'010, 20}, false);
    CHECK(caps.explained);
    CHECK(caps.alone.empty());
}

}  // namespace
}  // namespace bucketwise
