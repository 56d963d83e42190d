// The text to type in wrappers: in their own spelling, with their traps handled. Versions, and how
// each row was checked: docs/frameworks.md.
#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "sim/base/invariant.h"
#include "sim/frameworks/framework_advice.h"
#include "sim/plan/cap.h"

namespace bucketwise {
namespace {

constexpr double default_mib = 25;
// Not the default, but equally many bytes: int(mib * 1024 * 1024).
constexpr double as_25 = 25.0000001;

struct Wrapper {
    SettingPlace place;
    std::string_view call;  // {}: the arguments
    std::string_view key;   // of the cap
    std::string_view assignment = "=";
    std::string_view separator = ", ";
    std::string_view quote = {};
    bool whole_mib = false;             // takes no fractions
    bool drops_default = false;         // 25 is taken for the default, with a first bucket of 1 MiB
    bool passes_ddp_arguments = false;  // by DistributedDataParallel's own names
    // Else the spelling of find_unused_parameters, of its opposite, and of static_graph.
    std::string_view find_unused = {};
    std::string_view find_used = {};
    std::string_view static_graph = {};
    std::string_view note = {};
};
constexpr std::array wrappers{
    Wrapper{.place = SettingPlace::accelerate,
            .call = "Accelerator(kwargs_handlers=[DistributedDataParallelKwargs({})])",
            .key = "bucket_cap_mb",
            .drops_default = true,
            .passes_ddp_arguments = true},
    // Trainer looks for unused parameters of a PreTrainedModel without gradient checkpointing by
    // default.
    Wrapper{.place = SettingPlace::transformers,
            .call = "TrainingArguments({})",
            .key = "ddp_bucket_cap_mb",
            .whole_mib = true,
            .drops_default = true,
            .find_unused = "ddp_find_unused_parameters=True",
            .find_used = "ddp_find_unused_parameters=False",
            .static_graph = "ddp_static_graph=True"},
    Wrapper{.place = SettingPlace::axolotl,
            .call = "{}",
            .key = "ddp_bucket_cap_mb",
            .assignment = ": ",
            .separator = "\n",
            .whole_mib = true,
            .drops_default = true,
            .find_unused = "ddp_find_unused_parameters: true",
            .find_used = "ddp_find_unused_parameters: false"},
    Wrapper{.place = SettingPlace::lightning,
            .call = "Trainer(strategy=DDPStrategy({}))",
            .key = "bucket_cap_mb",
            .passes_ddp_arguments = true},
    Wrapper{.place = SettingPlace::ray_train,
            .call = "prepare_model(model, parallel_strategy_kwargs={{{}}})",
            .key = "bucket_cap_mb",
            .assignment = ": ",
            .quote = "\"",
            .passes_ddp_arguments = true},
    Wrapper{.place = SettingPlace::detectron2,
            .call = "create_ddp_model(model, {})",
            .key = "bucket_cap_mb",
            .passes_ddp_arguments = true},
    Wrapper{.place = SettingPlace::mmengine,
            .call = "model_wrapper_cfg=dict(type=\"MMDistributedDataParallel\", {})",
            .key = "bucket_cap_mb",
            .passes_ddp_arguments = true,
            .note = "broadcast_buffers is True with model_wrapper_cfg and False without it: say "
                    "which"},
    Wrapper{.place = SettingPlace::fairseq,
            .call = "fairseq-train {}",
            .key = "--bucket-cap-mb",
            .assignment = " ",
            .separator = " ",
            .whole_mib = true,
            .find_unused = "--find-unused-parameters"},
    Wrapper{.place = SettingPlace::composer,
            .call = "DistributedDataParallel.__init__ = functools.partialmethod("
                    "DistributedDataParallel.__init__, {})",
            .key = "bucket_cap_mb",
            .passes_ddp_arguments = true,
            .note = "no argument of Composer's: before its Trainer is made, in the script"}};

// A cap of the same buckets that the wrapper accepts: the advised one if possible, else the
// roundest in whole MiB, else one in fractions.
double cap_mib(const Wrapper& wrapper, double advised, const CapRange& same) {
    const double lowest = to_mib(same.lowest);
    const double highest = same.highest ? to_mib(*same.highest) : advised + 2 * default_mib;
    const bool dropped = wrapper.drops_default && advised == default_mib;
    for (const double mib :
         {advised, std::ceil(lowest), std::floor(advised) + 1, std::ceil(advised) - 1}) {
        const bool accepted = !(wrapper.drops_default && mib == default_mib) &&
                              !(wrapper.whole_mib && mib != std::floor(mib));
        if (accepted && mib > 0 && lowest <= mib && mib <= highest) {
            return mib;
        }
    }
    return dropped ? as_25 : advised;
}

// The arguments after the cap that the simulated step needs.
void add_others(const Wrapper& wrapper, const SyncRequest& request,
                std::vector<std::string>& arguments, std::vector<std::string>& notes) {
    const auto add = [&](bool is_set, std::string_view argument) {
        if (is_set && !argument.empty()) {
            arguments.emplace_back(argument);
        }
    };
    if (!wrapper.passes_ddp_arguments) {
        const bool unused = request.find_unused_parameters;
        add(true, unused ? wrapper.find_unused : wrapper.find_used);
        add(request.static_graph, wrapper.static_graph);
        if (request.views && !wrapper.find_used.empty()) {
            notes.emplace_back("views cannot be set there (gradient_as_bucket_view)");
        }
        return;
    }
    const bool batches = wrapper.place != SettingPlace::accelerate;
    for (const auto& [is_set, key] :
         {std::pair(request.views, "gradient_as_bucket_view"),
          std::pair(request.find_unused_parameters, "find_unused_parameters"),
          std::pair(request.static_graph, "static_graph"),
          std::pair(request.batched_grad_copy && batches, "batched_grad_copy")}) {
        add(is_set, fmt::format("{0}{1}{0}{2}True", wrapper.quote, key, wrapper.assignment));
    }
    if (request.batched_grad_copy && !batches) {
        notes.emplace_back("batched_grad_copy cannot be set there");
    }
}

void add_first_bucket(const Wrapper& wrapper, const SyncRequest& request, double mib,
                      std::vector<std::string>& notes) {
    if (!request.explicit_cap_sets_first || !request.first_bucket ||
        typed_mib(*request.first_bucket) == mib) {
        return;
    }
    const double first = typed_mib(*request.first_bucket);
    const bool takes_list =
        wrapper.passes_ddp_arguments && wrapper.place != SettingPlace::accelerate;
    notes.push_back(
        fmt::format("the first bucket of {} MiB takes {}", first,
                    takes_list ? fmt::format("bucket_cap_mb_list=[{}, {}] in its place", first, mib)
                               : "DistributedDataParallel by hand"));
}

}  // namespace

WrapperSetting wrapper_setting(SettingPlace place, const SyncRequest& request,
                               const FrameworkSetting& pytorch) {
    invariant(!framework_at(place), "a wrapper");
    WrapperSetting setting{.place = place};
    const auto* const wrapper = std::ranges::find(wrappers, place, &Wrapper::place);
    if (wrapper == wrappers.end()) {  // torchtitan
        setting.notes.emplace_back(
            "no bucket size: replicate() reduces what each wrapped module holds in one; wrap more "
            "layers together, or each on its own");
        return setting;
    }
    if (!pytorch.best.value) {
        setting.notes.emplace_back("nothing: the default is as good as any");
        return setting;
    }
    const double advised = *pytorch.best.value;
    const double mib = cap_mib(*wrapper, advised, pytorch.same_plan);
    setting.mib = mib;
    std::vector<std::string> arguments{
        fmt::format("{0}{1}{0}{2}{3}", wrapper->quote, wrapper->key, wrapper->assignment, mib)};
    add_first_bucket(*wrapper, request, mib, setting.notes);
    add_others(*wrapper, request, arguments, setting.notes);
    setting.typed = fmt::format(fmt::runtime(wrapper->call),
                                fmt::to_string(fmt::join(arguments, wrapper->separator)));
    if (wrapper->drops_default && mib != advised) {
        setting.notes.push_back(fmt::format(
            "{} gives the same buckets; 25 would be dropped as the default, whose first bucket is "
            "1 MiB",
            mib));
    }
    if (wrapper->whole_mib && mib != std::floor(mib)) {
        setting.notes.emplace_back(
            place == SettingPlace::transformers
                ? "in a script or a JSON file; its command line takes whole numbers only"
                : "it takes whole numbers only, and none gives these buckets");
    }
    if (!wrapper->note.empty()) {
        setting.notes.emplace_back(wrapper->note);
    }
    return setting;
}

}  // namespace bucketwise
