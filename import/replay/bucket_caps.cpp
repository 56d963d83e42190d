#include "import/replay/bucket_caps.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include <fmt/format.h>

#include "sim/plan/cap.h"
#include "sim/plan/plan.h"

namespace bucketwise {
namespace {

class CapFinder {
  public:
    CapFinder(const std::vector<Gradient>& gradients, const std::vector<std::int64_t>& buckets,
              bool unused_map)
        : buckets_(buckets),
          element_(element_size(gradients.front().dtype)),
          unused_map_(unused_map),
          gradients_(gradients),
          readiness_(gradients.size()) {
        std::iota(readiness_.begin(), readiness_.end(), 0);
        std::vector<std::int64_t> closing = buckets;
        if (unused_map_) {
            std::reverse(gradients_.begin(), gradients_.end());
            std::reverse(readiness_.begin(), readiness_.end());
            std::reverse(closing.begin(), closing.end());
        }
        find_ranges(closing);
    }

    TracedCaps find() const {
        if (gives({})) {
            return {SyncRequest{}, true,
                    "as DistributedDataParallel forms them with its default caps (25 MiB, the "
                    "first bucket 1 MiB)"};
        }
        if (ranges_.empty()) {
            return {SyncRequest{}, false,
                    "the all-reduces hold no gradients that follow one another in the order of "
                    "readiness, as DistributedDataParallel's do after its first iteration; "
                    "simulated with its default caps instead"};
        }
        // One cap for all buckets, then one for all but the first.
        for (const std::size_t first : {0U, 1U}) {
            const auto cap = common_cap(first);
            SyncRequest request;
            request.bucket_cap = cap;
            if (cap && first == 0 && gives(request)) {
                return {request, true,
                        fmt::format("as bucket_cap_mb={} forms them", typed_mib(*cap))};
            }
            request.explicit_cap_sets_first = false;
            if (cap && gives(request)) {
                return {request, true,
                        fmt::format("as bucket_cap_mb={} forms them with a first bucket of 1 MiB "
                                    "(PyTorch before 2.4)",
                                    typed_mib(*cap))};
            }
        }
        return listed();
    }

  private:
    // A bucket closes once it has reached its cap: the cap is above what it held before its last
    // gradient, and at most what it holds.
    void find_ranges(const std::vector<std::int64_t>& closing) {
        std::size_t next = 0;
        for (const std::int64_t elements : closing) {
            std::int64_t sum = 0;
            std::int64_t before = 0;
            while (next < gradients_.size() && sum < elements) {
                before = sum;
                sum += gradients_[next++].numel;
            }
            if (sum != elements) {
                ranges_.clear();
                return;
            }
            ranges_.push_back({Bytes{(before * element_).count + 1}, sum * element_});
        }
        if (next != gradients_.size()) {
            ranges_.clear();
        }
    }

    // One cap for all buckets from the first-th on but the last, which may be what was left.
    [[nodiscard]] std::optional<Bytes> common_cap(std::size_t first) const {
        CapRange range;
        for (std::size_t i = first; i + 1 < ranges_.size(); ++i) {
            range.lowest = std::max(range.lowest, ranges_[i].lowest);
            range.highest =
                std::min(range.highest.value_or(*ranges_[i].highest), *ranges_[i].highest);
        }
        if (first < ranges_.size()) {
            range.lowest = std::max(range.lowest, ranges_.back().lowest);
        }
        if (range.highest && range.lowest > *range.highest) {
            return std::nullopt;
        }
        return roundest_cap(range);
    }

    [[nodiscard]] TracedCaps listed() const {
        SyncRequest request;
        std::vector<double> typed;
        for (const CapRange& range : ranges_) {
            const Bytes cap = roundest_cap(range);
            request.bucket_cap_list.push_back(cap);
            typed.push_back(typed_mib(cap));
        }
        if (!gives(request)) {
            return {SyncRequest{}, false,
                    "no caps give the buckets that were seen; simulated with the default ones"};
        }
        return {request, true,
                fmt::format("no single cap gives them; bucket_cap_mb_list=[{}] does",
                            fmt::join(typed, ", "))};
    }

    [[nodiscard]] bool gives(SyncRequest request) const {
        request.find_unused_parameters = unused_map_;
        const BucketPlan plan = make_plan(gradients_, readiness_, settings_for(request).policy);
        return std::equal(plan.buckets.begin(), plan.buckets.end(), buckets_.begin(),
                          buckets_.end(), [&](const Bucket& bucket, std::int64_t elements) {
                              return bucket.size == elements * element_;
                          });
    }

    const std::vector<std::int64_t>& buckets_;
    Bytes element_;
    bool unused_map_;
    std::vector<Gradient> gradients_;  // in the order in which buckets close
    std::vector<std::int32_t> readiness_;
    std::vector<CapRange> ranges_;  // of each bucket's cap; empty: there are none
};

// Gradients that may be all of a bucket, as there is one of their size. Few: more would rather be a
// strategy of its own.
std::vector<std::size_t> gradients_alone(const std::vector<Gradient>& gradients,
                                         const std::vector<std::int64_t>& buckets) {
    constexpr std::size_t most = 8;
    std::vector<std::size_t> found;
    for (std::size_t i = 0; i < gradients.size(); ++i) {
        if (std::ranges::find(buckets, gradients[i].numel) != buckets.end()) {
            found.push_back(i);
        }
    }
    return found.size() <= most && found.size() < gradients.size() ? found
                                                                   : std::vector<std::size_t>{};
}

// With these gradients in buckets of their own.
TracedCaps caps_beside(const std::vector<std::size_t>& alone, std::vector<Gradient> gradients,
                       const std::vector<std::int64_t>& buckets) {
    std::vector<Gradient> others;
    std::vector<std::int64_t> their_buckets = buckets;
    for (std::size_t i = 0; i < gradients.size(); ++i) {
        if (std::ranges::find(alone, i) == alone.end()) {
            others.push_back(gradients[i]);
            continue;
        }
        gradients[i].sparse = true;  // which gives a bucket of its own
        if (const auto its = std::ranges::find(their_buckets, gradients[i].numel);
            its != their_buckets.end()) {
            their_buckets.erase(its);
        }
    }
    TracedCaps caps = CapFinder(others, their_buckets, false).find();
    std::vector<std::int32_t> readiness(gradients.size());
    std::iota(readiness.begin(), readiness.end(), 0);
    const BucketPlan plan = make_plan(gradients, readiness, settings_for(caps.sync).policy);
    const Bytes element = element_size(gradients.front().dtype);
    caps.explained = caps.explained &&
                     std::ranges::equal(plan.buckets, buckets, [&](const auto& bucket, auto size) {
                         return bucket.size == size * element;
                     });
    caps.alone = alone;
    caps.text += alone.size() == 1
                     ? ", but for a gradient with a bucket of its own, as if its module were "
                       "wrapped by itself"
                     : fmt::format(
                           ", but for {} gradients with buckets of their own, as if their "
                           "modules were wrapped by themselves",
                           alone.size());
    return caps;
}

}  // namespace

TracedCaps caps_of(const std::vector<Gradient>& gradients, const std::vector<std::int64_t>& buckets,
                   bool unused_map) {
    TracedCaps caps = CapFinder(gradients, buckets, unused_map).find();
    if (!caps.explained && !unused_map) {
        if (const std::vector<std::size_t> alone = gradients_alone(gradients, buckets);
            !alone.empty()) {
            if (TracedCaps beside = caps_beside(alone, gradients, buckets); beside.explained) {
                return beside;
            }
        }
    }
    return caps;
}

}  // namespace bucketwise
