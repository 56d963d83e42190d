// Reads a bucket size that somebody typed: in DeepSpeed's JSON, Megatron-LM's arguments,
// TrainingArguments as JSON, or a Python script's call of a wrapper or of DistributedDataParallel.
// Reports the settings and suspicious ones among them.
//
// Reads only the call of a script, and only arguments that are numbers, True or False: a script may
// compute anything.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/frameworks/framework.h"
#include "sim/plan/setting_place.h"
#include "sim/plan/strategy.h"

namespace bucketwise {

struct TypedSettings {
    SettingPlace place = SettingPlace::pytorch_ddp;
    FrameworkUse use;             // PyTorch, if the place is a wrapper
    std::optional<double> value;  // in the unit of the framework's rule; nothing: its default
    std::vector<double> list;     // PyTorch's bucket_cap_mb_list, in MiB
    std::optional<std::int64_t> accumulation;  // micro-steps
    // DistributedDataParallel's other arguments.
    std::optional<bool> views;
    std::optional<bool> find_unused_parameters;
    std::optional<bool> compiled;         // by torch.compile
    std::vector<std::string> suspicious;  // a sentence each, without a full stop
};

// Throws InputError, which names `file`, for other files and for impossible values.
TypedSettings read_typed_settings(const std::string& text, const std::string& file);

}  // namespace bucketwise
