#include "sim/optimum/plan_search.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "sim/base/invariant.h"
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

// The best cuts so far, until more than so many instructions were simulated.
class Search {
  public:
    Search(const GradientLine& line, SimulatedCuts& steps, CutStep from,
           std::int64_t most_instructions, const std::function<void(double)>& progress)
        : line_(line),
          steps_(steps),
          best_(std::move(from)),
          progress_(progress),
          begin_(steps.simulated()),
          most_instructions_(most_instructions) {}

  protected:
    [[nodiscard]] bool spent() const { return steps_.simulated() - begin_ > most_instructions_; }

    bool take_if_better(const Cuts& cuts) {
        CutStep tried{cuts, steps_.step(cuts)};
        const bool better = rank_of(tried) < rank_of(best_);
        if (better) {
            best_ = std::move(tried);
        }
        progress_(std::min(static_cast<double>(steps_.simulated() - begin_) /
                               static_cast<double>(most_instructions_),
                           1.0));
        return better;
    }

    const GradientLine& line_;
    SimulatedCuts& steps_;
    CutStep best_;

  private:
    const std::function<void(double)>& progress_;
    std::int64_t begin_;
    std::int64_t most_instructions_;
};

class HillClimber : private Search {
  public:
    using Search::Search;

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
    bool try_out(const Cuts& cuts) {
        return !spent() && allowed(line_, cuts) && take_if_better(cuts);
    }

    bool merge(std::size_t bucket) {
        if (bucket + 1 >= best_.cuts.size()) {
            return false;
        }
        Cuts cuts = best_.cuts;
        cuts.erase(cuts.begin() + static_cast<std::ptrdiff_t>(bucket));
        return try_out(cuts);
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
                better = try_out(cuts) || better;
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
                    better = try_out(cuts);
                }
            }
        }
        return better;
    }
};

class BranchAndBound : private Search {
  public:
    BranchAndBound(const GradientLine& line, SimulatedCuts& steps, MaxPlusPlanner* planner,
                   CutStep from, std::int64_t most_instructions,
                   const std::function<void(double)>& progress)
        : Search(line, steps, std::move(from), most_instructions, progress), planner_(planner) {
        if (planner_ != nullptr) {
            planner_->set_limit(best_.step);
        }
    }

    ExhaustiveSearch run() {
        search(0);
        return {std::move(best_), !spent()};
    }

  private:
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
        if (take_if_better(cuts_) && planner_ != nullptr) {
            planner_->set_limit(best_.step);
        }
    }

    MaxPlusPlanner* planner_;
    Cuts cuts_;
};

}  // namespace

SimulatedCuts::SimulatedCuts(const StepInput& input, const SyncSettings& sync,
                             const GradientLine& line)
    : input_(input), sync_(sync), line_(line), before_(input, sync), step_(before_) {
    invariant(input.classes.empty(), "one rank stands for all");
}

Duration SimulatedCuts::step(const BucketPlan& plan) {
    build_closing(input_, sync_, plan, program_);
    simulated_ += std::ssize(program_.instructions);
    return step_.step_closed_by(program_);
}

bool SimulatedCuts::something_may_wait() const {
    Cuts every_gradient;
    for (std::size_t cut = 1; cut <= line_.size(); ++cut) {
        every_gradient.push_back(cut);
    }
    Program most;
    build_closing(input_, sync_, line_.plan(every_gradient), most);
    return step_.something_may_wait(most);
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
    Program program = without_host_waits(program_);
    if (before_.loop().side_streams || before_.loop().host_waits) {
        // Nothing can be earlier than without waiting and without interference. With it, computing
        // that waits may let a collective end earlier.
        program = without_side_streams(std::move(program));
        for (Collective& collective : program.collectives) {
            collective.interference = {};
        }
    }
    const Simulation simulation = simulate({&program, 1}, Record::timeline, start());
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
                         std::int64_t most_instructions,
                         const std::function<void(double)>& progress) {
    return HillClimber(line, steps, std::move(from), most_instructions, progress).climbed();
}

ExhaustiveSearch exhaustive_search(const GradientLine& line, SimulatedCuts& steps,
                                   MaxPlusPlanner* planner, CutStep from,
                                   std::int64_t most_instructions,
                                   const std::function<void(double)>& progress) {
    return BranchAndBound(line, steps, planner, std::move(from), most_instructions, progress).run();
}

Cuts greedy_merge(const GradientLine& line, const std::function<Duration(std::size_t)>& ready,
                  const std::function<Duration(std::size_t, std::size_t)>& cost) {
    Cuts cuts;
    Duration network_free{0};
    std::size_t begin = 0;
    for (std::size_t end = 1; end < line.size(); ++end) {
        const Duration starts = std::max(network_free, ready(end));
        const bool may_merge = end + 1 <= line.longest_end(begin);
        if (may_merge) {
            const Duration saved = cost(begin, end) + cost(end, end + 1) - cost(begin, end + 1);
            if (ready(end + 1) < starts + saved) {
                continue;
            }
        }
        network_free = starts + cost(begin, end);
        cuts.push_back(end);
        begin = end;
    }
    cuts.push_back(line.size());
    return cuts;
}

}  // namespace bucketwise
