#include "import/nccl_tests/nccl_tests_log.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "import/source/line_reader.h"
#include "import/source/plain_text.h"
#include "sim/base/error.h"
#include "sim/text/foreign_text.h"

namespace bucketwise {
namespace {

using Words = std::vector<std::string_view>;

constexpr std::size_t most_rows = 100'000;
constexpr std::size_t most_devices = 1'000'000;
constexpr std::size_t largest_json_bytes = std::size_t{64} << 20;
constexpr std::string_view spaces = " \t\r\n";

bool contains(std::string_view text, std::string_view part) {
    return text.find(part) != std::string_view::npos;
}

// The word after `name`, or an empty one.
std::string_view word_after(const Words& words, std::string_view name) {
    const auto found = std::find(words.begin(), words.end(), name);
    return found == words.end() || found + 1 == words.end() ? std::string_view{} : *(found + 1);
}

std::int64_t number_after(const Words& words, std::string_view name) {
    constexpr std::int64_t most = 1'000'000;
    const auto number = whole_number_in(word_after(words, name));
    return number && *number > 0 && *number <= most ? *number : 0;
}

// "all_reduce_perf" of "/opt/build/all_reduce_perf", anywhere in the line.
std::string program_in(std::string_view line) {
    constexpr std::string_view ending = "_perf";
    const std::size_t found = line.rfind(ending);
    if (found == std::string_view::npos) {
        return "";
    }
    const auto in_name = [](char c) { return (c >= 'a' && c <= 'z') || c == '_'; };
    std::size_t begin = found;
    while (begin > 0 && in_name(line[begin - 1])) {
        --begin;
    }
    const std::size_t end = found + ending.size();
    const bool ends = end == line.size() || (!in_name(line[end]) && line[end] != '.');
    return begin < found && ends ? plain_text(line.substr(begin, end - begin)) : "";
}

// "Rank 0 Group 0 Pid 1275 on host01 device 0 [0000:01:00] NVIDIA H100", the group not in all.
std::optional<NcclTestsDevice> read_device(const Words& words, std::string_view line) {
    const auto rank = whole_number_in(word_after(words, "Rank"));
    if (!rank || *rank < 0 || word_after(words, "Pid").empty() ||
        word_after(words, "device").empty()) {
        return std::nullopt;
    }
    NcclTestsDevice device{.rank = *rank, .host = plain_text(word_after(words, "on"))};
    device.group = whole_number_in(word_after(words, "Group")).value_or(0);
    const std::size_t bus = line.rfind(']');
    if (bus != std::string_view::npos) {
        const std::string_view name = line.substr(bus + 1);
        const std::size_t begin = std::min(name.find_first_not_of(spaces), name.size());
        device.name = plain_text(name.substr(begin, name.find_last_not_of(spaces) + 1 - begin));
    }
    return device;
}

// Lines of every log that tell nothing about the measurement.
bool is_expected(const Words& words, std::string_view line) {
    constexpr std::array<std::string_view, 10> known{"out-of-place",     "(GB/s)",
                                                     "Using devices",    "Avg bus bandwidth",
                                                     "Out of bounds",    "GPU memory usage",
                                                     "Writing JSON",     "```",
                                                     "Blocking Enabled", "Reducing maxBytes to"};
    const bool blank = std::all_of(words.begin(), words.end(), [](std::string_view word) {
        return word.find_first_not_of("#$>-") == std::string_view::npos || word.back() == ':';
    });
    return blank || std::any_of(known.begin(), known.end(),
                                [&](std::string_view text) { return contains(line, text); });
}

// The communicator, by the lines of NCCL_DEBUG.
struct NcclInfo {
    std::set<std::int64_t> ranks;
    std::set<std::int64_t> nodes;
};

// A launcher's tag at the begin of a line, or "[1,0]<stdout>:" anywhere: mpirun --tag-output puts
// that before each piece of a rank's output, others "[0]". Empty: none.
std::string_view tag_of(std::string_view line) {
    constexpr std::string_view end_of_tag = "]<stdout>:";
    if (const std::size_t end = line.find(end_of_tag); end != std::string_view::npos) {
        const std::size_t begin = line.rfind('[', end);
        return begin == std::string_view::npos
                   ? std::string_view{}
                   : line.substr(begin, end + end_of_tag.size() - begin);
    }
    const std::size_t begin = line.find_first_not_of(spaces);
    if (begin == std::string_view::npos || line[begin] != '[') {
        return {};
    }
    const std::size_t end = line.find_first_not_of("0123456789", begin + 1);
    const bool is_tag = end != std::string_view::npos && end > begin + 1 && line[end] == ']';
    return is_tag ? line.substr(begin, end + 1 - begin) : std::string_view{};
}

// Removes all but the first of a line's own tags: a piece may end within a row, even within a
// number. Another rank's tag stays, as that rank's output follows it. `kept` holds the line if it
// changes.
std::string_view without_inner_tags(std::string_view line, std::string& kept) {
    const std::string tag(tag_of(line));
    if (tag.empty()) {
        return line;
    }
    // The first piece of a row may have no tag: then the first tag is within the row, too.
    const std::size_t first = line.find_first_not_of(spaces);
    const bool leads = line.substr(first).starts_with(tag);
    std::size_t at = line.find(tag, leads ? first + tag.size() : 0);
    if (at == std::string_view::npos) {
        return line;
    }
    kept = line;
    for (; at != std::string::npos; at = kept.find(tag, at)) {
        kept.erase(at, tag.size());
    }
    return kept;
}

class TextLog {
  public:
    explicit TextLog(NcclTestsLog& log) : log_(log) {}

    void read(const TextLine& given) {
        const TextLine line{given.number, without_inner_tags(given.text, untagged_),
                            given.too_long};
        if (continues_row(line)) {
            return;
        }
        if (line.too_long) {
            skip("lines longer than 64 KiB", line);
        } else if (contains(line.text, "NCCL INFO") || contains(line.text, "NCCL WARN") ||
                   contains(line.text, "NCCL TRACE")) {
            read_info(line);
        } else if (!read_row(line) && !read_preamble(line)) {
            read_other(line);
        }
    }

    void end() {
        take_row();
        end_run();
    }

  private:
    void end_run() {
        take_row();
        std::set<std::int64_t> listed;
        std::set<std::string_view> hosts;
        for (const NcclTestsDevice& device : run_.devices) {
            if (device.group == run_.devices.front().group) {
                listed.insert(device.rank);
                hosts.insert(device.host);
            }
        }
        run_.listed = static_cast<std::int64_t>(listed.size());
        if (info_.ranks.size() == 1) {
            run_.ranks = *info_.ranks.begin();
            run_.ranks_from = "NCCL's own lines";
        } else if (!listed.empty()) {
            run_.ranks = run_.listed;
            run_.ranks_from = "the device list";
        }
        run_.nodes_listed = info_.nodes.size() != 1;
        run_.nodes =
            run_.nodes_listed ? static_cast<std::int64_t>(hosts.size()) : *info_.nodes.begin();
        if (!run_.rows.empty()) {
            log_.runs.push_back(std::move(run_));
        }
        run_ = {.collective = mentioned_};
        info_ = {};
    }

    void skip(const char* what, const TextLine& line) { log_.skip(what, line.number); }

    [[nodiscard]] bool is_used() const {
        return !run_.rows.empty() || !run_.devices.empty() || run_.gpus_per_process > 0;
    }

    void begin_run_if_used(const TextLine& line) {
        if (is_used()) {
            end_run();
        }
        if (run_.line == 0) {
            run_.line = line.number;
        }
    }

    void read_info(const TextLine& line) {
        if (read_nccl_tests_row(line.text, columns())) {
            skip("rows torn or run into by other output", line);
            return;
        }
        const Words words = words_of(line.text);
        const auto add = [&](std::set<std::int64_t>& numbers, std::string_view name) {
            constexpr std::size_t enough = 2;  // they contradict each other
            if (const std::int64_t number = number_after(words, name);
                number > 0 && numbers.size() < enough) {
                numbers.insert(number);
            }
        };
        add(info_.ranks, "nranks");
        add(info_.ranks, "nRanks");
        add(info_.nodes, "nNodes");
        skip("lines of NCCL's own log", line);
    }

    // Lines before a table, and its heading.
    bool read_preamble(const TextLine& line) {
        take_row();
        const Words words = words_of(line.text);
        if (const auto heading = read_nccl_tests_heading(line.text)) {
            if (!run_.rows.empty()) {
                end_run();
            }
            run_.columns = *heading;
            return true;
        }
        if (number_after(words, "nThread") > 0) {
            begin_run_if_used(line);
            run_.gpus_per_process = number_after(words, "nThread") * number_after(words, "nGpus");
            return true;
        }
        if (contains(line.text, "Collective test starting:")) {
            begin_run_if_used(line);
            run_.collective = program_in(line.text);
            return true;
        }
        if (contains(line.text, "Collective test concluded:")) {
            return true;
        }
        if (contains(line.text, "Avg bus bandwidth")) {
            end_run();
            return true;
        }
        return read_device_line(words, line) || read_version(words, line);
    }

    bool read_device_line(const Words& words, const TextLine& line) {
        const auto device = read_device(words, line.text);
        if (!device) {
            return false;
        }
        if (!run_.rows.empty()) {
            end_run();
        }
        if (++devices_ > most_devices) {
            throw InputError(log_.file, fmt::format("line {}", line.number),
                             fmt::format("at most {} devices", most_devices), "more");
        }
        run_.devices.push_back(*device);
        return true;
    }

    bool read_version(const Words& words, const TextLine& line) {
        constexpr std::string_view library = "nccl-library=";
        for (const std::string_view word : words) {
            const auto code = word.starts_with(library)
                                  ? whole_number_in(word.substr(library.size()))
                                  : std::nullopt;
            if (code && *code > 0) {
                begin_run_if_used(line);
                run_.library = "NCCL " + nccl_version_text(*code);
                return true;
            }
        }
        const std::string_view version = word_after(words, "version");
        if (contains(line.text, "CCL version") && !version.empty()) {
            const bool rocm = contains(line.text, "RCCL");
            run_.library =
                (rocm ? "RCCL " : "NCCL ") + plain_text(version.substr(0, version.find('+')));
            return true;
        }
        if (contains(line.text, "rccl-tests:")) {
            run_.library = "RCCL";
            return true;
        }
        return false;
    }

    // A row is taken once the next line does not go on with it: output of several ranks is torn.
    bool read_row(const TextLine& line) {
        if (!read_nccl_tests_row(line.text, columns())) {
            return false;
        }
        take_row();
        pending_ = line.text;
        pending_line_ = line.number;
        return true;
    }

    bool continues_row(const TextLine& line) {
        const std::string_view rest = line.text.substr(tag_of(line.text).size());
        if (pending_.empty() || line.too_long || !is_part_of_row(rest)) {
            return false;
        }
        const auto row = read_nccl_tests_row(pending_, columns());
        if (row->halves.size() == 2) {
            return false;
        }
        pending_ += rest;
        return true;
    }

    void take_row() {
        if (pending_.empty()) {
            return;
        }
        auto row = read_nccl_tests_row(std::exchange(pending_, {}), columns());
        if (!log_.is_usable(*row, "rows torn, or whose algbw is not bytes / time", pending_line_)) {
            return;
        }
        if (++rows_ > most_rows) {
            throw InputError(log_.file, fmt::format("line {}", pending_line_),
                             fmt::format("at most {} rows", most_rows), "more");
        }
        if (run_.rows.empty()) {
            mentioned_.clear();  // a program named from now on is the next run's
        }
        row->line = pending_line_;
        run_.line = run_.line == 0 ? pending_line_ : run_.line;
        run_.date = run_.date.empty() ? row->date : run_.date;
        run_.rows.push_back(std::move(*row));
    }

    [[nodiscard]] NcclTestsColumns columns() const {
        NcclTestsColumns columns = run_.columns;
        columns.is_gather = run_.collective.starts_with("all_gather") ||
                            run_.collective.starts_with("reduce_scatter");
        return columns;
    }

    void read_other(const TextLine& line) {
        const Words words = words_of(line.text);
        if (const std::string program = program_in(line.text); !program.empty()) {
            mentioned_ = program;
            if (!is_used() && run_.collective.empty()) {
                run_.collective = program;
            }
        } else if (!is_expected(words, line.text)) {
            skip("lines not of nccl-tests", line);
        }
    }

    NcclTestsLog& log_;
    NcclTestsRun run_;
    NcclInfo info_;
    std::string pending_;  // a row that the next line may go on with
    std::int64_t pending_line_ = 0;
    std::string untagged_;   // the line without mpirun's inner tags
    std::string mentioned_;  // the program of the command line before the output
    std::size_t rows_ = 0;
    std::size_t devices_ = 0;
};

// JSON begins with a bracket, but so does a launcher's tag, "[1,0]<stdout>:".
bool begins_as_json(std::string_view text) {
    text = without_byte_order_mark(text);
    const std::size_t begin = text.find_first_not_of(spaces);
    if (begin == std::string_view::npos || (text[begin] != '{' && text[begin] != '[')) {
        return false;
    }
    const std::size_t next = text.find_first_not_of(spaces, begin + 1);
    return next != std::string_view::npos && text[next] == (text[begin] == '{' ? '"' : '{');
}

}  // namespace

void NcclTestsLog::skip(const std::string& what, std::int64_t line, std::int64_t count) {
    const auto known = std::ranges::find(skipped, what, &SkippedLines::what);
    if (known == skipped.end()) {
        skipped.push_back({what, count, line});
    } else {
        known->count += count;
    }
}

bool NcclTestsLog::is_usable(const NcclTestsRow& row, const std::string& what, std::int64_t line) {
    if (row.halves.empty() || row.incomplete) {
        skip(row.halves.empty() ? what : "half-" + what, line);
    }
    return !row.halves.empty();
}

NcclTestsLog read_nccl_tests_log(const ByteSource& source, const std::string& file) {
    NcclTestsLog log{.file = file};
    constexpr std::size_t enough = 4096;
    const auto [begin, whole] = peeked(source, enough);
    if (begins_as_json(begin)) {
        const std::string text = peeked(whole, largest_json_bytes + 1).begin;
        if (text.size() > largest_json_bytes) {
            throw InputError(file, "", "JSON of nccl-tests, of at most 64 MiB", "a larger file");
        }
        read_nccl_tests_json(text.substr(text.find_first_of("{[")), log);
        return log;
    }
    LineReader lines(whole, file);
    TextLog text(log);
    while (const auto line = lines.next()) {
        text.read(*line);
    }
    text.end();
    return log;
}

}  // namespace bucketwise
