#include "import/replay/changed_step.h"

#include <algorithm>
#include <cmath>

namespace bucketwise {

LinkParameters slowed(LinkParameters link, double factor) {
    for (Duration* launch : {&link.launch, &link.all_gather.launch, &link.reduce_scatter.launch}) {
        *launch = scaled(*launch, factor);
    }
    for_each_segment(link, [factor](Segment& segment) {
        segment.latency = scaled(segment.latency, factor);
        const double rate = static_cast<double>(segment.bandwidth.count) / factor;
        segment.bandwidth = {std::max<std::int64_t>(std::llround(rate), 1)};
    });
    return link;
}

}  // namespace bucketwise
