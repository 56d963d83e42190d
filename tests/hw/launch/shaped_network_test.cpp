#include "hw/launch/shaped_network.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "hw/launch/launcher.h"
#include "sim/base/error.h"
#include "tests/catch.h"
#include "tests/hw/launch/child_process.h"

namespace bucketwise {
namespace {

using Clock = std::chrono::steady_clock;
namespace fs = std::filesystem;

constexpr BitsPerSecond megabit{1'000'000};
constexpr BitsPerSecond gigabit{1'000'000'000};
constexpr std::uint16_t port = 5000;  // free in a new namespace, whatever this machine listens on

// Nothing, with a warning, where this machine lacks what the network needs.
std::unique_ptr<ShapedNetwork> network_if_possible(int ranks, BitsPerSecond rate) {
    try {
        return std::make_unique<ShapedNetwork>(ranks, rate);
    } catch (const std::runtime_error& error) {
        const std::string what = error.what();
        if (what.rfind("--link-rate needs ", 0) != 0) {
            throw;
        }
        WARN("skipped: " << what);
        return nullptr;
    }
}

// Whether networks can be made without root; with a warning if not.
bool ordinary_users_can() {
    const Pipe pipe = open_pipe();
    const bool can = ended_well(start_child([&] {
        if (!become_ordinary_user()) {
            return false;
        }
        try {
            const ShapedNetwork network(2, gigabit);
            return true;
        } catch (const std::runtime_error& error) {
            const std::string what = error.what();
            [[maybe_unused]] const ::ssize_t count =
                ::write(pipe.write.get(), what.data(), what.size());
            return false;
        }
    }));
    std::string what(PIPE_BUF, '\0');
    const ::ssize_t count = ::read(pipe.read.get(), what.data(), what.size());
    what.resize(count < 0 ? 0 : static_cast<std::size_t>(count));
    if (!can) {
        REQUIRE_THAT(what, Catch::Matchers::StartsWith("--link-rate needs "));
        WARN("skipped: " << what);
    }
    return can;
}

void wait_until_readable(const Descriptor& pipe) {
    ::pollfd poll{pipe.get(), POLLIN, 0};
    REQUIRE(::poll(&poll, 1, longest_child_seconds * 1000) == 1);
}

void wait_for_byte(const Descriptor& pipe) {
    wait_until_readable(pipe);
    char byte = 0;
    REQUIRE(::read(pipe.get(), &byte, 1) == 1);
}

::sockaddr_in socket_address(const std::string& address) {
    ::sockaddr_in result{};
    result.sin_family = AF_INET;
    result.sin_port = htons(port);
    ::inet_pton(AF_INET, address.c_str(), &result.sin_addr);
    return result;
}

const ::sockaddr* generic(const ::sockaddr_in& address) {
    return reinterpret_cast<const ::sockaddr*>(&address);
}

// Receives `bytes` from each of `senders`, one after another, and answers each with one byte.
bool receive(const std::string& own, int senders, std::size_t bytes) {
    const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
    const ::sockaddr_in address = socket_address(own);
    if (::bind(listener, generic(address), sizeof address) != 0 ||
        ::listen(listener, senders) != 0) {
        return false;
    }
    std::vector<char> block(1 << 18);
    for (int sender = 0; sender < senders; ++sender) {
        const int peer = ::accept(listener, nullptr, nullptr);
        std::size_t received = 0;
        while (received < bytes) {
            const ::ssize_t count = ::recv(peer, block.data(), block.size(), 0);
            if (count <= 0) {
                return false;
            }
            received += static_cast<std::size_t>(count);
        }
        if (received != bytes || ::send(peer, "!", 1, 0) != 1) {
            return false;
        }
        ::close(peer);
    }
    return true;
}

int connect_to(const std::string& receiver) {
    const ::sockaddr_in address = socket_address(receiver);
    while (true) {
        const int peer = ::socket(AF_INET, SOCK_STREAM, 0);
        if (::connect(peer, generic(address), sizeof address) == 0) {
            return peer;
        }
        ::close(peer);
        std::this_thread::sleep_for(std::chrono::milliseconds(1));  // until it listens
    }
}

bool send(const std::string& receiver, std::size_t bytes) {
    const int peer = connect_to(receiver);
    const std::vector<char> block(1 << 18);
    while (bytes > 0) {
        const ::ssize_t count = ::send(peer, block.data(), std::min(bytes, block.size()), 0);
        if (count <= 0) {
            return false;
        }
        bytes -= static_cast<std::size_t>(count);
    }
    char answer = 0;
    return ::recv(peer, &answer, 1, 0) == 1;
}

// Seconds until rank 0 has received `bytes` from every other rank; none if anything went wrong.
std::optional<double> gather_seconds(const ShapedNetwork& network, int ranks, std::size_t bytes) {
    const std::string receiver = network.address(0);
    const auto begin = Clock::now();
    std::vector<::pid_t> children{
        start_child([&] { return network.enter(0) && receive(receiver, ranks - 1, bytes); })};
    for (int rank = 1; rank < ranks; ++rank) {
        children.push_back(
            start_child([&, rank] { return network.enter(rank) && send(receiver, bytes); }));
    }
    const auto failed = std::count_if(children.begin(), children.end(), std::not_fn(ended_well));
    return failed != 0 ? std::nullopt
                       : std::optional(std::chrono::duration<double>(Clock::now() - begin).count());
}

::ino_t own_namespace() {
    struct ::stat status {};
    return ::stat("/proc/thread-self/ns/net", &status) == 0 ? status.st_ino : 0;
}

std::set<std::string> devices_of_this_machine() {
    std::set<std::string> names;
    for (const fs::directory_entry& entry : fs::directory_iterator("/sys/class/net")) {
        names.insert(entry.path().filename());
    }
    return names;
}

// The open descriptors of network namespaces.
std::vector<int> namespace_descriptors() {
    std::vector<int> numbers;
    for (const fs::directory_entry& entry : fs::directory_iterator("/proc/self/fd")) {
        std::error_code gone;
        if (fs::read_symlink(entry.path(), gone).string().rfind("net:", 0) == 0) {
            numbers.push_back(std::stoi(entry.path().filename()));
        }
    }
    return numbers;
}

TEST_CASE("a rate is read in the units of tc") {
    CHECK(parse_rate("1gbit", "--link-rate") == gigabit);
    CHECK(parse_rate("2.5Gbit", "--link-rate") == BitsPerSecond{2'500'000'000});
    CHECK(parse_rate("100MBIT", "--link-rate") == BitsPerSecond{100'000'000});
    CHECK(parse_rate("100kbit", "--link-rate") == BitsPerSecond{100'000});
    CHECK(parse_rate("123456789bit", "--link-rate") == BitsPerSecond{123'456'789});
    CHECK(parse_rate("100gbit", "--link-rate") == BitsPerSecond{100'000'000'000});
}

TEST_CASE("a rate that tc would read otherwise, or that no link has, is refused") {
    for (const std::string text :
         {"", "1", "gbit", "1gbps", "1mibit", "1 gbit", " 1gbit", "1gbit ", "-1gbit", "0gbit",
          "99kbit", "100.1gbit", "infgbit", "nangbit", "1e1gbit", "0x1gbit", "1g", "1,5gbit"}) {
        INFO(text);
        CHECK_THROWS_AS(parse_rate(text, "--link-rate"), InputError);
    }
    try {
        parse_rate("1gbps", "--link-rate");
        FAIL("was accepted");
    } catch (const InputError& error) {
        CHECK(std::string(error.what()) ==
              "--link-rate: expected a rate of 100kbit to 100gbit (units bit, kbit, mbit, gbit), "
              "such as 1gbit, got \"1gbps\"");
    }
}

TEST_CASE("a rate is written as short as it can be without a loss") {
    const std::vector<std::pair<std::int64_t, std::string>> expected{
        {100'000, "100kbit"},        {1'000'000, "1mbit"},        {1'500'000, "1.5mbit"},
        {50'000'000, "50mbit"},      {100'000'000, "100mbit"},    {1'000'000'000, "1gbit"},
        {2'500'000'000, "2.5gbit"},  {1'050'000'000, "1050mbit"}, {123'456'789, "123456789bit"},
        {100'000'000'000, "100gbit"}};
    for (const auto& [count, text] : expected) {
        CHECK(text_of(BitsPerSecond{count}) == text);
        CHECK(parse_rate(text, "") == BitsPerSecond{count});
    }
    // Steps that share no factor with the units.
    for (std::int64_t count = 100'000; count < 100'000'000'000; count += count / 7 + 1) {
        CHECK(parse_rate(text_of(BitsPerSecond{count}), "") == BitsPerSecond{count});
    }
}

TEST_CASE("a link carries bytes no faster than its rate") {
    const auto network = network_if_possible(2, {50 * megabit.count});
    if (network) {
        // 2 MB at 50 mbit take 320 ms; less the burst, below 20 kB of the 2 MB.
        CHECK(gather_seconds(*network, 2, 2'000'000) >= 0.8 * 0.320);
    }
}

TEST_CASE("a fast link carries much") {
    const auto network = network_if_possible(2, gigabit);
    if (network) {
        // 64 MB at 1 gbit take 512 ms. No upper bound: that is up to how busy this machine is.
        CHECK(gather_seconds(*network, 2, 64'000'000) >= 0.8 * 0.512);
    }
}

TEST_CASE("16 ranks meet, and share the link of the one they all send to") {
    const auto network = network_if_possible(16, {100 * megabit.count});
    if (network) {
        // 15 times 500 kB at 100 mbit take 600 ms.
        CHECK(gather_seconds(*network, 16, 500'000) >= 0.8 * 0.600);
    }
}

TEST_CASE("an ordinary user's link carries bytes no faster than its rate") {
    if (ordinary_users_can()) {
        CHECK(ended_well(start_child([] {
            if (!become_ordinary_user()) {
                return false;
            }
            const ShapedNetwork network(2, {50 * megabit.count});
            // 2 MB at 50 mbit, as above.
            return gather_seconds(network, 2, 2'000'000) >= 0.8 * 0.320;
        })));
    }
}

TEST_CASE("an ordinary user's rank is that user, without privileges, in a network of its own") {
    if (!ordinary_users_can()) {
        return;
    }
    CHECK(ended_well(start_child([] {
        if (!become_ordinary_user()) {
            return false;
        }
        const ShapedNetwork network(2, gigabit);
        const std::string user = std::to_string(::getuid());
        LaunchRequest launch;
        // Its files are that user's; eth0 has the rank's address; no capability is left.
        launch.command = {
            "/bin/sh", "-c",
            "file=$(mktemp) && owner=$(stat -c %u $file) && rm $file && [ $owner = " + user +
                " ] && [ $(id -u) = " + user +
                " ] && grep -q 'CapEff:.0000000000000000$' /proc/self/status && "
                "grep -q eth0 /proc/self/net/dev && ! grep -q switch0 /proc/self/net/dev"};
        launch.ranks = 2;
        launch.before_exec = [&](int rank) { return network.enter(rank); };
        return !launch_ranks(launch, {});
    })));
}

// The launcher's signals must reach ranks whose namespaces are not its own.
TEST_CASE("an ordinary user's ranks are ended when one of them fails") {
    if (!ordinary_users_can()) {
        return;
    }
    CHECK(ended_well(start_child([] {
        if (!become_ordinary_user()) {
            return false;
        }
        const ShapedNetwork network(2, gigabit);
        LaunchRequest launch;
        launch.command = {"/bin/sh", "-c", "[ $RANK = 1 ] && exit 3; exec sleep 1000"};
        launch.ranks = 2;
        launch.before_exec = [&](int rank) { return network.enter(rank); };
        const std::optional<LaunchFailure> failure = launch_ranks(launch, {});
        return failure && failure->rank == 1 && failure->reason == "exited with status 3";
    })));
}

// A named pipe that ranks of any user can write to; a launcher hands down no other.
class NamedPipe {
  public:
    NamedPipe() {
        REQUIRE(::mkdtemp(folder_.data()) != nullptr);
        REQUIRE(::chmod(folder_.c_str(), 0755) == 0);
        REQUIRE((::mkfifo(path().c_str(), 0622) == 0 && ::chmod(path().c_str(), 0622) == 0));
        end_ = Descriptor(::open(path().c_str(), O_RDWR | O_CLOEXEC));
        REQUIRE(end_.is_open());
    }
    ~NamedPipe() {
        ::unlink(path().c_str());
        ::rmdir(folder_.c_str());
    }
    NamedPipe(const NamedPipe&) = delete;
    NamedPipe& operator=(const NamedPipe&) = delete;

    [[nodiscard]] std::string path() const { return folder_ + "/pipe"; }

    [[nodiscard]] int read_number() const {
        std::string digits;
        while (true) {
            wait_until_readable(end_);
            char digit = 0;
            REQUIRE(::read(end_.get(), &digit, 1) == 1);
            if (digit == '\n') {
                return std::stoi(digits);
            }
            digits.push_back(digit);
        }
    }

  private:
    std::string folder_ = (fs::temp_directory_path() / "bucketwise-test-XXXXXX").string();
    Descriptor end_;
};

// Entering a user namespace, or becoming a program, must not make the kernel forget that a rank
// ends with its launcher.
TEST_CASE("an ordinary user's ranks end when their launcher is killed") {
    if (!ordinary_users_can()) {
        return;
    }
    const NamedPipe pipe;
    const ::pid_t launcher = start_child([&] {
        if (!become_ordinary_user()) {
            return false;
        }
        const ShapedNetwork network(2, gigabit);
        LaunchRequest launch;
        launch.command = {"/bin/sh", "-c", "echo $$ > " + pipe.path() + " && exec sleep 1000"};
        launch.ranks = 2;
        launch.before_exec = [&](int rank) { return network.enter(rank); };
        return !launch_ranks(launch, {});
    });
    const ProcessHandle one(pipe.read_number());
    const ProcessHandle other(pipe.read_number());
    ::kill(launcher, SIGKILL);
    CHECK_FALSE(ended_well(launcher));
    CHECK(one.ends());
    CHECK(other.ends());
}

TEST_CASE("every rank has an address of its own") {
    const auto network = network_if_possible(3, gigabit);
    if (network) {
        CHECK(network->address(0) == "10.77.0.1");
        CHECK(network->address(2) == "10.77.0.3");
    }
}

TEST_CASE("a network leaves this machine and the calling thread as they were") {
    const auto devices = devices_of_this_machine();
    const ::ino_t before = own_namespace();
    {
        const auto network = network_if_possible(2, gigabit);
        CHECK(own_namespace() == before);
        CHECK(devices_of_this_machine() == devices);
        for (const int descriptor : namespace_descriptors()) {
            CHECK((::fcntl(descriptor, F_GETFD) & FD_CLOEXEC) != 0);
        }
    }
    CHECK(namespace_descriptors().empty());
    CHECK(own_namespace() == before);
    CHECK(devices_of_this_machine() == devices);
}

// The namespaces of a process, held from outside.
struct NamespacesOf {
    explicit NamespacesOf(::pid_t process)
        : users(open_namespace(process, "user")), network(open_namespace(process, "net")) {}

    static Descriptor open_namespace(::pid_t process, const std::string& kind) {
        const std::string path = "/proc/" + std::to_string(process) + "/ns/" + kind;
        Descriptor holder(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
        REQUIRE(holder.is_open());
        return holder;
    }

    Descriptor users;
    Descriptor network;
};

// In a child that waits in the namespaces of rank 0 with nothing else of the network's.
bool link_vanishes(const NamespacesOf& rank, int ready) {
    // Where root built the network, these are the child's own users, which it cannot enter again.
    if (::setns(rank.users.get(), CLONE_NEWUSER) != 0 && errno != EINVAL) {
        return false;
    }
    if (::setns(rank.network.get(), CLONE_NEWNET) != 0 || ::if_nametoindex("eth0") == 0 ||
        ::write(ready, "!", 1) != 1) {
        return false;
    }
    while (::if_nametoindex("eth0") != 0) {  // start_child bounds it
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return true;
}

// `become` makes the process that builds the network the user whose network it is.
void check_devices_go_with(const std::function<bool()>& become) {
    const Pipe built = open_pipe();
    const Pipe watching = open_pipe();
    const ::pid_t builder = start_child([&] {
        if (!become()) {
            return false;
        }
        const ShapedNetwork network(2, gigabit);
        const bool told = network.enter(0) && ::write(built.write.get(), "!", 1) == 1;
        ::pause();
        return told;
    });
    wait_for_byte(built.read);
    // Rank 0's namespace stays, as long as this holds it. The switch's namespace does not, and
    // takes the links with it.
    const NamespacesOf rank(builder);
    const ::pid_t watcher = start_child([&] { return link_vanishes(rank, watching.write.get()); });
    wait_for_byte(watching.read);
    ::kill(builder, SIGKILL);
    CHECK_FALSE(ended_well(builder));
    CHECK(ended_well(watcher));
}

TEST_CASE("the devices go when the process that built them is killed") {
    if (network_if_possible(2, gigabit)) {
        check_devices_go_with([] { return true; });
    }
}

TEST_CASE("the devices of an ordinary user go when the process that built them is killed") {
    if (ordinary_users_can()) {
        check_devices_go_with(become_ordinary_user);
    }
}

TEST_CASE("networks of several processes do not meet") {
    if (!network_if_possible(2, gigabit)) {
        return;
    }
    std::vector<::pid_t> children;
    for (int process = 0; process < 4; ++process) {
        children.push_back(start_child([] {
            const ShapedNetwork network(2, gigabit);
            const std::string receiver = network.address(0);
            const ::pid_t peer =
                start_child([&] { return network.enter(0) && receive(receiver, 1, 1'000'000); });
            return network.enter(1) && send(receiver, 1'000'000) && ended_well(peer);
        }));
    }
    for (const ::pid_t child : children) {
        CHECK(ended_well(child));
    }
}

TEST_CASE("a rank that does not exist has no namespace to enter") {
    const auto network = network_if_possible(1, gigabit);
    if (network) {
        CHECK_FALSE(network->enter(1));
        CHECK(errno == EINVAL);
        CHECK_FALSE(network->enter(-1));
    }
}

}  // namespace
}  // namespace bucketwise
