#include "hw/nccl/gpu_gradients.h"

#include <array>
#include <bit>
#include <cstddef>

#include <fmt/format.h>

#include "hw/elements.h"
#include "hw/gradient_pattern.h"

namespace bucketwise {

GradientChecks::GradientChecks(const KernelPlan& plan, const std::vector<Gradient>& gradients,
                               GpuGradientBuffers& buffers, const PatternTables& patterns,
                               const GpuStream& stream)
    : plan_(plan),
      gradients_(gradients),
      buffers_(buffers),
      patterns_(patterns),
      stream_(stream),
      expected_(static_cast<std::int64_t>(gradients.size() * sizeof(ExpectedProduct))),
      results_(static_cast<std::int64_t>(gradients.size() * sizeof(CheckResult))) {}

void GradientChecks::arrange() {
    tables_.clear();
    for (const DType dtype : all_dtypes) {
        std::vector<TensorPlace> places;
        for (std::size_t i = 0; i < gradients_.size(); ++i) {
            if (gradients_[i].dtype == dtype) {
                places.push_back({.tensor = buffers_.gradient(static_cast<std::int32_t>(i)),
                                  .numel = gradients_[i].numel,
                                  .tensor_index = static_cast<std::int64_t>(i)});
            }
        }
        if (!places.empty()) {
            const std::vector<Chunk> chunks = chunks_of(places);
            OfDType table{
                .dtype = dtype,
                .count = static_cast<std::int64_t>(chunks.size()),
                .chunks = DeviceMemory(static_cast<std::int64_t>(chunks.size() * sizeof(Chunk)))};
            table.chunks.write(std::span<const Chunk>(chunks));
            tables_.push_back(std::move(table));
        }
    }
}

void GradientChecks::poison() {
    constexpr int not_a_number = 0xFF;  // in every byte: a NaN of every dtype
    for (const DeviceMemory* memory :
         {&buffers_.buckets_block(), &buffers_.own_block(), &buffers_.compressed_block()}) {
        if (memory->size_bytes() > 0) {
            check_gpu(
                cudaMemsetAsync(memory->at(0), not_a_number,
                                static_cast<std::size_t>(memory->size_bytes()), stream_.get()),
                "cudaMemsetAsync");
        }
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
    expected_.write(std::span<const ExpectedProduct>(expected));
    std::vector<CheckResult> results(gradients_.size());
    results_.write(std::span<const CheckResult>(results));
    for (const OfDType& table : tables_) {
        launch_check(stream_.get(), table.chunks.as<Chunk>(), table.count, table.dtype,
                     expected_.as<ExpectedProduct>(), results_.as<CheckResult>());
    }
    check_gpu(cudaStreamSynchronize(stream_.get()), "cudaStreamSynchronize");
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
    check_gpu(cudaMemcpy(value.data(),
                         buffers_.gradient(static_cast<std::int32_t>(gradient)) + element * bytes,
                         static_cast<std::size_t>(bytes), cudaMemcpyDeviceToHost),
              "cudaMemcpy");
    return element_at(value.data(), dtype, 0);
}

std::int64_t GradientChecks::memory_bytes() const {
    std::int64_t bytes = expected_.size_bytes() + results_.size_bytes();
    for (const OfDType& table : tables_) {
        bytes += table.chunks.size_bytes();
    }
    return bytes;
}

}  // namespace bucketwise
