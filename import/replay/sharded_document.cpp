#include <algorithm>
#include <map>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "import/replay/scenario_document.h"
#include "import/replay/step_document.h"
#include "sim/scenario/sharding_input.h"

namespace bucketwise {
namespace {

class ShardedDocumentWriter : public StepDocument {
  public:
    ShardedDocumentWriter(const TracedRun& run, const TracedSharding& sharding, Findings& findings)
        : StepDocument(run, findings), sharding_(sharding) {
        find_copy_rate();
        find_issue();
        find_late_share();
        begin_with_batch();
    }

    [[nodiscard]] Duration late() const { return late_; }

    Json json() {
        return document({{"gradients", gradients_json()}}, sharding_.ranks,
                        {{"strategy", name_of(sharding_.request.strategy)},
                         {"sharding", sharding_json(sharding_.request)}},
                        [](const StepMark& mark) { return mark.host_waits; });
    }

  private:
    // A group whose backward ends only with all of it has the batch as its input. The simulator
    // expects that group at the beginning of forward.
    void begin_with_batch() {
        const std::vector<std::int32_t>& last = run_.first().shards.left_last;
        const auto first = std::ranges::find_if(typical_.forward, [&](const StepMark& mark) {
            return std::ranges::find(last, mark.module) != last.end();
        });
        if (first != typical_.forward.end()) {
            std::for_each(typical_.forward.begin(), first,
                          [&](StepMark& mark) { mark.module = first->module; });
        }
    }

    // The link is fitted to all collectives, so some that block the host take less than on it. The
    // difference reduces the lateness of the others.
    void find_late_share() {
        Duration more{0};
        Duration less{0};
        for_each_mark([&](const StepMark& mark) {
            if (mark.stall > Duration{0} && is_own(mark)) {
                const Duration wire = on_link(mark);
                more += std::max(mark.stall - wire, Duration{0});
                less += std::max(wire - mark.stall, Duration{0});
            }
        });
        late_share_ = more > less ? 1 - to_us(less) / to_us(more) : 0;
    }

    // One of FSDP2's collectives.
    [[nodiscard]] bool is_own(const StepMark& mark) const {
        const TracedCollective* const collective = run_.first().collective_of(mark);
        return collective != nullptr && sharding_.has(*collective);
    }

    [[nodiscard]] Duration on_link(const StepMark& mark) const {
        return sharding_.on_link(run_.first(), *run_.first().collective_of(mark));
    }

    // Host time to issue a collective, without the launch of the copy before it.
    void find_issue() {
        std::vector<Duration> issues;
        for_each_mark([&](const StepMark& mark) {
            if (mark.kind == MarkKind::collective && run_.rank().has_device) {
                const Duration copy = is_gathered_ahead(mark) ? copy_launch_ : Duration{0};
                issues.push_back(std::max(mark.host - copy, Duration{0}));
            }
        });
        if (!issues.empty()) {
            host_issue_ = median(std::move(issues));
        }
    }

    void find_copy_rate() {
        Duration time{0};
        for_each_mark([&](const StepMark& mark) {
            time += mark.kind == MarkKind::copy_shards ? mark.device : Duration{0};
        });
        if (time <= Duration{0} || sharding_.copied.count <= 0) {
            return;
        }
        copy_gb_per_s_ = static_cast<double>(sharding_.copied.count) / to_us(time) / 1e3;
        findings_.found("copies", "{:.1f} MiB into and out of collectives' buffers, at {:.1f} GB/s",
                        to_mib(sharding_.copied), *copy_gb_per_s_);
    }

    // By parameter: group by group, in each the reverse of readiness.
    [[nodiscard]] Json gradients_json() const {
        Json list = Json::array();
        for (const TracedShardGroup& group : sharding_.groups) {
            for (auto i = group.gradients.rbegin(); i != group.gradients.rend(); ++i) {
                const Gradient& gradient = sharding_.gradients[*i];
                list.push_back(gradient_json(gradient));
                if (gradient.rows > 0) {
                    list.back()["shape"] = {gradient.rows, gradient.numel / gradient.rows};
                }
            }
        }
        return list;
    }

    // An operation's name begins with the module of its group.
    [[nodiscard]] std::string name_in(std::int32_t module, const std::string& name) const {
        return fmt::format("{} {}", is_root(module) ? "(root)" : group_of(module)->module, name);
    }
    [[nodiscard]] bool is_root(std::int32_t module) const {
        const TracedShardGroup* const group = group_of(module);
        return group == nullptr || group->module.empty();
    }
    [[nodiscard]] const TracedShardGroup* group_of(std::int32_t module) const {
        return sharding_.group_of(module, run_.first().shards);
    }

    Json operations_json(const std::vector<StepMark>& marks) override {
        Json list = Json::array();
        for (const StepMark& mark : marks) {
            add_stall(mark, list);
            for (auto& [module, left] : gathering_) {
                left -= mark.device + mark.stall;
            }
            if (mark.is_copy() || mark.kind == MarkKind::collective ||
                mark.kind == MarkKind::beside) {
                carry_ += mark.host - simulated_host(mark);
            } else if (mark.kind == MarkKind::ready && ready_ < sharding_.gradients.size()) {
                const std::string& gradient = sharding_.gradients[ready_++].name;
                const std::string name =
                    is_root(mark.module) ? name_in(mark.module, gradient) : gradient;
                list.push_back(operation_json(name + " is ready", carried(mark.host), mark.device));
                tell_recomputed(mark, list);
                list.back()["ready"] = {gradient};
            } else if (mark.host > Duration{0} || mark.device > Duration{0}) {
                list.push_back(operation_json(name_in(mark.module, mark.name), carried(mark.host),
                                              mark.device));
                tell_recomputed(mark, list);
            }
            if (mark.host_waits) {
                list.push_back(host_wait_json(name_in(mark.module, "the host waits"), mark));
            }
        }
        return list;
    }

    // Gathered on streams of their own, on which the copy in is launched, too.
    [[nodiscard]] bool is_gathered_ahead(const StepMark& mark) const {
        return is_own(mark) && run_.first().collective_of(mark)->gathers() &&
               !sharding_.request.asynchronous_unshard && copy_gb_per_s_;
    }

    // All micro-steps have the same operations; a collective of the last one alone counts once.
    [[nodiscard]] Duration late_for(const StepMark& mark) const {
        const TracedCollective& collective = *run_.first().collective_of(mark);
        const ShardingRequest& request = sharding_.request;
        const bool once = !collective.gathers() &&
                          (request.gradient_sync == MicroSteps::last ||
                           (!collective.scatters() && request.all_reduce == MicroSteps::last));
        const Duration late = std::max(mark.stall - on_link(mark), Duration{0});
        return duration_from_us(late_share_ * to_us(late)) / (once ? run_.first().micro_steps : 1);
    }

    // Stalls beyond the wire's time are waits for late ranks.
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
            mark.is_copy() || is_gathered_ahead(mark) ? copy_launch_ : Duration{0};
        return is_own(mark) ? copy + host_issue_.value_or(Duration{0}) : copy;
    }

    const TracedSharding& sharding_;
    std::size_t ready_ = 0;
    // Groups that are gathered while the host computes, with the wire time left.
    std::map<std::int32_t, Duration> gathering_ = {};
    double late_share_ = 0;
    Duration late_{0};  // waits for late ranks in collectives that block the host
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
            "each collective blocks the host: its waits beyond the wire's time, {:.3f} ms a step, "
            "are for late ranks, and kept in place as time of the host",
            to_ms(late));
    }
    return {std::move(json), late};
}

}  // namespace bucketwise
