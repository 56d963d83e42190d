// The rules of Perfetto's trace processor for Chrome trace events in JSON: it drops or misplaces
// events that break them, and says so in its statistics.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "sim/base/json.h"
#include "tests/catch.h"

namespace bucketwise {

inline std::int64_t trace_ns(const Json& time_us) {
    return std::llround(time_us.get<double>() * 1e3);
}

// Slices of one thread nest; threads belong to one process, are named and are not 0, which is the
// idle one; flows are a start and an end, each in a slice of its thread, and go forward.
inline void check_trace_rules(const Json& trace) {
    struct Slice {
        std::int64_t begin = 0;
        std::int64_t end = 0;
    };
    std::map<std::int64_t, std::vector<Slice>> slices;  // by thread
    std::map<std::int64_t, std::int64_t> processes;     // by thread
    std::set<std::int64_t> named_threads;
    std::set<std::int64_t> named_processes;
    struct Flow {
        std::vector<std::pair<std::int64_t, std::int64_t>> starts;  // thread and time
        std::vector<std::pair<std::int64_t, std::int64_t>> ends;
    };
    std::map<std::int64_t, Flow> flows;
    REQUIRE(trace["traceEvents"].is_array());
    for (const Json& event : trace["traceEvents"]) {
        const auto process = event["pid"].get<std::int64_t>();
        const auto thread = event["tid"].get<std::int64_t>();
        CHECK(process > 0);
        CHECK(thread > 0);
        CHECK(processes.emplace(thread, process).first->second == process);
        const std::string phase = event["ph"];
        if (phase == "M") {
            if (event["name"] == "thread_name") {
                named_threads.insert(thread);
            } else if (event["name"] == "process_name") {
                named_processes.insert(process);
            }
        } else if (phase == "X") {
            const std::int64_t begin = trace_ns(event["ts"]);
            const std::int64_t end = begin + trace_ns(event["dur"]);
            CHECK(end >= begin);
            CHECK_FALSE(event["name"].get<std::string>().empty());
            slices[thread].push_back({begin, end});
        } else {
            REQUIRE((phase == "s" || phase == "f"));
            Flow& flow = flows[event["id"].get<std::int64_t>()];
            (phase == "s" ? flow.starts : flow.ends).emplace_back(thread, trace_ns(event["ts"]));
            CHECK((phase == "s" || event["bp"] == "e"));
        }
    }
    for (const auto& [thread, process] : processes) {
        CHECK(named_threads.count(thread) == 1);
        CHECK(named_processes.count(process) == 1);
    }
    std::int64_t crossing = 0;  // slices that neither nest nor follow one another
    for (auto& [thread, list] : slices) {
        std::sort(list.begin(), list.end(), [](const Slice& a, const Slice& b) {
            return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
        });
        std::vector<std::int64_t> open;
        for (const Slice& slice : list) {
            while (!open.empty() && open.back() <= slice.begin) {
                open.pop_back();
            }
            crossing += !open.empty() && slice.end > open.back() ? 1 : 0;
            open.push_back(slice.end);
        }
    }
    CHECK(crossing == 0);
    const auto in_a_slice = [&](const std::pair<std::int64_t, std::int64_t>& at) {
        const std::vector<Slice>& list = slices[at.first];
        return std::any_of(list.begin(), list.end(), [&](const Slice& slice) {
            return slice.begin <= at.second && at.second <= slice.end;
        });
    };
    for (const auto& [id, flow] : flows) {
        REQUIRE(flow.starts.size() == 1);
        REQUIRE(flow.ends.size() == 1);
        CHECK(in_a_slice(flow.starts[0]));
        CHECK(in_a_slice(flow.ends[0]));
        CHECK(flow.starts[0].second <= flow.ends[0].second);
    }
}

}  // namespace bucketwise
