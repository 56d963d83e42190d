// bucketwise bench syncbn: time and peak memory of a BatchNorm layer that is synchronised over
// ranks, by implementation, batch and width; on real ranks, simulated, and published.
#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "bench/batch_norm/options.h"
#include "bench/batch_norm/report.h"
#include "bench/benches.h"
#include "cli/ranks/rank_bench.h"
#include "cli/shell/exit_codes.h"
#include "cli/shell/files.h"
#include "hw/batch_norm/sync_batch_norm.h"

namespace bucketwise {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(MeasuredLayer, samples_us, peak_memory_bytes)

namespace {

// Seeded by the rank, spread evenly over -1 to 1.
class SeededNumbers {
  public:
    explicit SeededNumbers(std::uint64_t seed) : state_(seed * 2 + 1) {}
    float operator()() {
        state_ = state_ * 6364136223846793005U + 1442695040888963407U;
        return static_cast<float>(static_cast<double>(state_ >> 11U) * 0x1p-52 - 1);
    }

  private:
    std::uint64_t state_;
};

// Each rank's input has a mean of its own. Weight 1 and bias 0, so that the output is normalised.
BatchNormValues values_of(const BatchNormLayer& layer, int rank) {
    BatchNormValues values;
    values.shape = {layer.rows, layer.channels};
    const auto elements = static_cast<std::size_t>(values.shape.elements());
    const auto channels = static_cast<std::size_t>(layer.channels);
    SeededNumbers numbers(static_cast<std::uint64_t>(rank) + 1);
    values.input.resize(elements);
    std::ranges::generate(values.input, [&] { return static_cast<float>(rank) + numbers(); });
    values.output_gradient.resize(elements);
    std::ranges::generate(values.output_gradient, std::ref(numbers));
    values.weight.assign(channels, 1.0F);
    values.bias.assign(channels, 0.0F);
    return values;
}

// Sums over one rank's rows, by channel, that say whether the whole batch was normalised.
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

// Over all ranks an output has mean 0 and variance v / (v + epsilon), v the input's; and an input
// gradient has no component along 1 nor along the output (but for epsilon's part of it).
std::string what_is_wrong(const std::vector<std::vector<double>>& sums_by_rank,
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
            return fmt::format(
                "{} of {} x {}: channel {} has outputs of mean {:.3g} and variance {:.6g}, "
                "expected 0 and {:.6g}, and gradients along 1 and along the output of {:.3g} and "
                "{:.3g}, expected 0",
                name_of(layer.system), layer.rows, layer.channels, channel, mean[2],
                mean[3] - mean[2] * mean[2], expected, mean[4], mean[5]);
        }
    }
    return "";
}

class SyncBnRank {
  public:
    SyncBnRank(const BenchSyncBnOptions& options, RankSession& session)
        : options_(options), session_(session), device_(session.connection().batch_norm()) {
        session.expect((options.rounds + 1) * std::ssize(options.layers));
    }

    // By index of the options' layers, on rank 0.
    MeasuredLayers run(const MeasuringOrder& order) {
        for (const BatchNormLayer& layer : options_.layers) {
            check(layer);
        }
        session_.take_rounds(
            order, options_.layers.size(),
            [&](std::size_t item) { return label_of(options_.layers[item]); },
            [&](std::int64_t, std::size_t item) { measure(item); });
        return measured_;
    }

  private:
    [[nodiscard]] SyncBatchNorm layer_of(const BatchNormLayer& layer,
                                         const BatchNormValues& values) {
        return {*device_, real_layer_of(layer.system).value(), layer.passes, values};
    }

    // Warms up, too.
    void check(const BatchNormLayer& layer) {
        session_.show("checking: " + label_of(layer));
        const BatchNormValues values = values_of(layer, session_.control().rank());
        const BatchNormResult result = layer_of(layer, values).run();
        const std::vector<std::vector<double>> sums = session_.gather(sums_of(values, result));
        const std::string wrong = sums.empty() ? "" : what_is_wrong(sums, layer);
        if (!wrong.empty()) {
            throw std::runtime_error(wrong);
        }
        session_.item_done();
    }

    // One step more than counts comes first: it makes what memory the others use.
    void measure(std::size_t index) {
        const BatchNormLayer& description = options_.layers[index];
        SyncBatchNorm layer =
            layer_of(description, values_of(description, session_.control().rank()));
        std::vector<Duration> times =
            layer.repeat(options_.iterations + 1, [&] { session_.show_again(); });
        times.erase(times.begin());
        const std::vector<double> us = session_.slowest_us(times);
        const std::vector<double> peak =
            session_.greatest(std::array{static_cast<double>(layer.peak_bytes())});
        if (session_.is_first()) {
            MeasuredLayer& measured = measured_[index];
            measured.samples_us.insert(measured.samples_us.end(), us.begin(), us.end());
            measured.peak_memory_bytes =
                std::max(measured.peak_memory_bytes, static_cast<std::int64_t>(peak.front()));
        }
    }

    static std::string label_of(const BatchNormLayer& layer) {
        return fmt::format("{} {} x {}", name_of(layer.system), layer.rows, layer.channels);
    }

    const BenchSyncBnOptions& options_;
    RankSession& session_;
    std::unique_ptr<BatchNormDevice> device_;
    MeasuredLayers measured_;
};

}  // namespace

int run_bench_syncbn(const CommandLine& line) {
    const std::optional<RankIdentity> identity = rank_from_environment(environment_variable);
    const BenchSyncBnOptions options = bench_syncbn_options(line, identity);
    const auto print = [&](const EnvironmentRecord& environment, const MeasuredLayers& measured) {
        write_output("-", bench_syncbn_report(options, environment, measured));
    };
    if (options.backend != nullptr) {
        const RankJob job = job_of(options, options.ranks);
        return run_rank_bench<MeasuredLayers>(
            job, identity,
            [&](RankSession& session) { return SyncBnRank(options, session).run(job.order); },
            print);
    }
    if (!identity || identity->rank == 0) {  // nothing is measured, and one of them prints
        print({}, {});
    }
    return exit_done;
}

}  // namespace bucketwise
