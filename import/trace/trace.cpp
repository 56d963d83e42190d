#include "import/trace/trace.h"

#include <algorithm>

namespace bucketwise {

const std::string* ProfilerTrace::operation_of(std::int64_t external_id) const {
    const auto found =
        std::ranges::lower_bound(operation_names, external_id, {}, &OperationName::external_id);
    return external_id < 0 || found == operation_names.end() || found->external_id != external_id
               ? nullptr
               : &names[static_cast<std::size_t>(found->name)];
}

}  // namespace bucketwise
