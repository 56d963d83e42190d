#include "import/chakra/chakra_trace.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <queue>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "import/chakra/chakra_node.h"
#include "import/chakra/wire_format.h"
#include "import/source/json_objects.h"
#include "sim/base/error.h"
#include "sim/base/json_input.h"

namespace bucketwise {
namespace {

constexpr std::size_t most_nodes = 2'000'000;
constexpr std::size_t most_edges = 16'000'000;

// What is kept of a node.
struct KeptNode {
    std::uint64_t id = 0;
    std::uint64_t compute_us = 0;  // 0 of what does not compute
    bool on_host = false;
    std::size_t first_dependency = 0;  // in one list of all
    std::size_t dependencies = 0;
    std::optional<std::size_t> collective = {};
};

// --- the order of dependencies ---

class Graph {
  public:
    void add(const ChakraNode& node, std::optional<std::size_t> collective,
             const std::string& file) {
        if (nodes_.size() == most_nodes ||
            dependencies_.size() + node.dependencies.size() > most_edges) {
            throw InputError(
                file, "",
                fmt::format("at most {} nodes and {} dependencies", most_nodes, most_edges),
                "more");
        }
        const bool computes = node.type == ChakraType::compute;
        nodes_.push_back({.id = node.id,
                          .compute_us = computes ? node.duration_us : 0,
                          .on_host = node.on_host.value_or(false),
                          .first_dependency = dependencies_.size(),
                          .dependencies = node.dependencies.size(),
                          .collective = collective});
        dependencies_.insert(dependencies_.end(), node.dependencies.begin(),
                             node.dependencies.end());
    }

    // Numbers of nodes become places; those of no node are dropped.
    void resolve(const std::string& file) {
        std::unordered_map<std::uint64_t, std::size_t> places;
        places.reserve(nodes_.size());
        for (std::size_t i = 0; i < nodes_.size(); ++i) {
            if (!places.emplace(nodes_[i].id, i).second) {
                throw InputError(file, "", "nodes with numbers of their own",
                                 fmt::format("two with {}", nodes_[i].id));
            }
        }
        for (KeptNode& node : nodes_) {
            const std::size_t begin = node.first_dependency;
            std::size_t kept = begin;
            for (std::size_t i = begin; i < begin + node.dependencies; ++i) {
                if (const auto found = places.find(dependencies_[i]); found != places.end()) {
                    dependencies_[kept++] = found->second;
                }
            }
            node.dependencies = kept - begin;
        }
    }

    // Collectives, each after those it depends on, the lower number first.
    [[nodiscard]] std::vector<std::size_t> ordered_collectives(const std::string& file) const {
        std::vector<std::size_t> waiting(nodes_.size());
        std::vector<std::size_t> ends(nodes_.size() + 1);  // of each node's users, in one list
        for (const KeptNode& node : nodes_) {
            for (const std::uint64_t on : dependencies_of(node)) {
                ++ends[on + 1];
            }
        }
        for (std::size_t i = 1; i < ends.size(); ++i) {
            ends[i] += ends[i - 1];
        }
        std::vector<std::size_t> next(ends.begin(), ends.end() - 1);
        std::vector<std::size_t> users(ends.back());
        for (std::size_t i = 0; i < nodes_.size(); ++i) {
            waiting[i] = nodes_[i].dependencies;
            for (const std::uint64_t on : dependencies_of(nodes_[i])) {
                users[next[on]++] = i;
            }
        }
        using Numbered = std::pair<std::uint64_t, std::size_t>;
        std::priority_queue<Numbered, std::vector<Numbered>, std::greater<>> ready;
        for (std::size_t i = 0; i < nodes_.size(); ++i) {
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
            for (std::size_t user = ends[i]; user < ends[i + 1]; ++user) {
                if (--waiting[users[user]] == 0) {
                    ready.emplace(nodes_[users[user]].id, users[user]);
                }
            }
        }
        if (done < nodes_.size()) {
            throw InputError(file, "", "nodes that depend on one another in an order",
                             "some that depend on themselves");
        }
        return order;
    }

    [[nodiscard]] std::size_t collective_of(std::size_t place) const {
        return *nodes_[place].collective;
    }

    // What is computed until each collective of `order` can be issued: by all that it and those
    // before it depend on, one after another; and all of it last. Where a device computes, what its
    // host does is not counted. Empty: nothing has a duration.
    [[nodiscard]] std::vector<std::uint64_t> computed_until(
        const std::vector<std::size_t>& order) const {
        const bool device = std::ranges::any_of(
            nodes_, [](const KeptNode& node) { return node.compute_us > 0 && !node.on_host; });
        std::uint64_t all = 0;
        for (const KeptNode& node : nodes_) {
            all = sum(all, counted(node, device));
        }
        if (all == 0) {
            return {};
        }
        std::vector<std::uint64_t> times;
        std::vector<bool> seen(nodes_.size());
        std::vector<std::size_t> stack;
        std::uint64_t so_far = 0;
        for (const std::size_t collective : order) {
            stack.push_back(collective);
            while (!stack.empty()) {
                const std::size_t i = stack.back();
                stack.pop_back();
                if (seen[i]) {
                    continue;
                }
                seen[i] = true;
                so_far = sum(so_far, counted(nodes_[i], device));
                for (const std::uint64_t on : dependencies_of(nodes_[i])) {
                    if (!seen[on]) {
                        stack.push_back(on);
                    }
                }
            }
            times.push_back(so_far);
        }
        times.push_back(all);
        return times;
    }

  private:
    [[nodiscard]] std::span<const std::uint64_t> dependencies_of(const KeptNode& node) const {
        return std::span(dependencies_).subspan(node.first_dependency, node.dependencies);
    }

    static std::uint64_t counted(const KeptNode& node, bool device) {
        return device && node.on_host ? 0 : node.compute_us;
    }

    // Up to what a Duration takes.
    static std::uint64_t sum(std::uint64_t a, std::uint64_t b) {
        constexpr auto most = static_cast<std::uint64_t>(longest_duration.count() / 1'000'000);
        return std::min(a, most) + std::min(b, most) > most ? most : a + b;
    }

    std::vector<KeptNode> nodes_;
    std::vector<std::uint64_t> dependencies_;  // numbers, then places
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
    // Gloo's collectives do not say whose they are.
    void set_group_size(LoggedCollective& collective) const {
        const auto found = group_sizes_.find(collective.group);
        if (collective.group_size == 0 && found != group_sizes_.end()) {
            collective.group_size = found->second;
        } else if (collective.group_size == 0 && group_sizes_.size() == 1) {
            collective.group_size = group_sizes_.begin()->second;
        }
    }

    // By the order in which functions were entered. What NCCL's process group records twice (the
    // call with its numbers, and the name of it) counts once.
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
        graph_.resolve(file_);
        const std::vector<std::size_t> order = graph_.ordered_collectives(file_);
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

    // Bytes are all there is.
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
    std::vector<std::int64_t> orders_;     // likewise
    std::vector<bool> is_call_;            // of PyTorch's, with its numbers
    std::vector<std::int64_t> step_ends_;  // where optimizers begin, in the order of functions
    std::map<std::string, std::int64_t> group_sizes_;
    Graph graph_;
    std::size_t nodes_ = 0;
};

// --- messages ---

class Messages {
  public:
    Messages(const ByteSource& source, const std::string& file) : source_(source), file_(file) {}

    // Nothing at the end. Of what is longer than any message nothing is kept.
    std::optional<std::string> next() {
        constexpr std::uint64_t longest = std::uint64_t{16} << 20;
        const auto length = varint();
        if (!length) {
            return std::nullopt;
        }
        if (*length > longest) {
            throw InputError(file_, "", fmt::format("messages of at most {} bytes", longest),
                             fmt::format("one of {} before byte {}", *length, position_));
        }
        std::string message;
        while (message.size() < *length) {
            message += static_cast<char>(needed());
        }
        return message;
    }

  private:
    int get() {
        if (at_ == block_.size()) {
            constexpr std::size_t block_bytes = std::size_t{1} << 16;
            block_.resize(block_bytes);
            block_.resize(source_(block_.data(), block_bytes));
            at_ = 0;
            if (block_.empty()) {
                return -1;
            }
        }
        ++position_;
        return static_cast<unsigned char>(block_[at_++]);
    }

    int needed() {
        const int byte = get();
        if (byte < 0) {
            throw InputError(file_, "", "the end of a message",
                             fmt::format("the end of the file after {} bytes", position_));
        }
        return byte;
    }

    std::optional<std::uint64_t> varint() {
        int byte = get();
        if (byte < 0) {
            return std::nullopt;
        }
        std::uint64_t value = 0;
        for (unsigned shift = 0; shift < 35; shift += 7) {
            value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
            if ((byte & 0x80) == 0) {
                return value;
            }
            byte = needed();
        }
        throw InputError(file_, "", "the length of a message", "a number of more than 32 bits");
    }

    const ByteSource& source_;
    const std::string& file_;
    std::string block_;
    std::size_t at_ = 0;
    std::uint64_t position_ = 0;
};

// The first message is GlobalMetadata: a version, which is a text where a Node has its number.
bool is_metadata(std::string_view message, const std::string& place) {
    WireMessage fields(message, place);
    while (const auto field = fields.next()) {
        if (field->number > 2 || !field->has_bytes) {
            return false;
        }
    }
    return true;
}

void read_messages(const ByteSource& source, const std::string& file, TraceReader& reader) {
    Messages messages(source, file);
    std::size_t number = 0;
    while (const auto message = messages.next()) {
        const std::string place = fmt::format("{}: message {}", file, number);
        if (number > 0 || !is_metadata(*message, place)) {
            reader.add(node_of_message(*message, place));
        }
        ++number;
    }
}

void read_text(const ByteSource& source, const std::string& file, TraceReader& reader) {
    JsonObjects objects(source, "nodes", file);
    bool first = true;
    while (const auto text = objects.next()) {
        const Json json = parse_json(*text, file);
        // chakra_jsonizer writes GlobalMetadata first, which is no node.
        if (!std::exchange(first, false) || json.contains("id")) {
            reader.add(node_of_json(json));
        }
    }
}

}  // namespace

CollectiveLog read_chakra(ByteSource source, const std::string& file) {
    // The first byte tells text from messages, but for one of a length of '{' or '[': text goes on
    // with white space, a quotation mark or a bracket.
    std::string begin(2, '\0');
    std::size_t have = 0;
    for (std::size_t count = 1; have < begin.size() && count > 0; have += count) {
        count = source(begin.data() + have, begin.size() - have);
    }
    begin.resize(have);
    if (begin.empty()) {
        throw InputError(file, "", "a Chakra execution trace", "an empty file");
    }
    const bool opens = begin[0] == '{' || begin[0] == '[';
    const std::string_view after = opens ? "{[]}\" \t\r\n" : "{[ ";
    const bool is_text =
        (opens || std::string_view(" \t\r\n").find(begin[0]) != std::string_view::npos) &&
        have > 1 && after.find(begin[1]) != std::string_view::npos;
    const ByteSource whole = [&source, begin](char* buffer, std::size_t size) mutable {
        if (begin.empty()) {
            return source(buffer, size);
        }
        const std::size_t count = std::min(size, begin.size());
        std::copy_n(begin.data(), count, buffer);
        begin.erase(0, count);
        return count;
    };
    TraceReader reader(file);
    if (is_text) {
        read_text(whole, file, reader);
    } else {
        read_messages(whole, file, reader);
    }
    return reader.finish();
}

}  // namespace bucketwise
