// A file or command line in which somebody has typed a bucket size: DeepSpeed's JSON, Megatron-LM's
// arguments, TrainingArguments as JSON, or a Python script's call of a wrapper or of
// DistributedDataParallel. What it asks for, and what in it is suspicious.
//
// Of a script only the call is looked at, and of that only arguments written as numbers, True and
// False: a script may compute anything.
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
    FrameworkUse use;             // of PyTorch, where the place is a wrapper
    std::optional<double> value;  // in what the framework's rule counts; none: its default
    std::vector<double> list;     // PyTorch's bucket_cap_mb_list, in MiB
    std::optional<std::int64_t> accumulation;  // micro-steps; none: not said
    // DistributedDataParallel's other arguments; none: not said there.
    std::optional<bool> views;
    std::optional<bool> find_unused_parameters;
    std::optional<bool> compiled;         // by torch.compile
    std::vector<std::string> suspicious;  // a sentence each, without a full stop
};

// Throws InputError, which names `file`, where none of these is found, or a value is none.
TypedSettings read_typed_settings(const std::string& text, const std::string& file);

}  // namespace bucketwise
