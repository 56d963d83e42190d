#include "sim/base/hash.h"
#include "tests/catch.h"

namespace bucketwise {
namespace {

// Noll's own test vectors.
TEST_CASE("texts have the hashes that Fowler, Noll and Vo publish") {
    CHECK(fnv_hash("") == 0xcbf29ce484222325ULL);
    CHECK(fnv_hash("a") == 0xaf63dc4c8601ec8cULL);
    CHECK(fnv_hash("foobar") == 0x85944171f73967e8ULL);
}

TEST_CASE("a number is hashed byte by byte, the least significant first") {
    FnvHash number;
    number.add(std::int64_t{'a'} + 256 * std::int64_t{'b'});
    FnvHash text;
    text.add(std::string_view("ab\0\0\0\0\0\0", 8));
    CHECK(number.value() == text.value());
}

}  // namespace
}  // namespace bucketwise
