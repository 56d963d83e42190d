// Training of a multilayer perceptron written down once more: one process, float64, whole batches,
// no code of hw/training but for the data it is given.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace bucketwise::testing {

using Numbers = std::vector<double>;

struct ReferenceLayer {
    std::size_t in = 0;
    std::size_t out = 0;
    Numbers weight;  // [in, out]
    Numbers bias;
    Numbers weight_gradient = {};
    Numbers bias_gradient = {};
    Numbers weight_moment = {};
    Numbers bias_moment = {};
};

struct ReferenceImages {
    Numbers pixels;
    std::vector<int> labels;
};

class ReferenceTraining {
  public:
    ReferenceTraining(std::vector<ReferenceLayer> layers, double rate, double momentum)
        : layers_(std::move(layers)), rate_(rate), momentum_(momentum) {
        for (ReferenceLayer& layer : layers_) {
            layer.weight_moment.assign(layer.weight.size(), 0);
            layer.bias_moment.assign(layer.bias.size(), 0);
        }
    }

    // One step on the mean loss of these samples. Returns the sum of their losses before it.
    double step(const ReferenceImages& images, const std::vector<std::size_t>& samples) {
        for (ReferenceLayer& layer : layers_) {
            layer.weight_gradient.assign(layer.weight.size(), 0);
            layer.bias_gradient.assign(layer.bias.size(), 0);
        }
        double loss = 0;
        for (const std::size_t sample : samples) {
            loss += add_gradient(images, sample, 1.0 / static_cast<double>(samples.size()));
        }
        for (ReferenceLayer& layer : layers_) {
            update(layer.weight, layer.weight_gradient, layer.weight_moment);
            update(layer.bias, layer.bias_gradient, layer.bias_moment);
        }
        return loss;
    }

    // Index of the largest output.
    int classify(const ReferenceImages& images, std::size_t sample) {
        const Numbers out = forward(images, sample).back();
        std::size_t best = 0;
        for (std::size_t i = 0; i < out.size(); ++i) {
            best = out[i] > out[best] ? i : best;
        }
        return static_cast<int>(best);
    }

    [[nodiscard]] const std::vector<ReferenceLayer>& layers() const { return layers_; }

  private:
    std::vector<Numbers> forward(const ReferenceImages& images, std::size_t sample) const {
        const std::size_t width = layers_.front().in;
        std::vector<Numbers> values{
            Numbers(images.pixels.begin() + static_cast<std::ptrdiff_t>(sample * width),
                    images.pixels.begin() + static_cast<std::ptrdiff_t>((sample + 1) * width))};
        for (std::size_t l = 0; l < layers_.size(); ++l) {
            const ReferenceLayer& layer = layers_[l];
            Numbers out = layer.bias;
            for (std::size_t i = 0; i < layer.in; ++i) {
                for (std::size_t j = 0; j < layer.out; ++j) {
                    out[j] += values.back()[i] * layer.weight[i * layer.out + j];
                }
            }
            for (double& value : out) {
                value = l + 1 < layers_.size() && value < 0 ? 0 : value;
            }
            values.push_back(out);
        }
        return values;
    }

    double add_gradient(const ReferenceImages& images, std::size_t sample, double share) {
        const std::vector<Numbers> values = forward(images, sample);
        const auto label = static_cast<std::size_t>(images.labels[sample]);
        Numbers gradient = values.back();
        double sum = 0;
        for (double& value : gradient) {
            value = std::exp(value);
            sum += value;
        }
        const double loss = std::log(sum) - values.back()[label];
        for (double& value : gradient) {
            value *= share / sum;
        }
        gradient[label] -= share;
        for (std::size_t l = layers_.size(); l-- > 0;) {
            ReferenceLayer& layer = layers_[l];
            Numbers before(layer.in, 0);
            for (std::size_t i = 0; i < layer.in; ++i) {
                for (std::size_t j = 0; j < layer.out; ++j) {
                    layer.weight_gradient[i * layer.out + j] += values[l][i] * gradient[j];
                    before[i] += layer.weight[i * layer.out + j] * gradient[j];
                }
                before[i] = values[l][i] > 0 ? before[i] : 0;  // of the ReLU below
            }
            for (std::size_t j = 0; j < layer.out; ++j) {
                layer.bias_gradient[j] += gradient[j];
            }
            gradient = before;
        }
        return loss;
    }

    void update(Numbers& values, const Numbers& gradient, Numbers& moment) const {
        for (std::size_t i = 0; i < values.size(); ++i) {
            moment[i] = momentum_ * moment[i] + gradient[i];
            values[i] -= rate_ * moment[i];
        }
    }

    std::vector<ReferenceLayer> layers_;
    double rate_;
    double momentum_;
};

}  // namespace bucketwise::testing
