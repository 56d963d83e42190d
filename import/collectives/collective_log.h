// What one rank's program communicated, collective by collective: the list that a flight recorder
// keeps, or what an execution trace says of communication.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/base/dtype.h"
#include "sim/base/units.h"

namespace bucketwise {

enum class LoggedKind : std::uint8_t {
    all_reduce,
    reduce_scatter,
    all_gather,
    broadcast,
    transfer,  // send or receive
    other
};

// By its name as c10d, NCCL or Chakra write it, without its backend: "all_reduce",
// "_reduce_scatter_base", "ALL_GATHER", "send 0->1".
LoggedKind logged_kind(std::string_view name);

struct LoggedCollective {
    LoggedKind kind = LoggedKind::other;
    std::string name = {};
    std::string group = {};                 // process group
    std::string description = {};           // what the program calls the group
    std::int64_t group_size = 0;            // 0: not said
    std::int64_t elements = 0;              // that one rank puts in
    std::string dtype = {};                 // as the log has it; empty: not said
    std::int64_t sequence = -1;             // of its group, alike on all ranks; -1: not said
    std::int64_t part = 0;                  // of those that were issued together, under one number
    std::int64_t step = -1;                 // where the log marks steps; -1: it does not
    std::optional<Duration> issued = {};    // by the log's clock, from its first entry
    std::optional<Duration> duration = {};  // from when the rank was there
    bool operator==(const LoggedCollective&) const = default;

    // The same on all ranks of its group.
    [[nodiscard]] std::pair<std::int64_t, std::int64_t> number() const { return {sequence, part}; }
};

// What the times of issue are of.
enum class LogClock : std::uint8_t {
    none,
    host,      // of the host that issued
    computing  // how long what was computed before takes: no waiting, and no clock
};

struct CollectiveLog {
    std::string file = {};
    std::string kind = {};     // "flight recorder dump", for people
    std::string backend = {};  // nccl, gloo; empty: not said
    std::string version = {};  // of the backend's library; empty: not said
    LogClock clock = LogClock::none;
    std::int64_t begin_ns = 0;               // of a host's clock, when its times of issue are 0
    std::optional<Duration> computing = {};  // all of it, where the log is of whole steps
    std::vector<LoggedCollective> collectives = {};  // in the order of issue
    std::vector<std::string> notes = {};             // what the reader assumed, for people
    bool operator==(const CollectiveLog&) const = default;
};

// What a log may hold.
constexpr std::size_t most_logged_collectives = 500'000;

// Nothing for what no gradient is. By the names of c10d ("Float"), of C++ ("float", "c10::Half")
// and of Python ("float32"); float32 where it is empty.
std::optional<DType> logged_dtype(std::string_view name);

}  // namespace bucketwise
