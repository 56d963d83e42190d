#include "sim/optimum/lever_candidates.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include <fmt/format.h>

#include "sim/predict/strategy_comparison.h"
#include "sim/scenario/measured_workload.h"

namespace bucketwise {
namespace {

bool shards_by_fsdp(const Scenario& scenario) {
    return scenario.sharding && scenario.sharding->strategy != ShardedStrategy::zero3;
}

DType own_dtype(const Scenario& scenario) {
    const auto* model = std::get_if<ModelWorkload>(&scenario.workload);
    if (model != nullptr) {
        return model->dtype;
    }
    const auto& gradients = std::get<GradientWorkload>(scenario.workload).gradients;
    return gradients.empty() ? DType::float32 : gradients.front().gradient.dtype;
}

constexpr bool is_wide(DType dtype) {
    return element_size(dtype) > element_size(DType::bfloat16);
}

bool computes_in_bfloat16(const Scenario& scenario) {
    const auto* model = std::get_if<ModelWorkload>(&scenario.workload);
    return model != nullptr && model->arithmetic == Arithmetic::bfloat16;
}

DType reduced_as(const Scenario& scenario) {
    const ShardingRequest& request = *scenario.sharding;
    return request.reduce_dtype           ? *request.reduce_dtype
           : request.reduces_in_own_dtype ? own_dtype(scenario)
                                          : request.parameter_dtype.value_or(own_dtype(scenario));
}

void add_fsdp(const Scenario& scenario, std::vector<LeverCandidate>& candidates) {
    const auto add = [&](LeverKind kind, const char* value, bool (*edit)(Scenario&)) {
        candidates.push_back({{kind, value}, edit});
    };
    add(LeverKind::gradient_sync, "last_micro_step", [](Scenario& s) {
        const bool has = shards_by_fsdp(s) && s.step.accumulation > 1 &&
                         s.sharding->gradient_sync == MicroSteps::every;
        return has && (s.sharding->gradient_sync = MicroSteps::last, true);
    });
    add(LeverKind::all_reduce, "last_micro_step", [](Scenario& s) {
        const bool has = s.sharding && s.sharding->strategy == ShardedStrategy::hsdp &&
                         s.step.accumulation > 1 && s.sharding->all_reduce == MicroSteps::every &&
                         s.sharding->gradient_sync == MicroSteps::every;
        return has && (s.sharding->all_reduce = MicroSteps::last, true);
    });
    add(LeverKind::reshard_after_backward, "false", [](Scenario& s) {
        const bool has =
            shards_by_fsdp(s) && s.step.accumulation > 1 && s.sharding->reshard_after_backward;
        return has && (s.sharding->reshard_after_backward = false, true);
    });
    add(LeverKind::reduce_dtype, "bfloat16", [](Scenario& s) {
        const bool has = shards_by_fsdp(s) && is_wide(reduced_as(s)) && computes_in_bfloat16(s);
        return has && (s.sharding->reduce_dtype = DType::bfloat16, true);
    });
    add(LeverKind::parameter_dtype, "bfloat16", [](Scenario& s) {
        const bool has = shards_by_fsdp(s) && !s.sharding->parameter_dtype &&
                         is_wide(own_dtype(s)) && computes_in_bfloat16(s);
        if (has) {
            s.sharding->reduce_dtype = reduced_as(s);
            s.sharding->parameter_dtype = DType::bfloat16;
        }
        return has;
    });
    const std::int64_t sharing = shard_group_of(scenario).ranks;
    Scenario hybrid = scenario;
    hybrid.sharding->strategy = ShardedStrategy::hsdp;
    hybrid.sharding->shard_ranks.reset();
    const std::int64_t per_node = shard_group_of(hybrid).ranks;
    for (const std::int64_t ranks : {per_node, 2 * sharing, sharing / 2}) {
        const bool possible = ranks > 1 && ranks < scenario.group.ranks && ranks != sharing &&
                              scenario.group.ranks % ranks == 0 &&
                              !scenario.sharding->reshard_ranks;
        const bool is_hybrid = scenario.sharding->strategy == ShardedStrategy::hsdp;
        if (possible && (is_hybrid || (ranks == per_node && sharing > per_node))) {
            candidates.push_back(
                {{LeverKind::shard_ranks, fmt::to_string(ranks)}, [ranks](Scenario& s) {
                     const bool has = shards_by_fsdp(s);
                     if (has) {
                         s.sharding->strategy = ShardedStrategy::hsdp;
                         s.sharding->shard_ranks = ranks;
                     }
                     return has;
                 }});
        }
    }
}

// PyTorch's wrappers included.
bool is_pytorchs(const SyncRequest& sync) {
    const auto framework = sync.framework ? framework_at(*sync.framework) : std::nullopt;
    return is_ddp(sync.strategy) &&
           framework.value_or(Framework::pytorch_ddp) == Framework::pytorch_ddp;
}

// Horovod compresses to float16; GPUs before Ampere have no bfloat16.
CommHook hook_for(const Scenario& scenario) {
    const bool is_horovod = scenario.sync.framework == SettingPlace::horovod;
    const Device* device = device_of(scenario);
    const bool is_old = device != nullptr && device->prior && !device->flash_attention;
    return is_horovod || is_old ? CommHook::fp16 : CommHook::bf16;
}

void add_replicated(const Scenario& scenario, std::vector<LeverCandidate>& candidates) {
    const CommHook hook = hook_for(scenario);
    candidates.push_back({{LeverKind::comm_hook, std::string(name_of(hook))}, [hook](Scenario& s) {
                              const bool has = !s.sharding && is_ddp(s.sync.strategy) &&
                                               s.sync.comm_hook == CommHook::none &&
                                               is_wide(own_dtype(s));
                              return has && (s.sync.comm_hook = hook, true);
                          }});
    candidates.push_back({{LeverKind::views, "true"}, [](Scenario& s) {
                              const bool has = !s.sharding && !s.sync.views && is_pytorchs(s.sync);
                              return has && (s.sync.views = true, true);
                          }});
}

// Whole blocks keep operators, others all; --knobs crosses the rest.
LeverCandidate with_less_recomputed(const Recompute& recompute) {
    const bool is_full = recompute == Recompute{};
    return {{LeverKind::activation_checkpointing, is_full ? "operators" : "none"},
            [is_full](Scenario& s) {
                auto& model = std::get<ModelWorkload>(s.workload);
                const auto less =
                    is_full ? std::optional(Recompute{.keeps = CheckpointKeeps::operators})
                            : std::nullopt;
                return std::exchange(model.recompute, less) != less;
            }};
}

// A measured backward tells forward apart, and not block from block.
LeverCandidate with_nothing_recomputed() {
    return {{LeverKind::activation_checkpointing, "none"}, [](Scenario& s) {
                auto& measured = std::get<GradientWorkload>(s.workload);
                const bool has =
                    std::ranges::any_of(measured_workload(measured).backward,
                                        [](const auto& one) { return one.recomputed > 0; });
                if (has) {
                    set_recompute(std::nullopt, measured);
                }
                return has;
            }};
}

// Measured computing takes as long for each sample.
bool double_micro_batch(Scenario& scenario) {
    auto* model = std::get_if<ModelWorkload>(&scenario.workload);
    if (model == nullptr || std::holds_alternative<ListedModel>(model->model) ||
        scenario.step.accumulation % 2 != 0 || !model->forward_operations.empty()) {
        return false;
    }
    scenario.step.accumulation /= 2;
    model->input.batch *= 2;
    for (std::optional<Duration>* measured : {&model->forward, &model->backward}) {
        if (*measured) {
            **measured = 2 * **measured;
        }
    }
    return true;
}

// --- NCCL's variables ---

LinkParameters* nccl_link(Scenario& scenario) {
    LinkParameters& link = scenario.link;
    return link.algorithm == Algorithm::nccl && link.topology && link.topology->regular ? &link
                                                                                        : nullptr;
}

std::vector<LeverCandidate> nccl_candidates(const Scenario& scenario) {
    std::vector<LeverCandidate> candidates;
    for (const std::int64_t blocks : {1, 2, 4, 8, 16}) {
        candidates.push_back(
            {{LeverKind::nccl_max_ctas, fmt::to_string(blocks)}, [blocks](Scenario& s) {
                 LinkParameters* link = nccl_link(s);
                 const bool limits = link != nullptr &&
                                     blocks < link->ctas.value_or(link->topology->nccl->channels);
                 return limits && (link->ctas = blocks, true);
             }});
    }
    if (scenario.link.ctas) {
        candidates.push_back({{LeverKind::nccl_max_ctas, "unset"}, [](Scenario& s) {
                                  LinkParameters* link = nccl_link(s);
                                  return link != nullptr && (link->ctas.reset(), true);
                              }});
    }
    candidates.push_back({{LeverKind::nccl_nvls, "false"}, [](Scenario& s) {
                              LinkParameters* link = nccl_link(s);
                              return link != nullptr &&
                                     std::exchange(link->topology->regular->node.multicast, false);
                          }});
    const bool queues = !scenario.step.one_hardware_queue;
    candidates.push_back(
        {{LeverKind::one_hardware_queue, queues ? "true" : "false"}, [queues](Scenario& s) {
             const Device* device = device_of(s);
             const bool has = !s.step.cuda_graph && (device == nullptr || !device->host_is_device);
             return has && std::exchange(s.step.one_hardware_queue, queues) != queues;
         }});
    return candidates;
}

// --- computing ---

// Computing that nobody measured.
ModelWorkload* priced_model(Scenario& scenario) {
    auto* model = std::get_if<ModelWorkload>(&scenario.workload);
    return model != nullptr && !model->forward && model->forward_operations.empty() &&
                   model->device && model->device->prior
               ? model
               : nullptr;
}

bool multiply_in_float8(Scenario& scenario, Arithmetic arithmetic) {
    ModelWorkload* model = priced_model(scenario);
    const bool has = model != nullptr && model->arithmetic == Arithmetic::bfloat16 &&
                     model->device->peak(arithmetic) > 0 && count_of_blocks(model_of(*model)) > 0;
    return has && (model->arithmetic = arithmetic, true);
}

std::vector<LeverCandidate> computing_candidates() {
    std::vector<LeverCandidate> candidates{
        {{LeverKind::execution, "compiled"}, [](Scenario& s) {
             ModelWorkload* model = priced_model(s);
             return model != nullptr &&
                    std::exchange(model->run.execution, Execution::compiled) == Execution::eager;
         }}};
    for (const Arithmetic arithmetic :
         {Arithmetic::float8_tensorwise, Arithmetic::float8_rowwise}) {
        candidates.push_back(
            {{LeverKind::arithmetic, std::string(name_of(arithmetic))},
             [arithmetic](Scenario& s) { return multiply_in_float8(s, arithmetic); }});
    }
    return candidates;
}

}  // namespace

std::vector<LeverCandidate> lever_candidates(const Scenario& scenario) {
    std::vector<LeverCandidate> candidates;
    if (scenario.sharding) {
        if (shards_by_fsdp(scenario)) {
            add_fsdp(scenario, candidates);
        }
        candidates.push_back({{LeverKind::without_sharding, "ddp"}, [](Scenario& s) {
                                  const bool has = s.sharding.has_value();
                                  if (has) {
                                      s = with_strategy(s, ComparedStrategy::ddp);
                                  }
                                  return has;
                              }});
    } else {
        add_replicated(scenario, candidates);
    }
    const auto* model = std::get_if<ModelWorkload>(&scenario.workload);
    candidates.push_back(
        {{LeverKind::micro_batch, model == nullptr ? "" : fmt::to_string(2 * model->input.batch)},
         double_micro_batch});
    candidates.push_back({{LeverKind::sync_each_step, "false"},
                          [](Scenario& s) { return std::exchange(s.step.sync_each_step, false); }});
    if (model != nullptr && model->recompute && !model->forward &&
        model->forward_operations.empty()) {
        candidates.push_back(with_less_recomputed(*model->recompute));
    } else if (model == nullptr) {
        candidates.push_back(with_nothing_recomputed());
    }
    return candidates;
}

std::vector<LeverCandidate> tuning_candidates(const Scenario& scenario, Tuned tuned) {
    return tuned == Tuned::nccl ? nccl_candidates(scenario) : computing_candidates();
}

LeverCandidate more_micro_steps(const Scenario& scenario) {
    constexpr std::int64_t times = 4;
    return {{LeverKind::accumulation, fmt::to_string(times * scenario.step.accumulation)},
            [](Scenario& s) {
                s.step.accumulation *= times;
                return true;
            },
            times};
}

}  // namespace bucketwise
