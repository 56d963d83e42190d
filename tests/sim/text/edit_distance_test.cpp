#include "sim/text/edit_distance.h"

#include <array>
#include <string_view>
#include <vector>

#include "sim/base/dtype.h"
#include "sim/base/names.h"
#include "tests/catch.h"

namespace bucketwise {
namespace {

const std::vector<std::string_view> commands{"predict", "measure", "hf", "kineto", "man"};

TEST_CASE("the distance of two words is the fewest characters to change") {
    CHECK(edit_distance("", "abc") == 3);
    CHECK(edit_distance("kitten", "sitting") == 3);  // k to s, e to i, and a g
    CHECK(edit_distance("predict", "predict") == 0);
}

TEST_CASE("the nearest name is one with a slip of the hand, in any case, or one that is begun") {
    CHECK(nearest_name("predct", commands) == "predict");
    CHECK(nearest_name("knieto", commands) == "kineto");
    CHECK(nearest_name("PREDICT", commands) == "predict");
    CHECK(nearest_name("meas", commands) == "measure");
}

TEST_CASE("no name is near what has nothing in common with any") {
    CHECK(nearest_name("", commands).empty());
    CHECK(nearest_name("x", commands).empty());  // two changes make it hf
    CHECK(nearest_name("xy", commands).empty());
    CHECK(nearest_name("benchmark", commands).empty());
    CHECK(nearest_name(std::string(1000, 'p'), commands).empty());
    CHECK(nearest_name("predict", {}).empty());
}

TEST_CASE("a value is called by its name and by other words for it, which are never written") {
    CHECK(is_called(DType::bfloat16, "bfloat16"));
    CHECK(is_called(DType::bfloat16, "bf16"));
    CHECK(is_called(DType::float16, "half"));
    CHECK_FALSE(is_called(DType::float16, "bf16"));
    CHECK_FALSE(is_called(DType::float16, "Half"));
    // No word is another value's name, or two values'.
    for (const OtherName<DType>& other : other_names_of<DType>) {
        int called = 0;
        for (const DType dtype : every<DType>) {
            called += is_called(dtype, other.text) ? 1 : 0;
        }
        CHECK(called == 1);
        CHECK(name_of(other.value) != other.text);
    }
}

}  // namespace
}  // namespace bucketwise
