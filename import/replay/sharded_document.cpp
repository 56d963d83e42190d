#include "import/replay/sharded_document.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "import/replay/typical_step.h"
#include "sim/base/json_output.h"
#include "sim/scenario/sharding_input.h"

namespace bucketwise {
namespace {

// What nothing is called that FSDP2 shards.
constexpr const char* of_root = "(root)";
constexpr const char* late_name = "waiting for other ranks";

class ShardedDocument {
  public:
    ShardedDocument(const TracedRun& run, const TracedSharding& sharding, Findings& findings)
        : run_(run), sharding_(sharding), typical_(typical_step(run)) {
        find_copy_rate(findings);
    }

    [[nodiscard]] Duration late() const { return late_; }

    Json json() {
        const bool has_device = run_.rank().has_device;
        Json workload{{"gradients", gradients_json()}};
        workload["forward_operations"] = operations_json(typical_.forward);
        workload["backward_operations"] = operations_json(typical_.backward);
        add_optional(workload, "collective_issue_us", typical_.host_issue, rounded_us);
        add_optional(workload, "copy_gb_per_s", typical_.copy_gb_per_s,
                     [](double rate) { return std::clamp(rate, 1e-6, 1e6); });
        if (has_device) {
            workload["copy_launch_us"] = rounded_us(typical_.copy_launch);
        } else {
            workload["host_is_device"] = true;
        }
        Json step{{"optimizer_ms", rounded_ms(run_.typical(&TracedStep::optimizer_device))}};
        if (has_device) {
            step["optimizer_launch_ms"] =
                rounded_ms(carry_.with(run_.typical(&TracedStep::optimizer_host)));
        }
        add_if(run_.first().micro_steps > 1, step, "accumulation", run_.first().micro_steps);
        return {{"name", scenario_name(run_.rank().file)},
                {"workload", std::move(workload)},
                {"cluster", {{"ranks", sharding_.ranks}}},
                {"sync",
                 {{"strategy", name_of(sharding_.request.strategy)},
                  {"sharding", sharding_json(sharding_.request)}}},
                {"step", std::move(step)}};
    }

  private:
    void find_copy_rate(Findings& findings) {
        Duration time{0};
        for (const std::vector<StepMark>* pass : {&typical_.forward, &typical_.backward}) {
            for (const StepMark& mark : *pass) {
                time += mark.kind == MarkKind::copy_shards ? mark.device : Duration{0};
            }
        }
        if (time <= Duration{0} || sharding_.copied.count <= 0) {
            return;
        }
        typical_.copy_gb_per_s =
            static_cast<double>(sharding_.copied.count) / to_us(time) / 1e3;
        findings.found("copies", "{:.1f} MiB into and out of what is gathered and reduced, at {:.1f} GB/s",
                       to_mib(sharding_.copied), *typical_.copy_gb_per_s);
    }

    // By parameter: group by group, in each the reverse of readiness.
    [[nodiscard]] Json gradients_json() const {
        Json list = Json::array();
        for (const TracedShardGroup& group : sharding_.groups) {
            for (auto i = group.gradients.rbegin(); i != group.gradients.rend(); ++i) {
                const Gradient& gradient = sharding_.gradients[*i];
                Json json{{"name", gradient.name},
                          {"numel", gradient.numel},
                          {"dtype", name_of(gradient.dtype)}};
                if (gradient.rows > 0) {
                    json["shape"] = {gradient.rows, gradient.numel / gradient.rows};
                }
                list.push_back(std::move(json));
            }
        }
        return list;
    }

    // An operation belongs to the group whose module its name begins with.
    [[nodiscard]] std::string name_in(std::int32_t module, const std::string& name) const {
        const TracedShardGroup* const group = sharding_.group_of(module, run_.first().shards);
        const bool root = group == nullptr || group->module.empty();
        return fmt::format("{} {}", root ? of_root : group->module, name);
    }

    Json operations_json(const std::vector<StepMark>& marks) {
        Json list = Json::array();
        for (const StepMark& mark : marks) {
            add_stall(mark, list);
            if (mark.is_copy() || mark.kind == MarkKind::collective ||
                mark.kind == MarkKind::beside) {
                carry_.add(mark.host - simulated_host(mark));
            } else if (mark.kind == MarkKind::ready) {
                add_ready(mark, list);
            } else if (mark.host > Duration{0} || mark.device > Duration{0}) {
                list.push_back(operation_json(name_in(mark.module, mark.name),
                                              carry_.with(mark.host), mark.device));
            }
            if (mark.host_waits) {
                list.push_back(operation_json(name_in(mark.module, "the host waits"),
                                              carry_.with(mark.until_wait)));
                list.back()["host_waits"] = true;
            }
        }
        return list;
    }

    // What the wire does not explain is for ranks that are late.
    void add_stall(const StepMark& mark, Json& list) {
        const TracedCollective* const collective = run_.first().collective_of(mark);
        const Duration wire =
            collective == nullptr ? Duration{0} : sharding_.wire_of(run_.first(), *collective);
        if (mark.stall > wire) {
            list.push_back(operation_json(
                name_in(mark.module, collective == nullptr ? stall_name : late_name), Duration{0},
                mark.stall - wire));
            late_ += collective == nullptr ? Duration{0} : mark.stall - wire;
        }
    }

    [[nodiscard]] Duration simulated_host(const StepMark& mark) const {
        return !run_.rank().has_device   ? mark.host
               : mark.is_copy()          ? typical_.copy_launch
               : is_simulated(run_, mark) ? typical_.host_issue.value_or(Duration{0})
                                          : Duration{0};
    }

    void add_ready(const StepMark& mark, Json& list) {
        const std::string& gradient = sharding_.gradients[ready_++].name;
        const TracedShardGroup* const group = sharding_.group_of(mark.module, run_.first().shards);
        const bool root = group == nullptr || group->module.empty();
        const std::string name = root ? name_in(mark.module, gradient) : gradient;
        list.push_back(
            operation_json(name + " is ready", carry_.with(mark.host), mark.device));
        list.back()["ready"] = {gradient};
    }

    const TracedRun& run_;
    const TracedSharding& sharding_;
    TypicalStep typical_;
    std::size_t ready_ = 0;
    CarriedTime carry_ = {};
    Duration late_{0};  // ranks, that a collective waits for which blocks the host
};

}  // namespace

Json sharded_document(const TracedRun& run, const TracedSharding& sharding, Findings& findings) {
    ShardedDocument document(run, sharding, findings);
    Json json = document.json();
    if (document.late() > Duration{0}) {
        findings.assumed("waits in place",
                         "each collective blocks the host: what it waits beyond what the wire takes, "
                         "{:.3f} ms a step in the last micro-step, is for ranks that are late, and "
                         "kept in place as time of the host",
                         to_ms(document.late()));
    }
    return json;
}

}  // namespace bucketwise
