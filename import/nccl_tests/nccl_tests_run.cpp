#include "import/nccl_tests/nccl_tests_run.h"

#include <algorithm>

namespace bucketwise {

void add_skipped(std::vector<SkippedLines>& skipped, const std::string& what, std::int64_t line,
                 std::int64_t count) {
    const auto known = std::find_if(skipped.begin(), skipped.end(),
                                    [&](const SkippedLines& s) { return s.what == what; });
    if (known == skipped.end()) {
        skipped.push_back({what, count, line});
    } else {
        known->count += count;
    }
}

}  // namespace bucketwise
