// The ranks of a job connected with each other, as the collectives use them.
#pragma once

#include <gloo/broadcast.h>
#include <gloo/context.h>
#include <gloo/transport/unbound_buffer.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>

#include "hw/gloo/meeting/peer_failure.h"

namespace bucketwise {

// One rank's end of it. Not thread-safe.
class GlooGroup {
  public:
    // `context` is connected to all others; null if there is only one rank.
    GlooGroup(std::shared_ptr<gloo::Context> context, std::chrono::milliseconds deadline)
        : context_(std::move(context)), deadline_(deadline) {}

    [[nodiscard]] int rank() const { return context_ ? context_->rank : 0; }
    [[nodiscard]] int ranks() const { return context_ ? context_->size : 1; }
    [[nodiscard]] std::chrono::milliseconds deadline() const { return deadline_; }
    [[nodiscard]] const std::shared_ptr<gloo::Context>& context() const { return context_; }

    // Runs one collective's part on this rank. When it fails, its messages are left half-sent: the
    // connections are closed, so that the others need not wait for their deadline, and the next
    // call fails at once. The buffers that `run` uses are the caller's: they must outlive the
    // connections, or Gloo's thread could not put away what still arrives and would spin.
    template <typename Collective>
    void collective(const char* name, const Collective& run) {
        const std::string doing = std::string(name) + " on rank " + std::to_string(rank()) +
                                  " of " + std::to_string(ranks());
        if (failed_) {
            throw PeerFailure(doing + ": an earlier collective failed");
        }
        failed_ = true;  // until it turns out otherwise
        try {
            with_peer_failures(doing, run);
            failed_ = false;
        } catch (...) {
            close();
            throw;
        }
    }

    // The same for a collective of Gloo, with its options except the timeout.
    template <typename Options, typename Collective>
    void collective(const char* name, Options& options, const Collective& run) {
        options.setTimeout(deadline_);
        collective(name, [&] { run(options); });
    }
    // Rank 0's values, on every rank.
    template <typename T>
    void broadcast_from_first(T* values, std::int64_t count) {
        if (ranks() > 1 && count > 0) {
            gloo::BroadcastOptions options(context_);
            options.setOutput(values, static_cast<std::size_t>(count));
            options.setRoot(0);
            collective("broadcast", options, gloo::broadcast);
        }
    }

    [[nodiscard]] auto buffer(void* data, std::int64_t size) const {
        return context_->createUnboundBuffer(data, static_cast<std::size_t>(size));
    }

  private:
    void close() noexcept {
        try {
            if (context_) {
                context_->closeConnections();
            }
        } catch (const std::exception&) {
            // There is a failure to report already.
        }
    }

    std::shared_ptr<gloo::Context> context_;
    std::chrono::milliseconds deadline_;
    bool failed_ = false;
};

// The end of one collective's time. Waits of Gloo take what is left of it.
class CollectiveDeadline {
  public:
    explicit CollectiveDeadline(std::chrono::milliseconds limit)
        : end_(std::chrono::steady_clock::now() + limit) {}

    // At least 1 ms: Gloo takes 0 and -1 for something else.
    [[nodiscard]] std::chrono::milliseconds left() const {
        const auto left =
            std::chrono::ceil<std::chrono::milliseconds>(end_ - std::chrono::steady_clock::now());
        return std::max(left, std::chrono::milliseconds{1});
    }

  private:
    std::chrono::steady_clock::time_point end_;
};

// Slots distinguish kinds of messages between the same two ranks. Messages of one kind arrive in
// the order of sending. The upper 8 bits are Gloo's to name its own collectives, 1 to 8
// (gloo/types.h).
struct Slot {
    enum : std::uint64_t {
        ring_reduce_scatter = 0x42ULL << 56,
        ring_all_gather = 0x43ULL << 56,
        direct_reduce_scatter = 0x44ULL << 56,
        direct_all_gather = 0x45ULL << 56
    };
};

}  // namespace bucketwise
