#include "import/settings/settings_file.h"

#include <fmt/format.h>

#include "import/settings/reading.h"
#include "sim/base/error.h"

namespace bucketwise {
namespace {

// axolotl's YAML has the keys of TrainingArguments, and its own.
TypedSettings read_axolotl(const JsonPlace& root) {
    TypedSettings settings = read_training_arguments(root, SettingPlace::axolotl, std::nullopt);
    settings.batches.micro = count_at(child(root, "micro_batch_size"));
    return settings;
}

TypedSettings read_document(const JsonPlace& root) {
    if (has(root, "zero_optimization")) {
        return read_deepspeed(root);
    }
    if (has(root, "distributed_type")) {
        return read_accelerate(root);
    }
    if (has(root, "parallelism") || has(child(root, "model"), "flavor") ||
        has(child(root, "model"), "converters")) {
        return read_torchtitan(root);
    }
    if (has(root, "base_model")) {
        return read_axolotl(root);
    }
    for (const char* key :
         {"ddp_bucket_cap_mb", "ddp_find_unused_parameters", "output_dir",
          "per_device_train_batch_size", "gradient_checkpointing", "fsdp", "deepspeed"}) {
        if (has(root, key)) {
            return read_training_arguments(root, SettingPlace::transformers, std::nullopt);
        }
    }
    throw InputError(root.file, "",
                     "zero_optimization, as DeepSpeed has it, TrainingArguments, or the settings "
                     "of Accelerate, axolotl or torchtitan",
                     "neither");
}

// Sets what a bucket size given beside the file decides.
void set_value(double value, const std::string& file, TypedSettings& settings) {
    if (settings.sharding || !settings.not_simulated.empty()) {
        throw InputError("--value", "", "settings with a bucket size",
                         fmt::format("{}, which has none", file));
    }
    settings.value = value;
    std::erase_if(settings.left_out, [](const std::string& sentence) {
        return sentence.find("--value") != std::string::npos;
    });
}

void add_parallel(TypedSettings& settings) {
    const ModelParallel& parallel = settings.parallel;
    if (parallel.all() == 1) {
        return;
    }
    std::string ways;
    for (const auto& [name, ranks] :
         {std::pair("tensor", parallel.tensor), std::pair("pipeline", parallel.pipeline),
          std::pair("context", parallel.context)}) {
        ways += ranks == 1 ? "" : fmt::format("{}{} {}", ways.empty() ? "" : ", ", name, ranks);
    }
    settings.notes.push_back(
        parallel.of_model() == 1
            ? fmt::format("model parallelism ({}): all ranks share each gradient", ways)
            : fmt::format("model parallelism ({}): a rank holds about 1/{} of the model, and each "
                          "gradient is reduced among 1/{} of the ranks",
                          ways, parallel.of_model(), parallel.of_model()));
}

}  // namespace

TypedSettings read_typed_settings(const Json& source, const std::string& file,
                                  std::optional<double> value) {
    TypedSettings settings;
    if (const auto script = source.find("script"); script != source.end()) {
        settings = read_script(*script, file);
    } else if (const auto command = source.find("command"); command != source.end()) {
        settings = read_command(*command, file);
    } else {
        settings = read_document({&source.at("document"), file, ""});
    }
    if (value) {
        set_value(*value, file, settings);
    }
    add_parallel(settings);
    return settings;
}

}  // namespace bucketwise
