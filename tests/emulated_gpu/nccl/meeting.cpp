#include "tests/emulated_gpu/nccl/meeting.h"

#include <cuda_runtime_api.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <random>

namespace bucketwise::emulated {
namespace {

// From each rank to rank 0.
struct Arrival {
    int rank = 0;
    int ranks = 0;
    std::array<char, 256> host{};
    std::array<char, 32> gpu{};
};

// From rank 0 to each.
struct Verdict {
    ncclResult_t result = ncclSuccess;
    std::array<char, 256> message{};
};

template <std::size_t size>
void write_to(std::array<char, size>& text, const std::string& value) {
    std::snprintf(text.data(), size, "%s", value.c_str());
}

std::mutex& listening() {
    static auto& only = *new std::mutex;
    return only;
}

// By name. Under listening().
std::map<std::string, Descriptor>& listeners() {
    static auto& all = *new std::map<std::string, Descriptor>;
    return all;
}

Descriptor take_listener(const std::string& name) {
    const std::lock_guard lock(listening());
    const auto found = listeners().find(name);
    if (found == listeners().end()) {
        return {};
    }
    Descriptor listener = std::move(found->second);
    listeners().erase(found);
    return listener;
}

std::string name_of(const ncclUniqueId& id) {
    return {id.internal, ::strnlen(id.internal, NCCL_UNIQUE_ID_BYTES)};
}

Deadline deadline() {
    const char* seconds = std::getenv("EMULATED_NCCL_INIT_TIMEOUT_S");
    return std::chrono::steady_clock::now() +
           std::chrono::seconds(seconds != nullptr ? std::atoi(seconds) : 30);
}

Arrival arrival_of(int rank, int ranks, int device) {
    Arrival arrival;
    arrival.rank = rank;
    arrival.ranks = ranks;
    const char* host = std::getenv("NCCL_HOSTID");
    if (host != nullptr) {
        write_to(arrival.host, host);
    } else {
        ::gethostname(arrival.host.data(), arrival.host.size() - 1);
    }
    cudaDeviceGetPCIBusId(arrival.gpu.data(), static_cast<int>(arrival.gpu.size()), device);
    return arrival;
}

std::string not_all_came(int rank, int ranks) {
    return "rank " + std::to_string(rank) + " of " + std::to_string(ranks) +
           ": not all ranks came in time";
}

// Ranks that are there already, and ranks that come.
Failure clash(const std::vector<Arrival>& there, const Arrival& arrival) {
    const int ranks = there.front().ranks;
    if (arrival.ranks != ranks || arrival.rank < 0 || arrival.rank >= ranks) {
        return {ncclInvalidArgument, "rank " + std::to_string(arrival.rank) + " of " +
                                         std::to_string(arrival.ranks) + " came to " +
                                         std::to_string(ranks) + " ranks"};
    }
    for (const Arrival& other : there) {
        if (other.rank == arrival.rank) {
            return {ncclInvalidArgument, "two ranks are rank " + std::to_string(arrival.rank)};
        }
        if (other.host == arrival.host && other.gpu == arrival.gpu) {
            return {ncclInvalidUsage,
                    "Duplicate GPU detected : rank " + std::to_string(arrival.rank) + " and rank " +
                        std::to_string(other.rank) + " both on CUDA device " + arrival.gpu.data()};
        }
    }
    return {};
}

void announce(const std::vector<Descriptor>& sockets, const Failure& failure, Deadline until) {
    Verdict verdict;
    verdict.result = failure.result;
    write_to(verdict.message, failure.message);
    for (const Descriptor& socket : sockets) {
        if (socket.is_open()) {
            send_all(socket, &verdict, sizeof(verdict), until);
        }
    }
}

// After a clash it still waits for all, so that all hear of it.
std::variant<Connections, Failure> gather(const Descriptor& listener, const Arrival& own) {
    const Deadline until = deadline();
    std::vector<Arrival> there{own};
    Failure failure;
    Connections sockets;
    sockets.emplace_back();  // none to itself
    while (std::ssize(sockets) < own.ranks) {
        Descriptor socket = accept_from(listener, until);
        Arrival arrival;
        if (!socket.is_open() || !receive_all(socket, &arrival, sizeof(arrival), until)) {
            if (failure.result == ncclSuccess) {
                failure = {ncclSystemError, not_all_came(own.rank, own.ranks)};
            }
            break;
        }
        if (const Failure found = clash(there, arrival); failure.result == ncclSuccess) {
            failure = found;
        }
        there.push_back(arrival);
        sockets.push_back(std::move(socket));
    }
    using namespace std::chrono_literals;
    announce(sockets, failure, std::chrono::steady_clock::now() + 1s);
    if (failure.result != ncclSuccess) {
        return failure;
    }
    Connections by_rank(sockets.size());
    for (std::size_t i = 1; i < sockets.size(); ++i) {
        by_rank[static_cast<std::size_t>(there[i].rank)] = std::move(sockets[i]);
    }
    return by_rank;
}

std::variant<Connections, Failure> join(const std::string& name, const Arrival& own) {
    using namespace std::chrono_literals;
    const Deadline until = deadline();
    Descriptor socket = connect_to(name, until);
    Verdict verdict;
    // A second more: rank 0 says when its time was over.
    if (!socket.is_open() || !send_all(socket, &own, sizeof(own), until) ||
        !receive_all(socket, &verdict, sizeof(verdict), until + 1s)) {
        return Failure{ncclSystemError, not_all_came(own.rank, own.ranks)};
    }
    if (verdict.result != ncclSuccess) {
        return Failure{verdict.result, verdict.message.data()};
    }
    Connections connections;
    connections.push_back(std::move(socket));
    return connections;
}

}  // namespace

ncclUniqueId new_unique_id() {
    std::random_device random;
    std::array<char, 64> name{};
    std::snprintf(name.data(), name.size(), "emulated-nccl-%08x%08x%08x", random(), random(),
                  random());
    ncclUniqueId id{};
    std::memcpy(id.internal, name.data(), std::strlen(name.data()));
    const std::lock_guard lock(listening());
    listeners()[name.data()] = listen_at(name.data());
    return id;
}

std::variant<Connections, Failure> meet(const ncclUniqueId& id, int rank, int ranks, int device) {
    const Arrival own = arrival_of(rank, ranks, device);
    if (rank != 0) {
        return join(name_of(id), own);
    }
    const Descriptor listener = take_listener(name_of(id));
    if (!listener.is_open()) {
        return Failure{ncclInvalidArgument,
                       "rank 0 comes twice, or from another process than the unique id"};
    }
    return gather(listener, own);
}

}  // namespace bucketwise::emulated
