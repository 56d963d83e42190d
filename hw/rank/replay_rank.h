// The part of replaying a step that is the same on every device: the action of each instruction,
// the values that gradients take, and the comparison with them afterwards.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "hw/compute/elements.h"
#include "hw/compute/gradient_layout.h"
#include "hw/compute/kernel_plan.h"
#include "hw/compute/planned_kernels.h"
#include "hw/rank/communicator.h"
#include "hw/rank/rank_device.h"
#include "hw/rank/replay_rules.h"
#include "hw/rank/statistics_messages.h"
#include "sim/base/invariant.h"
#include "sim/plan/plan.h"
#include "sim/program/program.h"
#include "sim/scenario/scenario.h"
#include "sim/workload/workload.h"

namespace bucketwise {

// The memory that collectives of a replayed step move. Memory: Arena, or another device's.
template <typename Memory>
struct ReplayMemory {
    ReplayMemory(const Workload& workload, const SyncSettings& sync)
        : buffers(workload.gradients, sync),
          unused_map(std::ssize(workload.gradients) * element_size(DType::float32).count) {
        for (const BufferGroup& group : workload.buffer_groups) {
            broadcast.emplace_back(group.size.count);
            module_buffers.emplace_back(group.size.count);
        }
    }

    BasicGradientBuffers<Memory> buffers;
    std::vector<Memory> broadcast;       // by buffer group: what travels
    std::vector<Memory> module_buffers;  // and where it is copied to
    Memory unused_map;                   // one float32 per parameter
    Memory statistics;                   // of BatchNorm, exchanged between ranks

    // `plan` is the program's, `messages` were made for it. Broadcasts open a step, one for each
    // buffer group in order.
    [[nodiscard]] RankExchange exchange_of(const Program& program, std::int32_t collective,
                                           const BucketPlan& plan,
                                           const StatisticsMessages& messages,
                                           const ReplayRules& rules) {
        const auto index = static_cast<std::size_t>(collective);
        const Collective& c = program.collectives[index];
        if (c.kind == CollectiveKind::broadcast) {
            return {.kind = c.kind, .own = broadcast[index].at(0), .size = c.bytes};
        }
        if (c.statistics) {
            const StatisticsExchange& moved = messages.of(collective);
            return {.kind = moved.gathers ? CollectiveKind::all_gather : CollectiveKind::all_reduce,
                    .own = statistics.at(moved.own_offset),
                    .all = statistics.at(moved.all_offset),
                    .size = moved.own_size(),
                    .dtype = moved.dtype};
        }
        invariant(c.kind == CollectiveKind::all_reduce, "buckets and the map are all-reduced");
        if (!c.bucket) {
            return {.own = unused_map.at(0), .size = c.bytes};
        }
        const Bucket& bucket = plan.buckets[static_cast<std::size_t>(*c.bucket)];
        const DType wire = rules.on_the_wire(bucket.dtype);
        return {.own = rules.casts(bucket.dtype) ? buffers.compressed(*c.bucket)
                                                 : buffers.bucket(*c.bucket),
                .size = numel_of(bucket) * element_size(wire),
                .dtype = wire,
                .averages = rules.collective_averages(bucket.dtype)};
    }
};

class ReplayRank : public RankDevice {
  protected:
    // `workload` is the scenario's; `sync` decides where gradients live: every later step
    // synchronises in that way, or not at all.
    ReplayRank(const Scenario& scenario, const Workload& workload, const SyncSettings& sync,
               int rank, int ranks);

    // The step in progress.
    struct Step {
        const Program* program = nullptr;
        ReplayRules rules;
        bool reduces_unused_map = false;
        std::int64_t number = 0;
        std::int64_t micro_step = 0;
        Communicate communicate = Communicate::yes;
    };

    // Keeps the program by reference until the next step begins. Lays the buckets out anew if the
    // step's plan has some that differ.
    void begin_step(const ReplayedStep& step, std::int64_t number, Communicate communicate);
    // To run the same step once more, with the values of another number.
    void begin_step_again(std::int64_t number) {
        step_.number = number;
        step_.micro_step = 0;
    }
    // Executes the instruction, or puts it on a queue, whichever the device does.
    void execute(const Instruction& instruction);

    [[nodiscard]] const Step& step() const { return step_; }
    [[nodiscard]] const Workload& workload() const { return workload_; }
    [[nodiscard]] const KernelPlan& kernel_plan() const { return kernel_plan_; }
    // The plan that the buffers are laid out for.
    [[nodiscard]] const BucketPlan& plan() const { return plan_; }
    [[nodiscard]] const Bucket& bucket(std::int32_t index) const {
        return plan_.buckets[static_cast<std::size_t>(index)];
    }
    template <typename Memory>
    [[nodiscard]] RankExchange exchange_of(std::int32_t collective, ReplayMemory<Memory>& memory) {
        return memory.exchange_of(*step_.program, collective, plan_, statistics_, step_.rules);
    }

    // to[i] = factor * from[i], i < numel.
    struct Copy {
        std::byte* to = nullptr;
        DType to_dtype = DType::float32;
        const std::byte* from = nullptr;
        DType from_dtype = DType::float32;
        std::int64_t numel = 0;
        double factor = 1.0;
    };
    // A gradient into its bucket or back, a bucket into what travels or back, or what travels onto
    // itself, divided.
    template <typename Buffers>
    [[nodiscard]] Copy copy_of(InstructionKind kind, std::int32_t subject, Buffers& buffers) const {
        if (kind == InstructionKind::copy_in || kind == InstructionKind::copy_back) {
            std::byte* own = buffers.gradient(subject);
            std::byte* place = buffers.place_in_bucket(subject);
            const Gradient& g = workload_.gradients[static_cast<std::size_t>(subject)];
            return kind == InstructionKind::copy_in
                       ? Copy{place,   g.dtype, own,
                              g.dtype, g.numel, step_.rules.copy_in_factor(g.dtype)}
                       : Copy{own, g.dtype, place, g.dtype, g.numel, 1.0};
        }
        std::byte* full = buffers.bucket(subject);
        std::byte* half = buffers.compressed(subject);
        const Bucket& b = bucket(subject);
        const DType wire = step_.rules.on_the_wire(b.dtype);
        if (kind == InstructionKind::scale) {
            std::byte* travels = step_.rules.casts(b.dtype) ? half : full;
            return {travels, wire, travels, wire, numel_of(b), step_.rules.mean_factor()};
        }
        return kind == InstructionKind::cast_down
                   ? Copy{half, wire, full, b.dtype, numel_of(b), 1.0}
                   : Copy{full, b.dtype, half, wire, numel_of(b), 1.0};
    }

    // The bucket's gradients and their places in what packing fills and unpacking empties: what
    // travels or, where packing does not cast, the bucket.
    template <typename Buffers>
    [[nodiscard]] std::vector<TensorPlace> places_in(std::int32_t index, Buffers& buffers) const {
        std::vector<TensorPlace> places;
        for (const std::int32_t g : bucket(index).gradients) {
            places.push_back({.tensor = buffers.gradient(g),
                              .place = packs_what_travels(index) ? buffers.compressed_place(g)
                                                                 : buffers.place_in_bucket(g),
                              .numel = workload_.gradients[static_cast<std::size_t>(g)].numel});
        }
        return places;
    }
    [[nodiscard]] DType packed_dtype_of(std::int32_t index) const {
        return packs_what_travels(index) ? step_.rules.on_the_wire(bucket(index).dtype)
                                         : bucket(index).dtype;
    }

    // Multiplies every gradient's known values after the step, beside the gradient's own factor.
    [[nodiscard]] double exact_mean() const;
    // Relative, by gradient.
    [[nodiscard]] std::vector<double> tolerances() const;
    // `map`: one value per parameter, after the step. Reports an error unless there is one already.
    void check_unused_map(std::span<const float> map, StepCheck& check) const;
    // Stand for BatchNorm's statistics in the step. `block`: after it.
    [[nodiscard]] const StatisticsMessages& statistics() const { return statistics_; }
    void check_statistics(const std::vector<std::byte>& block, StepCheck& check) const;

  private:
    [[nodiscard]] virtual PlannedKernels& kernels() = 0;
    // Lays the buckets of plan() out in the buffers' memory. Their contents are lost.
    virtual void lay_out() = 0;

    // Instructions that do not only compute, by their subjects.
    virtual void copy_buffers(std::int32_t group) = 0;
    virtual void copy(InstructionKind kind, std::int32_t subject) = 0;  // as copy_of()
    // Packs with a factor, or unpacks.
    virtual void pack(std::int32_t bucket, PackDirection direction, double factor) = 0;
    virtual void launch(std::int32_t collective) = 0;
    virtual void wait_for(std::int32_t collective) = 0;

    [[nodiscard]] bool packs_what_travels(std::int32_t index) const {
        return step_.rules.casts(bucket(index).dtype) && !step_.rules.packs_undivided();
    }
    void backward(std::int32_t operation);

    Workload workload_;
    int rank_;
    std::int64_t accumulation_;
    float value_scale_;  // of the gradients' known values, a power of two
    KernelPlan kernel_plan_;
    BucketPlan plan_;
    Step step_;
    StatisticsMessages statistics_;
};

}  // namespace bucketwise
