#include "import/chakra/chakra_trace.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <queue>
#include <unordered_map>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <simdjson.h>

#include "import/chakra/chakra_node.h"
#include "import/chakra/wire_format.h"
#include "import/source/json_objects.h"
#include "sim/base/error.h"

namespace bucketwise {
namespace {

constexpr std::size_t most_nodes = 2'000'000;
constexpr std::size_t most_edges = 16'000'000;

// The part of a node that is kept.
struct KeptNode {
    std::uint64_t id = 0;
    std::uint64_t compute_us = 0;  // 0: it does not compute
    bool on_host = false;
    std::vector<std::uint64_t> dependencies = {};  // numbers, then places
    std::vector<std::uint64_t> controls = {};      // the same, of control alone
    std::optional<std::size_t> collective = {};
};

// --- the order of dependencies ---

class Graph {
  public:
    void add(const ChakraNode& node, std::optional<std::size_t> collective,
             const std::string& file) {
        edges_ += node.dependencies.size() + node.controls.size();
        if (nodes_.size() == most_nodes || edges_ > most_edges) {
            throw InputError(
                file, "",
                fmt::format("at most {} nodes and {} dependencies", most_nodes, most_edges),
                "more");
        }
        nodes_.push_back({.id = node.id,
                          .compute_us = node.type == ChakraType::compute ? node.duration_us : 0,
                          .on_host = node.on_host.value_or(false),
                          .dependencies = node.dependencies,
                          .controls = node.controls,
                          .collective = collective});
    }

    // Turns numbers of nodes into places; those of no node, or of the node itself, are dropped.
    // Returns how many nodes depended on themselves.
    std::size_t resolve(const std::string& file) {
        std::unordered_map<std::uint64_t, std::size_t> places;
        for (std::size_t i = 0; i < nodes_.size(); ++i) {
            if (!places.emplace(nodes_[i].id, i).second) {
                throw InputError(file, "", "nodes with numbers of their own",
                                 fmt::format("two with {}", nodes_[i].id));
            }
        }
        std::size_t on_themselves = 0;
        for (KeptNode& node : nodes_) {
            std::size_t own = 0;
            for (auto* on : {&node.dependencies, &node.controls}) {
                own += std::erase(*on, node.id);
                std::erase_if(*on, [&](std::uint64_t id) { return !places.contains(id); });
                std::ranges::transform(*on, on->begin(),
                                       [&](std::uint64_t id) { return places.at(id); });
            }
            on_themselves += own > 0 ? 1 : 0;
        }
        return on_themselves;
    }

    // By data and control or, where those go in circles, by data alone: then returns false.
    // Throws InputError where data does, too.
    bool use_controls(const std::string& file) {
        std::vector<std::vector<std::uint64_t>> data;
        for (KeptNode& node : nodes_) {
            data.push_back(node.dependencies);
            node.dependencies.insert(node.dependencies.end(), node.controls.begin(),
                                     node.controls.end());
        }
        if (order()) {
            return true;
        }
        for (std::size_t i = 0; i < nodes_.size(); ++i) {
            nodes_[i].dependencies = std::move(data[i]);
        }
        if (!order()) {
            throw InputError(file, "", "nodes whose data depend on one another in an order",
                             "some that go in a circle");
        }
        return false;
    }

    // Collectives, each after those it depends on, the lower number first; nothing for a circle.
    [[nodiscard]] std::optional<std::vector<std::size_t>> order() const {
        std::vector<std::size_t> waiting(nodes_.size());
        std::vector<std::vector<std::size_t>> users(nodes_.size());
        using Numbered = std::pair<std::uint64_t, std::size_t>;
        std::priority_queue<Numbered, std::vector<Numbered>, std::greater<>> ready;
        for (std::size_t i = 0; i < nodes_.size(); ++i) {
            waiting[i] = nodes_[i].dependencies.size();
            for (const std::uint64_t on : nodes_[i].dependencies) {
                users[on].push_back(i);
            }
            if (waiting[i] == 0) {
                ready.emplace(nodes_[i].id, i);
            }
        }
        std::vector<std::size_t> order;
        std::size_t done = 0;
        for (; !ready.empty(); ++done) {
            const std::size_t i = ready.top().second;
            ready.pop();
            if (nodes_[i].collective) {
                order.push_back(i);
            }
            for (const std::size_t user : users[i]) {
                if (--waiting[user] == 0) {
                    ready.emplace(nodes_[user].id, user);
                }
            }
        }
        return done < nodes_.size() ? std::nullopt : std::optional(std::move(order));
    }

    [[nodiscard]] std::size_t collective_of(std::size_t place) const {
        return *nodes_[place].collective;
    }

    // The computing before each collective of `order` is issued: all nodes that it and those before
    // it depend on, one after another. The last time is of all nodes. Where a device computes, its
    // host's nodes do not count. Empty: nothing has a duration.
    [[nodiscard]] std::vector<std::uint64_t> computed_until(
        const std::vector<std::size_t>& order) const {
        const bool device = std::ranges::any_of(
            nodes_, [](const KeptNode& node) { return node.compute_us > 0 && !node.on_host; });
        const auto add = [&](std::uint64_t& sum, const KeptNode& node) {
            constexpr auto most = static_cast<std::uint64_t>(longest_duration.count() / 1'000'000);
            sum += device && node.on_host ? 0 : std::min(node.compute_us, most);
            sum = std::min(sum, most);
        };
        std::uint64_t all = 0;
        for (const KeptNode& node : nodes_) {
            add(all, node);
        }
        if (all == 0) {
            return {};
        }
        std::vector<std::uint64_t> times;
        std::vector<bool> seen(nodes_.size());
        std::uint64_t so_far = 0;
        for (const std::size_t collective : order) {
            for (std::vector<std::size_t> stack{collective}; !stack.empty();) {
                const std::size_t i = stack.back();
                stack.pop_back();
                if (!seen[i]) {
                    seen[i] = true;
                    add(so_far, nodes_[i]);
                    stack.insert(stack.end(), nodes_[i].dependencies.begin(),
                                 nodes_[i].dependencies.end());
                }
            }
            times.push_back(so_far);
        }
        times.push_back(all);
        return times;
    }

  private:
    std::vector<KeptNode> nodes_;
    std::size_t edges_ = 0;
};

// --- traces ---

class TraceReader {
  public:
    explicit TraceReader(const std::string& file) : file_(file) { log_.file = file; }

    void add(const ChakraNode& node) {
        std::optional<std::size_t> place;
        if (!node.collective.empty()) {
            if (log_.collectives.size() == most_logged_collectives) {
                throw InputError(file_, "",
                                 fmt::format("at most {} collectives", most_logged_collectives),
                                 "more");
            }
            place = log_.collectives.size();
            log_.collectives.push_back({.kind = logged_kind(node.collective),
                                        .name = node.collective,
                                        .group = node.group,
                                        .description = node.description,
                                        .group_size = node.group_size,
                                        .elements = std::max(node.elements, std::int64_t{0}),
                                        .dtype = node.dtype});
            bytes_.push_back(node.bytes);
            orders_.push_back(node.order);
            is_call_.push_back(node.name.find("record_param_comms") != std::string::npos);
        }
        if (node.name.starts_with("Optimizer.step") && node.order >= 0) {
            step_ends_.push_back(node.order);
        }
        for (const auto& [name, size] : node.groups) {
            group_sizes_[name] = std::max(size, std::int64_t{0});
        }
        graph_.add(node, place, file_);
        ++nodes_;
    }

    CollectiveLog finish() {
        if (log_.collectives.empty()) {
            throw InputError(file_, "", "a Chakra execution trace with collectives",
                             fmt::format("{} nodes without any", nodes_));
        }
        const bool is_pytorch =
            std::ranges::all_of(orders_, [](std::int64_t order) { return order >= 0; }) &&
            std::ranges::all_of(bytes_, [](std::int64_t bytes) { return bytes < 0; });
        if (is_pytorch) {
            finish_pytorch();
        } else {
            finish_chakra();
        }
        std::map<std::string, std::int64_t> numbers;
        for (LoggedCollective& collective : log_.collectives) {
            collective.sequence = numbers[collective.group]++;
        }
        return std::move(log_);
    }

  private:
    // Gloo's collectives do not name their group.
    void set_group_size(LoggedCollective& collective) const {
        const auto found = group_sizes_.find(collective.group);
        if (collective.group_size == 0 && found != group_sizes_.end()) {
            collective.group_size = found->second;
        } else if (collective.group_size == 0 && group_sizes_.size() == 1) {
            collective.group_size = group_sizes_.begin()->second;
        }
    }

    // Sorts by the order of functions as they were entered. NCCL's process group records each
    // collective twice (the call with its numbers, and its name), which counts once.
    void finish_pytorch() {
        log_.kind = "execution trace of PyTorch";
        const bool calls = std::ranges::find(is_call_, true) != is_call_.end();
        std::vector<std::pair<std::int64_t, std::size_t>> order;
        for (std::size_t i = 0; i < orders_.size(); ++i) {
            if ((is_call_[i] || !calls) && log_.collectives[i].name != "wait") {
                order.emplace_back(orders_[i], i);
            }
        }
        std::ranges::sort(order);
        std::ranges::sort(step_ends_);
        std::vector<LoggedCollective> sorted;
        for (const auto& [entered, place] : order) {
            sorted.push_back(std::move(log_.collectives[place]));
            set_group_size(sorted.back());
            if (!step_ends_.empty()) {
                sorted.back().step =
                    std::ranges::upper_bound(step_ends_, entered) - step_ends_.begin();
            }
        }
        log_.collectives = std::move(sorted);
        if (log_.collectives.empty()) {
            throw InputError(file_, "", "collectives in an execution trace", "none");
        }
    }

    void finish_chakra() {
        log_.kind = "Chakra execution trace";
        take_sizes();
        if (const std::size_t nodes = graph_.resolve(file_); nodes > 0) {
            log_.notes.push_back(fmt::format("{} {} on {}: dropped", nodes,
                                             nodes == 1 ? "node depends" : "nodes depend",
                                             nodes == 1 ? "itself" : "themselves"));
        }
        if (!graph_.use_controls(file_)) {
            log_.notes.emplace_back(
                "control dependencies go in a circle: only data dependencies order the nodes");
        }
        const std::vector<std::size_t> order = *graph_.order();
        const std::vector<std::uint64_t> computed = graph_.computed_until(order);
        std::vector<LoggedCollective> sorted;
        for (std::size_t i = 0; i < order.size(); ++i) {
            sorted.push_back(std::move(log_.collectives[graph_.collective_of(order[i])]));
            if (!computed.empty()) {
                sorted.back().issued = microseconds(computed[i]);
            }
        }
        log_.collectives = std::move(sorted);
        if (!computed.empty()) {
            log_.clock = LogClock::computing;
            log_.computing = microseconds(computed.back());
        }
    }

    static Duration microseconds(std::uint64_t us) {
        return Duration{static_cast<std::int64_t>(us) * 1'000'000};
    }

    // A trace has bytes alone.
    void take_sizes() {
        const auto is_odd = [](std::int64_t bytes) { return bytes > 0 && bytes % 4 != 0; };
        const bool halves = std::ranges::any_of(bytes_, is_odd);
        const DType dtype = halves ? DType::bfloat16 : DType::float32;
        for (std::size_t i = 0; i < bytes_.size(); ++i) {
            LoggedCollective& collective = log_.collectives[i];
            if (bytes_[i] > 0) {
                collective.elements = bytes_[i] / element_size(dtype).count;
                collective.dtype = name_of(dtype);
            }
        }
        log_.notes.push_back(
            fmt::format("a trace has bytes alone: elements are taken for {}", name_of(dtype)));
    }

    const std::string& file_;
    CollectiveLog log_;
    std::vector<std::int64_t> bytes_;      // of each collective; -1: not said
    std::vector<std::int64_t> orders_;     // the same
    std::vector<bool> is_call_;            // of PyTorch's, with its numbers
    std::vector<std::int64_t> step_ends_;  // where optimizers begin, in the order of functions
    std::map<std::string, std::int64_t> group_sizes_;
    Graph graph_;
    std::size_t nodes_ = 0;
};

// --- forms ---

void read_messages(const ByteSource& source, const std::string& file, TraceReader& reader) {
    constexpr std::size_t longest = std::size_t{512} << 20;
    std::string bytes;
    std::string block(std::size_t{1} << 16, '\0');
    while (const std::size_t count = source(block.data(), block.size())) {
        bytes.append(block, 0, count);
        if (bytes.size() > longest) {
            throw InputError(file, "", "messages of at most 512 MiB", "more");
        }
    }
    WireMessage messages(bytes, file);
    for (std::size_t number = 0; const auto message = messages.next_message(); ++number) {
        const std::string place = fmt::format("{}: message {}", file, number);
        if (const auto node = node_of_message(*message, place, number == 0)) {
            reader.add(*node);
        }
    }
}

void read_text(const ByteSource& source, const std::string& file, TraceReader& reader) {
    JsonObjects objects(source, {"nodes", "workload_graph"}, file);
    bool first = true;
    while (const auto nodes = objects.next()) {
        for (const simdjson::dom::element node : *nodes) {
            // chakra_jsonizer writes GlobalMetadata first, which is no node.
            if (!std::exchange(first, false) ||
                member(node, {"id", "Id"}).error() == simdjson::SUCCESS) {
                reader.add(node_of_json(node));
            }
        }
    }
}

}  // namespace

CollectiveLog read_chakra(ByteSource source, const std::string& file) {
    const auto [begin, whole] = peeked(std::move(source), 2);
    if (begin.empty()) {
        throw InputError(file, "", "a Chakra execution trace", "an empty file");
    }
    // The first byte tells text from messages, unless a message is as long as '{' or '[' is a
    // number: text goes on with white space, a quotation mark or a bracket.
    const bool opens = begin[0] == '{' || begin[0] == '[';
    const std::string_view after = opens ? "{[]}\" \t\r\n" : "{[ ";
    const bool is_text =
        (opens || std::string_view(" \t\r\n").find(begin[0]) != std::string_view::npos) &&
        begin.size() > 1 && after.find(begin[1]) != std::string_view::npos;
    TraceReader reader(file);
    if (is_text) {
        read_text(whole, file, reader);
    } else {
        read_messages(whole, file, reader);
    }
    return reader.finish();
}

}  // namespace bucketwise
