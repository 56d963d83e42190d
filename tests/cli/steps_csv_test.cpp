#include "cli/steps_csv.h"

#include "sim/base/error.h"
#include "tests/catch.h"

namespace bucketwise {
namespace {

TEST_CASE("a steps file names its columns, in either order, or has caps and step times") {
    const StepsCsv plain = parse_steps_csv("1,100\n25,200.5\n", "s.csv");
    CHECK(plain.part == ObservedPart::step);
    REQUIRE(plain.steps.size() == 2);
    CHECK(plain.steps[1] == ObservedStep{Bytes{25 * bytes_per_mib}, 200.5});

    const StepsCsv named = parse_steps_csv(
        "# measured by hand\r\nbackward_ms, bucket_cap_mib\r\n\r\n 471.9 , 3\r\n480,default\r\n",
        "s.csv");
    CHECK(named.part == ObservedPart::backward);
    REQUIRE(named.steps.size() == 2);
    CHECK(named.steps[0] == ObservedStep{Bytes{3 * bytes_per_mib}, 471.9});
    CHECK(named.steps[1] == ObservedStep{std::nullopt, 480});
}

TEST_CASE("what is no steps file is refused, the line named") {
    for (const auto& [text, message] : std::vector<std::pair<std::string, std::string>>{
             {"", "s.csv: expected lines of a bucket cap in MiB and a time in ms, got none"},
             {"1,2,3\n",
              "s.csv:1: expected two values, a bucket cap in MiB and a time in ms, got \"1,2,3\""},
             {"cap,time\n1,2\n",
              "s.csv:1: expected the columns bucket_cap_mib and step_ms or backward_ms, got "
              "\"cap,time\""},
             {"1,100\n0,100\n",
              "s.csv:2: expected a bucket cap above 0 and at most 1073741824 MiB, or default, got "
              "\"0\""},
             {"1,100\n2,-1\n", "s.csv:2: expected a time of 1e-06 to 1e+09 ms, got \"-1\""},
             {"1e308,100\n",
              "s.csv:1: expected a bucket cap above 0 and at most 1073741824 MiB, or default, got "
              "\"1e308\""},
             {"1,1e308\n", "s.csv:1: expected a time of 1e-06 to 1e+09 ms, got \"1e308\""},
             {"1,nan\n", "s.csv:1: expected a time of 1e-06 to 1e+09 ms, got \"nan\""},
             {"1,100\ncap,time\n",
              "s.csv:2: expected a bucket cap above 0 and at most 1073741824 MiB, or default, got "
              "\"cap\""}}) {
        try {
            parse_steps_csv(text, "s.csv");
            FAIL("accepted: " << text);
        } catch (const InputError& error) {
            CHECK(std::string(error.what()) == message);
        }
    }
}

}  // namespace
}  // namespace bucketwise
