#include "import/collectives/collective_log.h"

#include <array>
#include <utility>

#include "import/source/plain_text.h"

namespace bucketwise {

LoggedKind logged_kind(std::string_view name) {
    const std::string plain = letters_of(name);
    // A barrier is an all-reduce of nothing; a sparse all-reduce gathers.
    constexpr std::array<std::pair<std::string_view, LoggedKind>, 10> beginnings{
        {{"allreducebarrier", LoggedKind::other},
         {"allreducesparse", LoggedKind::other},
         {"allreduce", LoggedKind::all_reduce},
         {"reducescatter", LoggedKind::reduce_scatter},
         {"allgather", LoggedKind::all_gather},
         {"broadcast", LoggedKind::broadcast},
         {"send", LoggedKind::transfer},
         {"recv", LoggedKind::transfer},
         {"isend", LoggedKind::transfer},
         {"irecv", LoggedKind::transfer}}};
    for (const auto& [beginning, kind] : beginnings) {
        if (plain.starts_with(beginning)) {
            return kind;
        }
    }
    return LoggedKind::other;
}

}  // namespace bucketwise
