#include "hw/launch/launcher_process.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <climits>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <map>
#include <stdexcept>
#include <string_view>
#include <system_error>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/format.h>

#include "sim/base/transformed.h"

namespace bucketwise {
namespace {

// A child that cannot become the command writes this into its pipe: the mark, a letter for the
// step, and errno. No rank writes this, for by then there is none.
constexpr std::string_view not_started_mark = "not-started ";
constexpr char preparing = 'p';
constexpr char executing = 'e';

std::string message(int error) {
    return std::generic_category().message(error);
}

std::vector<int> open_descriptors() {
    std::vector<int> descriptors;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
        const std::string name = entry.path().filename().string();
        int number = -1;
        std::from_chars(name.data(), name.data() + name.size(), number);
        if (number > STDERR_FILENO) {
            descriptors.push_back(number);
        }
    }
    return descriptors;
}

using Variables = std::vector<std::pair<std::string, std::string>>;

Variables variables_of_rank(const LaunchRequest& request, int rank, const std::string& job,
                            int report_descriptor) {
    Variables variables = request.variables;
    const std::string number = std::to_string(rank);
    const std::string count = std::to_string(request.ranks);
    variables.insert(variables.end(),
                     {{"RANK", number},
                      {"WORLD_SIZE", count},
                      {"LOCAL_RANK", number},
                      {"LOCAL_WORLD_SIZE", count},
                      {"BUCKETWISE_LAUNCHER", job},
                      {"BUCKETWISE_REPORT_FD", std::to_string(report_descriptor)}});
    return variables;
}

// This process's environment with `variables`; the last of a name counts.
std::vector<std::string> environment_with(const Variables& variables) {
    std::map<std::string, std::string> lines;  // by name
    for (const auto& [name, value] : variables) {
        lines[name] = name + "=" + value;
    }
    for (char** line = environ; line != nullptr && *line != nullptr; ++line) {
        const std::string_view text(*line);
        lines.emplace(text.substr(0, text.find('=')), text);
    }
    return transformed(lines, &std::pair<const std::string, std::string>::second);
}

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
    std::vector<char*> pointers;
    for (std::string& text : texts) {
        pointers.push_back(text.data());
    }
    pointers.push_back(nullptr);
    return pointers;
}

// All that the child needs, made before fork: after it, another thread may have held malloc's lock
// for ever.
class Child {
  public:
    Child(const LaunchRequest& request, int rank, const std::string& job, int report_descriptor)
        : before_exec_(request.before_exec),
          rank_(rank),
          report_descriptor_(report_descriptor),
          arguments_(request.command),
          environment_(environment_with(variables_of_rank(request, rank, job, report_descriptor))),
          argument_pointers_(pointers_to(arguments_)),
          environment_pointers_(pointers_to(environment_)),
          null_(open_null()),
          inherited_(open_descriptors()) {}

    // In the child, with all signals blocked. From here on only what is safe in a signal handler.
    [[noreturn]] void become_command() const {
        ::setpgid(0, 0);
        die_with_launcher();
        if (before_exec_ && !before_exec_(rank_)) {
            give_up(preparing);
        }
        // Again: a process that changes its credentials, as by entering a user namespace, is
        // forgiven the first time.
        die_with_launcher();
        if (!arrange_descriptors()) {
            give_up(preparing);
        }
        arrange_signals();
        ::execve(argument_pointers_.front(), argument_pointers_.data(),
                 environment_pointers_.data());
        give_up(executing);
    }

  private:
    void die_with_launcher() const {
        if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) {
            give_up(preparing);
        }
        if (::getppid() != launcher_) {
            ::_exit(EXIT_FAILURE);  // it died before we asked to be told
        }
    }

    [[nodiscard]] bool arrange_descriptors() const {
        for (const int descriptor : inherited_) {
            ::fcntl(descriptor, F_SETFD, FD_CLOEXEC);  // some are no longer open, and that is fine
        }
        return ::fcntl(report_descriptor_, F_SETFD, 0) == 0 &&
               ::dup2(null_.get(), STDIN_FILENO) == STDIN_FILENO;
    }

    static void arrange_signals() {
        for (int signal = 1; signal < NSIG; ++signal) {
            struct sigaction action {};
            if (::sigaction(signal, nullptr, &action) == 0 && action.sa_handler != SIG_IGN) {
                // A handler of the launcher, run here, would speak to the launcher's own pipe.
                action = {};
                action.sa_handler = SIG_DFL;
                ::sigaction(signal, &action, nullptr);
            }
        }
        // A rank is in the background of its terminal. Under `stty tostop` it would be stopped for
        // printing.
        struct sigaction ignore {};
        ignore.sa_handler = SIG_IGN;
        ::sigaction(SIGTTOU, &ignore, nullptr);
        ::sigset_t none;
        ::sigemptyset(&none);
        ::pthread_sigmask(SIG_SETMASK, &none, nullptr);
    }

    [[noreturn]] void give_up(char step) const {
        const int error = errno;
        std::array<char, 64> line{};
        char* end = std::copy(not_started_mark.begin(), not_started_mark.end(), line.data());
        *end++ = step;
        *end++ = ' ';
        end = std::to_chars(end, line.data() + line.size() - 1, error).ptr;
        *end++ = '\n';
        [[maybe_unused]] const ssize_t written =
            ::write(report_descriptor_, line.data(), static_cast<std::size_t>(end - line.data()));
        ::_exit(EXIT_FAILURE);
    }

    const std::function<bool(int)>& before_exec_;
    int rank_;
    int report_descriptor_;
    ::pid_t launcher_ = ::getpid();
    std::vector<std::string> arguments_;
    std::vector<std::string> environment_;
    std::vector<char*> argument_pointers_;
    std::vector<char*> environment_pointers_;
    Descriptor null_;
    std::vector<int> inherited_;
};

::pid_t fork_into(const Child& child) {
    ::sigset_t all;
    ::sigset_t before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    const ::pid_t pid = ::fork();
    if (pid == 0) {
        child.become_command();
    }
    const int error = errno;
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    errno = error;
    return pid;
}

std::string without_control_characters(std::string text) {
    for (char& c : text) {
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
            c = ' ';  // it may be printed to a terminal
        }
    }
    return text;
}

}  // namespace

RankProcess::RankProcess(const LaunchRequest& request, int rank, const std::string& job)
    : rank_(rank), program_(request.command.front()) {
    Pipe pipe = open_pipe();
    const Child child(request, rank, job, pipe.write.get());
    pid_ = fork_into(child);
    if (pid_ < 0) {
        throw std::runtime_error(fmt::format("cannot start rank {}: {}", rank, message(errno)));
    }
    ::setpgid(pid_, pid_);  // as the child does: whoever is first, it holds from here on
    report_ = std::move(pipe.read);
}

RankProcess::~RankProcess() {
    if (running()) {
        send_signal(SIGKILL);
        reap();
    }
}

void RankProcess::send_signal(int signal) const {
    if (running()) {
        ::kill(-pid_, signal);
    }
}

std::optional<::siginfo_t> RankProcess::look(int options) const {
    ::siginfo_t info{};
    const bool found = running() &&
                       ::waitid(P_PID, static_cast<::id_t>(pid_), &info, options | WNOHANG) == 0 &&
                       info.si_pid == pid_;
    return found ? std::optional(info) : std::nullopt;
}

std::optional<ProcessStop> RankProcess::take_stop() {
    const std::optional<::siginfo_t> info = look(WSTOPPED | WCONTINUED);
    if (!info) {
        return std::nullopt;
    }
    return ProcessStop{info->si_code == CLD_STOPPED ? std::optional(info->si_status)
                                                    : std::nullopt};
}

std::optional<ProcessEnd> RankProcess::take_end() {
    return look(WEXITED | WNOWAIT) ? std::optional(reap()) : std::nullopt;
}

// Its group is killed between its end and the wait for it: until then nobody else can have the
// group's number.
ProcessEnd RankProcess::reap() {
    const auto wait = [this](::siginfo_t& info, int options) {
        while (::waitid(P_PID, static_cast<::id_t>(pid_), &info, options) != 0 && errno == EINTR) {
        }
    };
    ::siginfo_t info{};
    wait(info, WEXITED | WNOWAIT);
    send_signal(SIGKILL);
    wait(info, WEXITED);
    pid_ = -1;
    return {info.si_code != CLD_EXITED, info.si_status};
}

std::vector<RankReport> RankProcess::take_reports() {
    std::vector<RankReport> reports;
    std::array<char, PIPE_BUF> block{};
    // Bounded, so that a rank that writes without end does not keep the others waiting.
    for (int blocks = 0; blocks < 16 && report_.is_open(); ++blocks) {
        const ssize_t count = ::read(report_.get(), block.data(), block.size());
        if (count == 0) {
            report_.reset();
        }
        if (count <= 0) {
            break;
        }
        for (const char c : std::string_view(block.data(), static_cast<std::size_t>(count))) {
            if (c == '\n') {
                reports.push_back(parse(std::exchange(unfinished_line_, {})));
            } else if (unfinished_line_.size() < PIPE_BUF) {
                unfinished_line_.push_back(c);
            }
        }
    }
    return reports;
}

RankReport RankProcess::parse(const std::string& line) const {
    using Kind = RankReport::Kind;
    constexpr std::array<std::pair<std::string_view, Kind>, 3> kinds{
        {{"progress ", Kind::progress},
         {"failure own ", Kind::own_failure},
         {"failure peer ", Kind::peer_failure}}};
    for (const auto& [prefix, kind] : kinds) {
        if (line.starts_with(prefix)) {
            return {kind, without_control_characters(line.substr(prefix.size()))};
        }
    }
    const std::size_t step = not_started_mark.size();
    if (line.starts_with(not_started_mark) && line.size() > step + 2) {
        int error = 0;
        std::from_chars(line.data() + step + 2, line.data() + line.size(), error);
        throw std::runtime_error(fmt::format(
            "cannot start rank {}: {}: {}", rank_,
            line[step] == executing ? program_ : "cannot prepare its process", message(error)));
    }
    return {};
}

}  // namespace bucketwise
