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
#include <fstream>
#include <iterator>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "sim/base/error.h"
#include "sim/base/json_input.h"
#include "sim/text/system_reason.h"

namespace bucketwise {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const std::string& path, std::string_view what) {
    throw std::runtime_error(fmt::format("{}: {}: {}", path, what, system_reason(errno)));
}

// The offset behind the last line's end; nothing, with errno set, when the file cannot be read.
std::optional<::off_t> end_of_lines(int descriptor) {
    std::array<char, 1 << 16> block{};
    ::off_t end = ::lseek(descriptor, 0, SEEK_END);
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

bool cut_torn_line(int descriptor) {
    const std::optional<::off_t> end = end_of_lines(descriptor);
    return end && (*end == ::lseek(descriptor, 0, SEEK_END) || ::ftruncate(descriptor, *end) == 0);
}

bool is_regular(const std::string& path) {
    std::error_code ignored;
    return fs::is_regular_file(path, ignored);
}

// Whoever writes holds the file's lock. Where there are no locks (some network file systems), all
// goes well as long as nobody starts two runs on one file.
bool is_anothers(int descriptor) {
    return ::flock(descriptor, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

// What is printed would lie over what is measured.
bool is_printed_to(const std::string& path) {
    struct stat file {};
    struct stat stream {};
    const auto is_stream = [&](int descriptor) {
        return ::fstat(descriptor, &stream) == 0 && stream.st_dev == file.st_dev &&
               stream.st_ino == file.st_ino;
    };
    return ::stat(path.c_str(), &file) == 0 &&
           (is_stream(STDOUT_FILENO) || is_stream(STDERR_FILENO));
}

// Ranks whose launcher was killed end a moment after it, and who goes on with their file should not
// have to try twice.
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
    if (is_printed_to(path)) {
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

// Line by line, as a long run's file is larger than what one would read at once.
MeasurementLines read_measurements(const std::string& path) {
    std::error_code ignored;
    if (fs::is_directory(path, ignored)) {
        throw InputError(path, "", "a file that can be read", "a folder");
    }
    std::ifstream file(path, std::ios::binary);
    if (!file) {
        throw InputError(path, "", "a file that can be read",
                         std::generic_category().message(errno));
    }
    MeasurementLines lines;
    std::int64_t number = 0;
    for (std::string line; std::getline(file, line);) {
        ++number;
        if (file.eof()) {
            lines.torn = true;
        } else if (!line.empty()) {
            const Json document = parse_json(line, fmt::format("{}:{}", path, number));
            lines.records.push_back(read_measurement(document, path, number));
        }
    }
    if (file.bad()) {
        throw InputError(path, "", "a file that can be read",
                         fmt::format("an error after line {}", number));
    }
    return lines;
}

void check_measurement_output(const std::string& path, bool resume) {
    check_place(path);
    std::error_code ignored;
    const bool has_content = is_regular(path) && fs::file_size(path, ignored) > 0;
    if (has_content && !resume) {
        throw InputError(path, "", "a new file (or --resume, to go on with this one)",
                         "one that holds something");
    }
    if (resume && !has_content) {
        throw InputError(path, "", "measurements to resume", "no such file or an empty one");
    }
}

void drop_torn_line(const std::string& path) {
    const Descriptor file(is_regular(path) ? ::open(path.c_str(), O_RDWR | O_CLOEXEC) : -1);
    if (file.is_open() && !is_anothers(file.get()) && !cut_torn_line(file.get())) {
        fail(path, "cannot remove a torn last line");
    }
}

MeasurementFile::MeasurementFile(std::string path) : path_(std::move(path)) {
    constexpr ::mode_t readable_by_all = 0644;
    file_ =
        Descriptor(::open(path_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, readable_by_all));
    if (!file_.is_open()) {
        fail(path_, "cannot write");
    }
    if (stays_anothers(file_.get())) {
        throw std::runtime_error(fmt::format("{}: another run is writing to it", path_));
    }
    if (!cut_torn_line(file_.get())) {
        fail(path_, "cannot remove a torn last line");
    }
    end_ = ::lseek(file_.get(), 0, SEEK_END);
}

void MeasurementFile::append(const std::vector<Measurement>& records) {
    std::string lines;
    for (const Measurement& record : records) {
        lines += line_of(record);
    }
    check_unchanged();
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

void MeasurementFile::check_unchanged() const {
    struct stat status {};
    if (::fstat(file_.get(), &status) != 0) {
        fail(path_, "cannot write");
    }
    if (status.st_nlink == 0 || status.st_size != end_) {
        throw std::runtime_error(
            fmt::format("{}: was {} while it was being written", path_,
                        status.st_nlink == 0 ? "removed or replaced" : "changed"));
    }
}

}  // namespace bucketwise
