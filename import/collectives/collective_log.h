// The collectives that one rank's program issued, in order: the list of a flight recorder, or the
// communication of an execution trace.
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

// By its name as c10d, NCCL or Chakra write it, without the backend: "all_reduce",
// "_reduce_scatter_base", "ALL_GATHER", "send 0->1".
LoggedKind logged_kind(std::string_view name);

struct LoggedCollective {
    LoggedKind kind = LoggedKind::other;
    std::string name = {};
    std::string group = {};                 // process group
    std::string description = {};           // the program's name for the group
    std::int64_t group_size = 0;            // 0: unknown
    std::int64_t elements = 0;              // input of one rank
    std::string dtype = {};                 // as in the log; empty: unknown
    std::int64_t sequence = -1;             // number in its group, alike on all ranks; -1: unknown
    std::int64_t part = 0;                  // among those issued together under one number
    std::int64_t step = -1;                 // where the log marks steps; -1: it does not
    std::optional<Duration> issued = {};    // by the log's clock, from its first entry
    std::optional<Duration> duration = {};  // from the rank's arrival
    bool operator==(const LoggedCollective&) const = default;

    // Alike on all ranks of its group.
    [[nodiscard]] std::pair<std::int64_t, std::int64_t> number() const { return {sequence, part}; }
};

// The clock of the times of issue.
enum class LogClock : std::uint8_t {
    none,
    host,      // of the issuing host
    computing  // the time of all computing before; no waits, and no clock
};

struct CollectiveLog {
    std::string file = {};
    std::string kind = {};     // "flight recorder dump", for people
    std::string backend = {};  // nccl, gloo; empty: unknown
    std::string version = {};  // of the backend's library; empty: unknown
    LogClock clock = LogClock::none;
    std::int64_t begin_ns = 0;                       // of a host's clock, at the first entry
    std::optional<Duration> computing = {};          // the total, where the log is of whole steps
    std::vector<LoggedCollective> collectives = {};  // in the order of issue
    std::vector<std::string> notes = {};             // the reader's assumptions, for people
    bool operator==(const CollectiveLog&) const = default;
};

// The limit of a log's length.
constexpr std::size_t most_logged_collectives = 500'000;

}  // namespace bucketwise
