#include "cli/measure.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "cli/shell/result_table.h"
#include "cli/shell/size.h"
#include "sim/base/statistics.h"
#include "sim/base/units.h"
#include "sim/link/collective.h"
#include "sim/report/sharding_text.h"

namespace bucketwise {
namespace {

void append_all(std::vector<double>& to, const std::vector<double>& from) {
    to.insert(to.end(), from.begin(), from.end());
}

std::string milliseconds(double us) {
    return fmt::format("{:.2f}", us / 1e3);
}

std::string spread_text(const std::vector<double>& samples) {
    return fmt::format("{:.1f} %", 100 * spread(samples));
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

// The record of an isolated message of that kind, or null.
const CollectiveRecord* isolated_message(CollectiveKind kind, const Measurement& record) {
    const auto* collective = std::get_if<CollectiveRecord>(&record);
    return collective != nullptr && collective->kind == kind ? collective : nullptr;
}

std::string isolated_text(CollectiveKind kind, const std::vector<Measurement>& records) {
    std::map<Bytes, std::vector<double>> by_size;
    std::int64_t ranks = 1;
    for (const Measurement& record : records) {
        if (const CollectiveRecord* r = isolated_message(kind, record)) {
            append_all(by_size[r->size], r->samples_us);
            ranks = r->transport.ranks;
        }
    }
    if (by_size.empty()) {
        return "";
    }
    TextTable table{.header = {"message", "samples", "median ms", "bus GB/s", "spread"}};
    for (const auto& [size, samples] : by_size) {
        const double us = median(samples);
        table.rows.push_back(
            {text_of(size), std::to_string(samples.size()), fmt::format("{:.3f}", us / 1e3),
             fmt::format("{:.3f}", us > 0 ? bus_gb_per_s(kind, size, ranks, us) : 0.0),
             spread_text(samples)});
    }
    return fmt::format("\n{} alone\n{}", name_of(kind), aligned_text(table));
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
                               "{} over ranks and rounds\n",
                               milliseconds(median(forward)), milliseconds(median(backward)),
                               milliseconds(median(steps)), spread_text(steps));
}

struct Slowdowns {
    std::vector<double> compute;
    std::vector<double> collective;
};

std::string contention_text(const std::vector<Measurement>& records) {
    // By kind, size and thread blocks; 0: not said.
    std::map<std::tuple<CollectiveKind, Bytes, std::int64_t>, Slowdowns> by_size;
    for (const Measurement& record : records) {
        const auto* r = std::get_if<ContentionRecord>(&record);
        if (r == nullptr) {
            continue;
        }
        Slowdowns& slowdowns = by_size[{r->collective, r->size, r->transport.ctas.value_or(0)}];
        slowdowns.collective.push_back(median(r->allreduce_disturbed_us) /
                                       median(r->allreduce_alone_us));
        for (std::size_t i = 0; i < r->compute_alone_us.size(); ++i) {
            if (r->compute_alone_us[i] > 0) {
                slowdowns.compute.push_back(r->compute_disturbed_us[i] / r->compute_alone_us[i]);
            }
        }
    }
    if (by_size.empty()) {
        return "";
    }
    TextTable table{.header = {"message", "CTAs", "collective", "of compute", "of message"}};
    for (const auto& [key, slowdowns] : by_size) {
        const auto& [kind, size, ctas] = key;
        table.rows.push_back(
            {text_of(size), ctas == 0 ? "-" : std::to_string(ctas), std::string(name_of(kind)),
             slowdowns.compute.empty() ? "?" : fmt::format("{:.2f}", median(slowdowns.compute)),
             fmt::format("{:.2f}", median(slowdowns.collective))});
    }
    return "\nboth at once, slowdown of each\n" + aligned_text(table);
}

struct StepSamples {
    std::size_t messages = 0;  // buckets, or collectives of a sharded step
    std::vector<double> steps;
    std::vector<double> exposed;
    std::vector<double> waiting;
};

// A step by its cap, the default last, or by its setting.
struct StepKey {
    std::optional<Bytes> cap = {};
    bool is_default = false;
    std::string setting = {};
    auto operator<=>(const StepKey&) const = default;
};

StepKey key_of(const StepRecord& record) {
    if (record.sharding) {
        return {.setting = setting_label(*record.sharding)};
    }
    return {.cap = record.cap, .is_default = record.is_default};
}

std::string step_table(const std::map<StepKey, StepSamples>& by_key) {
    const bool sharded = !by_key.begin()->first.setting.empty();
    TextTable table{.header = {sharded ? "group" : "bucket cap", sharded ? "sent" : "buckets",
                               "samples", "median ms", "spread", "exposed ms", "waiting ms", ""}};
    for (const auto& [key, samples] : by_key) {
        table.rows.push_back(
            {sharded   ? key.setting
             : key.cap ? text_of(*key.cap)
                       : "-",
             std::to_string(samples.messages), std::to_string(samples.steps.size()),
             milliseconds(median(samples.steps)), spread_text(samples.steps),
             milliseconds(median(samples.exposed)), milliseconds(median(samples.waiting)),
             key.is_default ? "default" : ""});
    }
    return "\nsteps\n" + aligned_text(table);
}

std::string step_text(const std::vector<Measurement>& records) {
    std::map<StepKey, StepSamples> by_key;
    double difference = 0;
    std::int64_t memory_bytes = 0;
    for (const Measurement& record : records) {
        const auto* r = std::get_if<StepRecord>(&record);
        if (r == nullptr) {
            continue;
        }
        StepSamples& samples = by_key[key_of(*r)];
        samples.messages = r->sharding ? r->collective_begin_us.size() : r->bucket_bytes.size();
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
    if (by_key.empty()) {
        return "";
    }
    std::string text = step_table(by_key);
    const bool any_sums = std::any_of(by_key.begin(), by_key.end(),
                                      [](const auto& entry) { return entry.second.messages > 0; });
    if (any_sums) {
        text += fmt::format(
            "every sum is right: no element further than {:.2g} from the exact mean\n", difference);
    }
    return text + fmt::format("at most {} of memory per rank\n", text_of(Bytes{memory_bytes}));
}

}  // namespace

std::string measure_report(const std::vector<Measurement>& records) {
    std::string text = environment_text(records);
    for (const CollectiveKind kind :
         {CollectiveKind::all_reduce, CollectiveKind::all_gather, CollectiveKind::reduce_scatter}) {
        text += isolated_text(kind, records);
    }
    return text + compute_text(records) + contention_text(records) + step_text(records);
}

}  // namespace bucketwise
