#include "hw/batch_norm/tensor_pool.h"

#include <algorithm>
#include <utility>

#include "sim/base/invariant.h"

namespace bucketwise {

TensorPool::Tensor::Tensor(TensorPool& pool, std::int64_t bytes)
    : pool_(&pool), bytes_((bytes + block_bytes - 1) / block_bytes * block_bytes) {
    if (bytes_ == 0) {
        return;
    }
    std::vector<std::shared_ptr<std::byte>>& spare = pool.free_[bytes_];
    spare.reserve(spare.size() + 1);  // so that giving back cannot fail
    if (spare.empty()) {
        memory_ = pool.source_(bytes_);
        spare.reserve(spare.size() + 1);
    } else {
        memory_ = std::move(spare.back());
        spare.pop_back();
    }
    pool.live_bytes_ += bytes_;
    pool.peak_bytes_ = std::max(pool.peak_bytes_, pool.live_bytes_);
}

TensorPool::Tensor::~Tensor() {
    if (memory_) {
        pool_->live_bytes_ -= bytes_;
        pool_->free_.at(bytes_).push_back(std::move(memory_));
    }
}

TensorPool::Tensor TensorPool::floats(std::int64_t count) {
    invariant(count >= 0, "a tensor has a size");
    return {*this, count * static_cast<std::int64_t>(sizeof(float))};
}

TensorPool::Tensor TensorPool::doubles(std::int64_t count) {
    invariant(count >= 0, "a tensor has a size");
    return {*this, count * static_cast<std::int64_t>(sizeof(double))};
}

}  // namespace bucketwise
