#include <vector>

#include "hw/gloo/gloo_collectives.h"

namespace bucketwise {
namespace {

using gloo::transport::UnboundBuffer;

// One all-reduce, or half of it. Peers are taken in the order rank+1, rank+2, ..., so that not all
// ranks send to the same one first.
class Direct {
  public:
    Direct(const GlooGroup& group, void* data, std::int64_t elements, std::int64_t element,
           bool /*half*/)
        : rank_(group.rank()),
          ranks_(group.ranks()),
          elements_(elements),
          element_(element),
          deadline_(group.deadline()),
          data_(static_cast<char*>(data)),
          own_(chunk_of(elements, ranks_, rank_)),
          own_size_(own_.elements * element_),
          data_buffer_(group.buffer(data_, elements * element_)) {}

    // Before reduce_scatter().
    void prepare_to_add(const GlooGroup& group, Scratch& scratch, ElementSum add) {
        add_ = add;
        received_ = scratch.at_least((ranks_ - 1) * own_size_);
        // One each, because a buffer does not say which of several messages has arrived, and what
        // is added in the order of arrival would differ from run to run.
        for (int i = 0; own_size_ > 0 && i < ranks_ - 1; ++i) {
            from_peers_.push_back(group.buffer(received_ + i * own_size_, own_size_));
        }
    }

    void reduce_scatter() {
        for (std::size_t i = 0; i < from_peers_.size(); ++i) {
            from_peers_[i]->recv(peer(static_cast<int>(i)), Slot::direct_reduce_scatter);
        }
        const int sent = for_each_peer_chunk([&](int peer, std::size_t offset, std::size_t size) {
            data_buffer_->send(peer, Slot::direct_reduce_scatter, offset, size);
        });
        for (std::size_t i = 0; i < from_peers_.size(); ++i) {
            from_peers_[i]->waitRecv(deadline_.left());
            add_(data_ + own_.first * element_,
                 received_ + static_cast<std::int64_t>(i) * own_size_, own_.elements);
        }
        wait_for_sends(sent);
    }

    void all_gather() {
        const int arriving =
            for_each_peer_chunk([&](int peer, std::size_t offset, std::size_t size) {
                data_buffer_->recv(peer, Slot::direct_all_gather, offset, size);
            });
        const int sent = own_size_ > 0 ? ranks_ - 1 : 0;
        for (int i = 0; i < sent; ++i) {
            data_buffer_->send(peer(i), Slot::direct_all_gather,
                               static_cast<std::size_t>(own_.first * element_),
                               static_cast<std::size_t>(own_size_));
        }
        for (int i = 0; i < arriving; ++i) {
            data_buffer_->waitRecv(deadline_.left());
        }
        wait_for_sends(sent);
    }

  private:
    [[nodiscard]] int peer(int i) const { return (rank_ + 1 + i) % ranks_; }

    // Calls `act` with the bytes of each other rank's chunk, but for those that have none; returns
    // how many those were.
    template <typename Act>
    int for_each_peer_chunk(const Act& act) {
        int acted = 0;
        for (int i = 0; i < ranks_ - 1; ++i) {
            const MessageChunk chunk = chunk_of(elements_, ranks_, peer(i));
            if (chunk.elements > 0) {
                act(peer(i), static_cast<std::size_t>(chunk.first * element_),
                    static_cast<std::size_t>(chunk.elements * element_));
                ++acted;
            }
        }
        return acted;
    }

    void wait_for_sends(int sent) {
        for (int i = 0; i < sent; ++i) {
            data_buffer_->waitSend(deadline_.left());
        }
    }

    int rank_;
    int ranks_;
    std::int64_t elements_;
    std::int64_t element_;  // bytes
    ElementSum add_ = nullptr;
    CollectiveDeadline deadline_;
    char* data_;
    MessageChunk own_;
    std::int64_t own_size_;     // bytes
    char* received_ = nullptr;  // the own chunk of each peer
    std::unique_ptr<UnboundBuffer> data_buffer_;
    std::vector<std::unique_ptr<UnboundBuffer>> from_peers_;
};

}  // namespace

const GlooCollectives direct_collectives = ByHalves<Direct>::collectives;

}  // namespace bucketwise
