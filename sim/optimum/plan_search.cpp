#include "sim/optimum/plan_search.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "sim/base/invariant.h"
#include "sim/engine/engine.h"
#include "sim/program/step_programs.h"

namespace bucketwise {
namespace {

// The positions at which `cuts` may be changed by one more cut: between two of them.
std::size_t begin_of(const Cuts& cuts, std::size_t bucket) {
    return bucket == 0 ? 0 : cuts[bucket - 1];
}

bool allowed(const GradientLine& line, const Cuts& cuts) {
    for (std::size_t i = 0; i < cuts.size(); ++i) {
        if (cuts[i] > line.longest_end(begin_of(cuts, i))) {
            return false;
        }
    }
    return true;
}

class HillClimber {
  public:
    HillClimber(const GradientLine& line, SimulatedCuts& steps, CutStep from,
                std::int64_t most_instructions)
        : line_(line),
          steps_(steps),
          best_(std::move(from)),
          limit_(steps.simulated() + most_instructions) {}

    CutStep climbed() {
        bool better = true;
        while (better && !spent()) {
            better = false;
            for (std::size_t i = 0; i < best_.cuts.size() && !spent(); ++i) {
                better = merge(i) || better;
                better = move(i) || better;
                better = split(i) || better;
            }
        }
        return best_;
    }

  private:
    [[nodiscard]] bool spent() const { return steps_.simulated() > limit_; }

    bool take_if_better(const Cuts& cuts) {
        if (spent() || !allowed(line_, cuts)) {
            return false;
        }
        const Duration step = steps_.step(cuts);
        if (step >= best_.step) {
            return false;
        }
        best_ = {cuts, step};
        return true;
    }

    bool merge(std::size_t bucket) {
        if (bucket + 1 >= best_.cuts.size()) {
            return false;
        }
        Cuts cuts = best_.cuts;
        cuts.erase(cuts.begin() + static_cast<std::ptrdiff_t>(bucket));
        return take_if_better(cuts);
    }

    bool move(std::size_t bucket) {
        if (bucket + 1 >= best_.cuts.size()) {
            return false;
        }
        bool better = false;
        const std::size_t low = begin_of(best_.cuts, bucket);
        const std::size_t high = best_.cuts[bucket + 1];
        for (std::size_t by = 1; by < high - low; by *= 2) {
            for (const bool up : {true, false}) {
                Cuts cuts = best_.cuts;
                const std::size_t at = cuts[bucket];
                if (up ? at + by >= high : at <= low + by) {
                    continue;
                }
                cuts[bucket] = up ? at + by : at - by;
                better = take_if_better(cuts) || better;
            }
        }
        return better;
    }

    // In the middle, and near both ends.
    bool split(std::size_t bucket) {
        const std::size_t low = begin_of(best_.cuts, bucket);
        const std::size_t high = best_.cuts[bucket];
        bool better = false;
        for (std::size_t by = (high - low) / 2; by > 0 && !better; by /= 2) {
            for (const std::size_t at : {low + by, high - by}) {
                Cuts cuts = best_.cuts;
                if (!better && low < at && at < high) {
                    cuts.insert(cuts.begin() + static_cast<std::ptrdiff_t>(bucket), at);
                    better = take_if_better(cuts);
                }
            }
        }
        return better;
    }

    const GradientLine& line_;
    SimulatedCuts& steps_;
    CutStep best_;
    std::int64_t limit_;
};

class BranchAndBound {
  public:
    BranchAndBound(const GradientLine& line, SimulatedCuts& steps, MaxPlusPlanner* planner,
                   CutStep from, std::int64_t most_instructions)
        : line_(line),
          steps_(steps),
          planner_(planner),
          best_(std::move(from)),
          limit_(steps.simulated() + most_instructions) {
        if (planner_ != nullptr) {
            planner_->set_limit(best_.step);
        }
    }

    ExhaustiveSearch run() {
        search(0);
        return {std::move(best_), !spent()};
    }

  private:
    [[nodiscard]] bool spent() const { return steps_.simulated() > limit_; }

    void search(std::size_t begin) {
        if (begin == line_.size()) {
            return consider();
        }
        for (std::size_t end = begin + 1; end <= line_.longest_end(begin) && !spent(); ++end) {
            cuts_.push_back(end);
            if (end == line_.size() || planner_ == nullptr ||
                planner_->bound_after(steps_.launched(cuts_)) < best_.step) {
                search(end);
            }
            cuts_.pop_back();
        }
    }

    void consider() {
        const Duration step = steps_.step(cuts_);
        if (step < best_.step) {
            best_ = {cuts_, step};
            if (planner_ != nullptr) {
                planner_->set_limit(step);
            }
        }
    }

    const GradientLine& line_;
    SimulatedCuts& steps_;
    MaxPlusPlanner* planner_;
    CutStep best_;
    std::int64_t limit_;
    Cuts cuts_;
};

}  // namespace

SimulatedCuts::SimulatedCuts(const StepInput& input, const SyncSettings& sync,
                             const GradientLine& line)
    : input_(input), sync_(sync), line_(line), before_(StepBeforeClosing(input, sync)) {
    invariant(input.classes.empty(), "one rank stands for all");
}

Duration SimulatedCuts::step(const BucketPlan& plan) {
    build_closing(input_, sync_, plan, program_);
    simulated_ += std::ssize(program_.instructions);
    return before_.closed_by(program_).step();
}

LaunchedBuckets SimulatedCuts::launched(const Cuts& cuts) {
    build_closing(input_, sync_, line_.plan(cuts), program_);
    // Nothing after the last of them has gone out.
    std::vector<Instruction>& issued = program_.instructions;
    const auto last = std::find_if(issued.rbegin(), issued.rend(), [&](const Instruction& i) {
        return i.kind == InstructionKind::launch &&
               program_.collectives[static_cast<std::size_t>(i.subject)].bucket;
    });
    invariant(last != issued.rend(), "a bucket is launched");
    program_.collectives.resize(static_cast<std::size_t>(last->subject) + 1);
    issued.erase(last.base(), issued.end());
    simulated_ += std::ssize(program_.instructions);
    const Simulation simulation = simulate({&program_, 1}, Record::timeline, start());
    LaunchedBuckets result{
        cuts, simulation.progress.front().host, simulation.progress.front().device, {}};
    for (const Span& span : simulation.timeline.spans) {
        const bool collective = span.track == Track::communication;
        if (collective && program_.collectives[static_cast<std::size_t>(span.subject)].bucket) {
            result.ends.push_back(span.end);
        }
    }
    return result;
}

CutStep locally_improved(const GradientLine& line, SimulatedCuts& steps, CutStep from,
                         std::int64_t most_instructions) {
    return HillClimber(line, steps, std::move(from), most_instructions).climbed();
}

ExhaustiveSearch exhaustive_search(const GradientLine& line, SimulatedCuts& steps,
                                   MaxPlusPlanner* planner, CutStep from,
                                   std::int64_t most_instructions) {
    return BranchAndBound(line, steps, planner, std::move(from), most_instructions).run();
}

}  // namespace bucketwise
