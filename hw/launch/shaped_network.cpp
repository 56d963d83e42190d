#include "hw/launch/shaped_network.h"

#include <fcntl.h>
#include <sched.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "hw/launch/child_descriptors.h"
#include "hw/launch/user_namespace.h"
#include "sim/base/error.h"
#include "sim/base/invariant.h"

namespace bucketwise {
namespace {

constexpr int most_ranks = 250;  // one byte of the address, less what a /24 network reserves

// -- rates --

struct RateUnit {
    std::string_view name;
    std::int64_t bits_per_second;
};
constexpr std::array<RateUnit, 4> rate_units{
    {{"bit", 1}, {"kbit", 1'000}, {"mbit", 1'000'000}, {"gbit", 1'000'000'000}}};
constexpr std::int64_t slowest_rate = 100'000;
constexpr std::int64_t fastest_rate = 100'000'000'000;

std::string lower_case(std::string_view text) {
    std::string lower(text);
    std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char character) {
        return static_cast<char>(std::tolower(character));
    });
    return lower;
}

// -- the shape of a link --

// Jumbo frames, as in clusters: headers take 0.7 % of the link, where they take 4.4 % with frames
// of 1500 bytes, and each byte takes less of the processor.
constexpr std::int64_t mtu_bytes = 9000;
constexpr std::int64_t ethernet_header_bytes = 14;
constexpr std::int64_t frame_bytes = mtu_bytes + ethernet_header_bytes;

// The ranks compute on the cores that also move their packets, so what counts is how often the
// filter wakes up: once per packet. TCP hands it packets of many frames, and those of at most
// `burst_bytes` pass whole; it would cut others into frames and wake up for each. On two busy cores
// packets of one or two frames take two to three times the processor time of those of 64 KiB.
//
// A burst is also what passes at once after the link was idle for as long as the burst takes:
// 0.7 ms at 1 gbit. It never adds up to more than the link would have carried in that idle time.
struct LinkShape {
    std::int64_t packet_bytes = 0;
    std::int64_t burst_bytes = 0;
    std::int64_t queue_bytes = 0;
};

constexpr std::int64_t largest_packet_bytes = 65536;  // the kernel's default
constexpr double packet_seconds = 500e-6;
// How late a timer may be before the link loses rate by it.
constexpr double lateness_seconds = 100e-6;

// Holds what every peer may have on its way to one rank: a full queue would cost a retransmission
// timeout of 200 ms, which no switch with flow control has.
constexpr std::int64_t queue_bytes_per_peer = std::int64_t{4} << 20;
constexpr std::int64_t most_queue_bytes = std::int64_t{256} << 20;

LinkShape shape_of(BitsPerSecond rate, int ranks) {
    const double bytes_per_second = static_cast<double>(rate.count) / 8;
    LinkShape shape;
    shape.packet_bytes = std::clamp<std::int64_t>(std::llround(bytes_per_second * packet_seconds),
                                                  frame_bytes, largest_packet_bytes);
    shape.burst_bytes =
        shape.packet_bytes + frame_bytes + std::llround(bytes_per_second * lateness_seconds);
    shape.queue_bytes = std::min(queue_bytes_per_peer * ranks, most_queue_bytes);
    return shape;
}

// -- descriptors and programs --

std::string reason(int error) {
    return std::generic_category().message(error);
}

[[noreturn]] void fail(const std::string& what) {
    throw std::runtime_error("--link-rate " + what);
}

std::string find_program(const std::string& name) {
    const char* path = std::getenv("PATH");  // NOLINT(concurrency-mt-unsafe): nothing sets it
    // Where they are on most systems, and where the PATH of a plain user does not look.
    std::istringstream folders(std::string(path == nullptr ? "" : path) + ":/usr/sbin:/sbin");
    for (std::string folder; std::getline(folders, folder, ':');) {
        std::string program = folder + "/" + name;
        if (!folder.empty() && ::access(program.c_str(), X_OK) == 0) {
            return program;
        }
    }
    fail("needs the program " + name + " (package iproute2)");
}

// A file without a name: a program's input and output without pipes, which could fill up.
Descriptor memory_file(const std::string& text) {
    Descriptor file(::memfd_create("batch", MFD_CLOEXEC));
    if (file.get() < 0 || ::pwrite(file.get(), text.data(), text.size(), 0) != std::ssize(text)) {
        fail("cannot hold the input of a program: " + reason(errno));
    }
    return file;
}

std::string first_line(const Descriptor& file) {
    std::string text(512, '\0');
    const ::ssize_t count = ::pread(file.get(), text.data(), text.size(), 0);
    text.resize(count < 0 ? 0 : static_cast<std::size_t>(count));
    return text.substr(0, text.find('\n'));
}

int exit_status(::pid_t child) {
    int status = 0;
    while (::waitpid(child, &status, 0) < 0) {
        if (errno != EINTR) {
            return -1;
        }
    }
    return status;
}

// Runs `program -batch -` in the network namespace of this process. The program has `inherited`
// open too, under the same numbers. Where it fails, the first line of its standard error.
std::optional<std::string> error_of_batch(const std::string& program, const std::string& commands,
                                          const std::vector<Descriptor>& inherited) {
    const Descriptor input = memory_file(commands);
    const Descriptor errors = memory_file("");
    std::array<std::string, 3> words{program, "-batch", "-"};
    std::array<char*, 4> arguments{words[0].data(), words[1].data(), words[2].data(), nullptr};
    ::posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, input.get(), STDIN_FILENO);
    ::posix_spawn_file_actions_adddup2(&actions, errors.get(), STDERR_FILENO);
    ::posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    for (const Descriptor& descriptor : inherited) {
        ::posix_spawn_file_actions_adddup2(&actions, descriptor.get(), descriptor.get());
    }
    ::pid_t child = -1;
    const int error =
        ::posix_spawn(&child, program.c_str(), &actions, nullptr, arguments.data(), environ);
    ::posix_spawn_file_actions_destroy(&actions);
    if (error != 0) {
        return reason(error);
    }
    return exit_status(child) == 0 ? std::nullopt : std::optional(first_line(errors));
}

// Messages of iproute2 and the kernel, and their meaning to someone who typed --link-rate.
struct Explanation {
    std::string_view said;
    const char* means;
};
constexpr std::array<Explanation, 2> explanations{
    {{"qdisc kind is unknown",
      "needs the kernel's token bucket filter (as root, once: modprobe sch_tbf)"},
     {"Unknown device type",
      "needs the kernel's veth pairs and bridges (as root, once: modprobe -a veth bridge)"}}};

void require_batch(const std::string& program, const std::string& commands,
                   const std::vector<Descriptor>& inherited = {}) {
    const std::optional<std::string> error = error_of_batch(program, commands, inherited);
    if (!error) {
        return;
    }
    const std::string whose = fmt::format("{}: {}", program, *error);
    if (error->find("Operation not permitted") != std::string::npos) {
        fail(missing_privileges(read_user_namespace_settings(), "the kernel (" + whose + ")"));
    }
    for (const Explanation& explanation : explanations) {
        if (error->find(explanation.said) != std::string::npos) {
            fail(fmt::format("{}: {}", explanation.means, whose));
        }
    }
    fail("cannot build the network: " + whose);
}

// -- namespaces --

// Best effort: /proc/sys is read-only in some containers, and the network works without.
void write_setting(const char* path, std::string_view value) {
    const Descriptor file(::open(path, O_WRONLY | O_CLOEXEC));
    if (file.get() >= 0) {
        [[maybe_unused]] const ::ssize_t count = ::write(file.get(), value.data(), value.size());
    }
}

// Moves this process into a new namespace. Its settings are those of the machine, but for:
Descriptor new_namespace() {
    if (::unshare(CLONE_NEWNET) != 0) {
        const std::string why = reason(errno);
        fail(errno == EPERM ? missing_privileges(read_user_namespace_settings(),
                                                 "the kernel (network namespace: " + why + ")")
                            : "cannot make a network namespace: " + why);
    }
    Descriptor holder(::open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC));
    if (holder.get() < 0) {
        fail("cannot open a network namespace: " + reason(errno));
    }
    // No traffic but the ranks' own.
    write_setting("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1");
    // The same on every machine, whatever its default: cubic, the default of Linux, or reno where a
    // namespace may not choose cubic. Above all not bbr, whose pacing would shape the links again.
    write_setting("/proc/sys/net/ipv4/tcp_congestion_control", "reno");
    write_setting("/proc/sys/net/ipv4/tcp_congestion_control", "cubic");
    return holder;
}

bool enter_namespace(const Descriptor& holder, int kind) noexcept {
    return ::setns(holder.get(), kind) == 0;
}

// -- the network --

std::string address_of(int rank) {
    return fmt::format("10.77.0.{}", rank + 1);
}

std::string hardware_address_of(int rank) {
    return fmt::format("02:00:0a:4d:00:{:02x}", rank + 1);
}

std::string shaping(const std::string& device, BitsPerSecond rate, const LinkShape& shape) {
    return fmt::format("qdisc add dev {} root tbf rate {}bit burst {} limit {}\n", device,
                       rate.count, shape.burst_bytes, shape.queue_bytes);
}

// Makes the links of all ranks, each with one end in the switch's namespace, where this process is,
// and the other in the rank's, which the program finds among its own descriptors: it may not look
// at those of a process with more privileges.
std::string switch_commands(const std::vector<Descriptor>& namespaces) {
    // forward_delay 0: a port carries packets at once.
    std::string commands =
        "link add name switch0 type bridge stp_state 0 forward_delay 0 mcast_snooping 0\n";
    for (int rank = 0; rank < std::ssize(namespaces); ++rank) {
        const int holder = namespaces[static_cast<std::size_t>(rank)].get();
        commands += fmt::format(
            "link add name port{0} mtu {1} type veth "
            "peer name eth0 mtu {1} address {2} netns /proc/self/fd/{3}\n"
            "link set dev port{0} master switch0 up\n",
            rank, mtu_bytes, hardware_address_of(rank), holder);
    }
    return commands + "link set dev switch0 up\n";
}

std::string rank_commands(int rank, int ranks, const LinkShape& shape) {
    std::string commands = fmt::format(
        "link set dev lo up\n"
        "link set dev eth0 gso_max_size {}\n"
        "address add {}/24 dev eth0\n"
        "link set dev eth0 up\n",
        shape.packet_bytes, address_of(rank));
    for (int peer = 0; peer < ranks; ++peer) {
        if (peer != rank) {
            // The first packet to a peer asks nobody where it lives.
            commands += fmt::format("neighbour add {} lladdr {} dev eth0 nud permanent\n",
                                    address_of(peer), hardware_address_of(peer));
        }
    }
    return commands;
}

std::vector<Descriptor> build(int ranks, BitsPerSecond rate) {
    const std::string ip = find_program("ip");
    const std::string tc = find_program("tc");
    const LinkShape shape = shape_of(rate, ranks);
    std::vector<Descriptor> namespaces;
    for (int rank = 0; rank < ranks; ++rank) {
        namespaces.push_back(new_namespace());
    }
    Descriptor of_switch = new_namespace();
    require_batch(ip, switch_commands(namespaces), namespaces);
    std::string ports;
    for (int rank = 0; rank < ranks; ++rank) {
        ports += shaping(fmt::format("port{}", rank), rate, shape);
    }
    require_batch(tc, ports);
    for (int rank = 0; rank < ranks; ++rank) {
        if (!enter_namespace(namespaces[static_cast<std::size_t>(rank)], CLONE_NEWNET)) {
            fail("cannot enter a network namespace: " + reason(errno));
        }
        require_batch(ip, rank_commands(rank, ranks, shape));
        require_batch(tc, shaping("eth0", rate, shape));
    }
    namespaces.push_back(std::move(of_switch));
    return namespaces;
}

// Network namespaces of the ranks and of the switch, last the user namespace if they are in one.
// For a process of its own, which ends in one of each.
std::vector<Descriptor> build_with_privileges(int ranks, BitsPerSecond rate) {
    if (may_make_networks()) {
        return build(ranks, rate);
    }
    Descriptor users = enter_new_user_namespace();
    std::vector<Descriptor> namespaces = build(ranks, rate);
    namespaces.push_back(std::move(users));
    return namespaces;
}

}  // namespace

BitsPerSecond parse_rate(std::string_view text, const std::string& option) {
    double number = 0;
    const auto [end, error] =
        std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
    const std::string unit = lower_case(text.substr(static_cast<std::size_t>(end - text.data())));
    for (const auto& [name, factor] : rate_units) {
        const double rate = number * static_cast<double>(factor);
        if (error == std::errc{} && unit == name && rate >= static_cast<double>(slowest_rate) &&
            rate <= static_cast<double>(fastest_rate)) {
            return {std::llround(rate)};
        }
    }
    throw InputError(option, "",
                     "a rate of 100kbit to 100gbit (units bit, kbit, mbit, gbit), such as 1gbit",
                     "\"" + std::string(text) + "\"");
}

std::string text_of(BitsPerSecond rate) {
    std::string shortest;
    for (const RateUnit& unit : rate_units) {
        const std::string text = fmt::format(
            "{}{}", static_cast<double>(rate.count) / static_cast<double>(unit.bits_per_second),
            unit.name);
        if (shortest.empty() || text.size() < shortest.size()) {
            shortest = text;
        }
    }
    return shortest;
}

ShapedNetwork::ShapedNetwork(int ranks, BitsPerSecond rate) {
    invariant(ranks >= 1 && ranks <= most_ranks, "a shaped network has 1 to 250 ranks");
    networks_ = descriptors_from_child([&] { return build_with_privileges(ranks, rate); });
    if (std::ssize(networks_) == ranks + 2) {
        users_ = std::move(networks_.back());
        networks_.pop_back();
    }
}

bool ShapedNetwork::enter(int rank) const noexcept {
    if (rank < 0 || rank >= std::ssize(networks_) - 1) {
        errno = EINVAL;
        return false;
    }
    // First the one whose users may enter the other.
    return (!users_.is_open() || enter_namespace(users_, CLONE_NEWUSER)) &&
           enter_namespace(networks_[static_cast<std::size_t>(rank)], CLONE_NEWNET);
}

std::string ShapedNetwork::address(int rank) {
    return address_of(rank);
}

}  // namespace bucketwise
