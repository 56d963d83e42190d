#include "import/chakra/chakra_trace.h"

#include <algorithm>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "import/chakra/chakra_node.h"
#include "import/collectives/log_import.h"
#include "sim/base/error.h"
#include "tests/catch.h"
#include "tests/contains.h"
#include "tests/import/chakra/wire_writer.h"
#include "tests/import/source/text_source.h"

namespace bucketwise {
namespace {

using testing::contains;
using namespace std::string_literals;

CollectiveLog log_of(const std::string& bytes, std::size_t block = 5) {
    return read_chakra(text_source(bytes, block), "trace");
}

std::string error_of(const std::string& bytes) {
    try {
        log_of(bytes);
    } catch (const InputError& error) {
        return error.what();
    }
    return "";
}

// Forward of 4 ms; backward of 2 and 3 ms, each with an all-reduce after it; an optimizer of 1 ms
// after both. The numbers are not in the order of dependencies.
std::string step() {
    return written_metadata() + written_collective(9, 0, 4000, {2}).delimited() +
           written_compute(1, 4000).delimited() + written_compute(2, 2000, {1}).delimited() +
           written_compute(3, 3000, {2}).delimited() +
           written_collective(4, 0, 8000, {3}).delimited() +
           written_compute(5, 1000, {4, 9}).delimited();
}

}  // namespace

TEST_CASE("An all-reduce is issued when what it depends on was computed", "[import]") {
    for (std::size_t block = 1; block < 12; ++block) {
        const CollectiveLog log = log_of(step(), block);
        REQUIRE(log.collectives.size() == 2);
        CHECK(log.clock == LogClock::computing);
        // In the order of dependencies: node 4 needs 3, which is ready before 9 by its number only
        // once 2 is done; 9 waits for 2 alone, but both are ready after it, and 3 comes first.
        CHECK(log.computing == duration_from_ms(10));
        const auto& [first, second] = std::pair(log.collectives[0], log.collectives[1]);
        CHECK(first.kind == LoggedKind::all_reduce);
        CHECK(std::min(first.elements, second.elements) == 1000);
    }
}

TEST_CASE("Computing makes forward and backward of a scenario", "[import]") {
    // As above, but numbered as issued: 4 + 2 ms to the first, 3 more to the second, of 10.
    const std::string bytes = written_metadata() + written_compute(1, 4000).delimited() +
                              written_compute(2, 2000, {1}).delimited() +
                              written_collective(3, 0, 4000, {2}).delimited() +
                              written_compute(4, 3000, {2}).delimited() +
                              written_collective(5, 0, 8000, {4}).delimited() +
                              written_compute(6, 1000, {5, 3}).delimited();
    const CollectiveLog log = log_of(bytes);
    CHECK(log.collectives[0].issued == duration_from_ms(6));
    CHECK(log.collectives[1].issued == duration_from_ms(9));
    LogImportRequest request;
    request.ranks = 4;
    const LogImport imported = import_logs({log}, request);
    CHECK(imported.scenario["workload"]["backward_ms"] == 3);
    CHECK(imported.scenario["workload"]["forward_ms"] == 7);  // 10 - 3
    CHECK_FALSE(imported.period);
    CHECK(contains(text_of(imported.findings), "elements are taken for float32"));
    // Asked-for times take their place.
    request.forward = request.backward = duration_from_ms(30);
    CHECK(import_logs({log}, request).buckets[0].start == duration_from_ms(10));
}

TEST_CASE("Without durations a trace is a plan", "[import]") {
    const std::string bytes = WrittenMessage().delimited() +
                              written_collective(1, 0, 4000).delimited() +
                              written_collective(2, 0, 8000, {1}).delimited();
    const CollectiveLog log = log_of(bytes);
    CHECK(log.clock == LogClock::none);
    LogImportRequest request;
    request.ranks = 4;
    CHECK_THROWS_AS(import_logs({log}, request), InputError);
    request.forward = request.backward = duration_from_ms(30);
    CHECK(import_logs({log}, request).buckets.size() == 2);
}

TEST_CASE("Reduce-scatters of a trace are refused by name", "[import]") {
    const CollectiveLog log =
        log_of(written_metadata() + written_collective(1, 2, 100).delimited() +
               written_collective(2, 7, 400).delimited());
    CHECK(log.collectives[0].kind == LoggedKind::all_gather);
    CHECK(log.collectives[1].kind == LoggedKind::reduce_scatter);
    LogImportRequest request;
    request.ranks = 4;
    try {
        import_logs({log}, request);
        FAIL("taken");
    } catch (const InputError& error) {
        CHECK(contains(error.what(), "1 reduce-scatter;"));
    }
}

TEST_CASE("chakra_jsonizer's documents say the same as the messages", "[import]") {
    // As google.protobuf.json_format writes 64 bits: as text.
    const std::string text = R"({
  "version": "0.0.4"
}{
  "id": "1", "name": "compute", "type": "COMP_NODE", "durationMicros": "4000"
}{
  "id": "2", "type": "COMM_COLL_NODE", "dataDeps": ["1"],
  "attr": [{"name": "comm_type", "int64Val": "0"}, {"name": "comm_size", "int64Val": "4000"},
           {"name": "pg_name", "stringVal": "0"}, {"name": "is_cpu_op", "boolVal": false}]
})";
    const CollectiveLog log = log_of(text);
    CHECK(log == log_of(written_metadata() + written_compute(1, 4000).delimited() +
                        written_collective(2, 0, 4000, {1}).delimited()));
    CHECK(log.collectives[0].group == "0");
    // In snake case, and as a list.
    const Json nodes{{{"id", 1}, {"type", 4}, {"duration_micros", 4000}},
                     {{"id", 2},
                      {"type", "COMM_COLL_NODE"},
                      {"data_deps", {1}},
                      {"attr",
                       {{{"name", "comm_type"}, {"int64_val", 0}},
                        {{"name", "comm_size"}, {"uint64_val", 4000}},
                        {{"name", "pg_name"}, {"string_val", "0"}}}}}};
    CHECK(log_of(nodes.dump()) == log);
}

TEST_CASE("A host's own time does not count where a device computes", "[import]") {
    const auto on = [](std::uint64_t host, WrittenMessage node) {
        return node.text(node_attribute,
                         WrittenMessage().text(1, "is_cpu_op").number(27, host).bytes());
    };
    const std::string host = on(1, written_compute(1, 5000)).delimited();
    const std::string device = on(0, written_compute(2, 3000, {1})).delimited();
    const std::string reduce = written_collective(3, 0, 4000, {2}).delimited();
    CHECK(log_of(written_metadata() + host + device + reduce).computing == duration_from_ms(3));
    CHECK(log_of(written_metadata() + host + reduce).computing == duration_from_ms(5));
}

TEST_CASE("PyTorch's own nodes: calls with their numbers count, once", "[import]") {
    const auto call = [](int id, const char* name, std::int64_t elements) {
        return Json{{"id", id},
                    {"name", "record_param_comms"},
                    {"ctrl_deps", 2},
                    {"attrs",
                     {{{"name", "rf_id"}, {"type", "uint64"}, {"value", id}},
                      {{"name", "collective_name"}, {"type", "string"}, {"value", name}},
                      {{"name", "dtype"}, {"type", "string"}, {"value", "BFloat16"}},
                      {{"name", "in_msg_nelems"}, {"type", "uint64"}, {"value", elements}},
                      {{"name", "pg_name"}, {"type", "string"}, {"value", "0"}},
                      {{"name", "pg_desc"}, {"type", "string"}, {"value", "default_pg"}},
                      {{"name", "pg_size"}, {"type", "uint64"}, {"value", 8}}}}};
    };
    Json trace{{"schema", "1.1.1-chakra.0.0.4"}, {"pid", 1}, {"nodes", Json::array()}};
    // Written as they end: the last one entered first.
    trace["nodes"] = {call(9, "allreduce", 70), call(5, "allreduce", 50), call(6, "wait", 0)};
    trace["nodes"].push_back(
        {{"id", 7},
         {"name", "nccl:all_reduce"},
         {"inputs", {{"shapes", {{50}}}, {"types", {"Tensor(c10::BFloat16)"}}}},
         {"attrs", {{{"name", "rf_id"}, {"value", 7}}}}});
    const CollectiveLog log = log_of(trace.dump());
    REQUIRE(log.collectives.size() == 2);
    CHECK(log.collectives[0].elements == 50);
    CHECK(log.collectives[1].elements == 70);
    CHECK(log.collectives[0].dtype == "BFloat16");
    CHECK(log.collectives[0].group_size == 8);
    CHECK(log.collectives[0].description == "default_pg");
    // Without calls, the names that backends give, of lists of tensors too.
    trace["nodes"].erase(trace["nodes"].begin(), trace["nodes"].begin() + 3);
    CHECK(log_of(trace.dump()).collectives.at(0).elements == 50);
    trace["nodes"][0]["inputs"] = {{"shapes", {{{5, 2}, Json::array()}, {3}}},
                                   {"types", {"GenericList[Tensor(float),Tensor(float)]", "Int"}}};
    CHECK(log_of(trace.dump()).collectives.at(0).elements == 11);  // 5 x 2, and a scalar
    trace["nodes"][0]["inputs"]["shapes"] = {{{{{5}}}}};
    CHECK(log_of(trace.dump()).collectives.at(0).elements == 0);
}

TEST_CASE("Fields of other numbers and types are passed over", "[import]") {
    WrittenMessage node = written_collective(1, 0, 4000);
    node.fixed(99, "12345678").fixed(98, "1234").text(97, "more").number(96, 5);
    node.text(node_attribute, WrittenMessage().text(1, "other").fixed(3, "12345678").bytes());
    CHECK(log_of(written_metadata() + node.delimited()).collectives.at(0).elements == 1000);
    // Numbers one by one, unpacked; sint64 in ZigZag.
    WrittenMessage unpacked;
    unpacked.number(node_id, 2).number(node_type, 7).number(node_data_dependencies, 1);
    unpacked.text(node_attribute, WrittenMessage().text(1, "comm_size").number(17, 8000).bytes());
    const CollectiveLog log =
        log_of(written_metadata() + written_compute(1, 7).delimited() + unpacked.delimited());
    CHECK(log.collectives.at(0).elements == 1000);  // 8000 is 4000 in ZigZag
    CHECK(log.collectives.at(0).issued == duration_from_us(7));
}

TEST_CASE("Torn and damaged traces are refused, wherever they are cut", "[import]") {
    const std::string whole = step();
    for (std::size_t length = 0; length < whole.size(); ++length) {
        CAPTURE(length);
        // Cut between messages it is a shorter trace, or one without collectives, or damaged.
        const std::string error = error_of(whole.substr(0, length));
        CHECK((error.empty() || contains(error, "expected")));
    }
    CHECK_FALSE(error_of("").empty());
    CHECK_FALSE(error_of(written_metadata()).empty());
    CHECK_FALSE(error_of("{").empty());
    CHECK_FALSE(error_of("[1]").empty());
    CHECK_FALSE(error_of(R"({"nodes": [{"id": 1}]})").empty());
    CHECK_FALSE(error_of("\x05\x08").empty());
    CHECK_FALSE(error_of(written_metadata() + WrittenMessage().number(0, 1).delimited()).empty());
    // Groups of old (types 3 and 4) and types that are none.
    CHECK(contains(error_of(written_metadata() + "\x01\x0b"s), "type 3"));
    CHECK(contains(error_of(written_metadata() + "\x01\x0f"s), "type 7"));
    // A field that is longer than its message, a number without an end.
    CHECK(contains(error_of(written_metadata() + "\x02\x12\x7f"s), "end of its message"));
    CHECK(contains(error_of(written_metadata() + "\x0c\x08" + std::string(11, '\xff')), "64 bits"));
    CHECK(contains(error_of(std::string(20, '\xff')), "64 bits"));
}

TEST_CASE("Lengths of what is not there take no memory", "[import]") {
    CHECK(contains(error_of("\xff\xff\xff\xff\x0f"s + "abc"), "end of its message"));
    CHECK(contains(error_of("\xff\xff\xff\x07"s + "abc"), "end of its message"));
}

TEST_CASE("A node that depends on itself, or controls in a circle, follow data alone", "[import]") {
    WrittenMessage first = written_collective(1, 0, 4000);
    WrittenMessage second = written_collective(2, 0, 8000, {1});
    const CollectiveLog itself =
        log_of(written_metadata() + first.packed(node_control_dependencies, {1}).delimited() +
               second.packed(node_control_dependencies, {1}).delimited());
    REQUIRE(itself.collectives.size() == 2);
    CHECK(itself.collectives[1].elements == 2000);
    CHECK(contains(itself.notes.at(1), "1 node depends on itself: dropped"));
    const CollectiveLog circle =
        log_of(written_metadata() +
               written_collective(1, 0, 4000).packed(node_control_dependencies, {2}).delimited() +
               written_collective(2, 0, 8000, {1}).delimited());
    REQUIRE(circle.collectives.size() == 2);
    CHECK(contains(circle.notes.at(1), "control dependencies go in a circle"));
}

TEST_CASE("MLCommons' workload_graph names collectives by their functions", "[import]") {
    const CollectiveLog log = log_of(R"({"workload_graph": [
        {"Id": 1, "Name": "aten::mm", "NodeType": 4, "ctrlDeps": [], "data_deps": [],
         "runtime": 300, "is_cpu_op": false},
        {"Id": 2, "Name": "c10d::allreduce_", "NodeType": 7, "ctrlDeps": [1], "data_deps": [1],
         "runtime": 85, "is_cpu_op": true},
        {"Id": 3, "Name": "ncclKernel_Broadcast_RING_LL_Sum_int8_t", "NodeType": 7,
         "data_deps": [2], "runtime": 28, "is_cpu_op": false}],
        "workload_name": "w", "ngpus": 8})");
    REQUIRE(log.collectives.size() == 2);
    CHECK(log.collectives[0].name == "ALL_REDUCE");
    CHECK(log.collectives[1].name == "BROADCAST");
    CHECK(log.computing == duration_from_us(300));
}

TEST_CASE("Data in a circle and two nodes of one number are refused", "[import]") {
    const std::string circle = written_metadata() + written_compute(1, 5, {2}).delimited() +
                               written_collective(2, 0, 4000, {1}).delimited();
    CHECK(contains(error_of(circle), "go in a circle"));
    CHECK(contains(error_of(written_metadata() + written_compute(1, 5).delimited() +
                            written_collective(1, 0, 4000).delimited()),
                   "two with 1"));
    // On a node that is not there nothing waits.
    CHECK(error_of(written_metadata() + written_collective(2, 0, 4000, {77}).delimited()).empty());
}

TEST_CASE("Long chains and many edges are walked without a deep stack", "[import]") {
    std::string bytes = written_metadata();
    for (std::uint64_t id = 1; id <= 200'000; ++id) {
        bytes += written_compute(id, 1, {id - 1}).delimited();
    }
    bytes += written_collective(200'001, 0, 4000, {200'000}).delimited();
    CHECK(log_of(bytes, 1 << 16).computing == duration_from_ms(200));
    // Durations that no clock has add up to the longest there is.
    const std::string huge = written_metadata() + written_compute(1, UINT64_MAX).delimited() +
                             written_compute(2, UINT64_MAX, {1}).delimited() +
                             written_collective(3, 0, 4000, {2}).delimited();
    CHECK(log_of(huge).computing == longest_duration);
    const std::string sizes = written_metadata() + written_collective(3, 0, UINT64_MAX).delimited();
    CHECK(log_of(sizes).collectives.at(0).elements == 0);
}

}  // namespace bucketwise
