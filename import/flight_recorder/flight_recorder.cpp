#include "import/flight_recorder/flight_recorder.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "import/flight_recorder/pickle.h"
#include "import/source/json_objects.h"
#include "import/source/plain_text.h"
#include "sim/base/error.h"
#include "sim/base/json_input.h"

namespace bucketwise {
namespace {

const Json& member(const Json& object, const char* key) {
    static const Json nothing;
    const auto found = object.find(key);
    return found == object.end() ? nothing : *found;
}

std::string text_of(const Json& value) {
    return value.is_string() ? plain_text(value.get_ref<const std::string&>()) : std::string();
}

// Nothing for what is no whole number of 63 bits.
std::optional<std::int64_t> whole(const Json& value) {
    if (value.is_number_unsigned() &&
        value.get<std::uint64_t>() > std::uint64_t{std::numeric_limits<std::int64_t>::max()}) {
        return std::nullopt;
    }
    return value.is_number_integer() ? std::optional(value.get<std::int64_t>()) : std::nullopt;
}

class DumpReader {
  public:
    explicit DumpReader(const std::string& file) : file_(file) { log_.file = file; }

    void read_entry(const Json& entry) {
        const std::string place = fmt::format("/entries/{}", log_.collectives.size());
        if (!entry.is_object() || !member(entry, "profiling_name").is_string()) {
            throw InputError(file_, place, "an entry of a flight recorder", "something else");
        }
        if (log_.collectives.size() == most_logged_collectives) {
            throw InputError(file_, place,
                             fmt::format("at most {} entries", most_logged_collectives), "more");
        }
        LoggedCollective collective;
        read_name(member(entry, "profiling_name"), collective);
        read_group(entry, collective);
        read_sizes(entry, place, collective);
        collective.sequence = whole(member(entry, "collective_seq_id")).value_or(-1);
        number_part(collective);
        const Json& duration = member(entry, "duration_ms");
        // Others are no times of a collective; the longest is a day.
        constexpr double longest_ms = 86'400'000;
        if (duration.is_number() && duration.get<double>() >= 0 &&
            duration.get<double>() < longest_ms) {
            collective.duration = duration_from_ms(duration.get<double>());
        }
        const Json& p2p = member(entry, "is_p2p");
        if (p2p.is_boolean() && p2p.get<bool>()) {
            collective.kind = LoggedKind::transfer;
        }
        issued_ns_.push_back(whole(member(entry, "time_created_ns")).value_or(-1));
        log_.collectives.push_back(std::move(collective));
    }

    // What stands beside the entries.
    void read_head(const Json& head) {
        if (!head.is_object()) {
            return;
        }
        for (const char* key : {"comm_lib_version", "nccl_version"}) {
            log_.version = log_.version.empty() ? text_of(member(head, key)) : log_.version;
        }
        const Json& groups = member(head, "pg_config");
        if (!groups.is_object()) {
            return;
        }
        for (const auto& [name, group] : groups.items()) {
            sizes_[plain_text(name)] = group.is_object() ? number_of(member(group, "ranks")) : 0;
        }
    }

    CollectiveLog finish() {
        if (log_.collectives.empty()) {
            throw InputError(file_, "/entries", "collectives that a flight recorder kept", "none");
        }
        set_group_sizes();
        set_times();
        log_.kind = "flight recorder dump";
        return std::move(log_);
    }

  private:
    // All-reduces of a coalescing manager are issued together, under one number.
    void number_part(LoggedCollective& collective) {
        if (collective.kind != LoggedKind::all_reduce) {
            return;
        }
        auto& [sequence, next] = last_[collective.group];
        next = collective.sequence == sequence ? next + 1 : 0;
        sequence = collective.sequence;
        collective.part = next;
    }

    // "nccl:all_reduce"
    void read_name(const Json& value, LoggedCollective& collective) {
        const std::string name = text_of(value);
        const std::size_t colon = name.find(':');
        const bool has_backend = colon != std::string::npos;
        collective.name = has_backend ? name.substr(colon + 1) : name;
        collective.kind = logged_kind(collective.name);
        if (has_backend && log_.backend.empty()) {
            log_.backend = name.substr(0, colon);
        }
    }

    // A name and a description, or in version 1 nothing but a number.
    static void read_group(const Json& entry, LoggedCollective& collective) {
        const Json& group = member(entry, "process_group");
        if (group.is_array() && !group.empty()) {
            collective.group = text_of(group[0]);
            collective.description = group.size() > 1 ? text_of(group[1]) : "";
        } else if (group.is_string()) {
            collective.group = text_of(group);
        } else if (const auto id = whole(member(entry, "pg_id"))) {
            collective.group = std::to_string(*id);
        }
    }

    void read_sizes(const Json& entry, const std::string& place, LoggedCollective& collective) {
        constexpr std::int64_t most = std::int64_t{1} << 48;
        const Json& tensors = member(entry, "input_sizes");
        const auto fail = [&] {
            throw InputError(file_, place + "/input_sizes",
                             fmt::format("lists of sizes of at most {} elements", most),
                             "something else");
        };
        if (!tensors.is_array()) {
            return;
        }
        for (const Json& tensor : tensors) {
            std::int64_t elements = 1;
            for (const Json& size : tensor.is_array() ? tensor : Json::array()) {
                const auto of_dimension = whole(size);
                if (!of_dimension || *of_dimension < 0 || *of_dimension > most ||
                    (elements > 0 && *of_dimension > most / elements)) {
                    fail();
                }
                elements *= *of_dimension;
            }
            if (!tensor.is_array() || elements > most - collective.elements) {
                fail();
            }
            collective.elements += elements;
        }
        const Json& dtypes = member(entry, "input_dtypes");
        if (dtypes.is_array() && !dtypes.empty()) {
            collective.dtype = text_of(dtypes[0]);
        }
    }

    // Ranks as a list, or as the text of one: "[0, 1]".
    static std::int64_t number_of(const Json& ranks) {
        if (ranks.is_array()) {
            return std::ssize(ranks);
        }
        const std::string text = ranks.is_string() ? ranks.get<std::string>() : std::string();
        const bool any = std::ranges::any_of(text, [](char c) { return c >= '0' && c <= '9'; });
        return any ? 1 + std::ranges::count(text, ',') : 0;
    }

    void set_group_sizes() {
        bool assumed = false;
        for (LoggedCollective& collective : log_.collectives) {
            const auto named = sizes_.find(collective.group);
            // Gloo's groups are listed without a name, each in the place of the one before.
            const auto nameless = sizes_.find("");
            if (named != sizes_.end()) {
                collective.group_size = named->second;
            } else if (nameless != sizes_.end()) {
                collective.group_size = nameless->second;
                assumed = true;
            }
        }
        if (assumed && !is_one_group()) {
            log_.notes.emplace_back(
                "of several process groups only one is listed, without a name: all are taken to be "
                "as large; --ranks says otherwise");
        }
    }

    [[nodiscard]] bool is_one_group() const {
        return std::ranges::all_of(log_.collectives, [&](const LoggedCollective& collective) {
            return collective.group == log_.collectives.front().group;
        });
    }

    void set_times() {
        const bool all = std::ranges::all_of(issued_ns_, [](std::int64_t ns) { return ns > 0; });
        if (!all) {
            return;
        }
        const std::int64_t begin = std::ranges::min(issued_ns_);
        for (std::size_t i = 0; i < issued_ns_.size(); ++i) {
            const std::int64_t ns = issued_ns_[i] - begin;
            if (ns > longest_duration / std::chrono::nanoseconds(1)) {
                throw InputError(file_, fmt::format("/entries/{}/time_created_ns", i),
                                 "entries of at most ten days", fmt::format("{} ns", ns));
            }
            log_.collectives[i].issued = Duration{1000 * ns};
        }
        log_.begin_ns = begin;
        log_.clock = LogClock::host;
    }

    const std::string& file_;
    CollectiveLog log_;
    std::vector<std::int64_t> issued_ns_;
    std::map<std::string, std::int64_t> sizes_;  // of groups, by name
    std::map<std::string, std::pair<std::int64_t, std::int64_t>>
        last_;  // number and part, by group
};

void read_pickled(const ByteSource& source, const std::string& file, DumpReader& reader) {
    constexpr std::string_view frames = "frames";
    const Pickle pickle = read_pickle(source, file);
    const PickledValue& root = pickle.values[pickle.root];
    const PickledValue* entries = &root;
    if (root.kind == PickledKind::dictionary) {
        entries = pickle.find(root, "entries");
        for (const char* key : {"pg_config", "comm_lib_version", "nccl_version"}) {
            if (const PickledValue* const value = pickle.find(root, key)) {
                reader.read_head(Json{{key, unfolded(pickle, *value, frames, file)}});
            }
        }
    }
    if (entries == nullptr || entries->kind != PickledKind::list) {
        throw InputError(file, "/entries", "a list of collectives, as a flight recorder dumps it",
                         "none");
    }
    for (const std::uint32_t entry : entries->items) {
        reader.read_entry(unfolded(pickle, pickle.values[entry], frames, file));
    }
}

void read_text(const ByteSource& source, const std::string& file, DumpReader& reader) {
    JsonObjects objects(source, "entries", file);
    while (const auto text = objects.next()) {
        reader.read_entry(parse_json(*text, file));
    }
    if (!objects.around().empty()) {
        reader.read_head(parse_json(objects.around(), file));
    }
}

}  // namespace

CollectiveLog read_flight_recorder(ByteSource source, const std::string& file) {
    // The first byte tells which of the two it is; it is given back.
    char first = 0;
    if (source(&first, 1) == 0) {
        throw InputError(file, "", "a dump of PyTorch's flight recorder", "an empty file");
    }
    const ByteSource whole = [&source, &first, given = false](char* buffer,
                                                              std::size_t size) mutable {
        if (!given && size > 0) {
            given = true;
            *buffer = first;
            return std::size_t{1};
        }
        return source(buffer, size);
    };
    DumpReader reader(file);
    constexpr char pickle_begins = '\x80';
    if (first == pickle_begins) {
        read_pickled(whole, file, reader);
    } else {
        read_text(whole, file, reader);
    }
    return reader.finish();
}

}  // namespace bucketwise
