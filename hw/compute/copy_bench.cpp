#include "hw/compute/copy_bench.h"

#include <algorithm>

namespace bucketwise {

std::int64_t buckets_beyond_caches(const CopyCase& copy_case) {
    const std::int64_t bytes =
        copy_case.tensors * copy_case.numel *
        (element_size(copy_case.tensor_dtype) + element_size(copy_case.place_dtype)).count;
    return std::clamp<std::int64_t>((std::int64_t{1} << 30U) / std::max<std::int64_t>(bytes, 1), 2,
                                    64);
}

}  // namespace bucketwise
