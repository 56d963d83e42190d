#include "hw/launch/user_namespace.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <fstream>
#include <stdexcept>
#include <string_view>
#include <system_error>

#include <fmt/format.h>

namespace bucketwise {
namespace {

std::optional<long> setting(const char* path) {
    std::ifstream file(path);
    long value = 0;
    return file >> value ? std::optional(value) : std::nullopt;
}

std::optional<long> own_seccomp_mode() {
    std::ifstream file("/proc/self/status");
    for (std::string word; file >> word;) {
        long mode = 0;
        if (word == "Seccomp:" && file >> mode) {
            return mode;
        }
    }
    return std::nullopt;
}

[[noreturn]] void refuse(const std::string& refusal) {
    throw std::runtime_error("--link-rate " +
                             missing_privileges(read_user_namespace_settings(), refusal));
}

[[noreturn]] void refuse(std::string_view attempt, int error) {
    refuse(fmt::format("the kernel ({}: {})", attempt, std::generic_category().message(error)));
}

void write_all(const char* path, const std::string& text) {
    const Descriptor file(::open(path, O_WRONLY | O_CLOEXEC));
    if (!file.is_open() || ::write(file.get(), text.data(), text.size()) != std::ssize(text)) {
        refuse(path, errno);
    }
}

// Version 3 has 64 capabilities in two words. There is no function for it in the C library.
struct CapabilitySets {
    std::array<::__user_cap_data_struct, 2> words{};

    [[nodiscard]] bool read() {
        ::__user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
        return ::syscall(SYS_capget, &header, words.data()) == 0;
    }
    [[nodiscard]] bool write() const {
        ::__user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
        return ::syscall(SYS_capset, &header, words.data()) == 0;
    }
};

static_assert(CAP_NET_ADMIN < 32 && CAP_SYS_ADMIN < 32, "both are in the first word");
constexpr std::uint32_t net_admin = std::uint32_t{1} << CAP_NET_ADMIN;
constexpr std::uint32_t sys_admin = std::uint32_t{1} << CAP_SYS_ADMIN;

// Otherwise exec takes all of them from who is not root.
void pass_on_net_admin() {
    CapabilitySets sets;
    bool passed = sets.read();
    sets.words[0].inheritable |= net_admin;
    passed = passed && sets.write() &&
             ::prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_NET_ADMIN, 0, 0) == 0;
    if (!passed) {
        refuse("CAP_NET_ADMIN", errno);
    }
}

}  // namespace

UserNamespaceSettings read_user_namespace_settings() {
    return {.max_user_namespaces = setting("/proc/sys/user/max_user_namespaces"),
            .unprivileged_clone = setting("/proc/sys/kernel/unprivileged_userns_clone"),
            .apparmor_restricts = setting("/proc/sys/kernel/apparmor_restrict_unprivileged_userns"),
            .seccomp_mode = own_seccomp_mode()};
}

std::string missing_privileges(const UserNamespaceSettings& settings, const std::string& refusal) {
    const auto sentence = [](std::string_view what, std::string_view way_out) {
        return fmt::format("needs root or a user namespace, which {} forbids: {}", what, way_out);
    };
    const auto of_setting = [&](std::string_view forbidding, std::string_view allowing) {
        return sentence(forbidding, fmt::format("use sudo, or allow it: sudo sysctl {}", allowing));
    };
    if (settings.max_user_namespaces == 0) {
        return of_setting("user.max_user_namespaces=0", "user.max_user_namespaces=10000");
    }
    if (settings.unprivileged_clone == 0) {
        return of_setting("kernel.unprivileged_userns_clone=0",
                          "kernel.unprivileged_userns_clone=1");
    }
    if (settings.apparmor_restricts == 1) {
        return of_setting("kernel.apparmor_restrict_unprivileged_userns=1",
                          "kernel.apparmor_restrict_unprivileged_userns=0");
    }
    if (settings.seccomp_mode == 2) {
        return sentence("a filter of system calls (seccomp)",
                        "start the container with --cap-add NET_ADMIN --cap-add SYS_ADMIN");
    }
    return sentence(refusal, "use sudo");
}

bool may_make_networks() {
    CapabilitySets sets;
    constexpr std::uint32_t both = net_admin | sys_admin;
    // Those of a file (setcap) would end with this process: ip and tc would not have them.
    return ::geteuid() == 0 && sets.read() && (sets.words[0].effective & both) == both;
}

Descriptor enter_new_user_namespace() {
    const std::string user = std::to_string(::geteuid());
    const std::string group = std::to_string(::getegid());
    if (::unshare(CLONE_NEWUSER) != 0) {
        refuse("unshare", errno);
    }
    // Ubuntu's AppArmor makes the namespace, and takes all capabilities in it: this fails then.
    write_all("/proc/self/uid_map", user + " " + user + " 1");
    // Whoever could leave a group, might get at files that are closed to that group.
    write_all("/proc/self/setgroups", "deny");
    write_all("/proc/self/gid_map", group + " " + group + " 1");
    pass_on_net_admin();
    Descriptor holder(::open("/proc/self/ns/user", O_RDONLY | O_CLOEXEC));
    if (!holder.is_open()) {
        refuse("/proc/self/ns/user", errno);
    }
    return holder;
}

}  // namespace bucketwise
