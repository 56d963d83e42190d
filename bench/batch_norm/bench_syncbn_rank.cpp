#include "bench/batch_norm/bench_syncbn_rank.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <functional>
#include <memory>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/shell/files.h"
#include "cli/shell/progress.h"
#include "hw/backend/backend.h"
#include "hw/batch_norm/sync_batch_norm.h"
#include "hw/measure/measuring_order.h"
#include "hw/rank/isolated_all_reduce.h"

namespace bucketwise {
namespace {

using ShowProgress = std::function<void(const std::string&)>;

// Seeded by the rank, spread evenly over -1 to 1.
class Numbers {
  public:
    explicit Numbers(std::uint64_t seed) : state_(seed * 2 + 1) {}
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
    Numbers numbers(static_cast<std::uint64_t>(rank) + 1);
    values.input.resize(elements);
    for (float& value : values.input) {
        value = static_cast<float>(rank) + numbers();
    }
    values.output_gradient.resize(elements);
    for (float& value : values.output_gradient) {
        value = numbers();
    }
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
std::string what_is_wrong(const std::vector<double>& sums, const BatchNormLayer& layer) {
    const auto channels = static_cast<std::size_t>(layer.channels);
    const auto n = static_cast<double>(layer.rows * layer.ranks);
    constexpr double allowed = 1e-3;
    for (std::size_t channel = 0; n > 0 && channel < channels; ++channel) {
        std::array<double, sums_per_channel> mean{};
        for (std::size_t i = 0; i < sums.size(); i += sums_per_channel * channels) {
            for (std::size_t k = 0; k < mean.size(); ++k) {
                mean.at(k) += sums[i + k * channels + channel] / n;
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

class SyncBnRanks {
  public:
    SyncBnRanks(const BenchSyncBnOptions& options, const RankIdentity& identity,
                ShowProgress show_progress)
        : options_(options),
          show_progress_(std::move(show_progress)),
          connection_(options.backend->connect(meeting_point(options.network, identity), identity,
                                               options.request)),
          device_(connection_->batch_norm()) {
        schedule_.rounds = options.rounds;
        schedule_.seed = options.seed;
        schedule_.items.resize(options.layers.size());
        total_ = (options.rounds + 1) * std::ssize(options.layers);
        EnvironmentRecord environment = machine_record(identity, options.network);
        environment.gpu = connection_->gpu();
        environment.transport = options.backend->transport(options.request, identity.ranks);
        measured_.hardware = hardware_of(environment);
        measured_.libraries = options.backend->libraries();
    }

    // What was measured is rank 0's.
    MeasuredLayers run() {
        for (std::size_t i = 0; i < options_.layers.size(); ++i) {
            check(i);
        }
        for (std::int64_t round = 0; round < options_.rounds; ++round) {
            for (const std::int32_t item : order_of_round(schedule_, round)) {
                measure(round, static_cast<std::size_t>(item));
            }
        }
        // Nobody leaves while others may still need what it sent last.
        connection_->control().barrier();
        return std::move(measured_);
    }

  private:
    [[nodiscard]] SyncBatchNorm layer_of(const BatchNormLayer& layer,
                                         const BatchNormValues& values) {
        return {*device_, real_layer_of(layer.system).value(), layer.passes, values};
    }

    // Warms up, too.
    void check(std::size_t index) {
        show("checking: ", index, "");
        const BatchNormLayer& layer = options_.layers[index];
        const BatchNormValues values = values_of(layer, connection_->control().rank());
        const BatchNormResult result = layer_of(layer, values).run();
        const std::vector<double> sums =
            connection_->control().gather_to_first(sums_of(values, result));
        const std::string wrong = sums.empty() ? "" : what_is_wrong(sums, layer);
        if (!wrong.empty()) {
            throw std::runtime_error(wrong);
        }
        ++done_;
    }

    // One step more than counts comes first: it makes what memory the others use.
    void measure(std::int64_t round, std::size_t index) {
        const std::string text = fmt::format(", round {} of {}", round + 1, options_.rounds);
        show("", index, text);
        const BatchNormLayer& description = options_.layers[index];
        SyncBatchNorm layer =
            layer_of(description, values_of(description, connection_->control().rank()));
        std::vector<Duration> times =
            layer.repeat(options_.iterations + 1, [&] { show("", index, text); });
        times.erase(times.begin());
        const std::vector<double> us = slowest_us(connection_->control(), times);
        const std::array peak{static_cast<double>(layer.peak_bytes())};
        const std::vector<double> peaks = connection_->control().gather_to_first(peak);
        if (!us.empty()) {
            MeasuredLayer& measured = measured_.layers[index];
            measured.samples_us.insert(measured.samples_us.end(), us.begin(), us.end());
            const double most = *std::max_element(peaks.begin(), peaks.end());
            measured.peak_memory_bytes =
                std::max(measured.peak_memory_bytes, static_cast<std::int64_t>(most));
        }
        ++done_;
    }

    void show(const char* prefix, std::size_t index, const std::string& text) {
        const BatchNormLayer& layer = options_.layers[index];
        show_progress_(fmt::format("{} {} {}{} {} x {}{}", done_, total_, prefix,
                                   name_of(layer.system), layer.rows, layer.channels, text));
    }

    const BenchSyncBnOptions& options_;
    ShowProgress show_progress_;
    std::unique_ptr<RankConnection> connection_;
    std::unique_ptr<BatchNormDevice> device_;
    Schedule schedule_;
    std::int64_t done_ = 0;
    std::int64_t total_ = 0;
    MeasuredLayers measured_;
};

void write_measured_layers(const std::string& path, const MeasuredLayers& measured) {
    Json layers = Json::array();
    for (const auto& [index, layer] : measured.layers) {
        layers.push_back({{"layer", index},
                          {"samples_us", layer.samples_us},
                          {"peak_memory_bytes", layer.peak_memory_bytes}});
    }
    write_text_file(path, json_text({{"hardware", measured.hardware},
                                     {"libraries", measured.libraries},
                                     {"layers", layers}}));
}

}  // namespace

int run_bench_syncbn_rank(const BenchSyncBnOptions& options, const RankIdentity& identity) {
    return run_rank(identity, [&](const LauncherReport& report) {
        const bool own = is_own_rank(identity);
        MeasuredLayers measured;
        {
            MeasureProgress line;
            measured = SyncBnRanks(options, identity, [&](const std::string& text) {
                           if (own) {
                               report.progress(text);
                           } else if (identity.rank == 0) {
                               line.show(text);
                           }
                       }).run();
        }
        if (identity.rank != 0) {
            return;
        }
        if (own) {
            write_measured_layers(environment_variable(syncbn_output_variable).value_or(""),
                                  measured);
        } else {
            write_output("-", bench_syncbn_report(options, measured));
        }
    });
}

MeasuredLayers read_measured_layers(const std::string& path) {
    const Json document = Json::parse(read_text_file(path));
    MeasuredLayers measured{.hardware = document.at("hardware").get<std::string>(),
                            .libraries = document.at("libraries").get<std::string>(),
                            .layers = {}};
    for (const Json& layer : document.at("layers")) {
        measured.layers[layer.at("layer").get<std::size_t>()] = {
            layer.at("samples_us").get<std::vector<double>>(),
            layer.at("peak_memory_bytes").get<std::int64_t>()};
    }
    return measured;
}

}  // namespace bucketwise
