#include "hw/gloo/meeting/group.h"

#include <algorithm>
#include <exception>

namespace bucketwise {

GlooGroup::GlooGroup(std::shared_ptr<gloo::Context> context, std::chrono::milliseconds deadline)
    : context_(std::move(context)), deadline_(deadline) {}

std::unique_ptr<gloo::transport::UnboundBuffer> GlooGroup::buffer(void* data,
                                                                  std::int64_t size) const {
    return context_->createUnboundBuffer(data, static_cast<std::size_t>(size));
}

void GlooGroup::close() noexcept {
    try {
        if (context_) {
            context_->closeConnections();
        }
    } catch (const std::exception&) {
        // There is a failure to report already.
    }
}

std::chrono::milliseconds CollectiveDeadline::left() const {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(end_ - std::chrono::steady_clock::now());
    return std::max(left, std::chrono::milliseconds{1});
}

}  // namespace bucketwise
