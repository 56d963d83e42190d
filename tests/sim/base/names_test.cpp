#include "sim/base/names.h"

#include <array>

#include "sim/base/dtype.h"
#include "tests/catch.h"

namespace bucketwise {
namespace {

enum class Colour { red, green };
enum class Nameless { one };

}  // namespace

template <>
inline constexpr auto names_of<Colour> = names("red", "green");

TEST_CASE("a value has the name that stands in its place") {
    CHECK(name_of(Colour::red) == "red");
    CHECK(name_of(Colour::green) == "green");
    CHECK(name_of(DType::bfloat16) == "bfloat16");
}

TEST_CASE("every value is listed once, in the order of declaration") {
    CHECK(every<Colour> == std::array{Colour::red, Colour::green});
}

TEST_CASE("what has no names has no name_of") {
    STATIC_REQUIRE(Named<Colour>);
    STATIC_REQUIRE_FALSE(Named<Nameless>);
}

}  // namespace bucketwise
