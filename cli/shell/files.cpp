#include "cli/shell/files.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <random>
#include <stdexcept>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/shell/read_files.h"
#include "cli/shell/shipped_files.h"
#include "sim/base/error.h"
#include "sim/base/transformed.h"
#include "sim/text/foreign_text.h"
#include "sim/text/system_reason.h"

namespace bucketwise {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t largest_file_bytes = std::size_t{256} << 20;

std::string reason() {
    return system_reason(errno);
}

struct FileCloser {
    void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, FileCloser>;

bool write_all(std::FILE* file, const std::string& text) {
    return std::fwrite(text.data(), 1, text.size(), file) == text.size() && std::fflush(file) == 0;
}

File open_to_read(const std::string& name) {
    const std::string path = here_or_shipped(name);
    std::error_code error;
    if (fs::is_directory(path, error)) {
        throw InputError(path, "", "a file that can be read", "a folder");
    }
    File file(std::fopen(path.c_str(), "re"));
    if (!file) {
        const std::string why = reason();
        const std::string meant = errno == ENOENT ? nearest_file(name) : "";
        throw InputError(path, "", "a file that can be read",
                         why + (meant.empty() ? "" : fmt::format(" (did you mean {}?)", meant)));
    }
    note_read(::fileno(file.get()), path);
    return file;
}

void write_in_place(const std::string& path, const std::string& text) {
    const File file(std::fopen(path.c_str(), "we"));
    if (!file || !write_all(file.get(), text)) {
        throw std::runtime_error(fmt::format("{}: cannot write: {}", path, reason()));
    }
}

// Empty without such a file.
std::optional<::mode_t> mode_of(const fs::path& path) {
    struct ::stat status {};
    constexpr ::mode_t permissions = 07777;
    return ::stat(path.c_str(), &status) == 0 ? std::optional(status.st_mode & permissions)
                                              : std::nullopt;
}

// New text in a temporary file beside the old one, with the old one's permissions or a new file's.
// put_in_place() replaces the old file; otherwise the temporary one is removed.
class StagedFile {
  public:
    StagedFile(fs::path path, const std::string& text) : path_(std::move(path)) {
        const std::optional<::mode_t> mode = mode_of(path_);
        constexpr ::mode_t less_the_umask = 0666;
        const int descriptor = open_beside(mode.value_or(less_the_umask));
        if (descriptor < 0) {
            fail();
        }
        File file(::fdopen(descriptor, "w"));
        if (!file || !write_all(file.get(), text) || (mode && ::fchmod(descriptor, *mode) != 0) ||
            ::fsync(descriptor) != 0) {
            fail();
        }
    }
    ~StagedFile() { discard(); }
    StagedFile(StagedFile&& other) noexcept
        : path_(std::move(other.path_)), name_(std::exchange(other.name_, {})) {}
    StagedFile(const StagedFile&) = delete;
    StagedFile& operator=(const StagedFile&) = delete;
    StagedFile& operator=(StagedFile&&) = delete;

    void put_in_place() {
        if (std::rename(name_.c_str(), path_.c_str()) != 0) {
            fail();
        }
        name_.clear();
    }

  private:
    // A new file under an unused name; below 0 where there can be none.
    int open_beside(::mode_t mode) {
        const fs::path folder = path_.has_parent_path() ? path_.parent_path() : fs::path(".");
        std::random_device random;
        constexpr int attempts = 100;
        for (int i = 0; i < attempts; ++i) {
            const std::string name =
                (folder / fmt::format("{}.{:08x}", path_.filename().string(), random())).string();
            const int descriptor =
                ::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
            if (descriptor >= 0) {
                name_ = name;
            }
            if (descriptor >= 0 || errno != EEXIST) {
                return descriptor;
            }
        }
        return -1;
    }
    [[noreturn]] void fail() {
        const std::string why = reason();
        discard();
        throw std::runtime_error(fmt::format("{}: cannot write: {}", path_.string(), why));
    }
    void discard() {
        if (!name_.empty()) {
            ::unlink(name_.c_str());
        }
    }

    fs::path path_;
    std::string name_;
};

// Empty for a device, a pipe, or a file in a folder that takes no new ones: they are written in
// place. Throws InputError for a folder or no name, and std::runtime_error without permission.
std::optional<fs::path> replaced_file(const std::string& path) {
    if (path.empty()) {
        throw InputError("the name of an output", "", "a file to write to", "nothing");
    }
    std::error_code error;
    const fs::file_status status = fs::status(path, error);
    if (!fs::exists(status)) {
        return path;
    }
    if (fs::is_directory(status)) {
        throw InputError(path, "", "a file to write to", "a folder");
    }
    if (!fs::is_regular_file(status)) {
        return std::nullopt;
    }
    if (::access(path.c_str(), W_OK) != 0) {
        throw std::runtime_error(fmt::format("{}: cannot write: {}", path, reason()));
    }
    // Through a symbolic link, so that the link stays and its target changes.
    fs::path target = fs::canonical(path, error);
    if (error) {
        return path;
    }
    const bool takes_files = ::access(target.parent_path().c_str(), W_OK | X_OK) == 0;
    return takes_files ? std::optional(std::move(target)) : std::nullopt;
}

}  // namespace

std::string read_text_file(const std::string& path) {
    const File file = open_to_read(path);
    std::string text;
    constexpr std::size_t block_bytes = 1 << 16;
    std::string block(block_bytes, '\0');
    while (const std::size_t count = std::fread(block.data(), 1, block.size(), file.get())) {
        text.append(block, 0, count);
        if (text.size() > largest_file_bytes) {
            throw InputError(path, "", "a file of at most 256 MiB", "a larger one");
        }
    }
    if (std::ferror(file.get()) != 0) {
        throw InputError(path, "", "a file that can be read", reason());
    }
    return std::string(without_byte_order_mark(text));
}

ByteSource blocks_of_file(const std::string& path) {
    const std::shared_ptr<std::FILE> file = open_to_read(path);
    return [file, path](char* buffer, std::size_t size) {
        const std::size_t count = std::fread(buffer, 1, size, file.get());
        if (count == 0 && std::ferror(file.get()) != 0) {
            throw InputError(path, "", "a file that can be read", reason());
        }
        return count;
    };
}

std::uint64_t size_of_file(const std::string& path) {
    std::error_code error;
    const std::uintmax_t size = fs::file_size(path, error);
    return error ? 0 : size;
}

void write_text_file(const std::string& path, const std::string& text) {
    write_outputs({{path, text}});
}

void write_outputs(const std::vector<OutputText>& outputs) {
    refuse_overwriting(transformed(outputs, &OutputText::path));
    std::vector<StagedFile> staged;
    std::vector<const OutputText*> in_place;
    for (const OutputText& output : outputs) {
        const std::optional<fs::path> file =
            output.path == "-" ? std::nullopt : replaced_file(output.path);
        if (file) {
            staged.emplace_back(*file, output.text);
        } else {
            in_place.push_back(&output);
        }
    }
    for (const OutputText* output : in_place) {
        if (output->path == "-") {
            write_output("-", output->text);
        } else {
            write_in_place(output->path, output->text);
        }
    }
    // Last, as renaming a staged file hardly fails.
    for (StagedFile& file : staged) {
        file.put_in_place();
    }
}

void write_outputs(const std::vector<OutputText>& outputs, const std::string& report) {
    write_outputs(outputs);
    if (std::ranges::find(outputs, "-", &OutputText::path) == outputs.end()) {
        write_output("-", report);
    }
}

std::string json_text(const Json& document) {
    return document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

void write_output(const std::string& path, const std::string& text) {
    if (path != "-") {
        write_text_file(path, text);
    } else if (!write_all(stdout, shown_text(text))) {
        throw std::runtime_error(fmt::format("standard output: cannot write: {}", reason()));
    }
}

void complain(const std::string& message) {
    // Room for several lists of choices.
    constexpr std::size_t longest_message = 4000;
    // Not fmt::print, which throws when the reader is gone.
    std::fputs(("bucketwise: " + shown_line(message, longest_message) + "\n").c_str(), stderr);
}

}  // namespace bucketwise
