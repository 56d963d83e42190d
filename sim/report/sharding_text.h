// Settings of sharding, and their memory, as people read them.
#pragma once

#include <string>
#include <vector>

#include "sim/base/units.h"
#include "sim/sharding/sharding.h"

namespace bucketwise {

// "every 2 layers, kept after forward, 1 group ahead": the knobs that a user turns.
std::string setting_text(const ShardingRequest& request);

// The same in a column: "each layer", "2 layers, kept, async".
std::string setting_label(const ShardingRequest& request);

// The knobs of such a strategy as the headings of a table, and a setting's in as many cells.
std::vector<std::string> knob_headings(ShardedStrategy strategy);
std::vector<std::string> knob_cells(const ShardingRequest& request);

// MiB, or GiB from one on.
struct MemoryUnit {
    double mib = 1;
    std::string name = "MiB";

    [[nodiscard]] std::string number(Bytes bytes) const;
};
MemoryUnit unit_for(Bytes most);
std::string memory_text(Bytes bytes);

}  // namespace bucketwise
