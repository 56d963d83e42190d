// The same ring all-reduce, simulated here and by SimGrid (s4u): whether both find the same time,
// and how fast each of them is. Built where SimGrid is installed (Debian: libsimgrid-dev).
//
//   compare_rings [RANKS...]
//
// Twice for each number of ranks: under SimGrid's network model Constant, with equally long
// messages, and under CM02 with latency and bandwidth. Exit code 1: the times differ by
// more than 0.1 %.
#include <chrono>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#include <fmt/format.h>
#include <simgrid/s4u.hpp>

#include "sim/link/network/chunk_engine.h"
#include "sim/link/network/network.h"

namespace {

using namespace bucketwise;
namespace s4u = simgrid::s4u;

constexpr double latency_s = 2e-6;
constexpr double bytes_per_second = 100e9;
constexpr std::int64_t message_bytes = 65536;

struct Outcome {
    double simulated_s = 0;
    double wall_s = 0;
    double messages = 0;
};

template <typename Run>
double seconds_of(Run&& run) {
    const auto begin = std::chrono::steady_clock::now();
    run();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

Outcome with_simgrid(int ranks, bool constant) {
    int count = 2;
    std::string name = "compare_rings";
    std::string quiet = "--log=xbt_cfg.thresh:warning";
    std::vector<char*> arguments{name.data(), quiet.data(), nullptr};
    char** values = arguments.data();
    s4u::Engine engine(&count, values);
    s4u::Engine::set_config(constant ? "network/model:Constant" : "network/model:CM02");
    s4u::Engine::set_config("network/crosstraffic:0");
    s4u::Engine::set_config("network/TCP-gamma:0");
    s4u::Engine::set_config(fmt::format("network/latency-factor:{}", constant ? latency_s : 1.0));
    s4u::Engine::set_config("network/bandwidth-factor:1");
    s4u::Engine::set_config("contexts/stack-size:64");
    auto* zone = s4u::create_full_zone("ring");
    std::vector<s4u::Host*> hosts;
    for (int rank = 0; rank < ranks; ++rank) {
        hosts.push_back(zone->create_host(fmt::format("rank{}", rank), 1e9)->seal());
    }
    for (int rank = 0; rank < ranks && !constant; ++rank) {
        auto* next = hosts[static_cast<std::size_t>((rank + 1) % ranks)];
        const auto* link = zone->create_link(fmt::format("link{}", rank), bytes_per_second)
                               ->set_latency(latency_s)
                               ->seal();
        zone->add_route(hosts[static_cast<std::size_t>(rank)]->get_netpoint(), next->get_netpoint(),
                        nullptr, nullptr, {s4u::LinkInRoute(link)}, false);
    }
    zone->seal();
    const int steps = 2 * (ranks - 1);
    std::vector<s4u::Mailbox*> boxes;
    for (int rank = 0; rank < ranks; ++rank) {
        boxes.push_back(s4u::Mailbox::by_name(fmt::format("box{}", rank)));
    }
    static int payload = 0;
    for (int rank = 0; rank < ranks; ++rank) {
        auto* own = boxes[static_cast<std::size_t>(rank)];
        auto* right = boxes[static_cast<std::size_t>((rank + 1) % ranks)];
        s4u::Actor::create(fmt::format("actor{}", rank), hosts[static_cast<std::size_t>(rank)],
                           [own, right, steps] {
                               for (int step = 0; step < steps; ++step) {
                                   const auto sent =
                                       right->put_async(&payload, std::uint64_t{message_bytes});
                                   own->get<int>();
                                   sent->wait();
                               }
                           });
    }
    const double wall = seconds_of([&] { engine.run(); });
    return {s4u::Engine::get_clock(), wall, static_cast<double>(ranks) * steps};
}

Outcome with_bucketwise(std::int64_t ranks, bool constant) {
    Topology topology;
    topology.regular = RegularTopology{};
    topology.regular->node = {.gpus = ranks,
                              .latency = duration_from_us(latency_s * 1e6),
                              .bandwidth = constant
                                               ? BytesPerSecond{std::int64_t{1} << 60}
                                               : bandwidth_from_gb_per_s(bytes_per_second / 1e9)};
    Outcome outcome;
    outcome.wall_s = seconds_of([&] {
        const Network network(topology, ranks);
        const CollectiveRun run = simulate_collectives(
            topology, network,
            {CollectiveJob{.schedule = {.bytes = {ranks * message_bytes}, .ranks = ranks}}});
        outcome.simulated_s = to_us(run.jobs.front().end) * 1e-6;
        outcome.messages = static_cast<double>(run.messages);
    });
    return outcome;
}

// Prints one comparison. SimGrid has one engine per process, so each runs in a process of its own.
bool compare(int ranks, bool constant) {
    const Outcome theirs = with_simgrid(ranks, constant);
    const Outcome ours = with_bucketwise(ranks, constant);
    const double error = ours.simulated_s / theirs.simulated_s - 1;
    fmt::print(
        "{:>5} ranks  {:<8}  SimGrid {:.9f} s  bucketwise {:.9f} s  {:+.5f} %   "
        "{:>10.0f} and {:>10.0f} messages/s, {:.0f} times as many\n",
        ranks, constant ? "constant" : "CM02", theirs.simulated_s, ours.simulated_s, 100 * error,
        theirs.messages / theirs.wall_s, ours.messages / ours.wall_s,
        ours.messages / ours.wall_s / (theirs.messages / theirs.wall_s));
    std::fflush(stdout);
    constexpr double most_error = 1e-3;
    return std::abs(error) <= most_error;
}

bool compare_in_child(int ranks, bool constant) {
    std::fflush(stdout);
    const pid_t child = ::fork();
    if (child == 0) {
        const bool agrees = compare(ranks, constant);
        ::_exit(agrees ? 0 : 1);
    }
    int status = 0;
    return child > 0 && ::waitpid(child, &status, 0) == child && WIFEXITED(status) &&
           WEXITSTATUS(status) == 0;
}

}  // namespace

int main(int argc, char** argv) {
    std::vector<int> sizes;
    for (int i = 1; i < argc; ++i) {
        sizes.push_back(std::stoi(argv[i]));
    }
    if (sizes.empty()) {
        sizes = {16, 64, 256};
    }
    bool agree = true;
    for (const int ranks : sizes) {
        if (ranks < 2) {
            fmt::print(stderr, "compare_rings: expected numbers of ranks from 2 on\n");
            return 2;
        }
        for (const bool constant : {true, false}) {
            agree = compare_in_child(ranks, constant) && agree;
        }
    }
    return agree ? 0 : 1;
}
