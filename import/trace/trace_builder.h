// A trace put together of events as a profiler's file has them, in any order and of any number.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "import/trace/trace.h"

namespace bucketwise {

// Counts the memory of all that is kept of a file.
class KeptBytes {
  public:
    // `place` in the file and `advice` are for the error.
    KeptBytes(std::string file, std::string place, std::string advice)
        : file_(std::move(file)), place_(std::move(place)), advice_(std::move(advice)) {}

    // Throws InputError where it becomes more than most_trace_bytes.
    void hold(std::size_t bytes);
    void release(std::size_t bytes) { held_ -= bytes; }
    template <typename T>
    void keep(std::vector<T>& values, std::type_identity_t<T> value) {
        hold(sizeof(T));
        values.push_back(std::move(value));
    }

  private:
    std::string file_;
    std::string place_;
    std::string advice_;
    std::size_t held_ = 0;
};

// One event as a file has it. Its texts are those of the reader.
struct RawEvent {
    std::string_view name = {};
    std::string_view process = {};
    std::string_view thread = {};
    std::string_view stream = {};  // of a device; empty: not said
    std::string_view type = {};    // of its first input; empty: not said
    TraceEvent event = {};         // its times and numbers
    CollectiveCall call = {};
    bool has_call = false;
    bool names_work = false;  // work of the device with its External id is called like it
    bool is_forward = false;  // autograd records it, to differentiate it later
};

// When the threads of a host were in operations, to a tenth of a millisecond: of a trace with
// millions of operations, what they launched is kept, and this.
class HostWork {
  public:
    explicit HostWork(KeptBytes& kept) : kept_(kept) {}

    void add(const TraceEvent& operation);
    // One event for each time without a pause, or several: a step has those that begin in it.
    [[nodiscard]] std::vector<TraceEvent> events() const;

  private:
    static constexpr std::int64_t bin_ns = 100'000;
    static constexpr std::int64_t longest_ns = 500'000;
    static constexpr std::size_t bins = 4096;

    KeptBytes& kept_;
    std::map<std::pair<std::int32_t, std::int64_t>, std::bitset<bins>> chunks_;  // by thread, time
};

class TraceBuilder {
  public:
    TraceBuilder(std::string file, KeptBytes& kept) : kept_(kept), host_(kept) {
        trace_.file = std::move(file);
    }

    [[nodiscard]] TraceHead& head() { return trace_; }

    // Moves the event's `call`. `place` is the event's number in the file, for errors. Throws
    // InputError for times that are not of one run, and for more than `kept` allows.
    void add(TraceEventKind kind, RawEvent& raw, std::int64_t place);

    // Leaves none here.
    [[nodiscard]] ProfilerTrace take();

  private:
    void note_host(const TraceEvent& operation);
    void keep_last_names();
    void find_recomputed();
    void check_times(const TraceEvent& event, std::int64_t place);
    std::int32_t interned(std::string_view name);
    std::int32_t thread_number(std::string_view process, std::string_view thread);

    ProfilerTrace trace_;
    KeptBytes& kept_;
    HostWork host_;                  // where anything ran on a device
    std::vector<HostSpan> forward_;  // operations that autograd records
    std::int32_t order_ = 0;         // of the next event that is kept
    std::unordered_map<std::string_view, std::int32_t> name_numbers_;  // of trace_.names
    std::map<std::string, std::int32_t> threads_;                      // process and thread
    std::optional<std::int64_t> first_ns_;
    std::int64_t sum_ns_ = 0;  // of all durations
};

}  // namespace bucketwise
