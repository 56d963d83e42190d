// What moving gradients into a bucket and out of it costs, beside a plain copy of as many bytes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "sim/base/dtype.h"
#include "sim/base/interface.h"
#include "sim/base/names.h"
#include "sim/base/units.h"

namespace bucketwise {

// A bucket of equal gradients.
struct CopyCase {
    std::int64_t tensors = 1;
    std::int64_t numel = 1;  // of each
    DType tensor_dtype = DType::float32;
    DType place_dtype = DType::float32;  // in the bucket; another one is a hook's cast
    bool operator==(const CopyCase&) const = default;
};

enum class CopyWay : std::uint8_t {
    plain,       // of the bucket's bytes, by the library's own copy
    pack,        // all gradients into the bucket, scaled, in one launch
    unpack,      // and back
    one_by_one,  // into the bucket, a launch for each
};

template <>
inline constexpr auto names_of<CopyWay> = names("plain copy", "pack", "unpack", "one by one");

struct CopyTimes {
    CopyWay way = CopyWay::plain;
    std::int64_t bytes_moved = 0;  // read + written
    std::vector<Duration> samples;
    bool operator==(const CopyTimes&) const = default;
};

class CopyBench : public Interface {
  public:
    // Every way once in each round, after one that warms up. Goes over so many buckets in turn that
    // none stays in a cache. Throws std::runtime_error if what was packed is wrong.
    virtual std::vector<CopyTimes> run(const CopyCase& copy_case, std::int64_t rounds) = 0;
};

// How many buckets hold a GiB, 2 to 64.
inline std::int64_t buckets_beyond_caches(const CopyCase& copy_case) {
    const std::int64_t bytes =
        copy_case.tensors * copy_case.numel *
        (element_size(copy_case.tensor_dtype) + element_size(copy_case.place_dtype)).count;
    return std::clamp<std::int64_t>((std::int64_t{1} << 30U) / std::max<std::int64_t>(bytes, 1), 2,
                                    64);
}

}  // namespace bucketwise
