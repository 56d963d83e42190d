// Units are types: a quantity carries its unit, and adding bytes to seconds does not compile.
//
// Durations are whole picoseconds, so every result is exact and the same on every machine; an
// int64 of picoseconds holds 106 days. One function, transfer_time, turns bytes and a bandwidth
// into time.
#pragma once

#include <chrono>
#include <cmath>
#include <compare>
#include <cstdint>
#include <ratio>

namespace bucketwise {

// Also a point in time: the simulation starts at zero.
using Duration = std::chrono::duration<std::int64_t, std::pico>;

// Rounded to the nearest picosecond, halves away from zero.
inline Duration duration_from_us(double microseconds) {
    return Duration{std::llround(microseconds * 1e6)};
}
inline Duration duration_from_ms(double milliseconds) {
    return duration_from_us(milliseconds * 1e3);
}
constexpr double to_us(Duration d) {
    return static_cast<double>(d.count()) / 1e6;
}
constexpr double to_ms(Duration d) {
    return static_cast<double>(d.count()) / 1e9;
}

struct Bytes {
    std::int64_t count = 0;

    auto operator<=>(const Bytes&) const = default;
    constexpr Bytes& operator+=(Bytes other) {
        count += other.count;
        return *this;
    }
    friend constexpr Bytes operator+(Bytes a, Bytes b) { return {a.count + b.count}; }
    friend constexpr Bytes operator-(Bytes a, Bytes b) { return {a.count - b.count}; }
    friend constexpr Bytes operator*(std::int64_t n, Bytes b) { return {n * b.count}; }
};

constexpr std::int64_t byte_count(Bytes bytes) {
    return bytes.count;
}
constexpr std::int64_t bytes_per_mib = std::int64_t{1} << 20;
// One of so many equal parts, rounded up to whole ones.
constexpr std::int64_t divided(std::int64_t whole, std::int64_t parts) {
    return (whole + parts - 1) / parts;
}
constexpr Bytes divided(Bytes whole, std::int64_t parts) {
    return {divided(whole.count, parts)};
}
constexpr double to_mib(Bytes b) {
    return static_cast<double>(b.count) / static_cast<double>(bytes_per_mib);
}

struct BytesPerSecond {
    std::int64_t count = 0;
    auto operator<=>(const BytesPerSecond&) const = default;
};
inline BytesPerSecond bandwidth_from_gb_per_s(double gigabytes) {
    return {std::llround(gigabytes * 1e9)};
}
constexpr double to_gb_per_s(BytesPerSecond bandwidth) {
    return static_cast<double>(bandwidth.count) / 1e9;
}

// A share of a quantity that must not be rounded before it is used: ring all-reduce puts
// 2(p-1)/p of the message on the wire.
struct Share {
    std::int64_t numerator = 1;
    std::int64_t denominator = 1;
    auto operator<=>(const Share&) const = default;
};

// Nothing that is simulated may last longer: ten days. Sums of ten such durations still fit.
constexpr Duration longest_duration = std::chrono::hours{240};

// Time to move `share` of `bytes` at `bandwidth`, rounded to the nearest picosecond, halves up.
// Saturates at longest_duration. Precondition (asserted): bandwidth > 0, bytes >= 0, share >= 0.
Duration transfer_time(Bytes bytes, BytesPerSecond bandwidth, Share share = {});

// `time` times `factor`, rounded to the nearest picosecond, from 0 to longest_duration. NaN gives
// 0.
Duration scaled(Duration time, double factor);

// Slowdowns are in parts per million of the undisturbed time: 1,250,000 = takes 1.25 times as long.
constexpr std::int64_t undisturbed_ppm = 1'000'000;

// `work` at `slowdown_ppm` >= 10^6 takes this long, rounded up, so that an interval never ends
// early.
Duration stretched_by(Duration work, std::int64_t slowdown_ppm);
inline Duration stretched(Duration work, std::int64_t slowdown_ppm) {
    return slowdown_ppm == undisturbed_ppm ? work : stretched_by(work, slowdown_ppm);
}

// The work done in `elapsed` at `slowdown_ppm`, rounded down.
Duration work_done(Duration elapsed, std::int64_t slowdown_ppm);

}  // namespace bucketwise
