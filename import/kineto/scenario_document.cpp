#include "import/kineto/scenario_document.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "import/kineto/bucket_caps.h"
#include "import/source/plain_text.h"
#include "sim/plan/cap.h"

namespace bucketwise {
namespace {

double rounded_us(Duration time) {
    return std::round(to_us(time) * 1e3) / 1e3;
}
double rounded_ms(Duration time) {
    return std::round(to_ms(time) * 1e6) / 1e6;
}

Json gradients_json(const ImportedParts& parts) {
    std::vector<std::size_t> order(parts.gradients.size());  // by parameter
    if (parts.named.readiness.empty()) {
        std::iota(order.rbegin(), order.rend(), 0);
    }
    for (std::size_t i = 0; i < parts.named.readiness.size(); ++i) {
        order[static_cast<std::size_t>(parts.named.readiness[i])] = i;
    }
    Json list = Json::array();
    for (const std::size_t i : order) {
        list.push_back({{"name", parts.gradients[i].name},
                        {"numel", parts.gradients[i].numel},
                        {"dtype", name_of(gradient_dtype(parts.run))}});
    }
    return list;
}

// The broadcasts of buffers, and the copies that follow each.
Json buffers_json(const ImportedParts& parts, Findings& findings) {
    Json groups = Json::array();
    std::vector<std::int64_t> copies;
    for (const StepMark& mark : parts.step.forward) {
        if (mark.kind == MarkKind::copy_buffer) {
            copies.push_back(mark.bytes);
        }
    }
    std::size_t next = 0;
    for (const TracedCollective& collective : parts.run.first().collectives) {
        if (collective.name != "broadcast" || collective.in_backward) {
            continue;
        }
        if (collective.bytes.count <= 0) {
            findings.missing("buffers", "a broadcast whose size no event tells is left out");
            continue;
        }
        std::int64_t tensors = 0;
        for (std::int64_t left = collective.bytes.count; next < copies.size() && left > 0; ++next) {
            left -= copies[next];
            ++tensors;
        }
        groups.push_back(
            {{"bytes", collective.bytes.count}, {"tensors", std::max<std::int64_t>(tensors, 1)}});
        findings.found(
            "buffers",
            fmt::format("a broadcast of {} {}({} bytes){}", collective.elements,
                        collective.dtype.empty() ? "" : collective.dtype + " ",
                        collective.bytes.count,
                        tensors > 0 ? fmt::format(", copied back as {} tensors", tensors) : ""));
    }
    return groups;
}

// The operations of a pass. On a device, host time that copies and collectives took beyond what is
// simulated of them is carried to the operations that follow.
Json operations_json(const ImportedParts& parts, const std::vector<StepMark>& marks, bool backward,
                     Duration& carry) {
    const bool has_device = parts.run.rank().has_device;
    Json list = Json::array();
    std::size_t ready = 0;
    for (const StepMark& mark : marks) {
        if (is_copy(mark) || mark.kind == MarkKind::collective) {
            const Duration simulated = is_copy(mark) ? parts.step.copy_launch
                                                     : parts.step.host_issue.value_or(Duration{0});
            carry += has_device ? mark.host - simulated : Duration{0};
            continue;
        }
        const Duration host = std::max(mark.host + carry, Duration{0});
        carry += mark.host - host;
        Json operation{{"name", mark.name},
                       {"host_us", rounded_us(host)},
                       {"device_us", rounded_us(mark.device)}};
        if (mark.kind == MarkKind::ready && backward) {
            const std::string& gradient = parts.gradients[ready++].name;
            operation["name"] = gradient + " is ready";
            operation["ready"] = {gradient};
        }
        list.push_back(std::move(operation));
    }
    return list;
}

// The caps, and what of them PyTorch's version and the search for unused parameters decide.
void add_caps(const ImportedParts& parts, const std::vector<const TracedCollective*>& found,
              Json& sync, Findings& findings) {
    if (parts.run.unused_map) {
        sync["find_unused_parameters"] = true;
    }
    std::vector<std::int64_t> buckets;
    for (const TracedCollective* collective : found) {
        buckets.push_back(collective->elements);
    }
    std::vector<std::int64_t> gradients;
    for (const NamedGradient& gradient : parts.gradients) {
        gradients.push_back(gradient.numel);
    }
    const TracedCaps caps =
        caps_of(gradients, buckets, gradient_dtype(parts.run), parts.run.unused_map);
    if (const std::optional<Bytes> cap = caps.sync.bucket_cap.named()) {
        sync["bucket_cap_mib"] = typed_mib(*cap);
    }
    if (!caps.sync.explicit_cap_sets_first) {
        sync["pytorch_version"] = "1.13";
    }
    for (const Bytes cap : caps.sync.bucket_cap_list) {
        sync["bucket_cap_mib_list"].push_back(typed_mib(cap));
    }
    if (!caps.explained) {
        findings.missing("buckets", caps.text);
    } else if (buckets.size() > 1) {
        findings.found("buckets", caps.text);
    } else {
        findings.assumed("buckets", caps.text);  // any cap that is large enough gives one bucket
    }
}

Json sync_json(const ImportedParts& parts, bool without_buffers, Findings& findings) {
    const TracedStep& step = parts.run.first();
    Json sync{{"strategy", "ddp"}};
    if (parts.step.views) {
        sync["views"] = true;
    }
    if (without_buffers) {
        sync["broadcast_buffers"] = false;
    }
    const std::vector<const TracedCollective*> found = reductions(parts.run, step);
    if (found.empty()) {
        findings.assumed("buckets", "DistributedDataParallel's default caps");
        return sync;
    }
    const DType element = *travelling_dtype(*found.front());
    if (step.hook_casts && (element == DType::float16 || element == DType::bfloat16)) {
        sync["comm_hook"] = element == DType::float16 ? "fp16" : "bf16";
        findings.found("comm hook", fmt::format("gradients travel as {}", name_of(element)));
    }
    if (!step.is_ddp) {
        findings.assumed("strategy",
                         "no reducer of DistributedDataParallel was seen at work; the all-reduces "
                         "are taken for its");
    }
    add_caps(parts, found, sync, findings);
    return sync;
}

// The name of the file without its folders.
std::string scenario_name(const std::string& file) {
    constexpr std::size_t longest = 150;
    const std::string name = plain_text(file.substr(file.rfind('/') + 1), longest);
    return name.empty() ? "trace" : name;
}

}  // namespace

Json scenario_document(const ImportedParts& parts, Findings& findings) {
    const TracedRun& run = parts.run;
    Duration carry{0};
    const Json groups = buffers_json(parts, findings);
    Json workload{{"gradients", gradients_json(parts)}};
    if (!groups.empty()) {
        workload["buffers"] = groups;
    }
    workload["forward_operations"] = operations_json(parts, parts.step.forward, false, carry);
    workload["backward_operations"] = operations_json(parts, parts.step.backward, true, carry);
    if (parts.step.host_issue) {
        workload["collective_issue_us"] = rounded_us(*parts.step.host_issue);
    }
    if (parts.step.copy_gb_per_s) {
        workload["copy_gb_per_s"] = std::clamp(*parts.step.copy_gb_per_s, 1e-6, 1e6);
    }
    Json step{{"optimizer_ms", rounded_ms(run.typical(&TracedStep::optimizer_device))}};
    if (run.rank().has_device) {
        workload["copy_launch_us"] = rounded_us(parts.step.copy_launch);
        const Duration host = run.typical(&TracedStep::optimizer_host);
        step["optimizer_launch_ms"] = rounded_ms(std::max(host + carry, Duration{0}));
    } else {
        workload["host_is_device"] = true;
    }
    if (run.first().micro_steps > 1) {
        step["accumulation"] = run.first().micro_steps;
    }
    return {{"name", scenario_name(run.rank().file)},
            {"workload", std::move(workload)},
            {"cluster", {{"ranks", parts.ranks}}},
            {"sync", sync_json(parts, groups.empty(), findings)},
            {"step", std::move(step)}};
}

}  // namespace bucketwise
