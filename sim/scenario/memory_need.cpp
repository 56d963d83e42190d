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
    // `seen`: the dtype of the parameters that forward sees.
    Activations(const ModelWorkload& workload, const Model& model, DType seen)
        : model_(model),
          size_(element_size(workload.arithmetic).count),
          autocast_(seen == DType::float32 && size_ == 2),
          compiled_(workload.run.execution == Execution::compiled),
          scores_(!is_attention_fused(model, workload.run)) {}

    // The operation at this place, without activation checkpointing.
    [[nodiscard]] Bytes of(std::size_t index) const {
        const Operation& operation = model_.operations[index];
        return Bytes{kept(operation)} + cast_of(index);
    }

    // The copy of an operation's weights that autocast's cache holds until forward ends.
    [[nodiscard]] Bytes cast_of(std::size_t index) const {
        return {autocast_ ? cast_weights(model_.operations[index]) : 0};
    }

    // The result of a linear layer, which autograd may not need; of others nothing.
    [[nodiscard]] Bytes result_of(std::size_t index) const {
        const Operation& operation = model_.operations[index];
        const MatrixProduct product = operation.product.value_or(MatrixProduct{});
        return {operation.kind == OperationKind::linear
                    ? product.count * product.m * product.n * size_
                    : 0};
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
            case OperationKind::gate:
            case OperationKind::normalisation:
                return compiled_ ? 0 : operation.kept_elements * size_ + operation.kept_bytes;
            case OperationKind::stream:
                return operation.kept_elements *
                           (autocast_ || operation.upcasts ? std::max(float32, size_) : size_) +
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

// By operation: the bytes that forward leaves for backward.
std::vector<Bytes> left_by_forward(const Model& model, const Activations& activations,
                                   const std::vector<RecomputedBlock>& blocks) {
    std::vector<Bytes> left(model.operations.size());
    for (std::size_t i = 0; i < left.size(); ++i) {
        left[i] = activations.of(i);
    }
    for (const RecomputedBlock& block : blocks) {
        for (std::size_t i = block.first; i + 1 < block.end; ++i) {  // the last is the next's input
            left[i] = Bytes{0};
        }
        for (const std::size_t i : block.kept) {
            left[i] = std::max(activations.of(i), activations.result_of(i));
        }
    }
    return left;
}

// By operation: the gradients that backward has left when it has passed that operation.
std::vector<Bytes> gradients_after(const Model& model, Bytes element) {
    std::vector<Bytes> after(model.operations.size() + 1);
    std::vector<bool> is_used(model.parameters.size(), false);
    for (std::size_t i = 0; i < model.operations.size(); ++i) {
        for (const std::int32_t parameter : model.operations[i].parameters) {
            const auto index = static_cast<std::size_t>(parameter);
            after[i] += is_used[index] ? Bytes{0} : model.parameters[index].numel() * element;
            is_used[index] = true;
        }
    }
    for (std::size_t i = model.operations.size(); i-- > 0;) {
        after[i] += after[i + 1];
    }
    return after;
}

// `seen`: the dtype of the parameters that forward sees. Autocast keeps 16-bit copies of all
// weights to the end of forward.
void take_activations(const ModelWorkload& workload, const Model& model, DType seen,
                      MemoryNeed& need) {
    const Activations activations(workload, model, seen);
    const std::vector<RecomputedBlock> blocks =
        workload.recompute
            ? recomputed_blocks(model, *workload.recompute, is_attention_fused(model, workload.run))
            : std::vector<RecomputedBlock>{};
    const std::vector<Bytes> left = left_by_forward(model, activations, blocks);
    const std::vector<Bytes> gradients = gradients_after(model, element_size(workload.dtype));
    const auto both = [](const RecomputedMemory& one) { return one.activations + one.gradients; };
    Bytes before;  // of operations before the block
    std::size_t next = 0;
    const auto advance_to = [&](std::size_t end) {
        for (; next < end; ++next) {
            before += left[next];
        }
    };
    for (const RecomputedBlock& block : blocks) {
        advance_to(block.first);
        RecomputedMemory there{before, gradients[block.first]};
        for (std::size_t i = block.first; i < block.end; ++i) {
            there.activations += std::max(activations.of(i), left[i]);
        }
        if (!need.recomputed || both(there) > both(*need.recomputed)) {
            need.recomputed = there;
        }
    }
    advance_to(left.size());
    for (const RecomputedBlock& block : blocks) {
        for (std::size_t i = block.first; i + 1 < block.end; ++i) {
            before += std::ranges::find(block.kept, i) == block.kept.end() ? activations.cast_of(i)
                                                                           : Bytes{0};
        }
    }
    need.activations = before;
}

// --- what stays ---

// As often as there are parameters, in their type (torch.optim's zeros_like).
std::optional<std::int64_t> copies_of_state(const StepRequest& step) {
    const auto* optimizer = std::get_if<Optimizer>(&step.optimizer);
    if (optimizer == nullptr) {
        return std::nullopt;
    }
    return *optimizer == Optimizer::adam ? 2 : *optimizer == Optimizer::sgd_momentum ? 1 : 0;
}

void take_model(const ModelWorkload& workload, DType seen, MemoryNeed& need) {
    const Model model = model_of(workload);
    need.gradients = model.numel() * element_size(workload.dtype);
    need.parameters = need.gradients + model.frozen_elements * element_size(workload.dtype);
    for (const Buffer& buffer : model.buffers) {
        need.parameters = need.parameters + buffer.numel * buffer.element;
    }
    take_activations(workload, model, seen, need);
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

// When backward begins, while it computes a block again, and when it ends.
enum class Moment : std::uint8_t { begins, recomputes, ends };

Bytes gradients_at(const MemoryNeed& need, Moment moment) {
    if (moment == Moment::ends || need.gradients_stay) {
        return need.gradients;
    }
    return moment == Moment::begins || !need.recomputed ? Bytes{0} : need.recomputed->gradients;
}

Bytes activations_at(const MemoryNeed& need, Moment moment) {
    switch (moment) {
        case Moment::begins:
            return need.activations.value_or(Bytes{0});
        case Moment::recomputes:
            return need.recomputed ? need.recomputed->activations : Bytes{0};
        default:
            return Bytes{0};
    }
}

Bytes sum_at(const MemoryNeed& need, Moment moment) {
    return need.parameters + need.gathered + need.buckets +
           need.optimizer_state.value_or(Bytes{0}) + gradients_at(need, moment) +
           activations_at(need, moment) + (moment == Moment::ends ? need.hook_copies : Bytes{0});
}

Moment moment_of_most(const MemoryNeed& need) {
    return std::max({Moment::begins, Moment::recomputes, Moment::ends},
                    [&](Moment a, Moment b) { return sum_at(need, a) < sum_at(need, b); });
}

std::string parts_text(const MemoryNeed& need, Moment moment) {
    const std::vector<std::pair<const char*, Bytes>> parts{
        {"parameters", need.parameters},
        {"gradients", gradients_at(need, moment)},
        {"gathered parameters and buffers", need.gathered},
        {"buckets", need.buckets},
        {"cast buckets", moment == Moment::ends ? need.hook_copies : Bytes{0}},
        {"the optimizer's state", need.optimizer_state.value_or(Bytes{0})},
        {"activations about", activations_at(need, moment)}};
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
    return sum_at(*this, Moment::begins);
}

Bytes MemoryNeed::while_recomputing() const {
    return sum_at(*this, Moment::recomputes);
}

Bytes MemoryNeed::at_end() const {
    return sum_at(*this, Moment::ends);
}

MemoryNeed memory_need(const Scenario& scenario, const ShardedMemory& sharded) {
    MemoryNeed need;
    if (const auto* workload = std::get_if<ModelWorkload>(&scenario.workload)) {
        take_model(*workload, joint_computing(scenario).parameter_dtype.value_or(workload->dtype),
                   need);
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
        take_model(*workload, workload->dtype, need);
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
    const Moment moment = moment_of_most(need);
    return fmt::format("a rank needs about {} GiB of memory when backward {}, and {} has {}: {}{}",
                       gib_text(need.most()),
                       moment == Moment::begins ? "begins"
                       : moment == Moment::ends ? "ends"
                                                : "computes a block again",
                       device_of(scenario)->name, gib_text(*need.device), parts_text(need, moment),
                       need.optimizer_state ? "" : "; what the optimizer keeps is not known");
}

}  // namespace bucketwise
