#include "tests/emulated_gpu/nccl/sockets.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

namespace bucketwise::emulated {
namespace {

struct Address {
    sockaddr_un address{};
    socklen_t bytes = 0;

    explicit Address(const std::string& name) {
        address.sun_family = AF_UNIX;
        // A first byte of zero makes it abstract.
        const std::size_t length = std::min(name.size(), sizeof(address.sun_path) - 1);
        std::memcpy(address.sun_path + 1, name.data(), length);
        bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
    }
    [[nodiscard]] const sockaddr* get() const {
        return reinterpret_cast<const sockaddr*>(&address);
    }
};

// ThreadSanitizer takes everything read from any socket for ordered after everything written to any
// socket before. Through the bare system calls it does not see them.
std::optional<std::size_t> transferred(long bytes) {
    if (bytes >= 0) {
        return static_cast<std::size_t>(bytes);
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) {
        return 0;
    }
    return std::nullopt;
}

bool wait_for(const Descriptor& socket, short events, Deadline deadline) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0) {
        return false;
    }
    pollfd waited{socket.number(), events, 0};
    ::poll(&waited, 1, static_cast<int>(left.count()));
    return true;
}

Descriptor new_socket() {
    return Descriptor(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
}

}  // namespace

Descriptor::Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
}

void Descriptor::close() {
    if (is_open()) {
        ::close(std::exchange(number_, -1));
    }
}

std::optional<std::size_t> send_some(const Descriptor& socket, const void* data,
                                     std::size_t bytes) {
    return transferred(::syscall(SYS_sendto, socket.number(), data, bytes,
                                 MSG_DONTWAIT | MSG_NOSIGNAL, nullptr, 0));
}

std::optional<std::size_t> receive_some(const Descriptor& socket, void* data, std::size_t bytes) {
    const long received =
        ::syscall(SYS_recvfrom, socket.number(), data, bytes, MSG_DONTWAIT, nullptr, nullptr);
    return received == 0 && bytes > 0 ? std::nullopt : transferred(received);
}

bool send_all(const Descriptor& socket, const void* data, std::size_t bytes, Deadline deadline) {
    const auto* next = static_cast<const char*>(data);
    while (bytes > 0) {
        const auto sent = send_some(socket, next, bytes);
        if (!sent || (*sent == 0 && !wait_for(socket, POLLOUT, deadline))) {
            return false;
        }
        next += *sent;
        bytes -= *sent;
    }
    return true;
}

bool receive_all(const Descriptor& socket, void* data, std::size_t bytes, Deadline deadline) {
    auto* next = static_cast<char*>(data);
    while (bytes > 0) {
        const auto received = receive_some(socket, next, bytes);
        if (!received || (*received == 0 && !wait_for(socket, POLLIN, deadline))) {
            return false;
        }
        next += *received;
        bytes -= *received;
    }
    return true;
}

Descriptor listen_at(const std::string& name) {
    const Address address(name);
    Descriptor listener = new_socket();
    if (!listener.is_open() || ::bind(listener.number(), address.get(), address.bytes) != 0 ||
        ::listen(listener.number(), SOMAXCONN) != 0) {
        listener.close();
    }
    return listener;
}

Descriptor accept_from(const Descriptor& listener, Deadline deadline) {
    pollfd waited{listener.number(), POLLIN, 0};
    while ((waited.revents & POLLIN) == 0) {
        if (!wait_for(listener, POLLIN, deadline)) {
            return {};
        }
        ::poll(&waited, 1, 0);
    }
    return Descriptor(::accept4(listener.number(), nullptr, nullptr, SOCK_CLOEXEC));
}

Descriptor connect_to(const std::string& name, Deadline deadline) {
    using namespace std::chrono_literals;
    const Address address(name);
    while (true) {
        Descriptor socket = new_socket();
        if (socket.is_open() && ::connect(socket.number(), address.get(), address.bytes) == 0) {
            return socket;
        }
        if (std::chrono::steady_clock::now() >= deadline) {
            return {};
        }
        std::this_thread::sleep_for(10ms);  // the listener may be yet to come
    }
}

}  // namespace bucketwise::emulated
