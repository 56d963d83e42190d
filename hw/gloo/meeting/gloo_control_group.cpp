#include "hw/gloo/meeting/gloo_control_group.h"

#include <gloo/barrier.h>
#include <gloo/gather.h>

namespace bucketwise {

void GlooControlGroup::barrier() {
    if (ranks() == 1) {
        return;
    }
    gloo::BarrierOptions options(group_.context());
    group_.collective("barrier", options, gloo::barrier);
}

void GlooControlGroup::broadcast_from_first(std::span<std::int64_t> values) {
    group_.broadcast_from_first(values.data(), std::ssize(values));
}

std::vector<double> GlooControlGroup::gather_to_first(std::span<const double> values) {
    std::vector<double> own(values.begin(), values.end());  // Gloo asks for memory it may write
    if (ranks() == 1 || values.empty()) {
        return own;
    }
    std::vector<double> all(rank() == 0 ? values.size() * static_cast<std::size_t>(ranks()) : 0);
    gloo::GatherOptions options(group_.context());
    options.setInput(own.data(), own.size());
    if (rank() == 0) {
        options.setOutput(all.data(), all.size());
    }
    options.setRoot(0);
    group_.collective("gather", options, gloo::gather);
    return all;
}

}  // namespace bucketwise
