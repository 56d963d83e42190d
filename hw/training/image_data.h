// Generated images to learn from: every class has a prototype, every sample is its class's
// prototype and enough noise that classes are separated well but not perfectly. All of it is made
// of whole numbers, so it is the same on every rank and platform.
#pragma once

#include <cstdint>
#include <vector>

namespace bucketwise {

// SplitMix64 (Steele, Lea and Flood 2014): the next state is a constant away, the output a hash of
// it.
class SeededNumbers {
  public:
    explicit SeededNumbers(std::uint64_t seed) : state_(seed) {}

    std::uint64_t next() {
        state_ += 0x9E3779B97F4A7C15U;
        std::uint64_t z = state_;
        z = (z ^ (z >> 30U)) * 0xBF58476D1CE4E5B9U;
        z = (z ^ (z >> 27U)) * 0x94D049BB133111EBU;
        return z ^ (z >> 31U);
    }
    // 0 to bound - 1, all equally likely but for 2^-32. 1 <= bound < 2^32.
    std::int64_t below(std::int64_t bound) {
        return static_cast<std::int64_t>((next() >> 32U) * static_cast<std::uint64_t>(bound) >>
                                         32U);
    }

  private:
    std::uint64_t state_;
};

struct ImageDataRequest {
    std::int64_t pixels = 0;  // of one image, all channels
    std::int64_t classes = 0;
    std::int64_t training_images = 0;
    std::int64_t test_images = 0;
    std::uint64_t seed = 0;
    bool operator==(const ImageDataRequest&) const = default;
};

struct LabelledImages {
    std::vector<float> pixels;  // image after image; whole numbers by a power of two, about 1
    std::vector<std::int32_t> labels;

    [[nodiscard]] std::int64_t count() const { return static_cast<std::int64_t>(labels.size()); }
};

struct ImageData {
    LabelledImages training;
    LabelledImages test;
};

ImageData make_image_data(const ImageDataRequest& request);

// An epoch's order of `samples` samples, different for each epoch.
std::vector<std::int32_t> order_of_epoch(std::int64_t samples, std::uint64_t seed,
                                         std::int64_t epoch);

}  // namespace bucketwise
