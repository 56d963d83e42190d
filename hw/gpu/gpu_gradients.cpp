#include "hw/gpu/gpu_gradients.h"

#include <array>
#include <bit>
#include <cstddef>

#include <fmt/format.h>

#include "hw/compute/elements.h"
#include "hw/compute/gradient_pattern.h"

namespace bucketwise {

GradientChecks::GradientChecks(const KernelPlan& plan, const std::vector<Gradient>& gradients,
                               const GradientBuffers& buffers, const PatternTables& patterns,
                               const GpuStream& stream)
    : plan_(plan),
      gradients_(gradients),
      buffers_(buffers),
      patterns_(patterns),
      stream_(stream),
      expected_(static_cast<std::int64_t>(gradients.size() * sizeof(ExpectedProduct))),
      results_(static_cast<std::int64_t>(gradients.size() * sizeof(CheckResult))) {}

void GradientChecks::arrange() {
    std::vector<TensorPlace> tensors;
    for (std::size_t i = 0; i < gradients_.size(); ++i) {
        tensors.push_back({.tensor = buffers_.gradient(static_cast<std::int32_t>(i)),
                           .numel = gradients_[i].numel,
                           .tensor_index = static_cast<std::int64_t>(i)});
    }
    tables_ = tables_by_dtype(gradients_, tensors);
}

void GradientChecks::poison() {
    constexpr int not_a_number = 0xFF;  // in every byte: a NaN of every dtype
    for (const TensorMemory* memory : buffers_.blocks()) {
        stream_.fill(memory->at(0), not_a_number, memory->size_bytes());
    }
}

StepCheck GradientChecks::check(double mean, const std::vector<double>& tolerances) {
    std::vector<ExpectedProduct> expected;
    for (std::size_t i = 0; i < gradients_.size(); ++i) {
        expected.push_back({.rows = patterns_.rows.as<float>(),
                            .pattern = patterns_.columns.as<float>(),
                            .columns = plan_.columns[i],
                            .factor = gradient_factor(static_cast<std::int64_t>(i)) * mean,
                            .tolerance = tolerances[i]});
    }
    expected_.write(expected);
    std::vector<CheckResult> results(gradients_.size());
    results_.write(results);
    for (const GradientsOfDType& table : tables_) {
        launch_check(stream_.get(), table.chunks.data(), table.chunks.count(), table.dtype,
                     expected_.as<ExpectedProduct>(), results_.as<CheckResult>());
    }
    stream_.wait();
    results_.copy_out(results.data(), 0, results_.size_bytes());
    StepCheck found;
    for (std::size_t i = 0; i < gradients_.size(); ++i) {
        const auto difference = std::bit_cast<double>(results[i].largest_difference_bits);
        found.largest_difference = std::max(found.largest_difference, difference);
        const std::int64_t element = results[i].first_wrong;
        if (element >= 0 && found.wrong.empty()) {
            const double exact = expected[i].factor * row_value(element / plan_.columns[i]) *
                                 column_value(element % plan_.columns[i]);
            found.wrong = fmt::format("gradient {}, element {}: expected the mean {}, got {}",
                                      gradients_[i].name, element, exact, element_of(i, element));
        }
    }
    return found;
}

double GradientChecks::element_of(std::size_t gradient, std::int64_t element) {
    const DType dtype = gradients_[gradient].dtype;
    const std::int64_t bytes = element_size(dtype).count;
    std::array<std::byte, sizeof(double)> value{};
    copy_to_host(value.data(),
                 buffers_.gradient(static_cast<std::int32_t>(gradient)) + element * bytes, bytes);
    return element_at(value.data(), dtype, 0);
}

std::int64_t GradientChecks::memory_bytes() const {
    std::int64_t bytes = expected_.size_bytes() + results_.size_bytes();
    for (const GradientsOfDType& table : tables_) {
        bytes += table.chunks.size_bytes();
    }
    return bytes;
}

}  // namespace bucketwise
