// Shared by the readers of each kind of settings.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "import/settings/typed_settings.h"
#include "sim/base/json_input.h"

namespace bucketwise {

// A sentence about settings for which `holds`.
struct Remark {
    bool holds;
    std::string_view text;
};
void add_remarks(const std::vector<Remark>& remarks, std::vector<std::string>& sentences);

// Sizes that nobody wants were typed in another unit.
void suspect_unit(double value, std::string_view key, bool elements, TypedSettings& settings);

// The value at a key; null where it is missing, or where the place holds no object.
JsonPlace child(const JsonPlace& place, std::string_view key);
bool has(const JsonPlace& place, std::string_view key);

// true, "true", 1 and the like, as command lines and YAML have them; empty: missing or "auto".
std::optional<bool> flag_at(const JsonPlace& place);
bool is_on(const JsonPlace& place);
// A number, or a text that is one; empty: missing, "auto", or left open by a script.
std::optional<double> number_at(const JsonPlace& place);
std::optional<std::int64_t> count_at(const JsonPlace& place);  // 1 or more
std::string text_at(const JsonPlace& place);                   // empty: no text

std::string lowered(std::string_view typed);

// "a.b.C" and "C" alike.
std::string_view last_part(std::string_view dotted);

// bf16, bfloat16, torch.bfloat16, fp16, half, float32 ...; empty: none of these.
std::optional<DType> typed_dtype(std::string_view name);

// Each block is computed again in backward, where `place` says so and nothing else did.
void read_checkpointing(const JsonPlace& place, TypedSettings& settings);

// DeepSpeed with settings of another file; empty: nothing names it.
TypedSettings deepspeed_elsewhere(SettingPlace place, const std::string& file);

// --- the readers ---

// "zero_optimization", with the other keys beside it.
TypedSettings read_deepspeed(const JsonPlace& root);

// The keys of TrainingArguments: from JSON, YAML, a call or a command line.
TypedSettings read_training_arguments(const JsonPlace& arguments, SettingPlace place,
                                      std::optional<bool> compiled);

// The keys of a call of DistributedDataParallel, or of a wrapper that passes them on.
TypedSettings read_ddp(const JsonPlace& arguments, SettingPlace place,
                       std::optional<bool> compiled);

// FSDP's keys, in the spelling of `prefix`: "fsdp_" of Accelerate, "" of TrainingArguments.
TypedSettings read_fsdp(const JsonPlace& arguments, SettingPlace place, bool second_version);
// FSDP of a PyTorch script: FullyShardedDataParallel's strategy by name, or fully_shard's argument.
void set_strategy_of_fsdp(std::string_view name, TypedSettings& settings);

TypedSettings read_accelerate(const JsonPlace& root);
TypedSettings read_torchtitan(const JsonPlace& root);
TypedSettings read_script(const Json& script, const std::string& file);
TypedSettings read_command(const Json& commands, const std::string& file);

}  // namespace bucketwise
