#include "sim/plan/cap.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <limits>
#include <string>
#include <string_view>

#include <fmt/format.h>

namespace bucketwise {

double growth_of_caps(std::size_t gradients) {
    constexpr std::size_t most_for_every_plan = 2000;
    constexpr double growth_beyond = 1.01;
    return gradients <= most_for_every_plan ? 1.0 : growth_beyond;
}

CapRange common(const CapRange& a, const CapRange& b) {
    CapRange both{std::max(a.lowest, b.lowest), a.highest};
    if (b.highest) {
        both.highest = a.highest ? std::min(*a.highest, *b.highest) : *b.highest;
    }
    return both;
}

std::optional<Bytes> next_cap(const CapRange& range, double growth) {
    if (!range.highest) {
        return std::nullopt;
    }
    const auto grown = static_cast<std::int64_t>(static_cast<double>(range.lowest.count) * growth);
    return Bytes{std::max(range.highest->count + 1, grown)};
}

double typed_mib(Bytes cap) {
    double scale = 1;
    for (int decimals = 0; decimals <= 9; ++decimals, scale *= 10) {
        const double candidate = std::ceil(to_mib(cap) * scale) / scale;
        if (static_cast<std::int64_t>(candidate * static_cast<double>(bytes_per_mib)) ==
            cap.count) {
            return candidate;
        }
    }
    return to_mib(cap);
}

int digits_to_type(Bytes cap) {
    const std::string typed = fmt::format("{}", typed_mib(cap));
    std::string digits;
    std::copy_if(typed.begin(), typed.end(), std::back_inserter(digits),
                 [](char c) { return '0' <= c && c <= '9'; });
    digits.erase(0, digits.find_first_not_of('0'));
    digits.erase(digits.find_last_not_of('0') + 1);
    const auto count = static_cast<std::uint64_t>(cap.count);
    const bool is_round =
        digits.size() == 1 && std::string_view("12458").find(digits) != std::string_view::npos;
    constexpr std::int64_t smallest_power = bytes_per_mib / 4;
    if (cap == default_bucket_cap) {
        return 0;
    }
    return is_round || (std::has_single_bit(count) && cap.count >= smallest_power)
               ? 1
               : std::max(static_cast<int>(digits.size()), 2);
}

Bytes roundest_cap(const CapRange& range) {
    const std::int64_t highest =
        range.highest ? range.highest->count : std::numeric_limits<std::int64_t>::max();
    const auto within = [&](std::int64_t bytes) {
        return range.lowest.count <= bytes && bytes <= highest;
    };
    if (within(default_bucket_cap.count)) {
        return default_bucket_cap;
    }
    // A cap is typed in MiB and truncated to bytes. Nobody types fractions below a thousandth of a
    // MiB, so finer ranges keep their exact lowest byte.
    for (const std::int64_t thousandths : {1'000'000, 500'000, 100'000, 50'000, 10'000, 5'000,
                                           1'000, 500, 250, 100, 50, 25, 10, 5, 1}) {
        const double step_mib = static_cast<double>(thousandths) / 1000;
        const double first = std::ceil(to_mib(range.lowest) / step_mib);
        for (const double multiple : {first, first + 1}) {
            const auto bytes =
                static_cast<std::int64_t>(multiple * static_cast<double>(thousandths) / 1000 *
                                          static_cast<double>(bytes_per_mib));
            if (within(bytes)) {
                return {bytes};
            }
        }
    }
    return range.lowest;
}

}  // namespace bucketwise
