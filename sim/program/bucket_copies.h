// The copies that a bucket needs: who divides by the number of ranks, and the bytes of a copy in.
#pragma once

#include <cstdint>

#include "sim/base/dtype.h"
#include "sim/base/units.h"
#include "sim/plan/plan.h"
#include "sim/plan/strategy.h"
#include "sim/program/program.h"
#include "sim/workload/workload.h"

namespace bucketwise {

// A gradient's copy into its bucket makes means, if nothing after it does.
inline Copying copying_in(const SyncSettings& sync, DType dtype) {
    return sync.framework.adds_into_bucket ? Copying::adding
           : sync.framework.scales_at_launch || hook_casts(sync, dtype) ||
                   sync.framework.copies == StreamCopies::share
               ? Copying::plain
               : Copying::averaging;
}

// Whether nothing divides a bucket before it is reduced.
inline bool is_undivided(const SyncSettings& sync, const Bucket& bucket) {
    if (sync.framework.copies != StreamCopies::none) {
        return !bucket.pieces.empty() ||
               (sync.framework.copies == StreamCopies::fusion && bucket.in_place);
    }
    return !sync.framework.scales_at_launch && !hook_casts(sync, bucket.dtype) &&
           (!sync.copies_in || sync.framework.adds_into_bucket || bucket.in_place);
}

// A copy to another dtype reads one and writes the other; adding reads the target, too.
inline Bytes payload_in(const SyncSettings& sync, const Gradient& gradient) {
    const Bytes size = gradient.size();
    const Bytes held =
        size_as(size, gradient.dtype, sync.framework.reduced_as.value_or(gradient.dtype));
    const std::int64_t passes_held = sync.framework.adds_into_bucket ? 2 : 1;
    return {(size + passes_held * held).count / 2};
}

// The copies on the communication stream around a collective of a bucket. `is_last`: of its pieces.
inline void set_stream_copies(const SyncSettings& sync, const Bucket& bucket, bool is_last,
                              Collective& sent) {
    if (sync.framework.copies == StreamCopies::share) {
        if (bucket.pieces.empty()) {
            sent.before = {CopyRoute::within_bucket, Copying::averaging};
        }
        sent.after.route = is_last ? CopyRoute::bucket_to_share : CopyRoute::none;
    } else if (sync.framework.copies == StreamCopies::fusion && !bucket.in_place) {
        sent.before = {CopyRoute::gradients_to_bucket, Copying::averaging};
        sent.after = {CopyRoute::bucket_to_gradients};
    }
}

}  // namespace bucketwise
