#include "sim/engine/timeline.h"

#include "sim/base/hash.h"

namespace bucketwise {

std::uint64_t hash_of(const Timeline& timeline) {
    FnvHash hash;
    for (const Span& span : timeline.spans) {
        hash.add(span.start.count());
        hash.add(span.end.count());
        hash.add(std::int64_t{span.rank});
        hash.add(std::int64_t{span.subject});
        hash.add(static_cast<std::int64_t>(span.track));
    }
    return hash.value();
}

}  // namespace bucketwise
