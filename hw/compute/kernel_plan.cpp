#include "hw/compute/kernel_plan.h"

#include <algorithm>
#include <variant>

#include "sim/base/invariant.h"

namespace bucketwise {
namespace {

class Planner {
  public:
    Planner(const Workload& workload, const std::optional<Model>& model)
        : workload_(workload), model_(model), written_(workload.gradients.size(), false) {
        for (const Gradient& gradient : workload.gradients) {
            plan_.columns.push_back(std::min(gradient.numel, widest_pattern));
        }
    }

    KernelPlan plan() && {
        for (const TimedOperation& operation : workload_.forward) {
            plan_.forward.push_back(call_of(operation));
        }
        std::size_t ready = 0;
        for (const TimedOperation& operation : workload_.backward) {
            plan_.backward.push_back(call_of(operation));
            KernelCall& call = plan_.backward.back();
            if (operation.source) {
                write_parameters(*operation.source, call);
            }
            // Gradients that no operation of a model wrote: only their readiness is known.
            for (std::int32_t k = 0; k < operation.ready_count; ++k) {
                write_once(workload_.readiness[ready++], call);
            }
        }
        return std::move(plan_);
    }

  private:
    [[nodiscard]] const Operation& operation_of(const OperationPass& source) const {
        invariant(model_.has_value(), "an operation with a source has a model");
        return model_->operations[static_cast<std::size_t>(source.operation)];
    }

    KernelCall call_of(const TimedOperation& timed) const {
        KernelCall call;
        if (!timed.source) {
            call.filler = timed.device;
            return call;
        }
        const Operation& operation = operation_of(*timed.source);
        call.pass = timed.source->pass;
        call.product = operation.product;
        if (operation.product) {
            call.weight = parameter_of_product(operation);
        } else {
            call.streamed_elements = work_of(operation, call.pass).elements;
        }
        return call;
    }

    [[nodiscard]] std::optional<std::int32_t> parameter_of_product(
        const Operation& operation) const {
        const MatrixProduct& product = *operation.product;
        for (const std::int32_t parameter : operation.parameters) {
            if (product.count == 1 && numel_of(parameter) == product.k * product.n) {
                return parameter;
            }
        }
        return std::nullopt;
    }

    [[nodiscard]] std::int64_t numel_of(std::int32_t gradient) const {
        return workload_.gradients[static_cast<std::size_t>(gradient)].numel;
    }

    void write_parameters(const OperationPass& source, KernelCall& call) {
        if (source.pass != Pass::weight_gradient) {
            return;
        }
        for (const std::int32_t parameter : operation_of(source).parameters) {
            const auto index = static_cast<std::size_t>(parameter);
            if (call.weight == parameter && !written_[index]) {
                written_[index] = true;
                call.weight_gradient = parameter;
                plan_.columns[index] = call.product->n;
            } else if (written_[index]) {
                call.gradients.push_back({parameter, GradientWrite::again});
            } else {
                write_once(parameter, call);
            }
        }
    }

    void write_once(std::int32_t gradient, KernelCall& call) {
        const auto index = static_cast<std::size_t>(gradient);
        if (!written_[index]) {
            written_[index] = true;
            call.gradients.push_back({gradient, GradientWrite::pattern});
        }
    }

    const Workload& workload_;
    const std::optional<Model>& model_;
    KernelPlan plan_;
    std::vector<bool> written_;  // by gradient: an earlier operation of backward computes it
};

}  // namespace

std::optional<Model> model_behind(const Scenario& scenario) {
    if (const auto* workload = std::get_if<ModelWorkload>(&scenario.workload)) {
        return model_of(*workload);
    }
    return std::nullopt;
}

KernelPlan plan_kernels(const Workload& workload, const std::optional<Model>& model) {
    return Planner(workload, model).plan();
}

}  // namespace bucketwise
