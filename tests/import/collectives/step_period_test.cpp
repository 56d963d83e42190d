#include "import/collectives/step_period.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "tests/catch.h"

namespace bucketwise {
namespace {

using Numbers = std::vector<std::int64_t>;
using Places = std::vector<std::size_t>;

// Steps of these sizes, one after another, with so many before and after.
Numbers steps_of(const Numbers& step, int count, const Numbers& before = {},
                 const Numbers& after = {}) {
    Numbers sizes = before;
    for (int i = 0; i < count; ++i) {
        sizes.insert(sizes.end(), step.begin(), step.end());
    }
    sizes.insert(sizes.end(), after.begin(), after.end());
    return sizes;
}

// A pause of `long_ms` before each of `length` that begins a step, the first at `phase`, else 1 ms.
std::vector<Duration> paused(std::size_t count, std::size_t length, std::size_t phase,
                             double long_ms) {
    std::vector<Duration> issued;
    Duration now{0};
    for (std::size_t i = 0; i < count; ++i) {
        now += duration_from_ms(i % length == phase ? long_ms : 1);
        issued.push_back(now);
    }
    return issued;
}

}  // namespace

TEST_CASE("Steps are what repeats, after other first iterations", "[import]") {
    const RepeatedSteps steps = find_steps({steps_of({7, 8, 9}, 4, {24, 5})}, {});
    CHECK(steps.length == 3);
    CHECK(steps.begins == Places{2, 5, 8, 11});
    CHECK(steps.length_by == ToldBy::order);
}

TEST_CASE("A ring buffer that begins and ends in mid-step has its whole steps", "[import]") {
    // {8, 9}, four steps, {7}; the pause is before each 7, at 2, 5, 8, 11 and 14.
    const Numbers sizes = steps_of({7, 8, 9}, 4, {8, 9}, {7});
    const RepeatedSteps steps = find_steps({sizes, paused(sizes.size(), 3, 2, 10)}, {});
    CHECK(steps.length == 3);
    CHECK(steps.begins == Places{2, 5, 8, 11});
    CHECK(steps.begin_by == ToldBy::pauses);
}

TEST_CASE("Where all are alike, pauses or their sum tell how many make a step", "[import]") {
    const Numbers alike(21, 5);
    const RepeatedSteps by_pauses = find_steps({alike, paused(21, 4, 1, 10)}, {});
    CHECK(by_pauses.length == 4);
    CHECK(by_pauses.length_by == ToldBy::pauses);
    CHECK(by_pauses.begins == Places{1, 5, 9, 13, 17});
    const RepeatedSteps by_sum = find_steps({alike, paused(21, 4, 1, 1)}, 15);
    CHECK(by_sum.length == 3);  // 15 / 5
    CHECK(by_sum.length_by == ToldBy::sum);
    // No pause is longer than others: one each.
    CHECK(find_steps({alike, paused(21, 4, 1, 1)}, {}).length == 1);
}

TEST_CASE("Pauses tell steps of alike all-reduces though all of them vary", "[import]") {
    std::mt19937 random(1);
    for (std::size_t length = 2; length < 8; ++length) {
        std::vector<Duration> issued;
        Duration now{0};
        for (std::size_t i = 0; i < 20 * length; ++i) {
            // 1 to 3 ms between buckets, 10 to 14 before a step's first.
            const double spread = static_cast<double>(random() % 1000) / 1000;
            now += duration_from_ms(i % length == 0 ? 10 + 4 * spread : 1 + 2 * spread);
            issued.push_back(now);
        }
        CAPTURE(length);
        const RepeatedSteps steps = find_steps({Numbers(20 * length, 3), issued}, {});
        CHECK(steps.length == length);
        CHECK(steps.begins.front() % length == 0);
    }
}

TEST_CASE("Steps that are long and short by turns are not taken for one", "[import]") {
    // 10 and 12 ms before the first of a step, 1 between.
    std::vector<Duration> issued;
    Duration now{0};
    for (std::size_t i = 0; i < 36; ++i) {
        now += duration_from_ms(i % 6 == 0 ? 10 : i % 3 == 0 ? 12 : 1);
        issued.push_back(now);
    }
    CHECK(find_steps({steps_of({7, 8, 9}, 12), issued}, {}).length == 3);
}

TEST_CASE("The iteration before tells how many hold as much as it does", "[import]") {
    // All 15 in one bucket first, then three of 5, whatever the pauses.
    const Numbers sizes = steps_of({5}, 12, {15});
    const RepeatedSteps steps = find_steps({sizes, paused(13, 2, 0, 10)}, {});
    CHECK(steps.length == 3);
    CHECK(steps.length_by == ToldBy::others);
}

TEST_CASE("A step begins where the group does something else, whatever the pauses", "[import]") {
    const Numbers sizes = steps_of({7, 8}, 6);
    // The longest pause is before the 8, but a broadcast before each 7.
    std::vector<bool> others(12);
    for (std::size_t i = 0; i < 12; i += 2) {
        others[i] = true;
    }
    const RepeatedSteps steps = find_steps({sizes, paused(12, 2, 1, 10), others}, {});
    CHECK(steps.begin_by == ToldBy::others);
    CHECK(steps.begins == Places{0, 2, 4, 6, 8, 10});
    // Before each of them: that tells nothing.
    const RepeatedSteps all =
        find_steps({sizes, paused(12, 2, 1, 10), std::vector<bool>(12, true)}, {});
    CHECK(all.begin_by == ToldBy::pauses);
    CHECK(all.begins == Places{1, 3, 5, 7, 9});
}

TEST_CASE("An evaluation between steps parts them, and only whole steps count", "[import]") {
    Numbers sizes = steps_of({7, 8, 9}, 20);
    sizes.insert(sizes.begin() + 31, {1, 1});  // in mid-step: after the first of the eleventh
    const RepeatedSteps steps = find_steps({sizes}, {});
    CHECK(steps.length == 3);
    for (const std::size_t begin : steps.begins) {
        CHECK((begin + 3 <= 31 || begin >= 33));
    }
}

TEST_CASE("What does not repeat is told so", "[import]") {
    CHECK(find_steps({}, {}).length == 0);
    CHECK(find_steps({Numbers{1}}, {}).length == 0);
    CHECK(find_steps({Numbers{1, 2, 3, 4, 5}}, {}).length == 0);
    // A step and a half: of the second 9, 9, nothing says that they are a step.
    CHECK(find_steps({Numbers{7, 9, 9, 8, 7, 9, 9}}, {}).length == 0);
}

TEST_CASE("Of a list without end only the last is looked at, in time that is bounded", "[import]") {
    Numbers sizes = steps_of({1, 2, 3, 4}, 100'000);
    const RepeatedSteps steps = find_steps({sizes}, {});
    CHECK(steps.length == 4);
    CHECK(steps.begins.size() == most_looked_at / 4);
    CHECK(steps.begins.front() == sizes.size() - most_looked_at);
    std::mt19937 random(2);
    std::ranges::generate(sizes, [&] { return static_cast<std::int64_t>(random() % 2); });
    find_steps({sizes}, {});
    // Longer and longer runs of one size, which each period covers a little more of.
    sizes.clear();
    for (std::int64_t run = 1; sizes.size() < most_looked_at; ++run) {
        sizes.insert(sizes.end(), static_cast<std::size_t>(run), run % 2);
    }
    find_steps({sizes}, {});
}

}  // namespace bucketwise
