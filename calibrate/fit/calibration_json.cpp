// The calibrated scenario, and the fit behind it as JSON.
#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "calibrate/fit/calibration.h"
#include "sim/base/json_output.h"
#include "sim/report/number_text.h"
#include "sim/scenario/sharding_input.h"
#include "sim/workload/device_input.h"

namespace bucketwise {
namespace {

// To a nanosecond, the resolution of measurements.
double rounded_us(Duration time) {
    return std::round(1e3 * to_us(time)) / 1e3;
}

double rounded_ms(Duration time) {
    return std::round(1e6 * to_ms(time)) / 1e6;
}

Json device_json(const Device& device) {
    Json peaks = Json::object();
    for (const Arithmetic arithmetic : every<Arithmetic>) {
        const double peak = device.peak(arithmetic);
        add_if(peak > 0, peaks, name_of(arithmetic), peak);
    }
    Json json{{"name", device.name},
              {"peak_tflop_per_s", std::move(peaks)},
              {"memory_bandwidth_gb_per_s", to_gb_per_s(device.memory_bandwidth)},
              {"launch_us", to_us(device.launch)},
              {"host_is_device", device.host_is_device}};
    add_optional(json, "copy_launch_us", device.copy_launch, to_us);
    add_optional(json, "memory_gib", device.memory,
                 [](Bytes memory) { return to_mib(memory) / 1024; });
    add_if(device.graph_launch > Duration{0}, json, "graph_launch_us", to_us(device.graph_launch));
    return json;
}

// Writes the launch cost into the scenario's own device. Where none was measured it is part of the
// operations' times, and must not count twice.
void set_launches(Json& workload, const ComputeFit& compute) {
    if (!workload.contains("device")) {
        return;
    }
    Json& device = workload["device"];
    const Device before = read_device({&device, "scenario", "/workload/device"});
    const bool counted_twice =
        !compute.launch && !before.host_is_device && before.launch > Duration{0};
    if (!compute.launch && !counted_twice) {
        return;
    }
    if (device.is_string()) {
        device = Json{{"preset", device}};
    }
    device["host_is_device"] = !compute.launch;
    device["launch_us"] = compute.launch ? to_us(compute.launch->time) : 0.0;
    add_optional(device, "graph_launch_us", compute.graph_launch,
                 [](const auto& launch) { return to_us(launch.time); });
}

bool shards(const Json& document) {
    const auto sync = document.find("sync");
    return sync != document.end() && read_sharding({&*sync, "scenario", "/sync"});
}

}  // namespace

Json with_measured_computing(Json document, const ComputeFit& compute) {
    Json& workload = document["workload"];
    if (workload.contains("gradients")) {
        workload["forward_ms"] = rounded_ms(compute.forward);
        workload["backward_ms"] = rounded_ms(compute.backward);
        std::size_t i = 0;
        for (Json& gradient : workload["gradients"]) {
            gradient["ready_ms"] =
                std::min(rounded_ms(compute.ready.at(i++)), rounded_ms(compute.backward));
        }
    } else {
        workload.erase("forward_ms");
        workload.erase("backward_ms");
        workload["forward_operations_us"] = json_list(compute.forward_operations, rounded_us);
        workload["backward_operations_us"] = json_list(compute.backward_operations, rounded_us);
    }
    set_launches(workload, compute);
    if (!compute.launch && workload.contains("gradients") && shards(document)) {
        workload["host_is_device"] = true;  // else collectives would not block what computes
    }
    Json& step = document["step"];
    step = step.is_null() ? Json::object() : step;
    step.erase("optimizer");
    step["optimizer_ms"] = rounded_ms(compute.optimizer);
    if (!compute.launch) {
        // A host that is the device launches nothing.
        step.erase("cuda_graph");
        step.erase("launch_queue");
    }
    const Variation& variation = compute.variation;
    document["variation"] = {{"seed", variation.seed},
                             {"compute_spread", variation.compute_spread},
                             {"operation_spread", variation.operation_spread},
                             {"collective_spread", variation.collective_spread},
                             {"compute_standard_error", variation.compute_standard_error}};
    return document;
}

Json calibrated_scenario(Json document, const Calibration& calibration) {
    document = with_measured_computing(std::move(document), calibration.compute.value());
    document["cluster"]["link"] = link_json(calibration.link);
    constexpr std::size_t few_rounds = 3;
    if (calibration.compute->rounds < few_rounds) {
        add_caveat(document,
                   {.text = fmt::format(
                        "computing was measured in {} only",
                        counted(static_cast<long long>(calibration.compute->rounds), "round"))});
    }
    if (calibration.device) {
        Device device = calibration.device->device;
        if (!calibration.compute->launch) {
            // A CPU's: launching is in the measured times of operations and copies already.
            device.launch = device.graph_launch = Duration{0};
            device.host_is_device = true;
        }
        document["workload"]["device"] = device_json(device);
    }
    return document;
}

namespace {

Json point_json(const LinkResidual& residual) {
    return {{"ranks", residual.point.ranks},
            {"bytes", residual.point.size.count},
            {"samples", residual.point.samples},
            {"median_us", residual.point.median_us},
            {"standard_error_us", residual.point.standard_error_us},
            {"fitted_us", residual.fitted_us},
            {"relative_residual", residual.relative()},
            {"segment", residual.segment},
            {"dropped", residual.dropped}};
}

Json slowdown_json(const InterferencePoint& point) {
    Json json{{"bytes", point.size.count},
              {"rounds", point.rounds},
              {"communication_slowdown", point.communication.factor},
              {"communication_standard_error", point.communication.error}};
    if (point.compute) {
        json["compute_slowdown"] = point.compute->factor;
        json["compute_standard_error"] = point.compute->error;
    }
    add_optional(json, "ctas", point.ctas);
    add_optional(json, "products_slowdown", point.apart.products);
    add_optional(json, "rest_slowdown", point.apart.rest);
    return json;
}

}  // namespace

Json fit_json(const Calibration& calibration) {
    Json json{{"link", link_json(calibration.link)},
              {"all_reduce", json_list(calibration.link_fit.residuals, point_json)},
              {"interference", json_list(calibration.interference.points, slowdown_json)},
              {"warnings", calibration.warnings}};
    if (calibration.all_reduces.empty()) {
        json["all_reduce"] = Json::array();
    }
    for (const OwnFit& own : calibration.own) {
        const std::string key =
            own.kind == CollectiveKind::all_gather ? "all_gather" : "reduce_scatter";
        if (own.link_fit) {
            json[key] = json_list(own.link_fit->residuals, point_json);
        }
        for (const InterferencePoint& point : own.interference.points) {
            json["interference"].push_back(slowdown_json(point));
            json["interference"].back()["collective"] = name_of(own.kind);
        }
    }
    const auto cost_json = [](const HostCost& cost) {
        return Json{{"median_us", to_us(cost.time)}, {"interquartile_share", cost.spread}};
    };
    Json host = Json::object();
    add_optional(host, "issue", calibration.host_issue, cost_json);
    if (calibration.compute) {
        add_optional(host, "launch", calibration.compute->launch, cost_json);
        add_optional(host, "graph_launch", calibration.compute->graph_launch, cost_json);
    }
    add_unless_empty(json, "host", host);
    add_if(calibration.shared_gpu, json, "shared_gpu", true);
    if (calibration.device) {
        json["device"] = device_json(calibration.device->device);
        json["device"]["compute_standard_error"] = calibration.device->compute_error;
        json["device"]["memory_standard_error"] = calibration.device->memory_error;
        json["device"]["typical_residual"] = calibration.device->typical_residual;
    }
    return json;
}

}  // namespace bucketwise
