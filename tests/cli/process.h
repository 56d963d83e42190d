// Programs as a shell would start them, and what becomes of them and their children.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "tests/catch.h"

namespace bucketwise {

// The smallest scenario that ships.
const std::string two_buckets = std::string(BUCKETWISE_SCENARIO_DIR) + "/two_buckets.json";

// Nothing in these tests takes as long, on a busy machine: it hangs. Sanitizers take longer.
constexpr std::chrono::seconds hang_limit{BUCKETWISE_TEST_SHARE > 1 ? 300 : 60};

// Looks again and again until the condition holds; false if it does not within the limit.
inline bool wait_until(const std::function<bool()>& condition) {
    const auto limit = std::chrono::steady_clock::now() + hang_limit;
    while (!condition()) {
        if (std::chrono::steady_clock::now() >= limit) {
            return false;
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return true;
}

inline std::string text_of_file(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

inline void write_file(const std::filesystem::path& path, const std::string& text) {
    std::ofstream file(path, std::ios::binary);
    file << text;
    REQUIRE(file.flush());
}

// A folder of the test's own, removed at the end.
class TestFolder {
  public:
    TestFolder() {
        std::string name =
            (std::filesystem::temp_directory_path() / "measure test.XXXXXX").string();
        REQUIRE(::mkdtemp(name.data()) != nullptr);
        path_ = name;
    }
    ~TestFolder() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    TestFolder(const TestFolder&) = delete;
    TestFolder& operator=(const TestFolder&) = delete;

    [[nodiscard]] std::string path() const { return path_.string(); }
    [[nodiscard]] std::string file(const std::string& name) const {
        return (path_ / name).string();
    }

  private:
    std::filesystem::path path_;
};

// A process that the test may not be the parent of. Its number may be used again, but not with the
// same time of start.
struct ProcessId {
    ::pid_t number = -1;
    std::string start;

    [[nodiscard]] bool operator==(const ProcessId&) const = default;
};

struct ProcessState {
    char letter = '?';  // 'Z': has ended, and nobody has asked how
    std::string start;
};

inline std::optional<ProcessState> state_of(::pid_t process) {
    const std::string stat = text_of_file("/proc/" + std::to_string(process) + "/stat");
    const std::size_t name_end = stat.rfind(')');
    if (name_end == std::string::npos) {
        return std::nullopt;
    }
    // man proc_pid_stat: the name is field 2, the state 3 and the time of start 22.
    std::istringstream rest(stat.substr(name_end + 1));
    const std::vector<std::string> fields{std::istream_iterator<std::string>(rest), {}};
    REQUIRE(fields.size() > 19);
    return ProcessState{fields[0][0], fields[19]};
}

inline bool is_alive(const ProcessId& process) {
    const std::optional<ProcessState> state = state_of(process.number);
    return state && state->start == process.start && state->letter != 'Z' && state->letter != 'X';
}

inline std::vector<ProcessId> children_of(::pid_t process) {
    const std::string number = std::to_string(process);
    std::istringstream list(text_of_file("/proc/" + number + "/task/" + number + "/children"));
    std::vector<ProcessId> children;
    for (::pid_t child = 0; list >> child;) {
        if (const std::optional<ProcessState> state = state_of(child)) {
            children.push_back({child, state->start});
        }
    }
    return children;
}

// A variable at the start of the process; empty: unset.
inline std::string variable_of(const ProcessId& process, const std::string& name) {
    const std::string text =
        '\0' + text_of_file("/proc/" + std::to_string(process.number) + "/environ");
    const std::string key = '\0' + name + '=';
    const std::size_t found = text.find(key);
    const std::size_t begin = found + key.size();
    return found == std::string::npos ? "" : text.substr(begin, text.find('\0', begin) - begin);
}

// The ranks among the children of a launcher, which also has who tidies up after it.
inline std::vector<ProcessId> ranks_of(::pid_t launcher) {
    std::vector<ProcessId> ranks;
    for (const ProcessId& child : children_of(launcher)) {
        if (!variable_of(child, "RANK").empty()) {
            ranks.push_back(child);
        }
    }
    return ranks;
}

using Words = std::vector<std::string>;

inline Words operator+(Words words, const Words& more) {
    words.insert(words.end(), more.begin(), more.end());
    return words;
}

struct Surroundings {
    std::map<std::string, std::string> variables = {};  // beside those of the test
    std::string folder = {};                            // to run in; empty: the test's
};

// Killed, if it is still there, when this goes.
class Process {
  public:
    explicit Process(Words words, const Surroundings& surroundings = {}) {
        Words lines = environment(surroundings);
        ::posix_spawn_file_actions_t actions;
        ::posix_spawn_file_actions_init(&actions);
        constexpr int create = O_WRONLY | O_CREAT | O_APPEND;
        ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
        ::posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, streams_.file("out").c_str(),
                                           create, 0600);
        ::posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, streams_.file("err").c_str(),
                                           create, 0600);
        if (!surroundings.folder.empty()) {
            ::posix_spawn_file_actions_addchdir_np(&actions, surroundings.folder.c_str());
        }
        const int error = ::posix_spawnp(&pid_, words.front().c_str(), &actions, nullptr,
                                         pointers_to(words).data(), pointers_to(lines).data());
        ::posix_spawn_file_actions_destroy(&actions);
        REQUIRE(error == 0);
    }
    ~Process() {
        if (pid_ > 0) {
            send(SIGKILL);
            ::waitpid(pid_, nullptr, 0);
        }
    }
    Process(const Process&) = delete;
    Process& operator=(const Process&) = delete;

    [[nodiscard]] ::pid_t pid() const { return pid_; }
    [[nodiscard]] bool has_ended() const {
        ::siginfo_t info{};
        return pid_ < 0 || (::waitid(P_PID, static_cast<::id_t>(pid_), &info,
                                     WEXITED | WNOHANG | WNOWAIT) == 0 &&
                            info.si_pid == pid_);
    }
    void send(int signal) const { ::kill(pid_, signal); }

    // Its exit code, or 128 and the signal that killed it, as in a shell.
    int wait() {
        INFO(errors());
        REQUIRE(wait_until([this] { return has_ended(); }));
        int status = 0;
        ::waitpid(pid_, &status, 0);
        pid_ = -1;
        return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }

    [[nodiscard]] std::string output() const { return text_of_file(streams_.file("out")); }
    [[nodiscard]] std::string errors() const { return text_of_file(streams_.file("err")); }

  private:
    // Without what a launcher may have told the test.
    static Words environment(const Surroundings& surroundings) {
        constexpr std::array<std::string_view, 8> of_launchers{
            "RANK=", "WORLD_SIZE=", "LOCAL_", "OMPI_", "PMI", "SLURM_", "BUCKETWISE_", "TORCH"};
        Words lines;
        for (char** line = environ; *line != nullptr; ++line) {
            const std::string_view text(*line);
            const auto is_prefix = [&](std::string_view prefix) {
                return text.starts_with(prefix);
            };
            if (std::none_of(of_launchers.begin(), of_launchers.end(), is_prefix) &&
                surroundings.variables.count(std::string(text.substr(0, text.find('=')))) == 0) {
                lines.emplace_back(text);
            }
        }
        for (const auto& [name, value] : surroundings.variables) {
            lines.push_back(name + "=" + value);
        }
        return lines;
    }

    static std::vector<char*> pointers_to(Words& words) {
        std::vector<char*> pointers;
        for (std::string& word : words) {
            pointers.push_back(word.data());
        }
        pointers.push_back(nullptr);
        return pointers;
    }

    TestFolder streams_;
    ::pid_t pid_ = -1;
};

struct Outcome {
    int exit_code = -1;
    std::string output;
    std::string errors;
};

// Runs a program to its end.
inline Outcome run(const Words& words, const Surroundings& surroundings = {}) {
    Process process(words, surroundings);
    const int exit_code = process.wait();
    return {exit_code, process.output(), process.errors()};
}

inline void check_contains(const std::string& text, const std::vector<std::string>& parts) {
    INFO(text);
    for (const std::string& part : parts) {
        INFO(part);
        CHECK(text.find(part) != std::string::npos);
    }
}

// A silent success. Its output.
inline std::string check_ends_well(const Outcome& outcome) {
    INFO(outcome.errors);
    CHECK(outcome.errors.empty());
    REQUIRE(outcome.exit_code == 0);
    return outcome.output;
}

inline Outcome bucketwise(const Words& arguments) {
    return run(Words{BUCKETWISE_BINARY} + arguments);
}

inline void check_one_line(const std::string& errors) {
    INFO(errors);
    CHECK(errors.rfind("bucketwise: ", 0) == 0);
    CHECK(std::count(errors.begin(), errors.end(), '\n') == 1);
    CHECK(errors.back() == '\n');
}

// A failure with that code and one line on standard error, which is returned.
inline std::string check_fails(int exit_code, const Outcome& outcome) {
    CHECK(outcome.exit_code == exit_code);
    CHECK(outcome.output.empty());
    check_one_line(outcome.errors);
    return outcome.errors;
}

}  // namespace bucketwise
