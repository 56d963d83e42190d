#include "calibrate/comparison/measured_cap.h"

#include <map>
#include <utility>

#include <fmt/format.h>

#include "sim/base/error.h"
#include "sim/base/statistics.h"

namespace bucketwise {
namespace {

using StepRecords = std::vector<const StepRecord*>;

void append(std::vector<double>& all, const std::vector<double>& more) {
    all.insert(all.end(), more.begin(), more.end());
}

MeasuredCap summary_of(const StepRecords& records) {
    const StepRecord& first = *records.front();
    MeasuredCap summary;
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

}  // namespace

std::vector<MeasuredCap> measured_caps(const MeasuredRun& run) {
    std::map<std::pair<std::optional<Bytes>, bool>, StepRecords> by_cap;
    for (const StepRecord& record : run.steps) {
        StepRecords& records = by_cap[{record.cap, !record.is_default}];
        if (!records.empty() &&
            (records.front()->bucket_bytes != record.bucket_bytes ||
             records.front()->strategy != record.strategy ||
             records.front()->collective_begin_us.size() != record.collective_begin_us.size())) {
            throw InputError(run.file, "",
                             fmt::format("steps of one cap ({} bytes) with the same buckets",
                                         record.cap.value_or(Bytes{0}).count),
                             "different ones: the file mixes runs");
        }
        records.push_back(&record);
    }
    std::vector<MeasuredCap> caps;
    for (const auto& [key, records] : by_cap) {
        caps.push_back(summary_of(records));
    }
    return caps;
}

}  // namespace bucketwise
