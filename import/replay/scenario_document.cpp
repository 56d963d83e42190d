#include "import/replay/scenario_document.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "import/replay/bucket_caps.h"
#include "import/replay/step_document.h"
#include "import/run/traced_collectives.h"
#include "import/source/dtype_names.h"
#include "sim/base/json_output.h"
#include "sim/base/transformed.h"

namespace bucketwise {
namespace {

// The side stream that holds up computing under the name stall_name.
constexpr const char* others_stream = "others";

bool awaits(const StepMark& mark) {
    return mark.stall > Duration{0} || mark.after != 0;
}

class ScenarioDocument : public StepDocument {
  public:
    ScenarioDocument(const TracedRun& run, const std::vector<Gradient>& gradients,
                     const Workload& model, Findings& findings)
        : StepDocument(run, findings), gradients_(gradients), model_(model) {
        find_issue();
        find_copy_rate();
    }

    Json json(std::int64_t ranks) {
        Json buffers = buffers_json();
        Json sync = sync_json(buffers.empty());
        Json workload{{"gradients", gradients_json()}};
        add_unless_empty(workload, "buffers", buffers);
        Json json = document(std::move(workload), ranks, std::move(sync), [](const StepMark& mark) {
            return mark.host_waits || awaits(mark) || mark.kind == MarkKind::beside;
        });
        if (run_.rank_spread) {
            json["variation"] = {{"rank_spread", *run_.rank_spread}};
        }
        return json;
    }

  private:
    // A collective that the scenario has, too.
    [[nodiscard]] bool is_simulated(const StepMark& mark) const {
        const TracedCollective* const collective = run_.first().collective_of(mark);
        return collective != nullptr &&
               (collective->sends_buffers() ? collective->bytes.count > 0
                                            : is_reduction(run_, run_.first(), *collective) ||
                                                  is_unused_map(run_.first(), *collective));
    }

    void find_issue() {
        std::vector<Duration> issues;
        for_each_mark([&](const StepMark& mark) {
            if (is_simulated(mark)) {
                issues.push_back(run_.rank().has_device ? mark.host : mark.device);
            }
        });
        if (!issues.empty()) {
            host_issue_ = median(issues);
        }
    }

    void find_copy_rate() {
        Duration time{0};
        Bytes bytes;
        std::size_t in = 0;
        std::size_t back = 0;
        for (const StepMark& mark : typical_.backward) {
            std::size_t* const next = mark.kind == MarkKind::copy_in     ? &in
                                      : mark.kind == MarkKind::copy_back ? &back
                                                                         : nullptr;
            if (next != nullptr && *next < gradients_.size()) {
                bytes += gradients_[(*next)++].size();
                time += mark.device;
            }
        }
        if (run_.first().batched_copies) {
            bytes = Bytes{};
            for (const Gradient& gradient : gradients_) {
                bytes += ((in > 0 ? 1 : 0) + (back > 0 ? 1 : 0)) * gradient.size();
            }
            findings_.found("batched copies",
                            "a bucket's gradients are copied at once: batched_grad_copy");
        }
        if (time > Duration{0} && bytes.count > 0) {
            copy_gb_per_s_ = static_cast<double>(bytes.count) / to_us(time) / 1e3;
            findings_.found("copies", "{} into buckets, {} out of them; {:.1f} GB/s{}", in, back,
                            *copy_gb_per_s_,
                            run_.rank().has_device
                                ? fmt::format(", {:.1f} us of the host each", to_us(copy_launch_))
                                : "");
        }
        // A custom loop that divides gradients in place does not copy them either.
        views_ = back == 0 && (run_.first().is_ddp || in > 0);
        if (views_ && run_.first().is_ddp) {
            findings_.found("views", "nothing is copied out of buckets: gradient_as_bucket_view");
        }
    }

    [[nodiscard]] Json gradients_json() const {
        return json_list(by_parameter(model_.readiness, gradients_.size()), [&](std::size_t i) {
            Json json = gradient_json(gradients_[i]);
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

    // On a device, the host time of copies and collectives beyond what is simulated of them is
    // carried to the operations that follow.
    Json operations_json(const std::vector<StepMark>& marks) override {
        Json list = Json::array();
        std::size_t ready = 0;
        const StepMark* last_beside = nullptr;  // if the last operation of the list is its own
        for (const StepMark& mark : marks) {
            if (mark.kind == MarkKind::beside) {
                add_beside(mark, last_beside, list);
                last_beside = mark.host_waits ? nullptr : &mark;
            } else {
                last_beside = nullptr;
                add_operation(mark, list);
            }
            if (mark.kind == MarkKind::ready && &marks == &typical_.backward) {
                const std::string& gradient = gradients_[ready++].name;
                list.back()["name"] = gradient + " is ready";
                list.back()["ready"] = {gradient};
            }
            if (mark.host_waits) {
                list.push_back(host_wait_json("the host waits", mark));
            }
        }
        return list;
    }

    void add_operation(const StepMark& mark, Json& list) {
        const bool listed = !mark.is_copy() && mark.kind != MarkKind::collective;
        const bool stalls = mark.stall > Duration{0};
        if (stalls) {
            list.push_back(operation_json(
                stall_name, mark.is_copy() ? Duration{0} : carried(mark.host), mark.stall));
            list.back()["stream"] = others_stream;
            list.back()["after"] = {"compute"};
        }
        if (listed && !mark.is_nothing()) {
            list.push_back(
                operation_json(mark.name, stalls ? Duration{0} : carried(mark.host), mark.device));
            tell_recomputed(mark, list);
        } else if (!listed && awaits(mark)) {
            list.push_back(operation_json("after other streams", Duration{0}));
        }
        if (awaits(mark) && !(listed && mark.is_nothing())) {
            list.back()["after"] = awaited_by(mark);
        }
        if (!listed) {
            const Duration simulated = mark.is_copy()       ? copy_launch_
                                       : is_simulated(mark) ? host_issue_.value_or(Duration{0})
                                                            : Duration{0};
            carry_ += run_.rank().has_device ? mark.host - simulated : Duration{0};
        }
    }

    // Work on a side stream. Work that is launched there right after, and waits for nothing else,
    // joins the operation before, which begins when the first is launched.
    void add_beside(const StepMark& mark, const StepMark* last, Json& list) {
        if (last != nullptr && last->stream == mark.stream && !mark.after_compute) {
            const double device_us = list.back()["device_us"];
            list.back()["device_us"] =
                std::round((device_us + rounded_us(mark.beside)) * 1e3) / 1e3;
            carry_ += mark.host;
            return;
        }
        list.push_back(operation_json(mark.name, carried(mark.host), mark.beside));
        list.back()["stream"] = stream_name(mark.stream);
        if (mark.after_compute) {
            list.back()["after"] = {"compute"};
        }
    }

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

    Json sync_json(bool without_buffers) {
        const TracedStep& step = run_.first();
        const std::vector<const TracedCollective*> found = reductions(run_, step);
        if (const std::optional<Strategy> strategy = strategy_of(found)) {
            findings_.found("strategy",
                            "an all-reduce {}, without DistributedDataParallel; --set "
                            "/sync/strategy=ddp or bucketed tells what buckets would do",
                            *strategy == Strategy::overlap ? "for each gradient as it becomes ready"
                            : *strategy == Strategy::naive ? "for each gradient after backward"
                                                           : "of everything after backward");
            return {{"strategy", name_of(*strategy)}};
        }
        Json sync{{"strategy", "ddp"}};
        add_if(views_, sync, "views", true);
        add_if(step.batched_copies, sync, "fused_copies", true);
        add_if(without_buffers, sync, "broadcast_buffers", false);
        if (found.empty()) {
            findings_.assumed("buckets", "DistributedDataParallel's default caps");
            return sync;
        }
        const DType element = *dtype_named(found.front()->dtype);
        if (step.hook_casts && (element == DType::float16 || element == DType::bfloat16)) {
            sync["comm_hook"] = element == DType::float16 ? "fp16" : "bf16";
            findings_.found("comm hook", "gradients travel as {}", name_of(element));
        }
        if (!step.is_ddp && step.sharding.empty()) {
            findings_
                .assumed("strategy",
                         "no reducer of DistributedDataParallel was seen at work; the "
                         "all-reduces are taken for its own")
                .weakens = Weakens::scenario;
        }
        add_if(run_.unused_map, sync, "find_unused_parameters", true);
        const auto buckets = transformed(found, &TracedCollective::elements);
        const TracedCaps caps = caps_of(gradients_, buckets, run_.unused_map);
        alone_ = caps.alone;
        add_caps(caps, sync);
        report_caps(caps, "buckets", buckets.size() > 1, findings_);
        return sync;
    }

    // Loops without a wrapper, which reduce gradients one by one, or all after backward.
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

    const std::vector<Gradient>& gradients_;  // by readiness
    const Workload& model_;                   // as the user knows them
    bool views_ = false;                      // gradients are views of their buckets
    std::vector<std::size_t> alone_ = {};     // gradients with buckets of their own
};

}  // namespace

Json scenario_document(const TracedRun& run, std::int64_t ranks,
                       const std::vector<Gradient>& gradients, const Workload& model,
                       Findings& findings) {
    return ScenarioDocument(run, gradients, model, findings).json(ranks);
}

}  // namespace bucketwise
