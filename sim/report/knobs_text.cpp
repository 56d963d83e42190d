#include "sim/report/knobs_text.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "sim/base/json_output.h"
#include "sim/report/number_text.h"
#include "sim/report/prediction_json.h"
#include "sim/report/report.h"
#include "sim/report/sharding_text.h"
#include "sim/report/verdict.h"
#include "sim/scenario/recompute_input.h"
#include "sim/scenario/sharding_input.h"

namespace bucketwise {
namespace {

bool reduces_once(const KnobSetting& setting) {
    return setting.micro_steps > 1 && setting.sharding &&
           setting.sharding->gradient_sync == MicroSteps::last;
}

const ModelWorkload& model_of_knobs(const Scenario& scenario) {
    return std::get<ModelWorkload>(scenario.workload);
}

std::string micro_batch_cell(const KnobSetting& setting) {
    return setting.micro_steps == 1
               ? std::to_string(setting.micro_batch)
               : fmt::format("{} x {}", setting.micro_batch, setting.micro_steps);
}

std::string_view knob_strategy(const Scenario& scenario, const KnobSetting& setting) {
    return setting.sharding ? name_of(setting.sharding->strategy)
                            : strategy_of(with_knobs(scenario, setting));
}

std::string knob_row_text(const Scenario& scenario, const KnobRow& row) {
    return fmt::format("{}: {} per step, {} at most", knob_setting_text(scenario, row.setting),
                       ms_text(row.step), memory_text(row.memory.most()));
}

std::string of_device_text(const KnobRow& row) {
    return row.memory.device ? fmt::format(" of {}", memory_text(*row.memory.device)) : "";
}

// At most a dozen rows, evenly, with the fastest and the least memory within 1 % of it.
std::vector<std::size_t> shown_knobs(const KnobSearch& search) {
    constexpr std::size_t most = 12;
    std::vector<std::size_t> shown;
    const std::size_t every = (search.frontier.size() + most - 1) / most;
    for (std::size_t i = 0; i < search.frontier.size(); ++i) {
        if (i % every == 0 || i == search.fastest || i == search.least_memory) {
            shown.push_back(i);
        }
    }
    return shown;
}

std::string notes_text(const KnobSearch& search) {
    std::string text;
    for (const std::string& note : search.notes) {
        text += fmt::format("  Note: {}.\n", note);
    }
    return text;
}

std::string sharding_cell(const KnobSetting& setting) {
    return !setting.sharding
               ? ""
               : setting_label(*setting.sharding) + (reduces_once(setting) ? ", reduced once" : "");
}

std::string frontier_table(const Scenario& scenario, const KnobSearch& search) {
    const MemoryUnit unit = unit_for(search.frontier.back().memory.most());
    std::vector<std::vector<std::string>> cells;
    for (const std::size_t i : shown_knobs(search)) {
        const KnobRow& row = search.frontier[i];
        cells.push_back({recompute_text(row.setting.recompute), micro_batch_cell(row.setting),
                         std::string(knob_strategy(scenario, row.setting)),
                         sharding_cell(row.setting), three_digits(to_ms(row.step)),
                         unit.number(row.memory.most()),
                         marks_text({{i == search.fastest, "fastest"},
                                     {i == search.least_memory, "least within 1 %"},
                                     {row.setting == search.own.setting, "yours"}})});
    }
    return text_table({{.heading = "    recompute", .left = true},
                       {"batch"},
                       {.heading = "strategy", .left = true},
                       {.heading = "setting", .left = true},
                       {"step (ms)"},
                       {fmt::format("memory ({})", unit.name)},
                       {.heading = "", .left = true}},
                      cells);
}

Json knob_row_json(const Scenario& scenario, const KnobRow& row) {
    Json json{{"activation_checkpointing", recompute_type().write(row.setting.recompute)},
              {"batch", row.setting.micro_batch},
              {"accumulation", row.setting.micro_steps},
              {"strategy", knob_strategy(scenario, row.setting)},
              {"step_ms", to_ms(row.step)},
              {"memory", to_json(row.memory)}};
    add_optional(json, "sharding", row.setting.sharding, sharding_json);
    return json;
}

}  // namespace

std::string recompute_text(const std::optional<Recompute>& recompute) {
    if (!recompute) {
        return "none";
    }
    std::string text = recompute->keeps == CheckpointKeeps::operators ? "operators" : "full";
    if (recompute->every > 1) {
        text += recompute->every == 2 ? std::string(", every other block")
                                      : fmt::format(", one block in {}", recompute->every);
    }
    if (recompute->blocks) {
        text += fmt::format(", first {}", counted(*recompute->blocks, "block"));
    }
    return recompute->reentrant ? text + ", reentrant" : text;
}

std::string knob_setting_text(const Scenario& scenario, const KnobSetting& setting) {
    std::string text(knob_strategy(scenario, setting));
    if (setting.sharding) {
        text += " with " + setting_text(*setting.sharding) +
                (reduces_once(setting) ? ", reduced in the last micro-step" : "");
    }
    text += setting.recompute ? fmt::format(", recompute {}", recompute_text(setting.recompute))
                              : ", nothing recomputed";
    return text + fmt::format(", batch {}", micro_batch_cell(setting));
}

std::vector<ShardedSetting> knob_settings(const Scenario& scenario, const KnobSetting& setting) {
    const Scenario other = with_knobs(scenario, setting);
    std::vector<ShardedSetting> settings;
    if (other.sharding) {
        settings = sharded_settings(sharded_input(other));
    }
    if (setting.recompute) {
        settings = recompute_settings(*setting.recompute, step_input(other).workload, settings);
    }
    if (setting.micro_batch != model_of_knobs(scenario).input.batch) {
        ShardedSetting cut{
            "Micro-batches",
            {counted(setting.micro_batch, "sample") + " per rank" +
             (setting.micro_steps == 1 ? ", no accumulation"
                                       : fmt::format(", gradients accumulated over {} micro-steps",
                                                     setting.micro_steps))}};
        if (setting.micro_steps > 1 && !setting.sharding) {
            cut.lines.emplace_back("with model.no_sync():  # all micro-steps but the last");
        }
        settings.push_back(std::move(cut));
    }
    return settings;
}

std::string knobs_text(const Scenario& scenario, const KnobSearch& search) {
    std::string text = fmt::format("\n  Knobs crossed, {} tried, the same samples per step:\n",
                                   counted(static_cast<long long>(search.tried), "setting"));
    if (!search.fastest) {
        text +=
            fmt::format("    no setting fits{}: the smallest is {}\n",
                        of_device_text(search.smallest), knob_row_text(scenario, search.smallest));
        return text;
    }
    const KnobRow& fastest = search.frontier[*search.fastest];
    const bool keeps_own =
        search.own.fits() && search.own.step <= scaled(fastest.step, 1 + plateau_tolerance);
    if (keeps_own) {
        text += fmt::format("    as fast as any that fits, your own: {}{}\n",
                            knob_row_text(scenario, search.own), of_device_text(search.own));
    } else {
        text += fmt::format("    fastest that fits: {}{}\n", knob_row_text(scenario, fastest),
                            of_device_text(fastest));
    }
    if (!search.own.fits() && search.own.memory.fits()) {
        text += fmt::format("    your own leaves less than a twentieth free: {}\n",
                            knob_row_text(scenario, search.own));
    }
    if (search.least_memory != search.fastest) {
        text += fmt::format("    least memory within 1 %: {}\n",
                            knob_row_text(scenario, search.frontier[*search.least_memory]));
    }
    text += "\n" + frontier_table(scenario, search);
    text +=
        "  Memory leaves out the allocator's fragmentation; a twentieth of the device is kept "
        "free for it.\n";
    text += notes_text(search);
    if (!keeps_own) {
        text += settings_text(knob_settings(scenario, fastest.setting),
                              "Settings to type for the fastest of these");
    }
    return text;
}

Json to_json(const Scenario& scenario, const KnobSearch& search) {
    const auto of_row = [&](const KnobRow& row) { return knob_row_json(scenario, row); };
    Json json{{"tried", search.tried},
              {"own", of_row(search.own)},
              {"frontier", json_list(search.frontier, of_row)},
              {"notes", search.notes}};
    if (search.fastest) {
        json["fastest"] = *search.fastest;
        json["least_memory"] = *search.least_memory;
    } else {
        json["smallest"] = of_row(search.smallest);
    }
    return json;
}

}  // namespace bucketwise
