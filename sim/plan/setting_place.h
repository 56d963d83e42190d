// Where a bucket size is typed: frameworks, each with a rule of its own
// (sim/frameworks/framework.h), and wrappers that hand it on to one of them
// (sim/frameworks/wrapper.h). A scenario may say which it comes from.
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
    // Frameworks, as Framework has them.
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
    paddle,
    ray_train,
    torchtitan,
    transformers,
    xla
};

template <>
inline constexpr auto names_of<SettingPlace> = names(
    "pytorch_ddp", "megatron_lm", "megatron_distributed_optimizer", "deepspeed_zero1",
    "deepspeed_zero2", "horovod", "accelerate", "axolotl", "composer", "detectron2", "fairseq",
    "lightning", "mmengine", "paddle", "ray_train", "torchtitan", "transformers", "xla");

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

// The framework that a place is; none: a wrapper.
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

std::string version_text(const FrameworkVersion& version);

// The three numbers of "0.14.2"; "0.14" is its last patch. None where it is no version.
std::optional<FrameworkVersion> version_from(std::string_view text);

}  // namespace bucketwise
