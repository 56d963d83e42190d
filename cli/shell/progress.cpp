#include "cli/shell/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <sstream>
#include <string_view>

#include <fmt/format.h>

#include "sim/text/foreign_text.h"

namespace bucketwise {
namespace {

std::size_t terminal_columns() {
    struct winsize size {};
    const bool known = ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
    return known ? size.ws_col : 80;
}

std::string seconds_left(double seconds) {
    return seconds < 120 ? fmt::format(" {:.0f} s left", std::ceil(seconds))
                         : fmt::format(" {:.0f} min left", std::ceil(seconds / 60));
}

std::string bar(double share) {
    constexpr double width = 20;
    return fmt::format(
        "[{:<20}]",
        std::string(static_cast<std::size_t>(width * std::clamp(share, 0.0, 1.0)), '='));
}

double seconds_since(TimePoint start) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

TerminalLine::TerminalLine() : visible_(::isatty(STDERR_FILENO) == 1) {}

TerminalLine::~TerminalLine() {
    clear();
}

void TerminalLine::clear() {
    if (shown_) {
        std::fputs("\r\033[K", stderr);
    }
    shown_ = false;
}

bool TerminalLine::is_awaited() const {
    constexpr double patience_s = 0.5;
    return visible_ && seconds_since(start_) > patience_s;
}

void TerminalLine::write(const std::string& text) {
    std::fputs(("\r\033[K" + shown_line(text, 500).substr(0, terminal_columns() - 1)).c_str(),
               stderr);
    std::fflush(stderr);
    shown_ = true;
}

void MeasureProgress::show(const std::string& report) {
    constexpr std::string_view note = "note ";
    if (report.starts_with(note)) {
        line_.clear();
        std::fputs(
            fmt::format("bucketwise: {}\n", shown_line(report.substr(note.size()), 500)).c_str(),
            stderr);
        return;
    }
    std::istringstream stream(report);
    std::string unit;
    double done = 0;
    double total = 0;
    std::string text;
    if (!line_.is_visible() || !(stream >> unit >> done >> total)) {
        return;
    }
    std::getline(stream >> std::ws, text);
    if (unit == "ms") {
        line_.write(fmt::format("measuring {}{}  {}", bar(done / total),
                                seconds_left(std::max(total - done, 0.0) / 1e3), text));
        return;
    }
    if (!first_) {
        first_ = std::chrono::steady_clock::now();
    }
    const std::string left =
        done < 1 ? "" : "," + seconds_left(seconds_since(*first_) / done * (total - done));
    line_.write(
        fmt::format("measuring {} {}/{}{}  {}", bar(done / total), done, total, left, text));
}

void PercentLine::operator()(double done) {
    const int percent = static_cast<int>(100 * done);
    if (percent != shown_ && line_.is_awaited()) {
        shown_ = percent;
        line_.write(fmt::format("{}: {:3d} %", what_, percent));
    }
}

void ReadingLine::operator()(std::uint64_t read_bytes) {
    constexpr double between_s = 0.1;
    if (!line_.is_awaited() || seconds_since(last_) < between_s) {
        return;
    }
    last_ = std::chrono::steady_clock::now();
    const double read_mb = static_cast<double>(read_bytes) / 1e6;
    const double mb = static_cast<double>(bytes_) / 1e6;
    const double rate = read_mb / std::max(seconds_since(line_.start()), 1e-9);
    line_.write(bytes_ == 0 ? fmt::format("{}: {:.0f} MB, {:.0f} MB/s", what_, read_mb, rate)
                            : fmt::format("{}: {:.0f} of {:.0f} MB ({:.0f} %), {:.0f} MB/s", what_,
                                          std::min(read_mb, mb), mb,
                                          std::min(100 * read_mb / mb, 100.0), rate));
}

}  // namespace bucketwise
