#include "calibrate/comparison/measured_setting.h"

#include <limits>
#include <map>
#include <tuple>

#include <fmt/format.h>

#include "sim/base/error.h"
#include "sim/base/statistics.h"
#include "sim/report/sharding_text.h"
#include "sim/report/sweep_table.h"
#include "sim/scenario/sharding_input.h"

namespace bucketwise {
namespace {

using StepRecords = std::vector<const StepRecord*>;

void append(std::vector<double>& all, const std::vector<double>& more) {
    all.insert(all.end(), more.begin(), more.end());
}

MeasuredSetting summary_of(const StepRecords& records) {
    const StepRecord& first = *records.front();
    MeasuredSetting summary;
    summary.cap = first.cap;
    summary.is_default = first.is_default;
    summary.bucket_bytes = first.bucket_bytes;
    for (const StepRecord* record : records) {
        append(summary.step_us, record->samples_us);
        summary.rounds.resize(summary.step_us.size(), record->round);
        append(summary.free_communication_us, record->free_communication_us);
    }
    summary.exposed_us = median_of(records, &StepRecord::exposed_communication_us);
    const auto of_first_rank = [&](double RankStep::*part) {
        return median_of(records, [&](const StepRecord* r) { return r->by_rank.front().*part; });
    };
    summary.computing_us = median_of(records, [](const StepRecord* r) {
        return r->by_rank.front().step_us - r->by_rank.front().waiting_us;
    });
    summary.forward_us = of_first_rank(&RankStep::forward_us);
    summary.backward_us = of_first_rank(&RankStep::backward_us);
    summary.optimizer_us = of_first_rank(&RankStep::optimizer_us);
    summary.begin_us = medians_of(records, &StepRecord::collective_begin_us);
    summary.end_us = medians_of(records, &StepRecord::collective_end_us);
    summary.last_begin_us = medians_of(records, &StepRecord::collective_last_begin_us);
    return summary;
}

// --- sharded steps ---

// The setting of a record, which does not say the PyTorch version.
std::optional<ShardingRequest> sharding_of(const StepRecord& step, const Scenario& scenario,
                                           const MeasuredRun& run) {
    if (!scenario.sharding) {
        return std::nullopt;
    }
    ShardingRequest measured = step.sharding.value();
    measured.reduces_in_own_dtype = scenario.sharding->reduces_in_own_dtype;
    if (measured != with_turned_knobs(*scenario.sharding, measured)) {
        throw InputError(run.file, "/sharding",
                         "settings that differ from the scenario's in groups, resharding and "
                         "prefetching",
                         sharding_json(measured).dump());
    }
    return measured;
}

auto place_of(const ShardingRequest& request) {
    const std::int64_t layers = request.layers_per_group > 0
                                    ? request.layers_per_group
                                    : std::numeric_limits<std::int64_t>::max();
    const Zero3Settings& zero3 = request.zero3;
    return std::tuple(!request.reshard_after_forward, request.reshard_ranks.value_or(0),
                      request.groups, layers, request.forward_prefetch, request.backward_prefetch,
                      request.asynchronous_unshard, zero3.prefetch_elements,
                      zero3.reduce_bucket_elements, zero3.max_reuse_distance);
}

// The knobs of one setting, in the order of settings.
using Place = std::tuple<std::optional<Bytes>, bool, decltype(place_of(ShardingRequest{}))>;

}  // namespace

std::vector<MeasuredSetting> measured_settings(const Scenario& scenario, const MeasuredRun& run) {
    struct OfSetting {
        std::optional<ShardingRequest> sharding;
        StepRecords records;
    };
    std::map<Place, OfSetting> by_place;
    for (const StepRecord& record : run.steps) {
        const std::optional<ShardingRequest> sharding = sharding_of(record, scenario, run);
        const Place place{record.cap, !record.is_default,
                          place_of(sharding.value_or(ShardingRequest{}))};
        OfSetting& setting = by_place[place];
        setting.sharding = sharding;
        StepRecords& records = setting.records;
        if (!records.empty() &&
            (records.front()->bucket_bytes != record.bucket_bytes ||
             records.front()->strategy != record.strategy ||
             records.front()->collective_begin_us.size() != record.collective_begin_us.size())) {
            const std::string expected =
                sharding ? fmt::format("steps of one setting ({}) with the same collectives",
                                       setting_label(*sharding))
                         : fmt::format("steps of one cap ({} bytes) with the same buckets",
                                       record.cap.value_or(Bytes{0}).count);
            throw InputError(run.file, "", expected, "different ones: the file mixes runs");
        }
        records.push_back(&record);
    }
    std::vector<MeasuredSetting> settings;
    for (const auto& [place, of_setting] : by_place) {
        MeasuredSetting& setting = settings.emplace_back(summary_of(of_setting.records));
        setting.sharding = of_setting.sharding;
        setting.is_default |= setting.sharding && setting.sharding == scenario.sharding;
    }
    return settings;
}

std::string setting_name(const MeasuredSetting& setting) {
    return setting.sharding ? setting_label(*setting.sharding) : bucket_cap_text(setting.cap);
}

}  // namespace bucketwise
