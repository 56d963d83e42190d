#include "import/replay/step_account.h"

#include <algorithm>
#include <map>
#include <optional>

namespace bucketwise {
namespace {

using Spans = std::vector<std::optional<Span>>;

// One pass over the instructions and their spans.
class Accountant {
  public:
    Accountant(const Program& program, const Simulation& simulation)
        : program_(program),
          computed_(program.instructions.size()),
          issued_spans_(program.instructions.size()),
          collectives_(program.collectives.size()) {
        for (const Span& span : simulation.timeline.spans) {
            const auto subject = static_cast<std::size_t>(span.subject);
            if (span.track == Track::communication) {
                collectives_[subject] = span;
            } else if (span.track == Track::compute && span.rank == 0) {
                computed_[subject] = span;
            } else if (span.track == Track::host && span.rank == 0) {
                issued_spans_[subject] = span;
            }
        }
    }

    SimulatedAccount run() {
        for (std::size_t i = 0; i < program_.instructions.size(); ++i) {
            const Instruction& instruction = program_.instructions[i];
            const auto subject = static_cast<std::size_t>(instruction.subject);
            issued_ = issued_spans_[i] ? issued_spans_[i]->end : issued_;
            if (instruction.kind == InstructionKind::wait) {
                wait_for(subject);
            } else if (instruction.kind == InstructionKind::launch) {
                issue(subject);
            } else if (computed_[i]) {
                compute(instruction, *computed_[i]);
            }
        }
        return std::move(result_);
    }

  private:
    void issue(std::size_t collective) {
        if (const auto& span = collectives_[collective];
            program_.collectives[collective].has_bucket() && span) {
            bucket_of_[collective] = result_.buckets.size();
            result_.buckets.push_back({.bucket = result_.buckets.size(),
                                       .issued = free_,
                                       .begin = span->start,
                                       .end = span->end});
        }
    }

    void wait_for(std::size_t collective) {
        if (!collectives_[collective]) {
            return;
        }
        const Duration waited = std::max(collectives_[collective]->end - free_, Duration{0});
        result_.account.communicating += waited;
        free_ += waited;
        if (const auto bucket = bucket_of_.find(collective); bucket != bucket_of_.end()) {
            result_.buckets[bucket->second].waited += waited;
        }
    }

    // A wait after the instruction was issued is for other streams.
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
    Spans computed_;      // by instruction, on the compute stream
    Spans issued_spans_;  // by instruction, on the host
    Spans collectives_;
    std::map<std::size_t, std::size_t> bucket_of_;
    Duration free_{0};
    Duration issued_ = far_ahead;  // when the host is done with the instruction
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
    StepAccount typical;
    for (const auto part : account_parts) {
        typical.*part = median_of(run.alike(), [&](const TracedStep* step) {
            return account_of(*step, run.rank().has_device).*part;
        });
    }
    return typical;
}

SimulatedAccount simulated_account(const Program& program, const Simulation& simulation) {
    return Accountant(program, simulation).run();
}

}  // namespace bucketwise
