#include "import/source/read_ahead.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
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

// `text`, then a failure.
ByteSource failing_source(std::string text) {
    return [inner = text_source(std::move(text), 100)](char* buffer, std::size_t size) {
        const std::size_t count = inner(buffer, size);
        if (count == 0) {
            throw InputError("file", "", "more", "nothing");
        }
        return count;
    };
}

}  // namespace

TEST_CASE("what is read ahead is what the source gives", "[read_ahead]") {
    std::string text;
    for (int i = 0; i < 100'000; ++i) {
        text += std::to_string(i);
    }
    for (const std::size_t block : {std::size_t{101}, std::size_t{1} << 20}) {
        const ByteSource ahead = read_ahead(text_source(text, block));
        CHECK(rest_of(ahead) == text);
        CHECK(rest_of(ahead).empty());  // the end stays the end
    }
    CHECK(rest_of(read_ahead(text_source(""))).empty());
}

TEST_CASE("what a source throws comes after the bytes before it, each time", "[read_ahead]") {
    const ByteSource ahead = read_ahead(failing_source(std::string(250, 'x')));
    std::string block(1000, '\0');
    std::size_t count = 0;
    while (count < 250) {
        count += ahead(block.data(), block.size());
    }
    CHECK(count == 250);
    CHECK_THROWS_AS(ahead(block.data(), block.size()), InputError);
    CHECK_THROWS_AS(ahead(block.data(), block.size()), InputError);
}

TEST_CASE("a source without an end is read ahead only so far, and left at once", "[read_ahead]") {
    std::atomic<std::size_t> given = 0;
    for (int i = 0; i < 100; ++i) {
        given = 0;
        const ByteSource ahead = read_ahead([&](char* buffer, std::size_t size) {
            std::fill_n(buffer, size, 'x');
            given += size;
            return size;
        });
        std::string block(1000, '\0');
        for (int reads = 0; reads < i; ++reads) {
            CHECK(ahead(block.data(), block.size()) == block.size());
        }
    }
    // 8 blocks of 256 KiB, one that is given out and one that is being read.
    CHECK(given <= std::size_t{10} << 18);
}

TEST_CASE("a thread that fails while nobody asks ends quietly", "[read_ahead]") {
    for (int i = 0; i < 100; ++i) {
        const ByteSource ahead = read_ahead(failing_source(""));
    }
    CHECK_THROWS_AS(rest_of(read_ahead(failing_source(""))), InputError);
}

}  // namespace bucketwise
