// The median of times: one that was measured, not the mean of two.
#pragma once

#include <algorithm>
#include <vector>

namespace bucketwise {

// The middle value; where two are, the larger one. Precondition: values.
template <typename T>
T upper_median(std::vector<T> values) {
    const auto middle = values.begin() + std::ssize(values) / 2;
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

}  // namespace bucketwise
