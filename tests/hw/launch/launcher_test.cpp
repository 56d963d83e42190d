// Ranks here are scripts of /bin/sh. `report` writes to the launcher; `hang` never ends by itself.
// No test asserts how long anything takes.
#include "hw/launch/launcher.h"
#include "hw/launch/launcher_report.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <stdexcept>
#include <thread>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/catch.h"

namespace bucketwise {
namespace {

using namespace std::chrono_literals;
using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;

const std::string words =
    "report() { echo \"$@\" > /dev/fd/$BUCKETWISE_REPORT_FD; }\n"
    "hang() { exec sleep 1000; }\n";

// This program's tests run in one thread.
void set_variable(const std::string& name, const std::string& value) {
    ::setenv(name.c_str(), value.c_str(), 1);  // NOLINT(concurrency-mt-unsafe)
}

void unset_variable(const std::string& name) {
    ::unsetenv(name.c_str());  // NOLINT(concurrency-mt-unsafe)
}

LaunchRequest ranks_of(int ranks, const std::string& script) {
    LaunchRequest request;
    request.command = {"/bin/sh", "-c", words + script};
    request.ranks = ranks;
    return request;
}

std::size_t open_descriptors() {
    const std::filesystem::directory_iterator entries("/proc/self/fd");
    return static_cast<std::size_t>(std::distance(begin(entries), end(entries)));
}

bool has_children() {
    return ::waitpid(-1, nullptr, WNOHANG) != -1 || errno != ECHILD;
}

bool exists(int pid) {
    return ::kill(pid, 0) == 0 || errno != ESRCH;
}

// Launches, and checks that nothing is left behind however it ends.
class Launcher {
  public:
    explicit Launcher(LaunchRequest request_) : request(std::move(request_)) {}

    std::optional<LaunchFailure> run() {
        struct sigaction before {};
        ::sigaction(SIGINT, nullptr, &before);
        const std::size_t descriptors = open_descriptors();
        const LeftBehind check{*this, descriptors, before.sa_handler};
        return launch_ranks(request, [this](const LaunchProgress& progress) {
            lines[progress.rank].push_back(progress.text);
            if (progress.text.starts_with("pid ")) {
                pids[progress.rank] = std::stoi(progress.text.substr(4));
            }
            if (on_progress) {
                on_progress(progress);
            }
        });
    }

    // Acts with each report once all ranks have reported their pids.
    void when_all_are_there(const std::function<void()>& act) {
        on_progress = [this, act](const LaunchProgress&) {
            if (all_are_there()) {
                act();
            }
        };
    }
    [[nodiscard]] bool all_are_there() const {
        return pids.size() == static_cast<std::size_t>(request.ranks);
    }

    LaunchRequest request;
    std::function<void(const LaunchProgress&)> on_progress;
    std::map<int, std::vector<std::string>> lines;
    std::map<int, int> pids;

  private:
    struct LeftBehind {
        const Launcher& launcher;
        std::size_t descriptors;
        void (*interrupt_handler)(int);

        ~LeftBehind() {
            CHECK_FALSE(has_children());
            for (const auto& [rank, pid] : launcher.pids) {
                CHECK_FALSE(exists(pid));
            }
            CHECK(open_descriptors() == descriptors);
            struct sigaction after {};
            ::sigaction(SIGINT, nullptr, &after);
            CHECK(after.sa_handler == interrupt_handler);
        }
    };
};

// Holds ranks until it is opened for some of them: `read line < PATH` waits there.
class Gate {
  public:
    Gate() {
        std::string folder = (std::filesystem::temp_directory_path() / "launcher.XXXXXX").string();
        REQUIRE(::mkdtemp(folder.data()) != nullptr);
        folder_ = folder;
        REQUIRE(::mkfifo(path().c_str(), 0600) == 0);
        descriptor_ = ::open(path().c_str(), O_RDWR | O_CLOEXEC);
        REQUIRE(descriptor_ >= 0);
    }
    ~Gate() {
        ::close(descriptor_);
        std::filesystem::remove_all(folder_);
    }
    Gate(const Gate&) = delete;
    Gate& operator=(const Gate&) = delete;

    [[nodiscard]] std::string path() const { return (folder_ / "gate").string(); }
    void open(std::size_t ranks) const {
        const std::string lines(ranks, '\n');
        REQUIRE(::write(descriptor_, lines.data(), ranks) == static_cast<ssize_t>(ranks));
    }

  private:
    std::filesystem::path folder_;
    int descriptor_ = -1;
};

void stop_and_wait(int pid) {
    ::kill(pid, SIGSTOP);
    ::siginfo_t info{};
    REQUIRE(::waitid(P_PID, static_cast<::id_t>(pid), &info, WSTOPPED | WNOWAIT) == 0);
}

// Leaves it for the launcher to collect, unless that has done so.
void wait_for_end(int pid) {
    ::siginfo_t info{};
    REQUIRE((::waitid(P_PID, static_cast<::id_t>(pid), &info, WEXITED | WNOWAIT) == 0 ||
             errno == ECHILD));
}

// The failure: there must be one.
LaunchFailure failure_of(Launcher& launcher) {
    const std::optional<LaunchFailure> failure = launcher.run();
    REQUIRE(failure);
    INFO(failure->reason);
    CHECK(failure->reason.find('\n') == std::string::npos);
    return *failure;
}

void check_failure(Launcher& launcher, int rank, const std::string& reason) {
    const LaunchFailure failure = failure_of(launcher);
    CHECK(failure.rank == rank);
    CHECK(failure.reason == reason);
}

TEST_CASE("a launch in which all ranks end well has no failure") {
    Launcher launcher(ranks_of(3, "report progress pid $$; report progress half way"));
    CHECK_FALSE(launcher.run());
    REQUIRE(launcher.lines.size() == 3);
    for (const auto& [rank, lines] : launcher.lines) {
        CHECK(lines.back() == "half way");
    }
}

TEST_CASE("a launch of 128 ranks works") {
    Launcher launcher(ranks_of(128, "report progress pid $$"));
    CHECK_FALSE(launcher.run());
    CHECK(launcher.all_are_there());
}

TEST_CASE("a rank finds its number, the variables asked for and the launcher's environment") {
    set_variable("BUCKETWISE_TEST_INHERITED", "kept");
    set_variable("WORLD_SIZE", "77");
    Launcher launcher(
        ranks_of(2,
                 "report progress $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE "
                 "$BUCKETWISE_TEST_INHERITED $WANTED; report progress $BUCKETWISE_LAUNCHER"));
    launcher.request.variables = {{"WANTED", "a=b"}};
    CHECK_FALSE(launcher.run());
    unset_variable("BUCKETWISE_TEST_INHERITED");
    unset_variable("WORLD_SIZE");
    CHECK(launcher.lines[0].front() == "0 2 0 2 kept a=b");
    CHECK(launcher.lines[1].front() == "1 2 1 2 kept a=b");
    CHECK_FALSE(launcher.lines[0].back().empty());
    CHECK(launcher.lines[0].back() == launcher.lines[1].back());
}

TEST_CASE("a rank inherits the standard streams and its pipe, and reads nothing") {
    // Not close-on-exec, and a number that the shell does not use itself.
    const int ours = ::fcntl(STDERR_FILENO, F_DUPFD, 200);
    REQUIRE(ours >= 200);
    Launcher launcher(
        ranks_of(2,
                 "report progress $(readlink /proc/$$/fd/0); cd /proc/$$/fd; report progress *; "
                 "report progress $BUCKETWISE_REPORT_FD; cat"));
    CHECK_FALSE(launcher.run());
    ::close(ours);
    for (const auto& [rank, lines] : launcher.lines) {
        REQUIRE(lines.size() == 3);
        CHECK(lines[0] == "/dev/null");
        CHECK(lines[1].find("0 1 2 ") == 0);
        CHECK(lines[1].find(std::to_string(ours)) == std::string::npos);
        CHECK(lines[1].find(lines[2]) != std::string::npos);
    }
}

TEST_CASE("a rank starts with no signal blocked and in a process group of its own") {
    Launcher launcher(ranks_of(1,
                               "report progress $(grep SigBlk /proc/self/status);"
                               "report progress $(cut -d ' ' -f 5 /proc/$$/stat) $$"));
    ::sigset_t interrupt;
    ::sigset_t before;
    ::sigemptyset(&interrupt);
    ::sigaddset(&interrupt, SIGINT);
    ::pthread_sigmask(SIG_BLOCK, &interrupt, &before);
    CHECK_FALSE(launcher.run());
    ::sigset_t after;
    ::pthread_sigmask(SIG_SETMASK, &before, &after);
    CHECK(::sigismember(&after, SIGINT) == 1);
    CHECK_THAT(launcher.lines[0][0], Contains("0000000000000000"));
    const std::string& numbers = launcher.lines[0][1];
    const std::size_t space = numbers.find(' ');
    CHECK(numbers.substr(0, space) == numbers.substr(space + 1));
}

TEST_CASE("a rank that is killed is named, and the others are ended") {
    Launcher launcher(ranks_of(3, "report progress pid $$; hang"));
    launcher.when_all_are_there([&] { ::kill(launcher.pids[1], SIGKILL); });
    const LaunchFailure failure = failure_of(launcher);
    CHECK(failure.rank == 1);
    CHECK_THAT(failure.reason, StartsWith("was killed by signal 9 (Killed)"));
    CHECK_THAT(failure.reason, Contains("memory"));
    CHECK_FALSE(failure.interrupted);
}

TEST_CASE("ranks that ignore SIGTERM are ended too") {
    Launcher launcher(ranks_of(2,
                               "trap '' TERM; report progress pid $$; "
                               "if [ $RANK = 0 ]; then exit 3; fi; hang"));
    check_failure(launcher, 0, "exited with status 3");
}

TEST_CASE("what a rank has started does not outlive it") {
    // The child holds the pipe open: the test sees it go.
    std::array<int, 2> alive{};
    REQUIRE(::pipe2(alive.data(), O_CLOEXEC) == 0);
    Launcher launcher(ranks_of(1, "sleep 1000 & report progress there; exit 0"));
    launcher.request.before_exec = [&](int) { return ::dup2(alive[1], STDERR_FILENO) >= 0; };
    CHECK_FALSE(launcher.run());
    ::close(alive[1]);
    char byte = 0;
    CHECK(::read(alive[0], &byte, 1) == 0);  // waits for its last writer
    ::close(alive[0]);
}

TEST_CASE("a rank that is stopped is named once the deadline has passed") {
    Launcher launcher(ranks_of(3,
                               "if [ $RANK = 1 ]; then report progress pid $$; kill -STOP $$; fi; "
                               "while report progress alive; do sleep 0.05; done"));
    launcher.request.deadline = 500ms;
    const LaunchFailure failure = failure_of(launcher);
    CHECK(failure.rank == 1);
    CHECK_THAT(failure.reason,
               StartsWith("was stopped by signal 19 (Stopped (signal)) and did not go on within"));
}

TEST_CASE("a stopped rank is the cause when others blame a peer or exit because of it") {
    const std::string end = GENERATE("report failure peer no answer", "exit 1");
    INFO(end);
    const Gate gate;
    Launcher launcher(ranks_of(3, "report progress pid $$; if [ $RANK != 1 ]; then read line < " +
                                      gate.path() + "; " + end + "; fi; hang"));
    launcher.when_all_are_there([&] {
        stop_and_wait(launcher.pids[1]);
        gate.open(2);
    });
    const LaunchFailure failure = failure_of(launcher);
    CHECK(failure.rank == 1);
    CHECK_THAT(failure.reason, StartsWith("was stopped by signal 19 (Stopped (signal))"));
}

TEST_CASE("a rank that is killed counts more than one that is stopped") {
    Launcher launcher(ranks_of(3, "report progress pid $$; hang"));
    launcher.when_all_are_there([&] {
        stop_and_wait(launcher.pids[0]);
        ::kill(launcher.pids[2], SIGSEGV);
    });
    check_failure(launcher, 2, "was killed by signal 11 (Segmentation fault)");
}

TEST_CASE("a rank that is stopped and goes on in time is no failure") {
    const Gate gate;
    Launcher launcher(ranks_of(2, "report progress pid $$; read line < " + gate.path()));
    launcher.when_all_are_there([&] {
        stop_and_wait(launcher.pids[0]);
        ::kill(launcher.pids[0], SIGCONT);
        gate.open(2);
    });
    CHECK_FALSE(launcher.run());
}

TEST_CASE("a rank that reports nothing for the deadline is named, not those that report") {
    // Rank 0 is started first: it is the first to be late, however slow the machine.
    Launcher launcher(ranks_of(3,
                               "if [ $RANK = 0 ]; then hang; fi; "
                               "while report progress alive; do sleep 0.05; done"));
    launcher.request.deadline = 500ms;
    check_failure(launcher, 0, "gave no sign of life for 0.5 s");
}

TEST_CASE("a rank's own failure is told in its words, whatever its exit status") {
    const std::string status = GENERATE("0", "3");
    Launcher launcher(ranks_of(2, "if [ $RANK = 1 ]; then report failure own out of paper; exit " +
                                      status + "; fi; hang"));
    check_failure(launcher, 1, "failed: out of paper");
}

TEST_CASE("a report that blames a peer gives way to that peer's failure, even a later one") {
    const std::string end =
        GENERATE("exit 3", "kill -KILL $$", "report failure own no disk; exit 1");
    INFO(end);
    const Gate to_blame;
    const Gate to_end;
    Launcher launcher(
        ranks_of(2, "report progress pid $$; if [ $RANK = 1 ]; then read line < " + to_end.path() +
                        "; " + end + "; fi; read line < " + to_blame.path() +
                        "; report failure peer rank 1 has gone; report progress said it; exit 1"));
    launcher.on_progress = [&](const LaunchProgress& progress) {
        if (progress.text == "said it") {
            to_end.open(1);
        } else if (launcher.all_are_there()) {
            to_blame.open(1);
        }
    };
    CHECK(failure_of(launcher).rank == 1);
}

TEST_CASE("a report that blames a peer accuses who goes on without a word") {
    Launcher launcher(
        ranks_of(2, "if [ $RANK = 0 ]; then report failure peer no answer; fi; hang"));
    check_failure(launcher, 1, "did not answer the others (rank 0 failed: no answer)");
}

TEST_CASE("a report that blames a peer is the reason if all ranks have made one") {
    Launcher launcher(ranks_of(2, "report failure peer no answer; hang"));
    const LaunchFailure failure = failure_of(launcher);
    CHECK(failure.rank.has_value());
    CHECK(failure.reason == "failed: no answer");
}

TEST_CASE("a report that blames a peer comes with who had ended before it") {
    const Gate gate;
    Launcher launcher(ranks_of(2,
                               "report progress pid $$; if [ $RANK = 1 ]; then exit 0; fi; "
                               "read line < " +
                                   gate.path() + "; report failure peer it left; exit 1"));
    launcher.when_all_are_there([&] {
        wait_for_end(launcher.pids[1]);
        gate.open(1);
    });
    check_failure(launcher, 0, "failed: it left (rank 1 had ended before)");
}

TEST_CASE("a rank that ends well before the others is no failure") {
    const Gate gate;
    Launcher launcher(ranks_of(
        2, "report progress pid $$; if [ $RANK = 1 ]; then read line < " + gate.path() + "; fi"));
    launcher.when_all_are_there([&] {
        wait_for_end(launcher.pids[0]);
        gate.open(1);
    });
    CHECK_FALSE(launcher.run());
}

TEST_CASE("a signal that interrupts the launcher ends the ranks and is named") {
    const auto [signal, name] =
        GENERATE(table<int, std::string>({{SIGINT, "signal 2 (Interrupt)"},
                                          {SIGTERM, "signal 15 (Terminated)"},
                                          {SIGHUP, "signal 1 (Hangup)"}}));
    const std::string before = GENERATE("", "trap '' TERM; ", "kill -STOP $$; ");
    INFO(name << " " << before);
    Launcher launcher(ranks_of(2, "report progress pid $$; " + before + "hang"));
    launcher.when_all_are_there([&, number = signal] { ::raise(number); });
    const LaunchFailure failure = failure_of(launcher);
    CHECK(failure.interrupted);
    CHECK_FALSE(failure.rank);
    CHECK(failure.reason == "interrupted by " + name);
}

TEST_CASE("a signal that the caller ignores does not interrupt") {
    struct sigaction ignore {};
    struct sigaction before {};
    ignore.sa_handler = SIG_IGN;
    ::sigaction(SIGHUP, &ignore, &before);
    Launcher launcher(ranks_of(1, "report progress pid $$"));
    launcher.on_progress = [](const LaunchProgress&) { ::raise(SIGHUP); };
    CHECK_FALSE(launcher.run());
    ::sigaction(SIGHUP, &before, nullptr);
}

TEST_CASE("an exception from on_progress ends the ranks and passes through") {
    Launcher launcher(ranks_of(3, "report progress pid $$; hang"));
    launcher.when_all_are_there([&] { throw std::logic_error("not today"); });
    CHECK_THROWS_WITH(launcher.run(), "not today");
}

TEST_CASE("a command that cannot be started is an error that says why") {
    Launcher launcher(ranks_of(3, "hang"));
    launcher.request.command = {"/no/such/program"};
    CHECK_THROWS_WITH(launcher.run(), Contains("cannot start rank ") &&
                                          Contains("/no/such/program: No such file or directory"));
    launcher.request.command = {"/"};
    CHECK_THROWS_WITH(launcher.run(), Contains("/: Permission denied"));
}

TEST_CASE("what is done before exec happens in each rank, and its failure is an error") {
    Launcher launcher(ranks_of(2, "report progress $(pwd); hang"));
    launcher.request.before_exec = [](int rank) {
        return ::chdir(rank == 0 ? "/proc" : "/no/such/folder") == 0;
    };
    CHECK_THROWS_WITH(launcher.run(),
                      "cannot start rank 1: cannot prepare its process: No such file or directory");
    launcher.request.before_exec = [](int) { return ::chdir("/proc") == 0; };
    launcher.request.command.back() = words + "report progress $(pwd)";
    launcher.lines.clear();
    CHECK_FALSE(launcher.run());
    CHECK(launcher.lines[1].front() == "/proc");
}

TEST_CASE("nothing to start is an error") {
    CHECK_THROWS_AS(launch_ranks({}, {}), std::runtime_error);
    CHECK_THROWS_AS(launch_ranks(ranks_of(0, ""), {}), std::runtime_error);
}

TEST_CASE("a launch needs nobody to listen to progress") {
    CHECK_FALSE(launch_ranks(ranks_of(2, "report progress unheard"), {}));
}

TEST_CASE("what is no report, or no text, harms nothing") {
    Launcher launcher(
        ranks_of(1,
                 "report failure; report progress; report; report failure nobody said; "
                 "printf 'progress bell \\a escape \\033[31m\\n' > /dev/fd/$BUCKETWISE_REPORT_FD; "
                 "head -c 300000 /dev/zero > /dev/fd/$BUCKETWISE_REPORT_FD; report; "
                 "printf 'progress without an end' > /dev/fd/$BUCKETWISE_REPORT_FD"));
    CHECK_FALSE(launcher.run());
    CHECK(launcher.lines[0] == std::vector<std::string>{"bell   escape  [31m"});
}

// A launcher in a process of its own. The ranks it leaves behind become children of this process.
class LauncherProcess {
  public:
    explicit LauncherProcess(const LaunchRequest& request) {
        REQUIRE(::prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
        std::array<int, 2> ends{};
        REQUIRE(::pipe2(ends.data(), O_CLOEXEC) == 0);
        pid_ = ::fork();
        if (pid_ == 0) {
            ::setpgid(0, 0);
            const auto failure = launch_ranks(request, [&](const LaunchProgress& progress) {
                if (progress.text.starts_with("pid ")) {
                    const int pid = std::stoi(progress.text.substr(4));
                    [[maybe_unused]] const ssize_t written = ::write(ends[1], &pid, sizeof pid);
                }
            });
            ::_exit(failure ? 1 : 0);
        }
        REQUIRE(pid_ > 0);
        ::close(ends[1]);
        for (int i = 0; i < request.ranks; ++i) {
            int pid = 0;
            REQUIRE(::read(ends[0], &pid, sizeof pid) == sizeof pid);
            ranks_.push_back(pid);
        }
        ::close(ends[0]);
    }
    ~LauncherProcess() {
        ::kill(pid_, SIGKILL);
        while (::waitpid(-1, nullptr, 0) > 0) {
        }
        ::prctl(PR_SET_CHILD_SUBREAPER, 0);
    }
    LauncherProcess(const LauncherProcess&) = delete;
    LauncherProcess& operator=(const LauncherProcess&) = delete;

    [[nodiscard]] int pid() const { return pid_; }
    [[nodiscard]] const std::vector<int>& ranks() const { return ranks_; }

  private:
    int pid_ = -1;
    std::vector<int> ranks_;
};

TEST_CASE("no rank survives the launcher, not even when that is killed") {
    const std::string before = GENERATE("", "trap '' TERM HUP; ", "kill -STOP $$; ");
    INFO(before);
    const LauncherProcess launcher(ranks_of(3, "report progress pid $$; " + before + "hang"));
    ::kill(launcher.pid(), SIGKILL);
    int status = 0;
    REQUIRE(::waitpid(launcher.pid(), &status, 0) == launcher.pid());
    for (const int rank : launcher.ranks()) {
        REQUIRE(::waitpid(rank, &status, 0) == rank);
        CHECK(WIFSIGNALED(status));
        CHECK(WTERMSIG(status) == SIGKILL);
    }
}

// The letter in /proc/PID/stat after the name in brackets.
char state_of(int pid) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
    std::string line;
    std::getline(file, line);
    return line.at(line.rfind(')') + 2);
}

TEST_CASE("the ranks stop and go on with the launcher, and nobody is late for that") {
    const Gate gate;
    const std::string go = gate.path() + ".go";
    // They start nothing: a shell that waits for its child's exec would not be seen to stop.
    LaunchRequest request = ranks_of(
        2, "report progress pid $$; while ! [ -e " + go + " ]; do report progress alive; done");
    request.deadline = 1s;
    const LauncherProcess launcher(request);
    ::kill(launcher.pid(), SIGTSTP);
    int status = 0;
    REQUIRE(::waitpid(launcher.pid(), &status, WUNTRACED) == launcher.pid());
    REQUIRE(WIFSTOPPED(status));
    for (const int rank : launcher.ranks()) {
        while (state_of(rank) != 'T') {
            std::this_thread::yield();
        }
    }
    std::this_thread::sleep_for(request.deadline + 100ms);  // the deadline passes unheeded
    ::kill(launcher.pid(), SIGCONT);
    std::ofstream(go) << "go";
    REQUIRE(::waitpid(launcher.pid(), &status, 0) == launcher.pid());
    REQUIRE(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
}

// BUCKETWISE_REPORT_FD in this process, with the pipe to which it refers.
class Listener {
  public:
    Listener() {
        REQUIRE(::pipe2(ends_.data(), O_CLOEXEC | O_NONBLOCK) == 0);
        set_descriptor(std::to_string(ends_[1]));
    }
    ~Listener() {
        unset_variable("BUCKETWISE_REPORT_FD");
        hang_up();
        ::close(ends_[1]);
    }
    Listener(const Listener&) = delete;
    Listener& operator=(const Listener&) = delete;

    static void set_descriptor(const std::string& text) {
        set_variable("BUCKETWISE_REPORT_FD", text);
    }
    [[nodiscard]] int read_end() const { return ends_[0]; }
    void hang_up() {
        if (ends_[0] >= 0) {
            ::close(std::exchange(ends_[0], -1));
        }
    }
    [[nodiscard]] std::string heard() const {
        std::string text(1 << 17, '\0');
        const ssize_t count = ::read(ends_[0], text.data(), text.size());
        text.resize(static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
        return text;
    }

  private:
    std::array<int, 2> ends_{-1, -1};
};

TEST_CASE("a rank's reports are lines") {
    const Listener listener;
    const LauncherReport report;
    REQUIRE(report.has_launcher());
    report.progress("round 1 of 5");
    report.failure("out\nof\r\npaper", false);
    report.failure("no answer", true);
    CHECK(listener.heard() ==
          "progress round 1 of 5\nfailure own out of  paper\nfailure peer no answer\n");
}

TEST_CASE("a report that is too long for one write is cut, but not within a character") {
    const Listener listener;
    std::string text;
    while (text.size() < std::size_t{3} * PIPE_BUF) {
        text += "€";
    }
    LauncherReport().progress(text);
    const std::string heard = listener.heard();
    // "progress " and whole characters of 3 bytes each, up to the line's end at PIPE_BUF.
    CHECK(heard.size() == 9 + (PIPE_BUF - 10) / 3 * 3 + 1);
    CHECK(heard.back() == '\n');
}

TEST_CASE("without a launcher a rank reports to nobody") {
    unset_variable("BUCKETWISE_REPORT_FD");
    CHECK_FALSE(LauncherReport().has_launcher());
    const Listener listener;
    const std::vector<std::string> bad = {
        "", "x", "1", "-1", "7x", "99999", std::to_string(listener.read_end())};
    for (const std::string& text : bad) {
        INFO(text);
        Listener::set_descriptor(text);
        const LauncherReport report;
        CHECK_FALSE(report.has_launcher());
        report.progress("nobody hears this");
    }
    const int file = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
    Listener::set_descriptor(std::to_string(file));
    CHECK_FALSE(LauncherReport().has_launcher());
    ::close(file);
}

TEST_CASE("a launcher that has gone or does not listen does not stop a rank") {
    Listener listener;
    const LauncherReport report;
    for (int i = 0; i < 10'000; ++i) {
        report.progress("more than fits into the pipe");
    }
    CHECK(listener.heard().size() % std::string("progress more than fits into the pipe\n").size() ==
          0);
    listener.hang_up();
    report.progress("SIGPIPE would have ended this process");
    report.failure("or this", false);
    ::sigset_t pending;
    ::sigpending(&pending);
    CHECK(::sigismember(&pending, SIGPIPE) == 0);
}

}  // namespace
}  // namespace bucketwise
