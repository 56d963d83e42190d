#include "sim/program.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "sim/invariant.h"

namespace bucketwise {
namespace {

// Of gradients: what BatchNorm exchanges, it exchanges in every micro-step (no_sync() does not
// reach it).
SyncSettings no_synchronisation(const SyncSettings& sync) {
    SyncSettings settings;
    settings.communicates = false;
    settings.exchanges_statistics = sync.exchanges_statistics;
    return settings;
}

enum class Part : std::uint8_t { opening, micro_step, last_forward, closing };

// The part that the step's first instruction is in.
Part first_part(const StepInput& input, const SyncSettings& sync) {
    const Workload& workload = input.workload;
    if (sync.broadcasts_buffers && !workload.buffer_groups.empty()) {
        return Part::opening;
    }
    if (input.step.accumulation > 1 && !(workload.forward.empty() && workload.backward.empty())) {
        return Part::micro_step;
    }
    return workload.forward.empty() ? Part::closing : Part::last_forward;
}

class Builder {
  public:
    Builder(const StepInput& input, const SyncSettings& sync, const BucketPlan& plan,
            Program& program)
        : input_(input), workload_(input.workload), sync_(sync), plan_(plan), program_(program) {
        program_.host_is_device = workload_.host_is_device;
    }

    // What is added next begins the step.
    void begin_step() { launches_graph_ = input_.step.graph_launch.has_value(); }

    void forward() {
        for (std::size_t i = 0; i < workload_.forward.size(); ++i) {
            const TimedOperation& operation = workload_.forward[i];
            add({InstructionKind::forward, Phase::forward, static_cast<std::int32_t>(i),
                 operation.host, operation.device});
            exchange_statistics(operation, Phase::forward, i);
        }
    }

    void backward_without_synchronisation() {
        for (std::size_t i = 0; i < workload_.backward.size(); ++i) {
            add_backward_operation(i);
        }
    }

    // DDP broadcasts buffers only in a forward that follows a synchronised backward: the first
    // micro-step's.
    void opening() {
        if (sync_.broadcasts_buffers) {
            broadcast_buffers();
        }
    }

    void closing() {
        backward();
        finishing_ = true;
        if (sync_.communicates) {
            if (sync_.policy.launch == LaunchRule::after_backward) {
                launch_all_buckets();
            }
            finish_buckets();
        }
        finishing_ = false;
        optimizer();
    }

  private:
    void add(const Instruction& instruction) {
        program_.instructions.push_back(instruction);
        program_.instructions.back().finishing = finishing_;
        if (input_.step.graph_launch) {
            program_.instructions.back().host =
                std::exchange(launches_graph_, false) ? *input_.step.graph_launch : Duration{0};
        }
    }

    void add_backward_operation(std::size_t i) {
        const TimedOperation& operation = workload_.backward[i];
        add({InstructionKind::backward, Phase::backward, static_cast<std::int32_t>(i),
             operation.host, operation.device});
        exchange_statistics(operation, Phase::backward, i);
    }

    // On the one communication stream, so that it queues behind buckets, and what follows on the
    // compute stream waits for both.
    void exchange_statistics(const TimedOperation& operation, Phase phase, std::size_t index) {
        if (!operation.exchange || !sync_.exchanges_statistics) {
            return;
        }
        const Exchange& exchange = *operation.exchange;
        const std::int32_t collective =
            launch(exchange.kind, phase, exchange.buffer(input_.group.ranks), std::nullopt);
        program_.collectives.back().statistics = {phase, static_cast<std::int32_t>(index),
                                                  exchange.dtype};
        add({InstructionKind::wait, phase, collective, input_.link.host_wait, {}});
    }

    void backward() {
        count_missing_gradients();
        std::size_t ready = 0;
        for (std::size_t i = 0; i < workload_.backward.size(); ++i) {
            add_backward_operation(i);
            for (std::int32_t k = 0; k < workload_.backward[i].ready_count; ++k) {
                gradient_is_ready(workload_.readiness[ready++]);
            }
        }
    }

    void launch_all_buckets() {
        for (std::size_t bucket = 0; bucket < plan_.buckets.size(); ++bucket) {
            launch_bucket(bucket);
        }
    }

    // n updates of equal host and device time, each no earlier than it is launched, end as these
    // two do: when the device has run all n since it was free, or the last one since it was
    // launched.
    void optimizer() {
        const Duration device = input_.step.optimizer;
        const Duration host = input_.step.optimizer_launch;
        if (device <= Duration{0} && host <= Duration{0}) {
            return;
        }
        if (host <= Duration{0}) {
            return add({InstructionKind::optimizer, Phase::optimizer, 0, {}, device});
        }
        const auto updates = std::max<std::int64_t>(std::ssize(workload_.gradients), 1);
        add({InstructionKind::optimizer, Phase::optimizer, 0, host / updates,
             device - device / updates});
        add({InstructionKind::optimizer, Phase::optimizer, 1, host - host / updates,
             device / updates});
    }

    void count_missing_gradients() {
        bucket_of_.assign(workload_.gradients.size(), 0);
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
        if (!sync_.copies_at_launch) {
            copy_in(gradient);
        }
        const std::size_t bucket = bucket_of_[static_cast<std::size_t>(gradient)];
        if (--missing_[bucket] > 0) {
            return;
        }
        if (sync_.policy.launch == LaunchRule::as_filled) {
            launch_bucket(bucket);
        } else if (sync_.policy.launch == LaunchRule::in_order) {
            while (next_in_order_ < missing_.size() && missing_[next_in_order_] == 0) {
                launch_bucket(next_in_order_++);
            }
        }
    }

    // With a cast, half of a copy's traffic is at the narrower side, so a copy of the mean of both
    // sizes stands for it. Without one both sizes are the same.
    void add_bucket_copy(InstructionKind kind, std::size_t bucket) {
        const Bytes full = plan_.buckets[bucket].size;
        add_copy(kind, static_cast<std::int32_t>(bucket),
                 {(full + bytes_on_wire(bucket)).count / 2});
    }

    void add_copy(InstructionKind kind, std::int32_t subject, Bytes payload) {
        if (input_.copy_bandwidth) {
            add({kind, Phase::backward, subject, workload_.copy_launch,
                 transfer_time(payload, *input_.copy_bandwidth)});
        }
    }

    [[nodiscard]] bool casts(std::size_t bucket) const {
        return sync_.comm_hook != CommHook::none &&
               element_size(plan_.buckets[bucket].dtype) > element_size(DType::float16);
    }

    [[nodiscard]] Bytes bytes_on_wire(std::size_t bucket) const {
        const Bucket& b = plan_.buckets[bucket];
        return casts(bucket) ? Bytes{b.size.count / element_size(b.dtype).count *
                                     element_size(DType::float16).count}
                             : b.size;
    }

    void copy_in(std::int32_t gradient) {
        if (sync_.copies_in && !sync_.fused_copies) {
            const Bytes size = workload_.gradients[static_cast<std::size_t>(gradient)].size();
            add_copy(InstructionKind::copy_in, gradient, size);
        }
    }

    void launch_bucket(std::size_t bucket) {
        if (sync_.copies_at_launch) {
            for (const std::int32_t gradient : plan_.buckets[bucket].gradients) {
                copy_in(gradient);
            }
        }
        if (sync_.fused_copies) {
            add_bucket_copy(InstructionKind::pack, bucket);
        } else if (casts(bucket)) {
            add_bucket_copy(InstructionKind::cast_down, bucket);
        }
        launch(CollectiveKind::all_reduce, Phase::backward, bytes_on_wire(bucket),
               static_cast<std::int32_t>(bucket));
    }

    std::int32_t launch(CollectiveKind kind, Phase phase, Bytes bytes,
                        std::optional<std::int32_t> bucket) {
        const auto index = static_cast<std::int32_t>(program_.collectives.size());
        program_.collectives.push_back({kind, bucket, bytes,
                                        collective_time(kind, bytes, input_.group, input_.link),
                                        interference_for(input_.link, bytes)});
        add({InstructionKind::launch, phase, index, input_.link.host_issue, {}});
        return index;
    }

    void broadcast_buffers() {
        for (std::size_t i = 0; i < workload_.buffer_groups.size(); ++i) {
            const BufferGroup& group = workload_.buffer_groups[i];
            const std::int32_t collective =
                launch(CollectiveKind::broadcast, Phase::forward, group.size, std::nullopt);
            add({InstructionKind::wait, Phase::forward, collective, input_.link.host_wait, {}});
            if (input_.copy_bandwidth) {
                add({InstructionKind::copy_buffers, Phase::forward, static_cast<std::int32_t>(i),
                     group.tensors * workload_.copy_launch,
                     transfer_time(group.size, *input_.copy_bandwidth)});
            }
        }
    }

    // PyTorch waits bucket by bucket, in launch order, and copies each back before the next wait.
    void finish_buckets() {
        if (sync_.reduces_unused_map) {
            const auto parameters = static_cast<std::int64_t>(workload_.gradients.size());
            launch(CollectiveKind::all_reduce, Phase::backward, {4 * parameters}, std::nullopt);
        }
        for (std::size_t i = 0; i < program_.collectives.size(); ++i) {
            const Collective& collective = program_.collectives[i];
            if (collective.kind != CollectiveKind::all_reduce || collective.statistics) {
                continue;
            }
            add({InstructionKind::wait,
                 Phase::backward,
                 static_cast<std::int32_t>(i),
                 input_.link.host_wait,
                 {}});
            if (collective.bucket) {
                finish_bucket(static_cast<std::size_t>(*collective.bucket));
            }
        }
    }

    void finish_bucket(std::size_t bucket) {
        if (sync_.fused_copies && sync_.copies_back) {
            return add_bucket_copy(InstructionKind::unpack, bucket);
        }
        if (casts(bucket)) {
            add_bucket_copy(InstructionKind::cast_up, bucket);
        }
        if (sync_.copies_back) {
            for (const std::int32_t gradient : plan_.buckets[bucket].gradients) {
                const Bytes size = workload_.gradients[static_cast<std::size_t>(gradient)].size();
                add_copy(InstructionKind::copy_back, gradient, size);
            }
        }
    }

    const StepInput& input_;
    const Workload& workload_;
    const SyncSettings& sync_;
    const BucketPlan& plan_;
    Program& program_;
    std::vector<std::size_t> bucket_of_;  // by gradient
    std::vector<std::size_t> missing_;    // by bucket: gradients not yet ready
    std::size_t next_in_order_ = 0;
    bool launches_graph_ = false;  // with the next instruction
    bool finishing_ = false;
};

}  // namespace

bool is_copy(InstructionKind kind) {
    switch (kind) {
        case InstructionKind::copy_buffers:
        case InstructionKind::copy_in:
        case InstructionKind::pack:
        case InstructionKind::cast_down:
        case InstructionKind::cast_up:
        case InstructionKind::unpack:
        case InstructionKind::copy_back:
            return true;
        case InstructionKind::forward:
        case InstructionKind::backward:
        case InstructionKind::launch:
        case InstructionKind::wait:
        case InstructionKind::optimizer:
            break;
    }
    return false;
}

Program build_opening(const StepInput& input, const SyncSettings& sync) {
    Program program;
    const BucketPlan no_buckets;
    Builder builder(input, sync, no_buckets, program);
    builder.begin_step();
    builder.opening();
    return program;
}

Program build_micro_step(const StepInput& input, const SyncSettings& sync, std::int64_t number) {
    Program program;
    const SyncSettings none = no_synchronisation(sync);
    const BucketPlan no_buckets;
    Builder builder(input, none, no_buckets, program);
    if (number == 0 && first_part(input, sync) == Part::micro_step) {
        builder.begin_step();
    }
    builder.forward();
    builder.backward_without_synchronisation();
    return program;
}

Program build_last_forward(const StepInput& input, const SyncSettings& sync) {
    Program program;
    const SyncSettings none = no_synchronisation(sync);
    const BucketPlan no_buckets;
    Builder builder(input, none, no_buckets, program);
    if (first_part(input, sync) == Part::last_forward) {
        builder.begin_step();
    }
    builder.forward();
    return program;
}

void build_closing(const StepInput& input, const SyncSettings& sync, const BucketPlan& plan,
                   Program& program) {
    program.instructions.clear();
    program.collectives.clear();
    Builder builder(input, sync, plan, program);
    if (first_part(input, sync) == Part::closing) {
        builder.begin_step();
    }
    builder.closing();
}

Program build_program(const StepInput& input, const SyncSettings& sync, const BucketPlan& plan) {
    invariant(input.step.accumulation >= 1, "a step has a micro-step");
    Program program;
    Builder builder(input, sync, plan, program);
    builder.begin_step();
    builder.opening();
    for (std::int64_t i = 1; i < input.step.accumulation; ++i) {
        builder.forward();
        builder.backward_without_synchronisation();
    }
    builder.forward();
    builder.closing();
    return program;
}

Program with_free_communication(Program program) {
    for (Collective& collective : program.collectives) {
        collective.time = Duration{0};
        collective.interference = {};
    }
    return program;
}

Program with_slower_computing(Program program, double slowdown) {
    for (Instruction& instruction : program.instructions) {
        if (is_compute(instruction.kind) && !is_copy(instruction.kind)) {
            instruction.device = scaled(instruction.device, slowdown);
        }
    }
    return program;
}

double largest_slowdown(const std::vector<RankClass>& classes) {
    const auto slowest = std::max_element(
        classes.begin(), classes.end(),
        [](const auto& a, const auto& b) { return a.compute_slowdown < b.compute_slowdown; });
    return slowest == classes.end() ? 1.0 : slowest->compute_slowdown;
}

Program on_slowest_rank(Program program, const std::vector<RankClass>& classes) {
    return classes.empty() ? program
                           : with_slower_computing(std::move(program), largest_slowdown(classes));
}

std::vector<Program> programs_of_classes(const Program& program,
                                         const std::vector<RankClass>& classes) {
    if (classes.empty()) {
        return {program};
    }
    std::vector<Program> programs;
    programs.reserve(classes.size());
    for (const RankClass& ranks : classes) {
        programs.push_back(with_slower_computing(program, ranks.compute_slowdown));
    }
    return programs;
}

void set_collective_costs(Program& program, const RankGroup& group, const LinkParameters& link) {
    for (Collective& collective : program.collectives) {
        collective.time = collective_time(collective.kind, collective.bytes, group, link);
        collective.interference = interference_for(link, collective.bytes);
    }
}

Program with_free_launches(Program program) {
    for (Instruction& instruction : program.instructions) {
        instruction.host = Duration{0};
    }
    return program;
}

double longest_possible_seconds(const Program& program) {
    double picoseconds = 0;
    std::int64_t compute_slowdown_ppm = undisturbed_ppm;
    for (const Collective& c : program.collectives) {
        picoseconds += static_cast<double>(c.time.count()) *
                       static_cast<double>(c.interference.communication_slowdown_ppm) * 1e-6;
        compute_slowdown_ppm = std::max(compute_slowdown_ppm, c.interference.compute_slowdown_ppm);
    }
    for (const Instruction& i : program.instructions) {
        picoseconds += static_cast<double>(i.host.count());
        picoseconds += static_cast<double>(i.device.count()) *
                       static_cast<double>(compute_slowdown_ppm) * 1e-6;
    }
    return picoseconds * 1e-12;
}

}  // namespace bucketwise
