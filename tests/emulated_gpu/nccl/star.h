// One collective at a time over sockets: everybody sends to rank 0, which combines and sends back.
#pragma once

#include <nccl.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "tests/emulated_gpu/nccl/meeting.h"

namespace bucketwise::emulated {

// Ranks that do not agree on all of it call different collectives.
struct Collective {
    enum class Kind : std::uint32_t { all_reduce, all_gather, reduce_scatter, broadcast };

    std::uint64_t sequence = 0;
    std::uint64_t bytes = 0;  // that each rank brings, or the root does
    Kind kind = Kind::all_reduce;
    ncclDataType_t type = ncclFloat32;
    ncclRedOp_t operation = ncclSum;
    int root = 0;

    bool operator==(const Collective&) const = default;

    [[nodiscard]] bool is_sent_by(int rank) const {
        return kind != Kind::broadcast || root == rank;
    }
    [[nodiscard]] bool reduces() const {
        return kind == Kind::all_reduce || kind == Kind::reduce_scatter;
    }
    // Each rank's result.
    [[nodiscard]] std::uint64_t result_bytes(int ranks) const {
        const auto count = static_cast<std::uint64_t>(ranks);
        return kind == Kind::all_gather       ? bytes * count
               : kind == Kind::reduce_scatter ? bytes / count
                                              : bytes;
    }
};

class Star {
  public:
    Star(int rank, Connections connections);

    // Replaces `data` by the result. When it fails, the connections are of no use any more. Returns
    // early, with neither result nor failure, once interrupted.
    std::optional<Failure> run(const Collective& collective, std::vector<std::byte>& data);

    // From any thread, for good.
    void interrupt();
    [[nodiscard]] bool is_interrupted() const;
    void wait_until_interrupted() const;

    // Not while a collective runs.
    void close();

  private:
    struct Peer;
    using Peers = std::vector<Peer>;

    std::optional<Failure> run_centre(const Collective& collective, std::vector<std::byte>& data);
    std::optional<Failure> run_ray(const Collective& collective, std::vector<std::byte>& data);
    std::optional<Failure> gather(const Collective& collective, Peers& peers);
    std::optional<Failure> scatter(Peers& peers, const std::vector<std::byte>& result);
    void announce(const Collective& collective, const Failure& failure);
    // Until one of the peers that are not done may go on; false when interrupted.
    bool wait_for(Peers& peers, short events);

    int rank_;
    Connections connections_;
    Descriptor wake_;
    std::atomic<std::uint32_t> interrupted_{0};
};

}  // namespace bucketwise::emulated
