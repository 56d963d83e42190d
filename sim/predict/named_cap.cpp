#include "sim/predict/named_cap.h"

#include <algorithm>

#include "sim/base/transformed.h"

namespace bucketwise {
namespace {

constexpr Bytes largest_cap{1000 * bytes_per_mib};
constexpr std::size_t fewest_usual_buckets = 4;
// Less is rounding, not a saving.
constexpr double noticeable_saving = 5e-4;

Bytes size_of(const Evaluation& row) {
    return row.cap.size().value_or(default_bucket_cap);
}

}  // namespace

bool hangs_on_overlap(const Evaluation& chosen) {
    return chosen.saved_at_ends && chosen.saved_at_ends->low <= noticeable_saving;
}

bool NamedCaps::has_usual_size(const Evaluation& row) const {
    const std::size_t fewest = std::min(fewest_usual_buckets, default_.bucket_bytes.size());
    return size_of(row) <= largest_usual_cap && row.bucket_bytes.size() >= fewest;
}

// Two copies of the largest bucket, one with views, beside all that is needed anyway.
bool NamedCaps::has_memory(const Evaluation& row) const {
    if (!input_.spare_memory || row.bucket_bytes.empty()) {
        return true;
    }
    const std::int64_t copies = request_.views ? 1 : 2;
    return copies * *std::ranges::max_element(row.bucket_bytes) <= *input_.spare_memory;
}

bool NamedCaps::may_be_named(const Evaluation& row) const {
    if (!input_.link.assumes_interference || row.cap.is_none() || has_usual_size(row)) {
        return true;
    }
    if (size_of(row) > largest_cap || !has_memory(row) || !row.saved_at_ends ||
        hangs_on_overlap(row)) {
        return false;
    }
    const std::optional<DrawnShare>& drawn = row.confidence->regret.saved;
    return input_.workload.late_host > 0 || (drawn && drawn->low > 0);
}

std::size_t NamedCaps::least_costly(const std::vector<std::optional<StepConfidence>>& confidences,
                                    std::size_t fastest) const {
    return shortest_to_type(confidences, transformed(sweep_, &Evaluation::cap),
                            least_expected_regret(confidences, fastest));
}

std::size_t NamedCaps::best(std::size_t fastest) const {
    return least_costly(transformed(sweep_,
                                    [&](const Evaluation& row) {
                                        return may_be_named(row) ? row.confidence : std::nullopt;
                                    }),
                        fastest);
}

std::optional<OverlapDoubt> NamedCaps::doubt(std::size_t fastest) const {
    const Evaluation& row =
        sweep_[least_costly(transformed(sweep_, &Evaluation::confidence), fastest)];
    if (!row.saved_at_ends || !hangs_on_overlap(row) ||
        row.saved_at_ends->high <= plateau_tolerance) {
        return std::nullopt;
    }
    return OverlapDoubt{
        size_of(row) > size_of(default_), *row.saved_at_ends,
        deciding_cost(input_, settings_for(with_cap(request_, row.cap), input_),
                      settings_for(without_caps(request_), input_), plateau_tolerance)};
}

std::size_t NamedCaps::last(std::size_t best, std::size_t high) const {
    while (high > best && !may_be_named(sweep_[high])) {
        --high;
    }
    return high;
}

std::size_t NamedCaps::fastest_of_usual_size() const {
    std::size_t fastest = 0;
    for (std::size_t row = 0; row < sweep_.size(); ++row) {
        if (has_usual_size(sweep_[row]) &&
            (!has_usual_size(sweep_[fastest]) || sweep_[row].step() < sweep_[fastest].step())) {
            fastest = row;
        }
    }
    return fastest;
}

}  // namespace bucketwise
