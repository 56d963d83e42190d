// Logs as nccl-tests writes them, from its documented columns: what the importer must find again.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "sim/link/network/algorithm.h"

namespace bucketwise {

// The times of one size, in microseconds.
struct LoggedTimes {
    std::int64_t bytes = 0;
    double out_of_place_us = 0;
    double in_place_us = 0;
};

struct LogStyle {
    bool root = true;            // new columns; old ones have none
    bool per_iteration = false;  // -I
    bool timestamp = false;      // -S
    std::string wrong = "0";     // N/A with -c 0; an error in old columns
    std::string before = {};     // what a launcher puts before each line
    std::string end = "\n";
    CollectiveKind kind = CollectiveKind::all_reduce;
};

inline double algbw_of(std::int64_t bytes, double us) {
    return static_cast<double>(bytes) / us / 1e3;
}

inline double busbw_of(std::int64_t bytes, double us, std::int64_t ranks,
                       CollectiveKind kind = CollectiveKind::all_reduce) {
    const auto rounds = static_cast<double>(rounds_of(kind));
    return algbw_of(bytes, us) * rounds * static_cast<double>(ranks - 1) /
           static_cast<double>(ranks);
}

// "%7s  %6.2f  %6.2f  %5s", the time with as many decimals as fit.
inline std::string half_text(std::int64_t bytes, double us, std::int64_t ranks,
                             const LogStyle& style) {
    const int decimals = us >= 10000 ? 0 : us >= 100 ? 1 : 2;
    std::string text =
        fmt::format("  {:>7.{}f}  {:>6.2f}  {:>6.2f}  {:>5}", us, decimals, algbw_of(bytes, us),
                    busbw_of(bytes, us, ranks, style.kind), style.wrong);
    return style.per_iteration ? text + fmt::format("  {:>7.2f}  {:>7.2f}  {:>7.2f}  {:>7.2f}",
                                                    us * 0.9, us * 1.2, us * 1.1, 3.5)
                               : text;
}

inline std::string row_text(const LoggedTimes& times, std::int64_t ranks, const LogStyle& style) {
    // Other kinds count one rank's part.
    const bool parts = style.kind != CollectiveKind::all_reduce;
    return fmt::format("{:>12}  {:>12}  {:>8}  {:>6}{}", times.bytes,
                       times.bytes / 4 / (parts ? ranks : 1), "float",
                       style.kind == CollectiveKind::all_gather ? "none" : "sum",
                       style.root ? fmt::format("  {:>6}", -1) : "") +
           half_text(times.bytes, times.out_of_place_us, ranks, style) +
           half_text(times.bytes, times.in_place_us, ranks, style) +
           (style.timestamp ? "  2026-11-21 10:20:30" : "");
}

inline std::string heading_text(const LogStyle& style, const std::string& time = "time") {
    const std::string half =
        fmt::format("{:>9}  {:>6}  {:>6} {:>6}{}", time, "algbw", "busbw", "#wrong",
                    style.per_iteration ? "    i_min  i_max  i_p99  i_cv%" : "");
    return fmt::format("# {:>10}  {:>12}  {:>8}  {:>6}{}", "size", "count", "type", "redop",
                       style.root ? "    root" : "") +
           half + half + (style.timestamp ? "  timestamp" : "");
}

inline std::string log_text(const std::vector<LoggedTimes>& all, std::int64_t ranks,
                            const LogStyle& style) {
    std::string text = style.before + heading_text(style) + style.end;
    for (const LoggedTimes& times : all) {
        text += style.before + row_text(times, ranks, style) + style.end;
    }
    return text + style.before + "# Out of bounds values : 0 OK" + style.end + style.before +
           "# Avg bus bandwidth    : 12.34" + style.end;
}

// 8 B to 1 GiB by factors of 4: 20 us and 100 GB/s, in place a little faster.
inline std::vector<LoggedTimes> usual_times() {
    std::vector<LoggedTimes> all;
    for (std::int64_t bytes = 8; bytes <= std::int64_t{1} << 30; bytes *= 4) {
        const double us = 20 + static_cast<double>(bytes) / 1e5;
        // As printed, so that what is read is what is here.
        const double per_us = us >= 9000 ? 1 : us >= 90 ? 10 : 100;
        const auto rounded = [&](double t) {
            return static_cast<double>(std::llround(t * per_us)) / per_us;
        };
        all.push_back({bytes, rounded(us), rounded(us * 0.97)});
    }
    return all;
}

}  // namespace bucketwise
