#include "cli/ranks/measure_rank.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <stdexcept>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/ranks/measurement_file.h"
#include "cli/shell/size.h"
#include "cli/shell/version.h"
#include "sim/base/hash.h"
#include "sim/engine/bucket_planner.h"
#include "sim/report/sharding_text.h"
#include "sim/scenario/sharding_input.h"
#include "sim/text/passed_on.h"

namespace bucketwise {
namespace {

EnvironmentRecord environment_record(const MeasureOptions& options, const RankIdentity& identity,
                                     const RankSession& session) {
    EnvironmentRecord record = environment_of(options.job, identity, session);
    record.command = passed_on_command(options.job.command);
    if (options.time_limit) {
        record.rounds = 0;  // as many as there is time for
    }
    const Workload& workload = options.input.workload;
    for (const Gradient& gradient : workload.gradients) {
        record.gradients.push_back(gradient.name);
    }
    for (const TimedOperation& operation : workload.forward) {
        record.forward_operations.push_back(operation.name);
    }
    for (const TimedOperation& operation : workload.backward) {
        record.backward_operations.push_back(operation.name);
    }
    record.scenario = options.scenario_text;
    return record;
}

std::string label_of(const Item& item) {
    switch (item.protocol) {
        case Protocol::all_reduce:
        case Protocol::all_gather:
        case Protocol::reduce_scatter:
            return fmt::format("{} of {}", name_of(*isolated_kind(item.protocol)),
                               text_of(item.message));
        case Protocol::compute:
            return "compute alone";
        case Protocol::contention:
            return fmt::format("contention with {}{}", text_of(item.message),
                               item.ctas ? fmt::format(" of {} CTAs", *item.ctas) : "");
        case Protocol::step: {
            if (item.sharding) {
                return fmt::format("step, {}", setting_text(*item.sharding));
            }
            const std::optional<Bytes> cap = item.cap.named();
            return cap ? fmt::format("step at {}", text_of(*cap)) : "step";
        }
    }
    return {};
}

// 64 bits that differ where texts do.
std::int64_t fingerprint(std::string_view text) {
    return static_cast<std::int64_t>(fnv_hash(text));
}

// A value that all ranks of a run share.
struct Agreement {
    const char* what;
    std::int64_t value;
};

std::vector<Agreement> agreements_of(const MeasureOptions& options) {
    const RankJob& job = options.job;
    std::string items;
    for (const Item& item : options.items) {
        items += fmt::format("{} {} {} {} {},", name_of(item.protocol), item.message.count,
                             item.cap.named().value_or(Bytes{-1}).count, item.ctas.value_or(0),
                             item.sharding ? sharding_json(*item.sharding).dump() : "");
    }
    return {
        {"version of bucketwise", fingerprint(program_version())},
        {"scenario", fingerprint(options.scenario_text)},
        {"--protocols, --bytes, --contention-ctas, --bucket-cap or --sharding", fingerprint(items)},
        {"--backend", fingerprint(job.backend->name())},
        {"--all-reduce", static_cast<std::int64_t>(job.request.implementation)},
        {"--share-gpu", job.request.share_gpu ? 1 : 0},
        {"--ctas", job.request.ctas.value_or(0)},
        {"--rounds", job.order.rounds},
        {"--time", options.time_limit ? std::llround(1e3 * options.time_limit->count()) : -1},
        {"--seed", static_cast<std::int64_t>(job.order.seed)}};
}

// Another launcher may have started the ranks, each on a machine with its own files.
void check_agreement(const MeasureOptions& options, ControlGroup& control) {
    const std::vector<Agreement> own = agreements_of(options);
    std::vector<std::int64_t> firsts;
    for (const Agreement& agreement : own) {
        firsts.push_back(agreement.value);
    }
    control.broadcast_from_first(firsts);
    for (std::size_t i = 0; i < own.size(); ++i) {
        if (own[i].value != firsts[i]) {
            throw std::runtime_error(
                fmt::format("was started with another {} than rank 0", own[i].what));
        }
    }
}

// Rank 0 has the file and knows what is left to do: see open_positions().
std::vector<std::int64_t> open_positions_of_all(const MeasureOptions& options,
                                                ControlGroup& control) {
    std::vector<Measurement> records;
    if (control.rank() == 0 && options.resume) {
        records = read_measurements(options.output).records;
    }
    std::vector<std::int64_t> open = open_positions(options, records);
    control.broadcast_from_first(open);
    return open;
}

// Items to measure once before the rounds, to warm up caches, connections and pages: all that no
// earlier run has begun, and one of each kind, as every process is new.
std::vector<std::size_t> cold_items(const MeasureOptions& options,
                                    const std::vector<std::int64_t>& open) {
    std::vector<std::size_t> cold;
    std::set<Protocol> kinds;
    const std::size_t items = options.items.size();
    for (std::size_t item = items; item-- > 0;) {  // the largest of a kind first
        bool is_open = false;
        for (std::size_t at = item; at < open.size(); at += items) {
            is_open = is_open || open[at] != 0;
        }
        const bool is_begun = open[item] == 0;  // in the first round
        if (is_open && (kinds.insert(options.items[item].protocol).second || !is_begun)) {
            cold.push_back(item);
        }
    }
    std::ranges::reverse(cold);
    return cold;
}

// Measures every item in every round that earlier runs have left open.
void measure_rounds(const MeasureOptions& options, const RankIdentity& identity, Measurer& measurer,
                    RankSession& session) {
    const std::vector<std::int64_t> open = open_positions_of_all(options, session.control());
    const std::vector<std::size_t> cold = cold_items(options, open);
    session.expect(std::accumulate(open.begin(), open.end(), std::ssize(cold)));
    session.keep({environment_record(options, identity, session)});
    const MeasuringOrder& order = options.job.order;
    const std::size_t items = options.items.size();
    for (const std::size_t item : cold) {
        session.show("warming up: " + label_of(options.items[item]));
        measurer.measure(options.items[item], -1, 0);
        session.item_done();
    }
    session.take_rounds(
        order, items, [&](std::size_t item) { return label_of(options.items[item]); },
        [&](std::int64_t round, std::size_t item) {
            session.keep(
                measurer.measure(options.items[item], round,
                                 seeded_bits(order.seed, round, static_cast<std::int64_t>(item))));
        },
        [&](std::int64_t round, std::size_t item) {
            return open[static_cast<std::size_t>(round) * items + item] != 0;
        });
}

void measure_on_this_rank(const MeasureOptions& options, const RankIdentity& identity,
                          const MakeDirector& make_director, RankSession& session) {
    const std::unique_ptr<RankDevice> device =
        session.connection().device(options.scenario, options.input.workload,
                                    settings_of_replay(options.scenario.sync, options.input));
    Measurer measurer(options.scenario, options.input, transport_of(options.job), plan_of, *device,
                      session);
    check_agreement(options, session.control());
    session.control().barrier();
    device->calibrate();
    if (options.time_limit) {
        std::vector<Measurement> records;
        if (session.is_first() && options.resume) {
            records = read_measurements(options.output).records;
        }
        const EnvironmentRecord environment = environment_record(options, identity, session);
        session.keep({environment});
        records.insert(records.begin(), environment);
        const std::unique_ptr<RoundDirector> director =
            session.is_first() ? make_director(options, records) : nullptr;
        measure_in_time(options, measurer, session, director.get(), label_of);
    } else {
        measure_rounds(options, identity, measurer, session);
    }
    session.leave();
}

}  // namespace

int run_measure_rank(const MeasureOptions& options, const RankIdentity& identity,
                     const MakeDirector& director) {
    return run_rank(identity, [&](const LauncherReport& report) {
        ProgressReporter show(report, identity);
        std::optional<MeasurementFile> file;  // once there is something to write
        RankSession session = meet(options.job, identity, std::ref(show),
                                   [&](const std::vector<Measurement>& records) {
                                       if (!file && !options.resume) {
                                           // Another file may be there meanwhile.
                                           check_measurement_output(options.output, false);
                                       }
                                       if (!file) {
                                           file.emplace(options.output);
                                       }
                                       file->append(records);
                                   });
        report.progress("calibrating");
        measure_on_this_rank(options, identity, director, session);
    });
}

}  // namespace bucketwise
