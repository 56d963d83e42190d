// From a scenario to what the simulator runs.
#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/link/assumed_interference.h"
#include "sim/scenario/scenario.h"
#include "sim/scenario/workload_input.h"

namespace bucketwise {
namespace {

// Elements the optimizer reads and writes per parameter. SGD reads parameter and gradient and
// writes the parameter; momentum and Adam's two moments are each read and written besides.
std::int64_t elements_per_parameter(Optimizer optimizer) {
    constexpr std::array<std::int64_t, every<Optimizer>.size()> elements{3, 5, 7};
    return elements[static_cast<std::size_t>(optimizer)];
}

// Memory-bound: every element passes once between memory and the device (a fused or foreach step).
Duration optimizer_time(const StepRequest& step, const Workload& workload, const Device* device) {
    if (const auto* time = std::get_if<Duration>(&step.optimizer)) {
        return *time;
    }
    constexpr std::int64_t directions_of_a_copy = 2;
    return (step.cuda_graph ? Duration{0} : device->launch) +
           transfer_time(
               workload.gradient_bytes(), copy_bandwidth(*device),
               {elements_per_parameter(std::get<Optimizer>(step.optimizer)), directions_of_a_copy});
}

// One class for each distinct slowdown, the slowest first, and one of all other ranks.
std::vector<RankClass> classes_of(const std::vector<Straggler>& stragglers, std::int64_t ranks) {
    std::map<double, std::int64_t, std::greater<>> slower;
    for (const Straggler& straggler : stragglers) {
        if (straggler.compute_slowdown > 1) {
            ++slower[straggler.compute_slowdown];
            --ranks;
        }
    }
    std::vector<RankClass> classes;
    for (const auto& [slowdown, count] : slower) {
        classes.push_back({count, slowdown});
    }
    if (!classes.empty() && ranks > 0) {
        classes.push_back({ranks, 1});
    }
    return classes;
}

Workload timed_workload(const ModelWorkload& workload, BatchNormSync batch_norm) {
    const ModelTiming timing{.device = workload.device.value_or(device_for_spreading()),
                             .arithmetic = workload.arithmetic,
                             .measured_forward = workload.forward,
                             .measured_backward = workload.backward,
                             .measured_forward_operations = workload.forward_operations,
                             .measured_backward_operations = workload.backward_operations,
                             .batch_norm = batch_norm};
    return workload_from_model(model_of(workload), workload.dtype, timing);
}

// In lower case: "aten", "conv", "d" and "backward" of "aten::conv2d_Backward0".
std::vector<std::string> words_of(std::string_view name) {
    std::vector<std::string> words;
    char last = ' ';
    for (const char c : name) {
        const bool is_upper = 'A' <= c && c <= 'Z';
        const bool is_lower = 'a' <= c && c <= 'z';
        const bool goes_on =
            ('A' <= last && last <= 'Z') || ('a' <= last && last <= 'z' && !is_upper);
        if ((is_upper || is_lower) && !goes_on) {
            words.emplace_back();
        }
        if (is_upper || is_lower) {
            words.back() += is_upper ? static_cast<char>(c - 'A' + 'a') : c;
        }
        last = c;
    }
    return words;
}

// By what PyTorch calls its operations.
bool is_matrix_product(const TimedOperation& operation) {
    constexpr std::array<std::string_view, 4> products{"linear", "conv", "convolution", "matmul"};
    const std::vector<std::string> words = words_of(operation.name);
    return std::any_of(words.begin(), words.end(), [&](const std::string& word) {
        // mm, addmm, bmm, sgemm
        return (word.ends_with("mm") && word != "comm") || word.ends_with("attention") ||
               std::find(products.begin(), products.end(), word) != products.end();
    });
}

Workload timed_workload(const GradientWorkload& workload, BatchNormSync /*batch_norm*/) {
    Workload result =
        workload_from_readiness(workload.gradients, workload.forward, workload.backward);
    if (workload.operations) {
        result.forward = workload.operations->forward;
        result.backward = workload.operations->backward;
        result.readiness = workload.operations->readiness;
        result.mix = backward_mix(result.backward, is_matrix_product);
        if (result.mix.product == Duration{0}) {
            result.mix.product_share.reset();  // these names do not tell
        }
    }
    result.buffer_groups = workload.buffers;
    if (workload.device) {
        result.copy_launch = workload.device->time_to_launch_copy();
        result.host_is_device = workload.device->host_is_device;
    }
    result.copy_launch = workload.copy_launch.value_or(result.copy_launch);
    result.host_is_device = workload.host_is_device.value_or(result.host_is_device);
    return result;
}

// What collectives and computing cost each other on GPUs where nobody measured it.
void assume_interference(const Device* device, StepInput& input) {
    if (!lacks_interference(input.link) || input.workload.host_is_device ||
        input.group.ranks == 1) {
        return;
    }
    const BackwardMix& mix = input.workload.mix;
    constexpr double usual_product_share = 0.7;
    ComputingBeside computing{.multiprocessors = {},
                              .memory_bandwidth = {},
                              .product_share = mix.product_share.value_or(usual_product_share),
                              .product = mix.product,
                              .operation = mix.operation};
    if (device != nullptr) {
        computing.multiprocessors = device->multiprocessors;
        computing.memory_bandwidth = device->memory_bandwidth;
    }
    input.link.interference = assumed_interference(input.link, input.group, computing);
    input.link.assumes_interference = true;
}

}  // namespace

Model model_of(const ModelWorkload& workload) {
    if (const auto* shape = std::get_if<TransformerShape>(&workload.model)) {
        return make_transformer(std::string(name_of(shape->family)), *shape, workload.input);
    }
    if (const auto* shape = std::get_if<MlpShape>(&workload.model)) {
        return make_mlp(*shape, workload.input);
    }
    return make_model(std::get<std::string>(workload.model), workload.input);
}

const Device* device_of(const Scenario& scenario) {
    return std::visit(
        [](const auto& workload) { return workload.device ? &*workload.device : nullptr; },
        scenario.workload);
}

void set_cluster(const Scenario& scenario, StepInput& input) {
    input.group = scenario.group;
    input.classes = classes_of(scenario.stragglers, scenario.group.ranks);
    input.link = scenario.link;
    const Device* device = device_of(scenario);
    input.copy_bandwidth = scenario.link.copy_bandwidth;
    input.copy_fixed = Duration{0};
    if (const auto* listed = std::get_if<GradientWorkload>(&scenario.workload)) {
        if (!input.copy_bandwidth) {
            input.copy_bandwidth = listed->copy_bandwidth;
        }
        if (input.link.host_issue == Duration{0}) {
            input.link.host_issue = listed->collective_issue.value_or(Duration{0});
        }
    }
    if (!input.copy_bandwidth && device != nullptr) {
        input.copy_bandwidth = copy_bandwidth(*device);
        input.copy_fixed = device->copy_fixed;
    }
    if (const std::optional<double> share = input.workload.mix.product_share) {
        set_product_share(*share, input.link.interference);
    }
    assume_interference(device, input);
}

StepInput step_input(const Scenario& scenario) {
    return step_input(scenario, std::visit(
                                    [&](const auto& workload) {
                                        return timed_workload(workload, scenario.sync.batch_norm);
                                    },
                                    scenario.workload));
}

StepInput step_input(const Scenario& scenario, Workload workload) {
    StepInput input;
    input.workload = std::move(workload);
    set_cluster(scenario, input);
    const Device* device = device_of(scenario);
    input.variation = scenario.variation;
    input.step.accumulation = scenario.step.accumulation;
    input.step.optimizer_launch = scenario.step.optimizer_launch;
    input.step.sync_each_step = scenario.step.sync_each_step;
    input.step.launch_queue = scenario.step.launch_queue;
    input.step.optimizer = optimizer_time(scenario.step, input.workload, device);
    if (scenario.step.cuda_graph) {
        input.step.graph_launch = device != nullptr ? device->graph_launch : Duration{0};
    }
    return input;
}

}  // namespace bucketwise
