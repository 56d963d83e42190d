#include "sim/link/network/fair_share.h"

#include <algorithm>
#include <random>
#include <vector>

#include "tests/catch.h"

namespace bucketwise {
namespace {

struct SharedNetwork {
    std::vector<BytesPerSecond> capacities;
    std::vector<std::vector<std::int32_t>> flows;  // links of each
    std::vector<double> most;
};

// Max-min fairness, checked flow by flow: no link carries more than its bandwidth, and each flow
// either has all it asks for or crosses a full link with no faster flow.
void check_fair(const SharedNetwork& network, const std::vector<double>& rates) {
    constexpr double rounding = 1e-9;
    std::vector<double> carried(network.capacities.size(), 0);
    std::vector<double> largest(network.capacities.size(), 0);
    for (std::size_t f = 0; f < rates.size(); ++f) {
        for (const std::int32_t link : network.flows[f]) {
            const auto i = static_cast<std::size_t>(link);
            carried[i] += rates[f];
            largest[i] = std::max(largest[i], rates[f]);
        }
    }
    bool feasible = true;
    for (std::size_t i = 0; i < carried.size(); ++i) {
        feasible = feasible &&
                   carried[i] <= static_cast<double>(network.capacities[i].count) * (1 + rounding);
    }
    bool fair = true;
    for (std::size_t f = 0; f < rates.size(); ++f) {
        const bool bottlenecked =
            std::any_of(network.flows[f].begin(), network.flows[f].end(), [&](std::int32_t link) {
                const auto i = static_cast<std::size_t>(link);
                return carried[i] >=
                           static_cast<double>(network.capacities[i].count) * (1 - rounding) &&
                       rates[f] >= largest[i] * (1 - rounding);
            });
        fair = fair && (bottlenecked || rates[f] >= network.most[f] * (1 - rounding));
    }
    CHECK(feasible);
    CHECK(fair);
}

SharedNetwork random_network(std::mt19937_64& random) {
    SharedNetwork network;
    const std::size_t links = 1 + random() % 8;
    for (std::size_t i = 0; i < links; ++i) {
        network.capacities.push_back({static_cast<std::int64_t>(1 + random() % 1000) * 1'000'000});
    }
    const std::size_t flows = 1 + random() % 12;
    for (std::size_t f = 0; f < flows; ++f) {
        std::vector<std::int32_t> way(links);
        for (std::size_t i = 0; i < links; ++i) {
            way[i] = static_cast<std::int32_t>(i);
        }
        std::shuffle(way.begin(), way.end(), random);
        way.resize(1 + random() % links);
        network.flows.push_back(way);
        network.most.push_back(static_cast<double>(1 + random() % 1000) * 1e6);
    }
    return network;
}

TEST_CASE("shares are max-min fair, also after flows have come and gone") {
    for (std::uint64_t seed = 0; seed < 500; ++seed) {
        std::mt19937_64 random(seed);
        SharedNetwork network = random_network(random);
        FairShare shares(network.capacities);
        std::vector<std::uint32_t> numbers;
        for (std::size_t f = 0; f < network.flows.size(); ++f) {
            numbers.push_back(shares.add(network.flows[f], network.most[f]));
            if (random() % 2 == 0) {
                shares.share_out();  // in any number of turns
            }
        }
        const std::size_t gone = random() % (network.flows.size() + 1);
        for (std::size_t f = 0; f < gone; ++f) {
            shares.remove(numbers[f]);
            if (random() % 2 == 0) {
                shares.share_out();
            }
        }
        const auto skip = static_cast<std::ptrdiff_t>(gone);
        network.flows.erase(network.flows.begin(), network.flows.begin() + skip);
        network.most.erase(network.most.begin(), network.most.begin() + skip);
        shares.share_out();
        CHECK(!shares.is_due());
        std::vector<double> rates;
        for (std::size_t f = gone; f < numbers.size(); ++f) {
            rates.push_back(shares.rate(numbers[f]));
        }
        check_fair(network, rates);
    }
}

TEST_CASE("two short flows and a long one share two links as the textbook says") {
    // Link 0 has 10 GB/s, link 1 has 4. Flows: 0 over both, 1 over link 0, 2 over link 1. Link 1
    // gives 2 to each of its flows; flow 1 gets what flow 0 leaves on link 0: 8.
    FairShare shares({{10}, {4}});
    const std::uint32_t both = shares.add(std::vector<std::int32_t>{0, 1}, 100);
    const std::uint32_t wide = shares.add(std::vector<std::int32_t>{0}, 100);
    const std::uint32_t narrow = shares.add(std::vector<std::int32_t>{1}, 100);
    CHECK(shares.share_out().size() == 3);
    CHECK(shares.rate(both) == Approx(2));
    CHECK(shares.rate(wide) == Approx(8));
    CHECK(shares.rate(narrow) == Approx(2));
    // Without flow 2 flow 0 has all of link 1, and flow 1 what is left: 6.
    shares.remove(narrow);
    CHECK(shares.share_out().size() == 2);
    CHECK(shares.rate(both) == Approx(4));
    CHECK(shares.rate(wide) == Approx(6));
}

}  // namespace
}  // namespace bucketwise
