#include "cli/shell/plots.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <vector>

#include <fmt/format.h>

#include "cli/shell/files.h"
#include "cli/shell/shipped_files.h"
#include "sim/text/foreign_text.h"

namespace bucketwise {
namespace {

namespace fs = std::filesystem;

// Runs a program found on PATH to its end, its output in `log`; the exit code, or 127 when it
// cannot be started.
int run_program(std::vector<std::string> arguments, const std::string& log) {
    constexpr int not_started = 127;
    std::vector<char*> pointers;
    pointers.reserve(arguments.size() + 1);
    for (std::string& argument : arguments) {
        pointers.push_back(argument.data());
    }
    pointers.push_back(nullptr);
    posix_spawn_file_actions_t actions{};
    posix_spawn_file_actions_init(&actions);
    constexpr int mode = 0600;
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, log.c_str(),
                                     O_WRONLY | O_CREAT | O_TRUNC, mode);
    posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
    pid_t process = 0;
    const int error =
        ::posix_spawnp(&process, pointers.front(), &actions, nullptr, pointers.data(), ::environ);
    posix_spawn_file_actions_destroy(&actions);
    if (error != 0) {
        return not_started;
    }
    int status = 0;
    while (::waitpid(process, &status, 0) < 0) {
        if (errno != EINTR) {
            return not_started;
        }
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : not_started;
}

std::string last_line(std::string text) {
    while (!text.empty() && text.back() == '\n') {
        text.pop_back();
    }
    const std::size_t end = text.rfind('\n');
    return end == std::string::npos ? text : text.substr(end + 1);
}

// `why` without where on this machine the files lie that it names: it stands in the report.
std::string without_places(std::string why, const std::vector<std::string>& folders) {
    for (const std::string& folder : folders) {
        for (std::size_t at = why.find(folder); !folder.empty() && at != std::string::npos;
             at = why.find(folder, at)) {
            why.erase(at, folder.size());
        }
    }
    return why;
}

}  // namespace

std::optional<std::string> draw_plots(const std::string& folder) {
    const std::string script = shipped_file("plots/plot.py").value_or("plots/plot.py");
    const std::string place =
        script.substr(0, script.size() - std::string_view("plots/plot.py").size());
    // A python3 of the user's own may come first and know nothing of the system's packages.
    std::string why;
    for (const char* python : {"python3", "/usr/bin/python3"}) {
        const std::string log = folder + "/plots.log";
        const int exit_code = run_program({python, script, folder}, log);
        std::error_code ignored;
        constexpr std::size_t longest = 500;
        const std::string said =
            fs::exists(log, ignored)
                ? shown_line(without_places(last_line(read_text_file(log)), {folder + "/", place}),
                             longest)
                : "";
        fs::remove(log, ignored);
        if (exit_code == 0) {
            return std::nullopt;
        }
        why = fmt::format("{} plots/plot.py ended with {}{}", python, exit_code,
                          said.empty() ? "" : ": " + said);
    }
    return why;
}

}  // namespace bucketwise
