#include "import/collectives/collective_log.h"

#include <algorithm>
#include <array>
#include <utility>

namespace bucketwise {

LoggedKind logged_kind(std::string_view name) {
    std::string plain;
    for (const char c : name) {
        if (c >= 'A' && c <= 'Z') {
            plain += static_cast<char>(c - 'A' + 'a');
        } else if (c >= 'a' && c <= 'z') {
            plain += c;
        }
    }
    const auto begins = [&](std::string_view with) { return plain.starts_with(with); };
    // A barrier is an all-reduce of nothing; a sparse one reduces by gathering.
    if (begins("allreducebarrier") || begins("allreducesparse")) {
        return LoggedKind::other;
    }
    return begins("allreduce")       ? LoggedKind::all_reduce
           : begins("reducescatter") ? LoggedKind::reduce_scatter
           : begins("allgather")     ? LoggedKind::all_gather
           : begins("broadcast")     ? LoggedKind::broadcast
           : begins("send") || begins("recv") || begins("isend") || begins("irecv")
               ? LoggedKind::transfer
               : LoggedKind::other;
}

std::optional<DType> logged_dtype(std::string_view name) {
    constexpr std::array<std::pair<std::string_view, DType>, 15> dtypes{
        {{"", DType::float32},
         {"Float", DType::float32},
         {"float", DType::float32},
         {"float32", DType::float32},
         {"Half", DType::float16},
         {"c10::Half", DType::float16},
         {"half", DType::float16},
         {"float16", DType::float16},
         {"BFloat16", DType::bfloat16},
         {"c10::BFloat16", DType::bfloat16},
         {"bfloat16", DType::bfloat16},
         {"Double", DType::float64},
         {"double", DType::float64},
         {"float64", DType::float64},
         {"c10::Float", DType::float32}}};
    const auto* const found =
        std::ranges::find(dtypes, name, [](const auto& named) { return named.first; });
    return found == dtypes.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace bucketwise
