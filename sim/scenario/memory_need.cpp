#include "sim/scenario/memory_need.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "sim/program/framework.h"
#include "sim/sharding/shard_plan.h"

namespace bucketwise {
namespace {

// --- activations ---

class Activations {
  public:
    Activations(const ModelWorkload& workload, const Model& model)
        : model_(model),
          size_(element_size(workload.arithmetic).count),
          autocast_(workload.dtype == DType::float32 && size_ == 2),
          compiled_(workload.run.execution == Execution::compiled),
          scores_(workload.run.attention == AttentionKernel::eager ||
                  (workload.run.attention == AttentionKernel::automatic &&
                   model.writes_attention_out)) {}

    [[nodiscard]] Bytes bytes() const {
        std::int64_t sum = 0;
        for (const Operation& operation : model_.operations) {
            sum += kept(operation) + (autocast_ ? cast_weights(operation) : 0);
        }
        return {sum};
    }

  private:
    [[nodiscard]] std::int64_t kept(const Operation& operation) const {
        constexpr std::int64_t float32 = 4;
        switch (operation.kind) {
            case OperationKind::scores: {
                // A compiled softmax is computed again, of them.
                const MatrixProduct& product = operation.product.value();
                return scores_ && compiled_ ? product.count * product.m * product.n * size_ : 0;
            }
            case OperationKind::scores_pass:
                return scores_ && !compiled_
                           ? operation.kept_elements * size_ + operation.kept_bytes
                           : 0;
            case OperationKind::pass:
            case OperationKind::normalisation:
                return compiled_ ? 0 : operation.kept_elements * size_ + operation.kept_bytes;
            case OperationKind::stream:
                return operation.kept_elements * (autocast_ ? float32 : size_) +
                       operation.kept_bytes;
            default:
                return operation.kept_elements * size_ + operation.kept_bytes;
        }
    }

    [[nodiscard]] std::int64_t cast_weights(const Operation& operation) const {
        const bool has_weight =
            operation.kind == OperationKind::linear || operation.kind == OperationKind::convolution;
        const MatrixProduct product = operation.product.value_or(MatrixProduct{});
        return has_weight ? product.count * product.k * product.n * size_ : 0;
    }

    const Model& model_;
    std::int64_t size_;  // of an element
    bool autocast_;
    bool compiled_;
    bool scores_;  // of attention, in memory
};

// --- what stays ---

// As often as there are parameters, in their type (torch.optim's zeros_like).
std::optional<std::int64_t> copies_of_state(const StepRequest& step) {
    const auto* optimizer = std::get_if<Optimizer>(&step.optimizer);
    if (optimizer == nullptr) {
        return std::nullopt;
    }
    return *optimizer == Optimizer::adam ? 2 : *optimizer == Optimizer::sgd_momentum ? 1 : 0;
}

void take_model(const ModelWorkload& workload, MemoryNeed& need) {
    const Model model = model_of(workload);
    need.gradients = model.numel() * element_size(workload.dtype);
    need.parameters = need.gradients;
    for (const Buffer& buffer : model.buffers) {
        need.parameters = need.parameters + buffer.numel * buffer.element;
    }
    need.activations = Activations(workload, model).bytes();
}

void take_gradients(const GradientWorkload& workload, MemoryNeed& need) {
    for (const GradientReadiness& one : workload.gradients) {
        need.gradients = need.gradients + one.gradient.size();
    }
    need.parameters = need.gradients;
    for (const BufferGroup& group : workload.buffers) {
        need.parameters = need.parameters + group.size;
    }
}

// 16-bit hooks: half of the float32 sent, a quarter of the float64; nothing is cast to itself.
Bytes cast_bytes(const MemoryNeed& need, const SyncSettings& settings, DType dtype) {
    constexpr std::int64_t size_of_cast = 2;
    const std::int64_t size = element_size(dtype).count;
    return settings.comm_hook == CommHook::none || size <= size_of_cast
               ? Bytes{0}
               : Bytes{need.gradients.count / size * size_of_cast};
}

DType largest_dtype(const Scenario& scenario) {
    if (const auto* workload = std::get_if<ModelWorkload>(&scenario.workload)) {
        return workload->dtype;
    }
    const auto& gradients = std::get<GradientWorkload>(scenario.workload).gradients;
    return std::ranges::max_element(
               gradients, {}, [](const auto& one) { return element_size(one.gradient.dtype); })
        ->gradient.dtype;
}

// --- the warning ---

// "96", "6.2": as many digits as an estimate deserves.
std::string gib_text(Bytes bytes) {
    constexpr double coarse = 10;
    const double gib = to_mib(bytes) / 1024;
    return gib >= coarse ? fmt::format("{:.0f}", gib) : fmt::format("{:.2g}", gib);
}

std::string parts_text(const MemoryNeed& need, bool at_begin) {
    const bool gradients = !at_begin || need.gradients_stay;
    const std::vector<std::pair<const char*, Bytes>> parts{
        {"parameters", need.parameters},
        {"gradients", gradients ? need.gradients : Bytes{0}},
        {"gathered parameters and buffers", need.gathered},
        {"buckets", need.buckets},
        {"cast buckets", at_begin ? Bytes{0} : need.hook_copies},
        {"the optimizer's state", need.optimizer_state.value_or(Bytes{0})},
        {"activations about", at_begin ? need.activations.value_or(Bytes{0}) : Bytes{0}}};
    std::vector<std::string> texts;
    for (const auto& [what, bytes] : parts) {
        if (bytes > Bytes{0}) {
            texts.push_back(fmt::format("{} {}", what, gib_text(bytes)));
        }
    }
    return fmt::format("{}", fmt::join(texts, ", "));
}

}  // namespace

Bytes MemoryNeed::at_begin() const {
    return parameters + gathered + buckets + optimizer_state.value_or(Bytes{0}) +
           (gradients_stay ? gradients : Bytes{0}) + activations.value_or(Bytes{0});
}

Bytes MemoryNeed::at_end() const {
    return parameters + gathered + buckets + optimizer_state.value_or(Bytes{0}) + gradients +
           hook_copies;
}

MemoryNeed memory_need(const Scenario& scenario, const ShardedMemory& sharded) {
    MemoryNeed need;
    if (const auto* workload = std::get_if<ModelWorkload>(&scenario.workload)) {
        take_model(*workload, need);
    }
    need.parameters = sharded.of(ShardedTensor::parameters);
    need.gradients =
        sharded.of(ShardedTensor::gradients) + sharded.of(ShardedTensor::sharded_gradients);
    need.gathered = sharded.of(ShardedTensor::gathered) + sharded.of(ShardedTensor::unsharded) +
                    sharded.of(ShardedTensor::reduced);
    need.gradients_stay = true;
    if (const auto copies = copies_of_state(scenario.step)) {
        need.optimizer_state = *copies * need.parameters;
    }
    if (const Device* device = device_of(scenario)) {
        need.device = device->memory;
    }
    return need;
}

MemoryNeed memory_need(const Scenario& scenario) {
    if (scenario.sharding) {
        const ShardedInput input = sharded_input(scenario);
        return memory_need(scenario, sharded_memory(input, make_shard_plan(input)));
    }
    MemoryNeed need;
    if (const auto* workload = std::get_if<ModelWorkload>(&scenario.workload)) {
        take_model(*workload, need);
    } else {
        take_gradients(std::get<GradientWorkload>(scenario.workload), need);
    }
    const SyncSettings settings = settings_for(scenario.sync);
    const bool views = settings.copies_in && scenario.sync.views;
    need.buckets = settings.copies_in && !views ? need.gradients : Bytes{0};
    need.hook_copies = cast_bytes(need, settings, largest_dtype(scenario));
    need.gradients_stay = views || scenario.step.accumulation > 1;
    if (const auto copies = copies_of_state(scenario.step)) {
        // As large as the gradients, which are as large as what is trained.
        need.optimizer_state =
            *copies *
            divided(need.gradients, scenario.sync.sharded_optimizer ||
                                            rule_of(use_of(scenario.sync)).shards_optimizer
                                        ? scenario.group.ranks
                                        : 1);
    }
    if (const Device* device = device_of(scenario)) {
        need.device = device->memory;
    }
    return need;
}

std::optional<std::string> memory_warning(const Scenario& scenario) {
    const MemoryNeed need = memory_need(scenario);
    if (need.fits()) {
        return std::nullopt;
    }
    const bool at_begin = need.at_begin() >= need.at_end();
    return fmt::format("a rank needs about {} GiB of memory when backward {}, and {} has {}: {}{}",
                       gib_text(need.most()), at_begin ? "begins" : "ends",
                       device_of(scenario)->name, gib_text(*need.device),
                       parts_text(need, at_begin),
                       need.optimizer_state ? "" : "; what the optimizer keeps is not known");
}

}  // namespace bucketwise
