// A link as a link file holds it.
#include "sim/base/invariant.h"
#include "sim/base/json_output.h"
#include "sim/link/link.h"
#include "sim/text/foreign_text.h"

namespace bucketwise {
namespace {

double slowdown(std::int64_t ppm) {
    return static_cast<double>(ppm) / 1e6;
}

void add_us(Json& json, std::string_view key, Duration time) {
    add_if(time > Duration{0}, json, key, to_us(time));
}

Json segment_json(const Segment& segment) {
    Json json = Json::object();
    add_optional(json, "up_to_bytes", segment.up_to, byte_count);
    json["latency_us"] = to_us(segment.latency);
    json["bandwidth_gb_per_s"] = to_gb_per_s(segment.bandwidth);
    add_optional(json, "standard_errors", segment.errors, [](const SegmentErrors& errors) {
        return Json{{"latency_us", errors.latency_us},
                    {"bandwidth_gb_per_s", errors.bandwidth_gb_per_s},
                    {"correlation", errors.correlation}};
    });
    return json;
}

Json interference_json(const InterferenceSegment& segment) {
    Json json = Json::object();
    add_optional(json, "ctas", segment.ctas);
    add_optional(json, "up_to_bytes", segment.up_to, byte_count);
    json["compute_slowdown"] = slowdown(segment.slowdown.compute_slowdown_ppm);
    json["communication_slowdown"] = slowdown(segment.slowdown.communication_slowdown_ppm);
    if (const auto& computing = segment.computing) {
        json["product_slowdown"] = slowdown(computing->product_ppm);
        json["rest_slowdown"] = slowdown(computing->rest_ppm);
    }
    add_us(json, "start_delay_us", segment.slowdown.start_delay);
    add_optional(json, "standard_errors", segment.errors, [](const InterferenceErrors& errors) {
        Json of{{"compute_slowdown", errors.compute_slowdown},
                {"communication_slowdown", errors.communication_slowdown}};
        add_if(errors.start_delay_us > 0, of, "start_delay_us", errors.start_delay_us);
        return of;
    });
    return json;
}

Json all_interference_json(const std::vector<InterferenceSegment>& interference) {
    if (interference == constant_interference({})) {
        return "none";
    }
    return interference.size() == 1 ? interference_json(interference.front())
                                    : json_list(interference, interference_json);
}

void add_own_numbers(Json& json, std::string_view key, const OwnNumbers& own) {
    Json numbers = Json::object();
    add_us(numbers, "launch_us", own.launch);
    add_unless_empty(numbers, "segments", json_list(own.segments, segment_json));
    add_if(!own.interference.empty(), numbers, "interference",
           all_interference_json(own.interference));
    add_unless_empty(json, key, numbers);
}

// As read_string() reads it.
std::string cut(const std::string& text) {
    constexpr std::size_t longest = 200;
    return cut_text(text, longest);
}

Json provenance_json(const Provenance& from) {
    Json json = Json::object();
    add_unless_empty(json, "backend", cut(from.backend));
    add_unless_empty(json, "hardware", cut(from.hardware));
    add_unless_empty(json, "versions", cut(from.versions));
    add_unless_empty(json, "date", cut(from.date));
    add_unless_empty(json, "source", cut(from.source));
    add_optional(json, "ranks", from.ranks);
    add_optional(json, "smallest_message_bytes", from.smallest_message, byte_count);
    add_optional(json, "largest_message_bytes", from.largest_message, byte_count);
    add_optional(json, "samples", from.samples);
    return json;
}

Json nics_json(const NicTopology& nics) {
    Json json{{"per_node", nics.per_node},
              {"latency_us", to_us(nics.latency)},
              {"bandwidth_gb_per_s", to_gb_per_s(nics.bandwidth)}};
    add_if(nics.path != NicPath::pxb, json, "path", name_of(nics.path));
    return json;
}

Json nccl_json(const NcclSettings& settings) {
    const NcclSettings usual{.generation = settings.generation, .channels = settings.channels};
    Json json{{"generation", name_of(settings.generation)}, {"channels", settings.channels}};
    add_if(settings.version != usual.version, json, "version", name_of(settings.version));
    add_optional(json, "compute_capability", settings.compute_capability);
    add_if(settings.cpu != usual.cpu, json, "cpu", name_of(settings.cpu));
    add_if(settings.collnet, json, "collnet", true);
    json["clock"] = {{"ring_ll", settings.clock.ring_ll},
                     {"nvls", settings.clock.nvls},
                     {"network", settings.clock.network}};
    return json;
}

// Nodes and their NICs, as the presets have them: what was measured or fitted has no topology.
Json topology_json(const Topology& topology) {
    invariant(topology.nccl && !topology.irregular() && topology.regular->tiers.empty() &&
                  !topology.regular->sites,
              "a topology that is written is a preset's");
    const NodeTopology& node = topology.regular->node;
    Json json{{"node",
               {{"gpus", node.gpus},
                {"fabric", name_of(node.fabric)},
                {"bandwidth_gb_per_s", to_gb_per_s(node.bandwidth)}}},
              {"nccl", nccl_json(*topology.nccl)}};
    add_if(node.multicast, json["node"], "multicast", true);
    add_optional(json, "nics", topology.regular->nics, nics_json);
    return json;
}

}  // namespace

Json link_json(const LinkParameters& link) {
    Json json{{"name", cut(link.name)}, {"algorithm", name_of(link.algorithm)}};
    add_optional(json, "topology", link.topology, topology_json);
    if (link.algorithm == Algorithm::hierarchical) {
        json["intra"] = link_json(link.tiers.at(0));
        json["inter"] = link_json(link.tiers.at(1));
    }
    add_unless_empty(json, "segments", json_list(link.segments, segment_json));
    add_us(json, "launch_us", link.launch);
    add_us(json, "meeting_us", link.meeting);
    add_us(json, "message_us", link.message);
    add_optional(json, "processors", link.processors);
    add_us(json, "host_issue_us", link.host_issue);
    add_us(json, "host_wait_us", link.host_wait);
    add_if(!link.interference.empty(), json, "interference",
           all_interference_json(link.interference));
    add_own_numbers(json, "all_gather", link.all_gather);
    add_own_numbers(json, "reduce_scatter", link.reduce_scatter);
    add_optional(json, "ctas", link.ctas);
    add_optional(json, "copy_gb_per_s", link.copy_bandwidth, to_gb_per_s);
    add_if(link.provenance != Provenance{}, json, "provenance", provenance_json(link.provenance));
    add_unless_empty(json, "caveats", caveats_json(link.caveats));
    return json;
}

}  // namespace bucketwise
