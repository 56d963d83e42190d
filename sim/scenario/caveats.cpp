// Notes for a user before trusting a prediction of a scenario.
#include <algorithm>

#include <fmt/format.h>

#include "sim/base/transformed.h"
#include "sim/link/assumed_interference.h"
#include "sim/scenario/memory_need.h"
#include "sim/scenario/scenario.h"
#include "sim/workload/eager_cost.h"

namespace bucketwise {
namespace {

// The scenario's, then those of its link and of that one's tiers, which say whose they are.
std::vector<Caveat> stated_caveats(const Scenario& scenario) {
    std::vector<Caveat> stated = scenario.caveats;
    const auto add_link = [&](const LinkParameters& link, const auto& self) -> void {
        for (const Caveat& caveat : link.caveats) {
            stated.push_back(
                {fmt::format("link {}: {}", link.name, caveat.text), caveat.withholds});
        }
        for (const LinkParameters& tier : link.tiers) {
            self(tier, self);
        }
    };
    add_link(scenario.link, add_link);
    return stated;
}

void note_ctas(const LinkParameters& link, std::vector<std::string>& notes) {
    for (const LinkParameters& tier : link.tiers) {
        note_ctas(tier, notes);
    }
    if (!link.ctas || lacks_interference(link)) {
        return;  // what is then assumed is of so many
    }
    bool has_effect = link.algorithm == Algorithm::nccl;
    const auto note = [&](std::string_view whose, const auto& interference) {
        if (!has_cta_groups(interference)) {
            return;
        }
        has_effect = true;
        const std::int64_t fewest = interference.front().ctas.value();
        const std::int64_t most = interference.back().ctas.value();
        if (*link.ctas < fewest || *link.ctas > most) {
            notes.push_back(fmt::format(
                "link {}: interference{} was measured with {} CTAs; with {} it is taken as with {}",
                link.name, whose,
                fewest == most ? std::to_string(most) : fmt::format("{} to {}", fewest, most),
                *link.ctas, std::clamp(*link.ctas, fewest, most)));
        }
    };
    note("", link.interference);
    note(" of all-gathers", link.all_gather.interference);
    note(" of reduce-scatters", link.reduce_scatter.interference);
    if (!has_effect) {
        notes.push_back(fmt::format(
            "link {}: ctas has no effect, as its interference does not say for how many it is",
            link.name));
    }
}

template <typename Predicate>
bool has_operation(const Scenario& scenario, Predicate predicate) {
    const auto* workload = std::get_if<ModelWorkload>(&scenario.workload);
    if (workload == nullptr) {
        return false;
    }
    ModelWorkload written = *workload;
    written.run.fused_norms = false;
    const Model model = model_of(written);
    return std::any_of(model.operations.begin(), model.operations.end(), predicate);
}

bool has_batch_norm(const Scenario& scenario) {
    const auto* workload = std::get_if<ModelWorkload>(&scenario.workload);
    return workload != nullptr && has_batch_norm(model_of(*workload));
}

// How a framework runs a model counts only where its kernels are priced.
void note_run(const Scenario& scenario, std::vector<std::string>& notes) {
    const Device* device = device_of(scenario);
    if (scenario.step.optimizer_kernels && !device->prior) {
        notes.push_back(
            fmt::format("/step/optimizer_kernels has no effect on {}, a roofline", device->name));
    }
    const auto* workload = std::get_if<ModelWorkload>(&scenario.workload);
    if (workload == nullptr) {
        return;
    }
    if (workload->recompute &&
        recomputed_blocks(model_of(*workload), *workload->recompute, true).empty()) {
        notes.emplace_back("/workload/activation_checkpointing names no block of the model");
    }
    const RunAs& run = workload->run;
    const bool priced = has_prior_computing(scenario);
    const auto note = [&](bool given, std::string_view key, auto predicate,
                          std::string_view operations) {
        if (given && !priced) {
            notes.push_back(fmt::format(
                "/workload/{} has no effect where computing is measured or a roofline", key));
        } else if (given && !has_operation(scenario, predicate)) {
            notes.push_back(
                fmt::format("/workload/{} has no effect on a model without {}", key, operations));
        }
    };
    note(
        run.execution != Execution::eager && (priced || !joint_computing(scenario).compiles_blocks),
        "execution", [](const Operation&) { return true; }, "operations");
    note(
        run.attention != AttentionKernel::automatic, "attention",
        [](const Operation& o) { return is_attention(o.kind); }, "attention");
    const auto turns_images = [&](const Operation& o) {
        return o.kind == OperationKind::convolution && on_tensor_cores(workload->arithmetic);
    };
    note(run.channels_last.has_value(), "channels_last", turns_images,
         "convolutions on tensor cores");
    note(run.fused_norms, "fused_norms", is_written_norm, "RMS norms");
    if (priced && is_flash(run.attention) &&
        (!device->flash_attention || element_size(workload->arithmetic) != Bytes{2})) {
        notes.emplace_back(
            "/workload/attention is flash, which PyTorch has for 16 bits only, from Ampere on");
    } else if (priced && run.attention == AttentionKernel::flash_3 &&
               device->synchronous_share == 1) {
        notes.emplace_back(
            "/workload/attention is flash_3, which is for GPUs from Hopper on, but for consumers'");
    }
}

}  // namespace

std::vector<std::string> caveats(const Scenario& scenario) {
    const SyncRequest& sync = scenario.sync;
    const SyncSettings settings = settings_for(sync);
    const bool ddp = is_ddp(sync.strategy);
    const bool caps_matter =
        settings.communicates && (settings.policy.closing == Closing::overshoot ||
                                  settings.policy.closing == Closing::strict);
    std::vector<std::string> notes = transformed(stated_caveats(scenario), &Caveat::text);
    const auto note = [&](bool given, bool effective, std::string_view key) {
        if (given && !effective) {
            notes.push_back(fmt::format("/sync/{} has no effect with the strategy {}", key,
                                        name_of(sync.strategy)));
        }
    };
    note(!sync.bucket_cap.is_default(), caps_matter, "bucket_cap_mib");
    note(sync.first_bucket.has_value(), caps_matter && !framework_of(sync.strategy),
         "first_bucket_mib");
    note(!sync.bucket_cap_list.empty(), caps_matter, "bucket_cap_mib_list");
    const bool copies = settings.copies_in && !framework_of(sync.strategy);
    note(sync.views, copies, "views");
    note(sync.fused_copies, copies, "fused_copies");
    note(sync.batched_grad_copy, is_ddp(sync.strategy), "batched_grad_copy");
    note(sync.static_graph, is_ddp(sync.strategy), "static_graph");
    note(sync.compiled, ddp, "compiled");
    note(sync.comm_hook != CommHook::none, settings.communicates, "comm_hook");
    note(sync.find_unused_parameters, ddp, "find_unused_parameters");
    note(!sync.broadcast_buffers, ddp, "broadcast_buffers");
    note(sync.batch_norm != BatchNormSync::local, settings.communicates, "batch_norm");
    if (sync.batch_norm != BatchNormSync::local && !has_batch_norm(scenario)) {
        notes.emplace_back("/sync/batch_norm has no effect on a workload without BatchNorm");
    }
    if (sync.framework == SettingPlace::deepspeed_zero1 ||
        sync.framework == SettingPlace::deepspeed_zero2) {
        notes.emplace_back(
            "DeepSpeed's ZeRO-1 and 2 run Python for each parameter in backward, which is not "
            "modelled: with many small tensors a step may take several times as long (3.9 s for "
            "1.17 s predicted, in one public report)");
    }
    const std::optional<std::int64_t> measured = scenario.link.provenance.ranks;
    if (measured && *measured != scenario.group.ranks) {
        notes.push_back(
            fmt::format("link {} was measured on {} ranks; its cost on {} is an extrapolation",
                        scenario.link.name, *measured, scenario.group.ranks));
    }
    note_ctas(scenario.link, notes);
    note_run(scenario, notes);
    if (auto warning = memory_warning(scenario)) {
        notes.push_back(*std::move(warning));
    }
    return notes;
}

std::vector<std::string> reasons_to_withhold(const Scenario& scenario) {
    std::vector<std::string> reasons;
    for (const Caveat& caveat : stated_caveats(scenario)) {
        if (caveat.withholds) {
            reasons.push_back(caveat.text);
        }
    }
    return reasons;
}

}  // namespace bucketwise
