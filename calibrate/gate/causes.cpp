#include "calibrate/gate/causes.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "calibrate/gate/shift.h"
#include "sim/base/statistics.h"
#include "sim/base/transformed.h"
#include "sim/report/number_text.h"

namespace bucketwise {
namespace {

constexpr double worth_naming = 0.2;  // of the step's extra time
// The chance of naming something unchanged; that there is a regression is known already.
constexpr double by_chance = 0.01;

// The shift of something that all runs of both sides hold.
struct PartShift {
    double before_ms = 0;  // median
    double longer_ms = 0;
    bool is_more = false;

    [[nodiscard]] double told_ms() const { return is_more ? longer_ms : 0.0; }
};

struct BucketShift {
    PartShift ready;
    PartShift collective;
    bool has_ready = false;
};

std::vector<std::int64_t> sizes_of(const GateRun& run) {
    return transformed(run.buckets, [](const GateBucket& bucket) { return bucket.bytes.count; });
}

std::string bucket_text(const GateRun& run, std::size_t bucket) {
    const Bytes bytes = run.buckets[bucket].bytes;
    return fmt::format(
        "bucket {} of {}{}", bucket + 1, run.buckets.size(),
        bytes == Bytes{0} ? "" : fmt::format(" ({} MiB)", three_digits(to_mib(bytes))));
}

std::string ms_text(double ms) {
    return fmt::format("{} ms", three_digits(ms));
}

std::string change_text(const PartShift& shift) {
    return fmt::format("{} to {}", three_digits(shift.before_ms),
                       ms_text(shift.before_ms + shift.longer_ms));
}

class Detective {
  public:
    Detective(const GateCase& before, const GateCase& after, double longer_ms)
        : before_(before), after_(after), longer_ms_(longer_ms) {}

    std::vector<GateCause> run() {
        const auto told = [&](StepPart part) { return part_shift(part).told_ms(); };
        const double others =
            told(StepPart::computing) + told(StepPart::copying) + told(StepPart::launching);
        if (has_same_buckets()) {
            find_bucket_shifts();
            find_slower_link();
            find_late_gradient(others);
        } else {
            add({.kind = CauseKind::other_buckets,
                 .text = fmt::format("gradients are bucketed otherwise: {} instead of {}",
                                     counted(std::ssize(now().buckets), "bucket"),
                                     std::ssize(then().buckets))});
        }
        if (then().buckets.empty() && now().buckets.empty()) {
            add_part(StepPart::exposed, CauseKind::more_exposed,
                     "collectives are waited for longer");
        }
        add_part(StepPart::copying, CauseKind::more_copies, "copies take longer");
        add_part(StepPart::launching, CauseKind::launch_bound,
                 "the host launches later, and the device waits for it");
        add_part(StepPart::computing, CauseKind::more_computing, "computing takes longer");
        add_part(StepPart::others, CauseKind::waiting,
                 "other ranks or streams are waited for longer");
        std::ranges::stable_sort(causes_, std::ranges::greater{}, &GateCause::step_ms);
        return std::move(causes_);
    }

  private:
    using Column = std::function<std::vector<double>(const GateRun&)>;

    [[nodiscard]] const GateRun& then() const { return before_.runs.front(); }
    [[nodiscard]] const GateRun& now() const { return after_.runs.front(); }

    // Empty: not all runs hold it.
    [[nodiscard]] std::optional<PartShift> shift_of(const Column& column) const {
        const RunSamples old_samples = transformed(before_.runs, column);
        const RunSamples new_samples = transformed(after_.runs, column);
        for (const RunSamples* side : {&old_samples, &new_samples}) {
            if (std::ranges::any_of(*side, [](const auto& run) { return run.empty(); })) {
                return std::nullopt;
            }
        }
        const Shift shift = shift_between(old_samples, new_samples, by_chance);
        std::vector<double> all;
        for (const std::vector<double>& run : old_samples) {
            all.insert(all.end(), run.begin(), run.end());
        }
        const bool is_exact = after_.source == GateSource::prediction;
        return PartShift{.before_ms = median(std::move(all)),
                         .longer_ms = shift.middle,
                         .is_more = is_exact ? shift.middle > 0 : shift.is_more};
    }

    [[nodiscard]] PartShift part_shift(StepPart part) const {
        return shift_of([part](const GateRun& run) { return run.part(part); })
            .value_or(PartShift{});
    }

    [[nodiscard]] bool has_same_buckets() const {
        const std::vector<std::int64_t> sizes = sizes_of(then());
        const auto is_same = [&](const GateRun& run) { return sizes_of(run) == sizes; };
        return std::ranges::all_of(before_.runs, is_same) &&
               std::ranges::all_of(after_.runs, is_same);
    }

    void find_bucket_shifts() {
        for (std::size_t b = 0; b < then().buckets.size(); ++b) {
            const auto ready =
                shift_of([b](const GateRun& run) { return run.buckets[b].ready_ms; });
            const auto collective =
                shift_of([b](const GateRun& run) { return run.buckets[b].collective_ms; });
            buckets_.push_back({.ready = ready.value_or(PartShift{}),
                                .collective = collective.value_or(PartShift{}),
                                .has_ready = ready.has_value()});
        }
    }

    // The end of the last bucket's collective, with this side's readiness and lengths.
    [[nodiscard]] double last_end(bool ready_now, bool collective_now) const {
        double end = 0;
        for (const BucketShift& bucket : buckets_) {
            const double ready =
                bucket.ready.before_ms + (ready_now ? bucket.ready.told_ms() : 0.0);
            const double collective =
                bucket.collective.before_ms + (collective_now ? bucket.collective.longer_ms : 0.0);
            end = std::max(ready, end) + collective;
        }
        return end;
    }

    void find_slower_link() {
        const auto sum = shift_of([](const GateRun& run) {
            std::vector<double> sums;
            for (const GateBucket& bucket : run.buckets) {
                sums.resize(sums.empty() ? bucket.collective_ms.size()
                                         : std::min(sums.size(), bucket.collective_ms.size()));
                for (std::size_t step = 0; step < sums.size(); ++step) {
                    sums[step] += bucket.collective_ms[step];
                }
            }
            return sums;
        });
        if (!sum || !sum->is_more || sum->before_ms <= 0) {
            return;
        }
        const auto most = std::ranges::max_element(
            buckets_, {}, [](const BucketShift& bucket) { return bucket.collective.longer_ms; });
        const auto bucket = static_cast<std::size_t>(most - buckets_.begin());
        const bool waits = std::ranges::any_of(after_.runs, &GateRun::collectives_wait);
        add({.kind = CauseKind::slower_link,
             .step_ms = last_end(false, true) - last_end(false, false),
             .bucket = bucket,
             .text = fmt::format("the link is slower: collectives of the same sizes take {} longer "
                                 "({}), most of it {}, {} longer{}",
                                 percent_text(sum->longer_ms / sum->before_ms), change_text(*sum),
                                 bucket_text(now(), bucket), ms_text(most->collective.longer_ms),
                                 waits ? "; or other ranks come later, which these traces cannot "
                                         "distinguish"
                                       : "")});
    }

    // `others_ms`: other causes that make gradients late.
    void find_late_gradient(double others_ms) {
        double lateness = 0;
        double largest = 0;
        std::size_t late = 0;
        for (std::size_t b = 0; b < buckets_.size(); ++b) {
            const double own = buckets_[b].ready.told_ms();
            if (buckets_[b].has_ready && own - lateness > largest) {
                largest = own - lateness;
                late = b;
            }
            lateness = buckets_[b].has_ready ? own : lateness;
        }
        const double longer = last_end(true, false) - last_end(false, false) - others_ms;
        if (largest <= 0) {
            return;
        }
        const std::string gradient = late_gradient(late);
        add({.kind = CauseKind::late_gradient,
             .step_ms = longer,
             .bucket = late,
             .gradient = gradient,
             .text = fmt::format(
                 "{} is ready {} later{}", bucket_text(now(), late),
                 ms_text(buckets_[late].ready.longer_ms),
                 gradient.empty() ? ""
                                  : fmt::format(", as it waits for the gradient {}", gradient))});
    }

    // The one that comes later than those before it do; empty: unknown, or the sides have other
    // gradients.
    [[nodiscard]] std::string late_gradient(std::size_t bucket) const {
        std::string latest;
        double largest = 0;
        double lateness = 0;
        for (const GateGradient& gradient : then().gradients) {
            const auto found =
                std::ranges::find(now().gradients, gradient.name, &GateGradient::name);
            if (found == now().gradients.end()) {
                return "";
            }
            const double own = found->ready_ms - gradient.ready_ms;
            if (own - lateness > largest) {
                largest = own - lateness;
                latest = gradient.name;
            }
            lateness = own;
        }
        constexpr double most_of_it = 0.5;
        const bool is_it = largest >= most_of_it * buckets_[bucket].ready.longer_ms;
        return is_it ? latest : now().buckets[bucket].last_gradient;
    }

    void add_part(StepPart part, CauseKind kind, const char* what) {
        const PartShift shift = part_shift(part);
        if (shift.is_more) {
            add({.kind = kind,
                 .step_ms = shift.longer_ms,
                 .text = fmt::format("{}: {} a step", what, change_text(shift))});
        }
    }

    void add(GateCause cause) {
        const bool is_known = cause.kind != CauseKind::other_buckets;
        if (!is_known || cause.step_ms >= worth_naming * longer_ms_) {
            cause.step_ms = std::min(cause.step_ms, longer_ms_);
            causes_.push_back(std::move(cause));
        }
    }

    const GateCase& before_;
    const GateCase& after_;
    double longer_ms_;
    std::vector<BucketShift> buckets_;
    std::vector<GateCause> causes_;
};

}  // namespace

std::vector<GateCause> causes_of(const GateCase& before, const GateCase& after, double longer_ms) {
    return Detective(before, after, longer_ms).run();
}

}  // namespace bucketwise
