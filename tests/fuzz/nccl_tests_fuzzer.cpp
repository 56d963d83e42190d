// Any bytes as a log of nccl-tests, text or JSON: either InputError says what is wrong with them,
// or they give measurements that can be calibrated from.
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "import/nccl_tests/nccl_tests.h"
#include "sim/base/error.h"
#include "tests/fuzz/fuzz.h"

namespace bucketwise {
namespace {

void check(const ImportedNcclTests& imported) {
    require(imported.environment.hosts >= 1);
    require(!imported.collectives.empty());
    for (const CollectiveRecord& record : imported.collectives) {
        require(record.size.count > 0 && record.transport.ranks > 1 && record.round >= 0);
        require(!record.samples_us.empty() && record.samples_us.size() <= 2);
        require(record.issue_us.empty() || record.issue_us.size() == record.samples_us.size());
        for (const double us : record.samples_us) {
            require(us > 0 && us < 1e15);
        }
    }
}

void import_text(std::string_view text, const NcclTestsOptions& options) {
    try {
        const NcclTestsLog log = read_nccl_tests_log(source_of(text, text.size()), "log");
        // Where blocks end says nothing.
        require(read_nccl_tests_log(source_of(text, 3), "log") == log);
        check(import_nccl_tests({log}, options));
    } catch (const InputError&) {
        return;
    }
}

}  // namespace
}  // namespace bucketwise

// libFuzzer knows this function by its name.
// NOLINTNEXTLINE(readability-identifier-naming)
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace bucketwise;
    // libFuzzer speaks of bytes, the importer of characters.
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    import_text(text, {});
    import_text(text, {.ranks = {16}, .ranks_per_node = 8, .dtype = DType::float16});
    return 0;
}
