// PyTorch's fully_shard, hook by hook; sim/sharding/sharded_step.h describes the result.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "sim/base/units.h"
#include "sim/link/collective.h"
#include "sim/program/program.h"
#include "sim/sharding/shard_plan.h"
#include "sim/sharding/sharded_input.h"
#include "sim/sharding/sharded_writer.h"

namespace bucketwise {

class FsdpBuilder : public ShardedWriter {
  public:
    FsdpBuilder(const StepInput& input, const ShardingRequest& request, const ShardPlan& plan,
                MicroStepPlace place, ShardedProgram& built)
        : ShardedWriter(input, plan, place, built),
          request_(request),
          groups_(plan.groups.size()) {}

    void micro_step() {
        if (is_first()) {
            for (const ShardGroup& group : plan_.groups) {
                memory_.hold(ShardedTensor::parameters, shard(group, group.dtype));
            }
        } else if (!request_.reshard_after_backward) {
            for (GroupState& group : groups_) {
                group.is_unsharded = true;
            }
        }
        forward();
        backward();
    }

    void optimizer() {
        update_parameters();
        scale_float8_weights();
        for (const ShardGroup& group : plan_.groups) {
            memory_.release(ShardedTensor::sharded_gradients, shard(group, group.dtype));
        }
    }

  private:
    struct GroupState {
        bool is_unsharded = false;
        std::optional<std::int32_t> gather = {};  // its collective, until it is waited for
        bool is_gathering = false;                // also of one rank, without a collective
        Bytes larger_shard;                       // held from forward to backward
        Bytes gradients;                          // left by autograd and not yet reduced
        std::vector<std::size_t> forward_order;   // its places in order_
    };
    // A reduce-scatter with its input still in memory.
    struct Reduction {
        std::size_t group = 0;
        std::optional<std::int32_t> collective = {};
    };

    // --- hooks ---

    void forward() {
        walk(
            Phase::forward, [&](Call call) { pre_forward(call); },
            [&](std::size_t group) { post_forward(group); }, [](std::size_t) {});
        release_copied_out();  // the root's post-forward
    }

    void backward() {
        const auto leave = [&](std::size_t group) {
            if (!plan_.ends_with_backward[group]) {
                post_backward(group);
            }
        };
        walk(
            Phase::backward, [&](Call call) { pre_backward(call->group); }, leave,
            [&](std::size_t gradient) { hold_gradient(gradient); });
        finishing_ = true;
        for (std::size_t group = 0; group < groups_.size(); ++group) {
            if (plan_.ends_with_backward[group] || groups_[group].gradients > Bytes{0}) {
                post_backward(group);
            }
        }
        wait_for_reductions();
        finishing_ = false;
    }

    // set_modules_to_forward_prefetch names the next groups without the root.
    void pre_forward(Call entered) {
        unshard(entered->group);
        wait_for_unshard(entered->group);
        std::int64_t left = plan_.groups[entered->group].is_root() ? 0 : request_.forward_prefetch;
        for (Call call = entered + 1; call != plan_.forward.end() && left > 0; ++call) {
            if (!plan_.groups[call->group].is_root()) {
                unshard(call->group);
                --left;
            }
        }
    }

    void post_forward(std::size_t group) {
        if (plan_.groups[group].is_root() ? request_.reshard_root
                                          : request_.reshard_after_forward) {
            reshard(group);
            keep_larger_shard(group);
        }
        groups_[group].forward_order.push_back(order_.size());
        order_.push_back(group);
    }

    void pre_backward(std::size_t group) {
        unshard(group);
        wait_for_unshard(group);
        std::vector<std::size_t>& places = groups_[group].forward_order;
        if (places.empty()) {
            return;
        }
        const std::size_t place = places.back();
        places.pop_back();
        const std::int64_t ahead = plan_.groups[group].is_root()
                                       ? 1
                                       : std::max<std::int64_t>(request_.backward_prefetch, 1);
        for (std::int64_t back = 1; back <= ahead && back <= static_cast<std::int64_t>(place);
             ++back) {
            unshard(order_[place - static_cast<std::size_t>(back)]);
        }
    }

    // --- all-gathers ---

    // precompute_float8_dynamic_scale_for_fsdp: the largest magnitude of each rank's part of each
    // weight that is gathered in float8, then that of all ranks in one small all-reduce.
    void scale_float8_weights() {
        Bytes read;
        std::int64_t weights = 0;
        for (const ShardGroup& group : plan_.groups) {
            read += group.float8_numel / plan_.ranks * element_size(group.dtype);
            weights += group.float8_weights;
        }
        if (weights == 0) {
            return;
        }
        constexpr std::int64_t directions_of_a_copy = 2;
        add_copy({}, Phase::optimizer, 0, {read.count / directions_of_a_copy},
                 InstructionKind::optimizer);
        if (!is_alone()) {
            wait_in(Phase::optimizer,
                    InstructionWriter::launch(CollectiveKind::all_reduce, Phase::optimizer,
                                              NumbersOf{SharedNumbers::float8_scales},
                                              weights * element_size(DType::float32),
                                              {.communicator = Among::sharing}));
        }
    }

    [[nodiscard]] Bytes shard(const ShardGroup& group, DType dtype) const {
        return group.padded_numel / plan_.ranks * element_size(dtype);
    }

    // Backward gathers among the fewer ranks to which forward resharded.
    [[nodiscard]] bool gathers_larger_shards(std::size_t index) const {
        return phase_ == Phase::backward && request_.reshard_ranks &&
               !plan_.groups[index].is_root();
    }
    [[nodiscard]] bool gathers_among_fewer(std::size_t index) const {
        return gathers_larger_shards(index) && *request_.reshard_ranks < input_.group.ranks;
    }
    [[nodiscard]] CollectiveRanks gathering_ranks(std::size_t index) const {
        return {gathers_among_fewer(index) ? Among::fewer : Among::sharing,
                gathers_larger_shards(index) ? request_.reshard_ranks : std::nullopt};
    }

    void unshard(std::size_t index) {
        GroupState& state = groups_[index];
        if (state.is_gathering || state.is_unsharded) {
            return;
        }
        state.is_gathering = true;
        const ShardGroup& group = plan_.groups[index];
        if (is_alone()) {
            return;
        }
        const Bytes own = shard(group, group.dtype);
        const Bytes sent{group.gathered().count / plan_.ranks};
        const Bytes cast{group.casts_before_gathering() ? (own + sent).count / 2 : 0};
        const Bytes cast_buffer = group.casts_before_gathering() ? sent : Bytes{};
        memory_.hold(ShardedTensor::gathered, cast_buffer + group.gathered());
        memory_.release(ShardedTensor::gathered, cast_buffer);
        const bool on_compute_stream = workload_.host_is_device || request_.asynchronous_unshard;
        if (on_compute_stream) {
            add_copy(copy_into_gathered(index), phase_, static_cast<std::int32_t>(index),
                     cast + sent);
            state.gather = launch_gather(index);
        } else {
            state.gather = launch_gather_ahead(index, cast + sent);
        }
        if (workload_.host_is_device && !request_.asynchronous_unshard) {
            wait_in(phase_, *state.gather);
        }
    }

    [[nodiscard]] Copy copy_into_gathered(std::size_t index) const {
        return {gathers_among_fewer(index) ? CopyRoute::larger_shard_to_gathered
                                           : CopyRoute::shard_to_gathered};
    }

    std::int32_t launch_gather(std::size_t index) {
        return launch(CollectiveKind::all_gather, shards_of(index), plan_.groups[index].gathered(),
                      gathering_ranks(index));
    }
    [[nodiscard]] static ShardsOf shards_of(std::size_t group) {
        return {static_cast<std::int32_t>(group), static_cast<std::int32_t>(group)};
    }

    // From a stream that waits for no computing, only for the last released copy out, and at first
    // for everything before the micro-step.
    std::int32_t launch_gather_ahead(std::size_t index, Bytes copied) {
        const std::int32_t collective = launch_gather(index);
        program_.collectives.back().before = copy_into_gathered(index);
        Instruction& launched = program_.instructions.back();
        if (input_.copy_bandwidth) {
            launched.host += workload_.copy_launch;
        }
        launch_after(gathers_follow_);
        if (input_.copy_bandwidth) {
            launched.device = copy_time(copied);
        }
        return collective;
    }

    void wait_for_unshard(std::size_t index) {
        GroupState& state = groups_[index];
        if (!state.is_gathering) {
            return;
        }
        if (phase_ == Phase::forward) {
            release_copied_out();
        }
        const ShardGroup& group = plan_.groups[index];
        const bool is_waited_for = workload_.host_is_device && !request_.asynchronous_unshard;
        if (state.gather && !is_waited_for) {
            wait_in(phase_, *state.gather);
        }
        memory_.hold(ShardedTensor::unsharded, group.gathered());
        add_copy({gathers_among_fewer(index) ? CopyRoute::gathered_to_unsharded_fewer
                                             : CopyRoute::gathered_to_unsharded},
                 phase_, static_cast<std::int32_t>(index), group.gathered());
        memory_.release(ShardedTensor::parameters, std::exchange(state.larger_shard, {}));
        state.is_unsharded = true;
        state.is_gathering = false;
        state.gather.reset();
        if (is_alone()) {
            return;
        }
        copied_out_ = CopyOut{last_instruction(), group.gathered()};
        if (phase_ == Phase::backward || request_.asynchronous_unshard) {
            release_copied_out();
        }
    }

    // The last copy out frees its buffer once it has run; the streams of later all-gathers wait for
    // that.
    void release_copied_out() {
        if (copied_out_) {
            gathers_follow_ = std::max(gathers_follow_, copied_out_->instruction);
            memory_.release(ShardedTensor::gathered, copied_out_->size);
            copied_out_.reset();
        }
    }

    void reshard(std::size_t index) {
        if (groups_[index].is_unsharded) {
            memory_.release(ShardedTensor::unsharded, plan_.groups[index].gathered());
            groups_[index].is_unsharded = false;
        }
    }

    // Backward gathers a group that was resharded to fewer ranks from this larger shard.
    void keep_larger_shard(std::size_t index) {
        if (request_.reshard_ranks && !plan_.groups[index].is_root()) {
            groups_[index].larger_shard =
                divided(plan_.groups[index].gathered(), *request_.reshard_ranks);
            memory_.hold(ShardedTensor::parameters, groups_[index].larger_shard);
        }
    }

    // --- gradients ---

    [[nodiscard]] bool reduces(MicroSteps in) const { return in == MicroSteps::every || is_last(); }
    // Adding to earlier gradients takes no more memory.
    void hold_gradient(std::size_t parameter) {
        const std::size_t index = plan_.group_of[parameter];
        const Bytes size =
            workload_.gradients[parameter].numel * element_size(plan_.groups[index].gradient_dtype);
        groups_[index].gradients += size;
        if (!(adds_to_earlier() && request_.gradient_sync == MicroSteps::last)) {
            memory_.hold(ShardedTensor::gradients, size);
        }
    }

    void post_backward(std::size_t index) {
        if (!reduces(request_.gradient_sync)) {
            keep_unreduced(index);
            groups_[index].gradients = {};
            return;
        }
        if (request_.reshard_after_backward || is_last()) {
            reshard(index);
        }
        while (std::ssize(reductions_) >= request_.reduce_scatter_buffers) {
            release_oldest_reduction();
        }
        // The gradients of a module used several times are there after its last use.
        const Bytes there = std::exchange(groups_[index].gradients, {});
        if (there == plan_.groups[index].gradients()) {
            reduce(index);
        } else {
            groups_[index].gradients = there;
        }
    }

    // Unreduced gradients stay in the dtype of their reduction.
    void keep_unreduced(std::size_t index) {
        const ShardGroup& group = plan_.groups[index];
        if (!adds_to_earlier()) {
            memory_.release(ShardedTensor::gradients, group.gradients());
            memory_.hold(ShardedTensor::gradients, kept_gradients(group));
        }
        if (request_.reshard_after_backward) {
            reshard(index);
        }
    }
    [[nodiscard]] static Bytes kept_gradients(const ShardGroup& group) {
        return group.numel * element_size(group.reduced_dtype);
    }

    void release_oldest_reduction() {
        const Reduction oldest = reductions_.front();
        reductions_.pop_front();
        if (oldest.collective && !workload_.host_is_device) {
            wait_in(Phase::backward, *oldest.collective);
        }
        memory_.release(ShardedTensor::reduced, plan_.groups[oldest.group].reduced());
    }

    void reduce(std::size_t index) {
        const ShardGroup& group = plan_.groups[index];
        const auto subject = static_cast<std::int32_t>(index);
        const bool kept =
            place_ == MicroStepPlace::last && request_.gradient_sync == MicroSteps::last;
        memory_.hold(ShardedTensor::reduced, group.reduced());
        const Bytes read = kept ? kept_gradients(group) : group.gradients();
        add_copy({CopyRoute::gradients_to_reduced, Copying::averaging}, Phase::backward, subject,
                 {(read + group.reduced()).count / 2});
        memory_.release(ShardedTensor::gradients, read);
        std::optional<std::int32_t> collective;
        if (is_alone()) {
            add_copy({CopyRoute::reduced_to_shard}, Phase::backward, subject, group.reduced());
        } else {
            collective = launch(CollectiveKind::reduce_scatter, shards_of(index), group.reduced());
        }
        reductions_.push_back({index, collective});
        if (workload_.host_is_device && collective) {
            wait_in(Phase::backward, *collective);
        }
        last_reduction_ = collective;
        if (input_.replicas.group.ranks > 1 && reduces(request_.all_reduce)) {
            all_reduce(index, collective);
        }
        place_gradients(group, subject);
    }

    // Between ranks with the same shard, on a communicator of its own.
    void all_reduce(std::size_t index, std::optional<std::int32_t> follows) {
        const ShardGroup& group = plan_.groups[index];
        const std::int32_t collective =
            launch(CollectiveKind::all_reduce, shards_of(index), shard(group, group.reduced_dtype),
                   {.communicator = Among::replicas});
        if (keeps_reduced() && adds_to_earlier()) {
            program_.collectives.back().before = {CopyRoute::kept_to_reduced, Copying::adding};
        }
        if (workload_.host_is_device) {
            wait_in(Phase::backward, collective);
        } else {
            program_.collectives.back().stream = CommunicationStream::second;
            program_.collectives.back().follows = follows;
        }
        last_all_reduce_ = collective;
    }

    // Whether the last micro-step all-reduces what earlier ones reduced.
    [[nodiscard]] bool keeps_reduced() const {
        return input_.replicas.group.ranks > 1 && request_.all_reduce == MicroSteps::last &&
               request_.gradient_sync == MicroSteps::every;
    }

    // Casts to the shard's dtype and adds to earlier micro-steps' gradients, on the collective's
    // stream after it.
    void place_gradients(const ShardGroup& group, std::int32_t subject) {
        const Bytes reduced = shard(group, group.reduced_dtype);
        const Bytes own = shard(group, group.dtype);
        const bool adds = adds_to_earlier() && request_.gradient_sync == MicroSteps::every;
        std::int64_t payload = group.reduced_dtype == group.dtype ? 0 : (reduced + own).count / 2;
        payload += adds ? own.count * 3 / 2 : 0;
        if (!adds) {
            memory_.hold(ShardedTensor::sharded_gradients, own);
        }
        const bool keeps = keeps_reduced() && !is_last();
        const Copy placed{keeps ? CopyRoute::reduced_to_kept : CopyRoute::reduced_to_shard,
                          adds && (keeps || !keeps_reduced()) ? Copying::adding : Copying::plain};
        const bool costs = payload > 0 && input_.copy_bandwidth;
        if (costs && (workload_.host_is_device || program_.collectives.empty())) {
            add_copy(placed, Phase::backward, subject, {payload});
        } else if (!program_.collectives.empty()) {
            program_.collectives.back().after = placed;
            program_.collectives.back().placing += costs ? copy_time({payload}) : Duration{0};
        }
    }

    void wait_for_reductions() {
        if (!workload_.host_is_device) {
            for (const auto& last : {last_reduction_, last_all_reduce_}) {
                if (last) {
                    wait_in(Phase::backward, *last);
                }
            }
        }
        for (const Reduction& reduction : reductions_) {
            memory_.release(ShardedTensor::reduced, plan_.groups[reduction.group].reduced());
        }
        reductions_.clear();
    }

    [[nodiscard]] std::int32_t last_instruction() const {
        return static_cast<std::int32_t>(program_.instructions.size()) - 1;
    }

    struct CopyOut {
        std::int32_t instruction = 0;
        Bytes size;
    };

    const ShardingRequest& request_;
    std::vector<GroupState> groups_;
    std::vector<std::size_t> order_;            // groups, in the order forward left them
    std::optional<CopyOut> copied_out_;         // in forward, until the next group is entered
    std::int32_t gathers_follow_ = before_all;  // the instruction that all-gathers wait for
    std::deque<Reduction> reductions_;
    std::optional<std::int32_t> last_reduction_;
    std::optional<std::int32_t> last_all_reduce_;
};

}  // namespace bucketwise
