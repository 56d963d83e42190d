#include "hw/cpu/cpu_rank.h"

#include <algorithm>
#include <cstring>
#include <variant>

#include <fmt/format.h>

#include "hw/compute/elements.h"
#include "hw/compute/gradient_pattern.h"
#include "hw/cpu/beside_communication.h"
#include "hw/record/environment.h"

namespace bucketwise {
namespace {

constexpr std::int64_t map_entry_bytes = 4;

}  // namespace

CpuRank::CpuRank(const Scenario& scenario, const Workload& workload, const SyncSettings& sync,
                 Communicator& communicator)
    : ReplayRank(scenario, workload, sync, communicator.rank(), communicator.ranks()),
      buffers_(this->workload().gradients, sync),
      kernels_(kernel_plan(), this->workload().gradients, buffers_, scenario.step.optimizer),
      communicator_(communicator),
      messages_(communicator) {
    for (const BufferGroup& group : workload.buffer_groups) {
        broadcast_.emplace_back(group.size.count);
        module_buffers_.emplace_back(group.size.count);
    }
    unused_map_ = Arena(map_entry_bytes * static_cast<std::int64_t>(workload.gradients.size()));
    CpuRank::lay_out();
}

StepTrace CpuRank::run(const Program& program, const SyncSettings& sync, const BucketPlan& plan,
                       std::int64_t step, Communicate communicate) {
    begin_step(program, sync, plan, step, communicate);
    tickets_.assign(program.collectives.size(), {});
    thread_.restart();
    std::fill_n(unused_map_.floats(), workload().gradients.size(), 1.0F);
    fill_statistics();
    if (communicate == Communicate::yes) {
        thread_.wait(thread_.launch([this] { messages_.meet(); }));  // all set out together
    }
    return traced_step(program.instructions.size(), thread_, tickets_,
                       [&](std::size_t i) { execute(program.instructions[i]); });
}

void CpuRank::fill_statistics() {
    const std::vector<std::byte>& initial = statistics().initial();
    if (statistics_.size_bytes() < std::ssize(initial)) {
        statistics_ = Arena(std::ssize(initial));
    }
    std::copy(initial.begin(), initial.end(), statistics_.at(0));
}

void CpuRank::copy(InstructionKind kind, std::int32_t subject) {
    const Copy c = copy_of(kind, subject, buffers_);
    if (kind == InstructionKind::copy_in || kind == InstructionKind::copy_back) {
        copy_scaled(c.to, c.from, c.numel, c.to_dtype, c.factor);
    } else {
        cast_scaled(c.to, c.to_dtype, c.from, c.from_dtype, c.numel, c.factor);
    }
}

std::byte* CpuRank::place_in_pack(std::int32_t bucket, std::int32_t gradient) {
    return packs_what_travels(bucket) ? buffers_.compressed_place(gradient)
                                      : buffers_.place_in_bucket(gradient);
}

// A CPU has no launches to save: copy by copy, each with its cast.
void CpuRank::pack(std::int32_t index) {
    const Bucket& b = bucket(index);
    for (const std::int32_t of_bucket : b.gradients) {
        cast_scaled(place_in_pack(index, of_bucket), packed_dtype_of(index),
                    buffers_.gradient(of_bucket), b.dtype, gradient(of_bucket).numel,
                    step().rules.pack_factor());
    }
}

void CpuRank::unpack(std::int32_t index) {
    const Bucket& b = bucket(index);
    for (const std::int32_t of_bucket : b.gradients) {
        cast_scaled(buffers_.gradient(of_bucket), b.dtype, place_in_pack(index, of_bucket),
                    packed_dtype_of(index), gradient(of_bucket).numel, 1.0);
    }
}

void CpuRank::copy_buffers(std::int32_t group) {
    const auto index = static_cast<std::size_t>(group);
    std::memcpy(module_buffers_[index].at(0), broadcast_[index].at(0),
                static_cast<std::size_t>(broadcast_[index].size_bytes()));
}

void CpuRank::launch(std::int32_t collective) {
    tickets_[static_cast<std::size_t>(collective)] = thread_.launch(
        [this, moved = movement(collective), is_free = step().communicate == Communicate::for_free,
         mean = step().rules.mean_factor()] {
            if (!is_free) {
                std::visit([this](const auto& one) { carry(one); }, moved);
            }
            // Where no copy divides, the collective averages, as NCCL's does. That is computing, so
            // it is not free.
            const auto* reduced = std::get_if<BucketReduction>(&moved);
            if (reduced != nullptr && reduced->averages) {
                std::byte* data = place_of(*reduced);
                copy_scaled(data, data, reduced->elements, reduced->dtype, mean);
            }
        });
}

void CpuRank::wait_for(std::int32_t collective) {
    thread_.wait(tickets_[static_cast<std::size_t>(collective)]);
}

void CpuRank::carry(const BufferBroadcast& moved) {
    communicator_.broadcast_from_first(broadcast_[static_cast<std::size_t>(moved.group)].at(0),
                                       moved.size);
}

void CpuRank::carry(const UnusedMapSum& moved) {
    communicator_.all_reduce_sum(unused_map_.at(0), moved.elements, DType::float32);
}

void CpuRank::carry(const BucketReduction& moved) {
    communicator_.all_reduce_sum(place_of(moved), moved.elements, moved.dtype);
}

void CpuRank::carry(const StatisticsExchange& moved) {
    std::byte* own = statistics_.at(moved.own_offset);
    if (moved.gathers) {
        communicator_.all_gather(own, statistics_.at(moved.all_offset), moved.own_size());
    } else {
        communicator_.all_reduce_sum(own, moved.elements, moved.dtype);
    }
}

std::byte* CpuRank::place_of(const BucketReduction& moved) {
    return moved.casts ? buffers_.compressed(moved.bucket) : buffers_.bucket(moved.bucket);
}

StepCheck CpuRank::check() {
    StepCheck check;
    const double mean = exact_mean();
    const std::vector<double> relative = tolerances();
    for (std::size_t i = 0; i < relative.size(); ++i) {
        const Gradient& gradient = workload().gradients[i];
        const auto index = static_cast<std::int32_t>(i);
        const ElementCheck found =
            check_gradient(buffers_.gradient(index), gradient.dtype, gradient.numel,
                           kernel_plan().columns[i], gradient_factor(index) * mean, relative[i]);
        if (!(found.largest_difference <= check.largest_difference)) {
            check.largest_difference = found.largest_difference;
        }
        if (found.wrong_element >= 0 && check.wrong.empty()) {
            check.wrong =
                fmt::format("gradient {}, element {}: expected the mean {}, got {}", gradient.name,
                            found.wrong_element, found.expected, found.got);
        }
    }
    if (step().reduces_unused_map) {
        check_unused_map({unused_map_.floats(), relative.size()}, check);
    }
    const std::byte* exchanged = statistics_.at(0);
    check_statistics({exchanged, exchanged + statistics().initial().size()}, check);
    return check;
}

std::vector<Duration> CpuRank::time_backward() {
    return times_of_backward(workload().backward.size(), [this](std::int32_t operation) {
        kernels_.backward(operation, 1.0F, false);
    });
}

ContentionTrace CpuRank::contend(const Message& message, std::int64_t iterations,
                                 const std::vector<Duration>& alone) {
    return contend_with(messages_, message, iterations, alone, [this](std::int32_t operation) {
        kernels_.backward(operation, 1.0F, false);
    });
}

}  // namespace bucketwise
