#include "cli/plots.h"

#include <chrono>
#include <cstdlib>
#include <stdexcept>
#include <string_view>

#include <sys/mman.h>
#include <unistd.h>

#include <fmt/format.h>

#include "cli/shell/shipped_files.h"
#include "hw/launch/launcher.h"
#include "hw/launch/launcher_descriptor.h"
#include "sim/text/foreign_text.h"

namespace bucketwise {
namespace {

// A program's output, kept in memory, so that it vanishes with this process.
class PrintedText {
  public:
    PrintedText() : file_(::memfd_create("printed", MFD_CLOEXEC)) {}

    // In the child: only system calls.
    [[nodiscard]] bool take_streams() const {
        return ::dup2(file_.get(), STDOUT_FILENO) >= 0 && ::dup2(file_.get(), STDERR_FILENO) >= 0;
    }

    // Within the last 4 KiB.
    [[nodiscard]] std::string last_line() const {
        constexpr ::off_t longest = 4096;
        const ::off_t size = ::lseek(file_.get(), 0, SEEK_END);
        const ::off_t begin = size > longest ? size - longest : 0;
        std::string text(static_cast<std::size_t>(size > begin ? size - begin : 0), '\0');
        const ssize_t got = ::pread(file_.get(), text.data(), text.size(), begin);
        text.resize(static_cast<std::size_t>(got > 0 ? got : 0));
        while (!text.empty() && text.back() == '\n') {
            text.pop_back();
        }
        return text.substr(text.rfind('\n') + 1);  // npos + 1 is 0
    }

  private:
    Descriptor file_;
};

// The program's failure, if any. Like a rank, it ends with this process. Its output goes into
// `printed`.
std::optional<LaunchFailure> run_program(const std::vector<std::string>& command,
                                         const PrintedText& printed) {
    LaunchRequest request;
    request.command = command;
    constexpr std::chrono::hours as_long_as_it_takes{24};
    request.deadline = as_long_as_it_takes;
    request.before_exec = [&](int /*rank*/) { return printed.take_streams(); };
    try {
        return launch_ranks(request, {});
    } catch (const std::runtime_error& error) {  // no memory for one more process
        return LaunchFailure{.rank = std::nullopt, .reason = error.what()};
    }
}

// `why` without folders of this machine, as it stands in the report.
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
    // First the Python of a wheel, whose extra `plots` has matplotlib. The user's python3 may lack
    // the system's packages.
    const char* own = std::getenv("BUCKETWISE_PYTHON");  // NOLINT(concurrency-mt-unsafe)
    std::string why;
    for (const char* python : {own, "python3", "/usr/bin/python3"}) {
        if (python == nullptr) {
            continue;
        }
        const PrintedText printed;
        const std::optional<LaunchFailure> failure =
            run_program({"/usr/bin/env", python, script, folder}, printed);
        if (!failure) {
            return std::nullopt;
        }
        if (failure->interrupted) {
            throw std::runtime_error(fmt::format(
                "{} while pictures were drawn; {} keeps all but these and the report, --resume "
                "goes on",
                failure->reason, folder));
        }
        constexpr std::size_t longest = 500;
        const std::string said =
            shown_line(without_places(printed.last_line(), {folder + "/", place}), longest);
        why = fmt::format("{} plots/plot.py {}{}", python, failure->reason,
                          said.empty() ? "" : ": " + said);
    }
    return why;
}

}  // namespace bucketwise
