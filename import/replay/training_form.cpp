#include "import/replay/training_form.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "import/run/traced_collectives.h"
#include "import/run/traced_gradients.h"
#include "sim/base/error.h"

namespace bucketwise {
namespace {

// Collectives of one kind in a step.
struct Seen {
    std::int64_t count = 0;
    std::int64_t bytes = 0;   // of all
    std::int64_t ranks = -1;  // of the first's group; -1: not said
};

template <typename Holds>
Seen seen_of(const TracedStep& step, Holds holds) {
    Seen seen;
    for (const TracedCollective& collective : step.collectives) {
        if (holds(collective)) {
            seen.ranks = seen.count == 0 ? collective.group_size : seen.ranks;
            seen.bytes += collective.bytes.count;
            ++seen.count;
        }
    }
    return seen;
}

std::string text_of(const Seen& seen, std::string_view what) {
    // Without the call's own numbers, a shape may be that of a reduce-scatter's input or output.
    return fmt::format(
        "{} {}{} a step{}", seen.count, what, seen.count == 1 ? "" : "s",
        seen.ranks > 0 ? fmt::format(" of {} bytes in all over {} ranks", seen.bytes, seen.ranks)
                       : "");
}

bool is_reduce_scatter(const TracedCollective& collective) {
    return collective.in_backward && collective.name.find("reducescatter") != std::string::npos;
}

bool is_transfer(const TracedCollective& collective) {
    return collective.name.starts_with("send") || collective.name.starts_with("recv");
}

// Hooks scatter gradients, or all are scattered once ready. Sequence parallel layers scatter
// activations before that.
bool scatters_gradients(const TracedStep& step) {
    const std::size_t gradients = gradients_of(step);
    bool scattered = false;
    bool any = false;
    for (const TracedCollective& collective : step.collectives) {
        if (is_reduce_scatter(collective)) {
            any = true;
            scattered |= collective.in_hook || collective.ready_before >= gradients;
        }
    }
    const bool reduced =
        std::ranges::any_of(step.collectives, &TracedCollective::reduces_gradients);
    return any && (scattered || !reduced || !step.sharding.empty());
}

std::string sharding_of(const TracedStep& step, bool hybrid) {
    if (!step.sharding.empty()) {
        return hybrid ? fmt::format("HSDP ({} with a hybrid mesh)", step.sharding) : step.sharding;
    }
    return hybrid ? "HSDP, or ZeRO in groups" : "FSDP, ZeRO or a distributed optimizer";
}

void report_layers(const TracedRun& run, Findings& findings) {
    const char* const kept =
        run.rank().has_device ? "" : "; the host's time for them is kept where it is";
    const Seen layers = seen_of(run.first(), [](const auto& c) { return c.of_layers; });
    if (layers.count > 0) {
        findings.found(
            "parallel layers",
            "{} in backward are issued by no gradient's hook, as those of tensor parallel "
            "layers are: none of the gradients{}",
            text_of(layers, "all-reduce"), kept);
    }
    const Seen transfers = seen_of(run.first(), is_transfer);
    if (transfers.count > 0) {
        findings.found("pipeline", "{} (send, recv): stages of a pipeline{}",
                       text_of(transfers, "transfer"), kept);
    }
    const Seen updates = seen_of(run.first(), [](const auto& c) {
        return c.in_optimizer && (c.name == "broadcast" || c.name.starts_with("allgather"));
    });
    if (updates.count > 0) {
        findings.found("sharded optimizer",
                       "{} after backward, as ZeroRedundancyOptimizer shares updated parameters: "
                       "they are in the optimizer's time where the host waits for them",
                       text_of(updates, "broadcast or all-gather"));
    }
}

}  // namespace

void refuse_sharded(const TracedRun& run) {
    const TracedStep& step = run.first();
    if (!scatters_gradients(step) && step.sharding != zero3_name) {
        return;
    }
    const Seen scattered = seen_of(step, is_reduce_scatter);
    const Seen reduced =
        seen_of(step, [](const auto& collective) { return collective.reduces_gradients(); });
    throw InputError(
        run.rank().file, "/traceEvents",
        "all-reduces of whole gradients (DistributedDataParallel), or PyTorch's fully_shard "
        "(FSDP2)",
        fmt::format(
            "{}: {}{}; of sharded runs only FSDP2's are read, by its annotations (FSDP::...)",
            sharding_of(step, reduced.count > 0), text_of(scattered, "reduce-scatter"),
            reduced.count > 0 ? ", and " + text_of(reduced, "all-reduce") + " of shards" : ""));
}

void refuse_compressed(const TracedRun& run, const std::vector<Gradient>& gradients) {
    const std::vector<const TracedCollective*> found = reductions(run, run.first());
    if (!run.first().hook_casts || found.empty()) {
        return;
    }
    const std::int64_t elements = elements_of(gradients);
    std::int64_t reduced = 0;
    for (const TracedCollective* collective : found) {
        reduced += collective->elements;
    }
    // Unused parameters make buckets larger; nothing but compression makes them half as large.
    if (reduced < elements / 2) {
        throw InputError(run.rank().file, "/traceEvents",
                         "all-reduces of gradients as they are, or cast to 16 bits by a hook",
                         fmt::format("{} elements for gradients of {}: a communication hook that "
                                     "compresses (PowerSGD), which is not simulated",
                                     reduced, elements));
    }
}

void report_form(const TracedRun& run, Findings& findings) {
    const TracedStep& step = run.first();
    if (step.compiled_pieces > 0) {
        findings.found("compiled",
                       "torch.compile: backward is {} compiled piece{}; the gradients of each "
                       "become ready at its end",
                       step.compiled_pieces, step.compiled_pieces == 1 ? "" : "s");
        findings
            .assumed("compiled",
                     "pieces stay as they were traced; DDPOptimizer cuts the graph where a bucket "
                     "of the cap ends, so other caps have other pieces: trace the chosen cap")
            .weakens = Weakens::scenario;
    }
    if (step.graph_launches > 0) {
        findings.found("CUDA graph",
                       "{} kernels of {} graph launch{} a step: the host pays for the launch "
                       "only, whatever the graph holds",
                       step.graph_kernels, step.graph_launches,
                       step.graph_launches == 1 ? "" : "es");
    }
    if (run.rank().uses_fp8) {
        findings.found("FP8",
                       "scaled matrix products: their times are as traced, and all-reduces of "
                       "their scales (amax) are other collectives, not the gradients'");
    }
    if (!step.sharding.empty()) {
        findings
            .assumed("strategy",
                     "{} that shards nothing (replicate, NO_SHARD, or a mesh of one shard): each "
                     "wrapped module has an all-reduce, so wrapping chooses buckets, not a cap; "
                     "other caps are predicted as DistributedDataParallel's",
                     step.sharding)
            .weakens = Weakens::scenario;
    }
    report_layers(run, findings);
}

}  // namespace bucketwise
