#include "sim/units.h"

#include "sim/invariant.h"

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
    // The product of bytes and share stays below 2^84 for shares below 2^21, and times 10^12 below
    // 2^124: no overflow for any message that fits in a machine and up to 10^6 ranks.
    const WideInt numerator = WideInt{bytes.count} * share.numerator * picoseconds_per_second;
    const WideInt denominator = WideInt{bandwidth.count} * share.denominator;
    return saturated((2 * numerator + denominator) / (2 * denominator));
}

Duration stretched_by(Duration work, std::int64_t slowdown_ppm) {
    const WideInt product = WideInt{work.count()} * slowdown_ppm;
    return saturated((product + undisturbed_ppm - 1) / undisturbed_ppm);
}

Duration work_done(Duration elapsed, std::int64_t slowdown_ppm) {
    return saturated(WideInt{elapsed.count()} * undisturbed_ppm / slowdown_ppm);
}

}  // namespace bucketwise
