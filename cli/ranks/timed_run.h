// Measuring for a limited time: a director on rank 0 chooses the items of each round and sends them
// to the other ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cli/ranks/measure_options.h"
#include "hw/measure/measurer.h"
#include "hw/measure/rank_session.h"
#include "sim/base/interface.h"

namespace bucketwise {

// The next thing to do.
struct RoundOrder {
    std::int64_t round = -1;           // -1: warm up, keep nothing
    std::vector<Item> new_steps = {};  // that join the items, at their end
    std::vector<std::int64_t> items;   // empty: the end
};

// Chooses. Items are numbered as in the options, then as they joined.
class RoundDirector : public Interface {
  public:
    // Probes, by which the other items are estimated; then the remaining cold items; then rounds.
    [[nodiscard]] virtual RoundOrder probes() const = 0;
    virtual RoundOrder warm_up() = 0;
    virtual RoundOrder next_round() = 0;

    // An item was measured or warmed up, and took so long.
    virtual void took(std::size_t item, double seconds) = 0;
    // News about the run itself, each once; else empty.
    virtual std::string note() = 0;
    // A record of a round.
    virtual void keep(const Measurement& record) = 0;
};

// Collective. `director`: on rank 0, elsewhere null. The options' limit counts from the call.
void measure_in_time(const MeasureOptions& options, Measurer& measurer, RankSession& session,
                     RoundDirector* director, const std::function<std::string(const Item&)>& label);

}  // namespace bucketwise
