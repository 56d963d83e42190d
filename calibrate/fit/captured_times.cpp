#include "calibrate/fit/captured_times.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <variant>
#include <vector>

#include <nlohmann/json.hpp>

#include "sim/engine/engine.h"
#include "sim/predict/prediction.h"
#include "sim/program/program.h"

namespace bucketwise {
namespace {

using Times = std::vector<double>;  // of the operations of backward, in picoseconds

// The length of each beside the step's communication. Empty: they are not those of the workload.
std::optional<Times> lasting(const StepInput& input, const SyncRequest& sync) {
    const Evaluator evaluator(input, sync);
    const Program program = evaluator.program(sync.bucket_cap);
    const Simulation simulation = evaluator.simulation(program);
    Times times(input.workload.backward.size());
    std::size_t found = 0;
    for (const Span& span : simulation.timeline.spans) {
        if (span.track != Track::compute || span.rank != 0) {
            continue;
        }
        const Instruction& instruction =
            program.instructions[static_cast<std::size_t>(span.subject)];
        if (instruction.kind != InstructionKind::backward) {
            continue;
        }
        const auto operation = static_cast<std::size_t>(instruction.subject);
        if (operation >= times.size()) {
            return std::nullopt;
        }
        times[operation] = static_cast<double>((span.end - span.start).count());
        ++found;
    }
    return found == times.size() ? std::optional(times) : std::nullopt;
}

double largest_miss(const Times& simulated, const Times& captured) {
    double most = 0;
    for (std::size_t k = 0; k < captured.size(); ++k) {
        if (captured[k] > 0) {
            most = std::max(most, std::abs(simulated[k] / captured[k] - 1));
        }
    }
    return most;
}

}  // namespace

std::optional<AloneTimes> times_alone(const Scenario& captured) {
    constexpr int most_rounds = 50;
    constexpr double close_enough = 0.001;
    const auto* const listed = std::get_if<GradientWorkload>(&captured.workload);
    if (listed == nullptr || listed->operations || captured.sync.compiled) {
        return std::nullopt;
    }
    StepInput input = step_input(captured);
    std::vector<TimedOperation>& backward = input.workload.backward;
    Times target;
    for (const TimedOperation& operation : backward) {
        target.push_back(static_cast<double>(operation.device.count()));
    }
    AloneTimes alone{.workload = *listed};
    std::vector<TimedOperation> nearest = backward;
    alone.miss = HUGE_VAL;
    for (int round = 0; round < most_rounds && alone.miss > close_enough; ++round) {
        const std::optional<Times> simulated = lasting(input, captured.sync);
        if (!simulated) {
            return std::nullopt;
        }
        if (const double miss = largest_miss(*simulated, target); miss < alone.miss) {
            alone.miss = miss;
            nearest = backward;
        }
        for (std::size_t k = 0; k < backward.size(); ++k) {
            if ((*simulated)[k] > 0) {
                backward[k].device = scaled(backward[k].device, target[k] / (*simulated)[k]);
            }
        }
    }
    backward = nearest;
    alone.workload.backward = set_readiness(input.workload, alone.workload.gradients);
    alone.slowed = listed->backward - alone.workload.backward;
    return alone;
}

Json with_times(Json document, const AloneTimes& alone) {
    const auto rounded_ms = [](Duration time) { return std::round(1e6 * to_ms(time)) / 1e6; };
    Json& workload = document["workload"];
    workload["backward_ms"] = rounded_ms(alone.workload.backward);
    for (std::size_t i = 0; i < alone.workload.gradients.size(); ++i) {
        workload["gradients"][i]["ready_ms"] = std::min(
            rounded_ms(alone.workload.gradients[i].ready), workload["backward_ms"].get<double>());
    }
    return document;
}

}  // namespace bucketwise
