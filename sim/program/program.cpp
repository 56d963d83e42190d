#include "sim/program/program.h"

#include <algorithm>
#include <utility>

#include "sim/base/transformed.h"

namespace bucketwise {

bool uses_side_streams(const StepInput& input) {
    const auto any_beside = [](const std::vector<TimedOperation>& operations) {
        return std::ranges::any_of(operations, &StreamOrder::is_beside, &TimedOperation::order);
    };
    return any_beside(input.workload.forward) || any_beside(input.workload.backward) ||
           any_beside(input.step.optimizer_operations);
}

StepLoop loop_of(const StepInput& input, const SyncSettings& sync) {
    const auto waits = [](const std::vector<TimedOperation>& operations) {
        return std::ranges::any_of(operations, &TimedOperation::host_waits);
    };
    return {input.workload.host_is_device || input.step.sync_each_step ||
                sync.policy.launch == LaunchRule::cycle,
            input.step.launch_queue, input.step.graph_launch.has_value(),
            sync.framework.host_waits || sync.framework.checks_at_launch ||
                (input.step.clipping && input.step.clipping->host_waits) ||
                waits(input.workload.forward) || waits(input.workload.backward) ||
                waits(input.step.optimizer_operations),
            uses_side_streams(input)};
}

SyncSettings without_buckets_before(SyncSettings sync) {
    sync.framework.every_micro_step = false;
    sync.framework.gathers_in_forward = false;
    return sync;
}

Program without_host_waits(Program program) {
    for (Instruction& instruction : program.instructions) {
        instruction.host_waits = false;
    }
    return program;
}

Program without_side_streams(Program program) {
    for (Instruction& instruction : program.instructions) {
        if (instruction.order.is_beside()) {
            instruction.device = Duration{0};
            instruction.host_waits = false;
        }
        instruction.order.after = 0;
    }
    return program;
}

bool communicates_beside(const Program& program) {
    return std::ranges::any_of(program.instructions, &Instruction::is_launched_ahead) ||
           std::ranges::any_of(program.collectives, [](const Collective& collective) {
               return collective.stream != CommunicationStream::first;
           });
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
        if (is_compute(instruction.kind) && !is_copy(instruction.kind) &&
            !instruction.order.is_beside()) {
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
    return transformed(classes, [&](const RankClass& ranks) {
        return with_slower_computing(program, ranks.compute_slowdown);
    });
}

RankGroup StepInput::group_of(const CollectiveRanks& among) const {
    RankGroup ranks = among.joins_replicas() ? replicas.group : group;
    if (among.ranks) {
        ranks = {*among.ranks, std::min(*among.ranks, ranks.ranks_per_node)};
    }
    return ranks;
}

void set_collective_costs(Program& program, const StepInput& input) {
    for (Collective& collective : program.collectives) {
        const LinkParameters& link = input.link_of(collective.among);
        collective.time = collective_time(collective.kind, collective.bytes,
                                          input.group_of(collective.among), link) +
                          collective.copying;
        collective.interference = interference_for(collective.kind, link, collective.bytes);
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
        picoseconds += static_cast<double>((c.time + c.interference.start_delay).count()) *
                       static_cast<double>(c.interference.communication_slowdown_ppm) * 1e-6;
        picoseconds += static_cast<double>(c.placing.count());
        compute_slowdown_ppm = std::max(compute_slowdown_ppm, c.interference.compute_slowdown_ppm);
    }
    double device_picoseconds = 0;
    for (const Instruction& i : program.instructions) {
        picoseconds += static_cast<double>(i.host.count());
        device_picoseconds += static_cast<double>(i.device.count());
    }
    picoseconds += device_picoseconds * static_cast<double>(compute_slowdown_ppm) * 1e-6;
    return picoseconds * 1e-12;
}

}  // namespace bucketwise
