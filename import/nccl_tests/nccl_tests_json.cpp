#include <algorithm>
#include <cstddef>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "import/nccl_tests/nccl_tests_log.h"
#include "import/source/plain_text.h"
#include "sim/base/json_input.h"

namespace bucketwise {
namespace {

// --- documents, one after another ---

struct Document {
    std::string text;
    bool cut = false;  // closed here, behind its last whole row
};

// The brackets that are open at a place of a JSON text.
struct Brackets {
    std::string open;  // closing brackets that are due, the last one first due
    bool in_string = false;
    bool escaped = false;

    void read(char c) {
        if (in_string) {
            in_string = escaped || c != '"';
            escaped = !escaped && c == '\\';
        } else if (c == '"') {
            in_string = true;
        } else if (c == '{' || c == '[') {
            open.push_back(c == '{' ? '}' : ']');
        } else if (!open.empty() && c == open.back()) {
            open.pop_back();
        }
    }
};

// Takes the next document out of `text`. A document without an end, of a run that was stopped, is
// cut behind the last element of its last list.
std::optional<Document> next_document(std::string_view& text) {
    const std::size_t begin = text.find_first_not_of(" \t\r\n,");
    if (begin == std::string_view::npos) {
        return std::nullopt;
    }
    text.remove_prefix(begin);
    Brackets brackets;
    std::size_t whole = 0;  // characters up to the end of an element of a list
    for (std::size_t i = 0; i < text.size(); ++i) {
        const std::size_t depth = brackets.open.size();
        brackets.read(text[i]);
        if (brackets.open.empty() && (depth > 0 || i + 1 == text.size())) {
            Document document{std::string(text.substr(0, i + 1))};
            text.remove_prefix(i + 1);
            return document;
        }
        whole = depth == 3 && brackets.open == "}]" ? i + 1 : whole;
    }
    const std::string_view rest = std::exchange(text, {});
    return whole > 0 ? Document{std::string(rest.substr(0, whole)) + "]}", true}
                     : Document{std::string(rest)};
}

// --- one document ---

// Null where the key is missing: unexpected content of other programs is passed over.
const Json& member(const Json& object, const char* key) {
    static const Json nothing;
    const auto found = object.find(key);
    return found == object.end() ? nothing : *found;
}

std::string text_of(const Json& value) {
    return value.is_string() ? plain_text(value.get_ref<const std::string&>()) : "";
}

std::int64_t count_of(const Json& value, std::int64_t most = std::int64_t{1} << 50) {
    if (!value.is_number_integer()) {
        return 0;
    }
    return value.is_number_unsigned() && value.get<std::uint64_t>() > std::uint64_t{1} << 50
               ? 0
               : std::clamp<std::int64_t>(value.get<std::int64_t>(), 0, most);
}

// A result as the row that nccl-tests prints without -J, so that one reader serves both. JSON has
// six decimals.
std::optional<NcclTestsRow> row_of(const Json& result, std::int64_t number,
                                   NcclTestsColumns& columns) {
    std::string line =
        fmt::format("{} {} {} {} {}", count_of(member(result, "size")),
                    count_of(member(result, "count")), text_of(member(result, "type")),
                    text_of(member(result, "redop")), text_of(member(result, "root")));
    for (const char* key : {"out_of_place", "in_place"}) {
        const Json& half = member(result, key);
        const bool cpu_time = half.contains("cpu_time");
        columns.cpu_time = columns.cpu_time || cpu_time;
        for (const char* column : {cpu_time ? "cpu_time" : "time", "alg_bw", "bus_bw", "nwrong"}) {
            const Json& value = member(half, column);
            line += half.is_null()      ? ""
                    : value.is_number() ? fmt::format(" {:.6f}", value.get<double>())
                                        : " N/A";
        }
    }
    auto row = read_nccl_tests_row(line, columns);
    if (row) {
        row->line = number;
    }
    return row;
}

// Every process writes its first GPU only.
void add_devices(const Json& list, NcclTestsRun& run) {
    if (!list.is_array()) {
        return;
    }
    for (const Json& device : list) {
        run.devices.push_back({.rank = count_of(member(device, "rank")),
                               .group = count_of(member(device, "group")),
                               .host = text_of(member(device, "hostname")),
                               .name = text_of(member(device, "device_info"))});
    }
    // A contiguous list counts ranks, any other processes.
    const auto listed = static_cast<std::int64_t>(run.devices.size());
    const bool every_rank = listed > 1 && run.devices[1].rank == run.devices[0].rank + 1;
    run.ranks = every_rank ? listed : listed * std::max<std::int64_t>(run.gpus_per_process, 1);
    run.ranks_from = "the device list";
    run.listed = run.ranks;
    std::set<std::string_view> hosts;
    for (const NcclTestsDevice& device : run.devices) {
        hosts.insert(device.host);
    }
    if (!hosts.contains("")) {
        run.nodes = static_cast<std::int64_t>(hosts.size());
        run.nodes_listed = true;
    }
}

NcclTestsRun run_of(const Json& document, std::int64_t number) {
    NcclTestsRun run{.line = number};
    const Json& args = member(document, "args");
    if (args.is_array() && !args.empty() && args.front().is_string()) {
        const std::string path = args.front().get<std::string>();
        run.collective = plain_text(path.substr(path.rfind('/') + 1));
    }
    const Json& config = member(document, "config");
    constexpr std::int64_t most = 1'000'000;
    run.gpus_per_process =
        count_of(member(config, "nthreads"), most) * count_of(member(config, "ngpus"), most);
    add_devices(member(config, "devices"), run);
    add_devices(member(document, "devices"), run);
    const std::int64_t version = count_of(member(document, "nccl_version"));
    run.library = version > 0 ? "NCCL " + nccl_version_text(version) : "";
    run.date = text_of(member(document, "start_time"));
    return run;
}

void add_run(const Json& document, std::int64_t number, NcclTestsLog& log) {
    const Json& results = member(document, "results");
    if (!results.is_array()) {
        log.skip("documents without results", number);
        return;
    }
    NcclTestsRun run = run_of(document, number);
    std::int64_t index = 0;
    for (const Json& result : results) {
        auto row = row_of(result, ++index, run.columns);
        if (log.is_usable(row.value_or(NcclTestsRow{}),
                          "results without a time that agrees with its algbw", index)) {
            run.rows.push_back(std::move(*row));
        }
    }
    if (!run.rows.empty()) {
        log.runs.push_back(std::move(run));
    }
}

}  // namespace

std::string nccl_version_text(std::int64_t code) {
    const std::int64_t major = code >= 10'000 ? 10'000 : 1'000;
    return fmt::format("{}.{}.{}", code / major, code % major / 100, code % 100);
}

void read_nccl_tests_json(const std::string& text, NcclTestsLog& log) {
    log.json = true;
    std::string_view rest = text;
    std::int64_t number = 0;
    while (const auto document = next_document(rest)) {
        ++number;
        if (document->cut) {
            log.skip("documents cut off, whose whole results are taken", number);
        }
        const Json json = parse_json(document->text, log.file);
        if (json.is_array()) {
            for (const Json& element : json) {
                add_run(element, number, log);
            }
        } else {
            add_run(json, number, log);
        }
    }
}

}  // namespace bucketwise
