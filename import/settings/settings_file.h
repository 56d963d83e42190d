// Reads training settings that somebody typed. Reports suspicious settings, and what was not
// understood.
//
// A file comes as JSON from settings_to_json.py: {"document": ...} of DeepSpeed, TrainingArguments,
// Accelerate, axolotl, LLaMA-Factory, GPT-NeoX or torchtitan; {"script": calls} of Python;
// {"command": words} of a shell script. One object per source, told apart by its only key.
#pragma once

#include <optional>
#include <string>

#include "import/settings/typed_settings.h"
#include "sim/base/json.h"

namespace bucketwise {

// Throws InputError, which names `file`, for other files and for impossible values. `value`
// replaces a bucket size that the file leaves open, in the framework's unit.
TypedSettings read_typed_settings(const Json& source, const std::string& file,
                                  std::optional<double> value = {});

}  // namespace bucketwise
