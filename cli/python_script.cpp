#include "cli/python_script.h"

#include <chrono>
#include <cstdlib>
#include <stdexcept>

#include <sys/mman.h>
#include <unistd.h>

#include <fmt/format.h>

#include "cli/shell/shipped_files.h"
#include "hw/launch/launcher.h"
#include "hw/launch/launcher_descriptor.h"
#include "sim/text/foreign_text.h"

namespace bucketwise {
namespace {

// Input or output of a program, in memory, so that no file of it is left behind.
class MemoryFile {
  public:
    MemoryFile() : file_(::memfd_create("stream", MFD_CLOEXEC)) {}

    void write(std::string_view text) const {
        while (!text.empty()) {
            const ssize_t count = ::write(file_.get(), text.data(), text.size());
            if (count <= 0) {
                throw std::runtime_error("no memory for what a script reads");
            }
            text.remove_prefix(static_cast<std::size_t>(count));
        }
    }

    // As another process of the same user opens it.
    [[nodiscard]] std::string path() const {
        return fmt::format("/proc/{}/fd/{}", ::getpid(), file_.get());
    }

    // In the child: only a system call.
    [[nodiscard]] bool becomes(int stream) const { return ::dup2(file_.get(), stream) >= 0; }

    [[nodiscard]] std::string text() const {
        const ::off_t size = ::lseek(file_.get(), 0, SEEK_END);
        std::string text(static_cast<std::size_t>(size > 0 ? size : 0), '\0');
        std::size_t have = 0;
        for (ssize_t got = 1; got > 0 && have < text.size();
             have += static_cast<std::size_t>(got)) {
            got = ::pread(file_.get(), text.data() + have, text.size() - have,
                          static_cast<::off_t>(have));
            got = got < 0 ? 0 : got;
        }
        text.resize(have);
        return text;
    }

  private:
    Descriptor file_;
};

std::string last_line(std::string text) {
    while (!text.empty() && text.back() == '\n') {
        text.pop_back();
    }
    return text.substr(text.rfind('\n') + 1);  // npos + 1 is 0
}

// `why` without the places of files on this machine, as it stands in reports.
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

ScriptRun run_script(const std::string& script, std::vector<std::string> arguments,
                     std::string_view input) {
    const std::string path = shipped_file(script).value_or(script);
    std::vector<std::string> folders = arguments;
    for (std::string& folder : folders) {
        folder += "/";
    }
    folders.push_back(path.substr(0, path.size() - script.size()));
    const MemoryFile read;
    if (!input.empty()) {
        read.write(input);
        arguments.push_back(read.path());
    }
    ScriptRun run;
    // A python3 of the user's own may come first and know nothing of the system's packages.
    const char* own = std::getenv("BUCKETWISE_PYTHON");  // NOLINT(concurrency-mt-unsafe)
    for (const char* python : {own, "python3", "/usr/bin/python3"}) {
        if (python == nullptr) {
            continue;
        }
        const MemoryFile printed;
        const MemoryFile said;
        LaunchRequest request;
        request.command = {"/usr/bin/env", python, path};
        request.command.insert(request.command.end(), arguments.begin(), arguments.end());
        constexpr std::chrono::hours as_long_as_it_takes{24};
        request.deadline = as_long_as_it_takes;
        request.before_exec = [&](int /*rank*/) {
            return printed.becomes(STDOUT_FILENO) && said.becomes(STDERR_FILENO);
        };
        // As a rank, it ends with this process, whatever ends that.
        std::optional<LaunchFailure> failure;
        try {
            failure = launch_ranks(request, {});
        } catch (const std::runtime_error& error) {  // such as no memory for one more process
            failure = LaunchFailure{.rank = std::nullopt, .reason = error.what()};
        }
        run.output = printed.text();
        if (!failure) {
            run.failure.reset();
            return run;
        }
        if (failure->interrupted) {
            throw std::runtime_error(failure->reason);
        }
        constexpr std::size_t longest = 500;
        const std::string text = said.text();
        const std::string line = shown_line(
            without_places(last_line(text.empty() ? run.output : text), folders), longest);
        run.failure = fmt::format("{} {} {}{}", python, script, failure->reason,
                                  line.empty() ? "" : ": " + line);
    }
    return run;
}

std::optional<std::string> draw_plots(const std::string& folder) {
    try {
        return run_script("plots/plot.py", {folder}).failure;
    } catch (const std::runtime_error& interrupted) {
        throw std::runtime_error(fmt::format(
            "{} while pictures were drawn; {} keeps all but these and the report, --resume goes on",
            interrupted.what(), folder));
    }
}

}  // namespace bucketwise
