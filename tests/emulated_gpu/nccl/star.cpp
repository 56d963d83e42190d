#include "tests/emulated_gpu/nccl/star.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <string>
#include <utility>

#include "tests/emulated_gpu/completion.h"
#include "tests/emulated_gpu/nccl/reduction.h"

namespace bucketwise::emulated {

// Precedes every payload.
struct Header {
    Collective collective;
    std::uint64_t payload_bytes = 0;
    // From rank 0, in place of a result.
    ncclResult_t failure = ncclSuccess;
    std::array<char, 240> message{};
};

// One message on its way, in pieces.
class Transfer {
  public:
    Header header;
    std::vector<std::byte> payload;

    // False when the other end is gone.
    bool send_some_to(const Descriptor& socket) {
        const auto sent = done_ < sizeof(header)
                              ? send_some(socket, header_bytes() + done_, sizeof(header) - done_)
                              : send_some(socket, payload.data() + payload_done(), payload_left());
        done_ += sent.value_or(0);
        return sent.has_value();
    }

    bool receive_some_from(const Descriptor& socket) {
        const auto received =
            done_ < sizeof(header)
                ? receive_some(socket, header_bytes() + done_, sizeof(header) - done_)
                : receive_some(socket, payload.data() + payload_done(), payload_left());
        done_ += received.value_or(0);
        if (has_header() && payload.size() != header.payload_bytes) {
            payload.resize(header.payload_bytes);
        }
        return received.has_value();
    }

    [[nodiscard]] bool has_header() const { return done_ >= sizeof(header); }
    [[nodiscard]] bool is_done() const { return done_ == sizeof(header) + header.payload_bytes; }

  private:
    char* header_bytes() { return reinterpret_cast<char*>(&header); }
    [[nodiscard]] std::size_t payload_done() const { return done_ - sizeof(header); }
    [[nodiscard]] std::size_t payload_left() const { return header.payload_bytes - payload_done(); }

    std::size_t done_ = 0;
};

namespace {

std::string described(const Collective& collective) {
    constexpr std::array names{"all-reduce", "all-gather", "reduce-scatter", "broadcast"};
    return std::string(names.at(static_cast<std::size_t>(collective.kind))) + " " +
           std::to_string(collective.sequence) + " of " + std::to_string(collective.bytes) +
           " bytes, type " + std::to_string(collective.type) + ", operation " +
           std::to_string(collective.operation) + ", root " + std::to_string(collective.root);
}

Failure gone(int rank) {
    return {ncclRemoteError, "connection closed by rank " + std::to_string(rank)};
}

}  // namespace

struct Star::Peer {
    int rank = 0;
    const Descriptor* socket = nullptr;
    Transfer transfer;
    bool gone = false;
    bool ready = false;  // may go on

    [[nodiscard]] bool is_done() const { return gone || transfer.is_done(); }
};

Star::Star(int rank, Connections connections)
    : rank_(rank),
      connections_(std::move(connections)),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

std::optional<Failure> Star::run(const Collective& collective, std::vector<std::byte>& data) {
    return rank_ == 0 ? run_centre(collective, data) : run_ray(collective, data);
}

void Star::interrupt() {
    interrupted_.store(1);
    wake_all(interrupted_);
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(wake_.number(), &one, sizeof(one));
}

bool Star::is_interrupted() const {
    return interrupted_.load() != 0;
}

void Star::wait_until_interrupted() const {
    while (!is_interrupted()) {
        sleep_while(interrupted_, 0);
    }
}

void Star::close() {
    connections_.clear();
    wake_.close();
}

bool Star::wait_for(Peers& peers, short events) {
    std::vector<pollfd> waited{{wake_.number(), POLLIN, 0}};
    for (const Peer& peer : peers) {
        waited.push_back({peer.is_done() ? -1 : peer.socket->number(), events, 0});
    }
    ::poll(waited.data(), waited.size(), -1);
    for (std::size_t i = 0; i < peers.size(); ++i) {
        peers[i].ready = waited[i + 1].revents != 0;
    }
    return !is_interrupted();
}

std::optional<Failure> Star::run_centre(const Collective& collective,
                                        std::vector<std::byte>& data) {
    Peers peers;
    for (std::size_t rank = 1; rank < connections_.size(); ++rank) {
        peers.push_back({static_cast<int>(rank), &connections_[rank], {}, false, false});
    }
    if (auto failure = gather(collective, peers); failure || is_interrupted()) {
        if (failure) {
            announce(collective, *failure);
        }
        return failure;
    }
    if (collective.reduces()) {
        std::vector<std::vector<std::byte>> contributions{std::move(data)};
        for (Peer& peer : peers) {
            contributions.push_back(std::move(peer.transfer.payload));
        }
        reduce(contributions, collective.type, collective.operation);
        data = std::move(contributions[0]);
    } else if (collective.kind == Collective::Kind::all_gather) {
        for (const Peer& peer : peers) {
            const std::vector<std::byte>& own = peer.transfer.payload;
            data.insert(data.end(), own.begin(), own.end());
        }
    } else if (collective.root > 0) {
        data = std::move(peers[static_cast<std::size_t>(collective.root) - 1].transfer.payload);
    }
    for (Peer& peer : peers) {
        peer.transfer = {};
        peer.transfer.header.collective = collective;
    }
    auto failure = scatter(peers, data);
    if (failure) {
        announce(collective, *failure);  // the others hear of it in their next collective
    }
    return failure;
}

std::optional<Failure> Star::gather(const Collective& collective, Peers& peers) {
    const auto done = [](const Peer& peer) { return peer.is_done(); };
    while (!std::all_of(peers.begin(), peers.end(), done)) {
        if (!wait_for(peers, POLLIN)) {
            return std::nullopt;
        }
        for (Peer& peer : peers) {
            if (!peer.ready) {
                continue;
            }
            if (!peer.transfer.receive_some_from(*peer.socket)) {
                return gone(peer.rank);
            }
            if (peer.transfer.has_header() && peer.transfer.header.collective != collective) {
                return Failure{ncclInvalidUsage,
                               "mismatch: rank " + std::to_string(peer.rank) + " calls " +
                                   described(peer.transfer.header.collective) +
                                   " where rank 0 calls " + described(collective)};
            }
        }
    }
    return std::nullopt;
}

std::optional<Failure> Star::scatter(Peers& peers, const std::vector<std::byte>& result) {
    std::optional<Failure> failure;
    for (Peer& peer : peers) {
        peer.transfer.header.payload_bytes = result.size();
        peer.transfer.payload = result;
    }
    const auto done = [](const Peer& peer) { return peer.is_done(); };
    while (!std::all_of(peers.begin(), peers.end(), done)) {
        if (!wait_for(peers, POLLOUT)) {
            return failure;
        }
        for (Peer& peer : peers) {
            if (peer.ready && !peer.transfer.send_some_to(*peer.socket)) {
                peer.gone = true;
                failure = gone(peer.rank);
            }
        }
    }
    return failure;
}

// Few bytes to who has read all before: they fit into the socket.
void Star::announce(const Collective& collective, const Failure& failure) {
    Header header;
    header.collective = collective;
    header.failure = failure.result;
    std::snprintf(header.message.data(), header.message.size(), "%s", failure.message.c_str());
    for (const Descriptor& socket : connections_) {
        if (socket.is_open()) {
            send_some(socket, &header, sizeof(header));
        }
    }
}

std::optional<Failure> Star::run_ray(const Collective& collective, std::vector<std::byte>& data) {
    Peers centre(1);
    Peer& peer = centre.front();
    peer.socket = &connections_.front();
    peer.transfer.header.collective = collective;
    if (collective.is_sent_by(rank_)) {
        peer.transfer.header.payload_bytes = data.size();
        peer.transfer.payload = data;
    }
    // Rank 0 answers before it has all only when something is wrong, and may then read no more.
    const auto answered = [&] {
        pollfd readable{peer.socket->number(), POLLIN, 0};
        return ::poll(&readable, 1, 0) > 0;
    };
    while (!peer.is_done() && !answered()) {
        if (!wait_for(centre, POLLIN | POLLOUT)) {
            return std::nullopt;
        }
        peer.gone = !peer.transfer.send_some_to(*peer.socket);
    }
    peer.transfer = {};
    peer.gone = false;
    while (!peer.is_done()) {
        if (!wait_for(centre, POLLIN)) {
            return std::nullopt;
        }
        if (!peer.transfer.receive_some_from(*peer.socket)) {
            return gone(0);
        }
    }
    const Header& header = peer.transfer.header;
    if (header.failure != ncclSuccess) {
        return Failure{header.failure, header.message.data()};
    }
    data = std::move(peer.transfer.payload);
    return std::nullopt;
}

}  // namespace bucketwise::emulated
