#include "import/source/line_reader.h"

#include <algorithm>
#include <string>
#include <vector>

#include "tests/catch.h"
#include "tests/import/source/text_source.h"

namespace bucketwise {
namespace {

std::vector<std::string> lines_of(const std::string& text, std::size_t block) {
    LineReader reader(text_source(text, block), "log");
    std::vector<std::string> lines;
    while (const auto line = reader.next()) {
        REQUIRE(line->number == static_cast<std::int64_t>(lines.size()) + 1);
        REQUIRE_FALSE(line->too_long);
        lines.emplace_back(line->text);
    }
    return lines;
}

}  // namespace

TEST_CASE("Lines end with LF, with CR LF or with the file, wherever blocks end", "[import]") {
    const std::string text = "\xef\xbb\xbfone\r\n\ntwo\nthree";
    const std::vector<std::string> expected{"one", "", "two", "three"};
    for (std::size_t block = 1; block <= text.size() + 1; ++block) {
        CAPTURE(block);
        CHECK(lines_of(text, block) == expected);
        CHECK(lines_of(text + "\n", block) == expected);
    }
    CHECK(lines_of("", 1).empty());
    CHECK(lines_of("\n", 1) == std::vector<std::string>{""});
}

TEST_CASE("A line without an end is cut, and the next one is whole", "[import]") {
    // 100 MiB that come from nowhere, then a line.
    constexpr std::size_t length = std::size_t{100} << 20;
    std::size_t given = 0;
    const std::string after = "\nafter\n";
    const auto source = [&](char* buffer, std::size_t size) {
        std::size_t count = 0;
        for (; count < size && given < length + after.size(); ++count, ++given) {
            buffer[count] = given < length ? 'x' : after[given - length];
        }
        return count;
    };
    LineReader reader(source, "log");
    const auto first = reader.next();
    REQUIRE(first);
    CHECK(first->too_long);
    CHECK(first->text.size() == LineLimits{}.kept);
    const auto second = reader.next();
    REQUIRE(second);
    CHECK(second->text == "after");
    CHECK_FALSE(second->too_long);
    CHECK(second->number == 2);
    CHECK_FALSE(reader.next());
}

TEST_CASE("What never ends a line is refused", "[import]") {
    const auto endless = [](char* buffer, std::size_t size) {
        std::fill_n(buffer, size, '\0');
        return size;
    };
    LineReader reader(endless, "log");
    CHECK_THROWS_WITH(reader.next(), "log:1: expected a line of at most 256 MiB, got a longer one");
}

}  // namespace bucketwise
