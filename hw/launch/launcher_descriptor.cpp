#include "hw/launch/launcher_descriptor.h"

#include <array>
#include <cerrno>
#include <stdexcept>
#include <system_error>

#include <fcntl.h>

#include <fmt/format.h>

namespace bucketwise {
namespace {

[[noreturn]] void fail(const char* what) {
    throw std::runtime_error(
        fmt::format("cannot open {}: {}", what, std::generic_category().message(errno)));
}

Descriptor above_standard_streams(Descriptor descriptor, const char* what) {
    if (descriptor.get() > STDERR_FILENO) {
        return descriptor;
    }
    const int number = ::fcntl(descriptor.get(), F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    if (number < 0) {
        fail(what);
    }
    return Descriptor(number);
}

}  // namespace

Pipe open_pipe() {
    constexpr auto what = "a pipe";
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) {
        fail(what);
    }
    Pipe opened{Descriptor(ends[0]), Descriptor(ends[1])};
    return {above_standard_streams(std::move(opened.read), what),
            above_standard_streams(std::move(opened.write), what)};
}

Descriptor open_null() {
    constexpr auto what = "/dev/null";
    const int number = ::open(what, O_RDONLY | O_CLOEXEC);
    if (number < 0) {
        fail(what);
    }
    return above_standard_streams(Descriptor(number), what);
}

}  // namespace bucketwise
