// How late ranks come to all-reduces.
#include "import/replay/arrival.h"

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "tests/catch.h"
#include "tests/contains.h"
#include "tests/import/replay/imported_trace.h"

namespace bucketwise {
namespace {

using testing::contains;

TracedRank late_rank(std::int64_t rank, const std::vector<double>& lateness_us) {
    return traced({.steps = std::ssize(lateness_us), .rank = rank, .lateness_us = lateness_us},
                  std::to_string(rank) + ".json");
}

TEST_CASE("how much ranks differ from step to step is the scenario's rank_spread", "[arrival]") {
    const TraceImport imported =
        import_trace({late_rank(0, {0, 0, 0}), late_rank(1, {10, 30, 50})}, {});
    // Rank 1 is 30 us late on average, which is no spread, and -20, 0, 20 us beyond: halves of that
    // are each rank's own. Squares: 2 (10^2 + 0 + 10^2) = 400, over (2 - 1) (3 - 1) = 2, whose
    // root is 14.1 us.
    const double spread = imported.scenario["variation"]["rank_spread"].get<double>();
    const double until_ms = to_ms(imported.all_reduces.front().start);
    const double until_last_ms = to_ms(imported.all_reduces.back().start);
    CHECK(spread > std::sqrt(200) * 1e-3 / until_last_ms * 0.99);
    CHECK(spread < std::sqrt(200) * 1e-3 / until_ms * 1.01);
    CHECK(contains(findings_of(imported),
                   "the first of 2 ranks comes 0.030, 0.030 ms before the last to the all-reduces, "
                   "in this order, means of 3 steps, 0.050 ms at most"));
}

TEST_CASE("two steps tell no spread, and that is said", "[arrival]") {
    const TraceImport imported = import_trace({late_rank(0, {0, 0}), late_rank(1, {10, 50})}, {});
    CHECK_FALSE(imported.scenario.contains("variation"));
    CHECK(contains(findings_of(imported), "rank spread: 2 steps do not tell"));
}

TEST_CASE("traces of other steps tell nothing of arrival", "[arrival]") {
    const TraceImport imported =
        import_trace({late_rank(0, {0, 0, 0}), late_rank(1, {10, 10, 10, 10})}, {});
    CHECK(contains(findings_of(imported), "arrival: the ranks' traces are not of the same steps"));
}

}  // namespace
}  // namespace bucketwise
