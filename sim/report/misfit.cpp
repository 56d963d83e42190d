#include "sim/report/misfit.h"

#include <optional>

#include <fmt/format.h>

#include "sim/base/error.h"
#include "sim/predict/strategy_comparison.h"
#include "sim/report/knobs_text.h"
#include "sim/report/number_text.h"
#include "sim/report/sharding_text.h"
#include "sim/scenario/memory_need.h"

namespace bucketwise {
namespace {

std::string whole_gib_text(Bytes bytes) {
    return fmt::format("{} GiB", three_digits(to_mib(bytes) / 1024));
}

std::string sharded_text(const Scenario& scenario, const StrategyRow& row) {
    const std::string memory = whole_gib_text(row.best.peak());
    if (!row.best.fits()) {
        return fmt::format(
            " Sharded over these {} it does not fit either: {} at least. More ranks, a smaller "
            "batch or checkpointed activations need less.",
            counted(scenario.group.ranks, "rank"), memory);
    }
    return fmt::format(" Sharded it fits, with {}: --strategy {} takes {} per step ({}).", memory,
                       name_of(row.strategy), ms_text(row.best.step()),
                       setting_text(row.best.sharded->request));
}

// The fastest sharded step; none: a step that cannot be sharded, such as a trace's.
std::optional<StrategyRow> fastest_sharded(const Scenario& scenario) {
    if (scenario.group.ranks == 1) {
        return std::nullopt;
    }
    try {
        return compare_strategies(scenario, {ComparedStrategy::fsdp}).front();
    } catch (const InputError&) {
        return std::nullopt;
    }
}

std::string fitting_text(const Scenario& scenario, const KnobSearch& search) {
    if (!search.fastest) {
        return fmt::format(
            " No setting of its knobs fits: {} needs {}{}. More ranks or shorter sequences need "
            "less.",
            knob_setting_text(scenario, search.smallest.setting),
            whole_gib_text(search.smallest.memory.most()),
            search.notes.empty() ? "" : "; " + search.notes.front());
    }
    const KnobRow& fastest = search.frontier[*search.fastest];
    return fmt::format(" The fastest that fits: {}, {} per step with {}.",
                       knob_setting_text(scenario, fastest.setting), ms_text(fastest.step),
                       whole_gib_text(fastest.memory.most()));
}

}  // namespace

Misfit misfit_of(const Scenario& scenario, const Progress& progress) {
    const Device* device = device_of(scenario);
    if (device == nullptr) {
        return {};
    }
    const MemoryNeed need = memory_need(scenario);
    if (need.fits()) {
        return {};
    }
    Misfit misfit{fmt::format("Does not fit: a rank needs about {}, and {} has {}.",
                              whole_gib_text(need.most()), device->name,
                              whole_gib_text(*need.device))};
    if (has_knobs(scenario)) {
        misfit.knobs = search_knobs(scenario, progress);
        misfit.text += fitting_text(scenario, *misfit.knobs);
    } else if (const auto sharded = fastest_sharded(scenario)) {
        misfit.text += sharded_text(scenario, *sharded);
    } else {
        misfit.text += " A smaller batch or a sharded step needs less.";
    }
    return misfit;
}

std::string misfit_text(const Scenario& scenario) {
    return scenario.sharding ? "" : misfit_of(scenario).text;
}

}  // namespace bucketwise
