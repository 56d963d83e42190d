// The cuts with the shortest step, exactly, for steps without interference.
//
// Without interference every moment of a step is the latest of earlier moments plus constants, so
// no moment gets earlier when another gets later. A piece of a step is a matrix over (max, +), and
// pieces one after another are their product (Baccelli, Cohen, Olsder, Quadrat 1992,
// "Synchronization and Linearity"). Two ways to launch the gradients before a cut can therefore be
// compared: a way that is nowhere later cannot end later, whatever follows. Dynamic programming
// over cuts keeps, at each cut, all ways that no other way dominates (labels, a Pareto front). The
// buckets launched so far finish after backward, so a label holds that work as a matrix over the
// moments at the end of backward.
//
// The instructions come from sim/program/program_builder.h; this file adds no rule.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <vector>

#include "sim/base/units.h"
#include "sim/engine/engine.h"
#include "sim/engine/step_loop.h"
#include "sim/plan/gradient_line.h"
#include "sim/plan/strategy.h"
#include "sim/program/program.h"
#include "sim/program/program_builder.h"

namespace bucketwise {

// Times in picoseconds.
namespace max_plus {

// The zero of (max, +), before every moment. Two of them still add, and a sum with a time shorter
// than longest_duration stays far before every moment of a step.
constexpr std::int64_t never = std::numeric_limits<std::int64_t>::min() / 4;

using Vector = std::array<std::int64_t, 3>;
using Matrix = std::array<Vector, 3>;  // rows: results; columns: arguments

constexpr Matrix identity{{{0, never, never}, {never, 0, never}, {never, never, 0}}};

}  // namespace max_plus

struct CutStep {
    Cuts cuts;
    Duration step{0};
    bool operator==(const CutStep&) const = default;
};

class MaxPlusPlanner {
  public:
    // The planner ignores interference, a full launch queue and waits for side streams; a step with
    // any of them is not shorter than the planner's. `start` is where the closing part of the step
    // begins (StepToClose::progress()). The references must outlive the planner.
    MaxPlusPlanner(const StepInput& input, const SyncSettings& sync, const GradientLine& line,
                   const StepLoop& loop, const RankProgress& start);
    MaxPlusPlanner(const MaxPlusPlanner&) = delete;
    MaxPlusPlanner& operator=(const MaxPlusPlanner&) = delete;

    // The fastest cuts that keep order, if faster than `limit`; of equally fast cuts the fewest,
    // unless labels become too many. `progress` receives the share that is done.
    //
    // Rounding to picoseconds can give a cut too many labels. Then a label also dominates labels
    // that are earlier by a negligible time: see slack().
    std::optional<CutStep> best_below(Duration limit, const std::function<void(double)>& progress);

    // No cuts are faster than the last result of best_below(), or its limit, by more than this.
    // Zero unless labels became too many, and at most a millionth of the limit.
    [[nodiscard]] Duration slack() const { return slack_; }

    // The earliest launch of a bucket that ends at the cut, if it were the only bucket.
    // Precondition: cut > 0.
    [[nodiscard]] Duration earliest_launch(std::size_t cut) const;

    // The earliest moment at which so many gradients can be sent, without any buckets.
    // Precondition: count > 0.
    [[nodiscard]] Duration earliest_sent(std::size_t count) const;

    // The shortest step whose last all-reduce ends then.
    [[nodiscard]] Duration step_after(Duration network_ends) const;

    // The time of an all-reduce alone.
    Duration collective_time(DType dtype, Bytes size);

  private:
    // The effect of the bucket between two cuts.
    struct Edge {
        max_plus::Matrix launch{};     // to host, device and network, once the bucket is full
        max_plus::Matrix finish{};     // to host and device after backward, without its all-reduce
        std::int64_t end_to_host = 0;  // from the end of its all-reduce until the host is done
        std::int64_t end_to_device = 0;
    };

    struct Label {
        max_plus::Vector now{};  // host, device and network after the last launch
        max_plus::Matrix finishing = max_plus::identity;  // of host, device and 0 after backward
        std::size_t parent_cut = 0;
        std::size_t parent = 0;  // label there
        std::size_t buckets = 0;
    };
    enum class Ties : std::uint8_t { any, fewest_buckets };

    max_plus::Matrix emitted();
    void walk_backward(const RankProgress& start);
    [[nodiscard]] std::size_t point_of(std::size_t cut) const;
    std::vector<Edge> computed_edges(std::size_t begin);
    const std::vector<Edge>& edges_from(std::size_t begin);
    void set_limit(Duration limit);
    [[nodiscard]] std::int64_t latest_end(const Edge& edge, std::size_t end) const;
    [[nodiscard]] bool hopeless(const Edge& edge, std::size_t begin, std::size_t end) const;
    bool launch(Label& label, const Edge& edge, std::size_t end) const;
    [[nodiscard]] max_plus::Vector after_finishing(const Label& label, std::size_t cut) const;
    void drop_host(Label& label, std::size_t cut) const;
    void insert(std::size_t cut, const Label& label, Ties ties);
    void extend(std::size_t begin, Ties ties);
    [[nodiscard]] CutStep traced(std::size_t index) const;
    std::optional<CutStep> best_of_labels(Ties ties, const std::function<void(double)>& progress);
    [[nodiscard]] std::int64_t begins(const max_plus::Vector& moments) const;
    [[nodiscard]] std::int64_t end_of(const max_plus::Vector& moments) const;

    const StepInput& input_;
    const SyncSettings& sync_;
    const GradientLine& line_;
    // Otherwise nothing waits for the host, and the step lasts as long as the slower of host and
    // device (sim/engine/step_loop.h). The host's moments then count from its first instruction.
    bool starts_idle_;
    BucketPlan no_buckets_;
    Program buffer_;  // what the builder emits, until emitted() takes it
    ProgramBuilder builder_;
    std::int64_t origin_ = 0;  // the end of a step minus its length

    // By point: the number of ready gradients; one more point is the end of backward.
    std::vector<max_plus::Matrix> to_point_;            // from the point before
    std::vector<max_plus::Matrix> after_point_;         // to the end of backward
    std::vector<max_plus::Vector> earliest_;            // without any bucket
    bool exchanges_ = false;                            // statistics, in backward
    max_plus::Matrix launch_map_ = max_plus::identity;  // of unused parameters
    bool has_map_ = false;
    max_plus::Matrix wait_ = max_plus::identity;  // of the host, for an all-reduce
    max_plus::Matrix optimizer_ = max_plus::identity;

    std::vector<std::vector<Edge>> kept_edges_;  // by begin; empty for long lines
    std::vector<Edge> edges_;                    // of one begin
    std::int64_t latest_ = 0;                    // end of a step within the limit
    // By cut:
    std::vector<std::int64_t> tails_;         // least time to finish all later buckets
    std::vector<std::int64_t> deadlines_;     // when the network must be free
    std::vector<std::int64_t> most_issuing_;  // most host time for all later buckets
    std::vector<std::vector<Label>> labels_;
    bool too_many_labels_ = false;
    std::int64_t negligible_ = 0;  // a label may be this much later than a label it replaces
    Duration slack_{0};
};

}  // namespace bucketwise
