// Collectives over the ranks of one job: what the replay of a step needs from a backend.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <vector>

#include "sim/base/dtype.h"
#include "sim/base/interface.h"
#include "sim/base/names.h"
#include "sim/base/units.h"
#include "sim/link/network/algorithm.h"

namespace bucketwise {

// Another rank did not answer, or the connection to it broke. The rank that reports it is seldom
// the one to blame, so whoever gathers failures looks at other kinds first.
class PeerFailure : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

// The code that carries out a collective.
enum class AllReduceImplementation : std::uint8_t {
    library,  // the backend library's own
    ring,     // ours, over its point-to-point messages
    direct    // ours, over its point-to-point messages
};

template <>
inline constexpr auto names_of<AllReduceImplementation> = names("library", "ring", "direct");

// Not thread-safe: one thread at a time. Every rank calls the same collectives in the same order.
// Each call blocks until this rank's part is done, and throws PeerFailure when another rank does
// not answer within the deadline or is gone.
class Communicator : public Interface {
  public:
    [[nodiscard]] virtual int rank() const = 0;
    [[nodiscard]] virtual int ranks() const = 0;

    // data[i] becomes the sum over all ranks, for i < elements, in place. Sums of 16-bit types are
    // rounded to the type after each addition. elements >= 0.
    virtual void all_reduce_sum(void* data, std::int64_t elements, DType dtype) = 0;

    // `data` holds one part of `elements` for each rank, one after the other. This rank's part
    // becomes the sum of that part over all ranks, in place, rounded as in an all-reduce; the other
    // parts are undefined afterwards. elements >= 0.
    virtual void reduce_scatter_sum(void* data, std::int64_t elements, DType dtype) = 0;

    // Byte i of rank r's `own` becomes all[r * size + i], on every rank. `all` holds ranks() x size
    // bytes; `own` lies outside of it, or is its place within it.
    virtual void all_gather(const void* own, void* all, Bytes size) = 0;

    // data of rank 0 is copied to all others.
    virtual void broadcast_from_first(void* data, Bytes size) = 0;
};

// One collective on this rank's memory. An all-gather brings `own` and fills `all`; every other
// kind works in place on `own`, which holds all ranks' parts in a reduce-scatter.
struct RankExchange {
    CollectiveKind kind = CollectiveKind::all_reduce;
    std::byte* own = nullptr;
    std::byte* all = nullptr;
    Bytes size;  // of one rank's part where the kind has parts, otherwise of everything
    DType dtype = DType::float32;
    bool averages = false;  // the sum is divided by the number of ranks
    bool operator==(const RankExchange&) const = default;

    [[nodiscard]] std::int64_t elements() const { return size.count / element_size(dtype).count; }
};

// Sums only: a Communicator does not average.
inline void carry(Communicator& communicator, const RankExchange& exchange) {
    switch (exchange.kind) {
        case CollectiveKind::all_gather:
            return communicator.all_gather(exchange.own, exchange.all, exchange.size);
        case CollectiveKind::reduce_scatter:
            return communicator.reduce_scatter_sum(exchange.own, exchange.elements(),
                                                   exchange.dtype);
        case CollectiveKind::broadcast:
            return communicator.broadcast_from_first(exchange.own, exchange.size);
        case CollectiveKind::all_reduce:
            return communicator.all_reduce_sum(exchange.own, exchange.elements(), exchange.dtype);
    }
}

// Not thread-safe; collective, and throws PeerFailure, like Communicator.
class ControlGroup : public Interface {
  public:
    [[nodiscard]] virtual int rank() const = 0;
    [[nodiscard]] virtual int ranks() const = 0;

    // Returns once every rank has called it.
    virtual void barrier() = 0;

    // The values of rank 0, on every rank. The same number of values on every rank.
    virtual void broadcast_from_first(std::span<std::int64_t> values) = 0;

    // On rank 0: the values of all ranks, rank by rank, ranks() x values.size() of them; elsewhere
    // empty. The same number of values on every rank.
    virtual std::vector<double> gather_to_first(std::span<const double> values) = 0;
};

}  // namespace bucketwise
