#include "hw/launch/launcher.h"

#include <algorithm>
#include <climits>
#include <csignal>
#include <cstring>
#include <deque>
#include <stdexcept>

#include <poll.h>
#include <unistd.h>

#include <fmt/format.h>

#include "hw/launch/launcher_process.h"
#include "hw/launch/launcher_signals.h"

namespace bucketwise {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// After a first failure: for the others to say what they saw.
constexpr milliseconds longest_inquest{1000};
// Between asking the ranks to end and killing them.
constexpr milliseconds notice{1000};

// Why a run may have failed, the most telling first. A rank that blames another, or merely exits,
// may have been pulled down by one that could not speak.
enum class Evidence { own_fault, stopped, exit_status, silent, blames_peer };

struct Cause {
    Evidence evidence;
    int rank;
    std::string reason;
};

struct Rank {
    Rank(const LaunchRequest& request, int number_, const std::string& job)
        : number(number_), process(request, number_, job) {}

    struct Stop {
        int signal;
        Clock::time_point since;
    };

    int number;
    RankProcess process;
    Clock::time_point last_sign = Clock::now();
    std::optional<Stop> stop;
    bool failed = false;  // has said so
    std::optional<ProcessEnd> end;
    bool end_is_judged = false;
};

std::string text_of_signal(int signal) {
    const char* const description = ::sigdescr_np(signal);  // none for a real-time signal
    return description == nullptr ? fmt::format("signal {}", signal)
                                  : fmt::format("signal {} ({})", signal, description);
}

std::string text_of_seconds(milliseconds time) {
    const double seconds = std::chrono::duration<double>(time).count();
    return seconds < 10.0 ? fmt::format("{:.1f} s", seconds) : fmt::format("{:.0f} s", seconds);
}

std::string text_of_death(int signal) {
    return fmt::format("was killed by {}{}", text_of_signal(signal),
                       signal == SIGKILL ? ", as the kernel does when memory runs out" : "");
}

std::string name_of_job() {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    return fmt::format("{}-{}", ::getpid(),
                       std::chrono::duration_cast<std::chrono::microseconds>(now).count());
}

class Launch {
  public:
    Launch(const LaunchRequest& request,
           const std::function<void(const LaunchProgress&)>& on_progress)
        : request_(request), on_progress_(on_progress) {
        const std::string job = name_of_job();
        for (int rank = 0; rank < request.ranks; ++rank) {
            ranks_.emplace_back(request, rank, job);
        }
    }

    // All at once, before the members' destructors wait for one after the other.
    ~Launch() { send_to_all(SIGKILL); }
    Launch(const Launch&) = delete;
    Launch& operator=(const Launch&) = delete;

    std::optional<LaunchFailure> watch() {
        while (anyone_running()) {
            wait();
            signals_.clear_wake();
            heed_signals();
            for (Rank& rank : ranks_) {
                take_stops(rank);
                take_end(rank);
            }
            for (Rank& rank : ranks_) {
                take_reports(rank);  // its last words tell more than its end
                judge_end(rank);
            }
            if (phase_ == Phase::running) {
                check_deadlines();
            }
            advance();
        }
        heed_signals();
        return verdict();
    }

  private:
    // `inquest`: something has failed, the ranks are left alone until all have said what they know.
    // `ending`: they have been asked to end; what happens to them from here on is our doing.
    enum class Phase { running, inquest, ending, killing };

    [[nodiscard]] bool anyone_running() const {
        return std::any_of(ranks_.begin(), ranks_.end(),
                           [](const Rank& rank) { return rank.process.running(); });
    }

    [[nodiscard]] bool is_ending() const {
        return phase_ == Phase::ending || phase_ == Phase::killing;
    }

    void send_to_all(int signal) const {
        for (const Rank& rank : ranks_) {
            rank.process.send_signal(signal);
        }
    }

    void wait() {
        descriptors_.assign(1, {signals_.wake_descriptor(), POLLIN, 0});
        for (const Rank& rank : ranks_) {
            descriptors_.push_back({rank.process.report_descriptor(), POLLIN, 0});  // -1: skipped
        }
        const std::optional<Clock::time_point> until = next_deadline();
        int timeout_ms = -1;
        if (until) {
            const auto left = std::chrono::ceil<milliseconds>(*until - Clock::now()).count();
            timeout_ms = static_cast<int>(std::clamp<decltype(left)>(left, 0, INT_MAX));
        }
        ::poll(descriptors_.data(), descriptors_.size(), timeout_ms);
    }

    [[nodiscard]] std::optional<Clock::time_point> next_deadline() const {
        if (phase_ != Phase::running) {
            return phase_ == Phase::killing ? std::nullopt : std::optional(phase_end_);
        }
        std::optional<Clock::time_point> next;
        for (const Rank& rank : ranks_) {
            if (rank.process.running()) {
                next = std::min(next.value_or(Clock::time_point::max()), deadline_of(rank));
            }
        }
        return next;
    }

    void heed_signals() {
        while (const std::optional<int> interrupt = signals_.take_interrupt()) {
            if (is_ending()) {
                kill();  // the user insists
            } else {
                interrupted_by_ = *interrupt;
                end();
            }
        }
        if (signals_.take(SIGTSTP)) {
            send_to_all(SIGSTOP);
            signals_.suspend_here();
            send_to_all(SIGCONT);
            restart_clocks();
        }
        if (signals_.take(SIGCONT)) {
            restart_clocks();
        }
    }

    // While we were stopped, nobody was late.
    void restart_clocks() {
        for (Rank& rank : ranks_) {
            rank.last_sign = Clock::now();
            if (rank.stop) {
                rank.stop->since = rank.last_sign;
            }
        }
    }

    static void take_stops(Rank& rank) {
        while (const std::optional<ProcessStop> stop = rank.process.take_stop()) {
            rank.stop.reset();
            if (stop->signal) {
                rank.stop = Rank::Stop{*stop->signal, Clock::now()};
            } else {
                rank.last_sign = Clock::now();
            }
        }
    }

    static void take_end(Rank& rank) {
        if (const std::optional<ProcessEnd> end = rank.process.take_end()) {
            rank.end = end;
            rank.stop.reset();
        }
    }

    void judge_end(Rank& rank) {
        if (!rank.end || std::exchange(rank.end_is_judged, true) || rank.failed) {
            return;
        }
        if (rank.end->killed) {
            accuse(rank, Evidence::own_fault, text_of_death(rank.end->value));
        } else if (rank.end->value != 0) {
            accuse(rank, Evidence::exit_status,
                   fmt::format("exited with status {}", rank.end->value));
        }
    }

    void take_reports(Rank& rank) {
        using Kind = RankReport::Kind;
        for (const RankReport& report : rank.process.take_reports()) {
            rank.last_sign = Clock::now();
            if (report.kind == Kind::progress && on_progress_) {
                on_progress_({rank.number, report.text});
            } else if (report.kind == Kind::own_failure) {
                rank.failed = true;
                accuse(rank, Evidence::own_fault, "failed: " + report.text);
            } else if (report.kind == Kind::peer_failure) {
                rank.failed = true;
                accuse(rank, Evidence::blames_peer,
                       fmt::format("failed: {}{}", report.text, who_ended_before()));
            }
        }
    }

    // A rank that ends well before the others is no failure, unless they still needed it.
    [[nodiscard]] std::string who_ended_before() const {
        const auto ended = std::find_if(ranks_.begin(), ranks_.end(), [](const Rank& rank) {
            return rank.end && !rank.end->killed && rank.end->value == 0;
        });
        return ended == ranks_.end() ? ""
                                     : fmt::format(" (rank {} had ended before)", ended->number);
    }

    void accuse(const Rank& rank, Evidence evidence, std::string reason) {
        if (is_ending()) {
            return;
        }
        causes_.push_back({evidence, rank.number, std::move(reason)});
        if (phase_ == Phase::running) {
            phase_ = Phase::inquest;
            phase_end_ = Clock::now() + longest_inquest;
            accuse_stopped();
        }
    }

    // Whoever is stopped while another fails is why: the others waited for it. Looked for anew, as
    // the failure may be older than our last look at all ranks.
    void accuse_stopped() {
        std::for_each(ranks_.begin(), ranks_.end(), take_stops);
        const Rank* first = nullptr;
        for (const Rank& rank : ranks_) {
            if (rank.stop && (first == nullptr || rank.stop->since < first->stop->since)) {
                first = &rank;
            }
        }
        if (first != nullptr) {
            const auto stopped =
                std::chrono::duration_cast<milliseconds>(Clock::now() - first->stop->since);
            accuse(*first, Evidence::stopped,
                   fmt::format("was stopped by {} and did not go on within {}",
                               text_of_signal(first->stop->signal),
                               text_of_seconds(std::min(stopped, request_.deadline))));
        }
    }

    // When the launcher will have waited long enough for the rank.
    [[nodiscard]] Clock::time_point deadline_of(const Rank& rank) const {
        return (rank.stop ? rank.stop->since : rank.last_sign) + request_.deadline;
    }

    // Nobody else is asked then: all had the whole deadline to speak.
    void check_deadlines() {
        const Rank* late = nullptr;
        for (const Rank& rank : ranks_) {
            if (rank.process.running() && deadline_of(rank) <= Clock::now() &&
                (late == nullptr || deadline_of(rank) < deadline_of(*late))) {
                late = &rank;
            }
        }
        if (late == nullptr) {
            return;
        }
        if (late->stop) {
            accuse_stopped();
        } else {
            accuse(*late, Evidence::silent,
                   "gave no sign of life for " + text_of_seconds(request_.deadline));
        }
        if (!causes_.empty()) {  // it may have gone on just now
            end();
        }
    }

    // Where ranks blame their peers and nobody else is known to have failed, the one they waited
    // for is among those that go on without a word.
    void accuse_who_did_not_speak() {
        const bool only_blame = std::all_of(causes_.begin(), causes_.end(), [](const Cause& cause) {
            return cause.evidence == Evidence::blames_peer;
        });
        const Rank* quietest = nullptr;
        for (const Rank& rank : ranks_) {
            if (rank.process.running() && !rank.failed &&
                (quietest == nullptr || rank.last_sign < quietest->last_sign)) {
                quietest = &rank;
            }
        }
        if (only_blame && !causes_.empty() && quietest != nullptr) {
            accuse(*quietest, Evidence::silent,
                   fmt::format("did not answer the others (rank {} {})", causes_.front().rank,
                               causes_.front().reason));
        }
    }

    [[nodiscard]] bool all_have_spoken() const {
        return std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) {
            return !rank.process.running() || rank.failed || rank.stop;
        });
    }

    void advance() {
        const bool over = Clock::now() >= phase_end_;
        if (phase_ == Phase::inquest && (over || all_have_spoken())) {
            accuse_who_did_not_speak();
            end();
        } else if (phase_ == Phase::ending && over) {
            kill();
        }
    }

    void end() {
        send_to_all(SIGTERM);
        send_to_all(SIGCONT);  // a stopped process takes no notice of SIGTERM
        phase_ = Phase::ending;
        phase_end_ = Clock::now() + notice;
    }

    void kill() {
        send_to_all(SIGKILL);
        phase_ = Phase::killing;
    }

    [[nodiscard]] std::optional<LaunchFailure> verdict() const {
        if (interrupted_by_) {
            return LaunchFailure{std::nullopt, "interrupted by " + text_of_signal(*interrupted_by_),
                                 true};
        }
        // The earliest of the most telling.
        const auto cause = std::min_element(
            causes_.begin(), causes_.end(),
            [](const Cause& a, const Cause& b) { return a.evidence < b.evidence; });
        return cause == causes_.end()
                   ? std::nullopt
                   : std::optional(LaunchFailure{cause->rank, cause->reason, false});
    }

    const LaunchRequest& request_;
    const std::function<void(const LaunchProgress&)>& on_progress_;
    LauncherSignals signals_;  // before the first rank, until after the last
    std::deque<Rank> ranks_;
    std::vector<pollfd> descriptors_;
    std::vector<Cause> causes_;  // in the order of notice
    std::optional<int> interrupted_by_;
    Phase phase_ = Phase::running;
    Clock::time_point phase_end_;
};

}  // namespace

std::optional<LaunchFailure> launch_ranks(
    const LaunchRequest& request, const std::function<void(const LaunchProgress&)>& on_progress) {
    if (request.command.empty() || request.ranks < 1) {
        throw std::runtime_error("cannot start ranks: no command, or none to be started");
    }
    return Launch(request, on_progress).watch();
}

}  // namespace bucketwise
