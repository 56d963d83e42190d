#include "sim/predict/overlap.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "sim/base/invariant.h"
#include "sim/base/transformed.h"
#include "sim/engine/step_loop.h"
#include "sim/engine/step_parts.h"
#include "sim/predict/planned_setting.h"

namespace bucketwise {
namespace {

// The share of standard normal deviates below.
double share_below(double deviate) {
    return std::erfc(-deviate / std::sqrt(2.0)) / 2;
}

OverlapPlace with(OverlapTerm cost, double place) {
    OverlapPlace other;
    (cost == OverlapTerm::computing    ? other.of_computing
     : cost == OverlapTerm::collective ? other.of_collective
                                       : other.of_each) = place;
    return other;
}

// Steps of a few plans whose overlap costs otherwise than assumed.
class Steps {
  public:
    Steps(const StepInput& input, const std::vector<SyncSettings>& choices) {
        open_steps(planned(input, {choices.begin(), choices.end()}), input, opened_);
        invariant(input.link.assumes_interference, "what is known is not assumed");
    }

    [[nodiscard]] double ms(std::size_t choice, const OverlapPlace& place) {
        const OpenedStep& opened = opened_[choice];
        const auto with_costs = [&](Program program) {
            DrawnOverlap(place).apply(program);
            return program;
        };
        const Program closing = with_costs(opened.closing);
        if (!opened.owns_before) {
            return to_ms(opened.step->step_closed_by(closing));
        }
        const StepBeforeClosing before = opened.before->changed(with_costs);
        return to_ms(StepToClose(before).step_closed_by(closing));
    }

    // The share of the second choice's step that the first one saves.
    [[nodiscard]] double saving(std::size_t choice, std::size_t standard,
                                const OverlapPlace& place) {
        const double step = ms(standard, place);
        return step > 0 ? 1 - ms(choice, place) / step : 0;
    }

  private:
    std::vector<OpenedStep> opened_;
};

// The cost in its own unit: of large collectives.
double value_at(OverlapTerm cost, double place, const StepInput& input) {
    const Interference slowdown =
        at_place(input.link.interference.back().slowdown, with(cost, place));
    if (cost == OverlapTerm::computing) {
        return static_cast<double>(slowdown.compute_slowdown_ppm) * 1e-6;
    }
    if (cost == OverlapTerm::collective) {
        return static_cast<double>(slowdown.communication_slowdown_ppm) * 1e-6;
    }
    const OverlapPlace other = with(cost, place);
    return to_us(slowdown.start_delay + computing_lost(other) +
                 scaled(input.link.host_issue, host_issue_factor(other)));
}

}  // namespace

DrawnOverlap DrawnOverlap::drawn(Normal& normal) {
    constexpr double kept = 0.9;
    const double added = std::sqrt(1 - kept * kept);
    DrawnOverlap overlap{OverlapPlace{}};
    const double each = share_below(normal());
    double computing = normal();
    double collective = normal();
    for (OverlapPlace& place : overlap.places_) {
        place = {share_below(computing), share_below(collective), each};
        computing = kept * computing + added * normal();
        collective = kept * collective + added * normal();
    }
    return overlap;
}

DrawnOverlap DrawnOverlap::opposite() const {
    DrawnOverlap other = *this;
    for (OverlapPlace& place : other.places_) {
        place = {1 - place.of_computing, 1 - place.of_collective, 1 - place.of_each};
    }
    return other;
}

OverlapPlace DrawnOverlap::at(Bytes size) const {
    const auto count = static_cast<std::uint64_t>(std::max<std::int64_t>(size.count, 1));
    const auto octave = static_cast<std::size_t>(std::bit_width(count)) - 1;
    if (octave + 1 >= octaves) {
        return places_.back();
    }
    const double along =
        static_cast<double>(count) / static_cast<double>(std::uint64_t{1} << octave) - 1;
    const OverlapPlace& low = places_[octave];
    const OverlapPlace& high = places_[octave + 1];
    return {std::lerp(low.of_computing, high.of_computing, along),
            std::lerp(low.of_collective, high.of_collective, along),
            std::lerp(low.of_each, high.of_each, along)};
}

void DrawnOverlap::apply(Program& closing) const {
    const OverlapPlace& any = places_.front();
    const double issue = host_issue_factor(any);
    const Duration lost = computing_lost(any);
    Duration owed{0};
    for (Instruction& instruction : closing.instructions) {
        if (instruction.kind == InstructionKind::launch) {
            instruction.host = scaled(instruction.host, issue);
            owed += lost;
        } else if (instruction.kind == InstructionKind::backward &&
                   !instruction.order.is_beside()) {
            instruction.device += std::exchange(owed, Duration{0});
        }
    }
    for (Collective& collective : closing.collectives) {
        collective.interference = at_place(collective.interference, at(collective.bytes));
    }
}

std::vector<DrawnShare> savings_at_ends(const StepInput& input,
                                        const std::vector<SyncSettings>& choices,
                                        std::size_t standard) {
    Steps steps(input, choices);
    std::vector<DrawnShare> savings;
    std::array<OverlapPlace, overlap_ends.size()> ends = overlap_ends;
    std::array<double, overlap_ends.size()> standard_ms{};
    for (std::size_t end = 0; end < ends.size(); ++end) {
        if (input.workload.late_host > 0) {
            ends[end].of_computing = 0;
        }
        standard_ms[end] = steps.ms(standard, ends[end]);
    }
    for (std::size_t choice = 0; choice < choices.size(); ++choice) {
        DrawnShare& saved = savings.emplace_back(DrawnShare{1, -1e300});
        for (std::size_t end = 0; end < ends.size(); ++end) {
            const double ms = standard_ms[end];
            const double share = ms > 0 ? 1 - steps.ms(choice, ends[end]) / ms : 0;
            saved = {std::min(saved.low, share), std::max(saved.high, share)};
        }
    }
    return savings;
}

std::optional<DecidingCost> deciding_cost(const StepInput& input, const SyncSettings& choice,
                                          const SyncSettings& standard, double least) {
    Steps steps(input, {choice, standard});
    const auto saving = [&](OverlapTerm cost, double place) {
        return steps.saving(0, 1, with(cost, place));
    };
    std::optional<OverlapTerm> deciding;
    double widest = 0;
    for (const OverlapTerm cost : every<OverlapTerm>) {
        const double at_none = saving(cost, 0);
        const double at_strongest = saving(cost, 1);
        const bool turns = (at_none > least) != (at_strongest > least);
        if (turns && std::abs(at_strongest - at_none) > widest) {
            widest = std::abs(at_strongest - at_none);
            deciding = cost;
        }
    }
    if (!deciding) {
        return std::nullopt;
    }
    const bool saves_above = saving(*deciding, 1) > least;
    double low = 0;
    double high = 1;
    for (int halvings = 0; halvings < 8; ++halvings) {
        const double middle = (low + high) / 2;
        ((saving(*deciding, middle) > least) == saves_above ? high : low) = middle;
    }
    return DecidingCost{*deciding, value_at(*deciding, 0.5, input),
                        value_at(*deciding, (low + high) / 2, input), saves_above};
}

}  // namespace bucketwise
