// Settings typed into wrappers: in each one's spelling, with the advised buckets.
#include <algorithm>
#include <cmath>

#include "sim/frameworks/framework_advice.h"
#include "tests/catch.h"

namespace bucketwise {
namespace {

// PyTorch's advice of a cap whose buckets others of the range give, too.
FrameworkSetting advice_of(double mib, double lowest_mib, double highest_mib) {
    const auto bytes = [](double mib_of) {
        return Bytes{static_cast<std::int64_t>(std::llround(mib_of * bytes_per_mib))};
    };
    FrameworkSetting setting;
    setting.best.value = mib;
    setting.same_plan.lowest = bytes(lowest_mib);
    setting.same_plan.highest = bytes(highest_mib);
    return setting;
}

std::string typed_in(SettingPlace place, double mib, double lowest, double highest,
                     const SyncRequest& request = {}) {
    return wrapper_setting(place, request, advice_of(mib, lowest, highest)).typed;
}

bool notes(const WrapperSetting& setting, std::string_view part) {
    return std::ranges::any_of(setting.notes, [&](const std::string& note) {
        return note.find(part) != std::string::npos;
    });
}

TEST_CASE("each wrapper gets the cap in its own spelling and unit") {
    const auto typed = [](SettingPlace place) { return typed_in(place, 50, 48.5, 51.5); };
    CHECK(typed(SettingPlace::accelerate) ==
          "Accelerator(kwargs_handlers=[DistributedDataParallelKwargs(bucket_cap_mb=50)])");
    CHECK(typed(SettingPlace::axolotl) ==
          "ddp_bucket_cap_mb: 50\nddp_find_unused_parameters: false");
    CHECK(
        typed(SettingPlace::composer).find("DistributedDataParallel.__init__, bucket_cap_mb=50") !=
        std::string::npos);
    CHECK(typed(SettingPlace::detectron2) == "create_ddp_model(model, bucket_cap_mb=50)");
    CHECK(typed(SettingPlace::fairseq) == "fairseq-train --bucket-cap-mb 50");
    CHECK(typed(SettingPlace::lightning) == "Trainer(strategy=DDPStrategy(bucket_cap_mb=50))");
    CHECK(typed(SettingPlace::mmengine) ==
          "model_wrapper_cfg=dict(type=\"MMDistributedDataParallel\", bucket_cap_mb=50)");
    CHECK(typed(SettingPlace::ray_train) ==
          "prepare_model(model, parallel_strategy_kwargs={\"bucket_cap_mb\": 50})");
    CHECK(typed(SettingPlace::transformers) ==
          "TrainingArguments(ddp_bucket_cap_mb=50, ddp_find_unused_parameters=False)");
    const WrapperSetting none =
        wrapper_setting(SettingPlace::torchtitan, {}, advice_of(50, 48.5, 51.5));
    CHECK(none.typed.empty());
    CHECK(notes(none, "no bucket size"));
}

TEST_CASE("a cap that would be dropped is typed as another one of the same buckets") {
    for (const SettingPlace place : {SettingPlace::accelerate, SettingPlace::transformers}) {
        const WrapperSetting setting = wrapper_setting(place, {}, advice_of(25, 23.5, 25.75));
        REQUIRE(setting.mib);
        CHECK(*setting.mib == 24);
        CHECK(notes(setting, "25 would be dropped"));
    }
    // No other whole number: what is as many bytes, but not the default.
    const double close =
        *wrapper_setting(SettingPlace::accelerate, {}, advice_of(25, 24.75, 25.75)).mib;
    CHECK(close != 25);
    CHECK(static_cast<std::int64_t>(close * bytes_per_mib) == 25 * bytes_per_mib);
    // Elsewhere 25 is 25.
    CHECK(typed_in(SettingPlace::lightning, 25, 24, 26) ==
          "Trainer(strategy=DDPStrategy(bucket_cap_mb=25))");
}

TEST_CASE("where whole MiB are expected, one of the same buckets is typed if there is one") {
    CHECK(*wrapper_setting(SettingPlace::fairseq, {}, advice_of(12.5, 11.2, 14)).mib == 12);
    const WrapperSetting none =
        wrapper_setting(SettingPlace::fairseq, {}, advice_of(12.5, 12.2, 12.9));
    CHECK(*none.mib == 12.5);
    CHECK(notes(none, "whole numbers only"));
}

TEST_CASE("arguments that the simulated step needs go along, or it is said that they cannot") {
    SyncRequest request;
    request.views = true;
    request.find_unused_parameters = true;
    CHECK(typed_in(SettingPlace::lightning, 50, 49, 51, request) ==
          "Trainer(strategy=DDPStrategy(bucket_cap_mb=50, gradient_as_bucket_view=True, "
          "find_unused_parameters=True))");
    CHECK(typed_in(SettingPlace::ray_train, 50, 49, 51, request)
              .find("\"gradient_as_bucket_view\": True") != std::string::npos);
    const WrapperSetting trainer =
        wrapper_setting(SettingPlace::transformers, request, advice_of(50, 49, 51));
    CHECK(trainer.typed ==
          "TrainingArguments(ddp_bucket_cap_mb=50, ddp_find_unused_parameters=True)");
    CHECK(notes(trainer, "views cannot be set there"));
    // A first bucket of its own takes a list, where lists pass.
    SyncRequest first;
    first.first_bucket = Bytes{bytes_per_mib};
    CHECK(notes(wrapper_setting(SettingPlace::lightning, first, advice_of(50, 49, 51)),
                "bucket_cap_mb_list=[1, 50]"));
    CHECK(
        notes(wrapper_setting(SettingPlace::accelerate, first, advice_of(50, 49, 51)), "by hand"));
}

TEST_CASE("where the default is as good, nothing is typed") {
    const WrapperSetting setting = wrapper_setting(SettingPlace::lightning, {}, FrameworkSetting{});
    CHECK(setting.typed.empty());
    CHECK(notes(setting, "the default"));
}

}  // namespace
}  // namespace bucketwise
