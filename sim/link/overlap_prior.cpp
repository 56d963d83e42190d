#include "sim/link/overlap_prior.h"

#include <algorithm>
#include <cmath>

#include "sim/base/invariant.h"

namespace bucketwise {
namespace {

// A100 and A40 train at 1.06 to 1.4; matrix products alone took up to 2.0 (A40) and 2.1 (L4) times
// as long beside all-reduces, passes over memory 1.26: 1.8 for the usual mixture.
constexpr double strongest_on_computing = 0.8;
// L4, an all-reduce of 128 MiB beside twice as much computing: 51.0 over 27.9 ms.
constexpr double strongest_on_collective = 0.8;
// The A40s' training, with the delay fitted alone: 0.86 ms where 0.35 are assumed.
constexpr double longest_delay = 2.5;
// PyTorch's suite on V100, one GPU: 10 and 44 us for each bucket.
constexpr double usual_loss_us = 17;
constexpr double largest_loss_us = 50;
// Fits of published tables: 20.6 us (CS336) and 115 us (SyncBatchNorm).
constexpr double issue_range = 115.0 / 20.6;

double between(double usual, double strongest, double place) {
    invariant(0 <= place && place <= 1, "a place between both ends");
    strongest = std::max(strongest, usual);
    return place < 0.5 ? 2 * place * usual : usual + (2 * place - 1) * (strongest - usual);
}

std::int64_t slowdown_at(std::int64_t ppm, double strongest, double place) {
    const double beyond_1 = static_cast<double>(ppm - undisturbed_ppm) * 1e-6;
    return undisturbed_ppm + std::llround(1e6 * between(beyond_1, strongest, place));
}

}  // namespace

Interference at_place(const Interference& assumed, const OverlapPlace& place) {
    return {.compute_slowdown_ppm = slowdown_at(assumed.compute_slowdown_ppm,
                                                strongest_on_computing, place.of_computing),
            .communication_slowdown_ppm = slowdown_at(assumed.communication_slowdown_ppm,
                                                      strongest_on_collective, place.of_collective),
            .start_delay = scaled(assumed.start_delay, between(1, longest_delay, place.of_each))};
}

Duration computing_lost(const OverlapPlace& place) {
    return duration_from_us(between(usual_loss_us, largest_loss_us, place.of_each));
}

double host_issue_factor(const OverlapPlace& place) {
    return std::pow(issue_range, place.of_each - 0.5);
}

}  // namespace bucketwise
