// The program where libraries for GPUs are missing, or are not what they are called. Nothing here
// needs a GPU.
#include "hw/gpu/runtime/opened_library.h"

#include <cublas_v2.h>
#include <nccl.h>

#include <string>

#include "tests/catch.h"
#include "tests/cli/process.h"
#include "tests/contains.h"

namespace bucketwise {
namespace {

using testing::contains;

const std::string program = BUCKETWISE_BINARY;
const std::string scenario = BUCKETWISE_SCENARIO_DIR "/two_buckets.json";
const std::string nccl_file = "libnccl.so." + std::to_string(NCCL_MAJOR);
const std::string cublas_file = "libcublas.so." + std::to_string(CUBLAS_VER_MAJOR);

Surroundings with_libraries_of(const std::string& folder) {
    return {.variables = {{"LD_LIBRARY_PATH", folder}}};
}

// One line, and the exit code of a program that was built without.
void check_refused(const Surroundings& surroundings, const std::string& why) {
    const TestFolder folder;
    const Outcome outcome =
        run({program, "measure", scenario, "--backend", "nccl", "-o", folder.file("m.jsonl")},
            surroundings);
    CHECK(outcome.exit_code == 2);
    check_one_line(outcome.errors);
    CHECK(contains(outcome.errors, "--backend: expected gloo, as " + why));
    CHECK(contains(outcome.errors, "), got \"nccl\""));
}

TEST_CASE("a library that is nowhere is named, and so is the file that was looked for") {
    CHECK_THROWS_WITH(OpenedLibrary("NCCL", "libbucketwise_has_none.so.7"),
                      "NCCL is not found (libbucketwise_has_none.so.7: cannot open shared object "
                      "file: No such file or directory)");
}

TEST_CASE("functions of an opened library can be called, and those that it lacks are named") {
    const OpenedLibrary library("the stand-in", BUCKETWISE_STAND_INS "/" + nccl_file);
    int (*version_of)(int*) = library["ncclGetVersion"];
    int version = 0;
    CHECK(version_of(&version) == 0);
    CHECK(version == 20000);
    CHECK_THROWS_WITH(library["ncclCommAbort"],
                      Catch::Matchers::StartsWith("the stand-in is not usable (") &&
                          Catch::Matchers::EndsWith("undefined symbol: ncclCommAbort)"));
}

TEST_CASE("the program is linked with none of the libraries that it opens", "[program]") {
    const Outcome linked = run({"ldd", program});
    REQUIRE(linked.exit_code == 0);
    CHECK(contains(linked.output, "libc.so"));
    CHECK_FALSE(contains(linked.output, "libcublas"));
    CHECK_FALSE(contains(linked.output, "libnccl"));
}

// Files that are no libraries hide whatever this machine has: the loader looks no further.
TEST_CASE("without cuBLAS and NCCL the program starts, predicts, and says what is missing",
          "[program]") {
    const TestFolder folder;
    const Surroundings without = with_libraries_of(folder.path());
    write_file(folder.file(nccl_file), "");
    write_file(folder.file(cublas_file), "");

    const Outcome version = run({program, "--version"}, without);
    CHECK(version.exit_code == 0);
    CHECK(version.errors.empty());
    CHECK(contains(version.output, "\nCUDA runtime "));
    CHECK(contains(version.output, ", NCCL is not found ("));

    const Outcome predicted = run({program, "predict", scenario}, without);
    CHECK(predicted.exit_code == 0);
    CHECK(predicted.errors.empty());
    CHECK(predicted.output == run({program, "predict", scenario}).output);

    check_refused(without, "NCCL is not found (" + folder.file(nccl_file));
}

TEST_CASE("a library that lacks a function is refused by the name of the function", "[program]") {
    const Surroundings lacking = with_libraries_of(BUCKETWISE_STAND_INS);
    const std::string why = "NCCL is not usable (" BUCKETWISE_STAND_INS "/" + nccl_file +
                            ": undefined symbol: ncclGetUniqueId";
    check_refused(lacking, why);
    const Outcome version = run({program, "--version"}, lacking);
    CHECK(version.exit_code == 0);
    CHECK(contains(version.output, why));
}

// Two libraries on a machine may have one name: a bug report tells which it was.
TEST_CASE("the version of the program says which NCCL it has found, and where", "[program]") {
    const Outcome version =
        run({program, "--version"}, with_libraries_of(BUCKETWISE_STAND_INS "/whole"));
    CHECK(version.exit_code == 0);
    // 20000, which the stand-in says, is 2.0.0 by NCCL's way of counting.
    CHECK(contains(version.output,
                   ", NCCL 2.0.0 (" BUCKETWISE_STAND_INS "/whole/" + nccl_file + ")\n"));
}

}  // namespace
}  // namespace bucketwise
