// Max-min fair shares: what flows over shared links get at once, as in fluid models of TCP and of
// switches (Bertsekas and Gallager 1992, "Data Networks", 6.5.2). No flow could have more without
// taking from one that has as much or less.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sim/base/units.h"

namespace bucketwise {

class FairShare {
  public:
    // By link. Bytes per second.
    explicit FairShare(const std::vector<BytesPerSecond>& capacities);

    // A new flow over these links (none twice), at most as fast as `most`. Returns its number; one
    // that was removed is used again.
    std::uint32_t add(std::span<const std::int32_t> links, double most_bytes_per_second);
    void remove(std::uint32_t number);

    // Whether a flow came or went since the last share_out().
    [[nodiscard]] bool is_due() const { return !touched_.empty(); }

    // Shares out anew what may have changed: the flows that are connected with those that came or
    // went, through links that they share. Returns those whose rate has changed, by number.
    const std::vector<std::uint32_t>& share_out();

    // Bytes per second, as of the last share_out().
    [[nodiscard]] double rate(std::uint32_t flow) const { return flows_[flow].rate; }

    // Flows that were shared out so far, each as often as it was.
    [[nodiscard]] std::uint64_t shared_out() const { return shared_out_; }

    [[nodiscard]] std::size_t memory_bytes() const;

  private:
    struct Flow {
        std::vector<std::int32_t> links;
        double most = 0;
        double rate = 0;
        double new_rate = -1;  // below zero: not yet shared out
        bool active = false;
        bool visited = false;
    };
    struct Link {
        double capacity = 0;
        std::vector<std::uint32_t> flows;
        double left = 0;             // while sharing out
        std::uint32_t unserved = 0;  // while sharing out
        bool visited = false;
    };

    void collect_component();
    void serve(std::uint32_t number, double rate);

    std::vector<Link> links_;
    std::vector<Flow> flows_;
    std::vector<std::uint32_t> free_;
    std::vector<std::int32_t> touched_;  // links of flows that came or went
    // The component that is being shared out.
    std::vector<std::int32_t> component_links_;
    std::vector<std::uint32_t> component_flows_;
    std::vector<std::uint32_t> changed_;
    std::uint64_t shared_out_ = 0;
};

}  // namespace bucketwise
