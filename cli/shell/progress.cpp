#include "cli/shell/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <sstream>

#include <fmt/format.h>

namespace bucketwise {
namespace {

int terminal_columns() {
    struct winsize size {};
    const bool known = ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
    return known ? size.ws_col : 80;
}

std::string time_left(std::int64_t done, std::int64_t total,
                      std::chrono::duration<double> elapsed) {
    if (done < 1) {
        return "";
    }
    const auto seconds = static_cast<std::int64_t>(
        std::ceil(elapsed.count() / static_cast<double>(done) * static_cast<double>(total - done)));
    return seconds < 120 ? fmt::format(", {} s left", seconds)
                         : fmt::format(", {} min left", (seconds + 30) / 60);
}

}  // namespace

std::string progress_line(std::int64_t done, std::int64_t total, const std::string& text,
                          std::chrono::duration<double> elapsed, int columns) {
    constexpr std::int64_t width = 20;
    const std::int64_t filled = total > 0 ? width * done / total : 0;
    const std::string bar = std::string(static_cast<std::size_t>(filled), '=') +
                            std::string(static_cast<std::size_t>(width - filled), ' ');
    std::string line = fmt::format("measuring [{}] {}/{}{}  {}", bar, done, total,
                                   time_left(done, total, elapsed), text);
    return line.substr(0, static_cast<std::size_t>(std::max(columns - 1, 1)));
}

TerminalLine::TerminalLine() : visible_(::isatty(STDERR_FILENO) == 1) {}

TerminalLine::~TerminalLine() {
    if (shown_) {
        std::fputs("\r\033[K", stderr);
    }
}

void TerminalLine::write(const std::string& text) {
    std::fputs(("\r" + text).c_str(), stderr);
    std::fflush(stderr);
    shown_ = true;
}

void MeasureProgress::show(const std::string& report) {
    if (!line_.is_visible()) {
        return;
    }
    std::istringstream stream(report);
    std::int64_t done = 0;
    std::int64_t total = 0;
    std::string text;
    if (!(stream >> done >> total)) {
        return;
    }
    std::getline(stream >> std::ws, text);
    const auto now = std::chrono::steady_clock::now();
    if (!counting_ && text.rfind("warming up", 0) != 0) {
        counting_ = true;
        first_ = now;
    }
    const std::chrono::duration<double> elapsed = now - (counting_ ? first_ : now);
    line_.write("\033[K" + progress_line(done, total, text, elapsed, terminal_columns()));
}

void PercentLine::operator()(double done) {
    constexpr std::chrono::milliseconds patience{500};
    if (line_.is_visible() && std::chrono::steady_clock::now() - start_ > patience) {
        line_.write(fmt::format("{}: {:3.0f} %", what_, 100 * done));
    }
}

void ReadingLine::operator()(std::uint64_t read_bytes) {
    constexpr std::chrono::milliseconds patience{500};
    constexpr std::chrono::milliseconds between{100};
    const auto now = std::chrono::steady_clock::now();
    if (line_.is_visible() && now - start_ > patience && now - last_ > between) {
        last_ = now;
        line_.write("\033[K" + what_ + ": " + reading_text(read_bytes, bytes_, now - start_));
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
