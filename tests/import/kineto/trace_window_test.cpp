// Events are parsed a window at a time: the result depends neither on where windows end nor on what
// lies there.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include <fmt/format.h>

#include "import/kineto/kineto_trace.h"
#include "import/source/json_objects.h"
#include "sim/base/error.h"
#include "tests/catch.h"
#include "tests/contains.h"
#include "tests/import/source/text_source.h"

namespace bucketwise {
namespace {

using testing::contains;

constexpr std::size_t window = JsonObjects::window_bytes;

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

// Events of `bytes` or a little more; `name` makes the name of each.
template <typename Name>
std::string many(std::size_t bytes, Name name, const std::string& args = "") {
    std::string events;
    for (std::int64_t i = 0; events.size() < bytes; ++i) {
        events += (i == 0 ? "" : ",\n") + kernel(i, name(i), args);
    }
    return events;
}

// The whole list is there, in order, with its numbers.
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
    // An event lies at the first border in each way.
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

TEST_CASE("long and deep events are read up to their bounds, amid others", "[kineto]") {
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
    const auto nested = [](std::size_t depth) {
        return ", \"deep\": " + std::string(depth, '[') + std::string(depth, ']');
    };
    check_events(read(with(nested(96))));  // the object, its list, the event and args around it
    CHECK(refusal(with(nested(97))) == "t.json: expected nesting of at most 100, got a deeper one");
    // Longer than a window.
    check_events(read(with(", \"x\": \"" + std::string(3 * window, 'x') + "\"")));
    std::string endless;
    endless.resize(100'000'000, 'x');
    CHECK(refusal(with(", \"x\": \"" + endless + "\""))
              .starts_with("t.json: expected objects of at most 16777216 bytes, got a longer one "
                           "at byte "));
}

TEST_CASE("damage is told with the event that it is in", "[kineto]") {
    const std::string whole =
        trace_of(many(3 * window, [](std::int64_t) { return std::string("gemm"); }));
    const std::size_t place = whole.find("\"dur\"", 5 * window / 2);
    const std::size_t begin = whole.rfind("{\"ph\"", place);
    const std::string damaged_event = fmt::format(
        "t.json: expected JSON objects, got something else in the object that begins at "
        "byte {}",
        begin);
    for (const char* const by :
         {"}", "NaN", "\"a\": Infinity, ", "\"\xff\": 1, ", "\"\x01\": 1, ", "\"\\ud800\": 1, ",
          "\"beyond 64 bits\": 123456789012345678901234567890, "}) {
        CAPTURE(by);
        CHECK(refusal(whole.substr(0, place) + by + whole.substr(place)) == damaged_event);
    }
    for (const std::size_t cut : {place, whole.size() - 1, whole.size() - 3}) {
        CHECK(
            refusal(whole.substr(0, cut)) ==
            fmt::format("t.json: expected JSON objects, got a file that ends after byte {}, as if "
                        "it was cut off",
                        cut));
    }
    CHECK(contains(
        refusal(trace_of(many(2 * window, [](std::int64_t) { return std::string("gemm"); }) + ",")),
        "something else at byte"));
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
