#include "hw/gloo/gloo_backend.h"

#include "hw/cpu/cpu_devices.h"
#include "hw/cpu/cpu_kernels.h"
#include "hw/cpu/cpu_rank.h"
#include "hw/gloo/connection.h"
#include "hw/rank/isolated_messages.h"
#include "hw/rank/rank_place.h"
#include "sim/base/error.h"

namespace bucketwise {
namespace {

class GlooRank : public RankConnection {
  public:
    GlooRank(const MeetingPoint& meeting, const BackendRequest& request)
        : connection_(meeting), implementation_(request.implementation) {}

    ControlGroup& control() override { return connection_.control(); }

    [[nodiscard]] std::string gpu() const override { return ""; }

    std::unique_ptr<RankDevice> device(const Scenario& scenario, const Workload& workload,
                                       const SyncSettings& sync) override {
        Communicator& all = connection_.communicator(implementation_);
        const CommunicatorsAmong communicators(
            rank_place(scenario, all.rank(), all.ranks()), all,
            [&](const std::vector<std::int64_t>& ranks) -> Communicator& {
                return connection_.communicator_among(ranks, implementation_);
            });
        return std::make_unique<CpuRank>(scenario, workload, sync, communicators);
    }

    std::unique_ptr<MessageDevice> messages() override {
        return std::make_unique<IsolatedMessages>(connection_.communicator(implementation_));
    }

    std::unique_ptr<TrainingDevice> training() override {
        return cpu_training_device(connection_.communicator(implementation_));
    }

    std::unique_ptr<BatchNormDevice> batch_norm() override {
        return cpu_batch_norm(connection_.communicator(implementation_));
    }

  private:
    GlooConnection connection_;
    AllReduceImplementation implementation_;
};

class GlooBackend : public Backend {
  public:
    [[nodiscard]] std::string_view name() const override { return "gloo"; }

    void check(const BackendRequest& request) const override {
        if (request.share_gpu) {
            throw InputError("--share-gpu", "", "--backend nccl", "--backend gloo");
        }
        if (request.ctas) {
            throw InputError("--ctas", "", "--backend nccl", "--backend gloo");
        }
    }

    void check_scenario(const Scenario& scenario, const std::string& file) const override {
        if (scenario.step.cuda_graph) {
            throw InputError(file, "/step/cuda_graph", "false, or --backend nccl", "true");
        }
        check_replayed(scenario, file);
    }

    [[nodiscard]] Transport transport(const BackendRequest& request,
                                      std::int64_t ranks) const override {
        const bool direct = request.implementation == AllReduceImplementation::direct;
        const bool library = request.implementation == AllReduceImplementation::library;
        return {.backend = "gloo",
                // Gloo's own all-reduce is a ring unless told otherwise.
                .algorithm = direct ? "direct" : "ring",
                .implementation = library ? "library" : "bucketwise",
                .ranks = ranks};
    }

    [[nodiscard]] std::string libraries() const override {
        return gloo_version() + ", " + kernel_libraries();
    }

    [[nodiscard]] std::unique_ptr<RankConnection> connect(
        const MeetingPoint& meeting, const RankIdentity& /*identity*/,
        const BackendRequest& request) const override {
        return std::make_unique<GlooRank>(meeting, request);
    }
};

}  // namespace

const Backend& gloo_backend() {
    static const GlooBackend backend;
    return backend;
}

}  // namespace bucketwise
