#include "hw/training/image_data.h"

#include <numeric>
#include <utility>

namespace bucketwise {
namespace {

// Prototypes are uniform, so two of them lie about sqrt(2 pixels / 3) of this apart.
constexpr std::int64_t prototype_range = 128;
// Three uniform terms: the deviation of their sum is the range of each.
constexpr int noise_terms = 3;
// Times the root of the number of pixels, as the distance of two prototypes is: half of that is two
// deviations of the noise along it.
constexpr std::int64_t noise_factor = 26;

std::int64_t noise_range(std::int64_t pixels) {
    std::int64_t root = 1;
    while ((root + 1) * (root + 1) <= pixels) {
        ++root;
    }
    return noise_factor * root;
}

// The power of two above the noise, so that pixels are about 1.
float pixel_unit(std::int64_t noise) {
    std::int64_t power = 1;
    while (power <= noise) {
        power *= 2;
    }
    return 1.0F / static_cast<float>(power);
}

// From -range to range.
std::int64_t around_zero(SeededNumbers& numbers, std::int64_t range) {
    return numbers.below(2 * range + 1) - range;
}

LabelledImages make_images(const std::vector<std::int64_t>& prototypes,
                           const ImageDataRequest& request, std::int64_t count,
                           SeededNumbers& numbers) {
    LabelledImages images;
    const std::int64_t noise = noise_range(request.pixels);
    const float unit = pixel_unit(noise);
    images.pixels.reserve(static_cast<std::size_t>(count * request.pixels));
    images.labels.reserve(static_cast<std::size_t>(count));
    for (std::int64_t i = 0; i < count; ++i) {
        const std::int64_t label = numbers.below(request.classes);
        images.labels.push_back(static_cast<std::int32_t>(label));
        for (std::int64_t pixel = 0; pixel < request.pixels; ++pixel) {
            std::int64_t value =
                prototypes[static_cast<std::size_t>(label * request.pixels + pixel)];
            for (int term = 0; term < noise_terms; ++term) {
                value += around_zero(numbers, noise);
            }
            images.pixels.push_back(static_cast<float>(value) * unit);
        }
    }
    return images;
}

}  // namespace

ImageData make_image_data(const ImageDataRequest& request) {
    SeededNumbers numbers(request.seed);
    std::vector<std::int64_t> prototypes(
        static_cast<std::size_t>(request.classes * request.pixels));
    for (std::int64_t& pixel : prototypes) {
        pixel = around_zero(numbers, prototype_range);
    }
    ImageData data;
    data.training = make_images(prototypes, request, request.training_images, numbers);
    data.test = make_images(prototypes, request, request.test_images, numbers);
    return data;
}

std::vector<std::int32_t> order_of_epoch(std::int64_t samples, std::uint64_t seed,
                                         std::int64_t epoch) {
    std::vector<std::int32_t> order(static_cast<std::size_t>(samples));
    std::iota(order.begin(), order.end(), 0);
    SeededNumbers numbers(seed ^ SeededNumbers(static_cast<std::uint64_t>(epoch) + 1).next());
    for (std::int64_t left = samples; left > 1; --left) {  // Fisher and Yates
        std::swap(order[static_cast<std::size_t>(left - 1)],
                  order[static_cast<std::size_t>(numbers.below(left))]);
    }
    return order;
}

}  // namespace bucketwise
