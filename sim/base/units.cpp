#include "sim/base/units.h"

#include <limits>

#include "sim/base/invariant.h"

namespace bucketwise {
namespace {

__extension__ using WideInt = __int128;
constexpr WideInt picoseconds_per_second = 1'000'000'000'000;

Duration saturated(WideInt picoseconds) {
    constexpr WideInt largest = longest_duration.count();
    return Duration{static_cast<std::int64_t>(picoseconds < largest ? picoseconds : largest)};
}

}  // namespace

Duration transfer_time(Bytes bytes, BytesPerSecond bandwidth, Share share) {
    invariant(bandwidth.count > 0 && bytes.count >= 0, "transfer_time needs a positive bandwidth");
    invariant(share.numerator >= 0 && share.denominator > 0, "transfer_time needs a share >= 0");
    if (share == Share{}) {  // most calls: copies, a million in a sweep
        const WideInt doubled = 2 * WideInt{bytes.count} * picoseconds_per_second;
        return saturated((doubled + bandwidth.count) / (2 * WideInt{bandwidth.count}));
    }
    // In two steps, so that nothing overflows 128 bits: whole bytes and a rest below one byte, each
    // with its own remainder. With bytes up to 2^60 and both parts of a share up to 2^42, which
    // 10^6 ranks reach, the largest term is below 2^110.
    const WideInt wire = WideInt{bytes.count} * share.numerator;
    const WideInt whole = wire / share.denominator * picoseconds_per_second;
    const WideInt rest = wire % share.denominator * picoseconds_per_second;
    const WideInt denominator = WideInt{bandwidth.count} * share.denominator;
    const WideInt numerator = whole % bandwidth.count * share.denominator + rest;
    return saturated(whole / bandwidth.count + (2 * numerator + denominator) / (2 * denominator));
}

// Seconds at a slowdown are below 2^63 picoseconds times a million, whose division takes a fraction
// of that of 128 bits.
Duration stretched_by(Duration work, std::int64_t slowdown_ppm) {
    std::int64_t short_product = 0;
    if (!__builtin_mul_overflow(work.count(), slowdown_ppm, &short_product) &&
        short_product <= std::numeric_limits<std::int64_t>::max() - undisturbed_ppm) {
        return saturated((short_product + undisturbed_ppm - 1) / undisturbed_ppm);
    }
    const WideInt product = WideInt{work.count()} * slowdown_ppm;
    return saturated((product + undisturbed_ppm - 1) / undisturbed_ppm);
}

Duration work_done(Duration elapsed, std::int64_t slowdown_ppm) {
    std::int64_t short_product = 0;
    if (!__builtin_mul_overflow(elapsed.count(), undisturbed_ppm, &short_product)) {
        return saturated(short_product / slowdown_ppm);
    }
    return saturated(WideInt{elapsed.count()} * undisturbed_ppm / slowdown_ppm);
}

Duration scaled(Duration time, double factor) {
    const double picoseconds = static_cast<double>(time.count()) * factor;
    constexpr auto longest_ps = static_cast<double>(longest_duration.count());
    return Duration{picoseconds > 0 ? std::llround(std::min(picoseconds, longest_ps)) : 0};
}

}  // namespace bucketwise
