// Every tensor of a rank: where it lies, the two sides of each copy, and the memory that each
// collective moves.
//
// Gradients that are all-reduced lie in buckets, or beside them. A rank of a sharded step has its
// shards, whole parameters as gathered last, whole gradients, and its own parts of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "hw/compute/elements.h"
#include "hw/compute/gradient_buffers.h"
#include "hw/compute/sharded_layout.h"
#include "hw/compute/tensor_memory.h"
#include "hw/rank/communicator.h"
#include "hw/rank/rank_place.h"
#include "hw/rank/replayed_step.h"
#include "hw/rank/statistics_messages.h"
#include "sim/base/dtype.h"
#include "sim/plan/plan.h"
#include "sim/program/program.h"
#include "sim/scenario/scenario.h"
#include "sim/sharding/shard_plan.h"
#include "sim/workload/workload.h"

namespace bucketwise {

// The sides of a copy: tensors, and their places in what they are collected in.
struct Transfer {
    std::vector<TensorPlace> tensors = {};
    PackDirection direction = PackDirection::into_place;
    DType tensor_dtype = DType::float32;
    DType place_dtype = DType::float32;
    bool is_raw = false;  // numel counts bytes

    [[nodiscard]] bool is_in() const { return direction == PackDirection::into_place; }
    [[nodiscard]] DType to_dtype() const { return is_in() ? place_dtype : tensor_dtype; }
    [[nodiscard]] DType from_dtype() const { return is_in() ? tensor_dtype : place_dtype; }
    [[nodiscard]] std::byte* to(const TensorPlace& one) const {
        return is_in() ? one.place : one.tensor;
    }
    [[nodiscard]] const std::byte* from(const TensorPlace& one) const {
        return is_in() ? one.tensor : one.place;
    }
};

// Blocks of memory whose sizes change: one after the other, or all in one place.
enum class BlockPlacing : std::uint8_t { apart, together };

class MemoryBlocks {
  public:
    // Throws std::bad_alloc. The old contents are lost.
    void arrange(const std::vector<Bytes>& sizes, TensorSource& source,
                 BlockPlacing placing = BlockPlacing::apart);
    [[nodiscard]] std::byte* at(std::int32_t block) const {
        return memory_.at(offsets_[static_cast<std::size_t>(block)]);
    }
    [[nodiscard]] const TensorMemory& all() const { return memory_; }

  private:
    TensorMemory memory_;
    std::vector<std::int64_t> offsets_;
};

// Whether a rank of a scenario that shards adds gradients up as backward leaves them.
bool accumulates_unreduced(const Scenario& scenario);

// The parameters that are gathered or reduced together.
struct ShardMove {
    ShardedLayout layout;          // among the ranks that share parameters
    ShardedLayout fewer = {};      // among the fewer that backward gathers among, if there are
    DType dtype = DType::float32;  // of the shards
    DType gathered_dtype = DType::float32;
    DType reduced_dtype = DType::float32;
};

class RankMemory {
  public:
    // `workload` is the scenario's. `sync` decides where gradients live that are not sharded: every
    // later step synchronises in that way, or not at all. `source` is kept by reference. Throws
    // std::bad_alloc.
    RankMemory(const Scenario& scenario, const Workload& workload, const SyncSettings& sync,
               const RankPlace& place, TensorSource& source);

    // Lays tensors out for the step. Whether any lies elsewhere than before, its contents lost.
    bool arrange(const ReplayedStep& step);
    // Room for this, and for the map of unused parameters.
    void reserve_statistics(std::int64_t bytes);

    [[nodiscard]] bool is_sharded() const { return !all_.parameters.empty(); }
    [[nodiscard]] const RankPlace& place() const { return place_; }
    // Sharded gradients have the dtypes of their wait for reduction.
    [[nodiscard]] const Workload& workload() const { return workload_; }
    [[nodiscard]] const GradientBuffers& gradients() const { return gradients_; }
    // Whether the optimizer updates the rank's own parts of parameters alone.
    [[nodiscard]] bool updates_parts() const { return own_.has_value(); }
    // The gradients that the optimizer reads: such parts, in the parameters' dtypes, or all.
    [[nodiscard]] const std::vector<Gradient>& updated() const {
        return updates_parts() ? own_gradients_ : workload_.gradients;
    }
    [[nodiscard]] const GradientBuffers& updated_buffers() const {
        return updates_parts() ? *own_ : gradients_;
    }

    // The part of a gradient that is not sharded where a rank finds the mean after the step.
    struct Reduced {
        const std::byte* data = nullptr;
        DType dtype = DType::float32;
        std::int64_t first = 0;
        std::int64_t numel = 0;
    };
    [[nodiscard]] Reduced reduced_part(std::int32_t index) const;
    // Whether that is all of it, where backward wrote it.
    [[nodiscard]] bool reduces_in_place() const {
        return !framework_.adds_into_bucket && framework_.copies != StreamCopies::share;
    }
    [[nodiscard]] const BucketPlan& plan() const { return plan_; }

    // A sharded rank's parameters, by their index; their dtypes; where they lie; and those of a
    // move.
    [[nodiscard]] const std::vector<ShardedParameter>& parameters() const {
        return all_.parameters;
    }
    [[nodiscard]] const ShardGroup& group_of(std::int32_t parameter) const {
        return shards_of_.groups[shards_of_.group_of[static_cast<std::size_t>(parameter)]];
    }
    [[nodiscard]] std::byte* shard(std::int32_t parameter) const { return shards_.at(parameter); }
    [[nodiscard]] std::byte* unsharded(std::int32_t parameter) const {
        return unsharded_.at(parameter);
    }
    [[nodiscard]] const std::vector<ShardedParameter>& moved(std::int32_t move) const {
        return moves_[static_cast<std::size_t>(move)].layout.parameters;
    }

    // Everything that reduce-scatters read.
    [[nodiscard]] const TensorMemory& reduced() const { return reduced_.all(); }

    // An int32 for each parameter, as float32, and then BatchNorm's statistics.
    [[nodiscard]] std::byte* unused_map() const { return exchanged_.at(0); }
    [[nodiscard]] Bytes unused_map_size() const {
        return std::ssize(workload_.gradients) * element_size(DType::float32);
    }
    [[nodiscard]] std::byte* statistics() const { return exchanged_.at(statistics_offset()); }

    [[nodiscard]] Transfer transfer(CopyRoute route, std::int32_t subject) const;
    [[nodiscard]] RankExchange exchange(const Program& program, std::int32_t collective,
                                        const StatisticsMessages& statistics) const;

  private:
    [[nodiscard]] bool arrange_buckets(const BucketPlan& plan);
    void arrange_moves(const ReplayedStep& step);
    [[nodiscard]] std::int64_t statistics_offset() const;
    [[nodiscard]] const Gradient& gradient(std::int32_t index) const {
        return workload_.gradients[static_cast<std::size_t>(index)];
    }
    [[nodiscard]] const Bucket& bucket(std::int32_t index) const {
        return plan_.buckets[static_cast<std::size_t>(index)];
    }
    [[nodiscard]] const ShardMove& move(std::int32_t index) const {
        return moves_[static_cast<std::size_t>(index)];
    }
    // The dtype of a bucket's memory.
    [[nodiscard]] DType dtype_of(const Bucket& bucket) const {
        return framework_.reduced_as.value_or(bucket.dtype);
    }
    [[nodiscard]] Transfer of_gradients(CopyRoute route, std::int32_t subject) const;
    [[nodiscard]] Transfer of_share(const Bucket& bucket) const;
    [[nodiscard]] Transfer of_bucket(CopyRoute route, std::int32_t subject) const;
    [[nodiscard]] Transfer of_shards(CopyRoute route, std::int32_t index) const;
    [[nodiscard]] TensorPlace side_of_shard(CopyRoute route, std::int32_t index,
                                            const ShardedLayout& layout, const ShardedParameter& of,
                                            std::int64_t rank) const;
    void set_exchange(const ShardsOf& of, Among among, RankExchange& exchange) const;
    [[nodiscard]] std::byte* own_reduced(std::int32_t index) const;

    TensorSource& source_;
    RankPlace place_;
    CommHook hook_;
    FrameworkSync framework_;
    Cut cut_;
    ShardPlan shards_of_;
    Workload workload_;
    ShardedLayout all_;  // every parameter, by its index; empty: nothing is sharded
    // A rank's own parts, by gradient, and where they begin in it.
    std::vector<Gradient> own_gradients_;
    std::vector<std::int64_t> own_first_;
    BucketPlan plan_;
    std::vector<std::vector<std::int32_t>> moved_;  // moves_ were made for these
    std::vector<ShardMove> moves_;

    GradientBuffers gradients_;
    std::optional<GradientBuffers> own_;
    std::vector<TensorMemory> received_;  // by buffer group: what travels
    std::vector<TensorMemory> buffers_;   // and where it is copied to
    TensorMemory exchanged_;
    // By parameter: the rank's part, and all of it.
    MemoryBlocks shards_;
    MemoryBlocks unsharded_;
    // By move: of all ranks, and what micro-steps keep.
    MemoryBlocks gathered_;
    MemoryBlocks reduced_;
    MemoryBlocks kept_;
};

inline std::int64_t numel_of(const Bucket& bucket) {
    return bucket.size.count / element_size(bucket.dtype).count;
}

}  // namespace bucketwise
