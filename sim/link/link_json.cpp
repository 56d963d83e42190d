#include "sim/link/link_json.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "sim/base/invariant.h"

namespace bucketwise {
namespace {

double gb_per_s(BytesPerSecond bandwidth) {
    return static_cast<double>(bandwidth.count) / 1e9;
}

double slowdown(std::int64_t ppm) {
    return static_cast<double>(ppm) / 1e6;
}

void add_limit(Json& json, const std::optional<Bytes>& up_to) {
    if (up_to) {
        json["up_to_bytes"] = up_to->count;
    }
}

Json segment_json(const Segment& segment) {
    Json json = Json::object();
    add_limit(json, segment.up_to);
    json["latency_us"] = to_us(segment.latency);
    json["bandwidth_gb_per_s"] = gb_per_s(segment.bandwidth);
    if (segment.errors) {
        json["standard_errors"] = {{"latency_us", segment.errors->latency_us},
                                   {"bandwidth_gb_per_s", segment.errors->bandwidth_gb_per_s},
                                   {"correlation", segment.errors->correlation}};
    }
    return json;
}

Json interference_json(const InterferenceSegment& segment) {
    Json json = Json::object();
    if (segment.ctas) {
        json["ctas"] = *segment.ctas;
    }
    add_limit(json, segment.up_to);
    json["compute_slowdown"] = slowdown(segment.slowdown.compute_slowdown_ppm);
    json["communication_slowdown"] = slowdown(segment.slowdown.communication_slowdown_ppm);
    if (segment.errors) {
        json["standard_errors"] = {
            {"compute_slowdown", segment.errors->compute_slowdown},
            {"communication_slowdown", segment.errors->communication_slowdown}};
    }
    return json;
}

// As a link file may have it: no control characters, and as long, in whole characters of UTF-8.
std::string cut(std::string text) {
    std::replace_if(
        text.begin(), text.end(), [](unsigned char c) { return c < ' ' || c == 0x7F; }, ' ');
    constexpr std::size_t longest = 200;
    constexpr unsigned char continuation_mask = 0xC0;
    constexpr unsigned char continuation = 0x80;
    if (text.size() <= longest) {
        return text;
    }
    const std::string dots = "...";
    std::size_t end = longest - dots.size();
    while (end > 0 && (static_cast<unsigned char>(text[end]) & continuation_mask) == continuation) {
        --end;
    }
    return text.substr(0, end) + dots;
}

Json provenance_json(const Provenance& from) {
    Json json = Json::object();
    const auto add_text = [&](const char* key, const std::string& text) {
        if (!text.empty()) {
            json[key] = cut(text);
        }
    };
    add_text("backend", from.backend);
    add_text("hardware", from.hardware);
    add_text("versions", from.versions);
    add_text("date", from.date);
    add_text("source", from.source);
    if (from.ranks) {
        json["ranks"] = *from.ranks;
    }
    if (from.smallest_message) {
        json["smallest_message_bytes"] = from.smallest_message->count;
    }
    if (from.largest_message) {
        json["largest_message_bytes"] = from.largest_message->count;
    }
    if (from.samples) {
        json["samples"] = *from.samples;
    }
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
                {"bandwidth_gb_per_s", gb_per_s(node.bandwidth)}}},
              {"nccl",
               {{"generation", name_of(topology.nccl->generation)},
                {"channels", topology.nccl->channels}}}};
    if (node.multicast) {
        json["node"]["multicast"] = true;
    }
    if (const auto& nics = topology.regular->nics) {
        json["nics"] = {{"per_node", nics->per_node},
                        {"latency_us", to_us(nics->latency)},
                        {"bandwidth_gb_per_s", gb_per_s(nics->bandwidth)}};
    }
    return json;
}

}  // namespace

Json link_json(const LinkParameters& link) {
    Json json{{"name", cut(link.name)}, {"algorithm", name_of(link.algorithm)}};
    if (link.topology) {
        json["topology"] = topology_json(*link.topology);
    }
    if (link.algorithm == Algorithm::hierarchical) {
        json["intra"] = link_json(link.tiers.at(0));
        json["inter"] = link_json(link.tiers.at(1));
    }
    for (const Segment& segment : link.segments) {
        json["segments"].push_back(segment_json(segment));
    }
    if (link.launch > Duration{0}) {
        json["launch_us"] = to_us(link.launch);
    }
    if (link.meeting > Duration{0}) {
        json["meeting_us"] = to_us(link.meeting);
    }
    if (link.message > Duration{0}) {
        json["message_us"] = to_us(link.message);
    }
    if (link.processors) {
        json["processors"] = *link.processors;
    }
    if (link.host_issue > Duration{0}) {
        json["host_issue_us"] = to_us(link.host_issue);
    }
    if (link.host_wait > Duration{0}) {
        json["host_wait_us"] = to_us(link.host_wait);
    }
    if (link.interference.size() == 1) {
        json["interference"] = interference_json(link.interference.front());
    } else if (!link.interference.empty()) {
        for (const InterferenceSegment& segment : link.interference) {
            json["interference"].push_back(interference_json(segment));
        }
    }
    if (link.ctas) {
        json["ctas"] = *link.ctas;
    }
    if (link.copy_bandwidth) {
        json["copy_gb_per_s"] = gb_per_s(*link.copy_bandwidth);
    }
    if (link.provenance != Provenance{}) {
        json["provenance"] = provenance_json(link.provenance);
    }
    return json;
}

}  // namespace bucketwise
