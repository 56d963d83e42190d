// bucketwise link show LINK: the time of collectives on a link or a topology, by size. bucketwise
// link list: the presets.
#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/shell/exit_codes.h"
#include "cli/shell/files.h"
#include "cli/shell/scenario_document.h"
#include "cli/shell/size.h"
#include "sim/base/error.h"
#include "sim/base/json_input.h"
#include "sim/base/transformed.h"
#include "sim/link/assumed_interference.h"
#include "sim/link/collective.h"
#include "sim/link/link_input.h"
#include "sim/link/link_presets.h"
#include "sim/link/link_topology.h"
#include "sim/link/network/chunk_engine.h"
#include "sim/link/network/nccl_model.h"
#include "sim/link/network/topology_cost.h"

namespace bucketwise {
namespace {

constexpr std::string_view list_text = R"(
examples:
  bucketwise link list
  bucketwise link list --format csv

A preset is a prior with a range: the table has a slow, a typical and a fast column.
)";

constexpr std::string_view show_text = R"(
examples:
  bucketwise link show nvlink-h100-8
  bucketwise link show ib-ndr-400 --json > mine.json
  bucketwise link show ib-ndr-400 --nccl-version 2.20
  bucketwise link show scenarios/links/nccl_h100_nvlink.json --ranks 8
  bucketwise link show scenarios/links/h100_fat_tree.json --ranks 1024 --bytes 1MiB,64MiB,1GiB
  bucketwise link show scenarios/links/h100_fat_tree.json --ranks 256 --algorithm hierarchical --by-messages

LINK is a preset, a link file, or a scenario with its link and ranks. A preset is a prior with a range; a file of a
preset's name is ./NAME. --json prints the link as a file, to be changed and passed to --link. Bus bandwidth is that of
nccl-tests: the least bytes that a rank must send, over the time. --by-messages simulates every message of the
collective over the links of the topology and counts them.
)";

// Algorithms that may replace a topology's own.
constexpr std::array<Algorithm, 6> replacing_algorithms{Algorithm::ring,
                                                        Algorithm::direct,
                                                        Algorithm::recursive_halving_doubling,
                                                        Algorithm::double_binary_tree,
                                                        Algorithm::hierarchical,
                                                        Algorithm::nvls};

struct LinkOptions {
    std::string operand;
    std::optional<std::int64_t> ranks;
    std::optional<std::int64_t> ranks_per_node;
    std::vector<Bytes> sizes;
    CollectiveKind kind = CollectiveKind::all_reduce;
    std::optional<Algorithm> algorithm;
    bool by_messages = false;
    std::optional<NcclVersion> nccl_version;
    bool json = false;
    TableFormat format = TableFormat::text;
};

struct LinkRequest {
    std::string file;
    std::string pointer;  // of the link in it
    LinkParameters link;
    RankGroup group;
    CollectiveKind kind = CollectiveKind::all_reduce;
    std::vector<Bytes> sizes;
    bool by_messages = false;
};

constexpr WholeNumbers rank_numbers{2, 1'000'000};

bool names_preset(const std::string& link) {
    return looks_like_preset(link) && find_preset(link) != nullptr;
}

bool is_scenario(const Json& document) {
    return document.is_object() && document.contains("cluster");
}

// The link of a file, or of a scenario in a file, with the scenario's ranks.
LinkRequest read_link_request(const std::string& file) {
    LinkRequest request;
    request.file = file;
    if (names_preset(file)) {
        const Json named = file;
        request.link = read_link({&named, file, ""}, read_text_file);
        return request;
    }
    const Json document = parse_json(read_link_text(file), file);
    JsonPlace place{&document, file, ""};
    if (is_scenario(document)) {
        const JsonPlace cluster{&document.at("cluster"), file, "/cluster"};
        const JsonObject object(cluster, {"ranks", "ranks_per_node", "link", "stragglers"});
        request.group.ranks = read_integer(object.at("ranks"), 1, rank_numbers.highest);
        object.read_optional("ranks_per_node", request.group.ranks_per_node, read_integer, 1,
                             request.group.ranks);
        place = object.at("link");
        if (place.value->is_string()) {
            request.file = path_beside(file, place.value->get<std::string>());
        } else {
            request.pointer = place.pointer;
        }
    }
    request.link = read_link(place, read_text_file);
    return request;
}

void change_algorithm(Algorithm algorithm, LinkParameters& link) {
    if (!link.topology) {
        throw UsageError{
            "link show: --algorithm has no effect without a topology, whose links do "
            "not depend on it"};
    }
    link.algorithm = algorithm;
    const bool multicast = link.topology->regular && link.topology->regular->node.multicast;
    if (link.algorithm == Algorithm::nvls && !multicast) {
        throw InputError("--algorithm", "", "nvls only where the topology's node has multicast",
                         "none");
    }
    if (link.algorithm == Algorithm::hierarchical && link.topology->graph) {
        throw InputError("--algorithm", "",
                         "an algorithm without levels, which a graph does not have",
                         "hierarchical");
    }
    if (link.algorithm == Algorithm::nvls && link.topology->irregular()) {
        throw InputError("--algorithm", "", "an algorithm that can be simulated message by message",
                         "nvls");
    }
}

void set_group(const LinkOptions& options, LinkRequest& request) {
    if (options.ranks) {
        request.group = {*options.ranks, 1};
    }
    const LinkPreset* preset = find_preset(request.link.preset);
    if (preset != nullptr && request.group.ranks < rank_numbers.lowest) {
        request.group.ranks = shown_ranks(*preset);
    }
    const auto most = preset != nullptr ? most_ranks_of(*preset) : std::nullopt;
    if (most && request.group.ranks > *most) {
        throw InputError("--ranks", "",
                         fmt::format("at most {} with the preset {}; of several nodes are {}",
                                     *most, preset->name, larger_presets(*preset)),
                         std::to_string(request.group.ranks));
    }
    if (request.group.ranks < rank_numbers.lowest) {
        throw UsageError{"link show: expected --ranks, 2 or more; see bucketwise link show --help"};
    }
    const std::optional<std::int64_t>& per_node = options.ranks_per_node;
    if (per_node) {
        request.group.ranks_per_node =
            WholeNumbers{1, request.group.ranks}(std::to_string(*per_node), "--ranks-per-node");
    }
    const bool two_tiers = !request.link.tiers.empty();
    if (two_tiers && request.group.ranks_per_node == 1 && !per_node) {
        throw UsageError{"link show: expected --ranks-per-node for a hierarchical link"};
    }
    if (!two_tiers && per_node) {
        throw UsageError{
            "link show: --ranks-per-node has no effect but on a hierarchical link of two tiers"};
    }
    if (request.group.ranks % request.group.ranks_per_node != 0) {
        throw InputError("--ranks-per-node", "",
                         fmt::format("a number that divides ranks ({})", request.group.ranks),
                         std::to_string(request.group.ranks_per_node));
    }
}

// Whether the collective can be simulated message by message.
void check_by_messages(const LinkRequest& request) {
    if (!request.link.topology) {
        throw UsageError{"link show: --by-messages has no effect without a topology"};
    }
    const Algorithm algorithm = request.link.algorithm;
    const bool rings = algorithm == Algorithm::ring || algorithm == Algorithm::hierarchical ||
                       algorithm == Algorithm::direct;
    const bool can = request.kind == CollectiveKind::all_reduce
                         ? algorithm != Algorithm::nvls && algorithm != Algorithm::nccl
                         : rings && request.kind != CollectiveKind::broadcast;
    if (!can) {
        throw UsageError{fmt::format(
            "link show: --by-messages: expected an all-reduce of ring, direct, hierarchical, "
            "recursive_halving_doubling or double_binary_tree, or an all-gather or reduce-scatter "
            "of the first three; got {} of {}",
            name_of(request.kind), name_of(algorithm))};
    }
}

LinkRequest requested_link(const LinkOptions& options) {
    LinkRequest request = read_link_request(options.operand);
    change_nccl_version(options.nccl_version, request.link);
    if (options.algorithm) {
        change_algorithm(*options.algorithm, request.link);
    }
    set_group(options, request);
    request.kind = options.kind;
    request.sizes = options.sizes;
    request.by_messages = options.by_messages;
    if (request.by_messages) {
        check_by_messages(request);
    }
    const auto refuse = [&](const TopologyFault& fault) {
        throw InputError(request.file, request.pointer + fault.pointer, fault.expected, fault.got);
    };
    if (request.link.topology) {
        if (const auto fault = prepare_topology(request.link, request.group.ranks)) {
            refuse(*fault);
        }
    }
    if (request.by_messages) {
        if (const auto fault =
                check_messages(schedule_on(request.kind, request.link.algorithm, {1},
                                           request.group.ranks, *request.link.topology, true))) {
            refuse(*fault);
        }
    }
    return request;
}

struct MessageRun {
    CollectiveRun run;
    double seconds = 0;  // to simulate
};

MessageRun by_messages(const LinkRequest& request, Bytes size) {
    const Topology& topology = *request.link.topology;
    const std::int64_t ranks = request.group.ranks;
    const auto begin = std::chrono::steady_clock::now();
    const Network network = network_for(request.link.algorithm, topology, ranks);
    const CollectiveJob job{
        .schedule = schedule_on(request.kind, request.link.algorithm, size, ranks, topology, true)};
    MessageRun result{simulate_collectives(topology, network, {job}, most_sharing)};
    if (!result.run.complete) {
        const TopologyFault fault = too_much_sharing();
        throw InputError(request.file, request.pointer + fault.pointer, fault.expected, fault.got);
    }
    result.seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    return result;
}

const std::vector<Column>& size_columns() {
    static const std::vector<Column> columns{{"bytes", "bytes", 0},
                                             {"time_us", "time\nus", 2},
                                             {"bus_gb_per_s", "bus\nGB/s", 2},
                                             {"algorithm", "algorithm"},
                                             {"protocol", "protocol"},
                                             {"nccl_us", "NCCL\nexpects", 2},
                                             {"next_best", "next best"},
                                             {"next_best_us", "us", 2},
                                             {"by_messages_us", "by messages\nus", 2},
                                             {"messages", "messages", 0},
                                             {"memory_kib", "memory\nKiB", 0},
                                             {"messages_per_s", "messages/s", -3, false},
                                             {"fast_us", "fast end\nus", 2},
                                             {"slow_us", "slow end\nus", 2}};
    return columns;
}

NamedRow size_row(const LinkRequest& request, Bytes size) {
    const LinkParameters& link = request.link;
    const auto time_on = [&](const LinkParameters& on) {
        return to_us(collective_time(request.kind, size, request.group, on));
    };
    const double us = time_on(link);
    NamedRow row{{"bytes", size.count},
                 {"time_us", us},
                 {"bus_gb_per_s",
                  bus_gb_per_s(request.kind, size, request.group.ranks, std::max(us, 1e-6))}};
    if (link.algorithm == Algorithm::nccl) {
        const std::vector<NcclEstimate> estimates = nccl_estimates(
            request.kind, size, request.group.ranks, *link.topology->regular, *link.topology->nccl);
        const NcclEstimate& next = estimates[1];  // a ring has two protocols at least
        row["algorithm"] = std::string(name_of(estimates[0].algorithm));
        row["protocol"] = std::string(name_of(estimates[0].protocol));
        row["nccl_us"] = to_us(estimates[0].time);
        row["next_best"] = fmt::format("{} {}", name_of(next.algorithm), name_of(next.protocol));
        row["next_best_us"] = to_us(next.time);
    }
    if (request.by_messages) {
        const MessageRun simulated = by_messages(request, size);
        const auto messages = static_cast<std::int64_t>(simulated.run.messages);
        row["by_messages_us"] = to_us(simulated.run.jobs.front().end);
        row["messages"] = messages;
        row["memory_kib"] = static_cast<std::int64_t>(simulated.run.memory_bytes / 1024);
        row["messages_per_s"] = static_cast<double>(messages) / std::max(simulated.seconds, 1e-9);
    }
    if (const LinkPreset* preset = find_preset(link.preset)) {
        const auto end_us = [&](PresetEnd end) {
            LinkParameters changed = preset_end(*preset, end, link);
            changed.algorithm = link.algorithm;
            return time_on(changed);
        };
        // An end may choose another algorithm, but stays on its side of the typical time.
        row["fast_us"] = std::min(end_us(PresetEnd::fast), us);
        row["slow_us"] = std::max(end_us(PresetEnd::slow), us);
    }
    return row;
}

std::vector<std::string> notes_on(const LinkParameters& link, const RankGroup& group) {
    std::vector<std::string> notes;
    if (find_preset(link.preset) != nullptr) {
        notes.push_back("a preset, with a range: " + link.provenance.source);
    }
    if (link.algorithm == Algorithm::nccl) {
        const NcclSettings& settings = *link.topology->nccl;
        notes.push_back(fmt::format(
            "chosen by NCCL {}'s own cost model, for compute capability {} and {} CPUs",
            name_of(settings.version), compute_capability_of(settings), name_of(settings.cpu)));
        notes.push_back(
            fmt::format("time: NCCL's expectation, by clock's ring_ll {:.3g}, nvls {:.3g}, network "
                        "{:.3g}, and launching: a prior, not a measurement",
                        settings.clock.ring_ll, settings.clock.nvls, settings.clock.network));
    }
    if (lacks_interference(link)) {
        const Interference large = assumed_interference(link, group, {}).back().slowdown;
        notes.push_back(
            fmt::format("assumed of large collectives: beside them computing takes at least {:.2f} "
                        "times as long, by operation, and they take {:.2f} times as long",
                        static_cast<double>(large.compute_slowdown_ppm) * 1e-6,
                        static_cast<double>(large.communication_slowdown_ppm) * 1e-6));
    }
    if (!link.simulated.empty()) {
        notes.emplace_back("times are simulated message by message and linear between sizes");
    }
    return notes;
}

ResultTable table_of(const LinkRequest& request) {
    std::vector<NamedRow> rows;
    for (const Bytes size : request.sizes) {
        rows.push_back(size_row(request, size));
    }
    ResultTable table = table_of(size_columns(), rows);
    table.title = fmt::format("{}: {} on {} ranks, {}", request.link.name, name_of(request.kind),
                              request.group.ranks, name_of(request.link.algorithm));
    table.notes = notes_on(request.link, request.group);
    return table;
}

// --- presets ---

NamedRow preset_row(const LinkPreset& preset) {
    constexpr Bytes small{8};
    constexpr Bytes large{std::int64_t{1} << 30};
    const RankGroup group{shown_ranks(preset), 1};
    const auto most = most_ranks_of(preset);
    NamedRow row{{"name", std::string(preset.name)},
                 {"what", std::string(preset.what)},
                 {"ranks", most ? fmt::format("2 to {}", *most) : std::string("any")},
                 {"shown_ranks", group.ranks},
                 {"logs", preset.logs.count}};
    for (const PresetEnd end : every<PresetEnd>) {
        const std::string name(name_of(end));
        const LinkParameters link = preset_link(preset, end);
        const auto us = [&](Bytes size) {
            return to_us(collective_time(CollectiveKind::all_reduce, size, group, link));
        };
        row[name + "_bus_gb_per_s"] =
            bus_gb_per_s(CollectiveKind::all_reduce, large, group.ranks, us(large));
        row[name + "_latency_us"] = us(small);
    }
    if (preset.logs.count > 0) {
        row["log_error_percent"] = preset.logs.error_percent;
    }
    return row;
}

ResultTable preset_table() {
    std::vector<Column> columns{{"name", "preset"},
                                {"what", "what it is"},
                                {"ranks", "ranks"},
                                {"shown_ranks", "shown\nwith", 0}};
    for (const auto& [key, unit] :
         {std::pair{"_bus_gb_per_s", "\nGB/s"}, std::pair{"_latency_us", "\nus"}}) {
        for (const PresetEnd end : every<PresetEnd>) {
            const std::string name(name_of(end));
            columns.push_back({name + key, name + unit, -3});
        }
    }
    columns.push_back({"logs", "public\nlogs", 0});
    columns.push_back({"log_error_percent", "error\n%", -2});
    ResultTable table = table_of(columns, transformed(link_presets(), preset_row));
    table.title = "presets: priors for all-reduce, with their range";
    table.notes = {
        "bus bandwidth at 1 GiB and time of 8 bytes, at the slow end, typically, and at the fast "
        "end",
        "of nodes: by NCCL's cost model; of MI300X, Ethernet and wide areas: a ring",
        "error: mean error of the typical value from 64 KiB to 1 GiB, of the median public "
        "nccl-tests log"};
    return table;
}

// The link alone, as a file has it, with everything that it names put in place.
std::string link_json_of(const LinkOptions& options) {
    const std::string& file = options.operand;
    Json document{{"cluster", {{"link", file}}}};
    if (!names_preset(file)) {
        const Json read = parse_json(read_link_text(file), file);
        document = is_scenario(read) ? read : Json{{"cluster", {{"link", read}}}};
    }
    inline_link(document, file, read_text_file);
    Json link = document.at("cluster").value("link", Json(nullptr));
    LinkParameters read = read_link({&link, file, ""}, read_text_file);
    change_nccl_version(options.nccl_version, read);
    if (options.nccl_version) {
        link["topology"]["nccl"]["version"] = name_of(*options.nccl_version);
    }
    return json_text(link);
}

int show_link(const LinkOptions& options) {
    if (options.json) {
        write_output("-", link_json_of(options));
        return exit_done;
    }
    const LinkRequest request = requested_link(options);
    write_output("-", render(table_of(request), options.format,
                             {{"link", request.link.name}, {"ranks", request.group.ranks}}));
    return exit_done;
}

}  // namespace

CommandHelp link_list_help() {
    return list_help("bucketwise link list", list_text, preset_table);
}

CommandHelp link_show_help() {
    const auto o = std::make_shared<LinkOptions>();
    return {.usage = {"bucketwise link show LINK [OPTIONS]"},
            .options = options_of(
                {{"ranks", "number of ranks; default: the scenario's", {o->ranks, rank_numbers}},
                 {"ranks-per-node",
                  "ranks per node of a hierarchical link of two tiers",
                  {o->ranks_per_node, WholeNumbers{1, rank_numbers.highest}}},
                 {"bytes",
                  "sizes of the buffer",
                  {o->sizes, parse_sizes, "1KiB,16KiB,256KiB,1MiB,4MiB,16MiB,64MiB,256MiB,1GiB"}},
                 {"collective",
                  "all-reduce, all-gather, reduce-scatter or broadcast",
                  {o->kind, Choice{every<CollectiveKind>}, "all-reduce"}},
                 {"algorithm",
                  "algorithm instead of the link's, on a topology",
                  {o->algorithm, Choice{replacing_algorithms}}},
                 {"by-messages", "also simulate every message over the topology's links",
                  o->by_messages},
                 nccl_version_row(o->nccl_version),
                 {"json", "print only the link, as a link file", o->json},
                 format_row(o->format)}),
            .text = show_text,
            .arguments = links(),
            .positional = {"operand", 1, o->operand},
            .required = {"operand"},
            .wants = "one link",
            .run = [o](const CommandLine&) { return show_link(*o); }};
}

}  // namespace bucketwise
