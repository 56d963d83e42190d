#include "import/source/byte_source.h"

#include <string>

#include "sim/base/error.h"
#include "tests/catch.h"
#include "tests/import/source/text_source.h"

namespace bucketwise {
namespace {

std::string rest_of(const ByteSource& source) {
    std::string text;
    std::string block(1000, '\0');
    while (const std::size_t count = source(block.data(), block.size())) {
        text.append(block, 0, count);
    }
    return text;
}

}  // namespace

TEST_CASE("bytes that are read ahead or looked at first are the source's", "[byte_source]") {
    std::string text;
    for (int i = 0; i < 100'000; ++i) {
        text += std::to_string(i);
    }
    for (const std::size_t block : {std::size_t{1}, std::size_t{101}, std::size_t{1} << 20}) {
        const Peeked peek = peeked(text_source(text, block), 3);
        CHECK(peek.begin == "012");
        const ByteSource ahead = read_ahead(peek.all);
        CHECK(rest_of(ahead) == text);
        CHECK(rest_of(ahead).empty());  // the end stays the end
    }
    CHECK(rest_of(read_ahead(text_source(""))).empty());
    CHECK(peeked(text_source("a"), 3).begin == "a");
}

TEST_CASE("an exception of a source comes after the bytes before it, each time", "[byte_source]") {
    const auto failing = [](std::string text) {
        return [inner = text_source(std::move(text), 100)](char* buffer, std::size_t size) {
            const std::size_t count = inner(buffer, size);
            if (count == 0) {
                throw InputError("file", "", "more", "nothing");
            }
            return count;
        };
    };
    const ByteSource ahead = read_ahead(failing(std::string(250, 'x')));
    std::string block(1000, '\0');
    for (std::size_t count = 0; count < 250;) {
        count += ahead(block.data(), block.size());
        REQUIRE(count <= 250);
    }
    CHECK_THROWS_AS(ahead(block.data(), block.size()), InputError);
    CHECK_THROWS_AS(ahead(block.data(), block.size()), InputError);
    // One that fails while nobody asks ends quietly.
    for (int i = 0; i < 100; ++i) {
        const ByteSource quiet = read_ahead(failing(std::string(1, 'x')));
        CHECK(quiet(block.data(), block.size()) == 1);
    }
}

}  // namespace bucketwise
