// A network of hosts on one machine: every rank in a network namespace of its own, joined by veth
// pairs and a bridge, each link limited in rate by tc's token bucket filter.
//
// The namespaces have no names: they live as long as a process or descriptor holds them, and the
// kernel takes the devices with them. Nothing can be left behind, however this process ends.
//
// Root makes them directly, everybody else in a user namespace (hw/launch/user_namespace.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "hw/launch/launcher_descriptor.h"

namespace bucketwise {

struct BitsPerSecond {
    std::int64_t count = 0;
    bool operator==(const BitsPerSecond&) const = default;
};

// "1gbit", "100mbit", "2.5gbit", as tc writes rates. Throws InputError with `option` as the file.
BitsPerSecond parse_rate(std::string_view text, const std::string& option);
std::string text_of(BitsPerSecond rate);  // parse_rate reads it back

class ShapedNetwork {
  public:
    // Throws std::runtime_error that says what is missing: root (CAP_SYS_ADMIN and CAP_NET_ADMIN)
    // or a kernel that lets ordinary users make user namespaces, the programs ip and tc, the
    // kernel's tbf. ranks in 1..250.
    ShapedNetwork(int ranks, BitsPerSecond rate);

    // Moves the calling process (one thread) into the rank's namespaces, once. For a child between
    // fork and exec: allocates nothing; returns false with errno set. An ordinary user's child has
    // all privileges in there until it becomes another program.
    [[nodiscard]] bool enter(int rank) const noexcept;

    [[nodiscard]] static std::string address(int rank);              // numeric, the rank's own
    [[nodiscard]] static std::string interface() { return "eth0"; }  // in every namespace

  private:
    std::vector<Descriptor> networks_;  // of the ranks and, last, of the switch
    Descriptor users_;                  // not open: these are in this process's own
};

}  // namespace bucketwise
