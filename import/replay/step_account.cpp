#include "import/replay/step_account.h"

#include <algorithm>
#include <map>
#include <optional>

namespace bucketwise {
namespace {

// One pass over what ran.
class Accountant {
  public:
    Accountant(const Program& program, const Simulation& simulation) : program_(program) {
        spans_.resize(program.instructions.size());
        issues_.resize(program.instructions.size());
        ends_.resize(program.collectives.size());
        for (const Span& span : simulation.timeline.spans) {
            if (span.track == Track::communication) {
                ends_[static_cast<std::size_t>(span.subject)] = span;
            } else if (span.track == Track::compute && span.rank == 0) {
                spans_[static_cast<std::size_t>(span.subject)] = span;
            } else if (span.track == Track::host && span.rank == 0) {
                issues_[static_cast<std::size_t>(span.subject)] = span;
            }
        }
    }

    SimulatedAccount run() {
        for (std::size_t i = 0; i < program_.instructions.size(); ++i) {
            const Instruction& instruction = program_.instructions[i];
            const auto subject = static_cast<std::size_t>(instruction.subject);
            issued_ = issues_[i] ? issues_[i]->end : issued_;
            if (instruction.kind == InstructionKind::wait) {
                wait_for(subject);
            } else if (instruction.kind == InstructionKind::launch) {
                issue(subject);
            } else if (spans_[i]) {
                compute(instruction, *spans_[i]);
            }
        }
        return std::move(result_);
    }

  private:
    void issue(std::size_t collective) {
        if (program_.collectives[collective].bucket && ends_[collective]) {
            bucket_of_[collective] = result_.buckets.size();
            result_.buckets.push_back({.bucket = result_.buckets.size(),
                                       .issued = free_,
                                       .begin = ends_[collective]->start,
                                       .end = ends_[collective]->end});
        }
    }

    void wait_for(std::size_t collective) {
        if (!ends_[collective]) {
            return;
        }
        const Duration waited = std::max(ends_[collective]->end - free_, Duration{0});
        result_.account.communicating += waited;
        free_ += waited;
        if (const auto bucket = bucket_of_.find(collective); bucket != bucket_of_.end()) {
            result_.buckets[bucket->second].waited += waited;
        }
    }

    // Of what it waits for before it, what is after it has been issued is for other streams.
    void compute(const Instruction& instruction, const Span& span) {
        const Duration waited = std::max(span.start - free_, Duration{0});
        const Duration others =
            instruction.order.after == 0
                ? Duration{0}
                : std::clamp(span.start - std::max(free_, issued_), Duration{0}, waited);
        result_.account.others += others;
        (program_.host_is_device ? result_.account.computing : result_.account.launching) +=
            waited - others;
        result_.account.computing += std::max(span.end - std::max(span.start, free_), Duration{0});
        free_ = std::max(free_, span.end);
        if (instruction.kind == InstructionKind::backward) {
            result_.last_ready = free_;
        }
    }

    const Program& program_;
    std::vector<std::optional<Span>> spans_;  // by instruction, of the compute stream
    std::vector<std::optional<Span>> ends_;   // by collective
    std::map<std::size_t, std::size_t> bucket_of_;
    std::vector<std::optional<Span>> issues_;  // by instruction, of the host
    Duration free_{0};
    Duration issued_ = far_ahead;  // when the host is done with what is looked at
    SimulatedAccount result_;
};

}  // namespace

StepAccount account_of(const TracedStep& step, bool has_device) {
    if (!has_device) {
        const Duration waited = std::min(step.waited, step.length);
        return {.computing = step.length - waited, .communicating = waited};
    }
    StepAccount account{.computing = step.device_busy, .communicating = step.device_communicating};
    for (const auto& [name, time] : step.device_stalled) {
        account.others += time;
    }
    account.launching = std::max(step.length - account.step(), Duration{0});
    return account;
}

StepAccount traced_account(const TracedRun& run) {
    const auto typical = [&](Duration StepAccount::*part) {
        return median_of(run.alike(), [&](const TracedStep* step) {
            return account_of(*step, run.rank().has_device).*part;
        });
    };
    return {typical(&StepAccount::computing), typical(&StepAccount::launching),
            typical(&StepAccount::communicating), typical(&StepAccount::others)};
}

SimulatedAccount simulated_account(const Program& program, const Simulation& simulation) {
    return Accountant(program, simulation).run();
}

}  // namespace bucketwise
