#include "cli/shell/files.h"

#include <sys/stat.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <iterator>
#include <stdexcept>

#include "cli/shell/read_files.h"
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
        forget_reads();  // a test is a command; the next one's files may have numbers of this one's
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

fs::perms mode_of(const std::string& path) {
    return fs::status(path).permissions();
}

// The process's own, for as long as it lives.
class Umask {
  public:
    explicit Umask(::mode_t mask) : before_(::umask(mask)) {}
    ~Umask() { ::umask(before_); }
    Umask(const Umask&) = delete;
    Umask& operator=(const Umask&) = delete;

  private:
    ::mode_t before_;
};

TEST_CASE("a file keeps its permissions, and a new one has what the umask leaves") {
    const TemporaryFolder folder;
    const std::string path = (folder.path / "secret").string();
    {
        const Umask strict(077);
        write_text_file(path, "old");
    }
    const Umask usual(022);
    CHECK(mode_of(path) == fs::perms(0600));
    write_text_file(path, "new");
    CHECK(mode_of(path) == fs::perms(0600));
    fs::permissions(path, fs::perms(0664));
    write_text_file(path, "newer");
    CHECK(mode_of(path) == fs::perms(0664));
    CHECK(read_text_file(path) == "newer");
    const std::string other = (folder.path / "new").string();
    write_text_file(other, "text");
    CHECK(mode_of(other) == fs::perms(0644));
}

// In a child that is nobody where the test runs as root, whom no permission stops. 0: it was
// written; 1: it was refused.
int written_by_a_user(const std::string& path, const std::string& text) {
    const ::pid_t child = ::fork();
    if (child == 0) {
        constexpr ::uid_t nobody = 65534;
        if (::getuid() == 0 && ::setuid(nobody) != 0) {
            ::_exit(2);
        }
        try {
            write_text_file(path, text);
        } catch (const std::runtime_error&) {
            ::_exit(1);
        }
        ::_exit(0);
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST_CASE("a file that may be written is, whatever its folder; one that may not is left alone") {
    const TemporaryFolder folder;
    const std::string open = (folder.path / "open").string();
    const std::string closed = (folder.path / "closed").string();
    write_text_file(open, "old and long");
    write_text_file(closed, "old");
    fs::permissions(open, fs::perms(0666));
    fs::permissions(closed, fs::perms(0444));
    fs::permissions(folder.path, fs::perms(0555));
    CHECK(written_by_a_user(open, "new") == 0);
    CHECK(written_by_a_user((folder.path / "none").string(), "new") == 1);
    fs::permissions(folder.path, fs::perms(0777));
    CHECK(written_by_a_user(closed, "new") == 1);
    CHECK(read_text_file(open) == "new");
    CHECK(read_text_file(closed) == "old");
    CHECK(files_in(folder.path) == 2);
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
    CHECK_THROWS_AS(write_outputs({{kept, "new"}, {"/dev/full", "new"}}), std::runtime_error);
    CHECK_THROWS_AS(write_outputs({{kept, "new"}, {folder.path.string(), "new"}}), InputError);
    CHECK_THROWS_AS(write_outputs({{kept, "new"}, {"", "new"}}), InputError);
    CHECK(read_text_file(kept) == "old");
    forget_reads();  // another command
    // Nor does anything else stay behind.
    CHECK(std::distance(fs::directory_iterator(folder.path), fs::directory_iterator()) == 1);
    const std::string other = (folder.path / "other").string();
    write_outputs({{kept, "new"}, {other, "newer"}, {"/dev/null", "gone"}});
    CHECK(read_text_file(kept) == "new");
    CHECK(read_text_file(other) == "newer");
}

TEST_CASE("what was read is not written to, whichever of its names it has") {
    const TemporaryFolder folder;
    const auto path = [&](const char* name) { return (folder.path / name).string(); };
    write_text_file(path("read"), "old");
    fs::create_symlink("read", path("soft"));
    fs::create_hard_link(path("read"), path("hard"));
    CHECK(read_text_file(path("soft")) == "old");
    for (const char* name : {"read", "soft", "hard", "./read"}) {
        INFO(name);
        CHECK_THROWS_AS(write_outputs({{path("new"), "new"}, {path(name), "new"}}), InputError);
        CHECK_FALSE(fs::exists(path("new")));  // nor is another one
    }
    CHECK(blocks_of_file(path("read")) != nullptr);
    CHECK(read_text_file(path("read")) == "old");
    forget_reads();
    write_text_file(path("read"), "new");
    CHECK(read_text_file(path("read")) == "new");
}

TEST_CASE("two outputs have a file each, but for devices and standard output") {
    const TemporaryFolder folder;
    const std::string new_file = (folder.path / "new").string();
    const std::string same = (folder.path / "." / "new").string();
    CHECK_THROWS_AS(write_outputs({{new_file, "1"}, {same, "2"}}), InputError);
    CHECK(files_in(folder.path) == 0);
    write_outputs({{"/dev/null", "1"}, {"/dev/null", "2"}});
}

}  // namespace
}  // namespace bucketwise
