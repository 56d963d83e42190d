// Builds a replicated step, instruction by instruction: whole parts for step_programs.h, pieces of
// the closing part for the search of bucket plans in sim/optimum, which has no plan yet.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "sim/base/units.h"
#include "sim/link/collective.h"
#include "sim/plan/plan.h"
#include "sim/plan/strategy.h"
#include "sim/program/bucket_copies.h"
#include "sim/program/instruction_writer.h"
#include "sim/program/program.h"
#include "sim/workload/workload.h"

namespace bucketwise {

class ProgramBuilder : public InstructionWriter {
  public:
    ProgramBuilder(const StepInput& input, const SyncSettings& sync, const BucketPlan& plan,
                   Program& program)
        : InstructionWriter(input, program), sync_(sync), plan_(plan) {
        updating_ranks_ = sync.framework.updating_ranks;
    }

    // The next instruction begins this part, and perhaps the step.
    void begin(StepPart part) {
        if (first_part(input_, sync_) == part) {
            begin_step();
        }
    }

    void forward() {
        for (std::size_t i = 0; i < workload_.forward.size(); ++i) {
            await_parameters(i);
            const TimedOperation& operation = workload_.forward[i];
            add(InstructionKind::forward, Phase::forward, static_cast<std::int32_t>(i), operation);
            exchange_statistics(operation, Phase::forward, i);
        }
        await_parameters(workload_.forward.size());
    }

    void backward_without_synchronisation() {
        for (std::size_t i = 0; i < workload_.backward.size(); ++i) {
            backward_operation(i);
        }
    }

    // Backward of a micro-step, until its gradients are reduced and in place.
    void synchronised_backward() {
        backward();
        if (sync_.communicates) {
            finishing_ = true;
            launch_what_is_left();
            finish_buckets();
            finishing_ = false;
        }
    }

    // Parameters gathered in an earlier forward need no further gather.
    void stop_gathering() { next_gather_ = plan_.gathers.size(); }

    // DDP broadcasts buffers only in a forward that follows a synchronised backward: the first
    // micro-step's.
    void opening() {
        if (sync_.broadcasts_buffers) {
            broadcast_buffers();
        }
    }

    void closing() {
        synchronised_backward();
        optimizer();
    }

    // The pieces of closing(), one by one.
    void backward_operation(std::size_t i) {
        const TimedOperation& operation = workload_.backward[i];
        add(InstructionKind::backward, Phase::backward, static_cast<std::int32_t>(i), operation);
        exchange_statistics(operation, Phase::backward, i);
    }

    // The copy of a ready gradient, unless that waits for the bucket to go out.
    void collect(std::int32_t gradient) {
        if (!sync_.copies_at_launch) {
            copy_in(gradient);
        }
    }

    // The copy of a gradient whose bucket goes out, if it waited for that.
    void gather(std::int32_t gradient) {
        if (sync_.copies_at_launch) {
            copy_in(gradient);
        }
    }

    // Sends a bucket after its gradients were gathered. Only dtype and size of the bucket matter.
    void send(const Bucket& bucket, std::size_t index) {
        const FrameworkSync& framework = sync_.framework;
        const Bytes bytes = bytes_on_wire(sync_, bucket);
        const bool casts = hook_casts(sync_, bucket.dtype);
        if (sync_.fused_copies) {
            add_bucket_copy({casts ? CopyRoute::gradients_to_wire : CopyRoute::gradients_to_bucket,
                             Copying::averaging},
                            bucket, index);
        } else {
            pack_divide_and_cast(bucket, index);
        }
        if (framework.checks_at_launch) {
            add_copy({CopyRoute::bucket_to_host}, index, {bytes.count / 2});
            if (input_.copy_bandwidth) {
                program_.instructions.back().host_waits = true;
            }
        }
        if (framework.scales_at_launch) {
            add_copy({CopyRoute::within_bucket, Copying::averaging}, index, bytes);
        }
        const double passes =
            bucket.gradients.size() > 1 ? framework.passes.of_several : framework.passes.of_one;
        if (bucket.pieces.empty()) {
            send_piece(bucket, bytes, index, passes);
            if (casts && casts_back_beside_) {
                cast_back_beside(bucket, index);
            }
            return;
        }
        Bytes from;
        for (const Bytes piece : bucket.pieces) {
            send_piece(bucket, piece, index, passes, from);
            from += piece;
        }
    }

    // DDP's map of unused parameters, after the last bucket, where there is one.
    void launch_unused_map() {
        if (sync_.reduces_unused_map) {
            const auto parameters = static_cast<std::int64_t>(workload_.gradients.size());
            launch(CollectiveKind::all_reduce, Phase::backward, UnusedMap{}, {4 * parameters});
        }
    }

    void wait_for(std::int32_t collective) { wait_in(Phase::backward, collective); }

    // After the wait for the bucket's all-reduce; return_copy() of each of its gradients follows.
    void receive(const Bucket& bucket, std::size_t index) {
        const bool casts = hook_casts(sync_, bucket.dtype);
        if (sync_.fused_copies && sync_.copies_back) {
            return add_bucket_copy(
                {casts ? CopyRoute::wire_to_gradients : CopyRoute::bucket_to_gradients}, bucket,
                index);
        }
        if (casts && !casts_back_beside_) {
            add_bucket_copy({CopyRoute::wire_to_bucket}, bucket, index);
        }
        if (sync_.batched_copies && sync_.copies_back) {
            add_copy({CopyRoute::bucket_to_gradients}, index, bucket.size);
        }
    }

    void return_copy(std::int32_t gradient) {
        if (sync_.copies_back && !sync_.fused_copies && !sync_.batched_copies) {
            const auto index = static_cast<std::size_t>(gradient);
            add_copy({CopyRoute::bucket_to_gradient}, index, workload_.gradients[index].size());
        }
    }

    void optimizer() {
        update_parameters();
        hand_out_updates();
        for (const Bytes size : sync_.framework.gathers) {
            wait_in(Phase::optimizer, launch_gather(Phase::optimizer, size));
        }
        if (!sync_.framework.gathers_in_forward) {
            for (const ParameterGather& gather : plan_.gathers) {
                wait_in(Phase::optimizer, launch_gather(Phase::optimizer, gather.size));
            }
        }
        if (!workload_.side_streams.empty() && loop_of(input_, sync_).starts_idle) {
            join_side_streams();
        }
    }

  private:
    // A sharded optimizer's updated parameters.
    void hand_out_updates() {
        if (!sync_.sharded_optimizer || input_.group.ranks == 1) {
            return;
        }
        if (*sync_.sharded_optimizer == ShardedOptimizer::all_gather) {
            wait_in(Phase::optimizer, launch_gather(Phase::optimizer, workload_.gradient_bytes()));
            return;
        }
        const Bytes part = divided(workload_.gradient_bytes(), input_.group.ranks);
        for (std::int64_t rank = 0; rank < input_.group.ranks; ++rank) {
            InstructionWriter::add_copy({}, Phase::optimizer, 0, part, InstructionKind::optimizer);
            wait_in(Phase::optimizer,
                    launch(CollectiveKind::broadcast, Phase::optimizer, UpdatedParameters{}, part));
            InstructionWriter::add_copy({}, Phase::optimizer, 0, part, InstructionKind::optimizer);
        }
    }

    std::int32_t launch_gather(Phase phase, Bytes size) {
        return launch(CollectiveKind::all_gather, phase, UpdatedParameters{}, size);
    }

    // A framework that gathers in forward has the next gather in flight while it computes.
    void await_parameters(std::size_t operation) {
        if (!sync_.framework.gathers_in_forward) {
            return;
        }
        const std::vector<ParameterGather>& gathers = plan_.gathers;
        gathered_.resize(gathers.size());
        const auto issue = [&](std::size_t index) {
            if (!gathered_[index]) {
                gathered_[index] = launch_gather(Phase::forward, gathers[index].size);
            }
            return *gathered_[index];
        };
        for (; next_gather_ < gathers.size() && gathers[next_gather_].needed_by <= operation;
             ++next_gather_) {
            wait_in(Phase::forward, issue(next_gather_));
            if (const auto next = gathers[next_gather_].next) {
                issue(*next);
            }
        }
    }

    // Copies divide, or a pass after a hook's cast or after batched copies (reducer.cpp).
    void pack_divide_and_cast(const Bucket& bucket, std::size_t index) {
        if (sync_.batched_copies && !(index < packed_.size() && packed_[index])) {
            pack_all(bucket, index);
        }
        if (hook_casts(sync_, bucket.dtype)) {
            add_bucket_copy({CopyRoute::bucket_to_wire}, bucket, index);
            add_copy({CopyRoute::within_wire, Copying::averaging}, index,
                     bytes_on_wire(sync_, bucket));
        }
    }

    void pack_all(const Bucket& bucket, std::size_t index) {
        add_copy({CopyRoute::gradients_to_bucket}, index, bucket.size);
        if (!hook_casts(sync_, bucket.dtype)) {
            add_copy({CopyRoute::within_bucket, Copying::averaging}, index, bucket.size);
        }
    }

    void cast_back_beside(const Bucket& bucket, std::size_t index) {
        const std::size_t before = program_.instructions.size();
        add_bucket_copy({CopyRoute::wire_to_bucket}, bucket, index);
        if (program_.instructions.size() > before) {
            program_.collectives.back().placing =
                std::exchange(program_.instructions.back().device, Duration{0});
        }
    }

    void send_piece(const Bucket& bucket, Bytes bytes, std::size_t index, double passes,
                    Bytes from = {}) {
        const std::int32_t collective = launch(
            sync_.framework.reduction, Phase::backward,
            GradientsOf{static_cast<std::int32_t>(index), hook_casts(sync_, bucket.dtype), from},
            bytes);
        program_.collectives.back().averages = is_undivided(sync_, bucket);
        set_stream_copies(sync_, bucket, from + bytes >= bucket.size, program_.collectives.back());
        if (sync_.policy.launch == LaunchRule::cycle) {
            program_.instructions.back().host = Duration{0};  // the framework's own thread launches
        }
        if (input_.copy_bandwidth) {
            Collective& sent = program_.collectives.back();
            sent.copying = scaled(transfer_time(bytes, *input_.copy_bandwidth), passes);
            sent.time += sent.copying;
        }
        if (sync_.framework.wait == ComputingWaits::at_once) {
            wait_for(collective);
        }
    }

    // On the communication stream behind buckets, so that the compute stream waits for both.
    void exchange_statistics(const TimedOperation& operation, Phase phase, std::size_t index) {
        if (!operation.exchange || !sync_.exchanges_statistics) {
            return;
        }
        const Exchange& exchange = *operation.exchange;
        const std::int32_t collective =
            launch(exchange.kind, phase,
                   StatisticsOf{phase, static_cast<std::int32_t>(index), exchange.dtype},
                   exchange.buffer(input_.group.ranks));
        wait_in(phase, collective);
    }

    void backward() {
        count_missing_gradients();
        first_collective_ = program_.collectives.size();
        std::size_t ready = 0;
        for (std::size_t i = 0; i < workload_.backward.size(); ++i) {
            const Duration done = launch_on_the_way(i);
            const std::size_t at = program_.instructions.size();
            backward_operation(i);
            if (done > Duration{0}) {
                program_.instructions[at].device -= done;
                if (!input_.step.graph_launch) {
                    program_.instructions[at].host = Duration{0};  // issued with its first part
                }
            }
            const std::int32_t count = plan_.ready_count(workload_, i);
            for (std::int32_t k = 0; k < count; ++k) {
                gradient_is_ready(plan_.order_of(workload_)[ready++]);
            }
        }
        launch_on_the_way(workload_.backward.size());
    }

    // Launches the buckets that depart within this operation, which becomes several instructions,
    // or after the last one, where the device's wait counts as computing. Returns how much of the
    // operation is done.
    Duration launch_on_the_way(std::size_t operation) {
        Duration done{0};
        for (; next_departure_ < plan_.departures.size() &&
               plan_.departures[next_departure_].operation == operation;
             launch_bucket(next_departure_++)) {
            const bool over = operation == workload_.backward.size();
            // An operation may be shorter than where the plan was made.
            const Duration departure = plan_.departures[next_departure_].done;
            const Duration part =
                (over ? departure : std::min(departure, workload_.backward[operation].device)) -
                done;
            if (part <= Duration{0}) {
                continue;
            }
            const bool issues = done == Duration{0} && !over && !input_.step.graph_launch;
            const std::size_t subject = over ? std::max<std::size_t>(operation, 1) - 1 : operation;
            program_.instructions.push_back(
                {.kind = InstructionKind::backward,
                 .phase = Phase::backward,
                 .subject = static_cast<std::int32_t>(subject),
                 .host = issues ? workload_.backward[operation].host : Duration{0},
                 .device = part});
            done += part;
        }
        return done;
    }

    void launch_what_is_left() {
        for (std::size_t bucket = 0; bucket < plan_.buckets.size(); ++bucket) {
            if (!gone_[bucket]) {
                launch_bucket(bucket);
            }
        }
    }

    void count_missing_gradients() {
        next_in_order_ = next_departure_ = 0;
        open_ = {};
        bucket_of_.assign(workload_.gradients.size(), plan_.buckets.size());
        gone_.assign(plan_.buckets.size(), false);
        packed_.assign(plan_.buckets.size(), false);
        missing_.clear();
        for (std::size_t bucket = 0; bucket < plan_.buckets.size(); ++bucket) {
            missing_.push_back(plan_.buckets[bucket].gradients.size());
            for (const std::int32_t gradient : plan_.buckets[bucket].gradients) {
                bucket_of_[static_cast<std::size_t>(gradient)] = bucket;
            }
        }
    }

    void gradient_is_ready(std::int32_t gradient) {
        if (!sync_.communicates) {
            return;
        }
        const LaunchRule rule = sync_.policy.launch;
        const std::size_t bucket = bucket_of_[static_cast<std::size_t>(gradient)];
        const Gradient& ready = workload_.gradients[static_cast<std::size_t>(gradient)];
        if (rule == LaunchRule::next_gradient && !ready.sparse) {
            auto& open = open_[static_cast<std::size_t>(ready.dtype)];
            if (open && *open != bucket) {
                launch_bucket(*open);
            }
            open = bucket;
        }
        collect(gradient);
        if (bucket == plan_.buckets.size() || --missing_[bucket] > 0) {
            return;
        }
        // A full bucket is packed whether or not it goes out now.
        if (sync_.batched_copies) {
            pack_all(plan_.buckets[bucket], bucket);
            packed_[bucket] = true;
        }
        // A sparse gradient, alone in its bucket, waits for no other.
        if (rule == LaunchRule::as_filled || (rule == LaunchRule::next_gradient && ready.sparse)) {
            launch_bucket(bucket);
        } else if (rule == LaunchRule::in_order) {
            while (next_in_order_ < missing_.size() && missing_[next_in_order_] == 0) {
                launch_bucket(next_in_order_++);
            }
        }
    }

    // A cast has half of its traffic on the narrower side, like a copy of the mean of both sizes.
    void add_bucket_copy(Copy copy, const Bucket& bucket, std::size_t index) {
        add_copy(copy, index, {(bucket.size + bytes_on_wire(sync_, bucket)).count / 2});
    }

    void add_copy(Copy copy, std::size_t subject, Bytes payload) {
        InstructionWriter::add_copy(copy, Phase::backward, static_cast<std::int32_t>(subject),
                                    payload);
    }

    void copy_in(std::int32_t gradient) {
        const auto index = static_cast<std::size_t>(gradient);
        const std::size_t bucket = bucket_of_.empty() ? plan_.buckets.size() : bucket_of_[index];
        const bool lies_in_place = bucket < plan_.buckets.size() && plan_.buckets[bucket].in_place;
        if (sync_.copies_in && !sync_.fused_copies && !sync_.batched_copies && !lies_in_place) {
            const Gradient& copied = workload_.gradients[index];
            add_copy({CopyRoute::gradient_to_bucket, copying_in(sync_, copied.dtype)}, index,
                     payload_in(sync_, copied));
        }
    }

    void launch_bucket(std::size_t index) {
        const Bucket& bucket = plan_.buckets[index];
        const ComputingWaits wait = sync_.framework.wait;
        const std::size_t sent = program_.collectives.size();
        if (wait == ComputingWaits::for_others && sent > first_collective_) {
            wait_for(static_cast<std::int32_t>(sent) - 1);
        }
        gone_[index] = true;
        for (const std::int32_t gradient : bucket.gradients) {
            gather(gradient);
        }
        send(bucket, index);
    }

    void broadcast_buffers() {
        for (std::size_t i = 0; i < workload_.buffer_groups.size(); ++i) {
            const BufferGroup& group = workload_.buffer_groups[i];
            const auto subject = static_cast<std::int32_t>(i);
            wait_in(Phase::forward, launch(CollectiveKind::broadcast, Phase::forward,
                                           BuffersOf{subject}, group.size));
            if (input_.copy_bandwidth) {
                add(InstructionKind::copy, Phase::forward, subject,
                    group.tensors * workload_.copy_launch,
                    group.tensors * input_.copy_fixed +
                        transfer_time(group.size, *input_.copy_bandwidth));
                program_.instructions.back().copy = {CopyRoute::received_to_buffers};
            }
        }
    }

    // PyTorch waits for buckets in launch order and copies each back before the next wait.
    void finish_buckets() {
        launch_unused_map();
        for (std::size_t i = first_collective_; i < program_.collectives.size(); ++i) {
            const Collective& collective = program_.collectives[i];
            if (collective.statistics() != nullptr) {
                continue;
            }
            if (sync_.framework.wait != ComputingWaits::at_once) {
                wait_for(static_cast<std::int32_t>(i));
            }
            if (const auto bucket = collective.bucket()) {
                finish_bucket(static_cast<std::size_t>(*bucket));
            }
        }
        if (sync_.framework.host_waits && !program_.instructions.empty()) {
            program_.instructions.back().host_waits = true;
        }
    }

    void finish_bucket(std::size_t index) {
        const Bucket& bucket = plan_.buckets[index];
        receive(bucket, index);
        for (const std::int32_t gradient : bucket.gradients) {
            return_copy(gradient);
        }
    }

    const SyncSettings& sync_;
    const BucketPlan& plan_;
    const bool casts_back_beside_ = sync_.casts_back_beside && !workload_.host_is_device;
    // By gradient; the number of buckets for gradients in none of them.
    std::vector<std::size_t> bucket_of_;
    std::vector<std::size_t> missing_;  // by bucket: gradients not yet ready
    std::vector<bool> gone_;            // by bucket
    std::vector<bool> packed_;          // by bucket, with batched copies
    std::size_t next_in_order_ = 0;
    std::size_t next_departure_ = 0;
    std::size_t next_gather_ = 0;                        // in forward
    std::vector<std::optional<std::int32_t>> gathered_;  // by gather: its collective
    std::size_t first_collective_ = 0;                   // of the micro-step whose backward this is
    // By dtype, with LaunchRule::next_gradient: the bucket that gradients last joined.
    std::array<std::optional<std::size_t>, every<DType>.size()> open_;
};

}  // namespace bucketwise
