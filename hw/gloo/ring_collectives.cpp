#include "hw/gloo/gloo_collectives.h"

namespace bucketwise {
namespace {

using gloo::transport::UnboundBuffer;

// One all-reduce, or half of it. Chunk c starts at rank c, goes round once while every rank adds
// its part, ends complete at rank c-1, and goes round again to replace everybody's own. With an
// `offset` of 1 chunk c starts at rank c+1, so that it ends at rank c.
class Ring {
  public:
    Ring(const GlooGroup& group, void* data, std::int64_t elements, std::int64_t element, bool half)
        : rank_(group.rank()),
          ranks_(group.ranks()),
          offset_(half ? 1 : 0),
          elements_(elements),
          element_(element),
          deadline_(group.deadline()),
          data_(static_cast<char*>(data)),
          data_buffer_(group.buffer(data_, elements * element_)) {}

    // Before reduce_scatter().
    void prepare_to_add(const GlooGroup& group, Scratch& scratch, ElementSum add) {
        add_ = add;
        received_size_ = chunk_of(elements_, ranks_, 0).elements * element_;
        received_ = scratch.at_least(2 * received_size_);
        received_buffer_ = group.buffer(received_, 2 * received_size_);
    }

    // In step s a rank sends chunk rank-s and receives chunk rank-s-1. The next chunk is asked for
    // before the current one is added, so that it can arrive meanwhile.
    void reduce_scatter() {
        receive_to_add(0);
        for (int step = 0; step < ranks_ - 1; ++step) {
            const bool sent = send(chunk(rank_ - step), Slot::ring_reduce_scatter);
            if (step + 1 < ranks_ - 1) {
                receive_to_add(step + 1);
            }
            wait_and_add(step);
            wait_for_send(sent);
        }
    }

    // In step s a rank sends chunk rank+1-s and receives chunk rank-s, which is what it sends next.
    void all_gather() {
        for (int step = 0; step < ranks_ - 1; ++step) {
            receive_in_place(chunk(rank_ - step));
        }
        for (int step = 0; step < ranks_ - 1; ++step) {
            const bool sent = send(chunk(rank_ + 1 - step), Slot::ring_all_gather);
            if (chunk(rank_ - step).elements > 0) {
                data_buffer_->waitRecv(deadline_.left());
            }
            wait_for_send(sent);
        }
    }

  private:
    [[nodiscard]] int next() const { return (rank_ + 1) % ranks_; }
    [[nodiscard]] int previous() const { return (rank_ + ranks_ - 1) % ranks_; }

    // The chunk of number `index` modulo ranks, for index >= -ranks, but for the offset.
    [[nodiscard]] MessageChunk chunk(int index) const {
        return chunk_of(elements_, ranks_, (index - offset_ + 2 * ranks_) % ranks_);
    }

    [[nodiscard]] std::size_t size_of(std::int64_t elements) const {
        return static_cast<std::size_t>(elements * element_);
    }

    // Every other step receives into the same half.
    [[nodiscard]] std::int64_t half_of(int step) const { return step % 2 * received_size_; }

    // Chunks without elements are not sent. Both sides know which those are.
    bool send(const MessageChunk& chunk, std::uint64_t slot) {
        if (chunk.elements > 0) {
            data_buffer_->send(next(), slot, size_of(chunk.first), size_of(chunk.elements));
        }
        return chunk.elements > 0;
    }

    void wait_for_send(bool sent) {
        if (sent) {
            data_buffer_->waitSend(deadline_.left());
        }
    }

    void receive_in_place(const MessageChunk& chunk) {
        if (chunk.elements > 0) {
            data_buffer_->recv(previous(), Slot::ring_all_gather, size_of(chunk.first),
                               size_of(chunk.elements));
        }
    }

    void receive_to_add(int step) {
        const MessageChunk arriving = chunk(rank_ - step - 1);
        if (arriving.elements > 0) {
            received_buffer_->recv(previous(), Slot::ring_reduce_scatter,
                                   static_cast<std::size_t>(half_of(step)),
                                   size_of(arriving.elements));
        }
    }

    void wait_and_add(int step) {
        const MessageChunk arrived = chunk(rank_ - step - 1);
        if (arrived.elements > 0) {
            received_buffer_->waitRecv(deadline_.left());
            add_(data_ + arrived.first * element_, received_ + half_of(step), arrived.elements);
        }
    }

    int rank_;
    int ranks_;
    int offset_;
    std::int64_t elements_;
    std::int64_t element_;  // bytes
    ElementSum add_ = nullptr;
    CollectiveDeadline deadline_;
    char* data_;
    std::int64_t received_size_ = 0;  // of one half: the largest chunk
    char* received_ = nullptr;
    std::unique_ptr<UnboundBuffer> data_buffer_;
    std::unique_ptr<UnboundBuffer> received_buffer_;
};

}  // namespace

const GlooCollectives ring_collectives = ByHalves<Ring>::collectives;

}  // namespace bucketwise
