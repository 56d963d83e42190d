#include "sim/base/json_input.h"

#include "tests/catch.h"

namespace bucketwise {
namespace {

std::string refusal(const std::string& text) {
    try {
        static_cast<void>(parse_json(text, "f.json"));
    } catch (const InputError& error) {
        return error.what();
    }
    return "accepted";
}

TEST_CASE("what is not one JSON document is refused, with the place") {
    CHECK(refusal("{\"a\": 1")
              .find("f.json: expected valid JSON, got parse error at line 1, column 8") == 0);
    CHECK(refusal("").find("f.json: expected valid JSON") == 0);
    CHECK(refusal("{} {}").find("f.json: expected valid JSON") == 0);
    CHECK(refusal("{\"a\": NaN}").find("f.json: expected valid JSON") == 0);
    CHECK(refusal("{\"a\": 1e999}").find("f.json: expected numbers within the range of a double") ==
          0);
    CHECK(refusal("[\"\xff\"]").find("f.json: expected valid JSON") == 0);
}

TEST_CASE("a key twice is refused, at its pointer") {
    CHECK(refusal(R"({"a": {"b": 1, "c": 2, "b": 3}})") ==
          "f.json: /a/b: expected each key once, got the key \"b\" twice");
    CHECK(refusal(R"([{"a": 1}, {"a": 1}])") == "accepted");
    CHECK(refusal(R"({"a": {"x": 1}, "b": {"x": 1}})") == "accepted");
}

TEST_CASE("deep nesting is refused, not followed") {
    CHECK(refusal(std::string(64, '[') + std::string(64, ']')) == "accepted");
    CHECK(refusal(std::string(1'000'000, '[')) ==
          "f.json: expected nesting no deeper than 64, got a deeper one");
}

std::string object_refusal(const std::string& text) {
    const Json document = Json::parse(text);
    try {
        const JsonObject object({&document, "f.json", "/x"}, {"forward_ms", "backward_ms"});
        static_cast<void>(object.at("forward_ms"));
    } catch (const InputError& error) {
        return error.what();
    }
    return "accepted";
}

TEST_CASE("an unknown key names the known ones and the nearest") {
    CHECK(object_refusal(R"({"forward_sm": 1})") ==
          "f.json: /x/forward_sm: expected one of the keys forward_ms, backward_ms, got an unknown "
          "key "
          "(did you mean forward_ms?)");
    CHECK(object_refusal(R"({"zzz": 1})") ==
          "f.json: /x/zzz: expected one of the keys forward_ms, backward_ms, got an unknown key");
    CHECK(object_refusal(R"({"a/b~": 1})").find("f.json: /x/a~1b~0: ") == 0);
    CHECK(object_refusal(R"({"\u001b[31m\n": 1})").find('\n') == std::string::npos);
    CHECK(object_refusal("{}") ==
          "f.json: /x: expected the key forward_ms, got an object without it");
    CHECK(object_refusal("[1]") == "f.json: /x: expected an object, got an array of 1");
}

template <typename Read>
std::string value_refusal(const std::string& text, Read read) {
    const Json document = Json::parse(text);
    try {
        static_cast<void>(read(JsonPlace{&document, "f.json", "/v"}));
    } catch (const InputError& error) {
        return error.what();
    }
    return "accepted";
}

TEST_CASE("values out of range or of another type are refused") {
    const auto integer = [](const JsonPlace& p) { return read_integer(p, 1, 8); };
    for (const char* text :
         {"0", "9", "-1", "1.5", "\"1\"", "null", "1e300", "18446744073709551615", "true", "[]"}) {
        CHECK(value_refusal(text, integer)
                  .find("f.json: /v: expected an integer from 1 to 8, got ") == 0);
    }
    CHECK(value_refusal("8", integer) == "accepted");
    CHECK(value_refusal("8.0", integer) == "accepted");
    CHECK(value_refusal("-0.1", read_duration_ms).find("expected a number of at least 0") !=
          std::string::npos);
    CHECK(value_refusal("1e300", read_duration_ms).find("at most 10000000") != std::string::npos);
    CHECK(value_refusal("0", read_bandwidth_gb_per_s).find("of at least 1e-06") !=
          std::string::npos);
    CHECK(value_refusal("0", read_cap_mib).find("expected a number above 0") != std::string::npos);
    CHECK(value_refusal("1e-9", read_cap_mib).find("expected a cap of at least one byte") !=
          std::string::npos);
    CHECK(value_refusal("1", read_boolean).find("expected true or false, got 1") !=
          std::string::npos);
    CHECK(value_refusal("\"a\\u0007\"", read_string).find("without control characters") !=
          std::string::npos);
    CHECK(value_refusal("\"\"", read_string).find("without control characters") !=
          std::string::npos);
}

TEST_CASE("a cap is truncated to bytes as PyTorch does") {
    const Json document = 0.05;
    CHECK(read_cap_mib({&document, "f", "/v"}) == Bytes{52'428});  // int(0.05 x 1048576)
}

}  // namespace
}  // namespace bucketwise
