#include "cli/ranks/measure_rank.h"

#include <optional>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "hw/backend/backend.h"
#include "sim/base/error.h"

namespace bucketwise {
namespace {

// The item and round that a record completes.
struct Position {
    Item item;
    std::int64_t round = 0;
};

std::optional<Position> position_of(const Measurement& record, const Scenario& scenario) {
    if (const auto* r = std::get_if<CollectiveRecord>(&record)) {
        const Protocol protocol = r->kind == CollectiveKind::all_reduce ? Protocol::all_reduce
                                  : r->kind == CollectiveKind::all_gather
                                      ? Protocol::all_gather
                                      : Protocol::reduce_scatter;
        return Position{{.protocol = protocol, .message = r->size}, r->round};
    }
    if (const auto* r = std::get_if<ComputeRecord>(&record)) {
        // A record per rank; the last one completes the item.
        if (r->rank + 1 < r->ranks) {
            return std::nullopt;
        }
        return Position{{.protocol = Protocol::compute}, r->round};
    }
    if (const auto* r = std::get_if<ContentionRecord>(&record)) {
        return Position{{.protocol = Protocol::contention,
                         .message = r->size,
                         .ctas = r->transport.ctas,
                         .collective = r->collective},
                        r->round};
    }
    if (const auto* r = std::get_if<StepRecord>(&record)) {
        return Position{item_of(*r, scenario), r->round};
    }
    return std::nullopt;
}

}  // namespace

Item item_of(const StepRecord& step, const Scenario& scenario) {
    Item item{.protocol = Protocol::step,
              .cap = step.is_default || step.sharding ? Cap() : Cap(step.cap),
              .sharding = step.sharding};
    if (item.sharding && scenario.sharding) {
        item.sharding->reduces_in_own_dtype = scenario.sharding->reduces_in_own_dtype;
    }
    return item;
}

void check_same_run(const MeasureOptions& options, const std::vector<Measurement>& records) {
    if (records.empty() || !std::holds_alternative<EnvironmentRecord>(records.front())) {
        throw InputError(options.output, "", "measurements to resume, an environment first",
                         records.empty() ? "no whole line" : "another record");
    }
    const RankJob& job = options.job;
    for (const Measurement& measurement : records) {
        const auto* earlier = std::get_if<EnvironmentRecord>(&measurement);
        if (earlier == nullptr) {
            continue;
        }
        const Transport& then = earlier->transport;
        const Transport now = transport_of(job);
        const Environment machine = read_environment();
        const auto ctas = [](const Transport& of) {
            return of.ctas ? std::to_string(*of.ctas) : "none";
        };
        const std::string rate = job.network.link_rate ? text_of(*job.network.link_rate) : "none";
        const auto shared = [](const Transport& of) -> std::string {
            return of.shared_gpu ? "true" : "false";
        };
        using Text = std::string;
        for (const auto& [pointer, was, is] : std::vector<std::tuple<const char*, Text, Text>>{
                 {"/backend", then.backend, now.backend},
                 {"/shared_gpu", shared(then), shared(now)},
                 {"/ctas", ctas(then), ctas(now)},
                 {"/ranks", std::to_string(then.ranks), std::to_string(now.ranks)},
                 {"/algorithm", then.algorithm, now.algorithm},
                 {"/implementation", then.implementation, now.implementation},
                 {"/link_rate", earlier->link_rate.empty() ? "none" : earlier->link_rate, rate},
                 {"/seed", std::to_string(earlier->seed), std::to_string(job.order.seed)},
                 {"/cpu", earlier->machine.cpu, machine.cpu},
                 {"/cores", std::to_string(earlier->machine.cores), std::to_string(machine.cores)},
                 {"/libraries", earlier->libraries, job.backend->libraries()}}) {
            if (was != is) {
                throw InputError(options.output, pointer, "the same as now, " + is, was);
            }
        }
        if (earlier->scenario != options.scenario_text) {
            throw InputError(options.output, "/scenario", "the scenario that is measured now",
                             "another one");
        }
    }
}

std::vector<std::int64_t> open_positions(const MeasureOptions& options,
                                         const std::vector<Measurement>& records) {
    const std::size_t items = options.items.size();
    const std::int64_t rounds = options.job.order.rounds;
    std::vector<std::int64_t> open(static_cast<std::size_t>(rounds) * items, 1);
    for (const Measurement& record : records) {
        const std::optional<Position> position = position_of(record, options.scenario);
        for (std::size_t i = 0; position && i < items; ++i) {
            if (options.items[i] == position->item && position->round < rounds) {
                open[static_cast<std::size_t>(position->round) * items + i] = 0;
            }
        }
    }
    return open;
}

}  // namespace bucketwise
