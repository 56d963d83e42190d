// A line on the terminal that rewrites itself. Nothing is written where standard error is none.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace bucketwise {

// Such a line, which is gone at the end.
class TerminalLine {
  public:
    TerminalLine();
    ~TerminalLine();
    TerminalLine(const TerminalLine&) = delete;
    TerminalLine& operator=(const TerminalLine&) = delete;

    [[nodiscard]] bool is_visible() const { return visible_; }
    void write(const std::string& text);

  private:
    bool visible_;
    bool shown_ = false;
};

// How far a measurement is: "items DONE TOTAL TEXT" or "ms ELAPSED LIMIT TEXT", as rank 0 reports
// it, becomes a bar with the time left.
class MeasureProgress {
  public:
    void show(const std::string& report);

  private:
    TerminalLine line_;
    std::optional<std::chrono::steady_clock::time_point> first_;  // when the first item began
};

// How far a simulation is, in percent, once there is something to wait for.
class PercentLine {
  public:
    explicit PercentLine(std::string what) : what_(std::move(what)) {}
    void operator()(double done);  // from 0 to 1

  private:
    std::string what_;
    TerminalLine line_;
    int shown_ = -1;  // percent
    std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// How much of a file is read, and how fast, once there is something to wait for.
class ReadingLine {
  public:
    // 0 bytes: not known.
    ReadingLine(const std::string& file, std::uint64_t bytes)
        : what_("reading " + file), bytes_(bytes) {}
    void operator()(std::uint64_t read_bytes);

  private:
    std::string what_;
    std::uint64_t bytes_;
    TerminalLine line_;
    std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
    std::chrono::steady_clock::time_point last_ = start_;  // when it was written
};

// "450 of 1009 MB (45 %), 310 MB/s" of `bytes`, 0 of which: not known.
std::string reading_text(std::uint64_t read_bytes, std::uint64_t bytes,
                         std::chrono::duration<double> elapsed);

// The line for `done` of `total` after `elapsed`, at most `columns` wide.
std::string progress_line(std::int64_t done, std::int64_t total, const std::string& text,
                          std::chrono::duration<double> elapsed, int columns);

// The line after `elapsed_ms` of a run that ends after `limit_ms`.
std::string timed_progress_line(std::int64_t elapsed_ms, std::int64_t limit_ms,
                                const std::string& text, int columns);

}  // namespace bucketwise
