// The memory of a rank for sharded steps, and every copy between its blocks.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "hw/compute/elements.h"
#include "hw/compute/gradient_layout.h"
#include "hw/rank/communicator.h"
#include "hw/rank/sharded_rank.h"
#include "sim/base/transformed.h"

namespace bucketwise {

enum class BlockPlacing : std::uint8_t { apart, together };

// Blocks of memory whose sizes change: one after the other, or all in one place. Memory: Arena, or
// another device's.
template <typename Memory>
class MemoryBlocks {
  public:
    // Throws std::bad_alloc. The old contents are lost.
    void arrange(const std::vector<Bytes>& sizes, BlockPlacing placing = BlockPlacing::apart) {
        offsets_.clear();
        std::int64_t end = 0;
        for (const Bytes size : sizes) {
            const std::int64_t offset = placing == BlockPlacing::apart ? end : 0;
            offsets_.push_back(offset);
            constexpr std::int64_t alignment = Memory::alignment_bytes;
            end = std::max(end, (offset + size.count + alignment - 1) / alignment * alignment);
        }
        if (memory_.size_bytes() < end) {
            memory_ = Memory();  // never two at once
            memory_ = Memory(end);
        }
    }

    [[nodiscard]] std::byte* at(std::int32_t block) const {
        return memory_.at(offsets_[static_cast<std::size_t>(block)]);
    }
    [[nodiscard]] std::byte* begin() const { return memory_.at(0); }
    [[nodiscard]] std::int64_t size_bytes() const { return memory_.size_bytes(); }

  private:
    Memory memory_;
    std::vector<std::int64_t> offsets_;
};

// The streams of fully_shard. A device without streams runs every copy where it is asked for.
enum class Lane : std::uint8_t {
    compute,
    filling,           // fills what is gathered
    moving,            // all-gathers and reduce-scatters
    between_replicas,  // all-reduces
    placing            // places what collectives brought
};
constexpr std::size_t lane_count = 5;

enum class ShardCopy : std::uint8_t {
    gather_in,
    gather_out,
    fewer_in,  // among the fewer ranks that backward gathers among
    fewer_out,
    reduce_in,
    place
};
constexpr std::size_t shard_copies = 6;

template <typename Memory>
class ShardedRankIn : public ShardedRank {
  protected:
    // Throws std::bad_alloc.
    ShardedRankIn(const Scenario& scenario, const Workload& of_scenario, const ShardPlace& place)
        : ShardedRank(scenario, of_scenario, place),
          gradients_(workload().gradients, without_synchronisation()),
          own_(own_gradients(), without_synchronisation()) {
        std::vector<Bytes> shards;
        std::vector<Bytes> whole;
        for (std::int32_t i = 0; i < static_cast<std::int32_t>(own_gradients().size()); ++i) {
            shards.push_back(shard_size(i));
            whole.push_back(gathered_size(i));
        }
        shards_.arrange(shards);
        unsharded_.arrange(whole);
    }

    void execute(const ShardedCall& call) override {
        switch (call.act) {
            case ShardedAct::forward:
                return kernels().forward(call.subject);
            case ShardedAct::backward:
                return kernels().backward(call.subject, backward_value(call.micro_step),
                                          accumulates(call.micro_step));
            case ShardedAct::gather_in:
            case ShardedAct::reduce_in:
                return copy_in(call, Lane::compute);
            case ShardedAct::gather_out:
                return gather_out(call, Lane::compute);
            case ShardedAct::place:
                return place_reduced(call, Lane::compute);
            case ShardedAct::gather:
            case ShardedAct::reduce:
            case ShardedAct::all_reduce:
                return launch(call);
            case ShardedAct::wait:
                return wait_for(call.subject);
            case ShardedAct::optimizer:
                return optimizer().optimizer();
        }
    }

    // The part of a launch before its collective, and after.
    void before_collective(const ShardedCall& call, Lane lane) {
        if (call.copies_in) {
            copy_in(call, lane);
        }
        if (call.takes_kept) {
            const ShardMove& moved = move(call.move);
            add(own_reduced(call.move), moved.reduced_dtype, kept_.at(call.move),
                moved.reduced_dtype, moved.layout.part, lane);
        }
    }
    [[nodiscard]] static bool continues(const ShardedCall& call) {
        return call.copies_out || call.placing != Placing::none;
    }
    void after_collective(const ShardedCall& call, Lane lane) {
        if (call.copies_out) {
            gather_out(call, lane);
        } else if (call.placing != Placing::none) {
            place_reduced(call, lane);
        }
    }

    [[nodiscard]] Sharers sharers_of(const ShardedCall& call) const {
        return call.act == ShardedAct::all_reduce ? Sharers::replicas
               : gathers_among_fewer(call)        ? Sharers::gathering
                                                  : Sharers::sharing;
    }
    [[nodiscard]] RankExchange exchange_of(const ShardedCall& call) const {
        const ShardMove& moved = move(call.move);
        if (call.act != ShardedAct::gather) {
            const bool all = call.act == ShardedAct::all_reduce;
            return {.kind = all ? CollectiveKind::all_reduce : CollectiveKind::reduce_scatter,
                    .own = all ? own_reduced(call.move) : reduced_.at(call.move),
                    .size = moved.layout.part * element_size(moved.reduced_dtype),
                    .dtype = moved.reduced_dtype};
        }
        const bool fewer = gathers_among_fewer(call);
        const Bytes part =
            (fewer ? moved.fewer : moved.layout).part * element_size(moved.gathered_dtype);
        std::byte* all = gathered_.at(call.move);
        const std::int64_t rank = fewer ? place().rank % place().fewer : place().rank;
        return {.kind = CollectiveKind::all_gather,
                .own = all + rank * part.count,
                .all = all,
                .size = part,
                .dtype = moved.gathered_dtype};
    }

    // Sides of a copy, and where they lie.
    [[nodiscard]] std::vector<TensorPlace> places_of(ShardCopy copy, std::int32_t index) {
        const ShardMove& moved = move(index);
        const bool fewer = copy == ShardCopy::fewer_in || copy == ShardCopy::fewer_out;
        const ShardedLayout& layout = fewer ? moved.fewer : moved.layout;
        const std::int64_t ranks = fewer ? place().fewer : place().ranks;
        const bool own_only =
            copy == ShardCopy::gather_in || copy == ShardCopy::fewer_in || copy == ShardCopy::place;
        std::vector<TensorPlace> places;
        for (const ShardedParameter& of : layout.parameters) {
            for (std::int64_t rank = own_only ? place().rank % ranks : 0;
                 rank < (own_only ? place().rank % ranks + 1 : ranks); ++rank) {
                places.push_back(place_of(copy, index, layout, of, rank));
            }
        }
        return places;
    }

    [[nodiscard]] std::int64_t memory_bytes() const {
        std::int64_t bytes = shards_.size_bytes() + unsharded_.size_bytes() +
                             gathered_.size_bytes() + reduced_.size_bytes() + kept_.size_bytes();
        for (const auto* buffers : {&gradients_, &own_}) {
            for (const Memory* memory : buffers->blocks()) {
                bytes += memory->size_bytes();
            }
        }
        return bytes;
    }

    // By parameter: the rank's part, and all of it.
    MemoryBlocks<Memory> shards_;
    MemoryBlocks<Memory> unsharded_;
    BasicGradientBuffers<Memory> gradients_;
    BasicGradientBuffers<Memory> own_;  // the rank's parts of gradients

  private:
    [[nodiscard]] virtual PlannedKernels& kernels() = 0;
    [[nodiscard]] virtual PlannedKernels& optimizer() = 0;  // of the own parts
    virtual void launch(const ShardedCall& call) = 0;
    virtual void wait_for(std::int32_t collective) = 0;
    virtual void clear(std::byte* data, std::int64_t bytes) = 0;
    virtual void copies_changed() {}  // places_of() other moves
    virtual void pack(ShardCopy copy, std::int32_t move, DType to, DType from, double factor,
                      Lane lane) = 0;
    virtual void copy(std::byte* to, const std::byte* from, DType dtype, std::int64_t numel,
                      Lane lane) = 0;
    virtual void add(std::byte* to, DType to_dtype, const std::byte* from, DType from_dtype,
                     std::int64_t numel, Lane lane) = 0;

    void lay_out() override {
        const auto sizes = [&](DType ShardMove::*dtype, std::int64_t parts) {
            return transformed(moves(), [&](const ShardMove& move) {
                return parts * move.layout.part * element_size(move.*dtype);
            });
        };
        const auto placing = moves_one_by_one() ? BlockPlacing::together : BlockPlacing::apart;
        gathered_.arrange(sizes(&ShardMove::gathered_dtype, place().ranks), placing);
        reduced_.arrange(sizes(&ShardMove::reduced_dtype, place().ranks), placing);
        kept_.arrange(sizes(&ShardMove::reduced_dtype, place().replicas > 1 ? 1 : 0));
        clear(reduced_.begin(), reduced_.size_bytes());  // padding is never written
        copies_changed();
    }

    [[nodiscard]] TensorPlace place_of(ShardCopy copy, std::int32_t index,
                                       const ShardedLayout& layout, const ShardedParameter& of,
                                       std::int64_t rank) {
        const ShardMove& moved = move(index);
        std::byte* gathered =
            element(gathered_.at(index), layout.place(of, rank), moved.gathered_dtype);
        switch (copy) {
            case ShardCopy::gather_in:
                return {.tensor = shards_.at(of.parameter), .place = gathered, .numel = of.part};
            case ShardCopy::reduce_in: {
                const DType dtype =
                    workload().gradients[static_cast<std::size_t>(of.parameter)].dtype;
                return {
                    .tensor = element(gradients_.gradient(of.parameter), of.first_of(rank), dtype),
                    .place =
                        element(reduced_.at(index), layout.place(of, rank), moved.reduced_dtype),
                    .numel = of.numel_of(rank)};
            }
            case ShardCopy::place:
                return {.tensor = own_.gradient(of.parameter),
                        .place = element(own_reduced(index), of.offset, moved.reduced_dtype),
                        .numel = of.numel_of(rank)};
            default:
                return {.tensor = element(unsharded_.at(of.parameter), of.first_of(rank),
                                          moved.gathered_dtype),
                        .place = gathered,
                        .numel = of.part};
        }
    }

    void copy_in(const ShardedCall& call, Lane lane) {
        const ShardMove& moved = move(call.move);
        if (call.act == ShardedAct::reduce || call.act == ShardedAct::reduce_in) {
            const auto first = static_cast<std::size_t>(moved.layout.parameters.front().parameter);
            pack(ShardCopy::reduce_in, call.move, moved.reduced_dtype,
                 workload().gradients[first].dtype, mean_factor(), lane);
        } else if (gathers_among_fewer(call)) {
            pack(ShardCopy::fewer_in, call.move, moved.gathered_dtype, moved.gathered_dtype, 1.0,
                 lane);
        } else {
            pack(ShardCopy::gather_in, call.move, moved.gathered_dtype, moved.dtype, 1.0, lane);
        }
    }

    void gather_out(const ShardedCall& call, Lane lane) {
        const DType dtype = move(call.move).gathered_dtype;
        pack(gathers_among_fewer(call) ? ShardCopy::fewer_out : ShardCopy::gather_out, call.move,
             dtype, dtype, 1.0, lane);
    }

    // PyTorch, too, adds parameter by parameter.
    void place_reduced(const ShardedCall& call, Lane lane) {
        const ShardMove& moved = move(call.move);
        std::byte* own = own_reduced(call.move);
        const DType dtype = moved.reduced_dtype;
        if (call.placing == Placing::keeps && call.micro_step == 0) {
            copy(kept_.at(call.move), own, dtype, moved.layout.part, lane);
        } else if (call.placing == Placing::keeps) {
            add(kept_.at(call.move), dtype, own, dtype, moved.layout.part, lane);
        } else if (call.placing == Placing::adds) {
            for (const ShardedParameter& of : moved.layout.parameters) {
                add(own_.gradient(of.parameter), moved.dtype, element(own, of.offset, dtype), dtype,
                    of.numel_of(place().rank), lane);
            }
        } else {
            pack(ShardCopy::place, call.move, moved.dtype, dtype, 1.0, lane);
        }
    }

    [[nodiscard]] std::byte* own_reduced(std::int32_t index) const {
        const ShardMove& moved = move(index);
        return element(reduced_.at(index), place().rank * moved.layout.part, moved.reduced_dtype);
    }

    // By move: of all ranks, and what micro-steps keep.
    MemoryBlocks<Memory> gathered_;
    MemoryBlocks<Memory> reduced_;
    MemoryBlocks<Memory> kept_;
};

// Copies into what a collective sends, or out of what it brought.
[[nodiscard]] inline PackDirection direction_of(ShardCopy copy) {
    return copy == ShardCopy::gather_in || copy == ShardCopy::fewer_in ||
                   copy == ShardCopy::reduce_in
               ? PackDirection::into_place
               : PackDirection::out_of_place;
}

}  // namespace bucketwise
