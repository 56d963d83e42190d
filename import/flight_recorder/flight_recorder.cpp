#include "import/flight_recorder/flight_recorder.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <simdjson.h>

#include "import/source/json_objects.h"
#include "import/source/json_value.h"
#include "import/source/plain_text.h"
#include "sim/base/error.h"

namespace bucketwise {
namespace {

std::string plain_text_in(const JsonValue& value) {
    return plain_text(text_in(value));
}

class DumpReader {
  public:
    explicit DumpReader(const std::string& file) : file_(file) { log_.file = file; }

    void read_entry(const JsonValue& entry) {
        const std::string place = fmt::format("/entries/{}", log_.collectives.size());
        if (!entry["profiling_name"].is_string()) {
            throw InputError(file_, place, "an entry of a flight recorder", "something else");
        }
        if (log_.collectives.size() == most_logged_collectives) {
            throw InputError(file_, place,
                             fmt::format("at most {} entries", most_logged_collectives), "more");
        }
        LoggedCollective collective;
        read_name(entry["profiling_name"], collective);
        read_group(entry, collective);
        read_sizes(entry, place, collective);
        collective.sequence = whole_in(entry["collective_seq_id"]).value_or(-1);
        number_part(collective);
        // The longest time of a collective is a day.
        constexpr double longest_ms = 86'400'000;
        if (double ms = -1;
            entry["duration_ms"].get(ms) == simdjson::SUCCESS && ms >= 0 && ms < longest_ms) {
            collective.duration = duration_from_ms(ms);
        }
        if (bool is_p2p = false; entry["is_p2p"].get(is_p2p) == simdjson::SUCCESS && is_p2p) {
            collective.kind = LoggedKind::transfer;
        }
        issued_ns_.push_back(whole_in(entry["time_created_ns"]).value_or(-1));
        log_.collectives.push_back(std::move(collective));
    }

    // Reads the members beside the entries.
    void read_head(const JsonValue& head) {
        log_.version = plain_text_in(member(head, {"comm_lib_version", "nccl_version"}));
        if (simdjson::dom::object groups; head["pg_config"].get(groups) == simdjson::SUCCESS) {
            for (const auto& [name, group] : groups) {
                sizes_[plain_text(name)] = number_of(JsonValue(group)["ranks"]);
            }
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
    void read_name(const JsonValue& value, LoggedCollective& collective) {
        const std::string name = plain_text_in(value);
        const std::size_t colon = name.find(':');
        const bool has_backend = colon != std::string::npos;
        collective.name = has_backend ? name.substr(colon + 1) : name;
        collective.kind = logged_kind(collective.name);
        if (has_backend && log_.backend.empty()) {
            log_.backend = name.substr(0, colon);
        }
    }

    // A name and a description, or in version 1 only a number.
    static void read_group(const JsonValue& entry, LoggedCollective& collective) {
        const std::vector<simdjson::dom::element> group = items_in(entry["process_group"]);
        if (!group.empty()) {
            collective.group = plain_text_in(group[0]);
            collective.description = group.size() > 1 ? plain_text_in(group[1]) : "";
        } else if (entry["process_group"].is_string()) {
            collective.group = plain_text_in(entry["process_group"]);
        } else if (const auto id = whole_in(entry["pg_id"])) {
            collective.group = std::to_string(*id);
        }
    }

    void read_sizes(const JsonValue& entry, const std::string& place,
                    LoggedCollective& collective) {
        for (const simdjson::dom::element tensor : items_in(entry["input_sizes"])) {
            const std::int64_t elements = elements_in(tensor, deepest_shape);
            if (elements < 0 || elements > most_json_elements - collective.elements) {
                throw InputError(
                    file_, place + "/input_sizes",
                    fmt::format("lists of sizes of at most {} elements", most_json_elements),
                    "something else");
            }
            collective.elements += elements;
        }
        if (const auto dtypes = items_in(entry["input_dtypes"]); !dtypes.empty()) {
            collective.dtype = plain_text_in(dtypes[0]);
        }
    }

    // Ranks are a list, or the text of one: "[0, 1]".
    static std::int64_t number_of(const JsonValue& ranks) {
        if (ranks.is_array()) {
            return std::ssize(items_in(ranks));
        }
        const std::string_view text = text_in(ranks);
        const bool any = std::ranges::any_of(text, [](char c) { return c >= '0' && c <= '9'; });
        return any ? 1 + std::ranges::count(text, ',') : 0;
    }

    void set_group_sizes() {
        bool assumed = false;
        for (LoggedCollective& collective : log_.collectives) {
            const auto named = sizes_.find(collective.group);
            // Gloo's groups are listed without a name, each replacing the one before.
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
                "only one of several process groups is listed, without a name: all are taken to be "
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
    // Number and part of the last all-reduce, by group.
    std::map<std::string, std::pair<std::int64_t, std::int64_t>> last_;
};

}  // namespace

CollectiveLog read_flight_recorder(ByteSource source, const std::string& file) {
    JsonObjects objects(std::move(source), {"entries"}, file);
    DumpReader reader(file);
    while (const auto entries = objects.next()) {
        for (const simdjson::dom::element entry : *entries) {
            reader.read_entry(entry);
        }
    }
    if (const auto head = objects.around()) {
        reader.read_head(*head);
    }
    return reader.finish();
}

}  // namespace bucketwise
