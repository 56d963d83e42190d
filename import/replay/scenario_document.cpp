#include "import/replay/scenario_document.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "import/replay/bucket_caps.h"
#include "import/run/typical_step.h"
#include "sim/base/json_output.h"
#include "sim/base/transformed.h"
#include "sim/plan/cap.h"
#include "sim/text/passed_on.h"

namespace bucketwise {
namespace {

Bytes whole_size(const std::vector<Gradient>& gradients) {
    Bytes whole;
    for (const Gradient& gradient : gradients) {
        whole += gradient.size();
    }
    return whole;
}

void find_copy_rate(const TracedRun& run, const std::vector<Gradient>& gradients,
                    TypicalStep& typical, Findings& findings) {
    Duration time{0};
    Bytes bytes;
    std::size_t in = 0;
    std::size_t back = 0;
    for (const StepMark& mark : typical.backward) {
        std::size_t* const next = mark.kind == MarkKind::copy_in     ? &in
                                  : mark.kind == MarkKind::copy_back ? &back
                                                                     : nullptr;
        if (next != nullptr && *next < gradients.size()) {
            bytes += gradients[(*next)++].size();
            time += mark.device;
        }
    }
    if (run.first().batched_copies) {
        bytes = ((in > 0 ? 1 : 0) + (back > 0 ? 1 : 0)) * whole_size(gradients);
        findings.found("batched copies",
                       "a bucket's gradients are copied at once: batched_grad_copy");
    }
    if (time > Duration{0} && bytes.count > 0) {
        typical.copy_gb_per_s = static_cast<double>(bytes.count) / to_us(time) / 1e3;
        findings.found("copies", "{} into buckets, {} out of them; {:.1f} GB/s{}", in, back,
                       *typical.copy_gb_per_s,
                       run.rank().has_device
                           ? fmt::format(", {:.1f} us of the host each", to_us(typical.copy_launch))
                           : "");
    }
    // What loops of one's own divide in place is not copied, either.
    typical.views = back == 0 && (run.first().is_ddp || in > 0);
    if (typical.views && run.first().is_ddp) {
        findings.found("views", "nothing is copied out of buckets: gradient_as_bucket_view");
    }
}

class ScenarioDocument {
  public:
    ScenarioDocument(const TracedRun& run, const std::vector<Gradient>& gradients,
                     const Workload& model, Findings& findings)
        : run_(run),
          gradients_(gradients),
          model_(model),
          findings_(findings),
          typical_(typical_step(run)) {
        find_copy_rate(run, gradients, typical_, findings);
    }

    Json json(std::int64_t ranks) {
        Json groups = buffers_json();
        Json sync = sync_json(groups.empty());
        Json workload{{"gradients", gradients_json()}};
        add_unless_empty(workload, "buffers", groups);
        workload["forward_operations"] = operations_json(typical_.forward, false);
        workload["backward_operations"] = operations_json(typical_.backward, true);
        add_optional(workload, "collective_issue_us", typical_.host_issue, rounded_us);
        add_optional(workload, "copy_gb_per_s", typical_.copy_gb_per_s,
                     [](double rate) { return std::clamp(rate, 1e-6, 1e6); });
        if (run_.rank().has_device) {
            workload["copy_launch_us"] = rounded_us(typical_.copy_launch);
        } else {
            workload["host_is_device"] = true;
        }
        Json step = step_json(workload);
        add_if(run_.first().micro_steps > 1, step, "accumulation", run_.first().micro_steps);
        Json document{{"name", scenario_name(run_.rank().file)},
                      {"workload", std::move(workload)},
                      {"cluster", {{"ranks", ranks}}},
                      {"sync", std::move(sync)},
                      {"step", std::move(step)}};
        if (run_.rank_spread) {
            document["variation"] = {{"rank_spread", *run_.rank_spread}};
        }
        return document;
    }

  private:
    // The optimizer: what it takes, or, where the host or the device waits in it, all it does.
    Json step_json(Json& workload) {
        const Duration host = run_.typical(&TracedStep::optimizer_host);
        const auto waits = [](const StepMark& mark) {
            return mark.host_waits || mark.stall > Duration{0} || mark.after != 0 ||
                   mark.kind == MarkKind::beside;
        };
        if (std::ranges::any_of(typical_.optimizer, waits)) {
            Duration listed{0};
            for (const StepMark& mark : typical_.optimizer) {
                listed += mark.host + mark.until_wait;
            }
            Json operations = operations_json(typical_.optimizer, false);
            operations.push_back(operation_json("until the next step", carried(host - listed)));
            workload["optimizer_operations"] = std::move(operations);
            return Json::object();
        }
        Json step{{"optimizer_ms", rounded_ms(run_.typical(&TracedStep::optimizer_device))}};
        if (run_.rank().has_device) {
            step["optimizer_launch_ms"] = rounded_ms(carried(host));
        }
        return step;
    }

    [[nodiscard]] Json gradients_json() const {
        std::vector<std::size_t> order(gradients_.size());  // by parameter
        if (model_.readiness.empty()) {
            std::iota(order.rbegin(), order.rend(), 0);
        }
        for (std::size_t i = 0; i < model_.readiness.size(); ++i) {
            order[static_cast<std::size_t>(model_.readiness[i])] = i;
        }
        return json_list(order, [&](std::size_t i) {
            const Gradient& gradient = gradients_[i];
            Json json{{"name", gradient.name},
                      {"numel", gradient.numel},
                      {"dtype", name_of(gradient.dtype)}};
            add_if(std::ranges::find(alone_, i) != alone_.end(), json, "sparse", true);
            return json;
        });
    }

    // The broadcasts of buffers, and the copies that follow each.
    [[nodiscard]] Json buffers_json() const {
        Json groups = Json::array();
        std::vector<std::int64_t> copies;
        for (const StepMark& mark : typical_.forward) {
            if (mark.kind == MarkKind::copy_buffer) {
                copies.push_back(mark.bytes);
            }
        }
        std::size_t next = 0;
        for (const TracedCollective& collective : run_.first().collectives) {
            if (!collective.sends_buffers()) {
                continue;
            }
            const std::int64_t bytes = collective.bytes.count;
            if (bytes <= 0) {
                findings_.missing("buffers", "a broadcast whose size no event tells is left out")
                    .weakens = Weakens::scenario;
                continue;
            }
            std::int64_t tensors = 0;
            for (std::int64_t left = bytes; next < copies.size() && left > 0; ++next) {
                left -= copies[next];
                ++tensors;
            }
            groups.push_back({{"bytes", bytes}, {"tensors", std::max<std::int64_t>(tensors, 1)}});
            findings_.found("buffers", "a broadcast of {} {}({} bytes){}", collective.elements,
                            collective.dtype.empty() ? "" : collective.dtype + " ", bytes,
                            tensors > 0 ? fmt::format(", copied back as {} tensors", tensors) : "");
        }
        return groups;
    }

    // The operations of a pass. On a device, host time that copies and collectives took beyond what
    // is simulated of them is carried to the operations that follow.
    Json operations_json(const std::vector<StepMark>& marks, bool backward) {
        Json list = Json::array();
        std::size_t ready = 0;
        const StepMark* last_beside = nullptr;  // if it is what was listed last
        for (const StepMark& mark : marks) {
            if (mark.kind == MarkKind::beside) {
                add_beside(mark, last_beside, list);
                last_beside = mark.host_waits ? nullptr : &mark;
                add_host_wait(mark, list);
                continue;
            }
            last_beside = nullptr;
            const bool collective = mark.kind == MarkKind::collective;
            const bool stalls = mark.stall > Duration{0};
            if (stalls) {
                list.push_back(operation_json(
                    stall_name, mark.is_copy() ? Duration{0} : carried(mark.host), mark.stall));
                list.back()["stream"] = others_stream;
                list.back()["after"] = {"compute"};
            }
            if ((mark.is_copy() || collective) && awaits(mark)) {
                list.push_back(operation_json("after other streams", Duration{0}));
                list.back()["after"] = awaited_by(mark);
            }
            if (mark.is_copy() || collective) {
                const Duration simulated = mark.is_copy() ? typical_.copy_launch
                                           : is_simulated(run_, mark)
                                               ? typical_.host_issue.value_or(Duration{0})
                                               : Duration{0};
                carry_.add(run_.rank().has_device ? mark.host - simulated : Duration{0});
            } else if (!mark.is_nothing()) {
                list.push_back(operation_json(mark.name, stalls ? Duration{0} : carried(mark.host),
                                              mark.device));
                if (awaits(mark)) {
                    list.back()["after"] = awaited_by(mark);
                }
            }
            if (mark.kind == MarkKind::ready && backward) {
                const std::string& gradient = gradients_[ready++].name;
                list.back()["name"] = gradient + " is ready";
                list.back()["ready"] = {gradient};
            }
            add_host_wait(mark, list);
        }
        return list;
    }

    void add_host_wait(const StepMark& mark, Json& list) {
        if (mark.host_waits) {
            list.push_back(operation_json("the host waits", carried(mark.until_wait)));
            list.back()["host_waits"] = true;
        }
    }

    // What runs on a side stream. What is launched there right after another, and waits for nothing
    // else, is part of that one, which begins when the first is launched.
    void add_beside(const StepMark& mark, const StepMark* last, Json& list) {
        if (last != nullptr && last->stream == mark.stream && !mark.after_compute) {
            const double device_us = list.back()["device_us"];
            list.back()["device_us"] =
                std::round((device_us + rounded_us(mark.beside)) * 1e3) / 1e3;
            carry_.add(mark.host);
            return;
        }
        list.push_back(operation_json(mark.name, carried(mark.host), mark.beside));
        list.back()["stream"] = stream_name(mark.stream);
        if (mark.after_compute) {
            list.back()["after"] = {"compute"};
        }
    }

    static bool awaits(const StepMark& mark) { return mark.stall > Duration{0} || mark.after != 0; }
    [[nodiscard]] Json awaited_by(const StepMark& mark) const {
        Json streams = Json::array();
        if (mark.after != 0) {
            streams.push_back(stream_name(mark.after));
        }
        if (mark.stall > Duration{0}) {
            streams.push_back(others_stream);
        }
        return streams;
    }
    [[nodiscard]] const std::string& stream_name(std::int32_t stream) const {
        return run_.first().side_streams[static_cast<std::size_t>(stream - 1)];
    }

    Duration carried(Duration host) { return carry_.with(host); }

    Json sync_json(bool without_buffers) {
        const TracedStep& step = run_.first();
        const std::vector<const TracedCollective*> found = reductions(run_, step);
        if (const std::optional<Strategy> strategy = strategy_of(found)) {
            findings_.found("strategy",
                            "an all-reduce {}, by no DistributedDataParallel; --set "
                            "/sync/strategy=ddp or bucketed tells what buckets would do",
                            *strategy == Strategy::overlap ? "for each gradient as it becomes ready"
                            : *strategy == Strategy::naive ? "for each gradient after backward"
                                                           : "of everything after backward");
            return {{"strategy", name_of(*strategy)}};
        }
        Json sync{{"strategy", "ddp"}};
        add_if(typical_.views, sync, "views", true);
        add_if(step.batched_copies, sync, "fused_copies", true);
        add_if(without_buffers, sync, "broadcast_buffers", false);
        if (found.empty()) {
            findings_.assumed("buckets", "DistributedDataParallel's default caps");
            return sync;
        }
        const DType element = *travelling_dtype(*found.front());
        if (step.hook_casts && (element == DType::float16 || element == DType::bfloat16)) {
            sync["comm_hook"] = element == DType::float16 ? "fp16" : "bf16";
            findings_.found("comm hook", "gradients travel as {}", name_of(element));
        }
        if (!step.is_ddp && step.sharding.empty()) {
            findings_
                .assumed("strategy",
                         "no reducer of DistributedDataParallel was seen at work; the "
                         "all-reduces are taken for its")
                .weakens = Weakens::scenario;
        }
        add_caps(found, sync);
        return sync;
    }

    // Of loops that reduce gradients one by one, or all when backward is done.
    [[nodiscard]] std::optional<Strategy> strategy_of(
        const std::vector<const TracedCollective*>& found) const {
        const TracedStep& step = run_.first();
        if (step.is_ddp || !step.sharding.empty() || found.empty()) {
            return std::nullopt;
        }
        const std::size_t count = gradients_.size();
        const bool after = std::ranges::all_of(found, [&](const TracedCollective* reduction) {
            return reduction->ready_before == count && !reduction->in_hook;
        });
        if (after) {
            return found.size() == 1       ? std::optional(Strategy::flat)
                   : found.size() == count ? std::optional(Strategy::naive)
                                           : std::nullopt;
        }
        const bool as_ready = std::ranges::equal(found, gradients_, {}, &TracedCollective::elements,
                                                 &Gradient::numel);
        return as_ready && count > 1 ? std::optional(Strategy::overlap) : std::nullopt;
    }

    // The caps, and what of them PyTorch's version and the search for unused parameters decide.
    void add_caps(const std::vector<const TracedCollective*>& found, Json& sync) {
        add_if(run_.unused_map, sync, "find_unused_parameters", true);
        const auto buckets = transformed(found, &TracedCollective::elements);
        const TracedCaps caps = caps_of(gradients_, buckets, run_.unused_map);
        alone_ = caps.alone;
        add_optional(sync, "bucket_cap_mib", caps.sync.bucket_cap.named(), typed_mib);
        add_if(!caps.sync.explicit_cap_sets_first, sync, "pytorch_version", "1.13");
        for (const Bytes cap : caps.sync.bucket_cap_list) {
            sync["bucket_cap_mib_list"].push_back(typed_mib(cap));
        }
        if (!caps.explained) {
            findings_.missing("buckets", "{}", caps.text).weakens = Weakens::scenario;
        } else if (buckets.size() > 1) {
            findings_.found("buckets", "{}", caps.text);
        } else {
            // Any cap that is large enough gives one bucket.
            findings_.assumed("buckets", "{}", caps.text);
        }
    }

    const TracedRun& run_;
    const std::vector<Gradient>& gradients_;  // by readiness
    const Workload& model_;                   // as the user knows them
    Findings& findings_;
    TypicalStep typical_;
    std::vector<std::size_t> alone_ = {};  // gradients with buckets of their own
    CarriedTime carry_ = {};
};

}  // namespace

Json scenario_document(const TracedRun& run, std::int64_t ranks,
                       const std::vector<Gradient>& gradients, const Workload& model,
                       Findings& findings) {
    return ScenarioDocument(run, gradients, model, findings).json(ranks);
}

}  // namespace bucketwise
