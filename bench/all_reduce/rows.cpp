#include "bench/all_reduce/rows.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>
#include <variant>

#include "sim/base/statistics.h"

namespace bucketwise {
namespace {

std::string algorithm_of(const Transport& transport) {
    return transport.implementation == "library" ? transport.implementation : transport.algorithm;
}

void add_record(AllReduceRow& row, const AllReduceRecord& record) {
    row.place = {record.transport.ranks, record.size, algorithm_of(record.transport)};
    row.dtype = record.dtype;
    MeasuredAllReduce& measured =
        row.measured ? *row.measured : row.measured.emplace(MeasuredAllReduce{});
    measured.transport = record.transport;
    measured.samples_us.insert(measured.samples_us.end(), record.samples_us.begin(),
                               record.samples_us.end());
    measured.largest_difference = std::max(measured.largest_difference, record.largest_difference);
    if (record.peak_memory_bytes >= measured.peak_memory_bytes) {
        measured.peak_memory_bytes = record.peak_memory_bytes;
        measured.memory_before_bytes = record.memory_before_bytes;
    }
}

}  // namespace

std::vector<AllReduceRow> measured_rows(const std::vector<Measurement>& records) {
    std::vector<Transport> worlds;
    std::map<std::pair<std::size_t, Bytes>, AllReduceRow> rows;
    for (const Measurement& measurement : records) {
        const auto* record = std::get_if<AllReduceRecord>(&measurement);
        if (record == nullptr) {
            continue;
        }
        const auto world = std::find(worlds.begin(), worlds.end(), record->transport);
        const auto number = static_cast<std::size_t>(world - worlds.begin());
        if (world == worlds.end()) {
            worlds.push_back(record->transport);
        }
        add_record(rows[{number, record->size}], *record);
    }
    std::vector<AllReduceRow> list;
    for (auto& [key, row] : rows) {
        row.measured->median_us = median(row.measured->samples_us);
        list.push_back(std::move(row));
    }
    return list;
}

void add_published(std::vector<AllReduceRow>& rows,
                   const std::vector<PublishedAllReduce>& published, DType dtype) {
    for (const PublishedAllReduce& entry : published) {
        const auto found = std::find_if(rows.begin(), rows.end(), [&](const AllReduceRow& row) {
            return row.place == entry.place && row.dtype == dtype && !row.published;
        });
        if (found != rows.end()) {
            found->published = entry;
            continue;
        }
        AllReduceRow row{.place = entry.place, .dtype = dtype, .published = entry};
        // Two tables may tell of the same, and our own measurement stands beside both.
        const auto twin = std::find_if(rows.begin(), rows.end(), [&](const AllReduceRow& other) {
            return other.place == entry.place && other.dtype == dtype;
        });
        if (twin != rows.end()) {
            row.measured = twin->measured;
            row.simulated = twin->simulated;
        }
        rows.push_back(std::move(row));
    }
}

std::vector<AllReduceRow> by_size(std::vector<AllReduceRow> rows) {
    std::stable_sort(rows.begin(), rows.end(), [](const AllReduceRow& a, const AllReduceRow& b) {
        return std::tie(a.place.ranks, a.place.size) < std::tie(b.place.ranks, b.place.size);
    });
    return rows;
}

}  // namespace bucketwise
