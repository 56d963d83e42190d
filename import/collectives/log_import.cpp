#include "import/collectives/log_import.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "import/collectives/gradient_steps.h"
#include "import/collectives/rank_arrival.h"
#include "import/replay/bucket_caps.h"
#include "import/replay/trace_caveats.h"
#include "import/replay/trace_link.h"
#include "import/run/traced_link.h"
#include "import/source/plain_text.h"
#include "sim/base/error.h"
#include "sim/base/json_output.h"
#include "sim/base/statistics.h"
#include "sim/base/transformed.h"
#include "sim/link/link_input.h"
#include "sim/plan/cap.h"
#include "sim/predict/prediction.h"
#include "sim/text/passed_on.h"

namespace bucketwise {
namespace {

double rounded_ms(Duration time) {
    return std::round(to_ms(time) * 1e6) / 1e6;
}

// --- ranks ---

// The first log, each time of issue the mean over the ranks that have it: what tells steps apart is
// common to all of them, what disturbs one is not. Offsets of clocks do not matter.
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
        // A mean over some of them would be by another clock.
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
        wanted.elements = 0;
        for (const Gradient& gradient : request.model.gradients) {
            *wanted.elements += gradient.numel;
        }
    }
    std::vector<LoggedRank> ranks;
    ranks.push_back({&logs.front(), gradient_steps(averaged(logs), wanted, findings)});
    const std::vector<std::int64_t> first = elements_of(logs.front(), ranks.front().gradients);
    wanted.elements = std::reduce(first.begin(), first.end());
    for (std::size_t i = 1; i < logs.size(); ++i) {
        const CollectiveLog& log = logs[i];
        auto same = same_steps(logs.front(), ranks.front().gradients, log);
        if (!same) {
            // A rank of another replica, whose group has another name, or of other steps.
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
    const GradientSteps& gradients = ranks.front().gradients;
    if (request.ranks) {
        if (gradients.group_size > 0 && gradients.group_size != *request.ranks) {
            findings.assumed("ranks", "{} as --ranks says; the log says {}", *request.ranks,
                             gradients.group_size);
        }
        return *request.ranks;
    }
    if (gradients.group_size > 0) {
        findings.found("ranks", "{} reduce gradients together", gradients.group_size);
        return gradients.group_size;
    }
    if (ranks.size() > 1) {
        findings.assumed("ranks", "{}, as many as there are files", ranks.size()).weakens =
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
        // Issued in this order, whatever the medians of few steps say.
        const Duration before = issues.empty() ? Duration{0} : issues.back();
        issues.push_back(std::max(median(std::move(since)), before));
    }
    return issues;
}

// How much longer than the last issue the all-reduces of a step take on a rank: one after another,
// none before it was issued. None: a duration is missing.
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
        Json workload{{"forward_ms", rounded_ms(forward_)},
                      {"backward_ms", rounded_ms(backward_)},
                      {"gradients", gradients_json(gradients)}};
        result_.scenario = {{"name", name()},
                            {"workload", std::move(workload)},
                            {"cluster", {{"ranks", result_.ranks}}},
                            {"sync", std::move(sync)}};
        add_variation();
        return std::move(result_);
    }

  private:
    [[nodiscard]] std::string name() const {
        constexpr std::size_t longest = 150;
        const std::string text = plain_text(file_name(log_.file), longest);
        return text.empty() ? "log" : text;
    }

    void take_buckets() {
        for (const std::size_t place : ranks_.front().gradients.steps.front()) {
            const LoggedCollective& collective = log_.collectives[place];
            result_.buckets.push_back(
                {.elements = collective.elements, .dtype = *logged_dtype(collective.dtype)});
        }
        const auto bytes =
            transformed(result_.buckets, [](const auto& bucket) { return bucket.size().count; });
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
            result_.buckets[k].ready = issues[k];
        }
        if (log_.clock == LogClock::computing) {
            take_computing_times();
            return;
        }
        std::vector<Duration> periods;
        for (const LoggedRank& rank : ranks_) {
            const std::vector<Duration> of_rank = periods_of(*rank.log, rank.gradients);
            periods.insert(periods.end(), of_rank.begin(), of_rank.end());
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
                     "{:.3f} ms, from the first issue of a step to its last: when the host "
                     "issued a bucket is taken for when its gradients were ready, which on a "
                     "GPU is later",
                     to_ms(backward_))
            .weakens = Weakens::scenario;
        findings_.assumed("forward",
                          "{:.3f} ms from a step's last issue to the next one's first: optimizer, "
                          "forward, backward up to the first bucket, and the wait for "
                          "communication",
                          to_ms(result_.pause));
    }

    void take_computing_times() {
        const Duration whole = *log_.computing;
        const auto& steps = ranks_.front().gradients.steps;
        // Without a clock steps are marked, or there is one.
        forward_ = std::max(whole / std::ssize(steps) - backward_, Duration{0});
        findings_.found("times",
                        "{:.3f} ms of computing a step; a bucket is ready when what its all-reduce "
                        "depends on was computed, one operation at a time",
                        to_ms(forward_ + backward_));
        findings_.assumed("forward",
                          "{:.3f} ms: all that is computed but from the first bucket to the last",
                          to_ms(forward_));
    }

    void take_requested_times() {
        if (!request_.forward || !request_.backward) {
            throw InputError("--forward-ms", "",
                             "--forward-ms and --backward-ms, as the log has no times", "neither");
        }
        forward_ = *request_.forward;
        backward_ = *request_.backward;
        const auto elements =
            transformed(result_.buckets, [](const auto& bucket) { return bucket.elements; });
        const double all =
            static_cast<double>(std::reduce(elements.begin(), elements.end(), std::int64_t{0}));
        double so_far = 0;
        for (LoggedBucket& bucket : result_.buckets) {
            so_far += static_cast<double>(bucket.elements);
            bucket.ready = std::min(scaled(backward_, so_far / all), backward_);
        }
        from_start_ = true;
        findings_
            .assumed("times",
                     "the log has none: forward and backward as given, and gradients are "
                     "ready in proportion to their elements")
            .weakens = Weakens::scenario;
    }

    // --- what the wire takes ---

    // The last to come sees nothing but the wire.
    void take_wire() {
        const auto durations = durations_by_step(ranks_);
        const bool all_ranks = std::ssize(ranks_) >= result_.ranks;
        for (std::size_t k = 0; k < result_.buckets.size(); ++k) {
            std::vector<double>& wire = result_.buckets[k].wire_us;
            for (const auto& step : durations) {
                if (!step[k].empty()) {
                    wire.push_back(to_us(std::ranges::min(step[k])));
                }
            }
            if (!wire.empty() && !all_ranks) {
                wire = {std::ranges::min(wire)};
            }
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
        for (const LoggedBucket& bucket : result_.buckets) {
            gradients.push_back({.name = fmt::format("bucket {}", gradients.size() + 1),
                                 .numel = bucket.elements,
                                 .dtype = bucket.dtype});
            ready_.push_back(bucket.ready);
        }
        findings_
            .assumed("gradients",
                     "one for each bucket, as the log knows no others: of other caps only "
                     "larger ones can be predicted; --model has them")
            .weakens = Weakens::scenario;
        return gradients;
    }

    // In the order in which backward finishes them, or against that of parameters: whichever makes
    // these buckets.
    std::vector<Gradient> model_gradients() {
        const Workload& model = request_.model;
        std::vector<std::int32_t> reversed(model.gradients.size());
        std::iota(reversed.rbegin(), reversed.rend(), 0);
        std::string why;
        for (const std::vector<std::int32_t>* order :
             std::initializer_list<const std::vector<std::int32_t>*>{&reversed, &model.readiness}) {
            std::vector<Gradient> gradients;
            for (const std::int32_t index : *order) {
                gradients.push_back(model.gradients[static_cast<std::size_t>(index)]);
                gradients.back().dtype = result_.buckets.front().dtype;
            }
            if (share_times(gradients, why)) {
                order_ = *order;
                findings_.found("gradients", "the model's {}, which in {} fill the buckets exactly",
                                gradients.size(),
                                order == &reversed ? "reverse order of parameters"
                                                   : "the order in which backward finishes them");
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
        for (const LoggedBucket& bucket : result_.buckets) {
            std::int64_t sum = 0;
            while (next < gradients.size() && sum < bucket.elements) {
                sum += gradients[next++].numel;
                ready_.push_back(before + scaled(bucket.ready - before,
                                                 static_cast<double>(sum) /
                                                     static_cast<double>(bucket.elements)));
                ready_.back() = std::min(ready_.back(), bucket.ready);
            }
            if (sum != bucket.elements) {
                why = fmt::format("one of {} elements where they make {}", bucket.elements, sum);
                return false;
            }
            before = bucket.ready;
        }
        why = fmt::format("buckets of {} gradients, of {}", next, gradients.size());
        return next == gradients.size();
    }

    // In the order of parameters.
    [[nodiscard]] Json gradients_json(const std::vector<Gradient>& gradients) const {
        std::vector<std::size_t> places(gradients.size());  // by parameter
        std::iota(places.rbegin(), places.rend(), 0);
        for (std::size_t i = 0; i < order_.size(); ++i) {
            places[static_cast<std::size_t>(order_[i])] = i;
        }
        return json_list(places, [&](std::size_t i) {
            return Json{{"name", gradients[i].name},
                        {"numel", gradients[i].numel},
                        {"dtype", name_of(gradients[i].dtype)},
                        {"ready_ms", rounded_ms(ready_[i])}};
        });
    }

    // --- how they are synchronised ---

    Json sync_json(std::vector<Gradient>& gradients) {
        Json sync{{"strategy", "ddp"}, {"broadcast_buffers", false}};
        const bool one_dtype = std::ranges::all_of(
            gradients, [&](const auto& g) { return g.dtype == gradients.front().dtype; });
        add_if(ranks_.front().gradients.unused_map, sync, "find_unused_parameters", true);
        if (!one_dtype) {
            findings_.missing("caps", "buckets are of several dtypes: taken as with the default")
                .weakens = Weakens::scenario;
            return sync;
        }
        const auto elements =
            transformed(result_.buckets, [](const auto& bucket) { return bucket.elements; });
        const bool unused_map = ranks_.front().gradients.unused_map;
        TracedCaps caps = caps_of(gradients, elements, unused_map);
        if (const auto hook = hook_of(gradients, elements, caps)) {
            sync["comm_hook"] = name_of(*hook);
            std::ranges::for_each(gradients, [](Gradient& g) { g.dtype = DType::float32; });
            caps = caps_of(gradients, elements, unused_map);
        }
        if (caps.explained) {
            findings_.found("caps", "{}", caps.text);
        } else {
            findings_.missing("caps", "{}", caps.text).weakens = Weakens::scenario;
        }
        const SyncRequest& request = caps.sync;
        add_optional(sync, "bucket_cap_mib", request.bucket_cap.named(), typed_mib);
        add_if(!request.explicit_cap_sets_first, sync, "pytorch_version", "1.13");
        add_unless_empty(
            sync, "bucket_cap_mib_list",
            transformed(request.bucket_cap_list, [](Bytes cap) { return typed_mib(cap); }));
        return sync;
    }

    static bool is_default(const TracedCaps& caps) {
        return caps.explained && !caps.sync.bucket_cap.named() &&
               caps.sync.bucket_cap_list.empty() && caps.sync.explicit_cap_sets_first;
    }

    // Buckets of 16 bits that the default caps form only of gradients of 32 are a hook's.
    std::optional<CommHook> hook_of(std::vector<Gradient> gradients,
                                    const std::vector<std::int64_t>& elements,
                                    const TracedCaps& caps) {
        const DType travels = gradients.front().dtype;
        if (element_size(travels).count != 2) {
            return std::nullopt;
        }
        std::ranges::for_each(gradients, [](Gradient& g) { g.dtype = DType::float32; });
        if (is_default(caps) ||
            !is_default(caps_of(gradients, elements, ranks_.front().gradients.unused_map))) {
            findings_.assumed("dtype",
                              "gradients are of the type that travels, {}; whether a hook casts "
                              "them to it cannot be told",
                              name_of(travels));
            return std::nullopt;
        }
        findings_.assumed("comm hook",
                          "gradients of float32 that travel as {}: of these the default caps make "
                          "such buckets, of {} they do not",
                          name_of(travels), name_of(travels));
        return travels == DType::float16 ? CommHook::fp16 : CommHook::bf16;
    }

    // What one rank's computing varies, as a share of all of it.
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
    Duration forward_{0};
    Duration backward_{0};
    bool from_start_ = false;          // the first bucket's gradients take time, too
    std::vector<Duration> ready_;      // of gradients by readiness
    std::vector<std::int32_t> order_;  // by readiness, parameters; empty: reversed
};

LinkParameters fitted_link(const LogImport& imported) {
    WireTimes times;
    for (const LoggedBucket& bucket : imported.buckets) {
        std::vector<double>& of_size = times[bucket.size()];
        of_size.insert(of_size.end(), bucket.wire_us.begin(), bucket.wire_us.end());
    }
    std::optional<LinkParameters> link = link_through(times, imported.ranks, imported.file);
    if (!link) {
        throw InputError(imported.file, "",
                         "a link (--link), or how long collectives took (a flight recorder knows "
                         "with TORCH_NCCL_ENABLE_TIMING)",
                         "neither");
    }
    link->name = (imported.backend.empty() ? "network" : imported.backend) + ", as logged";
    link->provenance.backend = imported.backend;
    link->provenance.versions = imported.version;
    std::ranges::copy(caveats_of(imported.findings, Weakens::link),
                      std::back_inserter(link->caveats));
    link->provenance.source = "durations of a log of collectives, least times";
    return *link;
}

Duration step_of(const Scenario& scenario) {
    const StepInput input = step_input(scenario);
    const Evaluator evaluator(input, scenario.sync);
    return evaluator.simulation(evaluator.program(scenario.sync.bucket_cap)).ranks.front().step();
}

}  // namespace

LogImport import_logs(const std::vector<CollectiveLog>& logs, const LogImportRequest& request) {
    return Importer(logs, request).import();
}

Scenario connect(LogImport& imported, const std::optional<std::string>& link,
                 const FileReader& read_file) {
    put_link(
        imported.scenario, link, imported.ranks, [&] { return fitted_link(imported); }, read_file);
    const auto parsed = [&] {
        return parse_scenario(imported.scenario, imported.file + " as a scenario", read_file);
    };
    Scenario scenario = parsed();
    if (!imported.period) {
        return scenario;
    }
    // Communication is simulated again: what the pause holds of it would count twice.
    const Duration waiting =
        imported.waiting.value_or(std::max(step_of(scenario) - *imported.period, Duration{0}));
    const Duration forward = std::max(imported.pause - waiting, Duration{0});
    imported.scenario["workload"]["forward_ms"] = rounded_ms(forward);
    if (imported.waiting) {
        imported.findings.found("waiting",
                                "the last all-reduces end {:.3f} ms after the last is issued, by "
                                "their durations: taken out of forward, which leaves {:.3f} ms",
                                to_ms(waiting), to_ms(forward));
    } else {
        imported.findings.assumed(
            "waiting",
            "no duration tells how long the host waits for the last all-reduces: {:.3f} ms, as the "
            "link has it, are taken out of forward, which leaves {:.3f} ms",
            to_ms(waiting), to_ms(forward));
    }
    return parsed();
}

void state_caveats(const Scenario& scenario, LogImport& imported) {
    if (!imported.period) {
        add_caveat(imported.scenario, {.text = "the log does not tell how long a step took, so "
                                               "nothing says how far its replay is off"});
    } else if (const auto caveat = replay_caveat(step_of(scenario), *imported.period, "the log")) {
        add_caveat(imported.scenario, *caveat);
    } else if (!imported.waiting) {
        add_caveat(imported.scenario,
                   {.text = "no duration tells how long all-reduces took: how long the host waits "
                            "for them is the link's word alone"});
    }
    for (const Caveat& caveat : caveats_of(imported.findings, Weakens::scenario)) {
        add_caveat(imported.scenario, caveat);
    }
}

std::string replay_text(const LogImport& imported, const Scenario& scenario) {
    const Duration step = step_of(scenario);
    if (!imported.period) {
        return fmt::format(
            "\n  Predicted: {:.3f} ms per step; the log does not tell how long one took.\n",
            to_ms(step));
    }
    const double error =
        static_cast<double>(step.count()) / static_cast<double>(imported.period->count()) - 1;
    std::string text =
        fmt::format("\n  Predicted: {:.3f} ms per step, logged {:.3f} ms ({:+.2f} %).\n",
                    to_ms(step), to_ms(*imported.period), 100 * error);
    constexpr double noticeable = 0.02;
    if (std::abs(error) > noticeable && imported.waiting) {
        text += fmt::format(
            "  The link takes {} for the last all-reduces than their logged durations say.\n",
            error > 0 ? "longer" : "less long");
    } else if (std::abs(error) > noticeable) {
        text +=
            "  The link takes longer for the all-reduces than the logged steps leave them: it is "
            "not theirs, or hosts ran ahead.\n";
    } else if (!imported.waiting) {
        text +=
            "  That they agree proves nothing: the wait was taken out as the same link has it.\n";
    }
    return text;
}

}  // namespace bucketwise
