#include "sim/optimum/max_plus_plan.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "sim/base/invariant.h"

namespace bucketwise {
namespace {

using max_plus::Matrix;
using max_plus::never;
using max_plus::Vector;

// Moments and times are never negative, so a negative sum comes from `never`.
constexpr std::int64_t sum(std::int64_t a, std::int64_t b) {
    return a + b < 0 ? never : a + b;
}

Vector applied(const Matrix& matrix, const Vector& to) {
    Vector result{};
    for (std::size_t row = 0; row < result.size(); ++row) {
        result[row] = std::max(
            {sum(matrix[row][0], to[0]), sum(matrix[row][1], to[1]), sum(matrix[row][2], to[2])});
    }
    return result;
}

// First `first`, then `then`.
Matrix composed(const Matrix& then, const Matrix& first) {
    Matrix result{};
    for (std::size_t row = 0; row < result.size(); ++row) {
        for (std::size_t column = 0; column < result.size(); ++column) {
            result[row][column] =
                std::max({sum(then[row][0], first[0][column]), sum(then[row][1], first[1][column]),
                          sum(then[row][2], first[2][column])});
        }
    }
    return result;
}

// Whether no entry of `a` is later than that of `b` by more than `but_for`.
bool none_later(const Vector& a, const Vector& b, std::int64_t but_for) {
    return a[0] <= b[0] + but_for && a[1] <= b[1] + but_for && a[2] <= b[2] + but_for;
}

// Rows and columns of a launch. In Label::finishing the third stands for 0: a lower bound of the
// moment, whatever went before.
constexpr std::size_t host = 0;
constexpr std::size_t device = 1;
constexpr std::size_t network = 2;
constexpr std::size_t constant = 2;

constexpr std::int64_t whenever = std::numeric_limits<std::int64_t>::max() / 4;

// Longer lines compute their edges again at each use: an edge takes 160 bytes, these 80 MB.
constexpr std::size_t most_gradients_to_keep_edges = 1000;

// The most labels of a cut; usual steps have a few. More cuts allow fewer labels each, which keeps
// the search within seconds.
std::size_t most_labels(std::size_t cuts) {
    constexpr std::size_t of_all_cuts = 60'000;
    return std::clamp<std::size_t>(of_all_cuts / cuts, 12, 300);
}

enum class Coupling : std::uint8_t { host_is_device, device_for_host, none };

// The engine's advance() and issue() as a matrix. A wait refers to the last launched collective.
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
    // Edge::end_to_host and end_to_device hold the wait for the collective's end; issuing remains.
    builder_.wait_for(0);
    buffer_.instructions.back().kind = InstructionKind::optimizer;
    wait_ = emitted();
    builder_.optimizer();
    optimizer_ = emitted();
}

// The builder's instructions since the last call.
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
                  "backward waits for the last launched collective only");
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
    const Duration host_done = starts_idle_ ? start.host : start.host - far_ahead;
    earliest_.push_back({host_done.count(), start.device.count(), never});
    for (std::size_t point = 1; point < to_point_.size(); ++point) {
        earliest_.push_back(applied(to_point_[point], earliest_.back()));
    }
}

// When both host and device have reached a launch.
std::int64_t MaxPlusPlanner::begins(const Vector& moments) const {
    return starts_idle_ ? std::max(moments[host], moments[device]) : moments[device];
}

// The end of a step whose host and device end at these moments.
std::int64_t MaxPlusPlanner::end_of(const Vector& moments) const {
    return starts_idle_ ? moments[device] : std::max(moments[host], moments[device]);
}

// The point at which the last bucket before the cut goes out.
std::size_t MaxPlusPlanner::point_of(std::size_t cut) const {
    return cut == 0                                            ? 0
           : sync_.policy.launch == LaunchRule::after_backward ? line_.size() + 1
                                                               : line_.ready_count(cut);
}

// The edges of all buckets that begin there, by length. A gradient joins the bucket at its end, or
// at its beginning on a line that joins backwards.
std::vector<MaxPlusPlanner::Edge> MaxPlusPlanner::computed_edges(std::size_t begin) {
    std::vector<Edge> edges;
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
    return edges;
}

const std::vector<MaxPlusPlanner::Edge>& MaxPlusPlanner::edges_from(std::size_t begin) {
    if (kept_edges_.empty()) {
        return edges_ = computed_edges(begin);
    }
    if (kept_edges_[begin].empty()) {
        kept_edges_[begin] = computed_edges(begin);
    }
    return kept_edges_[begin];
}

// --- what can still be in time ---

// Deadlines of the network at each cut for a step below the limit, assuming that only the network
// delays anything and that every bucket goes out as early as without other buckets.
void MaxPlusPlanner::set_limit(Duration limit) {
    latest_ = origin_ + limit.count() - 1;
    tails_.assign(line_.size() + 1, whenever);
    deadlines_.assign(line_.size() + 1, never);
    most_issuing_.assign(line_.size() + 1, 0);
    most_issuing_.back() = launch_map_[host][host] + wait_[host][host] + optimizer_[host][host];
    tails_.back() = sum(optimizer_[device][device], has_map_ ? wait_[device][device] : 0);
    deadlines_.back() =
        has_map_ ? latest_ - optimizer_[device][device] - launch_map_[network][network] : whenever;
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

// Host and device after the buckets before the cut are finished, and at the last cut after the
// whole step. At an earlier cut no continuation of the label has earlier ones.
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

// Launches a full bucket from the label at its point. False if that cannot be in time.
bool MaxPlusPlanner::launch(Label& label, const Edge& edge, std::size_t end) const {
    label.now = applied(edge.launch, label.now);
    const std::int64_t ends = label.now[network];
    if (ends > latest_end(edge, end)) {
        return false;
    }
    label.finishing = composed(edge.finish, label.finishing);
    std::int64_t& host_done = label.finishing[host][constant];
    std::int64_t& device_done = label.finishing[device][constant];
    host_done = std::max(host_done, sum(ends, edge.end_to_host));
    device_done = std::max(device_done, sum(ends, edge.end_to_device));
    const Vector least = after_finishing(label, end);
    if (end == line_.size()) {
        return end_of(least) <= latest_;
    }
    if (std::max(sum(least[device], tails_[end]), end_of(least)) > latest_) {
        return false;
    }
    // Raising moments to their lower bounds changes no result, but makes labels equal that differ
    // only in what never counts.
    host_done = least[host];
    device_done = least[device];
    drop_host(label, end);
    if (!exchanges_) {
        label.now[network] = std::max(label.now[network], begins(earliest_[point_of(end + 1)]));
    }
    return true;
}

// A host that issues everything left before the device gets there delays nothing. Dropping it makes
// labels equal that differ only in the host.
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
    const auto dominates = [&](const Label& a, const Label& b) {
        return none_later(a.now, b.now, negligible_) &&
               none_later(a.finishing[host], b.finishing[host], negligible_) &&
               none_later(a.finishing[device], b.finishing[device], negligible_) &&
               (ties == Ties::any || a.buckets <= b.buckets);
    };
    if (std::ranges::any_of(front, [&](const Label& other) { return dominates(other, label); })) {
        return;
    }
    std::erase_if(front, [&](const Label& other) { return dominates(label, other); });
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
            for (const std::size_t goal = point_of(end); point < goal; ++point) {
                here.now = applied(to_point_[point + 1], here.now);
            }
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
    result.step = Duration{end_of(after_finishing(*label, line_.size())) - origin_};
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
    labels_.front().push_back({.now = earliest_.front()});
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

// The first pass finds the shortest step; the second, which then has few labels, counts buckets.
//
// No piece of a step enlarges a delay. A label that replaces one earlier by a negligible time
// therefore costs at most that time, once at each cut.
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
    return fewest ? fewest : fastest;
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
    return Duration{sum(std::max(network_ends.count(), computed), optimizer_[device][device]) -
                    origin_};
}

Duration MaxPlusPlanner::collective_time(DType dtype, Bytes size) {
    builder_.send({{}, dtype, size}, 0);
    return Duration{emitted()[network][network]};
}

}  // namespace bucketwise
