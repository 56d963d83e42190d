#include "sim/link/network/graph_input.h"

#include <map>
#include <numeric>
#include <string>
#include <utility>

#include <fmt/format.h>

namespace bucketwise {

enum class Routing : std::uint8_t { shortest, tree };

template <>
inline constexpr auto names_of<Routing> = names("shortest", "tree");

namespace {

constexpr std::size_t most_vertices = 1024;
constexpr std::size_t most_graph_links = 65536;

// Sets of vertices that are connected (disjoint sets with path halving).
class Connected {
  public:
    explicit Connected(std::size_t vertices) : parent_(vertices) {
        std::iota(parent_.begin(), parent_.end(), 0);
    }

    // False: they already were.
    bool join(std::int32_t a, std::int32_t b) {
        const std::int32_t root_a = root(a);
        const std::int32_t root_b = root(b);
        parent_[static_cast<std::size_t>(root_a)] = root_b;
        return root_a != root_b;
    }

  private:
    std::int32_t root(std::int32_t vertex) {
        while (parent_[static_cast<std::size_t>(vertex)] != vertex) {
            std::int32_t& above = parent_[static_cast<std::size_t>(vertex)];
            above = parent_[static_cast<std::size_t>(above)];
            vertex = above;
        }
        return vertex;
    }

    std::vector<std::int32_t> parent_;
};

struct GraphSwitch {
    std::string name;
    std::int64_t ports = most_ports;
};

const JsonTable<GraphSwitch>& switch_keys() {
    static const JsonTable<GraphSwitch> table{
        "switch of a graph",
        "A switch",
        {{"name", target(&GraphSwitch::name, as::text()), "required", "no rank's"},
         {"ports", target(&GraphSwitch::ports, as::integer(1, most_ports)), "1,000,000",
          "links it can have"}}};
    return table;
}

JsonDescription two_names() {
    JsonDescription names = as::list(as::text(), 2);
    names.schema["minItems"] = 2;
    return names;
}

const JsonTable<GraphLink>& graph_link_keys() {
    static const JsonTable<GraphLink> table{
        "link of a graph",
        "A full-duplex link",
        {{"between", two_names(), "required", "its two ends, each a rank or a switch"},
         {"latency_us", target(&GraphLink::latency, as::microseconds()), "0", "of the link"},
         {"bandwidth_gb_per_s", target(&GraphLink::bandwidth, as::gb_per_s()), "required",
          "each direction"}}};
    return table;
}

class GraphReader {
  public:
    GraphTopology read(const JsonObject& object) {
        read_ranks(object.at("ranks"));
        if (const auto switches = object.find("switches")) {
            read_switches(*switches);
        }
        Routing routing = Routing::shortest;
        object.read_optional_choice("routing", routing, every<Routing>);
        read_links(object.at("links"), routing == Routing::tree);
        return std::move(graph_);
    }

  private:
    void add_vertex(const JsonPlace& place, const std::string& name) {
        const auto number = static_cast<std::int32_t>(graph_.names.size());
        if (!numbers_.emplace(name, number).second) {
            place.fail("a name that no other rank or switch has", name);
        }
        graph_.names.push_back(name);
        ports_left_.push_back(most_ports);
    }

    void read_ranks(const JsonPlace& place) {
        for (const JsonPlace& element : read_array(place, most_vertices)) {
            add_vertex(element, read_string(element));
        }
        graph_.ranks = std::ssize(graph_.names);
    }

    void read_switches(const JsonPlace& place) {
        for (const JsonPlace& element : read_array(place, most_vertices)) {
            const JsonObject object = switch_keys().open(element);
            GraphSwitch read;
            switch_keys().read(object, read);
            add_vertex(object.at("name"), read.name);
            ports_left_.back() = read.ports;
        }
    }

    std::int32_t read_end(const JsonPlace& place) {
        const std::string name = read_string(place);
        const auto found = numbers_.find(name);
        if (found == numbers_.end()) {
            place.fail("the name of a rank or a switch", name);
        }
        if (--ports_left_[static_cast<std::size_t>(found->second)] < 0) {
            place.fail(fmt::format("no more links than {} has ports", name), "one more");
        }
        return found->second;
    }

    void read_links(const JsonPlace& place, bool tree) {
        Connected connected(graph_.names.size());
        for (const JsonPlace& element : read_array(place, most_graph_links)) {
            const JsonObject object = graph_link_keys().open(element);
            const JsonPlace between = object.at("between");
            const std::vector<JsonPlace> ends = read_array(between, 2);
            if (ends.size() != 2) {
                between.fail("two names", "one");
            }
            GraphLink link;
            link.a = read_end(ends[0]);
            link.b = read_end(ends[1]);
            graph_link_keys().read(object, link);
            if (link.a == link.b) {
                between.fail("two different names", "one twice");
            }
            if (!connected.join(link.a, link.b) && tree) {
                between.fail("a tree, as routing says: one way between any two",
                             fmt::format("a cycle through {} and {}",
                                         graph_.names[static_cast<std::size_t>(link.a)],
                                         graph_.names[static_cast<std::size_t>(link.b)]));
            }
            graph_.links.push_back(link);
        }
    }

    GraphTopology graph_;
    std::map<std::string, std::int32_t> numbers_;
    std::vector<std::int64_t> ports_left_;
};

}  // namespace

std::vector<JsonKey<Topology>> graph_rows() {
    return {
        {"ranks", as::list(as::text(), most_vertices), "none",
         "instead of nodes, NICs, tiers and sites a graph: names of ranks, in order"},
        {"switches", as::list(switch_keys().type(), most_vertices), "none", "of a graph"},
        {"links", as::list(graph_link_keys().type(), most_graph_links), "none", "of a graph"},
        {"routing", as::one_of<Routing>(), "`shortest`",
         "of a graph: `shortest` takes the way of least latency (ranks pass nothing on), `tree` "
         "also refuses cycles"}};
}

GraphTopology read_graph(const JsonObject& topology) {
    return GraphReader().read(topology);
}

}  // namespace bucketwise
