#include "cli/ranks/time_plan.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <set>

#include "tests/catch.h"

namespace bucketwise {
namespace {

constexpr std::int64_t many_rounds = 1000;

// Eight sizes of all-reduces, computing, two of contention, then the default and nine caps: 0.. 20.
std::vector<Item> everything() {
    std::vector<Item> items;
    for (int power = 10; power < 18; ++power) {
        items.push_back(
            {.protocol = Protocol::all_reduce, .message = Bytes{std::int64_t{1} << power}});
    }
    items.push_back({.protocol = Protocol::compute});
    items.push_back({.protocol = Protocol::contention, .message = Bytes{1024}});
    items.push_back({.protocol = Protocol::contention, .message = Bytes{131072}});
    items.push_back({.protocol = Protocol::step});
    for (std::int64_t mib = 1; mib < 10; ++mib) {
        items.push_back({.protocol = Protocol::step, .cap = Cap(Bytes{mib << 20})});
    }
    return items;
}
constexpr std::size_t computing = 8;
constexpr std::size_t the_default = 11;

// A run with these times of items; how often each was measured, and when it ended.
struct SpentRun {
    double elapsed_s = 0;
    std::vector<std::int64_t> measured;
    std::vector<std::size_t> chosen;
    std::vector<double> sent_s;  // when the smallest message was measured
    std::optional<double> needed_s = {};
    std::optional<double> short_after_s = {};  // when it was known that the limit is too short
};

SpentRun spent_run(double limit_s, const std::function<double(const Item&)>& seconds,
                   const std::vector<std::size_t>& wanted, bool settled) {
    const std::vector<Item> items = everything();
    TimePlan plan(items, limit_s, many_rounds, {the_default});
    SpentRun result;
    result.measured.resize(items.size());
    const auto take = [&](std::size_t item) {
        const double item_s = seconds(items[item]);
        result.elapsed_s += item_s;
        plan.took(item, item_s, result.elapsed_s);
        if (plan.needed_s() && !result.short_after_s) {
            result.short_after_s = result.elapsed_s;
        }
    };
    std::ranges::for_each(plan.probes(), take);
    plan.choose(result.elapsed_s);
    result.chosen = plan.chosen();
    result.needed_s = plan.needed_s();
    std::ranges::for_each(plan.cold(), take);
    for (;;) {
        const auto round = plan.next_round(result.elapsed_s, wanted, settled);
        if (round.empty()) {
            return result;
        }
        for (const std::size_t item : round) {
            take(item);
            ++result.measured[item];
            if (item == 0) {
                result.sent_s.push_back(result.elapsed_s);
            }
        }
    }
}

// Every item takes as long.
SpentRun spent_run(double limit_s, double item_s, const std::vector<std::size_t>& wanted,
                   bool settled) {
    return spent_run(
        limit_s, [=](const Item&) { return item_s; }, wanted, settled);
}

TEST_CASE("one item of each kind is probed, the largest; computing and a step first") {
    const TimePlan plan(everything(), 10, many_rounds, {the_default});
    CHECK(plan.probes() == std::vector<std::size_t>{8, 11, 7, 10});
}

TEST_CASE("with enough time everything is measured, and the run ends in time") {
    const SpentRun plenty = spent_run(120, 0.1, {12, 13}, false);
    CHECK(plenty.chosen.size() == everything().size());
    CHECK(plenty.elapsed_s <= 120);
    CHECK(plenty.elapsed_s > 115);
    // Messages no more than ten times; computing, and what decides, far more often.
    CHECK(plenty.measured[0] == 10);
    CHECK(plenty.measured[9] == 10);
    CHECK(plenty.measured[computing] > 100);
    CHECK(plenty.measured[the_default] > 100);
    CHECK(plenty.measured[12] > 100);
}

TEST_CASE("messages are measured over most of the time, evenly") {
    const SpentRun plenty = spent_run(120, 0.1, {12, 13}, false);
    REQUIRE(plenty.sent_s.size() == 10);
    CHECK(plenty.sent_s[1] < 10);  // soon twice, so that there is advice
    for (std::size_t i = 2; i < plenty.sent_s.size(); ++i) {
        CHECK(plenty.sent_s[i] - plenty.sent_s[i - 1] < 20);
    }
    CHECK(plenty.sent_s.back() > 80);
    CHECK(plenty.sent_s.back() < 100);  // and what it changes can still be measured
}

TEST_CASE("with little time some of each kind are, the ends among them, and the default always") {
    const SpentRun little = spent_run(60, 0.8, {12, 20}, false);
    CHECK(little.chosen.size() < everything().size());
    CHECK(little.elapsed_s <= 60);
    const std::set<std::size_t> chosen(little.chosen.begin(), little.chosen.end());
    for (const std::size_t item : std::vector<std::size_t>{0, 7, 8, 10, the_default, 20}) {
        CHECK(chosen.contains(item));
    }
    CHECK(little.measured[0] >= 2);
    CHECK(little.measured[the_default] >= 3);
}

TEST_CASE("far too little time still gives one round") {
    const SpentRun none = spent_run(1, 2, {12}, false);
    CHECK(none.measured[0] == 1);
    CHECK(none.measured[8] == 1);
    CHECK(none.measured[the_default] == 1);
}

// A step takes 10 s, computing a third of it; messages go up to that of all gradients.
double slow_machine_s(const Item& item) {
    switch (item.protocol) {
        case Protocol::step:
            return 10 + 3.5;
        case Protocol::compute:
            return 2 * 3.5;
        case Protocol::contention:
            return 20;
        default:
            return 3 * 6.5 * static_cast<double>(item.message.count) / 131072;
    }
}

TEST_CASE("where a step takes a fifteenth of the time, the run ends in it and says what it needs") {
    const SpentRun slow = spent_run(150, slow_machine_s, {12, 13}, false);
    CHECK(slow.elapsed_s <= 1.2 * 150);
    CHECK(slow.measured[the_default] >= 2);
    CHECK(slow.measured[computing] >= 1);
    CHECK(slow.measured[0] >= 1);
    CHECK(slow.measured[7] == 0);    // all gradients at once: a tenth of the time
    CHECK(slow.short_after_s == 7);  // the first probe
    // Four steps and computing in five rounds and warming up are 366 s; contention in four rounds
    // 80 s, and four messages of 20 s each round at most.
    REQUIRE(slow.needed_s);
    CHECK(*slow.needed_s > 446 / 0.85);
    CHECK(*slow.needed_s < (446 + 4 * 4 * 20) / 0.85 + 60);
    // With that much it is enough.
    const SpentRun enough = spent_run(*slow.needed_s, slow_machine_s, {12, 13}, false);
    CHECK(!enough.needed_s);
    CHECK(enough.measured[the_default] >= 5);
    CHECK(enough.elapsed_s <= *slow.needed_s);
}

TEST_CASE("a settled decision ends the run, once there is enough to calibrate by") {
    const SpentRun settled = spent_run(120, 0.1, {}, true);
    CHECK(settled.measured[the_default] >= 5);
    CHECK(settled.measured[the_default] <= 8);
    CHECK(settled.measured[0] >= 4);
    CHECK(settled.elapsed_s < 20);
}

TEST_CASE("no more rounds than were asked for") {
    TimePlan plan({{.protocol = Protocol::step}}, 100, 2, {0});
    plan.choose(0);
    CHECK(plan.next_round(0, {0}, false) == std::vector<std::size_t>{0});
    CHECK(plan.next_round(0, {0}, false) == std::vector<std::size_t>{0});
    CHECK(plan.next_round(0, {0}, false).empty());
}

TEST_CASE("a step that joins is measured when it is wanted") {
    TimePlan plan({{.protocol = Protocol::step}}, 100, 10, {0});
    plan.choose(0);
    const std::size_t added =
        plan.add_step({.protocol = Protocol::step, .cap = Cap(Bytes{1 << 20})});
    CHECK(added == 1);
    CHECK(plan.next_round(0, {added}, false) == std::vector<std::size_t>{0, 1});
}

}  // namespace
}  // namespace bucketwise
