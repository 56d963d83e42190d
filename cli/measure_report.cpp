#include "cli/measure.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "cli/shell/size.h"
#include "sim/base/statistics.h"
#include "sim/base/units.h"
#include "sim/link/collective.h"

namespace bucketwise {
namespace {

void append_all(std::vector<double>& to, const std::vector<double>& from) {
    to.insert(to.end(), from.begin(), from.end());
}

std::string milliseconds(double us) {
    return fmt::format("{:.2f}", us / 1e3);
}

std::string environment_text(const std::vector<Measurement>& records) {
    for (const Measurement& record : records) {
        if (const auto* e = std::get_if<EnvironmentRecord>(&record)) {
            return fmt::format("{} ranks, {} {} all-reduce over {}{}; {}\n", e->transport.ranks,
                               e->transport.implementation, e->transport.algorithm,
                               e->transport.backend,
                               e->link_rate.empty() ? "" : " at " + e->link_rate, hardware_of(*e));
        }
    }
    return "";
}

std::string all_reduce_text(const std::vector<Measurement>& records) {
    std::map<Bytes, std::vector<double>> by_size;
    std::int64_t ranks = 1;
    for (const Measurement& record : records) {
        if (const auto* r = std::get_if<AllReduceRecord>(&record)) {
            append_all(by_size[r->size], r->samples_us);
            ranks = r->transport.ranks;
        }
    }
    if (by_size.empty()) {
        return "";
    }
    std::string text = fmt::format("\nall-reduce alone\n  {:>10}  {:>8}  {:>12}  {:>14}  {:>7}\n",
                                   "message", "samples", "median ms", "bus GB/s", "spread");
    for (const auto& [size, samples] : by_size) {
        const double middle = median(samples);
        text += fmt::format(
            "  {:>10}  {:>8}  {:>12.3f}  {:>14.3f}  {:>5.1f} %\n", text_of(size), samples.size(),
            middle / 1e3,
            middle > 0 ? bus_gb_per_s(CollectiveKind::all_reduce, size, ranks, middle) : 0.0,
            100 * spread(samples));
    }
    return text;
}

std::string compute_text(const std::vector<Measurement>& records) {
    std::vector<double> steps;
    std::vector<double> forward;
    std::vector<double> backward;
    for (const Measurement& record : records) {
        if (const auto* r = std::get_if<ComputeRecord>(&record)) {
            append_all(steps, r->samples_us);
            forward.push_back(r->forward_us);
            backward.push_back(r->backward_us);
        }
    }
    return steps.empty() ? ""
                         : fmt::format(
                               "\ncompute alone: forward {} ms, backward {} ms; step {} ms, spread "
                               "{:.1f} % over ranks and rounds\n",
                               milliseconds(median(forward)), milliseconds(median(backward)),
                               milliseconds(median(steps)), 100 * spread(steps));
}

struct Slowdowns {
    std::vector<double> compute;
    std::vector<double> all_reduce;
};

std::string contention_text(const std::vector<Measurement>& records) {
    std::map<std::pair<Bytes, std::int64_t>, Slowdowns> by_size;  // and thread blocks; 0: not said
    for (const Measurement& record : records) {
        const auto* r = std::get_if<ContentionRecord>(&record);
        if (r == nullptr) {
            continue;
        }
        Slowdowns& slowdowns = by_size[{r->size, r->transport.ctas.value_or(0)}];
        slowdowns.all_reduce.push_back(median(r->allreduce_disturbed_us) /
                                       median(r->allreduce_alone_us));
        for (std::size_t i = 0; i < r->compute_alone_us.size(); ++i) {
            if (r->compute_alone_us[i] > 0) {
                slowdowns.compute.push_back(r->compute_disturbed_us[i] / r->compute_alone_us[i]);
            }
        }
    }
    std::string text = by_size.empty() ? "" : "\nboth at once, times longer than alone\n";
    for (const auto& [key, slowdowns] : by_size) {
        const auto& [size, ctas] = key;
        text += fmt::format(
            "  {:>10}{}  compute {}, all-reduce {:.2f}\n", text_of(size),
            ctas == 0 ? "" : fmt::format("  {:>3} CTAs", ctas),
            slowdowns.compute.empty() ? "?" : fmt::format("{:.2f}", median(slowdowns.compute)),
            median(slowdowns.all_reduce));
    }
    return text;
}

struct CapSamples {
    std::size_t buckets = 0;
    std::vector<double> steps;
    std::vector<double> exposed;
    std::vector<double> waiting;
};

std::string step_text(const std::vector<Measurement>& records) {
    std::map<std::pair<std::optional<Bytes>, bool>, CapSamples> by_cap;
    double difference = 0;
    std::int64_t memory_bytes = 0;
    for (const Measurement& record : records) {
        const auto* r = std::get_if<StepRecord>(&record);
        if (r == nullptr) {
            continue;
        }
        CapSamples& samples = by_cap[{r->cap, r->is_default}];
        samples.buckets = r->bucket_bytes.size();
        append_all(samples.steps, r->samples_us);
        samples.exposed.push_back(r->exposed_communication_us);
        double waiting = 0;
        for (const RankStep& step : r->by_rank) {
            waiting = std::max(waiting, step.waiting_us);
            memory_bytes = std::max(memory_bytes, step.peak_memory_bytes);
        }
        samples.waiting.push_back(waiting);
        difference = std::max(difference, r->largest_difference);
    }
    if (by_cap.empty()) {
        return "";
    }
    std::string text = fmt::format(
        "\nsteps\n  {:>12}  {:>7}  {:>7}  {:>10}  {:>7}  {:>10}  {:>10}\n", "bucket cap", "buckets",
        "samples", "median ms", "spread", "exposed ms", "waiting ms");
    for (const auto& [key, samples] : by_cap) {
        const std::string cap = key.first ? text_of(*key.first) : "-";
        text +=
            fmt::format("  {:>12}  {:>7}  {:>7}  {:>10}  {:>5.1f} %  {:>10}  {:>10}{}\n", cap,
                        samples.buckets, samples.steps.size(), milliseconds(median(samples.steps)),
                        100 * spread(samples.steps), milliseconds(median(samples.exposed)),
                        milliseconds(median(samples.waiting)), key.second ? "  default" : "");
    }
    const bool any_sums = std::any_of(by_cap.begin(), by_cap.end(),
                                      [](const auto& entry) { return entry.second.buckets > 0; });
    if (any_sums) {
        text += fmt::format(
            "every sum is right: no element further than {:.2g} from the exact mean\n", difference);
    }
    return text + fmt::format("at most {} of memory per rank\n", text_of(Bytes{memory_bytes}));
}

}  // namespace

std::string measure_report(const std::vector<Measurement>& records) {
    return environment_text(records) + all_reduce_text(records) + compute_text(records) +
           contention_text(records) + step_text(records);
}

}  // namespace bucketwise
