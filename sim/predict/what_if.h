// The step at every point of a grid: the cartesian product of values of some scenario keys.
//
// A point is read and built only as far as it differs from the one before. A link's latencies,
// bandwidths and fixed costs change the costs of collectives only, so a point along them is one
// pass over an existing program.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "sim/base/error.h"
#include "sim/base/json.h"
#include "sim/base/units.h"
#include "sim/engine/engine.h"
#include "sim/engine/step_parts.h"
#include "sim/predict/planned_setting.h"
#include "sim/predict/preset_ends.h"
#include "sim/program/program.h"
#include "sim/scenario/scenario.h"

namespace bucketwise {

// A key of the scenario, by JSON pointer, and its values.
struct VariedKey {
    std::string pointer;
    std::vector<Json> values;
    bool operator==(const VariedKey&) const = default;
};

// Points are numbered from 0; the last key changes fastest.
class Grid {
  public:
    // Throws InputError for a key without values, a key that is equal to or within another, and
    // more than 10^15 points.
    explicit Grid(std::vector<VariedKey> keys);

    [[nodiscard]] std::int64_t points() const { return points_; }
    [[nodiscard]] const std::vector<VariedKey>& keys() const { return keys_; }

    // Sets `position` to the index of each key's value at a point.
    void locate(std::int64_t point, std::vector<std::size_t>& position) const;

    // "/cluster/ranks=8, /sync/views=true"
    [[nodiscard]] std::string text_of(std::int64_t point) const;

  private:
    std::vector<VariedKey> keys_;
    std::int64_t points_ = 1;
};

// The cap of each point.
struct CapChoice {
    std::optional<Bytes> cap = {};  // empty: the scenario's own, or the framework's default
    bool best = false;              // also the best of all caps
    bool range = false;             // also the step at both ends of presets; not with best
    bool operator==(const CapChoice&) const = default;
};

struct WhatIf {
    Cap cap = Cap::none();
    std::int64_t buckets = 0;
    StepTimes times = {};
    Duration exposed{0};                        // the saving of free communication
    std::optional<Duration> default_step = {};  // with CapChoice::best: at the framework's default,
                                                // or with the scenario's own sharding
    std::optional<ShardingRequest> sharding = {};  // in place of a cap; then buckets are groups
    Bytes memory = {};                             // that a sharded step needs
    std::optional<StepRange> range = {};           // with CapChoice::range, where presets are used
    bool operator==(const WhatIf&) const = default;
};

// One plan of one step with variable link, and without shards, variable ranks.
class PlannedStep {
  public:
    PlannedStep(const StepInput& input, const SyncRequest& request);
    PlannedStep(const Scenario& scenario, const StepInput& input, const ShardingRequest& request);

    // Whether `input`, which may differ in its section cluster, differs in the costs of collectives
    // only.
    [[nodiscard]] bool fits(const StepInput& input) const;

    // Throws InputError if the step could last longer than longest_duration.
    void set_costs(const StepInput& input);

    [[nodiscard]] WhatIf simulate() const;

  private:
    PlannedStep(const StepInput& input, StepParts parts);
    void check_length() const;

    WhatIf row_;  // without its times
    StepBeforeClosing before_;
    Program closing_;
    std::pair<std::optional<BytesPerSecond>, Duration> copies_;
    std::pair<Duration, Duration> host_;  // to issue and to wait
    std::int64_t ranks_;
    bool depends_on_ranks_ = true;  // not the costs of collectives alone
    double closing_seconds_;        // upper bound without its collectives
    Duration if_free_;              // the step with free communication
};

// A value of a link that changes the costs of collectives only.
struct LinkCost {
    enum class Kind : std::uint8_t { latency, bandwidth, launch, meeting, message };
    Kind kind = Kind::latency;
    std::optional<std::size_t> tier = {};
    std::size_t segment = 0;
    bool operator==(const LinkCost&) const = default;
};

// The value that a pointer into a scenario names, if it is one.
std::optional<LinkCost> link_cost_at(const std::string& pointer);

// Evaluates points of a grid in any order, fastest in rising order. Every thread needs its own.
class WhatIfs {
  public:
    // `document` is the scenario file `file`. Throws InputError for impossible values of a link;
    // other values are checked when a point is read.
    WhatIfs(Json document, std::string file, FileReader read_file, const Grid& grid,
            const CapChoice& cap);

    // Reads a point's scenario. Both throw InputError, with the point, for an invalid scenario.
    const Scenario& read(std::int64_t point);
    WhatIf evaluate(std::int64_t point);

  private:
    void move_to(std::int64_t point);
    void read_document(const std::vector<std::size_t>& position);
    [[nodiscard]] ScenarioSections changed_sections(const std::vector<std::size_t>& position) const;
    void make_input();
    void set_input(const ScenarioSections& changed);
    WhatIf evaluate_here();
    // Returns act(); adds the point to its InputError.
    template <typename Act>
    auto named(std::int64_t point, const Act& act);

    Json document_;
    std::string file_;
    FileReader read_file_;
    const Grid& grid_;
    CapChoice cap_;
    // By key; empty if its values need the scenario to be read again. Values in picoseconds or
    // bytes per second.
    std::vector<std::optional<LinkCost>> link_costs_;
    std::vector<std::vector<std::int64_t>> link_values_;

    std::vector<std::size_t> position_;  // of the members below; empty: not yet read
    std::vector<std::size_t> next_position_;
    Scenario scenario_;
    StepInput input_;
    std::optional<PlannedStep> plan_;
};

}  // namespace bucketwise
