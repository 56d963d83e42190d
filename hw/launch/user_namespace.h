// An ordinary user's substitute for root: a user namespace, where the kernel lets everybody make
// networks.
//
// The caller keeps its own user and group number in there, rather than becoming root. So a rank
// that enters is who it always was, to its files and to what asks for its user, and loses all
// privileges when it becomes its command. Programs that build the network are no root either; they
// are given CAP_NET_ADMIN, and nothing else, as an ambient capability.
#pragma once

#include <optional>
#include <string>

#include "hw/launch/launcher_descriptor.h"

namespace bucketwise {

// The system's permissions of ordinary users; none: the system has no such setting.
struct UserNamespaceSettings {
    // user.max_user_namespaces
    std::optional<long> max_user_namespaces = std::nullopt;
    // kernel.unprivileged_userns_clone, of Debian
    std::optional<long> unprivileged_clone = std::nullopt;
    // kernel.apparmor_restrict_unprivileged_userns, of Ubuntu
    std::optional<long> apparmor_restricts = std::nullopt;
    // Seccomp of /proc/self/status: 2 for a filter, as containers have
    std::optional<long> seccomp_mode = std::nullopt;
};
UserNamespaceSettings read_user_namespace_settings();

// One sentence, that reads on after "--link-rate ": what is needed, what forbids it (`refusal` if
// no setting does), and the way out.
std::string missing_privileges(const UserNamespaceSettings& settings, const std::string& refusal);

// Whether this process, and the programs that it starts, may make networks without a user
// namespace: root with CAP_NET_ADMIN and CAP_SYS_ADMIN.
bool may_make_networks();

// Moves the calling process, which must have one thread, into a new user namespace, and gives the
// programs that it starts CAP_NET_ADMIN in there. Throws std::runtime_error, "--link-rate " and
// missing_privileges().
Descriptor enter_new_user_namespace();

}  // namespace bucketwise
