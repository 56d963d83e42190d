// Medians over the records of several rounds: of one time, or of a list of times, one by one.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "sim/base/statistics.h"

namespace bucketwise {

// `value` gives a record's time.
template <typename Records, typename Value>
double median_of(const Records& records, const Value& value) {
    std::vector<double> values;
    for (const auto& record : records) {
        values.push_back(value(record));
    }
    return median(std::move(values));
}

// `list` gives a record's times, as many of each record as of the first.
template <typename Records, typename List>
std::vector<double> medians_of(const Records& records, const List& list) {
    std::vector<double> medians;
    for (std::size_t i = 0; i < list(records.front()).size(); ++i) {
        medians.push_back(median_of(records, [&](const auto& record) { return list(record)[i]; }));
    }
    return medians;
}

}  // namespace bucketwise
