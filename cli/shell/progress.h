// A line on the terminal that rewrites itself, and is not written where standard error is none.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace bucketwise {

using TimePoint = std::chrono::steady_clock::time_point;

// The line is removed at the end.
class TerminalLine {
  public:
    TerminalLine();
    ~TerminalLine();
    TerminalLine(const TerminalLine&) = delete;
    TerminalLine& operator=(const TerminalLine&) = delete;

    [[nodiscard]] bool is_visible() const { return visible_; }
    // Visible, and old enough that there is something to wait for.
    [[nodiscard]] bool is_awaited() const;
    [[nodiscard]] TimePoint start() const { return start_; }
    void write(const std::string& text);
    void clear();

  private:
    bool visible_;
    bool shown_ = false;
    TimePoint start_ = std::chrono::steady_clock::now();
};

// A bar with the time left of a measurement: rank 0 reports "items DONE TOTAL TEXT" or "ms ELAPSED
// LIMIT TEXT". "note TEXT" is a line that stays, also where standard error is no terminal.
class MeasureProgress {
  public:
    void show(const std::string& report);

  private:
    TerminalLine line_;
    std::optional<TimePoint> first_;  // the start of the first item
};

// Progress of a simulation, in percent.
class PercentLine {
  public:
    explicit PercentLine(std::string what) : what_(std::move(what)) {}
    void operator()(double done);  // from 0 to 1

  private:
    std::string what_;
    TerminalLine line_;
    int shown_ = -1;  // percent
};

// Progress of reading a file, and its speed.
class ReadingLine {
  public:
    // 0 bytes: unknown.
    ReadingLine(const std::string& file, std::uint64_t bytes)
        : what_("reading " + file), bytes_(bytes) {}
    void operator()(std::uint64_t read_bytes);

  private:
    std::string what_;
    std::uint64_t bytes_;
    TerminalLine line_;
    TimePoint last_ = line_.start();  // when it was written
};

}  // namespace bucketwise
