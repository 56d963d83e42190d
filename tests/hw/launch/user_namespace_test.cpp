#include "hw/launch/user_namespace.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/syscall.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <stdexcept>
#include <string>

#include "hw/launch/shaped_network.h"
#include "tests/catch.h"
#include "tests/hw/launch/child_process.h"

namespace bucketwise {
namespace {

TEST_CASE("what forbids user namespaces is named, with the way out") {
    const std::string begin = "needs root or a user namespace, which ";
    CHECK(missing_privileges({.max_user_namespaces = 0}, "nothing") ==
          begin +
              "user.max_user_namespaces=0 forbids: use sudo, or allow it: "
              "sudo sysctl user.max_user_namespaces=10000");
    CHECK(missing_privileges({.max_user_namespaces = 1000, .unprivileged_clone = 0}, "nothing") ==
          begin +
              "kernel.unprivileged_userns_clone=0 forbids: use sudo, or allow it: "
              "sudo sysctl kernel.unprivileged_userns_clone=1");
    CHECK(missing_privileges({.unprivileged_clone = 1, .apparmor_restricts = 1}, "nothing") ==
          begin +
              "kernel.apparmor_restrict_unprivileged_userns=1 forbids: use sudo, or allow it: "
              "sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0");
    CHECK(missing_privileges({.apparmor_restricts = 0, .seccomp_mode = 2}, "nothing") ==
          begin +
              "a filter of system calls (seccomp) forbids: "
              "start the container with --cap-add NET_ADMIN --cap-add SYS_ADMIN");
    CHECK(missing_privileges({.max_user_namespaces = 1000, .seccomp_mode = 0},
                             "the kernel (unshare: No)") ==
          begin + "the kernel (unshare: No) forbids: use sudo");
}

std::string error_of_network() {
    try {
        const ShapedNetwork network(1, {1'000'000'000});
        return "";
    } catch (const std::runtime_error& error) {
        return error.what();
    }
}

bool drop_all_capabilities() {
    ::__user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    const std::array<::__user_cap_data_struct, 2> none{};
    return ::syscall(SYS_capset, &header, none.data()) == 0;
}

bool write_to(const char* path, const std::string& text) {
    const Descriptor file(::open(path, O_WRONLY | O_CLOEXEC));
    return ::write(file.get(), text.data(), text.size()) == std::ssize(text);
}

TEST_CASE("a system without user namespaces says so to an ordinary user") {
    // The limit is of a user namespace and those in it: nobody else has this one.
    const auto own_users = [] {
        const std::string user = std::to_string(::getuid());
        return ::unshare(CLONE_NEWUSER) == 0 &&
               write_to("/proc/self/uid_map", user + " " + user + " 1");
    };
    if (!ended_well(start_child(own_users))) {
        WARN("skipped: this process can make no user namespace");
        return;
    }
    CHECK(ended_well(start_child([&] {
        return own_users() && write_to("/proc/sys/user/max_user_namespaces", "0") &&
               drop_all_capabilities() &&
               error_of_network() ==
                   "--link-rate " + missing_privileges({.max_user_namespaces = 0}, "");
    })));
}

// As containers do: unshare is refused, all else is allowed.
bool forbid_unshare() {
    std::array<::sock_filter, 4> program{
        {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(::seccomp_data, nr)),
         BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_unshare, 0, 1),
         BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
         BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)}};
    const ::sock_fprog filter{program.size(), program.data()};
    return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

TEST_CASE("a container that filters system calls says so, to root too") {
    const std::string expected = "--link-rate " + missing_privileges({.seccomp_mode = 2}, "");
    const UserNamespaceSettings settings = read_user_namespace_settings();
    if (settings.max_user_namespaces == 0 || settings.unprivileged_clone == 0 ||
        settings.apparmor_restricts == 1) {
        WARN("skipped: this system names another reason");
        return;
    }
    const bool ordinary = GENERATE(false, true);
    CHECK(ended_well(start_child([&] {
        return (!ordinary || become_ordinary_user()) && forbid_unshare() &&
               error_of_network() == expected;
    })));
}

}  // namespace
}  // namespace bucketwise
