#include "import/replay/bucket_caps.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "sim/base/json_output.h"
#include "sim/base/transformed.h"
#include "sim/plan/cap.h"
#include "sim/plan/plan.h"

namespace bucketwise {
namespace {

using Elements = std::vector<std::int64_t>;

// Whether the plan of these gradients, which are by readiness or the reverse, has these buckets.
bool gives(const SyncRequest& request, const std::vector<Gradient>& gradients, bool reversed,
           const Elements& buckets) {
    std::vector<std::int32_t> readiness(gradients.size());
    std::iota(readiness.begin(), readiness.end(), 0);
    if (reversed) {
        std::ranges::reverse(readiness);
    }
    const BucketPlan plan = make_plan(gradients, readiness, settings_for(request).policy);
    const Bytes element = element_size(gradients.front().dtype);
    return std::ranges::equal(plan.buckets, buckets, [&](const Bucket& bucket, auto elements) {
        return bucket.size == elements * element;
    });
}

// The range of each bucket's cap. A bucket closes once it has reached its cap: the cap is above its
// size without the last gradient, and at most its size. Empty where no ranges fit.
std::vector<CapRange> ranges_of(const std::vector<Gradient>& gradients, const Elements& closing) {
    const Bytes element = element_size(gradients.front().dtype);
    std::vector<CapRange> ranges;
    std::size_t next = 0;
    for (const std::int64_t elements : closing) {
        std::int64_t sum = 0;
        std::int64_t before = 0;
        while (next < gradients.size() && sum < elements) {
            before = sum;
            sum += gradients[next++].numel;
        }
        if (sum != elements) {
            return {};
        }
        ranges.push_back({Bytes{(before * element).count + 1}, sum * element});
    }
    return next == gradients.size() ? ranges : std::vector<CapRange>{};
}

// One cap for all buckets from the first-th on. The last bucket may hold less: only leftovers.
std::optional<Bytes> common_cap(const std::vector<CapRange>& ranges, std::size_t first) {
    CapRange range;
    for (std::size_t i = first; i < ranges.size(); ++i) {
        const bool last = i + 1 == ranges.size();
        range = common(range, last ? CapRange{ranges[i].lowest, std::nullopt} : ranges[i]);
    }
    return range.highest && range.lowest > *range.highest ? std::nullopt
                                                          : std::optional(roundest_cap(range));
}

TracedCaps find_caps(std::vector<Gradient> gradients, const Elements& buckets, bool unused_map) {
    Elements closing = buckets;
    if (unused_map) {
        std::ranges::reverse(gradients);
        std::ranges::reverse(closing);
    }
    const auto works = [&](SyncRequest request) {
        request.find_unused_parameters = unused_map;
        return gives(request, gradients, unused_map, buckets);
    };
    if (works({})) {
        return {SyncRequest{}, true,
                "as DistributedDataParallel forms them with its default caps (25 MiB, the first "
                "bucket 1 MiB)"};
    }
    const std::vector<CapRange> ranges = ranges_of(gradients, closing);
    if (ranges.empty()) {
        return {SyncRequest{}, false,
                "the all-reduces hold no gradients that follow one another in the order of "
                "readiness, as DistributedDataParallel's do after its first iteration; simulated "
                "with its default caps instead"};
    }
    for (const auto& [first, sets_first] : {std::pair{0U, true}, {0U, false}, {1U, false}}) {
        SyncRequest request;
        const auto cap = common_cap(ranges, first);
        request.bucket_cap = cap;
        request.explicit_cap_sets_first = sets_first;
        if (cap && works(request)) {
            return {request, true,
                    fmt::format(
                        "as bucket_cap_mb={} forms them{}", typed_mib(*cap),
                        sets_first ? "" : " with a first bucket of 1 MiB (PyTorch before 2.4)")};
        }
    }
    SyncRequest request;
    request.bucket_cap_list = transformed(ranges, roundest_cap);
    if (!works(request)) {
        return {SyncRequest{}, false,
                "no caps give the buckets that were seen; simulated with the default ones"};
    }
    return {request, true,
            fmt::format("no single cap gives them; bucket_cap_mb_list=[{}] does",
                        fmt::join(transformed(request.bucket_cap_list, typed_mib), ", "))};
}

// Gradients that may be all of a bucket, by its size. Few: many would be another strategy.
std::vector<std::size_t> gradients_alone(const std::vector<Gradient>& gradients,
                                         const Elements& buckets) {
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
                       const Elements& buckets) {
    std::vector<Gradient> others = gradients;
    Elements their_buckets = buckets;
    for (auto i = alone.rbegin(); i != alone.rend(); ++i) {
        others.erase(others.begin() + static_cast<std::ptrdiff_t>(*i));
        gradients[*i].sparse = true;  // sparse gradients have a bucket each
    }
    for (const std::size_t i : alone) {
        if (const auto its = std::ranges::find(their_buckets, gradients[i].numel);
            its != their_buckets.end()) {
            their_buckets.erase(its);
        }
    }
    TracedCaps caps = find_caps(others, their_buckets, false);
    caps.explained = caps.explained && gives(caps.sync, gradients, false, buckets);
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

TracedCaps caps_of(const std::vector<Gradient>& gradients, const Elements& buckets,
                   bool unused_map) {
    TracedCaps caps = find_caps(gradients, buckets, unused_map);
    if (!caps.explained && !unused_map) {
        const std::vector<std::size_t> alone = gradients_alone(gradients, buckets);
        TracedCaps beside = alone.empty() ? caps : caps_beside(alone, gradients, buckets);
        return beside.explained ? beside : caps;
    }
    return caps;
}

void add_caps(const TracedCaps& caps, Json& sync) {
    add_optional(sync, "bucket_cap_mib", caps.sync.bucket_cap.named(), typed_mib);
    add_if(!caps.sync.explicit_cap_sets_first, sync, "pytorch_version", "1.13");
    add_unless_empty(sync, "bucket_cap_mib_list",
                     transformed(caps.sync.bucket_cap_list, typed_mib));
}

void report_caps(const TracedCaps& caps, const char* item, bool certain, Findings& findings) {
    if (!caps.explained) {
        findings.missing(item, "{}", caps.text).weakens = Weakens::scenario;
    } else if (certain) {
        findings.found(item, "{}", caps.text);
    } else {
        findings.assumed(item, "{}", caps.text);
    }
}

}  // namespace bucketwise
