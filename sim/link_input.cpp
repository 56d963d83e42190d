#include "sim/link_input.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace bucketwise {
namespace {

constexpr std::size_t most_segments = 64;
constexpr std::array<Algorithm, 5> all_algorithms{
    Algorithm::ring, Algorithm::direct, Algorithm::recursive_halving_doubling,
    Algorithm::double_binary_tree, Algorithm::hierarchical};

// Reads one link and, through files, the links it names.
class LinkReader {
  public:
    explicit LinkReader(const FileReader& read_file) : read_file_(read_file) {}

    LinkParameters read(const JsonPlace& place) {
        return place.value->is_string() ? read_named(place) : read_inline(place);
    }

  private:
    LinkParameters read_named(const JsonPlace& place) {
        const std::string path = path_beside(place.file, read_string(place));
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
        const Json document = parse_json(read_text(place, path), path);
        LinkParameters link = read_inline({&document, path, ""});
        open_files_.pop_back();
        return link;
    }

    std::string read_text(const JsonPlace& place, const std::string& path) {
        try {
            return read_file_(path);
        } catch (const InputError& error) {
            place.fail(fmt::format("a link file that can be read ({})", path), error.got());
        }
    }

    LinkParameters read_inline(const JsonPlace& place) {
        const JsonObject object(
            place, {"name", "algorithm", "segments", "intra", "inter", "launch_us", "host_issue_us",
                    "interference", "copy_gb_per_s", "provenance"});
        LinkParameters link;
        link.name = read_string(object.at("name"));
        link.algorithm = read_choice(object.at("algorithm"), all_algorithms);
        if (link.algorithm == Algorithm::hierarchical) {
            read_tiers(object, link);
        } else {
            refuse_tiers(object);
            read_segments(object.at("segments"), link);
        }
        read_costs(object, link);
        if (const auto provenance = object.find("provenance")) {
            link.provenance = read_provenance(*provenance);
        }
        return link;
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
        for (const std::string_view key : {"intra", "inter"}) {
            LinkParameters tier = read(object.at(key));
            if (tier.algorithm == Algorithm::hierarchical) {
                object.at(key).fail("a tier that is not hierarchical itself", "hierarchical");
            }
            inherit(link, tier);
            link.tiers.push_back(std::move(tier));
        }
    }

    // What the hierarchical link does not say itself it takes from its tiers, the costlier of both.
    static void inherit(LinkParameters& link, const LinkParameters& tier) {
        link.host_issue = std::max(link.host_issue, tier.host_issue);
        Interference& own = link.interference;
        own.compute_slowdown_ppm =
            std::max(own.compute_slowdown_ppm, tier.interference.compute_slowdown_ppm);
        own.communication_slowdown_ppm =
            std::max(own.communication_slowdown_ppm, tier.interference.communication_slowdown_ppm);
        if (tier.copy_bandwidth) {
            link.copy_bandwidth =
                std::min(link.copy_bandwidth.value_or(*tier.copy_bandwidth), *tier.copy_bandwidth);
        }
    }

    static void read_segments(const JsonPlace& place, LinkParameters& link) {
        const std::vector<JsonPlace> elements = read_array(place, most_segments);
        Bytes reached{0};
        for (std::size_t i = 0; i < elements.size(); ++i) {
            const JsonObject object(elements[i],
                                    {"up_to_bytes", "latency_us", "bandwidth_gb_per_s"});
            Segment segment;
            if (i + 1 < elements.size()) {
                const JsonPlace up_to = object.at("up_to_bytes");
                segment.up_to = read_bytes(up_to);
                if (*segment.up_to <= reached) {
                    up_to.fail(fmt::format("more than the segment before ({})", reached.count));
                }
                reached = *segment.up_to;
            } else if (const auto up_to = object.find("up_to_bytes")) {
                up_to->fail("no limit on the last segment, which serves all larger messages");
            }
            segment.latency = read_duration_us(object.at("latency_us"));
            segment.bandwidth = read_bandwidth_gb_per_s(object.at("bandwidth_gb_per_s"));
            link.segments.push_back(segment);
        }
    }

    static void read_costs(const JsonObject& object, LinkParameters& link) {
        if (const auto launch = object.find("launch_us")) {
            link.launch = read_duration_us(*launch);
        }
        if (const auto host_issue = object.find("host_issue_us")) {
            link.host_issue = read_duration_us(*host_issue);
        }
        if (const auto copy = object.find("copy_gb_per_s")) {
            link.copy_bandwidth = read_bandwidth_gb_per_s(*copy);
        }
        if (const auto interference = object.find("interference")) {
            const JsonObject slowdowns(*interference,
                                       {"compute_slowdown", "communication_slowdown"});
            link.interference.compute_slowdown_ppm =
                read_slowdown_ppm(slowdowns.at("compute_slowdown"));
            link.interference.communication_slowdown_ppm =
                read_slowdown_ppm(slowdowns.at("communication_slowdown"));
        }
    }

    static std::int64_t read_slowdown_ppm(const JsonPlace& place) {
        return std::llround(read_number(place, {1, 100}) * 1e6);
    }

    static Provenance read_provenance(const JsonPlace& place) {
        const JsonObject object(
            place, {"backend", "ranks", "hardware", "versions", "date", "samples", "source"});
        Provenance provenance;
        const auto text = [&](std::string_view key, std::string& target) {
            if (const auto found = object.find(key)) {
                target = read_string(*found);
            }
        };
        text("backend", provenance.backend);
        text("hardware", provenance.hardware);
        text("versions", provenance.versions);
        text("date", provenance.date);
        text("source", provenance.source);
        if (const auto ranks = object.find("ranks")) {
            provenance.ranks = read_integer(*ranks, 1, 1'000'000);
        }
        if (const auto samples = object.find("samples")) {
            provenance.samples = read_integer(*samples, 0, 1'000'000'000'000);
        }
        return provenance;
    }

    const FileReader& read_file_;
    std::vector<std::string> open_files_;
};

}  // namespace

std::string path_beside(const std::string& naming_file, const std::string& path) {
    const std::size_t slash = naming_file.rfind('/');
    const bool absolute = !path.empty() && path.front() == '/';
    return absolute || slash == std::string::npos ? path : naming_file.substr(0, slash + 1) + path;
}

LinkParameters read_link(const JsonPlace& place, const FileReader& read_file) {
    return LinkReader(read_file).read(place);
}

}  // namespace bucketwise
