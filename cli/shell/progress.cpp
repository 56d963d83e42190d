#include "cli/shell/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <sstream>

#include <fmt/format.h>

#include "sim/text/foreign_text.h"

namespace bucketwise {
namespace {

int terminal_columns() {
    struct winsize size {};
    const bool known = ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
    return known ? size.ws_col : 80;
}

std::string seconds_left(std::int64_t seconds) {
    return seconds < 120 ? fmt::format(" {} s left", seconds)
                         : fmt::format(" {} min left", (seconds + 30) / 60);
}

std::string time_left(std::int64_t done, std::int64_t total,
                      std::chrono::duration<double> elapsed) {
    if (done < 1) {
        return "";
    }
    return "," +
           seconds_left(static_cast<std::int64_t>(std::ceil(
               elapsed.count() / static_cast<double>(done) * static_cast<double>(total - done))));
}

std::string bar(std::int64_t done, std::int64_t total) {
    constexpr std::int64_t width = 20;
    const std::int64_t filled =
        total > 0 ? std::clamp<std::int64_t>(width * done / total, 0, width) : 0;
    return '[' + std::string(static_cast<std::size_t>(filled), '=') +
           std::string(static_cast<std::size_t>(width - filled), ' ') + ']';
}

std::string cut_to(const std::string& line, int columns) {
    return line.substr(0, static_cast<std::size_t>(std::max(columns - 1, 1)));
}

}  // namespace

std::string progress_line(std::int64_t done, std::int64_t total, const std::string& text,
                          std::chrono::duration<double> elapsed, int columns) {
    return cut_to(fmt::format("measuring {} {}/{}{}  {}", bar(done, total), done, total,
                              time_left(done, total, elapsed), text),
                  columns);
}

std::string timed_progress_line(std::int64_t elapsed_ms, std::int64_t limit_ms,
                                const std::string& text, int columns) {
    const std::int64_t left_s = (std::max(limit_ms - elapsed_ms, std::int64_t{0}) + 999) / 1000;
    return cut_to(
        fmt::format("measuring {}{}  {}", bar(elapsed_ms, limit_ms), seconds_left(left_s), text),
        columns);
}

TerminalLine::TerminalLine() : visible_(::isatty(STDERR_FILENO) == 1) {}

TerminalLine::~TerminalLine() {
    if (shown_) {
        std::fputs("\r\033[K", stderr);
    }
}

void TerminalLine::write(const std::string& text) {
    constexpr std::size_t longest = 500;
    std::fputs(("\r\033[K" + shown_line(text, longest)).c_str(), stderr);
    std::fflush(stderr);
    shown_ = true;
}

void MeasureProgress::show(const std::string& report) {
    if (!line_.is_visible()) {
        return;
    }
    std::istringstream stream(report);
    std::string unit;
    std::int64_t done = 0;
    std::int64_t total = 0;
    std::string text;
    if (!(stream >> unit >> done >> total)) {
        return;
    }
    std::getline(stream >> std::ws, text);
    if (unit == "ms") {
        line_.write(timed_progress_line(done, total, text, terminal_columns()));
        return;
    }
    const auto now = std::chrono::steady_clock::now();
    if (!first_) {
        first_ = now;
    }
    line_.write(progress_line(done, total, text, now - *first_, terminal_columns()));
}

void PercentLine::operator()(double done) {
    constexpr std::chrono::milliseconds patience{500};
    const int percent = static_cast<int>(100 * done);
    if (percent != shown_ && line_.is_visible() &&
        std::chrono::steady_clock::now() - start_ > patience) {
        shown_ = percent;
        line_.write(fmt::format("{}: {:3d} %", what_, percent));
    }
}

void ReadingLine::operator()(std::uint64_t read_bytes) {
    constexpr std::chrono::milliseconds patience{500};
    constexpr std::chrono::milliseconds between{100};
    const auto now = std::chrono::steady_clock::now();
    if (line_.is_visible() && now - start_ > patience && now - last_ > between) {
        last_ = now;
        line_.write(what_ + ": " + reading_text(read_bytes, bytes_, now - start_));
    }
}

std::string reading_text(std::uint64_t read_bytes, std::uint64_t bytes,
                         std::chrono::duration<double> elapsed) {
    const double read_mb = static_cast<double>(read_bytes) / 1e6;
    const std::string rate = fmt::format("{:.0f} MB/s", read_mb / std::max(elapsed.count(), 1e-9));
    if (bytes == 0) {
        return fmt::format("{:.0f} MB, {}", read_mb, rate);
    }
    const double mb = static_cast<double>(bytes) / 1e6;
    return fmt::format("{:.0f} of {:.0f} MB ({:.0f} %), {}", std::min(read_mb, mb), mb,
                       std::min(100 * read_mb / mb, 100.0), rate);
}

}  // namespace bucketwise
