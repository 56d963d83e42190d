#include "hw/launch/child_descriptors.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <stdexcept>
#include <string>

#include "tests/catch.h"
#include "tests/hw/launch/child_process.h"

namespace bucketwise {
namespace {

Descriptor file_with(const std::string& text) {
    Descriptor file(::memfd_create("test", MFD_CLOEXEC));
    if (::pwrite(file.get(), text.data(), text.size(), 0) != std::ssize(text)) {
        throw std::runtime_error("cannot write " + text);
    }
    return file;
}

std::string text_in(const Descriptor& file) {
    std::array<char, 64> text{};
    const ::ssize_t count = ::pread(file.get(), text.data(), text.size(), 0);
    return {text.data(), count < 0 ? 0 : static_cast<std::size_t>(count)};
}

bool has_no_child() {
    return ::waitpid(-1, nullptr, WNOHANG) == -1 && errno == ECHILD;
}

TEST_CASE("what a child opens is its caller's, in order, and the child is gone") {
    // The largest network has that many namespaces.
    constexpr int count = 252;
    const std::vector<Descriptor> files = descriptors_from_child([] {
        std::vector<Descriptor> made;
        for (int number = 0; number < count; ++number) {
            made.push_back(file_with(std::to_string(number)));
        }
        return made;
    });
    CHECK(has_no_child());
    REQUIRE(std::ssize(files) == count);
    for (int number = 0; number < count; ++number) {
        const Descriptor& file = files[static_cast<std::size_t>(number)];
        CHECK(text_in(file) == std::to_string(number));
        CHECK((::fcntl(file.get(), F_GETFD) & FD_CLOEXEC) != 0);
    }
    CHECK(descriptors_from_child([] { return std::vector<Descriptor>(); }).empty());
}

TEST_CASE("what a child throws its caller throws, and takes nothing over") {
    const auto failing = []() -> std::vector<Descriptor> {
        throw std::runtime_error("no luck: " + std::string(2000, '.'));
    };
    CHECK_THROWS_WITH(descriptors_from_child(failing), Catch::Matchers::StartsWith("no luck: .."));
    CHECK(has_no_child());
}

TEST_CASE("a child that dies at its work is an error") {
    const auto dying = []() -> std::vector<Descriptor> {
        ::raise(SIGKILL);
        return {};
    };
    CHECK_THROWS_WITH(descriptors_from_child(dying), "a child process ended before it was done");
    CHECK(has_no_child());
}

TEST_CASE("a child that opens more than its caller may is an error") {
    // In a child, as the limit does not come back.
    CHECK(ended_well(start_child([] {
        std::vector<Descriptor> all;
        do {
            all.emplace_back(::open("/dev/null", O_RDONLY | O_CLOEXEC));
        } while (all.back().is_open());
        all.resize(all.size() - 3);  // the one that failed, and room for the two of a socket
        try {
            descriptors_from_child([&] {
                all.clear();  // here, not there
                std::vector<Descriptor> made;
                made.emplace_back(::dup(STDERR_FILENO));
                made.emplace_back(::dup(STDERR_FILENO));
                return made;
            });
        } catch (const std::runtime_error& error) {
            return std::string(error.what()) == "cannot take over what a child process opened";
        }
        return false;
    })));
}

TEST_CASE("a child works with its standard streams open, should its caller have none") {
    CHECK(ended_well(start_child([] {
        ::close(STDIN_FILENO);
        ::close(STDOUT_FILENO);
        const std::vector<Descriptor> made = descriptors_from_child([] {
            std::vector<Descriptor> files;
            files.emplace_back(::open("/dev/null", O_RDONLY));
            if (files.back().get() <= STDERR_FILENO) {
                throw std::runtime_error("took the number of a standard stream");
            }
            return files;
        });
        return made.size() == 1;
    })));
}

TEST_CASE("a child ends with its caller, however that ends") {
    int told[2];
    REQUIRE(::pipe(told) == 0);
    const ::pid_t caller = start_child([&] {
        descriptors_from_child([&]() -> std::vector<Descriptor> {
            const ::pid_t own = ::getpid();
            if (::write(told[1], &own, sizeof own) == sizeof own) {
                ::pause();
            }
            return {};
        });
        return true;
    });
    ::pid_t worker = -1;
    REQUIRE(::read(told[0], &worker, sizeof worker) == sizeof worker);
    const ProcessHandle process(worker);
    ::kill(caller, SIGKILL);
    CHECK_FALSE(ended_well(caller));
    CHECK(process.ends());
    ::close(told[0]);
    ::close(told[1]);
}

}  // namespace
}  // namespace bucketwise
