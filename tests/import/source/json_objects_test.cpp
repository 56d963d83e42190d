#include "import/source/json_objects.h"

#include <string>
#include <utility>
#include <vector>

#include "sim/base/error.h"
#include "tests/catch.h"
#include "tests/import/source/text_source.h"

namespace bucketwise {
namespace {

std::vector<std::string> objects_of(ByteSource source, std::string* around = nullptr) {
    JsonObjects objects(std::move(source), {"list"}, "file");
    std::vector<std::string> found;
    while (const auto batch = objects.next()) {
        for (const simdjson::dom::element object : *batch) {
            found.push_back(simdjson::minify(object));
        }
    }
    if (around != nullptr) {
        *around = simdjson::minify(objects.around().value());
    }
    return found;
}

std::vector<std::string> objects_of(const std::string& text, std::size_t block = 1,
                                    std::string* around = nullptr) {
    return objects_of(text_source(text, block), around);
}

}  // namespace

TEST_CASE("Objects follow one another, are a list, or are held under a key", "[import]") {
    const std::vector<std::string> expected{R"({"a":"}]\""})", R"({"b":[{}]})"};
    for (std::size_t block = 1; block < 10; ++block) {
        CAPTURE(block);
        CHECK(objects_of(expected[0] + expected[1], block) == expected);
        CHECK(objects_of("\n" + expected[0] + "\n" + expected[1] + "\n", block) == expected);
        CHECK(objects_of(" [" + expected[0] + ", " + expected[1] + "]", block) == expected);
        std::string around;
        CHECK(objects_of(R"({"x": ["list"], "y": {"list": []}, "list": [)" + expected[0] + "," +
                             expected[1] + R"(], "z": 1})",
                         block, &around) == expected);
        CHECK(around == R"({"x":["list"],"y":{"list":[]},"list":[],"z":1})");
    }
    CHECK(objects_of("").empty());
    CHECK(objects_of("[]").empty());
    CHECK(objects_of(R"({"list": []})").empty());
}

TEST_CASE("Text that is cut off or no object is refused", "[import]") {
    for (const char* text :
         {"{", "[{}", R"({"list": [{})", R"({"list": [{}])", R"({"a": "b)", "1", "[1]", "{} x", "]",
          R"({"list": [{}]} ])", "[{},]", "[,{}]", "[{}{}]", "[{},1]", "[{}]{}", "{a}"}) {
        CAPTURE(text);
        CHECK_THROWS_AS(objects_of(text), InputError);
    }
}

TEST_CASE("An object without an end is refused before it fills the memory", "[import]") {
    for (const std::string begin : {R"({"list": [{"a": ")", R"({"a": ")", R"([{"a": ")"}) {
        std::size_t given = 0;
        const ByteSource endless = [&](char* buffer, std::size_t size) {
            for (std::size_t i = 0; i < size; ++i, ++given) {
                buffer[i] = given < begin.size() ? begin[given] : 'x';
            }
            return size;
        };
        CHECK_THROWS_AS(objects_of(endless), InputError);
        CHECK(given < 3 * JsonObjects::longest_object);
    }
}

}  // namespace bucketwise
