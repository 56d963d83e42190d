#include "cli/shell/result_table.h"

#include <limits>

#include <nlohmann/json.hpp>

#include "cli/shell/csv.h"
#include "sim/base/error.h"
#include "sim/base/json_input.h"
#include "tests/catch.h"
#include "tests/contains.h"

namespace bucketwise {
namespace {

using testing::contains;

ResultTable example() {
    return {.title = "two strategies",
            .columns = {{.key = "strategy", .heading = "strategy"},
                        {.key = "step_ms", .heading = "step\n(ms)", .decimals = 2},
                        {.key = "buckets", .heading = "buckets"},
                        {.key = "samples", .heading = "", .in_text = false}},
            .rows = {{"naive", 12.3456, 7, 9},
                     {"a, \"b\"", Json(), 1000, std::numeric_limits<double>::quiet_NaN()}},
            .notes = {"one note"}};
}

TEST_CASE("a table as text is aligned, names to the left, numbers to the right") {
    CHECK(render(example(), TableFormat::text, {}) ==
          "two strategies\n\n"
          "             step\n"
          "  strategy   (ms)  buckets\n"
          "  naive     12.35        7\n"
          "  a, \"b\"        -     1000\n"
          "\none note\n");
}

TEST_CASE("a cell of foreign text stays within its line and its column") {
    ResultTable table = example();
    table.rows[0][0] = std::string("na\nive\x1b[31m");
    CHECK(contains(render(table, TableFormat::text, {}), "\n  na\\nive\\u001b[31m  12.35 "));
    table.rows[0][0] = std::string(1 << 20, 'x');
    CHECK(contains(render(table, TableFormat::text, {}), "\n  " + std::string(97, 'x') + "...  "));
    // Programs get it whole.
    CHECK(parse_json(render(table, TableFormat::json, {}), "t.json")["rows"][0]["strategy"]
              .get_ref<const std::string&>()
              .size() == 1 << 20);
}

TEST_CASE("a table as CSV keeps every digit and can be read back") {
    const std::string csv = render(example(), TableFormat::csv, {});
    CHECK(csv ==
          "strategy,step_ms,buckets,samples\n"
          "naive,12.3456,7,9\n"
          "\"a, \"\"b\"\"\",,1000,\n");
    const CsvFile file = CsvFile::parse(csv, "table.csv");
    REQUIRE(file.rows() == 2);
    CHECK(file.text(1, "strategy") == "a, \"b\"");
    CHECK(file.number(0, "step_ms") == 12.3456);
}

TEST_CASE("a table as JSON leaves out what is missing, and says what was run") {
    const Json document =
        parse_json(render(example(), TableFormat::json, {{"backend", "gloo"}}), "table.json");
    CHECK(document["backend"] == "gloo");
    CHECK(document["rows"][0]["step_ms"] == 12.3456);
    CHECK(!document["rows"][1].contains("step_ms"));
    CHECK(document["notes"][0] == "one note");
}

TEST_CASE("a CSV file that is none is refused by line") {
    const auto message = [](const std::string& text) -> std::string {
        try {
            const CsvFile file = CsvFile::parse(text, "f.csv");
            static_cast<void>(file.number(0, "a"));
        } catch (const InputError& error) {
            return error.what();
        }
        return "";
    };
    CHECK(message("") == "f.csv: expected a line with the names of columns, got none");
    CHECK(message("# x\n\na,a\n") == "f.csv:3: expected each column once, got \"a\" twice");
    CHECK(message("a,b\n1,2\n3\n") == "f.csv:3: expected 2 values, got 1");
    CHECK(message("b\n1\n") == "f.csv: expected a column \"a\", got b");
    CHECK(message("a\n1e999\n") == "f.csv:2: expected a finite number of a, got \"1e999\"");
    CHECK(message("a\ninf\n") == "f.csv:2: expected a finite number of a, got \"inf\"");
    CHECK(message("a\r\nten\r\n") == "f.csv:2: expected a finite number of a, got \"ten\"");
}

}  // namespace
}  // namespace bucketwise
