#include "hw/training/image_data.h"

#include <numeric>
#include <utility>

namespace bucketwise {
namespace {

// In 1/256. With some hundred pixels classes are told apart well but not perfectly; with many more
// they become easy.
constexpr std::int64_t prototype_range = 128;
constexpr std::int64_t noise_range = 128;
constexpr int noise_terms = 3;
constexpr float pixel_unit = 1.0F / 256.0F;

// From -range to range.
std::int64_t around_zero(SeededNumbers& numbers, std::int64_t range) {
    return numbers.below(2 * range + 1) - range;
}

LabelledImages make_images(const std::vector<std::int64_t>& prototypes,
                           const ImageDataRequest& request, std::int64_t count,
                           SeededNumbers& numbers) {
    LabelledImages images;
    images.pixels.reserve(static_cast<std::size_t>(count * request.pixels));
    images.labels.reserve(static_cast<std::size_t>(count));
    for (std::int64_t i = 0; i < count; ++i) {
        const std::int64_t label = numbers.below(request.classes);
        images.labels.push_back(static_cast<std::int32_t>(label));
        for (std::int64_t pixel = 0; pixel < request.pixels; ++pixel) {
            std::int64_t value =
                prototypes[static_cast<std::size_t>(label * request.pixels + pixel)];
            for (int term = 0; term < noise_terms; ++term) {
                value += around_zero(numbers, noise_range);
            }
            images.pixels.push_back(static_cast<float>(value) * pixel_unit);
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
