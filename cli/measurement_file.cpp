#include "cli/measurement_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/files.h"
#include "sim/error.h"
#include "sim/json_input.h"

namespace bucketwise {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const std::string& path, std::string_view what) {
    throw std::runtime_error(
        fmt::format("{}: {}: {}", path, what, std::generic_category().message(errno)));
}

// The offset behind the last line's end.
std::int64_t end_of_lines(std::string_view text) {
    const std::size_t last = text.rfind('\n');
    return last == std::string_view::npos ? 0 : static_cast<std::int64_t>(last) + 1;
}

// A device or pipe has no lines to keep.
bool is_regular(const std::string& path) {
    std::error_code ignored;
    return fs::is_regular_file(path, ignored);
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

MeasurementLines read_measurements(const std::string& path) {
    const std::string text = read_text_file(path);
    MeasurementLines lines;
    std::int64_t number = 0;
    const auto whole = static_cast<std::size_t>(end_of_lines(text));
    lines.torn = whole < text.size();
    for (std::size_t begin = 0; begin < whole;) {
        const std::size_t end = text.find('\n', begin);
        const std::string_view line(text.data() + begin, end - begin);
        ++number;
        if (!line.empty()) {
            const Json document = parse_json(line, fmt::format("{}:{}", path, number));
            lines.records.push_back(read_measurement(document, path, number));
        }
        begin = end + 1;
    }
    return lines;
}

void check_measurement_output(const std::string& path, bool resume) {
    std::error_code ignored;
    const bool has_content = is_regular(path) && fs::file_size(path, ignored) > 0;
    if (has_content && !resume) {
        throw InputError(path, "", "a new file (or --resume, to go on with this one)",
                         "one that holds something");
    }
    if (resume && !has_content) {
        throw InputError(path, "", "measurements to resume", "no such file or an empty one");
    }
    if (fs::is_directory(path, ignored)) {
        throw InputError(path, "", "a file", "a folder");
    }
}

void drop_torn_line(const std::string& path) {
    if (!is_regular(path)) {
        return;
    }
    std::ifstream file(path, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    const std::int64_t whole = end_of_lines(text);
    if (whole < static_cast<std::int64_t>(text.size()) && ::truncate(path.c_str(), whole) != 0) {
        fail(path, "cannot remove a torn last line");
    }
}

MeasurementFile::MeasurementFile(std::string path) : path_(std::move(path)) {
    drop_torn_line(path_);
    constexpr ::mode_t readable_by_all = 0644;
    descriptor_ =
        ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, readable_by_all);
    if (descriptor_ < 0) {
        fail(path_, "cannot write");
    }
}

MeasurementFile::~MeasurementFile() {
    ::close(descriptor_);
}

void MeasurementFile::append(const Measurement& record) {
    const std::string line = to_json(record).dump() + "\n";
    const ::off_t before = ::lseek(descriptor_, 0, SEEK_END);
    if (write_all(descriptor_, line)) {
        return;
    }
    const int reason = errno;
    if (before >= 0 && ::ftruncate(descriptor_, before) != 0) {
        // The launcher, or the next --resume, drops the torn line.
    }
    errno = reason;
    fail(path_, "cannot write");
}

}  // namespace bucketwise
