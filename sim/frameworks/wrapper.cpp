#include "sim/frameworks/wrapper.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "sim/base/invariant.h"
#include "sim/plan/cap.h"

namespace bucketwise {
namespace {

constexpr double default_mib = 25;
// No default, and as many bytes as 25: int(mib * 1024 * 1024).
constexpr double as_25 = 25.0000001;

// How a wrapper takes the cap.
struct Rule {
    std::string_view call;        // {} being the arguments
    std::string_view key;         // of the cap
    std::string_view assignment;  // between a key and its value
    std::string_view separator = ", ";
    bool whole_mib = false;      // takes no fractions
    bool drops_default = false;  // 25 is taken for the default, with a first bucket of 1 MiB
    bool takes_others = true;    // DistributedDataParallel's other arguments, by their names
};

Rule rule_for(SettingPlace place) {
    switch (place) {
        case SettingPlace::accelerate:
            return {"Accelerator(kwargs_handlers=[DistributedDataParallelKwargs({})])",
                    "bucket_cap_mb",
                    "=",
                    ", ",
                    false,
                    true};
        case SettingPlace::transformers:
            return {"TrainingArguments({})", "ddp_bucket_cap_mb", "=", ", ", true, true, false};
        case SettingPlace::axolotl:
            return {"{}", "ddp_bucket_cap_mb", ": ", "\n", true, true, false};
        case SettingPlace::lightning:
            return {"Trainer(strategy=DDPStrategy({}))", "bucket_cap_mb", "="};
        case SettingPlace::ray_train:
            return {"prepare_model(model, parallel_strategy_kwargs={{{}}})", "\"bucket_cap_mb\"",
                    ": "};
        case SettingPlace::detectron2:
            return {"create_ddp_model(model, {})", "bucket_cap_mb", "="};
        case SettingPlace::mmengine:
            return {"model_wrapper_cfg=dict(type=\"MMDistributedDataParallel\", {})",
                    "bucket_cap_mb", "="};
        case SettingPlace::fairseq:
            return {"fairseq-train {}", "--bucket-cap-mb", " ", " ", true, false, false};
        case SettingPlace::composer:
            return {
                "DistributedDataParallel.__init__ = functools.partialmethod("
                "DistributedDataParallel.__init__, {})",
                "bucket_cap_mb", "="};
        case SettingPlace::paddle:
            return {"paddle.DataParallel(model, {})",
                    "comm_buffer_size",
                    "=",
                    ", ",
                    true,
                    false,
                    false};
        case SettingPlace::xla:
            return {"XLA_FLAGS={}",
                    "--xla_gpu_all_reduce_combine_threshold_bytes",
                    "=",
                    " ",
                    false,
                    false,
                    false};
        default:
            return {};
    }
}

// A cap of the same buckets that the wrapper takes: the advised one where it does, else the
// roundest in whole MiB or, where there is none, not.
double cap_mib(const Rule& rule, double advised, const CapRange& same) {
    const double lowest = to_mib(same.lowest);
    const double highest = same.highest ? to_mib(*same.highest) : advised + 2 * default_mib;
    const auto is_taken = [&](double mib) {
        return !(rule.drops_default && mib == default_mib) &&
               (!rule.whole_mib || mib == std::floor(mib)) && lowest <= mib && mib <= highest;
    };
    if (is_taken(advised)) {
        return advised;
    }
    for (const double whole :
         {std::ceil(lowest), std::floor(advised) + 1, std::ceil(advised) - 1}) {
        if (whole > 0 && is_taken(whole)) {
            return whole;
        }
    }
    if (!(rule.drops_default && advised == default_mib)) {
        return advised;
    }
    return as_25;
}

std::string argument(const Rule& rule, std::string_view key, std::string_view value) {
    return fmt::format("{}{}{}", key, rule.assignment, value);
}

std::string mib_text(double mib) {
    return fmt::format("{}", mib);
}

void add_argument(const Rule& rule, std::string_view key, std::string_view value,
                  std::string& arguments) {
    arguments += arguments.empty() ? "" : rule.separator;
    arguments += argument(rule, key, value);
}

// DistributedDataParallel's other arguments that the simulated step needs.
void add_others(SettingPlace place, const Rule& rule, const SyncRequest& request,
                std::string& arguments, std::vector<std::string>& notes) {
    const bool quoted = place == SettingPlace::ray_train;
    if (rule.takes_others) {
        const auto add = [&](bool is_set, std::string_view key) {
            if (is_set) {
                add_argument(rule, quoted ? fmt::format("\"{}\"", key) : std::string(key), "True",
                             arguments);
            }
        };
        add(request.views, "gradient_as_bucket_view");
        add(request.find_unused_parameters, "find_unused_parameters");
        add(request.static_graph, "static_graph");
        add(request.batched_grad_copy && place != SettingPlace::accelerate, "batched_grad_copy");
        if (request.batched_grad_copy && place == SettingPlace::accelerate) {
            notes.emplace_back("batched_grad_copy is not to be had there");
        }
        if (place == SettingPlace::mmengine) {
            notes.emplace_back(
                "with model_wrapper_cfg broadcast_buffers is True, without it False: say which");
        }
        return;
    }
    if (place == SettingPlace::transformers || place == SettingPlace::axolotl) {
        if (request.views) {
            notes.emplace_back("views are not to be had there (gradient_as_bucket_view)");
        }
        // Of a PreTrainedModel whose gradients are not checkpointed, Trainer has it True by
        // default.
        const bool unused = request.find_unused_parameters;
        const bool yaml = place == SettingPlace::axolotl;
        add_argument(rule, "ddp_find_unused_parameters",
                     unused ? (yaml ? "true" : "True") : (yaml ? "false" : "False"), arguments);
        if (request.static_graph && !yaml) {
            add_argument(rule, "ddp_static_graph", "True", arguments);
        }
    }
    if (place == SettingPlace::fairseq && request.find_unused_parameters) {
        arguments += " --find-unused-parameters";
    }
    if (place == SettingPlace::paddle && request.find_unused_parameters) {
        add_argument(rule, "find_unused_parameters", "True", arguments);
    }
}

void add_first_bucket(SettingPlace place, const Rule& rule, const SyncRequest& request, double mib,
                      std::string& arguments, std::vector<std::string>& notes) {
    if (place == SettingPlace::paddle) {
        const double first = request.first_bucket ? to_mib(*request.first_bucket) : mib;
        add_argument(rule, "last_comm_buffer_size", mib_text(std::max(1.0, std::round(first))),
                     arguments);
        return;
    }
    if (!request.explicit_cap_sets_first || !request.first_bucket ||
        typed_mib(*request.first_bucket) == mib || place == SettingPlace::xla) {
        return;
    }
    notes.push_back(fmt::format("the first bucket of {} MiB takes {}",
                                typed_mib(*request.first_bucket),
                                rule.takes_others && place != SettingPlace::accelerate
                                    ? fmt::format("bucket_cap_mb_list=[{}, {}] in its place",
                                                  typed_mib(*request.first_bucket), mib)
                                    : "DistributedDataParallel by hand"));
}

}  // namespace

WrapperSetting wrapper_setting(SettingPlace place, const SyncRequest& request,
                               const FrameworkSetting& pytorch) {
    invariant(!framework_at(place), "a wrapper");
    WrapperSetting setting{.place = place};
    if (place == SettingPlace::torchtitan) {
        setting.notes.emplace_back(
            "no bucket size: replicate() reduces what each wrapped module holds in one; wrap more "
            "layers together, or each on its own");
        return setting;
    }
    if (!pytorch.best.value) {
        setting.notes.emplace_back("nothing: the default is as good as any");
        return setting;
    }
    const Rule rule = rule_for(place);
    const double advised = *pytorch.best.value;
    const double mib = cap_mib(rule, advised, pytorch.same_plan);
    setting.mib = mib;
    std::string arguments;
    add_argument(
        rule, rule.key,
        place == SettingPlace::xla
            ? fmt::format("{}", static_cast<std::int64_t>(mib * static_cast<double>(bytes_per_mib)))
            : mib_text(mib),
        arguments);
    add_first_bucket(place, rule, request, mib, arguments, setting.notes);
    add_others(place, rule, request, arguments, setting.notes);
    setting.typed = fmt::format(fmt::runtime(rule.call), arguments);
    if (rule.drops_default && mib != advised) {
        setting.notes.push_back(fmt::format(
            "{} gives the same buckets; 25 would be dropped as the default, whose first bucket is "
            "1 MiB",
            mib));
    }
    if (rule.whole_mib && mib != std::floor(mib)) {
        setting.notes.emplace_back(
            place == SettingPlace::transformers
                ? "in a script or a JSON file; its command line takes whole numbers only"
                : "it takes whole numbers only, and none gives these buckets");
    }
    switch (place) {
        case SettingPlace::composer:
            setting.notes.emplace_back(
                "no argument of Composer's: before its Trainer is made, in the script");
            break;
        case SettingPlace::xla:
            setting.notes.emplace_back(
                "an upper bound of what is combined; when it goes out, XLA's scheduler decides, "
                "which is not simulated");
            break;
        case SettingPlace::paddle:
            setting.notes.emplace_back("its own reducer, by PyTorch's rule");
            break;
        default:
            break;
    }
    return setting;
}

}  // namespace bucketwise
