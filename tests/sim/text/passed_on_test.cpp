#include "sim/text/passed_on.h"

#include "tests/catch.h"
#include "tests/shell_line.h"

namespace bucketwise {
namespace {

using Words = std::vector<std::string>;

TEST_CASE("A file that is passed on is named without its folders", "[text]") {
    CHECK(file_name("/home/somebody/runs/measurements.jsonl") == "measurements.jsonl");
    CHECK(file_name("runs/measurements.jsonl") == "measurements.jsonl");
    CHECK(file_name("measurements.jsonl") == "measurements.jsonl");
    CHECK(file_name("/home/somebody/") == "somebody");
    CHECK(file_name("/") == "/");
    CHECK(file_name("").empty());
}

TEST_CASE("A command that is passed on names no folder of the machine", "[text]") {
    const Words typed{"bucketwise",
                      "sweep",
                      "/home/a/s.json",
                      "--link=/home/a/l.json",
                      "-o",
                      "/home/a/rows.csv",
                      "-o/home/a/x",
                      "--set",
                      "/cluster/link=/home/a/l.json",
                      R"(--set=/cluster/link="/home/a/l.json")",
                      "--vary",
                      "/cluster/link=/home/a/1.json,eth-10g,/home/a/2.json"};
    const Words passed_on{"bucketwise",
                          "sweep",
                          "s.json",
                          "--link=l.json",
                          "-o",
                          "rows.csv",
                          "-ox",
                          "--set",
                          "/cluster/link=l.json",
                          R"(--set=/cluster/link="l.json")",
                          "--vary",
                          "/cluster/link=1.json,eth-10g,2.json"};
    CHECK(passed_on_command(typed) == passed_on);
    CHECK(passed_on_command(passed_on) == passed_on);
}

TEST_CASE("Of a command that is passed on, pointers, relative paths and addresses stay", "[text]") {
    const Words words{"measure",
                      "scenarios/a.json",
                      "--set",
                      "/cluster/ranks=4",
                      "--set",
                      "/name",
                      "--set=/name=x",
                      "--vary",
                      "/sync/views=true,false",
                      "--store",
                      "redis://host:6379",
                      "-",
                      "/dev/stdin"};
    CHECK(passed_on_command(words) == words);
}

TEST_CASE("A shell reads a line of words as these words, whatever is in them", "[text]") {
    const Words words{"plain",     "",    "two words", "it's", "$(echo no)",
                      "`echo no`", "a;b", "~",         "a\nb"};
    // Each word on a line of its own, in brackets.
    std::string expected;
    for (const std::string& word : words) {
        expected += "[" + word + "]\n";
    }
    CHECK(testing::run_in_shell("printf '[%s]\\n' " + shell_line(words)).output == expected);
    CHECK(shell_line({"bucketwise", "measure", "--link-rate=1gbit", "-o", "a/b.jsonl"}) ==
          "bucketwise measure --link-rate=1gbit -o a/b.jsonl");
}

}  // namespace
}  // namespace bucketwise
