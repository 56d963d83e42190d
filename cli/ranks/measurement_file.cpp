#include "cli/ranks/measurement_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <iterator>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/shell/files.h"
#include "cli/shell/read_files.h"
#include "import/source/line_reader.h"
#include "sim/base/error.h"
#include "sim/base/json_input.h"
#include "sim/text/system_reason.h"

namespace bucketwise {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t largest_line_bytes = std::size_t{64} << 20;
constexpr std::size_t largest_measurements_bytes = std::size_t{1} << 30;

[[noreturn]] void fail(const std::string& path, std::string_view what) {
    throw std::runtime_error(fmt::format("{}: {}: {}", path, what, system_reason(errno)));
}

// The offset behind the last line end before `end`; empty, with errno set, where reading fails.
std::optional<::off_t> end_of_lines(int descriptor, ::off_t end) {
    std::array<char, 1 << 16> block{};
    while (end > 0) {
        const ::off_t begin = std::max<::off_t>(end - std::ssize(block), 0);
        const ssize_t count =
            ::pread(descriptor, block.data(), static_cast<std::size_t>(end - begin), begin);
        if (count != end - begin) {
            return std::nullopt;
        }
        const std::size_t last =
            std::string_view(block.data(), static_cast<std::size_t>(count)).rfind('\n');
        if (last != std::string_view::npos) {
            return begin + static_cast<::off_t>(last) + 1;
        }
        end = begin;
    }
    return end < 0 ? std::nullopt : std::optional<::off_t>(0);
}

// A compute record of a rank before the last: records of other ranks must follow.
bool lacks_others(int descriptor, ::off_t begin, ::off_t end) {
    std::string line(static_cast<std::size_t>(end - begin), '\0');
    if (::pread(descriptor, line.data(), line.size(), begin) != std::ssize(line) ||
        line.find(R"("kind":"compute")") == std::string::npos) {
        return false;
    }
    const Json record = Json::parse(line, nullptr, false);
    const auto number = [&](const char* key) {
        return record.is_object() && record.contains(key) && record[key].is_number_integer()
                   ? record[key].get<std::int64_t>()
                   : 0;
    };
    return number("rank") + 1 < number("ranks");
}

// The end of the last whole measurement; empty, with errno set, where reading fails.
std::optional<::off_t> end_of_measurements(int descriptor) {
    std::optional<::off_t> end = end_of_lines(descriptor, ::lseek(descriptor, 0, SEEK_END));
    while (end && *end > 0) {
        const std::optional<::off_t> begin = end_of_lines(descriptor, *end - 1);
        if (begin && !lacks_others(descriptor, *begin, *end)) {
            break;
        }
        end = begin;
    }
    return end;
}

bool cut_torn_measurement(int descriptor) {
    const std::optional<::off_t> end = end_of_measurements(descriptor);
    return end && (*end == ::lseek(descriptor, 0, SEEK_END) || ::ftruncate(descriptor, *end) == 0);
}

// The bytes from an offset on, at most so many.
std::string bytes_at(int descriptor, ::off_t begin, std::size_t count) {
    std::string bytes(count, '\0');
    const ssize_t got = ::pread(descriptor, bytes.data(), bytes.size(), begin);
    bytes.resize(static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    return bytes;
}

// Whether one is the beginning of the other.
bool agree(std::string_view a, std::string_view b) {
    const std::size_t size = std::min(a.size(), b.size());
    return a.substr(0, size) == b.substr(0, size);
}

// Whether this program may have written the file's beginning, even less than a line. The first
// record is an environment, whose keys are sorted; no other record has operations.
bool begins_as_ours(int descriptor) {
    constexpr std::size_t enough = 1024;
    const std::string text = bytes_at(descriptor, 0, enough);
    std::string_view rest = text;
    for (const std::string_view part :
         {R"({"algorithm":")", R"(","backend":")", R"(","backward_operations":[)"}) {
        if (!agree(rest, part)) {
            return false;
        }
        rest.remove_prefix(std::min(rest.size(), part.size()));
        rest.remove_prefix(std::min(rest.size(), rest.find('"')));  // the value
    }
    return true;
}

// Whether the text behind the last line may be the beginning of a record.
bool is_torn_record(int descriptor) {
    const ::off_t size = ::lseek(descriptor, 0, SEEK_END);
    const ::off_t begin = end_of_lines(descriptor, size).value_or(size);
    const std::string tail = bytes_at(descriptor, begin, 16);
    return agree(tail, R"({"algorithm":")") || agree(tail, R"({"backend":")");
}

bool is_regular(const std::string& path) {
    std::error_code ignored;
    return fs::is_regular_file(path, ignored);
}

// The writer holds the file's lock. Some network file systems have none; two runs on one file then
// go unnoticed.
bool is_anothers(int descriptor) {
    return ::flock(descriptor, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

// Whether both are one file.
bool is_same(const struct stat& a, const struct stat& b) {
    return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

// Whether the path leads to the open file.
bool leads_to(const std::string& path, int descriptor) {
    struct stat named {};
    struct stat file {};
    return ::stat(path.c_str(), &named) == 0 && ::fstat(descriptor, &file) == 0 &&
           is_same(named, file);
}

// Ranks of a killed launcher end a moment after it. Waiting spares the user a second try.
bool stays_anothers(int descriptor) {
    constexpr std::chrono::milliseconds patience{2000};
    const auto limit = std::chrono::steady_clock::now() + patience;
    while (is_anothers(descriptor)) {
        if (std::chrono::steady_clock::now() >= limit) {
            return true;
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return false;
}

void check_place(const std::string& path) {
    if (path.empty() || path == "-") {
        throw InputError("-o", "", "a file, which --resume can go on with",
                         path.empty() ? "nothing" : "standard output");
    }
    std::error_code ignored;
    const fs::file_status status = fs::status(path, ignored);
    if (fs::is_directory(status)) {
        throw InputError(path, "", "a file", "a folder");
    }
    if (fs::exists(status) && !fs::is_regular_file(status)) {
        throw InputError(path, "", "a file that can be read back", "a device or a pipe");
    }
    if (leads_to(path, STDOUT_FILENO) || leads_to(path, STDERR_FILENO)) {  // output over records
        throw InputError(path, "", "a file of its own", "where standard output or error go");
    }
    const fs::path folder = fs::path(path).parent_path();
    if (!folder.empty() && fs::status(folder, ignored).type() == fs::file_type::not_found) {
        throw InputError(path, "", "a file in a folder that exists",
                         folder.string() + ", which does not");
    }
}

bool write_all(int descriptor, std::string_view text) {
    while (!text.empty()) {
        const ssize_t written = ::write(descriptor, text.data(), text.size());
        if (written < 0 && errno != EINTR) {
            return false;
        }
        if (written > 0) {
            text.remove_prefix(static_cast<std::size_t>(written));
        }
    }
    return true;
}

}  // namespace

std::string line_of(const Measurement& record) {
    return to_json(record).dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

// Line by line, as files of long runs are large. The longest line has the scenario, perhaps a
// trace's.
MeasurementLines read_measurements(const ByteSource& source, const std::string& path) {
    std::size_t whole = 0;
    const auto bounded = [&](char* buffer, std::size_t size) {
        const std::size_t count = source(buffer, size);
        whole += count;
        if (whole > largest_measurements_bytes) {
            throw InputError(path, "",
                             fmt::format("a file of measurements of at most {} MiB",
                                         largest_measurements_bytes >> 20),
                             "a larger one");
        }
        return count;
    };
    LineReader reader(bounded, path, {.kept = largest_line_bytes, .skipped = largest_line_bytes});
    MeasurementLines lines;
    while (const auto line = reader.next()) {
        if (!line->ended) {
            lines.torn = true;
        } else if (!line->text.empty()) {
            const Json document = parse_json(line->text, fmt::format("{}:{}", path, line->number));
            lines.records.push_back(read_measurement(document, path, line->number));
        }
    }
    return lines;
}

MeasurementLines read_measurements(const std::string& path) {
    return read_measurements(blocks_of_file(path), path);
}

void check_measurement_output(const std::string& path, bool resume) {
    check_place(path);
    refuse_overwriting({path});
    std::error_code ignored;
    const bool is_there = is_regular(path);
    if (is_there && fs::file_size(path, ignored) > 0 && !resume) {
        throw InputError(path, "", "a new file (or --resume, to go on with this one)",
                         "one that holds something");
    }
    if (resume && !is_there) {
        throw InputError(path, "", "measurements to resume", "no such file");
    }
}

bool is_unbegun(const std::string& path) {
    const Descriptor file(is_regular(path) ? ::open(path.c_str(), O_RDONLY | O_CLOEXEC) : -1);
    return file.is_open() && begins_as_ours(file.get()) &&
           end_of_lines(file.get(), ::lseek(file.get(), 0, SEEK_END)) == 0;
}

MeasurementFile::MeasurementFile(std::string path) : path_(std::move(path)) {
    constexpr ::mode_t readable_by_all = 0644;
    constexpr int how = O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC;
    file_ = Descriptor(::open(path_.c_str(), how | O_EXCL, readable_by_all));
    is_new_ = file_.is_open();
    if (!is_new_ && errno == EEXIST) {
        file_ = Descriptor(::open(path_.c_str(), how, readable_by_all));
    }
    if (!file_.is_open()) {
        fail(path_, "cannot write");
    }
    if (stays_anothers(file_.get())) {
        throw std::runtime_error(fmt::format("{}: another run is writing to it", path_));
    }
    if (!cut_torn_measurement(file_.get())) {
        fail(path_, "cannot remove a torn last line");
    }
    end_ = ::lseek(file_.get(), 0, SEEK_END);
}

MeasurementFile::~MeasurementFile() {
    if (is_new_ && is_in_place() && ::lseek(file_.get(), 0, SEEK_END) == 0) {
        ::unlink(path_.c_str());
    }
}

void MeasurementFile::append(const std::vector<Measurement>& records) {
    std::string lines;
    for (const Measurement& record : records) {
        const std::string line = line_of(record);
        if (line.size() > largest_line_bytes) {
            throw std::runtime_error(
                fmt::format("{}: a record would have more than {} MiB, such as of a scenario with "
                            "very many operations",
                            path_, largest_line_bytes >> 20));
        }
        lines += line;
    }
    check_in_place();
    if (static_cast<std::size_t>(end_) + lines.size() > largest_measurements_bytes) {
        throw std::runtime_error(fmt::format("{}: holds {} MiB, the most that can be read back",
                                             path_, largest_measurements_bytes >> 20));
    }
    if (::lseek(file_.get(), 0, SEEK_END) != end_) {
        throw std::runtime_error(fmt::format("{}: was changed while it was being written", path_));
    }
    if (!write_all(file_.get(), lines)) {
        const int reason = errno;
        if (::ftruncate(file_.get(), end_) != 0) {
            // The launcher, or the next --resume, drops the torn line.
        }
        errno = reason;
        fail(path_, "cannot write");
    }
    end_ += std::ssize(lines);
}

void MeasurementFile::hand_over() {
    ::flock(file_.get(), LOCK_UN);
}

// Does not cut text that others have put into the file meanwhile.
void MeasurementFile::take_back() {
    if (!is_anothers(file_.get()) && begins_as_ours(file_.get()) && is_torn_record(file_.get()) &&
        !cut_torn_measurement(file_.get())) {
        fail(path_, "cannot remove a torn last line");
    }
}

bool MeasurementFile::is_in_place() const {
    return leads_to(path_, file_.get());
}

void MeasurementFile::check_in_place() const {
    if (!is_in_place()) {
        throw std::runtime_error(fmt::format("{}: {}", path_, what_became()));
    }
}

// Empty: unknown. The kernel knows the name until it is removed.
std::string MeasurementFile::name_now() const {
    if (is_in_place()) {
        return path_;
    }
    std::error_code ignored;
    std::string name =
        fs::read_symlink(fmt::format("/proc/self/fd/{}", file_.get()), ignored).string();
    return leads_to(name, file_.get()) ? std::move(name) : "";
}

std::string MeasurementFile::what_became() const {
    struct stat file {};
    std::error_code ignored;
    const bool is_gone = ::fstat(file_.get(), &file) == 0 && file.st_nlink == 0;
    const bool another = fs::exists(path_, ignored);
    const std::string lost = is_gone ? ", and what had been measured is gone with it" : "";
    if (const std::string name = name_now(); !name.empty()) {
        return fmt::format("was renamed to {}{} while it was being written", name,
                           another ? ", and another put in its place," : "");
    }
    return fmt::format("was {} while it was being written{}",
                       another ? "replaced by another file" : "removed", lost);
}

std::optional<std::string> MeasurementFile::keeper() const {
    // The first line is the environment; records follow.
    const std::string name = name_now();
    const std::optional<::off_t> end = end_of_measurements(file_.get());
    const bool has_more = end && *end > 0 && end_of_lines(file_.get(), *end - 1).value_or(0) > 0;
    return has_more && begins_as_ours(file_.get()) && !name.empty() ? std::optional(name)
                                                                    : std::nullopt;
}

}  // namespace bucketwise
