#include "hw/rank/rank_device.h"

#include <chrono>

#include <fmt/format.h>

#include "sim/base/statistics.h"
#include "sim/base/transformed.h"

namespace bucketwise {

void StepCheck::add(const ElementCheck& found, const std::string& what, const char* is) {
    if (!(found.largest_difference <= largest_difference)) {
        largest_difference = found.largest_difference;
    }
    if (found.wrong_element >= 0 && wrong.empty()) {
        wrong = fmt::format("{}, element {}: expected {}{}, got {}", what, found.wrong_element, is,
                            found.expected, found.got);
    }
}

std::vector<Duration> times_alone(std::size_t operations, const std::function<void()>& warm_up,
                                  const std::function<std::vector<Duration>()>& time) {
    constexpr std::chrono::milliseconds enough{100};
    constexpr std::size_t most_passes = 100;
    using Clock = std::chrono::steady_clock;
    std::vector<std::vector<Duration>> samples(operations);
    const Clock::time_point start = Clock::now();
    warm_up();
    for (std::size_t pass = 1; pass < 3 || (pass < most_passes && Clock::now() - start < enough);
         ++pass) {
        const std::vector<Duration> times = time();
        for (std::size_t i = 0; i < samples.size(); ++i) {
            samples[i].push_back(times[i]);
        }
    }
    return transformed(samples, upper_median<Duration>);
}

}  // namespace bucketwise
