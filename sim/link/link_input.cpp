#include "sim/link/link_input.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "sim/link/link_presets.h"
#include "sim/link/network/topology_input.h"
#include "sim/link/tier_costs.h"

namespace bucketwise {
namespace {

constexpr std::size_t most_segments = 64;

// Reads one link and, through files, the links it names.
class LinkReader {
  public:
    explicit LinkReader(const FileReader& read_file) : read_file_(read_file) {}

    LinkParameters read(const JsonPlace& place) {
        return place.value->is_string() ? read_named(place) : read_inline(place);
    }

  private:
    LinkParameters read_named(const JsonPlace& place) {
        const std::string name = read_string(place);
        if (const LinkPreset* preset = looks_like_preset(name) ? find_preset(name) : nullptr) {
            return preset_link(*preset, PresetEnd::typical);
        }
        const std::string path = path_beside(place.file, name);
        if (std::find(open_files_.begin(), open_files_.end(), path) != open_files_.end()) {
            place.fail("link files that end somewhere",
                       fmt::format("a cycle: {} -> {}", fmt::join(open_files_, " -> "), path));
        }
        constexpr std::size_t most_open_files = 8;
        if (open_files_.size() >= most_open_files) {
            place.fail(fmt::format("at most {} link files that name one another", most_open_files),
                       "more");
        }
        open_files_.push_back(path);
        const Json document = parse_json(read_text(place, name, path), path);
        LinkParameters link = read_inline({&document, path, ""});
        open_files_.pop_back();
        return link;
    }

    std::string read_text(const JsonPlace& place, const std::string& name,
                          const std::string& path) {
        try {
            return read_file_(path);
        } catch (const InputError& error) {
            if (looks_like_preset(name)) {
                place.fail(fmt::format("a link file that can be read ({}), or a preset such as {}",
                                       path, fmt::join(nearest_presets(name), ", ")),
                           error.got());
            }
            place.fail(fmt::format("a link file that can be read ({})", path), error.got());
        }
    }

    LinkParameters read_inline(const JsonPlace& place) {
        const JsonObject object(
            place, {"name", "algorithm", "segments", "intra", "inter", "topology", "launch_us",
                    "meeting_us", "message_us", "processors", "host_issue_us", "host_wait_us",
                    "interference", "all_gather", "reduce_scatter", "ctas", "copy_gb_per_s",
                    "provenance", "caveats"});
        LinkParameters link;
        link.name = read_string(object.at("name"));
        link.algorithm = read_choice(object.at("algorithm"), every<Algorithm>);
        if (object.has("topology")) {
            read_topology_of(object, link);
        } else if (link.algorithm == Algorithm::hierarchical) {
            read_tiers(object, link);
        } else {
            if (link.algorithm == Algorithm::nccl) {
                static_cast<void>(object.at("topology"));  // required: NCCL chooses by it
            }
            refuse_tiers(object);
            link.segments = read_segments(object.at("segments"));
        }
        read_costs(object, link);
        read_own_numbers(object, "all_gather", link, link.all_gather);
        read_own_numbers(object, "reduce_scatter", link, link.reduce_scatter);
        require_ctas(object, link);
        object.read_optional("provenance", link.provenance, read_provenance);
        object.read_optional("caveats", link.caveats, read_caveats);
        return link;
    }

    static void read_topology_of(const JsonObject& object, LinkParameters& link) {
        for (const std::string_view key :
             {"segments", "intra", "inter", "message_us", "processors"}) {
            object.exclusive("topology", key);
        }
        link.topology = read_topology(object.at("topology"));
        const Topology& topology = *link.topology;
        if (link.algorithm == Algorithm::nccl && !topology.nccl) {
            object.at("topology")
                .fail("the key nccl, by which the algorithm nccl chooses", "a topology without it");
        }
        const bool by_messages = topology.irregular();
        if (by_messages &&
            (link.algorithm == Algorithm::nvls || link.algorithm == Algorithm::nccl)) {
            object.at("algorithm")
                .fail(
                    "an algorithm that can be simulated message by message, as a graph, slow_ranks "
                    "and background ask for: ring, direct, recursive_halving_doubling, "
                    "double_binary_tree, hierarchical");
        }
        if (link.algorithm == Algorithm::hierarchical && topology.graph) {
            object.at("algorithm").fail("an algorithm without levels, which a graph does not have");
        }
        if (link.algorithm == Algorithm::nvls && !topology.regular->node.multicast) {
            object.at("algorithm").fail("nvls only where the topology's node has multicast");
        }
    }

    static void refuse_tiers(const JsonObject& object) {
        for (const std::string_view key : {"intra", "inter"}) {
            if (const auto tier = object.find(key)) {
                tier->fail("tiers only with the algorithm hierarchical", "one");
            }
        }
    }

    void read_tiers(const JsonObject& object, LinkParameters& link) {
        if (const auto segments = object.find("segments")) {
            segments->fail("segments in the tiers of a hierarchical link", "some beside them");
        }
        for (const std::string_view key : {"meeting_us", "message_us", "processors"}) {
            if (const auto cost = object.find(key)) {
                cost->fail(fmt::format("{} in the tiers of a hierarchical link", key),
                           "one beside them");
            }
        }
        for (const std::string_view key : {"intra", "inter"}) {
            LinkParameters tier = read(object.at(key));
            if (tier.algorithm == Algorithm::hierarchical) {
                object.at(key).fail("a tier that is not hierarchical itself", "hierarchical");
            }
            if (tier.topology) {
                object.at(key).fail("a tier of segments", "a topology");
            }
            inherit_costs(tier, link);
            link.tiers.push_back(std::move(tier));
        }
    }

    // The limit of segment `i` of `count`, above that of the one before.
    static std::optional<Bytes> read_limit(const JsonObject& object, std::size_t i,
                                           std::size_t count, Bytes& reached) {
        if (i + 1 < count) {
            const JsonPlace up_to = object.at("up_to_bytes");
            const Bytes limit = read_bytes(up_to);
            if (limit <= reached) {
                up_to.fail(fmt::format("more than the segment before ({})", reached.count));
            }
            reached = limit;
            return limit;
        }
        if (const auto up_to = object.find("up_to_bytes")) {
            up_to->fail("no limit on the last segment, which serves all larger messages");
        }
        return std::nullopt;
    }

    static std::vector<Segment> read_segments(const JsonPlace& place) {
        std::vector<Segment> segments;
        const std::vector<JsonPlace> elements = read_array(place, most_segments);
        Bytes reached{0};
        for (std::size_t i = 0; i < elements.size(); ++i) {
            const JsonObject object(elements[i], {"up_to_bytes", "latency_us", "bandwidth_gb_per_s",
                                                  "standard_errors"});
            Segment segment;
            segment.up_to = read_limit(object, i, elements.size(), reached);
            segment.latency = read_duration_us(object.at("latency_us"));
            segment.bandwidth = read_bandwidth_gb_per_s(object.at("bandwidth_gb_per_s"));
            object.read_optional("standard_errors", segment.errors, read_segment_errors);
            segments.push_back(segment);
        }
        return segments;
    }

    static SegmentErrors read_segment_errors(const JsonPlace& place) {
        const JsonObject object(place, {"latency_us", "bandwidth_gb_per_s", "correlation"});
        return {.latency_us = read_number(object.at("latency_us"), {0, 1e6}),
                .bandwidth_gb_per_s = read_number(object.at("bandwidth_gb_per_s"), {0, 1e6}),
                .correlation = read_number(object.at("correlation"), {-1, 1})};
    }

    static void read_costs(const JsonObject& object, LinkParameters& link) {
        object.read_optional("meeting_us", link.meeting, read_duration_us);
        object.read_optional("message_us", link.message, read_duration_us);
        object.read_optional("processors", link.processors, read_integer, 1, most_processors);
        object.read_optional("launch_us", link.launch, read_duration_us);
        object.read_optional("host_issue_us", link.host_issue, read_duration_us);
        object.read_optional("host_wait_us", link.host_wait, read_duration_us);
        object.read_optional("copy_gb_per_s", link.copy_bandwidth, read_bandwidth_gb_per_s);
        object.read_optional("ctas", link.ctas, read_integer, 1, most_thread_blocks);
        if (const auto interference = object.find("interference")) {
            // In the place of all that tiers have.
            link.all_gather.interference.clear();
            link.reduce_scatter.interference.clear();
            link.interference = read_interference(*interference);
        }
    }

    // Costs and interference of one kind of collectives. Tiers and topologies say costs themselves,
    // but no interference.
    static void read_own_numbers(const JsonObject& link_object, std::string_view key,
                                 const LinkParameters& link, OwnNumbers& own) {
        const auto place = link_object.find(key);
        if (!place) {
            return;
        }
        const JsonObject object(*place, {"launch_us", "segments", "interference"});
        if (link.segments.empty()) {
            for (const std::string_view cost : {"segments", "launch_us"}) {
                if (const auto found = object.find(cost)) {
                    found->fail(
                        fmt::format("{} only in a link of segments, or in a tier of them", cost),
                        link.topology ? "some beside a topology" : "some beside tiers");
                }
            }
            own.interference = read_interference(object.at("interference"));
            return;
        }
        own.segments = read_segments(object.at("segments"));
        object.read_optional("launch_us", own.launch, read_duration_us);
        object.read_optional("interference", own.interference, read_interference);
    }

    // Groups by thread blocks ask for how many a collective takes.
    static void require_ctas(const JsonObject& object, const LinkParameters& link) {
        const bool by_ctas = has_cta_groups(link.interference) ||
                             has_cta_groups(link.all_gather.interference) ||
                             has_cta_groups(link.reduce_scatter.interference);
        if (by_ctas) {
            static_cast<void>(object.at("ctas"));
        }
    }

    // One object for messages of every size, or a list by size, or such a list for each of several
    // numbers of thread blocks, or that there is none.
    static std::vector<InterferenceSegment> read_interference(const JsonPlace& place) {
        if (place.value->is_string()) {
            if (read_string(place) != "none") {
                place.fail("none, an object or a list of objects");
            }
            return constant_interference({});
        }
        const std::vector<JsonPlace> elements = place.value->is_array()
                                                    ? read_array(place, most_interference_segments)
                                                    : std::vector<JsonPlace>{place};
        std::map<std::int64_t, std::vector<JsonObject>> by_ctas;
        for (const JsonPlace& element : elements) {
            const JsonObject object(
                element, {"up_to_bytes", "compute_slowdown", "product_slowdown", "rest_slowdown",
                          "communication_slowdown", "start_delay_us", "standard_errors", "ctas"});
            by_ctas[read_ctas(object, elements.front())].push_back(object);
        }
        std::vector<InterferenceSegment> interference;
        for (const auto& [ctas, group] : by_ctas) {
            read_interference_group(ctas, group, interference);
        }
        return interference;
    }

    static constexpr std::int64_t any_ctas = 0;

    static std::int64_t read_ctas(const JsonObject& object, const JsonPlace& first) {
        const auto ctas = object.find("ctas");
        if (first.value->contains("ctas") != ctas.has_value()) {
            object.place().fail("ctas in every entry of interference or in none",
                                ctas ? "one with them after one without" : "one without them");
        }
        return ctas ? read_integer(*ctas, 1, most_thread_blocks) : any_ctas;
    }

    static void read_interference_group(std::int64_t ctas, const std::vector<JsonObject>& group,
                                        std::vector<InterferenceSegment>& interference) {
        Bytes reached{0};
        for (std::size_t i = 0; i < group.size(); ++i) {
            const JsonObject& object = group[i];
            InterferenceSegment segment;
            if (ctas != any_ctas) {
                segment.ctas = ctas;
            }
            segment.up_to = read_limit(object, i, group.size(), reached);
            segment.slowdown = {read_slowdown_ppm(object.at("compute_slowdown")),
                                read_slowdown_ppm(object.at("communication_slowdown"))};
            if (object.has("product_slowdown") || object.has("rest_slowdown")) {
                segment.computing = {read_slowdown_ppm(object.at("product_slowdown")),
                                     read_slowdown_ppm(object.at("rest_slowdown"))};
            }
            object.read_optional("start_delay_us", segment.slowdown.start_delay, read_duration_us);
            object.read_optional("standard_errors", segment.errors, read_interference_errors);
            interference.push_back(segment);
        }
    }

    static InterferenceErrors read_interference_errors(const JsonPlace& place) {
        const JsonObject object(place,
                                {"compute_slowdown", "communication_slowdown", "start_delay_us"});
        InterferenceErrors errors{
            .compute_slowdown = read_number(object.at("compute_slowdown"), {0, 100}),
            .communication_slowdown = read_number(object.at("communication_slowdown"), {0, 100})};
        object.read_optional("start_delay_us", errors.start_delay_us, read_number,
                             NumberRange{0, 1e6});
        return errors;
    }

    static std::int64_t read_slowdown_ppm(const JsonPlace& place) {
        return std::llround(read_number(place, {1, 100}) * 1e6);
    }

    static Provenance read_provenance(const JsonPlace& place) {
        const JsonObject object(
            place, {"backend", "ranks", "smallest_message_bytes", "largest_message_bytes",
                    "hardware", "versions", "date", "samples", "source"});
        Provenance provenance;
        object.read_optional("backend", provenance.backend, read_string);
        object.read_optional("hardware", provenance.hardware, read_string);
        object.read_optional("versions", provenance.versions, read_string);
        object.read_optional("date", provenance.date, read_string);
        object.read_optional("source", provenance.source, read_string);
        object.read_optional("ranks", provenance.ranks, read_integer, 1, 1'000'000);
        object.read_optional("smallest_message_bytes", provenance.smallest_message, read_bytes);
        object.read_optional("largest_message_bytes", provenance.largest_message, read_bytes);
        object.read_optional("samples", provenance.samples, read_integer, 0, 1'000'000'000'000);
        return provenance;
    }

    const FileReader& read_file_;
    std::vector<std::string> open_files_;
};

// A preset's words say where its numbers are from. They go where a number is another's; words that
// are not the preset's stay.
void disown_changed_preset(LinkParameters& link) {
    const std::string_view source = link.provenance.source;
    if (!link.preset.empty() || !source.starts_with(prior_source)) {
        return;
    }
    const LinkPreset* changed = nullptr;
    for (const LinkPreset& preset : link_presets()) {
        if (source.substr(prior_source.size()) != preset.source) {
            continue;
        }
        LinkParameters original = preset_link(preset, PresetEnd::typical);
        original.name = link.name;
        original.preset.clear();
        const std::string backend = original.provenance.backend;  // by which costs are assumed
        original.provenance = link.provenance;
        original.provenance.backend = backend;
        original.caveats = link.caveats;  // no numbers
        if (link == original) {
            return;
        }
        changed = &preset;
    }
    if (changed != nullptr) {
        link.provenance.source =
            fmt::format("made from the preset {}, with other numbers than its own", changed->name);
        if (link.provenance.hardware == changed->what) {
            link.provenance.hardware.clear();
        }
    }
}

// A link file with all it names put in place, at most `depth` files deep; beyond that, names stay.
Json inlined(const Json& link, const std::string& naming_file, const FileReader& read_file,
             int depth) {
    if (!link.is_string() || depth == 0) {
        return link;
    }
    const std::string name = link.get<std::string>();
    if (const LinkPreset* preset = looks_like_preset(name) ? find_preset(name) : nullptr) {
        return preset_document(*preset);
    }
    const std::string path = path_beside(naming_file, name);
    Json document = parse_json(read_file(path), path);
    for (const char* tier : {"intra", "inter"}) {
        if (document.is_object() && document.contains(tier)) {
            document[tier] = inlined(document[tier], path, read_file, depth - 1);
        }
    }
    return document;
}

}  // namespace

std::string path_beside(const std::string& naming_file, const std::string& path) {
    const std::size_t slash = naming_file.rfind('/');
    const bool absolute = !path.empty() && path.front() == '/';
    const bool in_no_folder = slash == std::string::npos || naming_file.starts_with("/dev/");
    return absolute || in_no_folder ? path : naming_file.substr(0, slash + 1) + path;
}

LinkParameters read_link(const JsonPlace& place, const FileReader& read_file) {
    LinkParameters link = LinkReader(read_file).read(place);
    disown_changed_preset(link);
    return link;
}

void inline_link(Json& document, const std::string& file, const FileReader& read_file) {
    constexpr int deepest = 4;  // a link and its tiers are two
    const Json::json_pointer place("/cluster/link");
    if (document.is_object() && document.contains(place)) {
        document[place] = inlined(document[place], file, read_file, deepest);
    }
}

}  // namespace bucketwise
