#include "cli/shell/files.h"

#include <unistd.h>

#include <filesystem>
#include <iterator>
#include <stdexcept>

#include "sim/base/error.h"
#include "tests/catch.h"

namespace bucketwise {
namespace {

namespace fs = std::filesystem;

// A folder of its own that goes with the test.
struct TemporaryFolder {
    fs::path path;
    TemporaryFolder() {
        std::string name = (fs::temp_directory_path() / "bucketwise-test.XXXXXX").string();
        REQUIRE(::mkdtemp(name.data()) != nullptr);
        path = name;
    }
    ~TemporaryFolder() {
        std::error_code ignored;
        fs::remove_all(path, ignored);
    }
    TemporaryFolder(const TemporaryFolder&) = delete;
    TemporaryFolder& operator=(const TemporaryFolder&) = delete;
};

std::size_t files_in(const fs::path& folder) {
    return static_cast<std::size_t>(
        std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

TEST_CASE("a written file is read back, and replaces the old one whole") {
    const TemporaryFolder folder;
    const std::string path = (folder.path / "out.json").string();
    write_text_file(path, "old, and longer than the new one");
    write_text_file(path, "new");
    CHECK(read_text_file(path) == "new");
    CHECK(files_in(folder.path) == 1);  // no temporary file is left
}

TEST_CASE("a symbolic link stays a link, and its target changes") {
    const TemporaryFolder folder;
    const std::string target = (folder.path / "target").string();
    write_text_file(target, "old");
    fs::create_symlink("target", folder.path / "link");
    write_text_file((folder.path / "link").string(), "new");
    CHECK(fs::is_symlink(folder.path / "link"));
    CHECK(read_text_file(target) == "new");
}

TEST_CASE("what cannot be read or written says so") {
    const TemporaryFolder folder;
    CHECK_THROWS_AS(read_text_file((folder.path / "missing").string()), InputError);
    CHECK_THROWS_AS(read_text_file(folder.path.string()), InputError);
    CHECK_THROWS_AS(write_text_file((folder.path / "no" / "such" / "folder").string(), "x"),
                    std::runtime_error);
    CHECK_THROWS_AS(write_text_file("/dev/full", "x"), std::runtime_error);
}

TEST_CASE("several outputs are written all, or none") {
    const TemporaryFolder folder;
    const std::string kept = (folder.path / "kept").string();
    const std::string nowhere = (folder.path / "no folder" / "other").string();
    write_text_file(kept, "old");
    CHECK_THROWS_AS(write_outputs({{kept, "new"}, {nowhere, "new"}}), std::runtime_error);
    CHECK(read_text_file(kept) == "old");
    // Nor does anything else stay behind.
    CHECK(std::distance(fs::directory_iterator(folder.path), fs::directory_iterator()) == 1);
    const std::string other = (folder.path / "other").string();
    write_outputs({{kept, "new"}, {other, "newer"}, {"/dev/null", "gone"}});
    CHECK(read_text_file(kept) == "new");
    CHECK(read_text_file(other) == "newer");
}

}  // namespace
}  // namespace bucketwise
