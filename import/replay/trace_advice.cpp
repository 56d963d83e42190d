#include "import/replay/trace_advice.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "import/replay/changed_step.h"
#include "sim/plan/strategy.h"
#include "sim/predict/prediction.h"
#include "sim/report/number_text.h"
#include "sim/report/sharding_text.h"
#include "sim/report/verdict.h"

namespace bucketwise {
namespace {

constexpr double worth_saying = 0.005;  // of a step

std::string ms_and_share(Duration part, Duration whole) {
    return fmt::format("{:.4g} ms ({:.1f} %)", to_ms(part), 100 * share(part, whole));
}

// --- what binds ---

std::string text_of(const StepAccount& account, bool has_device, const char* collectives) {
    const Duration most =
        std::max({account.computing, account.launching, account.communicating, account.others});
    const char* const what = most == account.computing       ? "computing"
                             : most == account.launching     ? "launching"
                             : most == account.communicating ? "communication"
                                                             : "other streams or ranks";
    if (!has_device) {
        return fmt::format(
            "{}: of {:.4g} ms the host computes for {:.4g} and waits for others for {:.4g}", what,
            to_ms(account.step()), to_ms(account.computing), to_ms(account.communicating));
    }
    return fmt::format(
        "{}: of {:.4g} ms the device computes for {:.4g} and waits for launches for {:.4g}, for "
        "{} for {:.4g}{}",
        what, to_ms(account.step()), to_ms(account.computing), to_ms(account.launching),
        collectives, to_ms(account.communicating),
        account.others > Duration{0} ? fmt::format(", for others for {:.4g}", to_ms(account.others))
                                     : "");
}

// --- communication ---

std::string why(const BucketWait& wait, const SimulatedAccount& simulated) {
    const Duration ahead = simulated.last_ready - wait.issued;
    std::string text = fmt::format("bucket {} of {} ", wait.bucket + 1, simulated.buckets.size());
    text += ahead > Duration{0}
                ? fmt::format("goes out {:.3g} ms before backward ends", to_ms(ahead))
                : "goes out when backward ends";
    if (wait.begin > wait.issued) {
        text += fmt::format(", stands in line for {:.3g} ms", to_ms(wait.begin - wait.issued));
    }
    return text + fmt::format(" and takes {:.3g} ms", to_ms(wait.end - wait.begin));
}

std::string exposed_text(Duration wire, Duration exposed, Duration step) {
    return share(exposed, step) < worth_saying
               ? fmt::format("of {:.4g} ms nothing is exposed", to_ms(wire))
               : fmt::format("of {:.4g} ms {} are exposed", to_ms(wire),
                             ms_and_share(exposed, step));
}

std::string communication_text(const Replay& replay, Duration exposed) {
    const SimulatedAccount& simulated = replay.simulated;
    if (simulated.buckets.empty()) {
        return "none: no all-reduces";
    }
    Duration wire{0};
    for (const BucketWait& bucket : simulated.buckets) {
        wire += bucket.end - bucket.begin;
    }
    std::string text = exposed_text(wire, exposed, replay.step);
    if (share(exposed, replay.step) >= worth_saying) {
        const auto longest = std::ranges::max_element(simulated.buckets, {}, &BucketWait::waited);
        text += ": " + why(*longest, simulated);
    }
    const Duration beyond = replay.traced.account.communicating - simulated.account.communicating;
    if (share(beyond, replay.step) >= worth_saying) {
        text += fmt::format("; the trace waits {:.3g} ms longer, for other ranks", to_ms(beyond));
    }
    return text;
}

// --- what to change ---

// Calls `change` for every operation of the step.
template <typename Change>
StepInput with_operations(StepInput input, const Change& change) {
    for_each_operation(input, change);
    return input;
}

StepInput launched_for_free(StepInput input) {
    input = with_operations(std::move(input),
                            [](TimedOperation& operation) { operation.host = Duration{0}; });
    input.workload.copy_launch = Duration{0};
    input.link.host_issue = Duration{0};
    input.link.host_wait = Duration{0};
    input.step.optimizer_launch = Duration{0};
    return input;
}

constexpr const char* launch_less_text =
    "launch less (torch.compile, CUDA graphs, a fused optimizer, larger batches)";
constexpr const char* faster_link_text = "a link twice as fast";
constexpr const char* keep_activations_text =
    "no activation checkpointing, if memory holds all activations";

// The largest first.
std::vector<Saving> worthwhile(std::vector<Saving> savings, Duration step) {
    std::erase_if(savings,
                  [&](const Saving& saving) { return share(saving.saves, step) < worth_saying; });
    std::ranges::stable_sort(savings, std::ranges::greater{}, &Saving::saves);
    return savings;
}

// The best of DistributedDataParallel's caps.
std::pair<std::string, Duration> best_caps(const StepInput& input, SyncRequest sync) {
    // All plans, or, where that takes long, caps that double.
    constexpr std::size_t most_work = 20'000'000;
    constexpr int most_doubled = 10;
    std::vector<Bytes> caps;
    const std::size_t work = input.workload.gradients.size() *
                             (input.workload.forward.size() + input.workload.backward.size());
    for (int i = 0; work > most_work && i <= most_doubled; ++i) {
        caps.push_back(Bytes{bytes_per_mib << i});
    }
    sync.bucket_cap_list.clear();
    const Prediction prediction = predict(input, sync, caps, [](double) {});
    const Evaluation& advised = prediction.advised();
    return {prediction.keep_default
                ? std::string("DistributedDataParallel's default buckets")
                : fmt::format("bucket_cap_mb={}", typed_mib(advised.cap.named().value_or(Bytes{}))),
            advised.step()};
}

std::vector<Saving> savings_of(const SyncRequest& sync, const StepInput& input, Duration step) {
    std::vector<Saving> savings;
    const auto add = [&](std::string change, Duration other, bool at_most) {
        savings.push_back({std::move(change), step - other, at_most});
    };
    const auto step_of = [&](const StepInput& changed, const SyncRequest& request) {
        return Evaluator(changed, request).step(request.bucket_cap);
    };
    if (!input.workload.host_is_device) {
        add(launch_less_text, step_of(launched_for_free(input), sync), true);
        const StepInput runs_on =
            with_operations(input, [](TimedOperation& operation) { operation.host_waits = false; });
        add("let the host run on (.item(), synchronisations)", step_of(runs_on, sync), true);
    }
    StepInput kept = input;
    if (take_out_recomputed(kept.workload.backward) > Duration{0}) {
        add(keep_activations_text, step_of(kept, sync), false);
    }
    const StepInput alone = with_operations(input, [](TimedOperation& operation) {
        operation.device = operation.order.is_beside() ? Duration{0} : operation.device;
    });
    add("no waits for other streams or ranks (see stalls)", step_of(alone, sync), true);
    if (input.group.ranks > 1 && is_ddp(sync.strategy)) {
        SyncRequest changed = sync;
        if (!sync.views) {
            changed.views = true;
            add("gradient_as_bucket_view=True", step_of(input, changed), false);
        }
        changed = sync;
        if (sync.comm_hook == CommHook::none) {
            changed.comm_hook = CommHook::bf16;
            add("bf16_compress_hook", step_of(input, changed), false);
        }
        auto [caps, best] = best_caps(input, sync);
        add(std::move(caps), best, false);
        StepInput faster = input;
        faster.link = slowed(std::move(faster.link), 0.5);
        add(faster_link_text, step_of(faster, sync), false);
    }
    return worthwhile(std::move(savings), step);
}

std::vector<Saving> sharded_savings(const Scenario& scenario, const ShardedInput& input,
                                    Duration step) {
    std::vector<Saving> savings;
    if (!input.step.workload.host_is_device) {
        ShardedInput launched = input;
        launched.step = launched_for_free(std::move(launched.step));
        savings.push_back(
            {launch_less_text, step - evaluate_sharded(scenario, launched).step(), true});
    }
    ShardedInput kept = input;
    if (take_out_recomputed(kept.step.workload.backward) > Duration{0}) {
        savings.push_back(
            {keep_activations_text, step - evaluate_sharded(scenario, kept).step(), false});
    }
    if (input.step.group.ranks > 1) {
        const Prediction prediction = predict_sharded(scenario, input, [](double) {});
        const Evaluation& advised = prediction.advised();
        savings.push_back({setting_text(advised.sharded->request), step - advised.step(), false});
        ShardedInput faster = input;
        faster.step.link = slowed(std::move(faster.step.link), 0.5);
        savings.push_back(
            {faster_link_text, step - evaluate_sharded(scenario, faster).step(), false});
    }
    return worthwhile(std::move(savings), step);
}

}  // namespace

std::string binds_text(const TraceImport& imported, const Replay& replay) {
    return text_of(replay.traced.account, imported.run->rank().has_device,
                   imported.sharding ? "collectives" : "all-reduces");
}

TraceAdvice advise(const TraceImport& imported, const Scenario& scenario, const Replay& replay) {
    TraceAdvice advice{
        .binds = binds_text(imported, replay), .step = replay.step, .replay_error = replay.error()};
    const auto poor = replay_caveat(replay.step, replay.traced.step, "the trace");
    advice.withheld = poor && poor->withholds ? poor->text : "";
    // A total that is right by luck says nothing about other buckets.
    if (advice.withheld.empty() && !replay.collectives.empty() && !replay.same_buckets) {
        advice.withheld = fmt::format("the simulated {} are not the traced ones",
                                      imported.sharding ? "collectives" : "buckets");
    }
    if (imported.sharding) {
        const ShardedInput input = sharded_input(scenario);
        const Evaluation evaluation = evaluate_sharded(scenario, input);
        advice.communication =
            exposed_text(evaluation.communication, evaluation.exposed, evaluation.step());
        if (advice.withheld.empty()) {
            advice.savings = sharded_savings(scenario, input, replay.step);
        }
        return advice;
    }
    const StepInput input = step_input(scenario);
    Evaluator evaluator(input, scenario.sync);
    advice.communication =
        communication_text(replay, evaluator.evaluate(scenario.sync.bucket_cap).exposed);
    if (advice.withheld.empty()) {
        advice.savings = savings_of(scenario.sync, input, replay.step);
    }
    return advice;
}

std::string verdict_text(const TraceAdvice& advice) {
    if (!advice.withheld.empty()) {
        return withheld_text({advice.withheld});
    }
    const std::string known =
        fmt::format("The trace replays to within {}.", percent_text(std::abs(advice.replay_error)));
    if (advice.savings.empty()) {
        return "Change nothing: no change known here saves half a percent. " + known;
    }
    const Saving& first = advice.savings.front();
    return fmt::format("Change first: {}, which saves {}{}. {}", first.change,
                       first.at_most ? "up to " : "", percent_text(share(first.saves, advice.step)),
                       known);
}

std::string text_of(const TraceAdvice& advice) {
    std::string change = !advice.withheld.empty()
                             ? fmt::format("advice is withheld: {}\n", advice.withheld)
                         : advice.savings.empty() ? "no change known here saves half a percent\n"
                                                  : "";
    constexpr std::size_t most_listed = 3;
    for (std::size_t i = 0; i < std::min(advice.savings.size(), most_listed); ++i) {
        const Saving& saving = advice.savings[i];
        change +=
            fmt::format("{}{}: saves {}{}\n", i == 0 ? "" : "                 ", saving.change,
                        saving.at_most ? "up to " : "", ms_and_share(saving.saves, advice.step));
    }
    return fmt::format("  Bound by       {}\n  Communication  {}\n  Change first   {}",
                       advice.binds, advice.communication, change);
}

}  // namespace bucketwise
