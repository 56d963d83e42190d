#include "hw/record/environment.h"

#include "tests/catch.h"

namespace bucketwise {
namespace {

TEST_CASE("the environment names this machine") {
    const Environment environment = read_environment();
    CHECK(environment.cores >= 1);
    CHECK_FALSE(environment.cpu.empty());
    CHECK_FALSE(environment.scheduling.empty());
    CHECK(environment.kernel.find(' ') != std::string::npos);
    CHECK(
        (environment.compiler.rfind("g++", 0) == 0 || environment.compiler.rfind("clang", 0) == 0));
}

}  // namespace
}  // namespace bucketwise
