#include "sim/optimum/greedy_merge.h"

#include <algorithm>
#include <cstddef>

namespace bucketwise {

Cuts greedy_merge(const GradientLine& line, const std::function<Duration(std::size_t)>& ready,
                  const std::function<Duration(std::size_t, std::size_t)>& cost) {
    Cuts cuts;
    Duration network_free{0};
    std::size_t begin = 0;
    for (std::size_t end = 1; end < line.size(); ++end) {
        const Duration starts = std::max(network_free, ready(end));
        const bool may_merge = end + 1 <= line.longest_end(begin);
        if (may_merge) {
            const Duration saved = cost(begin, end) + cost(end, end + 1) - cost(begin, end + 1);
            if (ready(end + 1) < starts + saved) {
                continue;
            }
        }
        network_free = starts + cost(begin, end);
        cuts.push_back(end);
        begin = end;
    }
    cuts.push_back(line.size());
    return cuts;
}

}  // namespace bucketwise
