#include "hw/nccl/nccl_backend.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <array>
#include <filesystem>
#include <string_view>
#include <system_error>

#include <fmt/format.h>

#include "hw/gloo/connection.h"
#include "hw/gpu/matrix_products.h"
#include "hw/gpu/runtime/cublas_library.h"
#include "hw/gpu/runtime/gpu_check.h"
#include "hw/gpu/runtime/gpu_choice.h"
#include "hw/gpu/runtime/opened_library.h"
#include "hw/nccl/gpu_devices.h"
#include "hw/nccl/gpu_messages.h"
#include "hw/nccl/gpu_rank.h"
#include "hw/nccl/nccl_communicator.h"
#include "hw/nccl/nccl_library.h"
#include "hw/rank/rank_place.h"
#include "sim/base/error.h"

namespace bucketwise {

namespace fs = std::filesystem;

namespace {

// CUDA counts 1000 major + 10 minor.
std::string cuda_version() {
    int version = 0;
    return cudaRuntimeGetVersion(&version) != cudaSuccess
               ? "CUDA runtime of unknown version"
               : fmt::format("CUDA runtime {}.{}", version / 1000, version % 1000 / 10);
}

// NCCL counts 10000 major + 100 minor + patch. Throws LibraryError if there is none.
std::string nccl_version() {
    int version = 0;
    return nccl().ncclGetVersion(&version) != ncclSuccess
               ? "NCCL of unknown version"
               : fmt::format("NCCL {}.{}.{}", version / 10000, version % 10000 / 100,
                             version % 100);
}

// Sets what NCCL reads from the environment, then takes the GPU: NCCL and CUDA look once.
int prepared_gpu(const MeetingPoint& meeting, const RankIdentity& identity,
                 const BackendRequest& request) {
    if (request.share_gpu) {
        apply_environment(share_gpu_environment(identity.rank, meeting.interface));
    } else if (!meeting.interface.empty()) {
        apply_environment({{"NCCL_SOCKET_IFNAME", meeting.interface}});
    }
    // The GPU's default of 8 queues is fewer than the streams of several communicators: streams
    // that share one would wait for each other.
    apply_environment({{"CUDA_DEVICE_MAX_CONNECTIONS", "32"}});
    const int gpu = gpu_for(identity, visible_gpus(), request.share_gpu);
    check_gpu(cudaSetDevice(gpu), "cudaSetDevice");
    return gpu;
}

std::optional<std::int64_t> ctas_of(const BackendRequest& request) {
    if (request.ctas) {
        return request.ctas;
    }
    return request.share_gpu ? std::optional(share_gpu_ctas) : std::nullopt;
}

class NcclRank : public RankConnection {
  public:
    NcclRank(const MeetingPoint& meeting, const RankIdentity& identity,
             const BackendRequest& request)
        : gpu_(prepared_gpu(meeting, identity, request)),
          connection_(meeting),
          communicators_(checked_control(request), meeting.deadline, ctas_of(request)) {}

    ControlGroup& control() override { return connection_.control(); }

    [[nodiscard]] std::string gpu() const override { return describe_gpu(gpu_); }

    std::unique_ptr<RankDevice> device(const Scenario& scenario, const Workload& workload,
                                       const SyncSettings& sync) override {
        return std::make_unique<GpuRank>(scenario, workload, sync, communicators_);
    }

    std::unique_ptr<MessageDevice> messages() override {
        return std::make_unique<GpuMessages>(communicators_);
    }

    std::unique_ptr<TrainingDevice> training() override {
        return gpu_training_device(communicators_);
    }

    std::unique_ptr<BatchNormDevice> batch_norm() override {
        return gpu_batch_norm(communicators_);
    }

  private:
    // NCCL would refuse ranks that share a GPU too, and say less.
    ControlGroup& checked_control(const BackendRequest& request) {
        if (!request.share_gpu) {
            check_gpus_differ(connection_.control(), gpu_fingerprint(gpu_));
        }
        return connection_.control();
    }

    int gpu_;
    GlooConnection connection_;
    Communicators communicators_;
};

class NcclBackend : public Backend {
  public:
    [[nodiscard]] std::string_view name() const override { return "nccl"; }

    void check(const BackendRequest& request) const override {
        if (request.implementation != AllReduceImplementation::library) {
            throw InputError("--backend", "", "gloo, as NCCL is not asked for other all-reduces",
                             fmt::format("nccl and {}", name_of(request.implementation)));
        }
        struct Refused {
            const char* name;
            const char* why;
        };
        constexpr const char* ctas = "none, as it would override --ctas and --contention-ctas";
        constexpr const char* arithmetic = "none, as it would override the scenario's arithmetic";
        constexpr std::array<Refused, 9> variables{{
            {"NCCL_MIN_CTAS", ctas},
            {"NCCL_MAX_CTAS", ctas},
            {"NCCL_MIN_NCHANNELS", ctas},
            {"NCCL_MAX_NCHANNELS", ctas},
            {"NCCL_MIN_NRINGS", ctas},
            {"NCCL_MAX_NRINGS", ctas},
            {"NVIDIA_TF32_OVERRIDE", arithmetic},
            {"CUBLAS_EMULATE_SINGLE_PRECISION", arithmetic},
            {"CUDA_LAUNCH_BLOCKING", "none, as nothing could be launched ahead of the GPU"},
        }};
        for (const auto& [name, why] : variables) {
            const auto value = environment_variable(name);
            if (value && !(name == std::string_view("CUDA_LAUNCH_BLOCKING") && *value == "0")) {
                throw InputError("environment", "/" + std::string(name), why, *value);
            }
        }
        try {
            nccl();
            cublas();
        } catch (const LibraryError& error) {
            throw InputError("--backend", "", fmt::format("gloo, as {}", error.what()), "\"nccl\"");
        }
    }

    void check_scenario(const Scenario& scenario, const std::string& file) const override {
        check_replayed(scenario, file);
        if (is_megatron(use_of(scenario.sync))) {
            throw InputError(file, "/sync/strategy", "one that GPUs can replay, or --backend gloo",
                             std::string(name_of(scenario.sync.strategy)));
        }
    }

    // NCCL chooses among its algorithms by size; what is fitted to it is a ring's cost.
    [[nodiscard]] Transport transport(const BackendRequest& request,
                                      std::int64_t ranks) const override {
        return {.backend = "nccl",
                .algorithm = "ring",
                .implementation = "library",
                .ranks = ranks,
                .shared_gpu = request.share_gpu,
                .ctas = ctas_of(request)};
    }

    [[nodiscard]] std::string libraries() const override {
        return fmt::format("{}, {}, {}, {}", nccl_version(), cublas_version(), cuda_version(),
                           gloo_version());
    }

    [[nodiscard]] std::unique_ptr<RankConnection> connect(
        const MeetingPoint& meeting, const RankIdentity& identity,
        const BackendRequest& request) const override {
        return std::make_unique<NcclRank>(meeting, identity, request);
    }
};

}  // namespace

// Not cuBLAS, which takes a hundred times longer to open than NCCL.
std::string gpu_libraries() try {
    return fmt::format("{}, {}", cuda_version(), nccl_version());
} catch (const LibraryError& error) {
    return fmt::format("{}, {}", cuda_version(), error.what());
}

std::string nccl_file() try {
    Dl_info found{};
    if (::dladdr(reinterpret_cast<const void*>(nccl().ncclGetVersion), &found) == 0) {
        return "";
    }
    std::error_code error;
    const fs::path file = fs::canonical(found.dli_fname, error);
    return error ? found.dli_fname : file.string();
} catch (const LibraryError&) {
    return "";
}

const Backend& nccl_backend() {
    static const NcclBackend backend;
    return backend;
}

}  // namespace bucketwise
