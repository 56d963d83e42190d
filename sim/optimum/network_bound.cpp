#include "sim/optimum/network_bound.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace bucketwise {
namespace {

constexpr Duration unreached{std::numeric_limits<std::int64_t>::max() / 4};

// The gradients of one accumulator.
class Accumulated {
  public:
    Accumulated(const GradientLine& line, std::size_t begin,
                const std::function<Duration(std::size_t, std::size_t)>& cost)
        : line_(line), begin_(begin), size_(line.longest_end(begin) - begin) {
        for (std::size_t from = 0; from < size_; ++from) {
            for (std::size_t to = from + 1; to <= size_; ++to) {
                costs_.push_back(cost(begin_ + from, begin_ + to));
            }
        }
        reckon();
    }

    // All-reduces of the buckets that hold its gradients from the first place on from which all
    // become ready as the `count`-th of all or later; to be asked with rising counts.
    Duration least_from(std::size_t count) {
        while (place_ < size_ && line_.least_ready_count(begin_ + place_ + 1) < count) {
            ++place_;
        }
        return least_[place_];
    }

  private:
    [[nodiscard]] Duration cost(std::size_t from, std::size_t to) const {
        const std::size_t before = from * size_ - from * (from - 1) / 2;  // of rows before
        return costs_[before + to - from - 1];
    }

    // By place, the cheapest buckets with the gradients from there on. The first of them may begin
    // earlier: one that holds more may cost less.
    void reckon() {
        std::vector<Duration> after(size_ + 1, unreached);
        after[size_] = Duration{0};
        for (std::size_t from = size_; from-- > 0;) {
            for (std::size_t to = from + 1; to <= size_; ++to) {
                after[from] = std::min(after[from], cost(from, to) + after[to]);
            }
        }
        least_.assign(size_ + 1, Duration{0});
        std::vector<Duration> cheapest(size_ + 1, unreached);  // by end, of those that begin so far
        for (std::size_t place = 0; place < size_; ++place) {
            least_[place] = unreached;
            for (std::size_t to = place + 1; to <= size_; ++to) {
                cheapest[to] = std::min(cheapest[to], cost(place, to));
                least_[place] = std::min(least_[place], cheapest[to] + after[to]);
            }
        }
    }

    const GradientLine& line_;
    std::size_t begin_;
    std::size_t size_;
    std::vector<Duration> costs_;
    std::vector<Duration> least_;
    std::size_t place_ = 0;
};

}  // namespace

NetworkBound network_bound(const GradientLine& line,
                           const std::function<Duration(std::size_t)>& ready,
                           const std::function<Duration(std::size_t, std::size_t)>& cost) {
    std::vector<Accumulated> accumulators;
    for (std::size_t begin = 0; begin < line.size(); begin = line.longest_end(begin)) {
        accumulators.emplace_back(line, begin, cost);
    }
    NetworkBound bound;
    for (std::size_t count = 1; count <= line.size(); ++count) {
        Duration least{0};
        for (Accumulated& accumulator : accumulators) {
            least += accumulator.least_from(count);
        }
        bound.least_communication = std::max(bound.least_communication, least);
        bound.ends = std::max(bound.ends, ready(count) + least);
    }
    return bound;
}

}  // namespace bucketwise
