#include "hw/batch_norm/tensor_pool.h"

#include <utility>

#include "sim/base/invariant.h"

namespace bucketwise {

TensorMemory TensorPool::tensor(std::int64_t count, std::size_t element_bytes) {
    invariant(count >= 0, "a tensor has a size");
    const std::int64_t bytes = count * static_cast<std::int64_t>(element_bytes);
    const std::int64_t whole = (bytes + block_bytes - 1) / block_bytes * block_bytes;
    if (whole == 0) {
        return {};
    }
    std::vector<std::shared_ptr<std::byte>>& spare = free_[whole];
    if (spare.empty()) {
        spare.push_back(source_(whole));
    }
    std::shared_ptr<std::byte> block = std::move(spare.back());
    spare.pop_back();  // whose place stays, so that giving back cannot fail
    std::byte* const start = block.get();
    const auto give_back = [&spare, block = std::move(block)](std::byte*) {
        spare.push_back(block);
    };
    return {std::shared_ptr<std::byte>(start, give_back), whole, count_};
}

}  // namespace bucketwise
