#include "import/replay/sharded_document.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "import/run/typical_step.h"
#include "sim/base/json_output.h"
#include "sim/scenario/sharding_input.h"

namespace bucketwise {
namespace {

// What nothing is called that FSDP2 shards.
constexpr const char* of_root = "(root)";
constexpr const char* late_name = "waiting for other ranks";

class ShardedDocumentWriter {
  public:
    ShardedDocumentWriter(const TracedRun& run, const TracedSharding& sharding, Findings& findings)
        : run_(run), sharding_(sharding), typical_(typical_step(run)) {
        find_copy_rate(findings);
        find_issue();
        find_late_share();
        begin_with_batch();
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
        Json step = step_json(workload);
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
    // A group whose backward ends only with all of it has the batch as its input. The simulator
    // takes it for that which forward begins with.
    void begin_with_batch() {
        const std::vector<std::int32_t>& last = run_.first().shards.left_last;
        const auto has_batch = [&](const StepMark& mark) {
            return std::ranges::find(last, mark.module) != last.end();
        };
        const auto first = std::ranges::find_if(typical_.forward, has_batch);
        for (auto mark = typical_.forward.begin(); first != typical_.forward.end() && mark != first;
             ++mark) {
            mark->module = first->module;
        }
    }

    // Some collectives that block the host take less than on the link, which is fitted to all: by
    // so much ranks are late for the others less.
    void find_late_share() {
        Duration more{0};
        Duration less{0};
        for (const std::vector<StepMark>* pass : {&typical_.forward, &typical_.backward}) {
            for (const StepMark& mark : *pass) {
                if (mark.stall > Duration{0} && is_own(mark)) {
                    const Duration wire = on_link(mark);
                    more += std::max(mark.stall - wire, Duration{0});
                    less += std::max(wire - mark.stall, Duration{0});
                }
            }
        }
        late_share_ = more > less ? 1 - to_us(less) / to_us(more) : 0;
    }

    // One of FSDP2's collectives.
    [[nodiscard]] bool is_own(const StepMark& mark) const {
        const TracedCollective* const collective = run_.first().collective_of(mark);
        return collective != nullptr && sharding_.has(*collective);
    }

    // What it takes there.
    [[nodiscard]] Duration on_link(const StepMark& mark) const {
        return sharding_.on_link(run_.first(), *run_.first().collective_of(mark));
    }

    // What issuing a collective takes the host, without the launch of the copy before it.
    void find_issue() {
        std::vector<Duration> issues;
        for (const std::vector<StepMark>* pass : {&typical_.forward, &typical_.backward}) {
            for (const StepMark& mark : *pass) {
                if (mark.kind == MarkKind::collective && run_.rank().has_device) {
                    const Duration copy =
                        is_gathered_ahead(mark) ? typical_.copy_launch : Duration{0};
                    issues.push_back(std::max(mark.host - copy, Duration{0}));
                }
            }
        }
        typical_.host_issue =
            issues.empty() ? std::nullopt : std::optional(median(std::move(issues)));
    }

    // What the optimizer takes, or, where the host waits in it, all it does.
    Json step_json(Json& workload) {
        const Duration host = run_.typical(&TracedStep::optimizer_host);
        if (std::ranges::any_of(typical_.optimizer, &StepMark::host_waits)) {
            Duration listed{0};
            for (const StepMark& mark : typical_.optimizer) {
                listed += mark.host + mark.until_wait;
            }
            Json operations = operations_json(typical_.optimizer);
            operations.push_back(operation_json("until the next step", carry_.with(host - listed)));
            workload["optimizer_operations"] = std::move(operations);
            return Json::object();
        }
        Json step{{"optimizer_ms", rounded_ms(run_.typical(&TracedStep::optimizer_device))}};
        if (run_.rank().has_device) {
            step["optimizer_launch_ms"] = rounded_ms(carry_.with(host));
        }
        return step;
    }

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
        typical_.copy_gb_per_s = static_cast<double>(sharding_.copied.count) / to_us(time) / 1e3;
        findings.found("copies",
                       "{:.1f} MiB into and out of what is gathered and reduced, at {:.1f} GB/s",
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
            for (auto& [module, left] : gathering_) {
                left -= mark.device + mark.stall;
            }
            if (mark.is_copy() || mark.kind == MarkKind::collective ||
                mark.kind == MarkKind::beside) {
                carry_.add(mark.host - simulated_host(mark));
            } else if (mark.kind == MarkKind::ready && ready_ < sharding_.gradients.size()) {
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

    // From streams of its own, on which its copy in is launched, too.
    [[nodiscard]] bool is_gathered_ahead(const StepMark& mark) const {
        return is_own(mark) && run_.first().collective_of(mark)->gathers() &&
               !sharding_.request.asynchronous_unshard && typical_.copy_gb_per_s;
    }

    // Once a step or in each micro-step, which all have the same operations.
    [[nodiscard]] Duration late_for(const StepMark& mark) const {
        const TracedCollective& collective = *run_.first().collective_of(mark);
        const ShardingRequest& request = sharding_.request;
        const bool once = !collective.gathers() &&
                          (request.gradient_sync == MicroSteps::last ||
                           (!collective.scatters() && request.all_reduce == MicroSteps::last));
        const Duration late = std::max(mark.stall - on_link(mark), Duration{0});
        return duration_from_us(late_share_ * to_us(late)) / (once ? run_.first().micro_steps : 1);
    }

    // What the wire does not explain is for ranks that are late.
    void add_stall(const StepMark& mark, Json& list) {
        if (mark.kind == MarkKind::copy_shards && !run_.rank().has_device) {
            add_late(mark, mark.stall - std::max(gathering_[mark.module], Duration{0}), list);
            return;
        }
        if (!is_own(mark)) {
            if (mark.stall > Duration{0}) {
                list.push_back(
                    operation_json(name_in(mark.module, stall_name), Duration{0}, mark.stall));
            }
            return;
        }
        if (const TracedCollective& one = *run_.first().collective_of(mark);
            one.gathers() && sharding_.request.asynchronous_unshard) {
            gathering_[one.module] = on_link(mark);
        }
        add_late(mark, late_for(mark), list);
    }

    void add_late(const StepMark& mark, Duration late, Json& list) {
        if (late > Duration{0}) {
            list.push_back(operation_json(name_in(mark.module, late_name), Duration{0}, late));
            late_ += late;
        }
    }

    [[nodiscard]] Duration simulated_host(const StepMark& mark) const {
        if (!run_.rank().has_device) {
            return mark.host;
        }
        const Duration copy =
            mark.is_copy() || is_gathered_ahead(mark) ? typical_.copy_launch : Duration{0};
        return is_own(mark) ? copy + typical_.host_issue.value_or(Duration{0}) : copy;
    }

    void add_ready(const StepMark& mark, Json& list) {
        const std::string& gradient = sharding_.gradients[ready_++].name;
        const TracedShardGroup* const group = sharding_.group_of(mark.module, run_.first().shards);
        const bool root = group == nullptr || group->module.empty();
        const std::string name = root ? name_in(mark.module, gradient) : gradient;
        list.push_back(operation_json(name + " is ready", carry_.with(mark.host), mark.device));
        list.back()["ready"] = {gradient};
    }

    const TracedRun& run_;
    const TracedSharding& sharding_;
    TypicalStep typical_;
    std::size_t ready_ = 0;
    CarriedTime carry_ = {};
    // Of groups that are gathered while the host computes: what the wire still takes.
    std::map<std::int32_t, Duration> gathering_ = {};
    double late_share_ = 0;
    Duration late_{0};  // ranks, that a collective waits for which blocks the host
};

}  // namespace

ShardedDocument sharded_document(const TracedRun& run, const TracedSharding& sharding,
                                 Findings& findings) {
    ShardedDocumentWriter document(run, sharding, findings);
    Json json = document.json();
    const Duration late = document.late() * run.first().micro_steps;
    if (late > Duration{0}) {
        findings.assumed(
            "waits in place",
            "each collective blocks the host: what it waits beyond what the wire takes, "
            "{:.3f} ms a step, is for ranks that are late, and kept in place as time of the host",
            to_ms(late));
    }
    return {std::move(json), late};
}

}  // namespace bucketwise
