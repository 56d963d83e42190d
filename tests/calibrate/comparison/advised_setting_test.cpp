#include "calibrate/comparison/advised_setting.h"

#include <vector>

#include <catch2/catch.hpp>

namespace bucketwise {
namespace {

PredictedSetting setting(std::int64_t bucket, double step_ms, std::size_t steps = 5) {
    PredictedSetting setting{.predicted = {}, .steps = steps};
    setting.predicted.bucket_bytes = {Bytes{bucket}};
    setting.predicted.times.backward = duration_from_ms(step_ms);
    return setting;
}

TEST_CASE(
    "the advice is judged by its own plan, or by the measured one that is predicted fastest") {
    const std::vector<PredictedSetting> measured{setting(1, 30), setting(2, 20), setting(3, 25)};
    JudgedSetting judged = judged_setting(measured, setting(3, 25).predicted);
    CHECK(judged.index == 2);
    CHECK(judged.is_advised);
    judged = judged_setting(measured, setting(4, 15).predicted);
    CHECK(judged.index == 1);
    CHECK_FALSE(judged.is_advised);
    CHECK_FALSE(judged.advice_is_known);
}

TEST_CASE("advice that moves between equals asks for nothing new to measure") {
    const std::vector<PredictedSetting> measured{setting(1, 300), setting(2, 202)};
    CHECK(as_advised(measured, setting(3, 200.1).predicted) == 1);
    CHECK_FALSE(as_advised(measured, setting(3, 199.9).predicted).has_value());
    CHECK_FALSE(as_advised({}, setting(3, 199.9).predicted).has_value());
}

TEST_CASE("of equals the advice is judged unless another was measured more than twice as often") {
    const Evaluation advised = setting(3, 200).predicted;
    const auto of = [&](std::size_t steps) {
        return judged_setting({setting(1, 200.5, 9), setting(2, 200.2, 9), setting(3, 200, steps)},
                              advised);
    };
    CHECK(of(5).index == 2);
    CHECK(of(5).is_advised);
    CHECK(of(4).index == 1);
    CHECK_FALSE(of(4).is_advised);
    CHECK(of(4).advice_is_known);
}

}  // namespace
}  // namespace bucketwise
