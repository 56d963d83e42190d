// Places to type a bucket size: frameworks, each with its own rule (sim/program/framework.h),
// and wrappers, which hand the size on to PyTorch (sim/frameworks/wrapper.h). A scenario may name
// the place it comes from.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "sim/base/names.h"

namespace bucketwise {

enum class SettingPlace : std::uint8_t {
    // Frameworks, in the order of Framework.
    pytorch_ddp,
    megatron_lm,
    megatron_distributed_optimizer,
    deepspeed_zero1,
    deepspeed_zero2,
    horovod,
    // Wrappers.
    accelerate,
    axolotl,
    composer,
    detectron2,
    fairseq,
    lightning,
    mmengine,
    ray_train,
    torchtitan,
    transformers
};

template <>
inline constexpr auto names_of<SettingPlace> =
    names("pytorch_ddp", "megatron_lm", "megatron_distributed_optimizer", "deepspeed_zero1",
          "deepspeed_zero2", "horovod", "accelerate", "axolotl", "composer", "detectron2",
          "fairseq", "lightning", "mmengine", "ray_train", "torchtitan", "transformers");

template <>
inline constexpr std::array other_names_of<SettingPlace>{
    OtherName<SettingPlace>{"pytorch", SettingPlace::pytorch_ddp},
    OtherName<SettingPlace>{"ddp", SettingPlace::pytorch_ddp},
    OtherName<SettingPlace>{"megatron", SettingPlace::megatron_lm},
    OtherName<SettingPlace>{"deepspeed", SettingPlace::deepspeed_zero2},
    OtherName<SettingPlace>{"zero1", SettingPlace::deepspeed_zero1},
    OtherName<SettingPlace>{"zero2", SettingPlace::deepspeed_zero2},
    OtherName<SettingPlace>{"trainer", SettingPlace::transformers},
    OtherName<SettingPlace>{"hf", SettingPlace::transformers},
    OtherName<SettingPlace>{"ray", SettingPlace::ray_train}};

enum class Framework : std::uint8_t {
    pytorch_ddp,
    megatron_lm,                     // DistributedDataParallel: all-reduces
    megatron_distributed_optimizer,  // reduce-scatters, and all-gathers of parameters
    deepspeed_zero1,
    deepspeed_zero2,
    horovod
};

template <>
inline constexpr auto names_of<Framework> = names("pytorch_ddp", "megatron_lm",
                                                  "megatron_distributed_optimizer",
                                                  "deepspeed_zero1", "deepspeed_zero2", "horovod");

// Empty: the place is a wrapper.
constexpr std::optional<Framework> framework_at(SettingPlace place) {
    const auto index = static_cast<std::size_t>(place);
    return index < names_of<Framework>.size() ? std::optional(static_cast<Framework>(place))
                                              : std::nullopt;
}

struct FrameworkVersion {
    std::int32_t major = 0;
    std::int32_t minor = 0;
    std::int32_t patch = 0;
    auto operator<=>(const FrameworkVersion&) const = default;
};

// The first version with the simulated rule. Older ones are refused.
constexpr FrameworkVersion oldest_version(Framework framework) {
    constexpr std::array<FrameworkVersion, names_of<Framework>.size()> oldest{
        {{1, 13, 0}, {0, 12, 0}, {0, 12, 0}, {0, 14, 3}, {0, 14, 3}, {0, 23, 0}}};
    return oldest[static_cast<std::size_t>(framework)];
}

std::string version_text(const FrameworkVersion& version);

// "0.14.3" as three numbers; "0.14" as its last patch. Empty: no version.
std::optional<FrameworkVersion> version_from(std::string_view text);

}  // namespace bucketwise
