#include "import/collectives/log_import.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "import/collectives/gradient_steps.h"
#include "import/collectives/rank_arrival.h"
#include "import/replay/bucket_caps.h"
#include "import/replay/step_document.h"
#include "import/run/traced_collectives.h"
#include "import/run/traced_gradients.h"
#include "import/source/dtype_names.h"
#include "sim/base/error.h"
#include "sim/base/json_output.h"
#include "sim/base/statistics.h"
#include "sim/base/transformed.h"

namespace bucketwise {
namespace {

// --- ranks ---

// The first log, with times of issue averaged over the ranks: the order of steps is common to all
// ranks, disturbances are not. Offsets of clocks do not matter.
CollectiveLog averaged(const std::vector<CollectiveLog>& logs) {
    CollectiveLog mean = logs.front();
    using Key = std::pair<std::string, std::pair<std::int64_t, std::int64_t>>;
    std::map<Key, std::vector<Duration>> issued;
    for (const CollectiveLog& log : logs) {
        for (const LoggedCollective& collective : log.collectives) {
            if (log.clock == LogClock::host && collective.sequence >= 0) {
                issued[{collective.group, collective.number()}].push_back(*collective.issued);
            }
        }
    }
    for (LoggedCollective& collective : mean.collectives) {
        const auto found = issued.find({collective.group, collective.number()});
        // A mean over some of the ranks would be by another clock.
        if (found == issued.end() || found->second.size() != logs.size()) {
            return logs.front();
        }
        Duration sum{0};
        for (const Duration time : found->second) {
            sum += time / std::ssize(logs);
        }
        collective.issued = sum;
    }
    return mean;
}

std::vector<LoggedRank> ranks_of(const std::vector<CollectiveLog>& logs,
                                 const LogImportRequest& request, Findings& findings) {
    GradientStepsRequest wanted{.group = request.group};
    if (!request.model.gradients.empty()) {
        wanted.elements = elements_of(request.model.gradients);
    }
    std::vector<LoggedRank> ranks;
    ranks.push_back({&logs.front(), gradient_steps(averaged(logs), wanted, findings)});
    const std::vector<std::int64_t> first = elements_of(logs.front(), ranks.front().gradients);
    wanted.elements = std::reduce(first.begin(), first.end());
    for (std::size_t i = 1; i < logs.size(); ++i) {
        const CollectiveLog& log = logs[i];
        auto same = same_steps(logs.front(), ranks.front().gradients, log);
        if (!same) {
            // A rank of another replica, with another name of its group, or of other steps.
            Findings of_rank;
            const bool has = std::ranges::any_of(
                log.collectives, [&](const auto& one) { return one.group == wanted.group; });
            same =
                gradient_steps(log, {has ? wanted.group : std::nullopt, wanted.elements}, of_rank);
        }
        ranks.push_back({&log, *same});
        if (elements_of(log, *same) != first) {
            throw InputError(log.file, "",
                             fmt::format("the all-reduces of {}, of {} elements", logs.front().file,
                                         fmt::join(first, ", ")),
                             fmt::format("{}", fmt::join(elements_of(log, *same), ", ")));
        }
    }
    return ranks;
}

std::int64_t number_of_ranks(const std::vector<LoggedRank>& ranks, const LogImportRequest& request,
                             Findings& findings) {
    const std::int64_t told = ranks.front().gradients.group_size;
    if (request.ranks) {
        if (told > 0 && told != *request.ranks) {
            findings.assumed("ranks", "{} as --ranks says; the log says {}", *request.ranks, told);
        }
        return *request.ranks;
    }
    if (told > 0) {
        findings.found("ranks", "{} reduce gradients together", told);
        return told;
    }
    if (ranks.size() > 1) {
        findings.assumed("ranks", "{}, one for each file", ranks.size()).weakens =
            Weakens::scenario;
        return std::ssize(ranks);
    }
    throw InputError("--ranks", "", "the number of ranks, which the log does not tell", "nothing");
}

// --- times ---

// From the first of the step, the median over steps and ranks.
std::vector<Duration> issues_of(const std::vector<LoggedRank>& ranks) {
    std::vector<Duration> issues;
    for (std::size_t k = 0; k < ranks.front().gradients.steps.front().size(); ++k) {
        std::vector<Duration> since;
        for (const LoggedRank& rank : ranks) {
            for (const auto& step : rank.gradients.steps) {
                since.push_back(*rank.log->collectives[step[k]].issued -
                                *rank.log->collectives[step.front()].issued);
            }
        }
        // Medians of few steps may be out of order; the issues were not.
        const Duration before = issues.empty() ? Duration{0} : issues.back();
        issues.push_back(std::max(median(std::move(since)), before));
    }
    return issues;
}

// The time from the last issue until a step's all-reduces, one after another, have ended on a rank.
// Nothing where a duration is missing.
std::optional<Duration> waiting_of(const std::vector<LoggedRank>& ranks) {
    std::vector<Duration> waits;
    for (const LoggedRank& rank : ranks) {
        for (const auto& step : rank.gradients.steps) {
            Duration end{0};
            for (const std::size_t place : step) {
                const LoggedCollective& collective = rank.log->collectives[place];
                if (!collective.duration) {
                    return std::nullopt;
                }
                end = std::max(end, *collective.issued) + *collective.duration;
            }
            waits.push_back(end - *rank.log->collectives[step.back()].issued);
        }
    }
    return median(std::move(waits));
}

class Importer {
  public:
    Importer(const std::vector<CollectiveLog>& logs, const LogImportRequest& request)
        : request_(request), log_(logs.front()), findings_(result_.findings) {
        findings_.found("logs", "{} {}{}, of {} collectives{}", logs.size(), log_.kind,
                        logs.size() > 1 ? "s" : "", log_.collectives.size(),
                        log_.backend.empty() ? "" : " over " + log_.backend);
        for (const std::string& note : log_.notes) {
            findings_.assumed("log", "{}", note).weakens = Weakens::scenario;
        }
        ranks_ = ranks_of(logs, request, findings_);
        result_.file = log_.file;
        result_.backend = log_.backend;
        result_.version = log_.version;
        result_.ranks = number_of_ranks(ranks_, request, findings_);
    }

    LogImport import() {
        take_buckets();
        take_times();
        take_wire();
        std::vector<Gradient> gradients = gradients_by_readiness();
        Json sync = sync_json(gradients);
        result_.scenario = {{"name", scenario_name(log_.file, "log")},
                            {"workload",
                             {{"forward_ms", rounded_ms(forward_)},
                              {"backward_ms", rounded_ms(backward_)},
                              {"gradients", gradients_json(gradients)}}},
                            {"cluster", {{"ranks", result_.ranks}}},
                            {"sync", std::move(sync)}};
        add_variation();
        return std::move(result_);
    }

  private:
    void take_buckets() {
        for (const std::size_t place : ranks_.front().gradients.steps.front()) {
            const LoggedCollective& collective = log_.collectives[place];
            const DType dtype = *dtype_named(collective.dtype);
            result_.buckets.push_back({.bytes = collective.elements * element_size(dtype),
                                       .elements = collective.elements,
                                       .dtype = dtype});
            elements_.push_back(collective.elements);
        }
        const auto bytes =
            transformed(result_.buckets, [](const auto& bucket) { return bucket.bytes.count; });
        findings_.found("buckets", "{} a step, of {} bytes in this order, {}", bytes.size(),
                        fmt::join(bytes, ", "), name_of(result_.buckets.front().dtype));
    }

    // --- when each bucket is issued ---

    void take_times() {
        if (log_.clock == LogClock::none || request_.forward) {
            take_requested_times();
            return;
        }
        const std::vector<Duration> issues = issues_of(ranks_);
        backward_ = issues.back();
        for (std::size_t k = 0; k < issues.size(); ++k) {
            result_.buckets[k].start = issues[k];
        }
        if (log_.clock == LogClock::computing) {
            take_computing_times();
            return;
        }
        std::vector<Duration> periods;
        for (const LoggedRank& rank : ranks_) {
            std::ranges::copy(periods_of(*rank.log, rank.gradients), std::back_inserter(periods));
        }
        result_.period = median(std::move(periods));
        if (*result_.period <= backward_) {
            throw InputError(log_.file, "", "steps that follow one another",
                             fmt::format("one every {:.3f} ms of {:.3f} ms each",
                                         to_ms(*result_.period), to_ms(backward_)));
        }
        result_.pause = *result_.period - backward_;
        result_.waiting = waiting_of(ranks_);
        forward_ = result_.pause;
        findings_
            .assumed("backward",
                     "{:.3f} ms, from the first issue of a step to its last: a bucket's gradients "
                     "are taken to be ready when the host issued it, which on a GPU is later",
                     to_ms(backward_))
            .weakens = Weakens::scenario;
        findings_.assumed("forward",
                          "{:.3f} ms from a step's last issue to the next one's first: optimizer, "
                          "forward, backward up to the first bucket, and the wait for "
                          "communication",
                          to_ms(result_.pause));
    }

    void take_computing_times() {
        // Without a clock, steps are marked, or there is one.
        const Duration whole = *log_.computing / std::ssize(ranks_.front().gradients.steps);
        forward_ = std::max(whole - backward_, Duration{0});
        findings_.found("times",
                        "{:.3f} ms of computing a step; a bucket is ready once all that its "
                        "all-reduce depends on was computed, one operation at a time",
                        to_ms(forward_ + backward_));
        findings_.assumed("forward",
                          "{:.3f} ms: all computing but from the first bucket to the last",
                          to_ms(forward_));
    }

    void take_requested_times() {
        if (!request_.forward || !request_.backward) {
            throw InputError("--forward-ms", "",
                             "--forward-ms and --backward-ms, as the log has no times", "neither");
        }
        forward_ = *request_.forward;
        backward_ = *request_.backward;
        const auto all =
            static_cast<double>(std::reduce(elements_.begin(), elements_.end(), std::int64_t{0}));
        double so_far = 0;
        for (TypicalCollective& bucket : result_.buckets) {
            so_far += static_cast<double>(bucket.elements);
            bucket.start = std::min(scaled(backward_, so_far / all), backward_);
        }
        from_start_ = true;
        findings_
            .assumed("times",
                     "the log has none: forward and backward as given, and gradients are "
                     "ready in proportion to their elements")
            .weakens = Weakens::scenario;
    }

    void take_wire() {
        const auto steps = matched(ranks_);
        const bool all_ranks = std::ssize(ranks_) >= result_.ranks;
        for (std::size_t k = 0; k < result_.buckets.size(); ++k) {
            const auto durations = transformed(steps, [&](const auto& step) {
                std::vector<Duration> of_ranks;
                for (const LoggedCollective* one : step[k]) {
                    if (one != nullptr && one->duration) {
                        of_ranks.push_back(*one->duration);
                    }
                }
                return of_ranks;
            });
            result_.buckets[k].wire_us = wire_estimates(durations, all_ranks);
        }
        if (result_.ranks == 1 || result_.buckets.front().wire_us.empty()) {
            return;
        }
        if (all_ranks) {
            findings_.assumed("link", "an all-reduce takes what it takes the rank that comes last");
        } else {
            findings_
                .assumed("link",
                         "of {} ranks {} logged, so waiting for the others cannot be told "
                         "from the wire: the shortest of all steps is taken",
                         result_.ranks, ranks_.size() == 1 ? "one was" : "not all were")
                .weakens = Weakens::link;
        }
    }

    // --- gradients ---

    std::vector<Gradient> gradients_by_readiness() {
        if (!request_.model.gradients.empty()) {
            return model_gradients();
        }
        std::vector<Gradient> gradients;
        for (const TypicalCollective& bucket : result_.buckets) {
            gradients.push_back({.name = fmt::format("bucket {}", gradients.size() + 1),
                                 .numel = bucket.elements,
                                 .dtype = bucket.dtype});
            ready_.push_back(bucket.start);
        }
        findings_
            .assumed("gradients",
                     "one for each bucket, as the log knows no others: only larger caps can be "
                     "predicted; --model has the gradients")
            .weakens = Weakens::scenario;
        return gradients;
    }

    // In the reverse order of parameters, or as backward finishes them: whichever fills the
    // buckets.
    std::vector<Gradient> model_gradients() {
        const Workload& model = request_.model;
        std::vector<std::int32_t> reversed(model.gradients.size());
        std::iota(reversed.rbegin(), reversed.rend(), 0);
        std::string why;
        for (const auto& [order, name] :
             {std::pair(&std::as_const(reversed), "reverse order of parameters"),
              std::pair(&model.readiness, "the order in which backward finishes them")}) {
            std::vector<Gradient> gradients;
            for (const std::int32_t index : *order) {
                gradients.push_back(model.gradients[static_cast<std::size_t>(index)]);
                gradients.back().dtype = result_.buckets.front().dtype;
            }
            if (share_times(gradients, why)) {
                order_ = *order;
                findings_.found("gradients", "the model's {}, which in {} fill the buckets exactly",
                                gradients.size(), name);
                findings_.assumed(
                    "readiness",
                    "the gradients of a bucket share the time since the one before by "
                    "their elements{}",
                    from_start_ ? "" : "; those of the first are ready at once");
                return gradients;
            }
        }
        throw InputError(log_.file, "", "the buckets that the model's gradients form", why);
    }

    // Whether the buckets hold the gradients in this order; sets when each is ready.
    bool share_times(const std::vector<Gradient>& gradients, std::string& why) {
        ready_.clear();
        Duration before{0};
        std::size_t next = 0;
        for (const TypicalCollective& bucket : result_.buckets) {
            std::int64_t sum = 0;
            while (next < gradients.size() && sum < bucket.elements) {
                sum += gradients[next++].numel;
                const double share =
                    static_cast<double>(sum) / static_cast<double>(bucket.elements);
                ready_.push_back(
                    std::min(before + scaled(bucket.start - before, share), bucket.start));
            }
            if (sum != bucket.elements) {
                why = fmt::format("one of {} elements where they make {}", bucket.elements, sum);
                return false;
            }
            before = bucket.start;
        }
        why = fmt::format("buckets of {} gradients, of {}", next, gradients.size());
        return next == gradients.size();
    }

    [[nodiscard]] Json gradients_json(const std::vector<Gradient>& gradients) const {
        return json_list(by_parameter(order_, gradients.size()), [&](std::size_t i) {
            Json json = gradient_json(gradients[i]);
            json["ready_ms"] = rounded_ms(ready_[i]);
            return json;
        });
    }

    // --- how they are synchronised ---

    Json sync_json(std::vector<Gradient>& gradients) {
        Json sync{{"strategy", "ddp"}, {"broadcast_buffers", false}};
        const bool unused_map = ranks_.front().gradients.unused_map;
        add_if(unused_map, sync, "find_unused_parameters", true);
        if (std::ranges::any_of(
                gradients, [&](const auto& g) { return g.dtype != gradients.front().dtype; })) {
            findings_.missing("caps", "buckets are of several dtypes: taken as with the default")
                .weakens = Weakens::scenario;
            return sync;
        }
        TracedCaps caps = caps_of(gradients, elements_, unused_map);
        if (element_size(gradients.front().dtype).count == 2) {
            find_hook(gradients, caps, sync);
        }
        report_caps(caps, "caps", true, findings_);
        add_caps(caps, sync);
        return sync;
    }

    static bool is_default(const TracedCaps& caps) {
        return caps.explained && !caps.sync.bucket_cap.named() &&
               caps.sync.bucket_cap_list.empty() && caps.sync.explicit_cap_sets_first;
    }

    // A hook made buckets of 16 bits that the default caps form only of gradients of 32 bits.
    void find_hook(std::vector<Gradient>& gradients, TracedCaps& caps, Json& sync) {
        const DType travels = gradients.front().dtype;
        std::vector<Gradient> wide = gradients;
        std::ranges::for_each(wide, [](Gradient& g) { g.dtype = DType::float32; });
        TracedCaps of_wide = caps_of(wide, elements_, ranks_.front().gradients.unused_map);
        if (is_default(caps) || !is_default(of_wide)) {
            findings_.assumed("dtype",
                              "gradients are of the type that travels, {}; whether a hook casts "
                              "them to it cannot be told",
                              name_of(travels));
            return;
        }
        findings_.assumed("comm hook",
                          "gradients of float32 that travel as {}: the default caps form these "
                          "buckets of float32, not of {}",
                          name_of(travels), name_of(travels));
        sync["comm_hook"] = name_of(travels == DType::float16 ? CommHook::fp16 : CommHook::bf16);
        gradients = std::move(wide);
        caps = std::move(of_wide);
    }

    void add_variation() {
        const std::optional<Duration> deviation =
            arrival_deviation(ranks_, request_.same_host, findings_);
        if (!deviation || !result_.period) {
            return;
        }
        const double share = to_ms(*deviation) / to_ms(*result_.period);
        constexpr double least_written = 1e-4;
        if (share < least_written || share > 1) {
            return;
        }
        const double rounded = std::round(share * 1e4) / 1e4;
        result_.scenario["variation"] = {{"rank_spread", rounded}};
        findings_.assumed("variation",
                          "rank_spread {}: how far ranks come apart to a step's last all-reduce, "
                          "{:.3f} ms (a standard deviation), is taken for how their computing "
                          "varies",
                          rounded, to_ms(*deviation));
    }

    const LogImportRequest& request_;
    const CollectiveLog& log_;  // the first
    LogImport result_;
    Findings& findings_;
    std::vector<LoggedRank> ranks_;
    std::vector<std::int64_t> elements_;  // of the buckets
    Duration forward_{0};
    Duration backward_{0};
    bool from_start_ = false;          // the first bucket's gradients take time, too
    std::vector<Duration> ready_;      // of gradients by readiness
    std::vector<std::int32_t> order_;  // by readiness, parameters; empty: reversed
};

}  // namespace

LogImport import_logs(const std::vector<CollectiveLog>& logs, const LogImportRequest& request) {
    return Importer(logs, request).import();
}

}  // namespace bucketwise
