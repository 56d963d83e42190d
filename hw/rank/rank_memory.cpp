#include "hw/rank/rank_memory.h"

#include <algorithm>
#include <numeric>

#include "sim/base/invariant.h"
#include "sim/base/transformed.h"
#include "sim/program/framework.h"

namespace bucketwise {
namespace {

// Gradients wait to be reduced in their own dtype or, where several backwards add to them, in the
// dtype of the reduction.
Workload as_written(const Scenario& scenario, Workload workload, const ShardPlan& plan) {
    for (std::size_t i = 0; scenario.sharding && i < workload.gradients.size(); ++i) {
        const ShardGroup& group = plan.groups[plan.group_of[i]];
        workload.gradients[i].dtype =
            accumulates_unreduced(scenario) ? group.reduced_dtype : group.gradient_dtype;
    }
    return workload;
}

ShardedLayout layout_of_all(const Scenario& scenario, const Workload& workload, std::int64_t ranks,
                            Cut cut) {
    std::vector<std::int32_t> all(scenario.sharding ? workload.gradients.size() : 0);
    std::iota(all.begin(), all.end(), 0);
    return layout_of(all, workload.gradients, ranks, cut);
}

std::vector<Gradient> own_parts(const Workload& workload, const ShardedLayout& all,
                                std::int64_t rank) {
    return transformed(all.parameters, [&](const ShardedParameter& of) {
        Gradient part = workload.gradients[static_cast<std::size_t>(of.parameter)];
        part.numel = of.numel_of(rank);
        return part;
    });
}

// The rank's share of all parameters one after the other, as DeepSpeed's flat parameters are
// divided. Megatron-LM divides each bucket, into parts of the same sum.
void take_flat_share(std::int64_t ranks, std::int64_t rank, std::vector<Gradient>& gradients,
                     std::vector<std::int64_t>& first) {
    const std::int64_t share = flat_elements(gradients, ranks) / ranks;
    std::int64_t begin = 0;
    for (Gradient& gradient : gradients) {
        const std::int64_t numel = gradient.numel;
        first.push_back(std::clamp<std::int64_t>(rank * share - begin, 0, numel));
        gradient.numel =
            std::clamp<std::int64_t>((rank + 1) * share - begin, 0, numel) - first.back();
        begin += numel;
    }
}

bool is_one_rank(CopyRoute route) {
    return route == CopyRoute::shard_to_gathered || route == CopyRoute::larger_shard_to_gathered ||
           route == CopyRoute::reduced_to_shard;
}

bool is_among_fewer(CopyRoute route) {
    return route == CopyRoute::larger_shard_to_gathered ||
           route == CopyRoute::gathered_to_unsharded_fewer;
}

}  // namespace

bool accumulates_unreduced(const Scenario& scenario) {
    return scenario.step.accumulation > 1 &&
           scenario.sharding->strategy != ShardedStrategy::zero3 &&
           scenario.sharding->gradient_sync == MicroSteps::last;
}

void MemoryBlocks::arrange(const std::vector<Bytes>& sizes, TensorSource& source,
                           BlockPlacing placing) {
    offsets_.clear();
    std::int64_t end = 0;
    for (const Bytes size : sizes) {
        const std::int64_t offset = placing == BlockPlacing::apart ? end : 0;
        offsets_.push_back(offset);
        const std::int64_t alignment = source.alignment_bytes;
        end = std::max(end, (offset + size.count + alignment - 1) / alignment * alignment);
    }
    if (memory_.size_bytes() < end) {
        memory_ = {};  // never two at once
        memory_ = source.tensor(end);
    }
}

RankMemory::RankMemory(const Scenario& scenario, const Workload& workload, const SyncSettings& sync,
                       const RankPlace& place, TensorSource& source)
    : source_(source),
      place_(place),
      hook_(sync.comm_hook),
      framework_(sync.framework),
      cut_(scenario.sharding && scenario.sharding->strategy == ShardedStrategy::zero3
               ? Cut::anywhere
               : Cut::rows),
      shards_of_(scenario.sharding ? make_shard_plan(workload, *scenario.sharding, place.ranks)
                                   : ShardPlan{}),
      workload_(as_written(scenario, workload, shards_of_)),
      all_(layout_of_all(scenario, workload, place.ranks, cut_)),
      own_gradients_(own_parts(workload, all_, place.rank)),
      plan_(is_sharded() ? BucketPlan{} : make_plan(workload_, sync.policy)),
      gradients_(workload_.gradients, is_sharded() ? without_synchronisation() : sync, source) {
    // Gradients that live in buckets need a place also before the first step, and without buckets.
    gradients_.arrange(plan_);
    for (const BufferGroup& group : workload_.buffer_groups) {
        received_.push_back(source.tensor(group.size.count));
        buffers_.push_back(source.tensor(group.size.count));
    }
    if (!is_sharded() &&
        (framework_.updating_ranks > 1 || framework_.copies == StreamCopies::share)) {
        own_gradients_ = workload_.gradients;
        take_flat_share(place_.all(), place_.of_all(), own_gradients_, own_first_);
    }
    if (!own_gradients_.empty()) {
        own_.emplace(own_gradients_, without_synchronisation(), source);
    }
    if (is_sharded()) {
        shards_.arrange(transformed(all_.parameters,
                                    [&](const ShardedParameter& of) {
                                        return of.part * element_size(group_of(of.parameter).dtype);
                                    }),
                        source);
        unsharded_.arrange(
            transformed(all_.parameters,
                        [&](const ShardedParameter& of) {
                            return of.part * place_.ranks *
                                   element_size(group_of(of.parameter).gathered_dtype);
                        }),
            source);
    }
}

std::int64_t RankMemory::statistics_offset() const {
    const std::int64_t alignment = source_.alignment_bytes;
    return (unused_map_size().count + alignment - 1) / alignment * alignment;
}

void RankMemory::reserve_statistics(std::int64_t bytes) {
    const std::int64_t size = statistics_offset() + bytes;
    if (exchanged_.size_bytes() < size) {
        exchanged_ = {};
        exchanged_ = source_.tensor(size);
    }
}

bool RankMemory::arrange(const ReplayedStep& step) {
    if (!is_sharded()) {
        return arrange_buckets(step.plan);
    }
    if (moved_ == step.moves && shards_of_ == step.shards) {
        return false;
    }
    arrange_moves(step);
    return true;
}

bool RankMemory::arrange_buckets(const BucketPlan& plan) {
    if (plan.buckets.empty() || plan_ == plan) {
        return false;
    }
    plan_ = plan;
    gradients_.arrange(plan_);
    return true;
}

void RankMemory::arrange_moves(const ReplayedStep& step) {
    shards_of_ = step.shards;
    moved_ = step.moves;
    moves_ = transformed(moved_, [&](const std::vector<std::int32_t>& parameters) {
        const ShardGroup& group = group_of(parameters.front());
        ShardMove move{.layout = layout_of(parameters, workload_.gradients, place_.ranks, cut_),
                       .dtype = group.dtype,
                       .gathered_dtype = group.gathered_dtype,
                       .reduced_dtype = group.reduced_dtype};
        if (place_.gathers_among_fewer()) {
            move.fewer = among_fewer(move.layout, place_.ranks, place_.fewer);
        }
        return move;
    });
    const auto sizes = [&](DType ShardMove::*dtype, std::int64_t parts) {
        return transformed(moves_, [&](const ShardMove& move) {
            return parts * move.layout.part * element_size(move.*dtype);
        });
    };
    const auto placing = step.moves_share_buffers ? BlockPlacing::together : BlockPlacing::apart;
    gathered_.arrange(sizes(&ShardMove::gathered_dtype, place_.ranks), source_, placing);
    reduced_.arrange(sizes(&ShardMove::reduced_dtype, place_.ranks), source_, placing);
    kept_.arrange(sizes(&ShardMove::reduced_dtype, place_.replicas > 1 ? 1 : 0), source_);
}

// --- copies ---

Transfer RankMemory::transfer(CopyRoute route, std::int32_t subject) const {
    switch (route) {
        case CopyRoute::received_to_buffers: {
            const auto group = static_cast<std::size_t>(subject);
            return {.tensors = {{.tensor = buffers_[group].at(0),
                                 .place = received_[group].at(0),
                                 .numel = received_[group].size_bytes()}},
                    .direction = PackDirection::out_of_place,
                    .is_raw = true};
        }
        case CopyRoute::gradient_to_bucket:
        case CopyRoute::bucket_to_gradient:
        case CopyRoute::gradients_to_bucket:
        case CopyRoute::gradients_to_wire:
        case CopyRoute::bucket_to_gradients:
        case CopyRoute::wire_to_gradients:
            return of_gradients(route, subject);
        case CopyRoute::bucket_to_wire:
        case CopyRoute::wire_to_bucket:
        case CopyRoute::within_bucket:
        case CopyRoute::within_wire:
        case CopyRoute::bucket_to_host:
            return of_bucket(route, subject);
        case CopyRoute::bucket_to_share:
            return of_share(bucket(subject));
        case CopyRoute::none:
            return {};
        default:
            return of_shards(route, subject);
    }
}

Transfer RankMemory::of_share(const Bucket& bucket) const {
    Transfer transfer{.direction = PackDirection::out_of_place,
                      .tensor_dtype = bucket.dtype,
                      .place_dtype = dtype_of(bucket)};
    for (const std::int32_t index : bucket.gradients) {
        const auto i = static_cast<std::size_t>(index);
        transfer.tensors.push_back(
            {.tensor = own_->gradient(index),
             .place = element(gradients_.place_in_bucket(index), own_first_[i], dtype_of(bucket)),
             .numel = own_gradients_[i].numel});
    }
    return transfer;
}

Transfer RankMemory::of_gradients(CopyRoute route, std::int32_t subject) const {
    const bool is_one =
        route == CopyRoute::gradient_to_bucket || route == CopyRoute::bucket_to_gradient;
    const bool in = route == CopyRoute::gradient_to_bucket ||
                    route == CopyRoute::gradients_to_bucket ||
                    route == CopyRoute::gradients_to_wire;
    const bool on_wire =
        route == CopyRoute::gradients_to_wire || route == CopyRoute::wire_to_gradients;
    const DType dtype = is_one ? gradient(subject).dtype : bucket(subject).dtype;
    Transfer transfer{
        .direction = in ? PackDirection::into_place : PackDirection::out_of_place,
        .tensor_dtype = dtype,
        .place_dtype = on_wire ? wire_dtype(hook_, dtype) : framework_.reduced_as.value_or(dtype)};
    const auto add = [&](std::int32_t index) {
        transfer.tensors.push_back({.tensor = gradients_.gradient(index),
                                    .place = on_wire ? gradients_.compressed_place(index)
                                                     : gradients_.place_in_bucket(index),
                                    .numel = gradient(index).numel});
    };
    if (is_one) {
        add(subject);
    } else {
        std::ranges::for_each(bucket(subject).gradients, add);
    }
    return transfer;
}

// The bucket is the tensor, its wire the place.
Transfer RankMemory::of_bucket(CopyRoute route, std::int32_t subject) const {
    const DType dtype = dtype_of(bucket(subject));
    const DType wire = wire_dtype(hook_, dtype);
    std::byte* full = gradients_.bucket(subject);
    std::byte* narrow = gradients_.compressed(subject);
    const bool on_wire = route == CopyRoute::within_wire;
    const bool on_bucket = route == CopyRoute::within_bucket || route == CopyRoute::bucket_to_host;
    return {.tensors = {{.tensor = on_wire ? narrow : full,
                         .place = on_bucket ? full : narrow,
                         .numel = numel_of(bucket(subject))}},
            .direction = route == CopyRoute::wire_to_bucket ? PackDirection::out_of_place
                                                            : PackDirection::into_place,
            .tensor_dtype = on_wire ? wire : dtype,
            .place_dtype = on_bucket ? dtype : wire};
}

Transfer RankMemory::of_shards(CopyRoute route, std::int32_t index) const {
    const ShardMove& moved = move(index);
    const bool in = route == CopyRoute::shard_to_gathered ||
                    route == CopyRoute::larger_shard_to_gathered ||
                    route == CopyRoute::gradients_to_reduced || route == CopyRoute::kept_to_reduced;
    Transfer transfer{.direction = in ? PackDirection::into_place : PackDirection::out_of_place,
                      .tensor_dtype = moved.reduced_dtype,
                      .place_dtype = moved.reduced_dtype};
    if (route == CopyRoute::kept_to_reduced || route == CopyRoute::reduced_to_kept) {
        transfer.tensors = {
            {.tensor = kept_.at(index), .place = own_reduced(index), .numel = moved.layout.part}};
        return transfer;
    }
    if (route == CopyRoute::gradients_to_reduced) {
        transfer.tensor_dtype = gradient(moved.layout.parameters.front().parameter).dtype;
    } else if (route == CopyRoute::reduced_to_shard) {
        transfer.tensor_dtype = moved.dtype;
    } else {
        transfer.place_dtype = moved.gathered_dtype;
        transfer.tensor_dtype =
            route == CopyRoute::shard_to_gathered ? moved.dtype : moved.gathered_dtype;
    }
    const bool fewer = is_among_fewer(route);
    const ShardedLayout& layout = fewer ? moved.fewer : moved.layout;
    const std::int64_t ranks = fewer ? place_.fewer : place_.ranks;
    const std::int64_t own = place_.rank % ranks;
    for (const ShardedParameter& of : layout.parameters) {
        for (std::int64_t rank = is_one_rank(route) ? own : 0;
             rank < (is_one_rank(route) ? own + 1 : ranks); ++rank) {
            transfer.tensors.push_back(side_of_shard(route, index, layout, of, rank));
        }
    }
    return transfer;
}

TensorPlace RankMemory::side_of_shard(CopyRoute route, std::int32_t index,
                                      const ShardedLayout& layout, const ShardedParameter& of,
                                      std::int64_t rank) const {
    const ShardMove& moved = move(index);
    std::byte* gathered =
        element(gathered_.at(index), layout.place(of, rank), moved.gathered_dtype);
    switch (route) {
        case CopyRoute::shard_to_gathered:
            return {.tensor = shards_.at(of.parameter), .place = gathered, .numel = of.part};
        case CopyRoute::gradients_to_reduced:
            return {
                .tensor = element(gradients_.gradient(of.parameter), of.first_of(rank),
                                  gradient(of.parameter).dtype),
                .place = element(reduced_.at(index), layout.place(of, rank), moved.reduced_dtype),
                .numel = of.numel_of(rank)};
        case CopyRoute::reduced_to_shard:
            return {.tensor = own_->gradient(of.parameter),
                    .place = element(own_reduced(index), of.offset, moved.reduced_dtype),
                    .numel = of.numel_of(rank)};
        default:
            return {.tensor = element(unsharded_.at(of.parameter), of.first_of(rank),
                                      moved.gathered_dtype),
                    .place = gathered,
                    .numel = of.part};
    }
}

std::byte* RankMemory::own_reduced(std::int32_t index) const {
    const ShardMove& moved = move(index);
    return element(reduced_.at(index), place_.rank * moved.layout.part, moved.reduced_dtype);
}

RankMemory::Reduced RankMemory::reduced_part(std::int32_t index) const {
    const Gradient& whole = gradient(index);
    const auto i = static_cast<std::size_t>(index);
    if (framework_.copies == StreamCopies::share) {
        const Gradient& own = own_gradients_[i];
        return {own_->gradient(index), own.dtype, own_first_[i], own.numel};
    }
    if (!framework_.adds_into_bucket) {
        return {gradients_.gradient(index), whole.dtype, 0, whole.numel};
    }
    const auto of = std::ranges::find_if(plan_.buckets, [&](const Bucket& bucket) {
        return std::ranges::find(bucket.gradients, index) != bucket.gradients.end();
    });
    const std::byte* place = gradients_.place_in_bucket(index);
    Reduced reduced{place, dtype_of(*of), 0, whole.numel};
    if (framework_.reduction == CollectiveKind::reduce_scatter) {
        const std::int64_t part = numel_of(*of) / place_.all();
        const auto bucket = static_cast<std::int32_t>(of - plan_.buckets.begin());
        const std::int64_t offset =
            (place - gradients_.bucket(bucket)) / element_size(reduced.dtype).count;
        reduced.first = std::clamp<std::int64_t>(place_.of_all() * part - offset, 0, whole.numel);
        reduced.numel =
            std::clamp<std::int64_t>((place_.of_all() + 1) * part - offset, 0, whole.numel) -
            reduced.first;
        reduced.data += reduced.first * element_size(reduced.dtype).count;
    }
    return reduced;
}

// --- collectives ---

RankExchange RankMemory::exchange(const Program& program, std::int32_t collective,
                                  const StatisticsMessages& statistics) const {
    const Collective& of = program.collectives[static_cast<std::size_t>(collective)];
    RankExchange exchange{.kind = of.kind, .size = of.bytes, .averages = of.averages};
    if (const auto* buffers = std::get_if<BuffersOf>(&of.cargo)) {
        exchange.own = received_[static_cast<std::size_t>(buffers->group)].at(0);
    } else if (std::holds_alternative<UnusedMap>(of.cargo)) {
        exchange.own = unused_map();
    } else if (StatisticsMessages::stand_for(of)) {
        const StatisticsExchange& moved = statistics.of(collective);
        exchange.own = this->statistics() + moved.own_offset;
        exchange.all = this->statistics() + moved.all_offset;
        exchange.size = moved.own_size();
        exchange.dtype = moved.dtype;
    } else if (const auto* gradients = std::get_if<GradientsOf>(&of.cargo)) {
        const Bucket& moved = bucket(gradients->bucket);
        exchange.own = gradients->on_wire
                           ? gradients_.compressed(gradients->bucket)
                           : gradients_.bucket(gradients->bucket) + gradients->from.count;
        exchange.dtype = wire_dtype(hook_, dtype_of(moved));
        exchange.size =
            moved.pieces.empty() ? numel_of(moved) * element_size(exchange.dtype) : of.bytes;
        if (of.kind == CollectiveKind::reduce_scatter) {
            exchange.size.count /= place_.all();
        }
    } else if (const ShardsOf* shards = of.shards()) {
        set_exchange(*shards, of.among.communicator, exchange);
    } else {
        invariant(false, "a collective of a strategy, not of a framework's own rule");
    }
    return exchange;
}

void RankMemory::set_exchange(const ShardsOf& of, Among among, RankExchange& exchange) const {
    const ShardMove& moved = move(of.move);
    if (exchange.kind != CollectiveKind::all_gather) {
        exchange.own = exchange.kind == CollectiveKind::all_reduce ? own_reduced(of.move)
                                                                   : reduced_.at(of.move);
        exchange.dtype = moved.reduced_dtype;
        exchange.size = moved.layout.part * element_size(exchange.dtype);
        return;
    }
    const bool fewer = among == Among::fewer;
    exchange.dtype = moved.gathered_dtype;
    exchange.size = (fewer ? moved.fewer : moved.layout).part * element_size(exchange.dtype);
    exchange.all = gathered_.at(of.move);
    exchange.own =
        exchange.all + (fewer ? place_.rank % place_.fewer : place_.rank) * exchange.size.count;
}

}  // namespace bucketwise
