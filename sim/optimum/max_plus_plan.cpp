#include "sim/optimum/max_plus_plan.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "sim/base/invariant.h"

namespace bucketwise {
namespace {

using max_plus::applied;
using max_plus::composed;
using max_plus::Matrix;
using max_plus::never;
using max_plus::sum;
using max_plus::Vector;

// Rows and columns of what is launched. In what finishes it, the third is always 0: what a moment
// is no earlier than, whatever went before.
constexpr std::size_t host = 0;
constexpr std::size_t device = 1;
constexpr std::size_t network = 2;
constexpr std::size_t constant = 2;

constexpr std::int64_t whenever = std::numeric_limits<std::int64_t>::max() / 4;

// More edges than these are computed again whenever they are wanted.
constexpr std::size_t most_gradients_to_keep_edges = 1000;  // of 160 bytes, 80 MB

// The labels that a cut may have; steps as users describe them have a few. The more cuts there are,
// the fewer, so that the time stays within seconds.
std::size_t most_labels(std::size_t cuts) {
    constexpr std::size_t of_all_cuts = 60'000;
    return std::clamp<std::size_t>(of_all_cuts / cuts, 12, 300);
}

// Who waits for whom.
enum class Coupling : std::uint8_t { host_is_device, device_for_host, none };

// The engine's advance() and issue() as a matrix. A wait is for the collective launched last.
Matrix matrix_of(const Instruction& instruction, Duration collective, Coupling coupling) {
    const bool host_is_device = coupling == Coupling::host_is_device;
    const std::int64_t issuing = instruction.host.count();
    const std::int64_t computing = instruction.device.count();
    Matrix matrix = max_plus::identity;
    Vector start = {coupling == Coupling::none ? never : issuing, host_is_device ? issuing : 0,
                    never};  // of host and device
    matrix[host] = {issuing, host_is_device ? issuing : never, never};
    if (instruction.order.is_beside()) {
        return matrix;
    }
    if (instruction.kind == InstructionKind::launch) {
        const std::int64_t time = collective.count();
        matrix[network] = {start[host] + time, start[device] + time, time};
        if (host_is_device) {
            matrix[device] = start;
        }
        return matrix;
    }
    if (instruction.kind == InstructionKind::wait) {
        start[network] = 0;
    }
    for (std::int64_t& moment : start) {
        moment = sum(moment, computing);
    }
    matrix[device] = start;
    return matrix;
}

}  // namespace

MaxPlusPlanner::MaxPlusPlanner(const StepInput& input, const SyncSettings& sync,
                               const GradientLine& line, const StepLoop& loop,
                               const RankProgress& start)
    : input_(input),
      sync_(sync),
      line_(line),
      starts_idle_(loop.starts_idle),
      builder_(input_, sync_, no_buckets_, buffer_),
      origin_((start.device - start.times.step()).count()),
      kept_edges_(line.size() <= most_gradients_to_keep_edges ? line.size() : 0) {
    invariant(sync.communicates && line.size() > 0, "there are buckets to choose");
    walk_backward(start);
    builder_.launch_unused_map();
    has_map_ = !buffer_.instructions.empty();
    launch_map_ = emitted();
    // Waiting is issuing and, apart from this, not being earlier than the end of the collective.
    builder_.wait_for(0);
    buffer_.instructions.back().kind = InstructionKind::optimizer;
    wait_ = emitted();
    builder_.optimizer();
    optimizer_ = emitted();
}

// What the builder has emitted since the last time.
Matrix MaxPlusPlanner::emitted() {
    const Coupling coupling = buffer_.host_is_device ? Coupling::host_is_device
                              : starts_idle_         ? Coupling::device_for_host
                                                     : Coupling::none;
    Matrix matrix = max_plus::identity;
    std::size_t launched = 0;
    for (const Instruction& instruction : buffer_.instructions) {
        const auto subject = static_cast<std::size_t>(instruction.subject);
        const bool launches = instruction.kind == InstructionKind::launch;
        launched += launches ? 1 : 0;
        invariant(instruction.kind != InstructionKind::wait || subject + 1 == launched,
                  "in backward, only what was launched last is waited for");
        const Duration time = launches ? buffer_.collectives[subject].time : Duration{0};
        matrix = composed(matrix_of(instruction, time, coupling), matrix);
    }
    buffer_.instructions.clear();
    buffer_.collectives.clear();
    return matrix;
}

void MaxPlusPlanner::walk_backward(const RankProgress& start) {
    const Workload& workload = input_.workload;
    builder_.begin(StepPart::closing);
    to_point_.push_back(max_plus::identity);
    for (std::size_t i = 0; i < workload.backward.size(); ++i) {
        builder_.backward_operation(i);
        exchanges_ = exchanges_ || !buffer_.collectives.empty();
        for (std::int32_t k = 0; k < workload.backward[i].ready_count; ++k) {
            builder_.collect(workload.readiness[to_point_.size() - 1]);
            to_point_.push_back(emitted());
        }
    }
    invariant(to_point_.size() == line_.size() + 1, "backward finishes every gradient");
    to_point_.push_back(emitted());
    after_point_.assign(to_point_.size(), max_plus::identity);
    for (std::size_t point = to_point_.size() - 1; point-- > 0;) {
        after_point_[point] = composed(after_point_[point + 1], to_point_[point + 1]);
    }
    earliest_.push_back({host_time(start).count(), start.device.count(), never});
    for (std::size_t point = 1; point < to_point_.size(); ++point) {
        earliest_.push_back(applied(to_point_[point], earliest_.back()));
    }
}

std::int64_t MaxPlusPlanner::begins(const Vector& moments) const {
    return starts_idle_ ? std::max(moments[host], moments[device]) : moments[device];
}

std::int64_t MaxPlusPlanner::end_of(const Vector& moments) const {
    return starts_idle_ ? moments[device] : std::max(moments[host], moments[device]);
}

// Where the last bucket before the cut goes out.
std::size_t MaxPlusPlanner::point_of(std::size_t cut) const {
    return cut == 0                                            ? 0
           : sync_.policy.launch == LaunchRule::after_backward ? line_.size() + 1
                                                               : line_.ready_count(cut);
}

// The edges of all buckets that begin there, by length. A gradient joins at the end of the bucket,
// or at its beginning where gradients join backwards.
void MaxPlusPlanner::compute_edges(std::size_t begin, std::vector<Edge>& edges) {
    edges.clear();
    Matrix gathering = max_plus::identity;
    Matrix returning = max_plus::identity;
    const auto joined = [&](const Matrix& all, const Matrix& one) {
        return line_.joins_backwards() ? composed(all, one) : composed(one, all);
    };
    Bucket bucket;
    bucket.dtype = input_.workload.gradients[static_cast<std::size_t>(line_.gradient(begin))].dtype;
    for (std::size_t end = begin + 1; end <= line_.longest_end(begin); ++end) {
        const std::int32_t gradient = line_.gradient(end - 1);
        bucket.size = line_.bytes(begin, end);
        builder_.gather(gradient);
        gathering = buffer_.instructions.empty() ? gathering : joined(gathering, emitted());
        builder_.return_copy(gradient);
        returning = buffer_.instructions.empty() ? returning : joined(returning, emitted());
        builder_.send(bucket, 0);
        const std::int64_t placing = buffer_.collectives.back().placing.count();
        Edge edge;
        edge.launch = composed(emitted(), gathering);
        builder_.receive(bucket, 0);
        const Matrix after_wait = composed(returning, emitted());
        edge.finish = composed(after_wait, wait_);
        edge.end_to_host = sum(after_wait[host][device], placing);
        edge.end_to_device = sum(after_wait[device][device], placing);
        edges.push_back(edge);
    }
}

const std::vector<MaxPlusPlanner::Edge>& MaxPlusPlanner::edges_from(std::size_t begin) {
    if (kept_edges_.empty()) {
        compute_edges(begin, edges_);
        return edges_;
    }
    if (kept_edges_[begin].empty()) {
        compute_edges(begin, kept_edges_[begin]);
    }
    return kept_edges_[begin];
}

// --- what can still be in time ---

void MaxPlusPlanner::set_limit(Duration limit) {
    set_latest(origin_ + limit.count() - 1);
}

// The last moment at which the network can be free at each cut for the step to end by `latest`,
// were nothing but the network to wait for, and every bucket as early as without other buckets.
void MaxPlusPlanner::set_latest(std::int64_t latest) {
    latest_ = latest;
    tails_.assign(line_.size() + 1, whenever);
    deadlines_.assign(line_.size() + 1, never);
    most_issuing_.assign(line_.size() + 1, 0);
    most_issuing_.back() = launch_map_[host][host] + wait_[host][host] + optimizer_[host][host];
    tails_.back() = sum(optimizer_[device][device], has_map_ ? wait_[device][device] : 0);
    deadlines_.back() =
        has_map_ ? latest - optimizer_[device][device] - launch_map_[network][network] : whenever;
    for (std::size_t begin = line_.size(); begin-- > 0;) {
        const std::vector<Edge>& edges = edges_from(begin);
        for (std::size_t i = 0; i < edges.size(); ++i) {
            const std::size_t end = begin + i + 1;
            if (!line_.keeps_order(begin, end)) {
                continue;
            }
            const Edge& edge = edges[i];
            const std::int64_t issuing = edge.launch[host][host] + edge.finish[host][host];
            most_issuing_[begin] = std::max(most_issuing_[begin], issuing + most_issuing_[end]);
            tails_[begin] = std::min(tails_[begin], sum(edge.finish[device][device], tails_[end]));
            if (!hopeless(edge, begin, end)) {
                deadlines_[begin] = std::max(deadlines_[begin],
                                             latest_end(edge, end) - edge.launch[network][network]);
            }
        }
    }
}

// When the all-reduce of a bucket that ends at `end` must be over.
std::int64_t MaxPlusPlanner::latest_end(const Edge& edge, std::size_t end) const {
    return std::min(deadlines_[end], latest_ - edge.end_to_device - tails_[end]);
}

bool MaxPlusPlanner::hopeless(const Edge& edge, std::size_t begin, std::size_t end) const {
    return !line_.keeps_order(begin, end) ||
           applied(edge.launch, earliest_[point_of(end)])[network] > latest_end(edge, end);
}

// --- labels ---

MaxPlusPlanner::Label MaxPlusPlanner::first_label() const {
    Label label;
    label.now = earliest_.front();
    return label;
}

void MaxPlusPlanner::walk(Label& label, std::size_t from_point, std::size_t to_point) const {
    for (std::size_t point = from_point; point < to_point; ++point) {
        label.now = applied(to_point_[point + 1], label.now);
    }
}

// Host and device once all buckets before the cut are finished and, after the last one, all the
// step is; before it, in no way that the label could continue are they earlier.
Vector MaxPlusPlanner::after_finishing(const Label& label, std::size_t cut) const {
    Vector moments = applied(after_point_[point_of(cut)], label.now);
    if (cut < line_.size()) {
        moments[constant] = 0;
        return applied(label.finishing, moments);
    }
    moments = applied(launch_map_, moments);
    const std::int64_t map_ends = moments[network];
    moments[constant] = 0;
    moments = applied(label.finishing, moments);
    if (has_map_) {
        moments = applied(wait_, moments);
        moments[device] = std::max(moments[device], map_ends);
    }
    return applied(optimizer_, moments);
}

// After backward the label also finishes the bucket whose all-reduce ends then.
void MaxPlusPlanner::finish(Label& label, const Edge& edge, std::int64_t ends) {
    label.finishing = composed(edge.finish, label.finishing);
    std::int64_t& host_done = label.finishing[host][constant];
    std::int64_t& device_done = label.finishing[device][constant];
    host_done = std::max(host_done, sum(ends, edge.end_to_host));
    device_done = std::max(device_done, sum(ends, edge.end_to_device));
}

// The label that stands where the bucket is full launches it. False where that cannot be in time.
bool MaxPlusPlanner::launch(Label& label, const Edge& edge, std::size_t end) const {
    label.now = applied(edge.launch, label.now);
    const std::int64_t ends = label.now[network];
    if (ends > latest_end(edge, end)) {
        return false;
    }
    finish(label, edge, ends);
    const Vector least = after_finishing(label, end);
    if (end == line_.size()) {
        return end_of(least) <= latest_;
    }
    if (std::max(sum(least[device], tails_[end]), end_of(least)) > latest_) {
        return false;
    }
    // No label is changed by saying that moments are no earlier than they can be, but labels that
    // differ only in what never counts become equal.
    label.finishing[host][constant] = least[host];
    label.finishing[device][constant] = least[device];
    drop_host(label, end);
    if (!exchanges_) {
        label.now[network] = std::max(label.now[network], begins(earliest_[point_of(end + 1)]));
    }
    return true;
}

// A host that will have issued all that is left by the time the device gets there holds nothing up
// any more: without it, labels that differ in it only become equal.
void MaxPlusPlanner::drop_host(Label& label, std::size_t cut) const {
    if (buffer_.host_is_device || label.now[host] == never) {
        return;
    }
    const std::int64_t issued = label.now[host] + after_point_[point_of(cut)][host][host] +
                                label.finishing[host][host] + most_issuing_[cut];
    if (issued <= label.now[device]) {
        label.now[host] = never;
        label.finishing[host] = {never, never, never};
        label.finishing[device][host] = never;
    }
}

void MaxPlusPlanner::insert(std::size_t cut, const Label& label, Ties ties) {
    std::vector<Label>& front = labels_[cut];
    const auto no_later = [&](const Label& a, const Label& b) {
        return max_plus::none_later(a.now, b.now, negligible_) &&
               max_plus::none_later(a.finishing[host], b.finishing[host], negligible_) &&
               max_plus::none_later(a.finishing[device], b.finishing[device], negligible_);
    };
    const auto dominates = [&](const Label& a, const Label& b) {
        return no_later(a, b) && (ties == Ties::any || a.buckets <= b.buckets);
    };
    if (std::any_of(front.begin(), front.end(),
                    [&](const Label& other) { return dominates(other, label); })) {
        return;
    }
    front.erase(std::remove_if(front.begin(), front.end(),
                               [&](const Label& other) { return dominates(label, other); }),
                front.end());
    front.push_back(label);
    too_many_labels_ = too_many_labels_ || front.size() > most_labels(labels_.size());
}

void MaxPlusPlanner::extend(std::size_t begin, Ties ties) {
    if (labels_[begin].empty()) {
        return;
    }
    const std::vector<Edge>& edges = edges_from(begin);
    std::vector<std::size_t> ends;
    for (std::size_t end = begin + 1; end <= begin + edges.size(); ++end) {
        if (!hopeless(edges[end - begin - 1], begin, end)) {
            ends.push_back(end);
        }
    }
    for (std::size_t i = 0; i < labels_[begin].size(); ++i) {
        Label here = labels_[begin][i];
        here.parent_cut = begin;
        here.parent = i;
        ++here.buckets;
        std::size_t point = point_of(begin);
        for (const std::size_t end : ends) {
            walk(here, std::exchange(point, point_of(end)), point_of(end));
            Label there = here;
            if (launch(there, edges[end - begin - 1], end)) {
                insert(end, there, ties);
            }
        }
    }
}

CutStep MaxPlusPlanner::traced(std::size_t index) const {
    CutStep result;
    const Label* label = &labels_.back()[index];
    result.step = step_of(end_of(after_finishing(*label, line_.size())));
    for (std::size_t cut = line_.size(); cut > 0;) {
        result.cuts.push_back(cut);
        cut = label->parent_cut;
        label = &labels_[cut][label->parent];
    }
    std::reverse(result.cuts.begin(), result.cuts.end());
    return result;
}

std::optional<CutStep> MaxPlusPlanner::best_of_labels(Ties ties,
                                                      const std::function<void(double)>& progress) {
    labels_.assign(line_.size() + 1, {});
    labels_.front().push_back(first_label());
    too_many_labels_ = false;
    const bool exact = negligible_ == 0;
    for (std::size_t begin = 0; begin < line_.size(); ++begin) {
        if (exact && too_many_labels_) {
            return std::nullopt;
        }
        extend(begin, ties);
        progress(static_cast<double>(begin + 1) / static_cast<double>(line_.size()));
    }
    std::optional<CutStep> best;
    for (std::size_t i = 0; i < labels_.back().size(); ++i) {
        CutStep one = traced(i);
        if (!best || one.step < best->step ||
            (one.step == best->step && one.cuts.size() < best->cuts.size())) {
            best = std::move(one);
        }
    }
    return best;
}

// Counting buckets only once the shortest step is known, as then few labels are left to count for.
//
// No piece of a step makes more of a delay than it is, so standing for a label that is earlier by
// that little costs as much in the end, and at each cut at most once.
std::optional<CutStep> MaxPlusPlanner::best_below(Duration limit,
                                                  const std::function<void(double)>& progress) {
    set_limit(limit);
    negligible_ = 0;
    std::optional<CutStep> fastest =
        best_of_labels(Ties::any, [&](double done) { progress(done / 2); });
    if (too_many_labels_) {
        constexpr std::int64_t share = 1'000'000;
        negligible_ = limit.count() / (share * std::ssize(deadlines_));
        fastest = best_of_labels(Ties::any, [&](double done) { progress(done / 2); });
    }
    slack_ = Duration{negligible_ * std::ssize(deadlines_)};
    if (!fastest) {
        return std::nullopt;
    }
    set_limit(fastest->step + Duration{1});
    const auto fewest =
        best_of_labels(Ties::fewest_buckets, [&](double done) { progress((1 + done) / 2); });
    return fewest ? fewest : without_needless_cuts(*fastest);
}

// One after another, for as long as the step is not longer.
CutStep MaxPlusPlanner::without_needless_cuts(CutStep plan) {
    const auto dropped_one = [&] {
        for (std::size_t i = plan.cuts.size() - 1; i-- > 0;) {
            Cuts fewer = plan.cuts;
            fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i));
            const std::size_t begin = i == 0 ? 0 : fewer[i - 1];
            if (fewer[i] <= line_.longest_end(begin) && step_below_limit(fewer)) {
                plan.cuts = std::move(fewer);
                return true;
            }
        }
        return false;
    };
    while (dropped_one()) {
    }
    return plan;
}

std::optional<Duration> MaxPlusPlanner::step_below_limit(const Cuts& cuts) {
    Label label = first_label();
    std::size_t begin = 0;
    for (const std::size_t end : cuts) {
        const Edge& edge = edges_from(begin)[end - begin - 1];
        if (!line_.keeps_order(begin, end)) {
            return std::nullopt;
        }
        walk(label, point_of(begin), point_of(end));
        if (!launch(label, edge, end)) {
            return std::nullopt;
        }
        begin = end;
    }
    return step_of(end_of(after_finishing(label, line_.size())));
}

Duration MaxPlusPlanner::bound_after(const LaunchedBuckets& launched) {
    const Duration too_late = step_of(latest_ + 1);
    Label label = first_label();
    std::size_t begin = 0;
    for (std::size_t i = 0; i < launched.cuts.size(); ++i) {
        const std::size_t end = launched.cuts[i];
        const Edge& edge = edges_from(begin)[end - begin - 1];
        const std::int64_t ends = launched.ends[i].count();
        if (ends > latest_end(edge, end)) {
            return too_late;
        }
        finish(label, edge, ends);
        label.now = {host_time({.host = launched.host}).count(), launched.device.count(), ends};
        begin = end;
    }
    const Vector least = after_finishing(label, begin);
    const std::int64_t device_ends = sum(least[device], begin < line_.size() ? tails_[begin] : 0);
    return step_of(std::max(device_ends, end_of(least)));
}

Duration MaxPlusPlanner::earliest_launch(std::size_t cut) const {
    return Duration{begins(earliest_[point_of(cut)])};
}

Duration MaxPlusPlanner::earliest_sent(std::size_t count) const {
    const bool after = sync_.policy.launch == LaunchRule::after_backward;
    return Duration{begins(earliest_[after ? line_.size() + 1 : count])};
}

Duration MaxPlusPlanner::step_after(Duration network_ends) const {
    const std::int64_t computed = applied(after_point_.front(), earliest_.front())[device];
    return step_of(sum(std::max(network_ends.count(), computed), optimizer_[device][device]));
}

Duration MaxPlusPlanner::collective_time(std::size_t begin, std::size_t end) {
    const auto first = static_cast<std::size_t>(line_.gradient(begin));
    return collective_time(input_.workload.gradients[first].dtype, line_.bytes(begin, end));
}

Duration MaxPlusPlanner::collective_time(DType dtype, Bytes size) {
    builder_.send({{}, dtype, size}, 0);
    return Duration{emitted()[network][network]};
}

// --- bounds ---

Duration MaxPlusPlanner::bound_in_any_order() {
    std::vector<std::int64_t> done(line_.size() + 1, whenever);
    done.front() = never;
    for (std::size_t begin = 0; begin < line_.size(); ++begin) {
        std::size_t end = begin;
        for (const Edge& edge : edges_from(begin)) {
            // No later for a later end, which the argument needs; with gathering it might be.
            const std::int64_t first = begins(earliest_[line_.least_ready_count(++end)]);
            const std::int64_t starts = std::max(done[begin], first);
            done[end] = std::min(done[end], starts + edge.launch[network][network]);
        }
    }
    return step_after(Duration{done.back()});
}

Duration MaxPlusPlanner::least_communication() {
    std::vector<std::int64_t> least(line_.size() + 1, whenever);
    least.front() = 0;
    for (std::size_t begin = 0; begin < line_.size(); ++begin) {
        std::size_t end = begin;
        for (const Edge& edge : edges_from(begin)) {
            ++end;
            least[end] = std::min(least[end], least[begin] + edge.launch[network][network]);
        }
    }
    return Duration{least.back() + (has_map_ ? launch_map_[network][network] : 0)};
}

}  // namespace bucketwise
