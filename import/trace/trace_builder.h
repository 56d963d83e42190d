// A trace put together of events as a profiler's file has them, in any order and of any number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "import/trace/trace.h"

namespace bucketwise {

// One event as a file has it.
struct RawEvent {
    std::string name;
    std::string process;
    std::string thread;
    double begin_us = 0;
    double duration_us = 0;
    TraceEvent event;    // what it has of its own numbers
    std::string stream;  // of a device; empty: none is said
    std::string type;    // of its first input; empty: likewise
    CollectiveCall call;
    bool has_call = false;
};

class TraceBuilder {
  public:
    explicit TraceBuilder(std::string file) { trace_.file = std::move(file); }

    [[nodiscard]] TraceHead& head() { return trace_; }

    // Keeps the event if it tells about training steps. `call` of `raw` is moved from. `place` in
    // the file says which it is, for errors. Throws InputError for times that are not of one run,
    // and for more to keep than most_trace_bytes.
    void add(Category category, RawEvent& raw, std::int64_t place);
    // The same for an event of which is known what it is, whatever its name.
    void add(TraceEventKind kind, RawEvent& raw, std::int64_t place) { keep(kind, raw, place); }

    // What is kept so far takes in memory.
    [[nodiscard]] std::size_t held_bytes() const { return held_bytes_; }

    // Leaves none here.
    [[nodiscard]] ProfilerTrace take();

  private:
    void keep(TraceEventKind kind, RawEvent& raw, std::int64_t place);
    void hold(std::size_t bytes);
    void keep_last_names();
    void check_times(const RawEvent& raw, std::int64_t place);
    std::int32_t interned(const std::string& name);
    std::int32_t thread_number(const std::string& process, const std::string& thread);

    ProfilerTrace trace_;
    std::size_t held_bytes_ = 0;
    std::int32_t order_ = 0;  // of the next event that is kept
    std::unordered_map<std::string_view, std::int32_t> name_numbers_;  // of trace_.names
    std::map<std::pair<std::string, std::string>, std::int32_t> threads_;
    std::optional<double> origin_us_;  // the first event's
    double sum_us_ = 0;                // of all durations
};

}  // namespace bucketwise
