#include "hw/launch/launcher_descriptor.h"

#include <array>
#include <cerrno>
#include <stdexcept>
#include <system_error>

#include <fcntl.h>

#include <fmt/format.h>

namespace bucketwise {
namespace {

// Renumbers a descriptor above the standard streams. Throws if it could not be opened.
Descriptor opened(Descriptor descriptor, const char* what) {
    if (descriptor.is_open() && descriptor.get() <= STDERR_FILENO) {
        descriptor = Descriptor(::fcntl(descriptor.get(), F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
    }
    if (!descriptor.is_open()) {
        throw std::runtime_error(
            fmt::format("cannot open {}: {}", what, std::generic_category().message(errno)));
    }
    return descriptor;
}

}  // namespace

Pipe open_pipe() {
    std::array<int, 2> ends{-1, -1};
    [[maybe_unused]] const int failed = ::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK);
    Pipe pipe{Descriptor(ends[0]), Descriptor(ends[1])};
    return {opened(std::move(pipe.read), "a pipe"), opened(std::move(pipe.write), "a pipe")};
}

Descriptor open_null() {
    constexpr auto path = "/dev/null";
    return opened(Descriptor(::open(path, O_RDONLY | O_CLOEXEC)), path);
}

}  // namespace bucketwise
