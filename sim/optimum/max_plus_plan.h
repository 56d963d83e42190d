// The bucket plan with the shortest step, exactly, where nothing interferes.
//
// Without interference every moment of a step is the latest of earlier ones plus constants
// (sim/optimum/max_plus.h), so none gets earlier when another gets later. Cut a line of gradients
// somewhere: of two ways to have launched what is before the cut, one that is nowhere later cannot
// end later, whatever follows. So dynamic programming over the places of cuts, which keeps at each
// place all ways of which none is nowhere later than another (labels, a Pareto front), finds the
// optimum. What waits for the end of backward, finishing the buckets launched so far, is part of a
// label as a matrix over the then unknown moments.
//
// The instructions are those that sim/program/program_builder.h emits; this file has no rule of its
// own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "sim/base/units.h"
#include "sim/engine/engine.h"
#include "sim/engine/step_loop.h"
#include "sim/optimum/max_plus.h"
#include "sim/plan/gradient_line.h"
#include "sim/plan/strategy.h"
#include "sim/program/program.h"
#include "sim/program/program_builder.h"

namespace bucketwise {

struct CutStep {
    Cuts cuts;
    Duration step{0};
    bool operator==(const CutStep&) const = default;
};

// The first buckets of a plan, launched: when host and device are done with launching the last of
// them, and when the all-reduce of each has ended, all of them no later than in the real step.
struct LaunchedBuckets {
    Cuts cuts;
    Duration host{0};
    Duration device{0};
    std::vector<Duration> ends;
    bool operator==(const LaunchedBuckets&) const = default;
};

class MaxPlusPlanner {
  public:
    // Collectives of `input` count as undisturbed and undisturbing, the launch queue as never
    // full, and side streams as waited for by nobody: where any of that is not so, what is found is
    // a bound. `start` is where the closing part of the step begins (StepToClose::progress()). The
    // references must outlive the planner.
    MaxPlusPlanner(const StepInput& input, const SyncSettings& sync, const GradientLine& line,
                   const StepLoop& loop, const RankProgress& start);
    MaxPlusPlanner(const MaxPlusPlanner&) = delete;
    MaxPlusPlanner& operator=(const MaxPlusPlanner&) = delete;

    // The fastest of all cuts that keep order, if there is one faster than `limit`, and of those
    // the fewest. `progress` is told the share that is done.
    //
    // Where the labels of a cut become too many, as roundings of a picosecond can make them, those
    // count as no later that are so but for very little: see slack().
    std::optional<CutStep> best_below(Duration limit, const std::function<void(double)>& progress);

    // Nothing is faster than what best_below() last found, or than its limit, by more than this:
    // zero but where labels became too many, and then at most a millionth of the limit.
    [[nodiscard]] Duration slack() const { return slack_; }

    // The step with these cuts, if they keep order and it is faster than the limit that
    // set_limit() was told. Stops as soon as it is known not to be.
    std::optional<Duration> step_below_limit(const Cuts& cuts);
    void set_limit(Duration limit);

    // When a bucket that ends at the cut could go out, were there no other: it and all before it
    // are ready. Precondition: cut > 0.
    [[nodiscard]] Duration earliest_launch(std::size_t cut) const;

    // When so many gradients could be sent, were there no buckets: at the end of backward where
    // they all wait for that. Precondition: count > 0.
    [[nodiscard]] Duration earliest_sent(std::size_t count) const;

    // The shortest step whose last all-reduce ends then.
    [[nodiscard]] Duration step_after(Duration network_ends) const;

    // How long a bucket's all-reduce takes alone.
    Duration collective_time(std::size_t begin, std::size_t end);
    Duration collective_time(DType dtype, Bytes size);

    // No plan that begins with these buckets is faster; at least the limit where none is faster
    // than that.
    Duration bound_after(const LaunchedBuckets& launched);

    // No cuts at all, whether they keep order or not, give a faster step: the network alone, had
    // every bucket gone out with the first gradient to become ready of those from its last one on.
    // All-reduces one after another, never idle while one waits, are done at the same moment in
    // whatever order they run.
    Duration bound_in_any_order();

    // All-reduces of all buckets one after another, at least.
    Duration least_communication();

  private:
    // What the bucket between two cuts adds.
    struct Edge {
        max_plus::Matrix launch{};     // to host, device and network, from where it is full
        max_plus::Matrix finish{};     // to host and device after backward, its all-reduce apart
        std::int64_t end_to_host = 0;  // from the end of its all-reduce to that of finishing it
        std::int64_t end_to_device = 0;
    };

    struct Label {
        max_plus::Vector now{};  // host, device and network, its last bucket launched
        max_plus::Matrix finishing = max_plus::identity;  // of host, device and 0 after backward
        std::size_t parent_cut = 0;
        std::size_t parent = 0;  // label there
        std::size_t buckets = 0;
    };

    max_plus::Matrix emitted();
    void walk_backward(const RankProgress& start);
    [[nodiscard]] std::size_t point_of(std::size_t cut) const;

    void compute_edges(std::size_t begin, std::vector<Edge>& edges);
    const std::vector<Edge>& edges_from(std::size_t begin);
    void set_latest(std::int64_t latest);
    [[nodiscard]] std::int64_t latest_end(const Edge& edge, std::size_t end) const;
    [[nodiscard]] bool hopeless(const Edge& edge, std::size_t begin, std::size_t end) const;

    [[nodiscard]] Label first_label() const;
    void walk(Label& label, std::size_t from_point, std::size_t to_point) const;
    static void finish(Label& label, const Edge& edge, std::int64_t ends);
    bool launch(Label& label, const Edge& edge, std::size_t end) const;
    [[nodiscard]] max_plus::Vector after_finishing(const Label& label, std::size_t cut) const;
    // What to prefer of labels of which neither is earlier.
    enum class Ties : std::uint8_t { any, fewest_buckets };
    std::optional<CutStep> best_of_labels(Ties ties, const std::function<void(double)>& progress);
    CutStep without_needless_cuts(CutStep plan);
    void extend(std::size_t begin, Ties ties);
    void insert(std::size_t cut, const Label& label, Ties ties);
    void drop_host(Label& label, std::size_t cut) const;
    [[nodiscard]] CutStep traced(std::size_t index) const;
    [[nodiscard]] Duration step_of(std::int64_t end) const { return Duration{end - origin_}; }
    // When both have what is launched at those moments.
    [[nodiscard]] std::int64_t begins(const max_plus::Vector& moments) const;
    // The end of a step whose host and device end so.
    [[nodiscard]] std::int64_t end_of(const max_plus::Vector& moments) const;
    [[nodiscard]] Duration host_time(const RankProgress& progress) const {
        return starts_idle_ ? progress.host : progress.host - far_ahead;
    }

    const StepInput& input_;
    const SyncSettings& sync_;
    const GradientLine& line_;
    // Else nothing waits for the host, and the step is what host or device take, whichever is more:
    // sim/engine/step_loop.h. The host's moments then count from when it began to issue the step.
    bool starts_idle_;
    BucketPlan no_buckets_;
    Program buffer_;  // what the builder emits, until it is taken
    ProgramBuilder builder_;
    std::int64_t origin_ = 0;  // of the step: its end is that much later than it is long

    // Points: how many gradients are ready; one more: backward is over.
    std::vector<max_plus::Matrix> to_point_;            // from the one before
    std::vector<max_plus::Matrix> after_point_;         // to the end of backward
    std::vector<max_plus::Vector> earliest_;            // by point: had there been no bucket
    bool exchanges_ = false;                            // statistics, in backward
    max_plus::Matrix launch_map_ = max_plus::identity;  // of unused parameters
    bool has_map_ = false;
    max_plus::Matrix wait_ = max_plus::identity;  // of the host, for an all-reduce
    max_plus::Matrix optimizer_ = max_plus::identity;

    std::vector<std::vector<Edge>> kept_edges_;  // by begin, where they are few enough
    std::vector<Edge> edges_;                    // of one begin
    std::int64_t latest_ = 0;                    // end of a step that is wanted
    std::vector<std::int64_t> tails_;      // by cut: finishing all buckets from there on, at least
    std::vector<std::int64_t> deadlines_;  // by cut: when the network must be free
    std::vector<std::int64_t> most_issuing_;  // by cut: the host's, for all buckets from there on
    std::vector<std::vector<Label>> labels_;  // by cut
    bool too_many_labels_ = false;
    std::int64_t negligible_ = 0;  // by which a label may be later than one that it stands for
    Duration slack_{0};
};

}  // namespace bucketwise
