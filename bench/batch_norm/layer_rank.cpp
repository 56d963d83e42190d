#include "bench/batch_norm/layer_rank.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>

#include <fmt/format.h>

#include "hw/batch_norm/sync_batch_norm.h"
#include "sim/base/statistics.h"

namespace bucketwise {
namespace {

// Each rank's input is spread evenly around a mean of its own. Weight 1 and bias 0 leave the output
// normalised.
BatchNormValues values_of(const BatchNormLayer& layer, int rank) {
    BatchNormValues values;
    values.shape = {layer.rows, layer.channels};
    const auto elements = static_cast<std::size_t>(values.shape.elements());
    const auto channels = static_cast<std::size_t>(layer.channels);
    std::uint64_t state = static_cast<std::uint64_t>(rank) * 2 + 3;
    const auto number = [&state] {  // from -1 to 1
        state = state * 6364136223846793005U + 1442695040888963407U;
        return static_cast<float>(static_cast<double>(state >> 11U) * 0x1p-52 - 1);
    };
    values.input.resize(elements);
    std::ranges::generate(values.input, [&] { return static_cast<float>(rank) + number(); });
    values.output_gradient.resize(elements);
    std::ranges::generate(values.output_gradient, number);
    values.weight.assign(channels, 1.0F);
    values.bias.assign(channels, 0.0F);
    return values;
}

// Sums over one rank's rows, by channel, which show whether the whole batch was normalised.
constexpr std::size_t sums_per_channel = 6;

std::vector<double> sums_of(const BatchNormValues& values, const BatchNormResult& result) {
    const auto channels = static_cast<std::size_t>(values.shape.channels);
    std::vector<double> sums(sums_per_channel * channels);
    for (std::size_t i = 0; i < result.output.size(); ++i) {
        const double x = values.input[i];
        const double y = result.output[i];
        const double dx = result.input_gradient.empty() ? 0.0F : result.input_gradient[i];
        const std::array terms{x, x * x, y, y * y, dx, dx * y};
        for (std::size_t k = 0; k < terms.size(); ++k) {
            sums[k * channels + i % channels] += terms.at(k);
        }
    }
    return sums;
}

// Over all ranks an output has mean 0 and variance v / (v + epsilon), where v is the input's. An
// input gradient has no component along 1 nor along the output, apart from epsilon's share of it.
void check_normalised(const std::vector<std::vector<double>>& sums_by_rank,
                      const BatchNormLayer& layer) {
    const auto channels = static_cast<std::size_t>(layer.channels);
    const auto n = static_cast<double>(layer.rows * layer.ranks);
    constexpr double allowed = 1e-3;
    for (std::size_t channel = 0; n > 0 && channel < channels; ++channel) {
        std::array<double, sums_per_channel> mean{};
        for (const std::vector<double>& sums : sums_by_rank) {
            for (std::size_t k = 0; k < mean.size(); ++k) {
                mean.at(k) += sums[k * channels + channel] / n;
            }
        }
        const double variance = std::max(mean[1] - mean[0] * mean[0], 0.0);
        const double expected = variance / (variance + batch_norm_epsilon);
        const double rest = batch_norm_epsilon / (variance + batch_norm_epsilon);
        const double along = 10 * rest / std::sqrt(variance + batch_norm_epsilon);
        if (!(std::abs(mean[2]) <= allowed && std::abs(mean[3] - expected) <= allowed &&
              std::abs(mean[4]) <= allowed && std::abs(mean[5]) <= allowed + along)) {
            throw std::runtime_error(fmt::format(
                "{} of {} x {}: channel {} has outputs of mean {:.3g} and variance {:.6g}, "
                "expected 0 and {:.6g}, and gradients along 1 and along the output of {:.3g} and "
                "{:.3g}, expected 0",
                name_of(layer.system), layer.rows, layer.channels, channel, mean[2],
                mean[3] - mean[2] * mean[2], expected, mean[4], mean[5]));
        }
    }
}

}  // namespace

BenchRows measure_layers(const std::vector<BatchNormLayer>& layers, std::int64_t iterations,
                         const MeasuringOrder& order, RankSession& session) {
    const int rank = session.control().rank();
    const std::unique_ptr<BatchNormDevice> device = session.connection().batch_norm();
    const auto made = [&](const BatchNormLayer& layer, const BatchNormValues& values) {
        return SyncBatchNorm(*device, real_layer_of(layer.system).value(), layer.passes, values);
    };
    const auto label_of = [](const BatchNormLayer& layer) {
        return fmt::format("{} {} x {}", name_of(layer.system), layer.rows, layer.channels);
    };
    session.expect((order.rounds + 1) * std::ssize(layers));
    for (const BatchNormLayer& layer : layers) {  // which also warms up
        session.show("checking: " + label_of(layer));
        const BatchNormValues values = values_of(layer, rank);
        check_normalised(session.gather(sums_of(values, made(layer, values).run())), layer);
        session.item_done();
    }
    std::vector<std::vector<double>> samples_us(layers.size());
    std::vector<double> peaks(layers.size());
    const auto measure = [&](std::int64_t /*round*/, std::size_t item) {
        SyncBatchNorm layer = made(layers[item], values_of(layers[item], rank));
        // The first step allocates the memory that the others use, and does not count.
        std::vector<Duration> times = layer.repeat(iterations + 1, [&] { session.show_again(); });
        times.erase(times.begin());
        std::ranges::copy(session.slowest_us(times), std::back_inserter(samples_us[item]));
        for (const double peak :
             session.greatest(std::array{static_cast<double>(layer.peak_bytes())})) {
            peaks[item] = std::max(peaks[item], peak);
        }
    };
    session.take_rounds(
        order, layers.size(), [&](std::size_t item) { return label_of(layers[item]); }, measure);
    BenchRows rows;
    for (std::size_t i = 0; session.is_first() && i < layers.size(); ++i) {
        const std::vector<double>& us = samples_us[i];
        rows.push_back({{"samples", us.size()},
                        {"median_s", median(us) * 1e-6},
                        {"p10_s", quantile(us, 0.1) * 1e-6},
                        {"p90_s", quantile(us, 0.9) * 1e-6},
                        {"max_memory_bytes", static_cast<std::int64_t>(peaks[i])}});
    }
    return rows;
}

}  // namespace bucketwise
