#include "cli/varied_values.h"

#include <nlohmann/json.hpp>

#include "sim/base/error.h"
#include "tests/catch.h"

namespace bucketwise {
namespace {

Json values(const std::string& text) {
    return parse_varied_key("/k=" + text).values;
}

TEST_CASE("a list holds numbers, true and false, and strings", "[vary]") {
    CHECK(parse_varied_key("/a/b=1,2.5,-3e2") ==
          VariedKey{"/a/b", {Json(1), Json(2.5), Json(-300.0)}});
    CHECK(values("true,false,ddp") == Json{true, false, "ddp"});
    CHECK(values(R"("2.4","a,b","say \"x\"")") == Json{"2.4", "a,b", "say \"x\""});
    CHECK(values("links/a.json,../b.json") == Json{"links/a.json", "../b.json"});
    CHECK(values("a=b") == Json::array({"a=b"}));
    CHECK(values("1")[0].is_number_integer());
}

TEST_CASE("a geometric range holds both ends where they are hit", "[vary]") {
    CHECK(values("8..64:x2") == Json{8, 16, 32, 64});
    CHECK(values("8..63:x2") == Json{8, 16, 32});
    CHECK(values("8..8:x2") == Json::array({8}));
    CHECK(values("64..8:x0.5") == Json{64.0, 32.0, 16.0, 8.0});
    CHECK(values("0.001..10:x10") == Json{0.001, 0.01, 0.1, 1.0, 10.0});
    CHECK(values("1e-3..1e3:x1e3") == Json{0.001, 1.0, 1000.0});
    CHECK(values("8..65536:x2").size() == 14);
    CHECK(values("8..65536:x2")[13].is_number_integer());
    // The square root of two, twenty times: as near to 1024 as anybody can type it.
    const Json rooted = values("1..1024:x1.4142135623730951");
    CHECK(rooted.size() == 21);
    CHECK(rooted[20] == 1024);
    CHECK(rooted[2].get<double>() == Approx(2).epsilon(1e-15));
}

TEST_CASE("a range of whole numbers is whole, however its end is written", "[vary]") {
    CHECK(values("2..8.0:+2") == Json{2, 4, 6, 8});
    CHECK(values("2..8.5:+2") == Json{2, 4, 6, 8});
    CHECK(values("8..2.50:-2") == Json{8, 6, 4});
    CHECK(values("2..8.0:+2")[3].is_number_integer());
}

TEST_CASE("an arithmetic range is computed in decimal, value by value", "[vary]") {
    CHECK(values("0..1:+0.1") == Json{0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0});
    CHECK(values("1..10:+4") == Json{1, 5, 9});
    CHECK(values("1..10:+4")[0].is_number_integer());
    CHECK(values("5..-5:-5") == Json{5, 0, -5});
    CHECK(values("1e2..300:+1E+2") == Json{100.0, 200.0, 300.0});
    CHECK(values("1..1000000:+1").size() == 1'000'000);
}

TEST_CASE("what is no list and no range is refused by name", "[vary]") {
    for (const char* wrong : {"",
                              "1,,2",
                              "1,",
                              "null",
                              "[1]",
                              "{}",
                              "1..10",
                              "1..10:",
                              "1..10:2",
                              "1..10:*2",
                              "1..10:x",
                              "1..10:xx",
                              "1..10:x1",
                              "1..10:x0",
                              "1..10:x-2",
                              "0..10:x2",
                              "10..1:x2",
                              "1..10:x0.5",
                              "1..10:+0",
                              "1..10:+-1",
                              "1..10:-1",
                              "10..1:+1",
                              "1..:+1",
                              "1..x:+1",
                              "1..10:+1x",
                              "0..1:+1e-7",
                              "1..1000001:+1",
                              "1..2:x1.0000001",
                              "1..1e300:+1",
                              "1e-300..1e300:+1e-300",
                              "1..1e999:x2",
                              " 8..16:+4",
                              "8..16:+4 ",
                              "12345678901234567890..12345678901234567899:+1",
                              "\xff"}) {
        INFO(wrong);
        try {
            values(wrong);
            FAIL("accepted");
        } catch (const InputError& error) {
            CHECK(std::string(error.what()).rfind("--vary: /k: expected ", 0) == 0);
        }
    }
    for (const char* wrong : {"", "k=1", "=1", "/k"}) {
        CHECK_THROWS_AS(parse_varied_key(wrong), InputError);
    }
}

}  // namespace
}  // namespace bucketwise
