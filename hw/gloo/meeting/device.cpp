#include "hw/gloo/meeting/device.h"

#include <gloo/transport/tcp/device.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <stdexcept>
#include <system_error>

#include "hw/gloo/meeting/peer_failure.h"
#include "sim/base/error.h"

namespace bucketwise {
namespace {

struct AddressDeleter {
    void operator()(addrinfo* info) const { ::freeaddrinfo(info); }
};
using AddressInfo = std::unique_ptr<addrinfo, AddressDeleter>;

AddressInfo parse_address(const std::string& text) {
    addrinfo hints{};
    hints.ai_flags = AI_NUMERICHOST;  // a name may stand for several addresses, or change
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    return AddressInfo(::getaddrinfo(text.c_str(), nullptr, &hints, &found) == 0 ? found : nullptr);
}

bool is_every_address(const addrinfo& info) {
    if (info.ai_family == AF_INET) {
        const auto* const v4 = reinterpret_cast<const sockaddr_in*>(info.ai_addr);
        return v4->sin_addr.s_addr == INADDR_ANY;
    }
    const in6_addr& v6 = reinterpret_cast<const sockaddr_in6*>(info.ai_addr)->sin6_addr;
    const bool mapped_any = IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr32[3] == INADDR_ANY;
    return IN6_IS_ADDR_UNSPECIFIED(&v6) || mapped_any;
}

int bind_error(const addrinfo& info) {
    const int descriptor = ::socket(info.ai_family, info.ai_socktype | SOCK_CLOEXEC, 0);
    const bool bound = descriptor >= 0 && ::bind(descriptor, info.ai_addr, info.ai_addrlen) == 0;
    const int error = bound ? 0 : errno;
    if (descriptor >= 0) {
        ::close(descriptor);
    }
    return error;
}

struct InterfacesDeleter {
    void operator()(ifaddrs* first) const { ::freeifaddrs(first); }
};
using Interfaces = std::unique_ptr<ifaddrs, InterfacesDeleter>;

Interfaces network_interfaces() {
    ifaddrs* first = nullptr;
    if (::getifaddrs(&first) != 0) {
        throw std::runtime_error(std::string("cannot list network interfaces: ") +
                                 std::generic_category().message(errno));
    }
    return Interfaces(first);
}

bool is_same_address(const sockaddr* a, const sockaddr* b) {
    if (a == nullptr || a->sa_family != b->sa_family) {
        return false;
    }
    if (a->sa_family == AF_INET) {
        return reinterpret_cast<const sockaddr_in*>(a)->sin_addr.s_addr ==
               reinterpret_cast<const sockaddr_in*>(b)->sin_addr.s_addr;
    }
    return a->sa_family == AF_INET6 &&
           IN6_ARE_ADDR_EQUAL(&reinterpret_cast<const sockaddr_in6*>(a)->sin6_addr,
                              &reinterpret_cast<const sockaddr_in6*>(b)->sin6_addr);
}

// The kernel lets a process listen on 127.0.0.1 where loopback is down, and Gloo then looks for the
// interface in vain.
void check_is_up(const std::string& address, const addrinfo& info) {
    const Interfaces all = network_interfaces();
    for (const ifaddrs* i = all.get(); i != nullptr; i = i->ifa_next) {
        if (is_same_address(i->ifa_addr, info.ai_addr)) {
            return;
        }
    }
    throw std::runtime_error(
        "cannot listen on " + address +
        ": no network interface has this address. Is loopback down? (as root: ip link set lo up)");
}

// Gloo checks too, but then says little and loses memory.
void check_address(const std::string& address) {
    const std::string expected = "the numeric address of one network interface of this host";
    const AddressInfo info = parse_address(address);
    if (!info) {
        throw InputError("address", "", expected, "\"" + address + "\"");
    }
    if (is_every_address(*info)) {
        throw InputError("address", "", expected, address + ", which stands for all of them");
    }
    if (const int error = bind_error(*info); error != 0) {
        throw InputError("address", "", expected,
                         address + " (" + std::generic_category().message(error) + ")");
    }
    check_is_up(address, *info);
}

void check_interface(const std::string& interface) {
    const Interfaces all = network_interfaces();
    for (const ifaddrs* i = all.get(); i != nullptr; i = i->ifa_next) {
        if (i->ifa_addr != nullptr && interface == i->ifa_name &&
            (i->ifa_addr->sa_family == AF_INET || i->ifa_addr->sa_family == AF_INET6)) {
            return;
        }
    }
    throw InputError("--interface", "", "a network interface of this host with an address",
                     "\"" + interface + "\"");
}

}  // namespace

std::shared_ptr<gloo::transport::Device> open_device(const std::string& address,
                                                     const std::string& interface) {
    if (address.empty() && interface.empty()) {
        throw InputError("address", "", "an address or an interface to listen on", "neither");
    }
    gloo::transport::tcp::attr wish;
    if (address.empty()) {
        check_interface(interface);
        wish.iface = interface;
    } else {
        check_address(address);
        wish.hostname = address;
    }
    std::shared_ptr<gloo::transport::Device> device;
    with_peer_failures("cannot listen on " + (address.empty() ? interface : address),
                       [&] { device = gloo::transport::tcp::CreateDevice(wish); });
    return device;
}

}  // namespace bucketwise
