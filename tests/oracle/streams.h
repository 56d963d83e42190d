// The oracle of streams and their events: what a host issues, one after another, as a recurrence.
// Includes nothing of the project, so it cannot share a mistake with it.
//
//   issued[i] = max(issued[i-1], end[i - queue])  + host[i]
//   begin[i]  = max(issued[i], end of the one before on its stream, ends of the last ones issued on
//                   all streams that it comes after)
//   end[i]    = begin[i] + device[i]
//
// A host that waits for i has issued it at end[i]. Launches of collectives are of no stream: a
// collective begins when its launch could, and the one before in this execution has ended. A wait
// is of the compute stream, stream 0, and begins no earlier than its collective's end and what it
// then takes to be in place.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

namespace oracle {

struct StreamItem {
    enum class Kind : std::uint8_t { operation, launch, wait };
    Kind kind = Kind::operation;
    std::int64_t host_ps = 0;
    std::int64_t device_ps = 0;   // of a launch, its collective's time
    std::int64_t placing_ps = 0;  // of a launch, from its collective's end on
    int stream = 0;
    std::set<int> after = {};
    bool host_waits = false;
    std::size_t collective = 0;  // of a wait: the launches before, from 0
};

// When the compute stream is done with each of so many executions, one after another.
inline std::vector<std::int64_t> ends_of_steps(const std::vector<StreamItem>& step, int times,
                                               std::size_t queue) {
    std::vector<std::int64_t> ends_of_steps;
    std::vector<std::int64_t> ends;  // of all that was issued
    std::map<int, std::int64_t> stream_end;
    std::int64_t issued = 0;
    for (int i = 0; i < times; ++i) {
        std::int64_t communicated = 0;
        std::vector<std::int64_t> collective_ends;
        for (const StreamItem& item : step) {
            if (ends.size() >= queue) {
                issued = std::max(issued, ends[ends.size() - queue]);
            }
            issued += item.host_ps;
            std::int64_t begin = std::max(issued, stream_end[item.stream]);
            for (const int other : item.after) {
                begin = std::max(begin, stream_end[other]);
            }
            std::int64_t end = begin;
            if (item.kind == StreamItem::Kind::launch) {
                communicated = std::max(communicated, begin) + item.device_ps;
                collective_ends.push_back(communicated + item.placing_ps);
            } else {
                end = item.kind == StreamItem::Kind::wait
                          ? std::max(begin, collective_ends[item.collective])
                          : begin + item.device_ps;
                stream_end[item.stream] = end;
            }
            if (item.host_waits) {
                issued = std::max(issued, end);
            }
            ends.push_back(end);
        }
        ends_of_steps.push_back(stream_end[0]);
    }
    return ends_of_steps;
}

}  // namespace oracle
