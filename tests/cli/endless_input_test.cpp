// Files that never end, or never end a line: refused with 2 before they take the memory.
#include "tests/cli/process.h"

namespace bucketwise {
namespace {

// What a command says of /dev/zero, which it is given 2 GiB of address space to read; sanitizers
// take more for themselves.
std::string said_of_zeros(const Words& words) {
    const TestFolder folder;
    const char* limited =
        BUCKETWISE_TEST_SHARE == 1 ? "ulimit -v 2097152; exec \"$@\"" : "exec \"$@\"";
    Words command{"/bin/sh", "-c", limited, "sh", BUCKETWISE_BINARY};
    command.insert(command.end(), words.begin(), words.end());
    const Outcome outcome = run(command, {.folder = folder.path()});
    CHECK(outcome.exit_code == 2);
    CHECK(outcome.output.empty());
    CHECK(std::filesystem::is_empty(folder.path()));
    return outcome.errors;
}

TEST_CASE("what never ends is refused, whoever reads it") {
    const std::string endless = "/dev/zero";
    const std::string line = "bucketwise: /dev/zero:1: expected a line of at most ";
    CHECK(said_of_zeros({"calibrate", endless, "-o", "l.json"}) ==
          line + "64 MiB, got a larger one\n");
    CHECK(said_of_zeros({"compare", two_buckets, "--measurements", endless}) ==
          line + "64 MiB, got a larger one\n");
    CHECK(said_of_zeros({"import", "nccl-tests", endless, "-o", "m.jsonl"}) ==
          line + "256 MiB, got a longer one\n");
    CHECK(said_of_zeros({"predict", endless}) ==
          "bucketwise: /dev/zero: expected a file of at most 256 MiB, got a larger one\n");
}

}  // namespace
}  // namespace bucketwise
