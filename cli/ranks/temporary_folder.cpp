#include "cli/ranks/temporary_folder.h"

#include <array>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/format.h>

#include "hw/launch/rank_identity.h"
#include "sim/base/error.h"
#include "sim/text/system_reason.h"

namespace bucketwise {
namespace {

namespace fs = std::filesystem;

// Waits for the end of its input. Dying ranks may still write into the folder, so it tries again.
constexpr const char* guard_script = R"(cd /
read -r nothing
for attempt in 1 2 3 4 5 6 7 8 9 10; do
    rm -rf -- "$1" && exit
    sleep 1
done)";

}  // namespace

TemporaryFolder::TemporaryFolder() {
    const std::string expected = "a folder for temporary files, where the ranks can meet";
    std::error_code error;
    const fs::path parent = fs::temp_directory_path(error);
    if (error) {
        throw InputError("TMPDIR", "", expected,
                         fmt::format("{}: {}", environment_variable("TMPDIR").value_or("/tmp"),
                                     error.message()));
    }
    std::string name = (parent / "bucketwise-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) {
        throw std::runtime_error(fmt::format("TMPDIR: expected {}, got {}: {}", expected,
                                             parent.string(), system_reason(errno)));
    }
    path_ = name;
    start_guard();
}

TemporaryFolder::~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
    if (guard_ > 0) {
        ::kill(guard_, SIGKILL);
        while (::waitpid(guard_, nullptr, 0) < 0 && errno == EINTR) {
        }
    }
}

// In its own session, so that no terminal and no signal to this process's group reaches it, and
// without our streams, so that nobody who waits for their end waits for it.
void TemporaryFolder::start_guard() {
    Pipe pipe = open_pipe();
    ::fcntl(pipe.read.get(), F_SETFL, 0);  // waits
    std::error_code ignored;
    std::string shell = "sh";
    std::string option = "-c";
    std::string script = guard_script;
    std::string folder = fs::absolute(path_, ignored).string();
    std::string programs = "PATH=/usr/bin:/bin";
    const std::array<char*, 6> arguments{shell.data(), option.data(), script.data(),
                                         shell.data(), folder.data(), nullptr};
    const std::array<char*, 2> variables{programs.data(), nullptr};
    ::posix_spawn_file_actions_t actions{};
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, pipe.read.get(), STDIN_FILENO);
    for (const int stream : {STDOUT_FILENO, STDERR_FILENO}) {
        ::posix_spawn_file_actions_addopen(&actions, stream, "/dev/null", O_WRONLY, 0);
    }
    ::posix_spawnattr_t attributes{};
    ::posix_spawnattr_init(&attributes);
    ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID);
    if (::posix_spawn(&guard_, "/bin/sh", &actions, &attributes, arguments.data(),
                      variables.data()) == 0) {
        alive_ = std::move(pipe.write);
    } else {
        guard_ = -1;
    }
    ::posix_spawnattr_destroy(&attributes);
    ::posix_spawn_file_actions_destroy(&actions);
}

}  // namespace bucketwise
