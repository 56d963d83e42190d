#include <string>

#include "hw/nccl/nccl_backend.h"
#include "sim/base/error.h"
#include "sim/base/invariant.h"

namespace bucketwise {
namespace {

class NoNcclBackend : public Backend {
  public:
    [[nodiscard]] std::string_view name() const override { return "nccl"; }

    void check(const BackendRequest& /*request*/) const override {
        throw InputError("--backend", "",
                         "gloo, as this bucketwise was built without " BUCKETWISE_NCCL_LACKS,
                         "\"nccl\"");
    }

    void check_scenario(const Scenario& /*scenario*/, const std::string& /*file*/) const override {
        invariant(false, "a backend that refuses every request gets no scenario");
    }

    [[nodiscard]] Transport transport(const BackendRequest& /*request*/,
                                      std::int64_t ranks) const override {
        return {
            .backend = "nccl", .algorithm = "ring", .implementation = "library", .ranks = ranks};
    }

    [[nodiscard]] std::string libraries() const override { return "no NCCL"; }

    [[nodiscard]] std::unique_ptr<RankConnection> connect(
        const MeetingPoint& /*meeting*/, const RankIdentity& /*identity*/,
        const BackendRequest& request) const override {
        check(request);
        return nullptr;
    }
};

}  // namespace

std::string gpu_libraries() {
    return "built without CUDA and NCCL (preset cuda builds with them)";
}

std::string nccl_file() {
    return "";
}

const Backend& nccl_backend() {
    static const NoNcclBackend backend;
    return backend;
}

}  // namespace bucketwise
