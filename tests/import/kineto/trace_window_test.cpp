// Whole events are read a window at a time: where windows end, and what is in them, says nothing.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include <fmt/format.h>

#include "import/kineto/kineto_trace.h"
#include "import/source/guarded_buffer.h"
#include "sim/base/error.h"
#include "tests/catch.h"
#include "tests/import/source/text_source.h"

namespace bucketwise {
namespace {

constexpr std::size_t window = GuardedBuffer::window_bytes;

std::string kernel(std::int64_t number, const std::string& name, const std::string& args = "") {
    return fmt::format(
        R"({{"ph": "X", "cat": "kernel", "name": "{}", "pid": 0, "tid": 7, "ts": {}.125, "dur": 2.5,)"
        R"( "args": {{"stream": 7, "correlation": {}, "bytes": 12{}}}}})",
        name, 10 * number, number, args);
}

std::string trace_of(const std::string& events, const std::string& before = "",
                     const std::string& after = "") {
    return "{" + before + "\"traceEvents\": [\n" + events + "\n]" + after + "}";
}

ProfilerTrace read(const std::string& text, std::size_t block = 65'536) {
    return read_kineto_trace(text_source(text, block), "t.json");
}

std::string refusal(const std::string& text) {
    try {
        read(text);
    } catch (const InputError& error) {
        return error.what();
    }
    return "nothing refused";
}

// Some `bytes` of events, the name of each made by `name`.
template <typename Name>
std::string many(std::size_t bytes, Name name, const std::string& args = "") {
    std::string events;
    for (std::int64_t i = 0; events.size() < bytes; ++i) {
        events += (i == 0 ? "" : ",\n") + kernel(i, name(i), args);
    }
    return events;
}

// All of the list is there, in order, with its numbers.
void check_events(const ProfilerTrace& trace) {
    REQUIRE(trace.events.size() > 1);
    CHECK(trace.events_read == static_cast<std::int64_t>(trace.events.size()));
    std::int64_t wrong = 0;
    for (std::size_t i = 0; i < trace.events.size(); ++i) {
        const TraceEvent& event = trace.events[i];
        const auto number = static_cast<std::int64_t>(i);
        wrong += event.begin_ns == 10'000 * number && event.duration_ns() == 2500 &&
                         event.correlation == number && event.bytes == 12
                     ? 0
                     : 1;
    }
    CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("events across the borders of windows are read once each", "[kineto]") {
    const auto plain = [](std::int64_t) { return std::string("gemm"); };
    const std::string events = many(3 * window, plain);
    check_events(read(trace_of(events)));
    check_events(read("[" + events + "]"));
    check_events(read(trace_of(events, R"("schemaVersion": 1, )", R"(, "traceName": "x")")));
    check_events(read(trace_of(events), 4099));
    // Each position of an event at the first border.
    const std::string some = many(window + 2000, plain);
    for (std::size_t shift = 0; shift < 200; shift += 7) {
        check_events(read(trace_of(some, "\"x\": \"" + std::string(shift, 'x') + "\", ")));
    }
}

TEST_CASE("what looks like the end of an event in a name or in args is none", "[kineto]") {
    const std::string names = many(2 * window, [](std::int64_t i) {
        return R"(a }, {\"b\\)" + std::string(static_cast<std::size_t>(i % 40), '\\') +
               std::string(static_cast<std::size_t>(i % 40), '\\') + R"(\")";
    });
    const ProfilerTrace trace = read(trace_of(names));
    check_events(trace);
    CHECK(trace.names[0] == R"(a }, {"b\")");
    CHECK(trace.names[1] == R"(a }, {"b\\")");
    const auto plain = [](std::int64_t) { return std::string("gemm"); };
    check_events(
        read(trace_of(many(2 * window, plain, R"(, "list": [{"a": 1}, {"b": [{}, {}]}])"))));
}

TEST_CASE("what simdjson does not take is read as before, amid what it does", "[kineto]") {
    const auto plain = [](std::int64_t) { return std::string("gemm"); };
    const std::string half = many(window, plain);
    const std::int64_t next = read(trace_of(half)).events_read;
    const auto with = [&](const std::string& args) {
        std::string events = half + ", " + kernel(next, "gemm", args);
        for (std::int64_t i = next + 1; i < next + 10'000; ++i) {
            events += ", " + kernel(i, "gemm");
        }
        return trace_of(events);
    };
    check_events(read(with(R"(, "address": 123456789012345678901234567890)")));
    const auto nested = [](std::size_t depth) {
        return ", \"deep\": " + std::string(depth, '[') + std::string(depth, ']');
    };
    check_events(read(with(nested(95))));  // and 4 around it
    check_events(read(with(nested(96))));
    CHECK(refusal(with(nested(97))) == "t.json: expected nesting of at most 100, got a deeper one");
    std::string endless;
    endless.resize(100'000'000, 'x');
    CHECK(refusal(with(", \"x\": \"" + endless + "\"")) ==
          "t.json: expected names and numbers of at most 4194304 bytes, got a longer one");
    // Longer than a window.
    check_events(read(with(", \"x\": \"" + std::string(3 * window, 'x') + "\"")));
}

TEST_CASE("damage in a window is told with its byte", "[kineto]") {
    const std::string whole =
        trace_of(many(3 * window, [](std::int64_t) { return std::string("gemm"); }));
    const std::size_t place = whole.find("\"dur\"", 5 * window / 2);
    const auto damaged = [&](const std::string& by) {
        return refusal(whole.substr(0, place) + by + whole.substr(place));
    };
    const auto something_else_at = [](std::size_t byte) {
        return fmt::format("t.json: expected a JSON trace, got something else at byte {}", byte);
    };
    CHECK(damaged("}") == something_else_at(place + 1));
    CHECK(damaged("NaN") == something_else_at(place + 1));
    CHECK(damaged("\"a\": Infinity, ") == something_else_at(place + 6));
    CHECK(damaged("\"\xff\": 1, ") == something_else_at(place + 2));
    CHECK(damaged("\"\x01\": 1, ") == something_else_at(place + 2));
    CHECK(damaged("\"\\ud800\": 1, ") == something_else_at(place + 8));
    for (const std::size_t cut : {place, whole.size() - 1, whole.size() - 3}) {
        CHECK(refusal(whole.substr(0, cut)) ==
              fmt::format("t.json: expected a JSON trace, got one that ends within byte {}, as if "
                          "it was cut off",
                          cut + 1));
    }
    CHECK(
        refusal(trace_of(many(2 * window, [](std::int64_t) { return std::string("gemm"); }) + ","))
            .find("something else at byte") != std::string::npos);
}

TEST_CASE("the last of equal keys counts, also within a window", "[kineto]") {
    const std::string twice = many(
        2 * window, [](std::int64_t) { return std::string("first\", \"name\": \"last"); },
        R"(, "bytes": 3, "Bytes": 12)");
    const ProfilerTrace trace = read(trace_of(twice));
    check_events(trace);
    CHECK(trace.name_of(trace.events.back()) == "last");
}

}  // namespace bucketwise
