#include "hw/rank/sharded_rank.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "hw/compute/elements.h"
#include "hw/compute/gradient_pattern.h"
#include "sim/base/invariant.h"
#include "sim/base/transformed.h"

namespace bucketwise {
namespace {

bool accumulates_unreduced(const Scenario& scenario) {
    return scenario.step.accumulation > 1 &&
           scenario.sharding->strategy != ShardedStrategy::zero3 &&
           scenario.sharding->gradient_sync == MicroSteps::last;
}

// Gradients wait to be reduced in their own dtype or, where several backwards add to them, in the
// dtype of the reduction.
Workload as_written(Workload workload, const ShardPlan& plan, bool accumulates) {
    for (std::size_t i = 0; i < workload.gradients.size(); ++i) {
        const ShardGroup& group = plan.groups[plan.group_of[i]];
        workload.gradients[i].dtype = accumulates ? group.reduced_dtype : group.gradient_dtype;
    }
    return workload;
}

ShardedLayout layout_of_all(const Workload& workload, std::int64_t ranks, Cut cut) {
    std::vector<std::int32_t> all(workload.gradients.size());
    std::iota(all.begin(), all.end(), 0);
    return layout_of(all, workload.gradients, ranks, cut);
}

std::vector<Gradient> own_parts(const Workload& workload, const ShardedLayout& all,
                                std::int64_t rank) {
    std::vector<Gradient> parts = workload.gradients;
    for (const ShardedParameter& of : all.parameters) {
        parts[static_cast<std::size_t>(of.parameter)].numel = of.numel_of(rank);
    }
    return parts;
}

DType narrower(DType a, DType b) {
    return significant_bits(a) < significant_bits(b) ? a : b;
}

}  // namespace

ShardedRank::ShardedRank(const Scenario& scenario, const Workload& workload,
                         const ShardPlace& place)
    : place_(place),
      accumulation_(scenario.step.accumulation),
      accumulates_(accumulates_unreduced(scenario)),
      moves_one_by_one_(scenario.sharding->strategy == ShardedStrategy::zero3),
      cut_(scenario.sharding->strategy == ShardedStrategy::zero3 ? Cut::anywhere : Cut::rows),
      value_scale_(scale_within_float16(static_cast<int>(place.all()), accumulation_)),
      plan_(make_shard_plan(workload, *scenario.sharding, place.ranks)),
      workload_(as_written(workload, plan_, accumulates_)),
      all_(layout_of_all(workload, place.ranks, cut_)),
      own_gradients_(own_parts(workload, all_, place.rank)),
      kernel_plan_(plan_kernels(workload_, model_behind(scenario))) {}

void ShardedRank::begin_step(const ReplayedStep& step, std::int64_t number,
                             Communicate communicate) {
    if (moved_ != step.moves || !(plan_ == step.shards)) {
        take_moves(step);
        lay_out();
    }
    step_ = &step;
    communicate_ = communicate;
    number_ = number;
    parameters_number_ = number;
    for (const ShardedParameter& of : all_.parameters) {
        write_shard({of.parameter, parameters_number_, group_of(of.parameter).dtype},
                    of.first_of(place_.rank), of.numel_of(place_.rank));
    }
    prepare();
}

void ShardedRank::take_moves(const ReplayedStep& step) {
    plan_ = step.shards;
    moved_ = step.moves;
    moves_ = transformed(moved_, [&](const std::vector<std::int32_t>& parameters) {
        const ShardGroup& group = group_of(parameters.front());
        ShardMove move{.layout = layout_of(parameters, workload_.gradients, place_.ranks, cut_),
                       .dtype = group.dtype,
                       .gathered_dtype = group.gathered_dtype,
                       .reduced_dtype = group.reduced_dtype};
        if (place_.gathers_among_fewer()) {
            move.fewer = among_fewer(move.layout, place_.ranks, place_.fewer);
        }
        return move;
    });
}

Bytes ShardedRank::gathered_size(std::int32_t parameter) const {
    return all_.parameters[static_cast<std::size_t>(parameter)].part * place_.ranks *
           element_size(group_of(parameter).gathered_dtype);
}

Bytes ShardedRank::shard_size(std::int32_t parameter) const {
    return all_.parameters[static_cast<std::size_t>(parameter)].part *
           element_size(group_of(parameter).dtype);
}

float ShardedRank::backward_value(std::int64_t micro_step) const {
    const int value = rank_value(static_cast<int>(place_.of_all()), number_, micro_step);
    return value_scale_ * static_cast<float>(value);
}

// --- checks ---

StepCheck ShardedRank::check() {
    StepCheck check;
    for (const ShardedParameter& of : all_.parameters) {
        check_gathered(of.parameter, check);
        check_reduced(of.parameter, accumulation_, check);
    }
    return check;
}

StepCheck ShardedRank::run_checked(const ReplayedStep& step, std::int64_t number) {
    begin_step(step, number, Communicate::yes);
    set_out();
    StepCheck found;
    for (const ShardedCall& call : step.calls) {
        execute(call);
        check_after(call, found);
    }
    settle();
    const StepCheck left = check();
    found.largest_difference = std::max(found.largest_difference, left.largest_difference);
    if (found.wrong.empty()) {
        found.wrong = left.wrong;
    }
    return found;
}

// An all-gather that copies out itself has done so when it has been waited for.
void ShardedRank::check_after(const ShardedCall& call, StepCheck& check) {
    const auto copies_out = [&] {
        const auto collective = static_cast<std::size_t>(call.subject);
        return moves_one_by_one_ &&
               step_->program.collectives[collective].kind == CollectiveKind::all_gather;
    };
    const bool gathered =
        call.act == ShardedAct::gather_out || (call.act == ShardedAct::wait && copies_out());
    const bool reduced = call.act == ShardedAct::place && call.placing != Placing::keeps;
    if (!gathered && !reduced) {
        return;
    }
    for (const ShardedParameter& of : move(call.move).layout.parameters) {
        if (gathered) {
            check_gathered(of.parameter, check);
        } else {
            check_reduced(of.parameter, call.micro_step + 1, check);
        }
    }
}

void ShardedRank::check_gathered(std::int32_t parameter, StepCheck& check) {
    const ShardGroup& of = group_of(parameter);
    const Gradient& gradient = workload_.gradients[static_cast<std::size_t>(parameter)];
    check.add(check_known_parameter(gathered_values(parameter), of.gathered_dtype, gradient.numel,
                                    {parameter, parameters_number_, of.dtype}),
              "parameter " + gradient.name, "");
}

void ShardedRank::check_reduced(std::int32_t parameter, std::int64_t micro_steps,
                                StepCheck& check) {
    const ShardGroup& of = group_of(parameter);
    const auto index = static_cast<std::size_t>(parameter);
    const ShardedParameter& part = all_.parameters[index];
    const Gradient& gradient = workload_.gradients[index];
    const int ranks = static_cast<int>(place_.all());
    const double mean = double{value_scale_} * mean_rank_value(ranks, number_, micro_steps);
    const DType narrowest = narrower(narrower(of.dtype, of.reduced_dtype), gradient.dtype);
    check.add(check_gradient(own_gradient_values(parameter), of.dtype, part.numel_of(place_.rank),
                             kernel_plan_.columns[index], gradient_factor(parameter) * mean,
                             rounding_tolerance(ranks, accumulation_, narrowest),
                             part.first_of(place_.rank)),
              "gradient " + gradient.name, "the mean ");
}

}  // namespace bucketwise
