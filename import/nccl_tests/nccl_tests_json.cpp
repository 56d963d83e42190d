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

// Where a JSON text is, in terms of its brackets.
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

// The next document of `text`, which loses it. A document that has no end is cut behind the last
// element of its last list, which is where a run that was stopped had got to.
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
    Document cut{std::string(text.substr(0, whole)) + (whole > 0 ? "]}" : ""), whole > 0};
    if (whole == 0) {
        cut.text = text;
    }
    text = {};
    return cut;
}

// --- one document ---

// What other programs write is looked at where it is as expected, and else passed over.
const Json& member(const Json& object, const char* key) {
    static const Json nothing;
    const auto found = object.find(key);
    return found == object.end() ? nothing : *found;
}

std::string text_of(const Json& value) {
    return value.is_string() ? plain_text(value.get_ref<const std::string&>()) : "";
}

std::int64_t count_of(const Json& value) {
    constexpr std::int64_t most = std::int64_t{1} << 50;
    if (!value.is_number_integer()) {
        return 0;
    }
    return value.is_number_unsigned() && value.get<std::uint64_t>() > most
               ? 0
               : std::clamp<std::int64_t>(value.get<std::int64_t>(), 0, most);
}

// Written with six decimals; "nan" where there is none.
std::optional<Printed> printed(const Json& value) {
    constexpr double half_unit = 0.5e-6;
    return value.is_number() ? std::optional(Printed{value.get<double>(), half_unit})
                             : std::nullopt;
}

std::optional<NcclTestsHalf> half_of(const Json& value, NcclTestsColumns& columns) {
    const bool cpu_time = value.contains("cpu_time");
    columns.cpu_time = columns.cpu_time || cpu_time;
    const auto time = printed(member(value, cpu_time ? "cpu_time" : "time"));
    const auto algbw = printed(member(value, "alg_bw"));
    const auto busbw = printed(member(value, "bus_bw"));
    if (!time || !algbw || !busbw) {
        return std::nullopt;
    }
    const auto wrong = printed(member(value, "nwrong"));
    return NcclTestsHalf{*time, *algbw, *busbw, wrong && wrong->value >= 1};
}

NcclTestsRow row_of(const Json& result, std::int64_t number, NcclTestsColumns& columns) {
    NcclTestsRow row{.line = number,
                     .bytes = count_of(member(result, "size")),
                     .count = count_of(member(result, "count")),
                     .dtype = text_of(member(result, "type")),
                     .redop = text_of(member(result, "redop"))};
    const std::string root = text_of(member(result, "root"));
    row.root = whole_number_in(
        std::string_view(root).substr(std::min(root.find_first_not_of(' '), root.size())));
    for (const char* key : {"out_of_place", "in_place"}) {
        const Json& value = member(result, key);
        const auto half = half_of(value, columns);
        if (half && agrees(*half, row.bytes, columns.cpu_time)) {
            row.halves.push_back(*half);
        } else {
            row.incomplete = row.incomplete || !value.is_null();
        }
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
    // The list counts ranks where it is contiguous, else processes.
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
    run.gpus_per_process = std::min<std::int64_t>(count_of(member(config, "nthreads")), 1'000'000) *
                           std::min<std::int64_t>(count_of(member(config, "ngpus")), 1'000'000);
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
        NcclTestsRow row = row_of(result, ++index, run.columns);
        if (log.is_usable(row, "results without a time that agrees with its algbw", index)) {
            run.rows.push_back(std::move(row));
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
            log.skip("documents cut off, of which what is whole is taken", number);
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
