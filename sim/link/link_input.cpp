#include "sim/link/link_input.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "sim/link/link_keys.h"
#include "sim/link/link_presets.h"
#include "sim/link/tier_costs.h"

namespace bucketwise {
namespace {

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
        const JsonObject object = link_keys().open(place);
        LinkParameters link;
        const Algorithm algorithm = read_choice(object.at("algorithm"), every<Algorithm>);
        if (!object.has("topology") && algorithm == Algorithm::hierarchical) {
            read_tiers(object, link);
        } else if (!object.has("topology")) {
            // NCCL chooses by its topology.
            static_cast<void>(object.at(algorithm == Algorithm::nccl ? "topology" : "segments"));
            refuse_tiers(object);
        }
        link_keys().read(object, link);
        if (link.topology) {
            check_topology(object, link);
        }
        check_own_numbers(object, "all_gather", link);
        check_own_numbers(object, "reduce_scatter", link);
        require_ctas(object, link);
        return link;
    }

    static void check_topology(const JsonObject& object, const LinkParameters& link) {
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

    // Costs and interference of one kind of collectives. Tiers and topologies say costs themselves,
    // but no interference.
    static void check_own_numbers(const JsonObject& link_object, std::string_view key,
                                  const LinkParameters& link) {
        const auto place = link_object.find(key);
        if (!place) {
            return;
        }
        const JsonObject object = own_number_keys().open(*place);
        if (!link.segments.empty()) {
            static_cast<void>(object.at("segments"));
            return;
        }
        for (const std::string_view cost : {"segments", "launch_us"}) {
            use_present(object, cost, [&](const JsonPlace& found) {
                found.fail(fmt::format("{} only in a link of segments, or in a tier of them", cost),
                           link.topology ? "some beside a topology" : "some beside tiers");
            });
        }
        static_cast<void>(object.at("interference"));
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
