// DeepSpeed's ZeRO stage 3, hook by hook: PartitionedParameterCoordinator decides what is gathered
// and freed (deepspeed/runtime/zero/partitioned_param_coordinator.py),
// DeepSpeedZeroOptimizer_Stage3 what is reduced (stage3.py, 0.17). sim/sharding/sharded_step.h
// describes the result.
//
// Not modelled: the host may run ahead of its streams by two unfinished fetches and reductions
// only.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "sim/base/transformed.h"
#include "sim/base/units.h"
#include "sim/link/collective.h"
#include "sim/program/program.h"
#include "sim/sharding/shard_plan.h"
#include "sim/sharding/sharded_input.h"
#include "sim/sharding/sharded_writer.h"

namespace bucketwise {

class Zero3Builder : public ShardedWriter {
  public:
    // A group of the plan is a module with parameters of its own.
    Zero3Builder(const StepInput& input, const Zero3Settings& settings, const ShardPlan& plan,
                 MicroStepPlace place, ShardedProgram& built)
        : ShardedWriter(input, plan, place, built),
          settings_(settings),
          moves_(built.moves),
          parameters_(workload_.gradients.size()),
          uses_of_(workload_.gradients.size()) {}

    void micro_step() {
        for (std::size_t i = 0; i < parameters_.size(); ++i) {
            parameters_[i].is_persistent =
                workload_.gradients[i].numel <= settings_.persistence_threshold;
            parameters_[i].is_there = parameters_[i].is_persistent;
            if (is_first()) {
                memory_.hold(ShardedTensor::parameters,
                             parameters_[i].is_persistent ? size(i) : shard(i));
            }
        }
        list_uses();
        for (const Phase phase : {Phase::forward, Phase::backward}) {
            walk(
                phase, [&](Call call) { fetch(call->group); },
                [&](std::size_t group) { release_module(group); },
                [&](std::size_t gradient) { take_gradient(gradient); });
        }
        finish();
    }

    void optimizer() {
        update_parameters();
        gather_persistent();
        for (std::size_t i = 0; i < parameters_.size(); ++i) {
            memory_.release(ShardedTensor::sharded_gradients, shard(i));
        }
    }

  private:
    struct ParameterState {
        bool is_persistent = false;
        bool is_there = false;
        std::optional<std::int32_t> gather = {};  // its collective, until it is waited for
        std::int64_t fetched_for = -1;            // the last use it was fetched for
        std::int64_t asked_at = -1;               // the last step that prefetched it
    };
    // One parameter of one module, in the order of the step.
    struct Use {
        std::size_t parameter = 0;
        std::int64_t step = 0;  // counts modules
    };

    [[nodiscard]] Bytes size(std::size_t parameter) const {
        return workload_.gradients[parameter].size();
    }
    [[nodiscard]] Bytes shard(std::size_t parameter) const {
        const Gradient& of = workload_.gradients[parameter];
        return divided(of.numel, input_.group.ranks) * element_size(of.dtype);
    }
    [[nodiscard]] Bytes padded(std::size_t parameter) const {
        return input_.group.ranks * shard(parameter);
    }
    [[nodiscard]] const std::vector<std::int32_t>& parameters_of(std::size_t group) const {
        return plan_.groups[group].parameters;
    }

    // --- the walk through the modules ---

    void list_uses() {
        for (const std::vector<GroupCall>* calls : {&plan_.forward, &plan_.backward}) {
            for (const GroupCall& call : *calls) {
                std::int64_t elements = 0;
                const std::int64_t step = std::ssize(elements_before_) - 1;
                for (const std::int32_t parameter : parameters_of(call.group)) {
                    const auto index = static_cast<std::size_t>(parameter);
                    queue_.push_back({index, step});
                    uses_of_[index].push_back(step);
                    elements += workload_.gradients[index].numel;
                }
                elements_before_.push_back(elements_before_.back() + elements);
            }
        }
    }

    // --- fetching ---

    void fetch(std::size_t group) {
        std::vector<std::size_t> missing;
        for (const std::int32_t parameter : parameters_of(group)) {
            const auto index = static_cast<std::size_t>(parameter);
            if (is_absent(index)) {
                missing.push_back(index);
            }
        }
        gather(missing, group);
        for (const std::int32_t parameter : parameters_of(group)) {
            wait_for_parameter(static_cast<std::size_t>(parameter));
        }
        take_off_queue(group);
        prefetch(group);
        ++step_;
    }

    [[nodiscard]] bool is_absent(std::size_t parameter) const {
        return !parameters_[parameter].is_there && !parameters_[parameter].gather;
    }

    // Uses by this module, which need no later prefetch.
    void take_off_queue(std::size_t group) {
        const auto left = std::ranges::count_if(parameters_of(group), [&](std::int32_t parameter) {
            return parameters_[static_cast<std::size_t>(parameter)].fetched_for < step_;
        });
        for (std::ptrdiff_t i = 0; i < left && !queue_.empty(); ++i) {
            parameters_[queue_.front().parameter].fetched_for = queue_.front().step;
            queue_.pop_front();
        }
    }

    void prefetch(std::size_t group) {
        const std::int64_t most =
            std::min(settings_.max_live_parameters - live_, settings_.prefetch_elements);
        std::vector<std::size_t> ahead;
        std::int64_t elements = 0;
        while (!queue_.empty() && elements < most) {
            const Use use = queue_.front();
            queue_.pop_front();
            ParameterState& state = parameters_[use.parameter];
            state.fetched_for = std::max(state.fetched_for, use.step);
            if (is_absent(use.parameter) && state.asked_at != step_) {
                state.asked_at = step_;
                ahead.push_back(use.parameter);
                elements += workload_.gradients[use.parameter].numel;
            }
        }
        gather(ahead, group);
    }

    // In one collective, on a stream that waits for no computing.
    void gather(const std::vector<std::size_t>& parameters, std::size_t group) {
        if (parameters.empty() || is_alone()) {
            for (const std::size_t parameter : parameters) {
                hold_gathered(parameter);
            }
            return;
        }
        Bytes bytes;
        for (const std::size_t parameter : parameters) {
            bytes += padded(parameter);
        }
        const std::int32_t collective =
            launch_gather(bytes, parameters, static_cast<std::int32_t>(group));
        if (!workload_.host_is_device) {
            launch_after(before_all);
        }
        if (parameters.size() > 1 && input_.copy_bandwidth) {
            program_.collectives.back().placing = copy_time(bytes);
        }
        for (const std::size_t parameter : parameters) {
            parameters_[parameter].gather = collective;
            hold_gathered(parameter);
        }
    }

    void hold_gathered(std::size_t parameter) {
        live_ += workload_.gradients[parameter].numel;
        memory_.hold(ShardedTensor::unsharded, padded(parameter));
        parameters_[parameter].is_there = !parameters_[parameter].gather.has_value();
    }

    void wait_for_parameter(std::size_t parameter) {
        ParameterState& state = parameters_[parameter];
        if (!state.gather) {
            return;
        }
        if (*state.gather > waited_for_) {
            wait_in(phase_, *state.gather);
            waited_for_ = *state.gather;
        }
        state.gather.reset();
        state.is_there = true;
    }

    void release_module(std::size_t group) {
        for (const std::int32_t parameter : parameters_of(group)) {
            const auto index = static_cast<std::size_t>(parameter);
            const bool is_kept = parameters_[index].is_persistent ||
                                 parameters_[index].fetched_for > step_ || is_used_soon(index);
            if (!is_kept) {
                release_parameter(index);
            }
        }
    }

    void release_parameter(std::size_t parameter) {
        if (std::exchange(parameters_[parameter].is_there, false)) {
            live_ -= workload_.gradients[parameter].numel;
            memory_.release(ShardedTensor::unsharded, padded(parameter));
        }
    }

    // Within max_reuse_distance elements of modules from the next on.
    [[nodiscard]] bool is_used_soon(std::size_t parameter) const {
        const std::vector<std::int64_t>& uses = uses_of_[parameter];
        const auto next = std::ranges::lower_bound(uses, step_);
        return next != uses.end() && elements_before_[static_cast<std::size_t>(*next)] -
                                             elements_before_[static_cast<std::size_t>(step_)] <
                                         settings_.max_reuse_distance;
    }

    // --- gradients ---

    void take_gradient(std::size_t parameter) {
        const std::int64_t numel = workload_.gradients[parameter].numel;
        memory_.hold(ShardedTensor::gradients, size(parameter));
        if (!bucket_.empty() && bucket_elements_ + numel > settings_.reduce_bucket_elements) {
            reduce();
        }
        bucket_.push_back(parameter);
        bucket_elements_ += numel;
    }

    // Copying into the bucket and flattening both run beside computing.
    void reduce() {
        Bytes bytes;
        for (const std::size_t parameter : bucket_) {
            bytes += padded(parameter);
        }
        memory_.hold(ShardedTensor::reduced, bytes);
        if (input_.group.ranks > 1) {
            last_reduction_ = launch(CollectiveKind::reduce_scatter, bytes, bucket_);
            Collective& reduction = program_.collectives.back();
            reduction.before = {CopyRoute::gradients_to_reduced, Copying::averaging};
            reduction.after = {CopyRoute::reduced_to_shard,
                               adds_to_earlier() ? Copying::adding : Copying::plain};
            if (input_.copy_bandwidth) {
                constexpr std::int64_t copies = 2;
                reduction.copying = copies * copy_time(bytes);
                reduction.time += reduction.copying;
            }
            if (workload_.host_is_device) {
                wait_in(Phase::backward, *last_reduction_);
            }
        }
        memory_.release(ShardedTensor::reduced, bytes);
        for (const std::size_t parameter : std::exchange(bucket_, {})) {
            memory_.release(ShardedTensor::gradients, size(parameter));
            if (!adds_to_earlier()) {
                memory_.hold(ShardedTensor::sharded_gradients, shard(parameter));
            }
        }
        bucket_elements_ = 0;
    }

    void finish() {
        finishing_ = true;
        if (!bucket_.empty()) {
            reduce();
        }
        if (last_reduction_ && !workload_.host_is_device) {
            wait_in(Phase::backward, *last_reduction_);
            program_.instructions.back().host_waits = true;
        }
        for (std::size_t i = 0; i < parameters_.size(); ++i) {
            wait_for_parameter(i);
            if (!parameters_[i].is_persistent) {
                release_parameter(i);
            }
        }
        finishing_ = false;
    }

    // Persistent parameters are updated in parts, too.
    void gather_persistent() {
        Bytes bytes;
        std::vector<std::size_t> persistent;
        for (std::size_t i = 0; i < parameters_.size(); ++i) {
            if (parameters_[i].is_persistent) {
                bytes += padded(i);
                persistent.push_back(i);
            }
        }
        if (!persistent.empty() && input_.group.ranks > 1) {
            phase_ = Phase::optimizer;
            wait_in(Phase::optimizer, launch_gather(bytes, persistent));
        }
    }

    // Flattens shards before, and copies parameters out as part of it.
    std::int32_t launch_gather(Bytes bytes, const std::vector<std::size_t>& parameters,
                               std::int32_t group = -1) {
        const std::int32_t index = launch(CollectiveKind::all_gather, bytes, parameters, group);
        program_.collectives.back().before = {CopyRoute::shard_to_gathered};
        program_.collectives.back().after = {CopyRoute::gathered_to_unsharded};
        return index;
    }

    std::int32_t launch(CollectiveKind kind, Bytes bytes,
                        const std::vector<std::size_t>& parameters, std::int32_t group = -1) {
        const auto move = static_cast<std::int32_t>(moves_.size());
        moves_.push_back(transformed(parameters, [](std::size_t parameter) {
            return static_cast<std::int32_t>(parameter);
        }));
        return ShardedWriter::launch(kind, {move, group}, bytes);
    }

    const Zero3Settings& settings_;
    std::vector<std::vector<std::int32_t>>& moves_;
    std::vector<ParameterState> parameters_;
    std::vector<std::vector<std::int64_t>> uses_of_;  // by parameter: the steps that use it
    std::vector<std::int64_t> elements_before_{0};    // by step: of all modules before
    std::deque<Use> queue_;                           // uses without a fetch so far
    std::int64_t step_ = 0;                           // modules entered
    std::int64_t live_ = 0;                           // elements gathered
    std::int32_t waited_for_ = -1;
    std::vector<std::size_t> bucket_;
    std::int64_t bucket_elements_ = 0;
    std::optional<std::int32_t> last_reduction_;
};

}  // namespace bucketwise
