// bucketwise link show LINK: what collectives cost on a link or a topology, by size. bucketwise
// link list: the presets.
#include <algorithm>
#include <array>
#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <boost/program_options.hpp>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/shell/command_help.h"
#include "cli/shell/exit_codes.h"
#include "cli/shell/files.h"
#include "cli/shell/option_values.h"
#include "cli/shell/result_table.h"
#include "cli/shell/scenario_document.h"
#include "cli/shell/size.h"
#include "sim/base/error.h"
#include "sim/base/json_input.h"
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

namespace po = boost::program_options;

constexpr std::string_view list_text = R"(
examples:
  bucketwise link list
  bucketwise link list --format csv

A preset is a prior, with a range: the table has its ends beside what is typical.
)";

constexpr std::string_view show_text = R"(
examples:
  bucketwise link show nvlink-h100-8
  bucketwise link show ib-ndr-400 --json > mine.json
  bucketwise link show ib-ndr-400 --nccl-version 2.20
  bucketwise link show scenarios/links/nccl_h100_nvlink.json --ranks 8
  bucketwise link show scenarios/links/h100_fat_tree.json --ranks 1024 --bytes 1MiB,64MiB,1GiB
  bucketwise link show scenarios/links/h100_fat_tree.json --ranks 256 --algorithm hierarchical --by-messages

LINK is a preset, a link file, or a scenario whose link and ranks are taken. A preset is a prior, with a range; a file
of a preset's name is ./NAME. --json prints the link itself, as a file that can be changed and named with --link. Bus
bandwidth is that of nccl-tests: the bytes that a rank must send at least, over the time. --by-messages sends every
message of the collective over the links of the topology, one by one, and says how many there were.
)";

// That may take the place of a topology's own.
constexpr std::array<Algorithm, 6> replacing_algorithms{Algorithm::ring,
                                                        Algorithm::direct,
                                                        Algorithm::recursive_halving_doubling,
                                                        Algorithm::double_binary_tree,
                                                        Algorithm::hierarchical,
                                                        Algorithm::nvls};

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

// The link of a file, or of a scenario in a file, with the scenario's ranks.
LinkRequest read_link_request(const std::string& file) {
    LinkRequest request;
    request.file = file;
    const Json named = file;
    if (looks_like_preset(file) && find_preset(file) != nullptr) {
        request.link = read_link({&named, file, ""}, read_text_file);
        return request;
    }
    const Json document = parse_json(read_link_text(file), file);
    const bool is_scenario = document.is_object() && document.contains("cluster");
    JsonPlace place{&document, file, ""};
    if (is_scenario) {
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

void change_algorithm(const po::variables_map& values, LinkParameters& link) {
    if (!link.topology) {
        throw UsageError{
            "link show: --algorithm has no effect without a topology, whose links do "
            "not depend on it"};
    }
    link.algorithm = choice_value(values, "algorithm", replacing_algorithms);
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

void set_group(const po::variables_map& values, LinkRequest& request) {
    if (const auto ranks = optional_number(values, "ranks", rank_numbers)) {
        request.group = {*ranks, 1};
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
    const auto per_node = optional_number(values, "ranks-per-node", {1, request.group.ranks});
    request.group.ranks_per_node = per_node.value_or(request.group.ranks_per_node);
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

LinkRequest requested_link(const po::variables_map& values, const std::string& file) {
    LinkRequest request = read_link_request(file);
    change_nccl_version(values, request.link);
    if (values.count("algorithm") != 0) {
        change_algorithm(values, request.link);
    }
    set_group(values, request);
    request.kind = choice_value(values, "collective", every<CollectiveKind>);
    request.sizes = parse_sizes(text_value(values, "bytes"), "--bytes");
    request.by_messages = values.count("by-messages") != 0;
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

ResultTable table_of(const LinkRequest& request) {
    const LinkParameters& link = request.link;
    ResultTable table;
    table.title = fmt::format("{}: {} on {} ranks, {}", link.name, name_of(request.kind),
                              request.group.ranks, name_of(link.algorithm));
    const bool nccl = link.algorithm == Algorithm::nccl;
    table.columns = {
        {"bytes", "bytes", 0}, {"time_us", "time\nus", 2}, {"bus_gb_per_s", "bus\nGB/s", 2}};
    if (nccl) {
        table.columns.push_back({"algorithm", "algorithm"});
        table.columns.push_back({"protocol", "protocol"});
        table.columns.push_back({"nccl_us", "NCCL\nexpects", 2});
        table.columns.push_back({"next_best", "next best"});
        table.columns.push_back({"next_best_us", "us", 2});
    }
    if (request.by_messages) {
        table.columns.push_back({"by_messages_us", "by messages\nus", 2});
        table.columns.push_back({"messages", "messages", 0});
        table.columns.push_back({"memory_kib", "memory\nKiB", 0});
        table.columns.push_back({"messages_per_s", "messages/s", -3, false});
    }
    std::vector<LinkParameters> ends;
    if (const LinkPreset* preset = find_preset(link.preset)) {
        ends = {preset_end(*preset, PresetEnd::fast, link),
                preset_end(*preset, PresetEnd::slow, link)};
        for (LinkParameters& end : ends) {
            end.algorithm = link.algorithm;
        }
        table.columns.push_back({"fast_us", "fast end\nus", 2});
        table.columns.push_back({"slow_us", "slow end\nus", 2});
    }
    for (const Bytes size : request.sizes) {
        const Duration time = collective_time(request.kind, size, request.group, link);
        const double bus =
            bus_gb_per_s(request.kind, size, request.group.ranks, std::max(to_us(time), 1e-6));
        std::vector<Cell> row{size.count, to_us(time), bus};
        if (nccl) {
            const std::vector<NcclEstimate> estimates =
                nccl_estimates(request.kind, size, request.group.ranks, *link.topology->regular,
                               *link.topology->nccl);
            row.emplace_back(std::string(name_of(estimates[0].algorithm)));
            row.emplace_back(std::string(name_of(estimates[0].protocol)));
            row.emplace_back(to_us(estimates[0].time));
            const NcclEstimate& next = estimates[1];  // a ring has two protocols at least
            row.emplace_back(fmt::format("{} {}", name_of(next.algorithm), name_of(next.protocol)));
            row.emplace_back(to_us(next.time));
        }
        if (request.by_messages) {
            const MessageRun simulated = by_messages(request, size);
            row.emplace_back(to_us(simulated.run.jobs.front().end));
            row.emplace_back(static_cast<std::int64_t>(simulated.run.messages));
            row.emplace_back(static_cast<std::int64_t>(simulated.run.memory_bytes / 1024));
            row.emplace_back(static_cast<double>(simulated.run.messages) /
                             std::max(simulated.seconds, 1e-9));
        }
        if (!ends.empty()) {
            // An end may choose another way, which is no reason to be on the wrong side.
            const auto at = [&](const LinkParameters& end) {
                return collective_time(request.kind, size, request.group, end);
            };
            row.emplace_back(to_us(std::min(at(ends.front()), time)));
            row.emplace_back(to_us(std::max(at(ends.back()), time)));
        }
        table.rows.push_back(std::move(row));
    }
    if (!ends.empty()) {
        table.notes.emplace_back("a preset, with a range: " + link.provenance.source);
    }
    if (nccl) {
        const NcclSettings& settings = *link.topology->nccl;
        table.notes.push_back(fmt::format(
            "chosen by NCCL {}'s own cost model, for compute capability {} and {} CPUs",
            name_of(settings.version), compute_capability_of(settings), name_of(settings.cpu)));
        table.notes.push_back(
            fmt::format("time: what NCCL expects of it, by clock's ring_ll {:.3g}, nvls {:.3g}, "
                        "network {:.3g}, "
                        "and launching: a prior, not a measurement",
                        settings.clock.ring_ll, settings.clock.nvls, settings.clock.network));
    }
    if (lacks_interference(link)) {
        const auto assumed = assumed_interference(link, request.group, {});
        const Interference& large = assumed.back().slowdown;
        table.notes.push_back(
            fmt::format("beside computing, assumed of large ones: computing at least {:.2f} times "
                        "as long, more by "
                        "what it is; a collective {:.2f} times",
                        static_cast<double>(large.compute_slowdown_ppm) * 1e-6,
                        static_cast<double>(large.communication_slowdown_ppm) * 1e-6));
    }
    if (!link.simulated.empty()) {
        table.notes.emplace_back("times are simulated message by message and linear between sizes");
    }
    return table;
}

// --- presets ---

ResultTable preset_table() {
    constexpr Bytes small{8};
    constexpr Bytes large{std::int64_t{1} << 30};
    ResultTable table;
    table.title = "presets: priors for all-reduce, with their range";
    table.columns = {{"name", "preset"},
                     {"what", "what it is"},
                     {"ranks", "ranks"},
                     {"shown_ranks", "shown\nwith", 0}};
    for (const PresetEnd end : every<PresetEnd>) {
        const std::string name(name_of(end));
        table.columns.push_back({name + "_bus_gb_per_s", name + "\nGB/s", -3});
    }
    for (const PresetEnd end : every<PresetEnd>) {
        const std::string name(name_of(end));
        table.columns.push_back({name + "_latency_us", name + "\nus", -3});
    }
    table.columns.push_back({"logs", "public\nlogs", 0});
    table.columns.push_back({"log_error_percent", "error\n%", -2});
    for (const LinkPreset& preset : link_presets()) {
        const RankGroup group{shown_ranks(preset), 1};
        const auto most = most_ranks_of(preset);
        std::vector<Cell> row{std::string(preset.name), std::string(preset.what),
                              most ? fmt::format("2 to {}", *most) : std::string("any"),
                              group.ranks};
        std::vector<Cell> latencies;
        for (const PresetEnd end : every<PresetEnd>) {
            const LinkParameters link = preset_link(preset, end);
            const auto us = [&](Bytes size) {
                return to_us(collective_time(CollectiveKind::all_reduce, size, group, link));
            };
            row.emplace_back(
                bus_gb_per_s(CollectiveKind::all_reduce, large, group.ranks, us(large)));
            latencies.emplace_back(us(small));
        }
        row.insert(row.end(), latencies.begin(), latencies.end());
        row.emplace_back(preset.logs.count);
        row.push_back(preset.logs.count > 0 ? Cell(preset.logs.error_percent) : Cell());
        table.rows.push_back(std::move(row));
    }
    table.notes = {
        "bus bandwidth at 1 GiB and time of 8 bytes, at the slow end, typically, and at the fast "
        "end",
        "of nodes: by NCCL's cost model; of MI300X, Ethernet and wide areas: a ring",
        "error: of what is typical, on average over 64 KiB to 1 GiB of public nccl-tests logs, the "
        "median log's"};
    return table;
}

// The link alone, as a file has it; all that it names put in place.
std::string link_json_of(const po::variables_map& values, const std::string& file) {
    Json document{{"cluster", {{"link", file}}}};
    if (!looks_like_preset(file) || find_preset(file) == nullptr) {
        const Json read = parse_json(read_link_text(file), file);
        const bool is_scenario = read.is_object() && read.contains("cluster");
        document["cluster"]["link"] = read;
        if (is_scenario) {
            document = read;
        }
    }
    inline_link(document, file, read_text_file);
    Json link = document.at("cluster").value("link", Json(nullptr));
    LinkParameters read = read_link({&link, file, ""}, read_text_file);
    if (values.count("nccl-version") != 0) {
        change_nccl_version(values, read);
        link["topology"]["nccl"]["version"] = name_of(read.topology->nccl->version);
    }
    return json_text(link);
}

}  // namespace

CommandHelp link_list_help() {
    return {.usage = {"bucketwise link list [--format text|csv|json]"},
            .options = options_of({{"format", "text, csv or json", "text"}}),
            .text = list_text,
            .arguments = {.files = false}};
}

CommandHelp link_show_help() {
    return {
        .usage = {"bucketwise link show LINK [OPTIONS]"},
        .options = options_of(
            {{"ranks", "ranks; default: the scenario's"},
             {"ranks-per-node", "of a hierarchical link of two tiers"},
             {"bytes", "sizes of the buffer",
              "1KiB,16KiB,256KiB,1MiB,4MiB,16MiB,64MiB,256MiB,1GiB"},
             {"collective", "all-reduce, all-gather, reduce-scatter or broadcast", "all-reduce"},
             {"algorithm", "instead of the link's, on a topology"},
             {"by-messages", "also simulate every message over the topology's links", no_value},
             nccl_version_option,
             {"json", "print the link as a link file has it, and nothing else", no_value},
             {"format", "text, csv or json", "text"}}),
        .text = show_text,
        .arguments = links(),
        .values = {{"algorithm", one_of(replacing_algorithms)},
                   {"collective", one_of(every<CollectiveKind>)},
                   {"nccl-version", one_of(every<NcclVersion>)}},
        .positional = {"operand"},
        .required = {"operand"},
        .wants = "one link"};
}

int run_link_list(const CommandLine& line) {
    refuse_scenario(line.values, "link list");
    const auto format = choice_value(line.values, "format", every<TableFormat>);
    write_output("-", render(preset_table(), format, Json::object()));
    return exit_done;
}

int run_link_show(const CommandLine& line) {
    const po::variables_map& values = line.values;
    const std::string& operand = text_value(values, "operand");
    const auto format = choice_value(values, "format", every<TableFormat>);
    if (values.count("json") != 0) {
        write_output("-", link_json_of(values, operand));
        return exit_done;
    }
    const LinkRequest request = requested_link(values, operand);
    const Json head{{"link", request.link.name}, {"ranks", request.group.ranks}};
    write_output("-", render(table_of(request), format, head));
    return exit_done;
}

}  // namespace bucketwise
