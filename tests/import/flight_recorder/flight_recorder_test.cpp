#include "import/flight_recorder/flight_recorder.h"

#include <algorithm>
#include <string>

#include <nlohmann/json.hpp>

#include "sim/base/error.h"
#include "tests/catch.h"
#include "tests/import/flight_recorder/written_dump.h"

namespace bucketwise {
namespace {

void refuse(const std::string& text) {
    CAPTURE(text.substr(0, 200));
    CHECK_THROWS_AS(read_flight_recorder(text_source(text), "dump"), InputError);
}

}  // namespace

TEST_CASE("An entry is a collective with its group, size, time and duration", "[import]") {
    WrittenDump dump;
    dump.entry("broadcast", 5, 1, "Int");
    dump.entry("all_reduce", 100, 3.5, "BFloat16")["duration_ms"] = 0.25;
    const CollectiveLog log = dump.log();
    REQUIRE(log.collectives.size() == 2);
    CHECK(log.backend == "nccl");
    CHECK(log.version == "2.27.5");
    CHECK(log.clock == LogClock::host);
    CHECK(log.collectives[0].kind == LoggedKind::broadcast);
    CHECK(log.collectives[0].issued == Duration{0});
    const LoggedCollective& second = log.collectives[1];
    CHECK(second.kind == LoggedKind::all_reduce);
    CHECK(second.name == "all_reduce");
    CHECK(second.group == "0");
    CHECK(second.description == "default_pg");
    CHECK(second.group_size == 4);
    CHECK(second.elements == 100);
    CHECK(second.dtype == "BFloat16");
    CHECK(second.sequence == 2);
    CHECK(second.issued == duration_from_ms(2.5));
    CHECK(second.duration == duration_from_us(250));
}

TEST_CASE("Elements are those of all tensors, of any shape", "[import]") {
    WrittenDump dump;
    dump.entry("allreduce_coalesced", 0, 1)["input_sizes"] = {{2, 3}, Json::array(), {0, 9}, {4}};
    // 2 x 3, a scalar, nothing, and 4
    CHECK(dump.log().collectives[0].elements == 11);
    CHECK(dump.log().collectives[0].kind == LoggedKind::all_reduce);
    for (const Json& wrong :
         {Json{{-1}}, Json{{1.5}}, Json{{"a"}}, Json{5}, Json{{{1}}}, Json{{std::int64_t{1} << 60}},
          Json{{1 << 30, 1 << 30}}, Json{{std::uint64_t{1} << 63}}}) {
        dump.json()["entries"][0]["input_sizes"] = wrong;
        refuse(dump.text());
    }
}

TEST_CASE("Older and other dumps are read, too", "[import]") {
    WrittenDump dump;
    dump.entry("all_reduce", 7, 1);
    // Version 1: a list of entries alone, groups by number.
    Json entry = dump.json()["entries"][0];
    entry.erase("process_group");
    entry["pg_id"] = 3;
    const CollectiveLog log =
        read_flight_recorder(text_source(Json::array({entry}).dump()), "dump");
    CHECK(log.collectives.at(0).group == "3");
    CHECK(log.collectives.at(0).group_size == 0);
    // A flag or the name marks sends and receives.
    dump.entry("send 0->1", 7, 2);
    dump.entry("coalesced", 7, 3)["is_p2p"] = true;
    CHECK(dump.log().collectives[1].kind == LoggedKind::transfer);
    CHECK(dump.log().collectives[2].kind == LoggedKind::transfer);
    // Those of one number are its parts.
    Json again = dump.json()["entries"][0];
    dump.json()["entries"].insert(dump.json()["entries"].begin(), again);
    CHECK(dump.log().collectives[0].part == 0);
    CHECK(dump.log().collectives[1].part == 1);
    dump.json()["entries"].erase(0);
    // Ranks as a list; another backend; times that are not there.
    dump.json()["pg_config"]["0"]["ranks"] = {0, 1, 2};
    dump.json()["entries"][0]["profiling_name"] = "gloo:all_reduce";
    dump.json()["entries"][2].erase("time_created_ns");
    CHECK(dump.log().collectives[0].group_size == 3);
    CHECK(dump.log().backend == "gloo");
    CHECK(dump.log().clock == LogClock::none);
}

TEST_CASE("Collectives are told by all names that c10d has for them", "[import]") {
    CHECK(logged_kind("all_reduce") == LoggedKind::all_reduce);
    CHECK(logged_kind("ALLREDUCE_COALESCED") == LoggedKind::all_reduce);
    CHECK(logged_kind("all_reduce_barrier") == LoggedKind::other);
    CHECK(logged_kind("_reduce_scatter_base") == LoggedKind::reduce_scatter);
    CHECK(logged_kind("reduce_scatter_tensor_coalesced") == LoggedKind::reduce_scatter);
    CHECK(logged_kind("_all_gather_base") == LoggedKind::all_gather);
    CHECK(logged_kind("_broadcast_oop") == LoggedKind::broadcast);
    CHECK(logged_kind("recv 0<-1") == LoggedKind::transfer);
    CHECK(logged_kind("reduce") == LoggedKind::other);
    CHECK(logged_kind("") == LoggedKind::other);
}

TEST_CASE("A dump that is empty or damaged, or no dump, is refused", "[import]") {
    refuse("");
    refuse("\x80");
    refuse("{}");
    refuse("[]");
    refuse(R"({"entries": []})");
    refuse(R"({"entries": [1]})");
    refuse(R"({"entries": [{]})");
    refuse("# nccl");
    WrittenDump dump;
    dump.entry("all_reduce", 7, 1);
    dump.entry("all_reduce", 7, 1e9);  // ms: eleven days later
    refuse(dump.text());
    dump.json()["entries"][1]["time_created_ns"] = std::uint64_t{1} << 63;
    CHECK(dump.log().clock == LogClock::none);
    const std::string text = dump.text();
    for (std::size_t length = 0; length < text.size(); ++length) {
        refuse(text.substr(0, length));
    }
}

TEST_CASE("Any bytes in the place of others are read or refused", "[import]") {
    WrittenDump dump;
    dump.steps(2, {5, 6}, {0, 1}, 10);
    const std::string text = dump.text();
    for (std::size_t i = 0; i < text.size(); i += 7) {
        std::string damaged = text;
        for (const char c : {'\0', '"', '{', ']', '9', '\x80'}) {
            damaged[i] = c;
            try {
                read_flight_recorder(text_source(damaged, 1 << 10), "dump");
            } catch (const InputError&) {
                continue;
            }
        }
    }
    SUCCEED();
}

}  // namespace bucketwise
