// Typed settings, read as their framework reads them, and suspicious ones among them.
#include "import/settings/settings_file.h"

#include "sim/base/error.h"
#include "tests/catch.h"

namespace bucketwise {
namespace {

TypedSettings settings_of(const std::string& text) {
    return read_typed_settings(text, "settings");
}

bool suspects(const TypedSettings& settings, std::string_view part) {
    return std::ranges::any_of(settings.suspicious, [&](const std::string& one) {
        return one.find(part) != std::string::npos;
    });
}

std::string message_of(const std::string& text) {
    try {
        settings_of(text);
    } catch (const InputError& error) {
        return error.what();
    }
    return "";
}

TEST_CASE("a DeepSpeed configuration says its stage, its bucket and what overlaps") {
    const TypedSettings typed = settings_of(R"({"gradient_accumulation_steps": 4,
        "communication_data_type": "fp32", "bf16": {"enabled": true},
        "zero_optimization": {"stage": 2, "overlap_comm": true, "reduce_bucket_size": 5e7}})");
    CHECK(typed.place == SettingPlace::deepspeed_zero2);
    CHECK(typed.use.framework == Framework::deepspeed_zero2);
    CHECK(typed.value == 5e7);
    CHECK(typed.accumulation == 4);
    CHECK(typed.use.overlaps);
    CHECK(typed.use.reduced_as == DType::float32);
    CHECK(typed.suspicious.empty());
    // As nobody says otherwise.
    const TypedSettings bare = settings_of(R"({"zero_optimization": {"stage": 1}})");
    CHECK(bare.place == SettingPlace::deepspeed_zero1);
    CHECK_FALSE(bare.value);
    CHECK_FALSE(bare.use.overlaps);
    CHECK(suspects(bare, "overlap_comm is off"));
}

TEST_CASE("what DeepSpeed does not do with what is typed is suspicious") {
    const auto zero = [](const std::string& keys, const std::string& others = "") {
        return settings_of("{" + others + R"("zero_optimization": {"stage": 1, )" + keys + "}}");
    };
    CHECK(suspects(zero(R"("reduce_bucket_size": 25)"), "counts elements"));
    CHECK_FALSE(suspects(zero(R"("reduce_bucket_size": 5000000)"), "counts elements"));
    CHECK(suspects(zero(R"("reduce_bucket_size": "auto")"), "hidden size"));
    CHECK(suspects(zero(R"("allgather_bucket_size": 5e8)"), "allgather_bucket_size counts only"));
    CHECK(suspects(zero(R"("contiguous_gradients": false)"), "the host waits"));
    CHECK(suspects(zero(R"("reduce_scatter": true)"), "does not scatter"));
    CHECK(suspects(zero(R"("use_multi_rank_bucket_allreduce": false)"), "rank by rank"));
    CHECK(
        suspects(zero(R"("overlap_comm": true)",
                      R"("bf16": {"enabled": true}, "data_types": {"grad_accum_dtype": "fp32"},)"),
                 "BF16_Optimizer"));
}

TEST_CASE("Megatron-LM's arguments are found in a command line or a script of one") {
    const TypedSettings typed = settings_of(
        "torchrun pretrain_gpt.py --bf16 \\\n  --use-distributed-optimizer --overlap-grad-reduce "
        "\\\n  --overlap-param-gather --ddp-bucket-size=40_000_000 --grad-reduce-in-bf16 "
        "--no-check-for-nan-in-loss-and-grad --ddp-average-in-collective\n");
    CHECK(typed.place == SettingPlace::megatron_distributed_optimizer);
    CHECK(typed.value == 4e7);
    CHECK(typed.use.overlaps);
    CHECK(typed.use.gathers_in_forward);
    CHECK(typed.use.reduces_in_bfloat16);
    CHECK(typed.use.averages_in_collective);
    CHECK_FALSE(typed.use.checks_gradients);
    CHECK(typed.suspicious.empty());
    const TypedSettings bare = settings_of("pretrain_gpt.py --bf16 --ddp-bucket-size 25");
    CHECK(bare.place == SettingPlace::megatron_lm);
    CHECK(suspects(bare, "--ddp-bucket-size does nothing"));
    CHECK(suspects(bare, "counts elements"));
    CHECK(suspects(bare, "float32, twice the bytes"));
    CHECK(suspects(bare, "norm"));
    CHECK(suspects(settings_of("--ddp-num-buckets 4 --overlap-grad-reduce"), "--ddp-num-buckets"));
    CHECK(message_of("--ddp-bucket-size many --overlap-grad-reduce") ==
          "settings: expected a whole number after --ddp-bucket-size, got \"many\"");
}

TEST_CASE("TrainingArguments drop 25, and look for unused parameters unless told not to") {
    const TypedSettings typed = settings_of(
        R"({"output_dir": "out", "ddp_bucket_cap_mb": 25, "gradient_accumulation_steps": 2})");
    CHECK(typed.place == SettingPlace::transformers);
    CHECK_FALSE(typed.value);
    CHECK(typed.accumulation == 2);
    CHECK(typed.find_unused_parameters == true);
    CHECK(suspects(typed, "25 is dropped"));
    CHECK(suspects(typed, "a map of unused ones"));
    const TypedSettings told =
        settings_of(R"({"ddp_bucket_cap_mb": 100, "ddp_find_unused_parameters": false})");
    CHECK(told.value == 100);
    CHECK(told.find_unused_parameters == false);
    CHECK(told.suspicious.empty());
    CHECK(
        suspects(settings_of(R"({"ddp_bucket_cap_mb": 26214400, "gradient_checkpointing": true})"),
                 "counts MiB, not bytes"));
    CHECK(suspects(settings_of(R"({"ddp_bucket_cap_mb": 0.5, "torch_compile": true})"),
                   "below 1 MiB is refused"));
}

TEST_CASE("a call in a script is read as its wrapper takes it") {
    const TypedSettings lightning = settings_of(
        "t = Trainer(strategy=DDPStrategy(process_group_backend='gloo', bucket_cap_mb = 12.5,\n"
        "                                 gradient_as_bucket_view=True), devices=2)\n"
        "other(bucket_cap_mb=3)");
    CHECK(lightning.place == SettingPlace::lightning);
    CHECK(lightning.value == 12.5);
    CHECK(lightning.views == true);
    CHECK_FALSE(lightning.find_unused_parameters);
    const TypedSettings accelerate = settings_of(
        "Accelerator(kwargs_handlers=[DistributedDataParallelKwargs(bucket_cap_mb=25)])");
    CHECK(accelerate.place == SettingPlace::accelerate);
    CHECK_FALSE(accelerate.value);
    CHECK(suspects(accelerate, "25 is dropped"));
    const TypedSettings ray =
        settings_of("prepare_model(m, parallel_strategy_kwargs={\"bucket_cap_mb\": 50})");
    CHECK(ray.place == SettingPlace::ray_train);
    CHECK(ray.value == 50);
    const TypedSettings ddp = settings_of(
        "m = torch.compile(DistributedDataParallel(m, bucket_cap_mb_list=[0.25, 0.5]))");
    CHECK(ddp.place == SettingPlace::pytorch_ddp);
    CHECK(ddp.list == std::vector<double>{0.25, 0.5});
    CHECK(suspects(ddp, "below 1 MiB is refused"));
    CHECK(message_of("DistributedDataParallel(m, bucket_cap_mb=cap)") ==
          "settings: DistributedDataParallel/bucket_cap_mb: expected a number of MiB above 0, got "
          "\"cap\"");
    CHECK(message_of("DDPStrategy(bucket_cap_mb=-1)").find("above 0") != std::string::npos);
    CHECK(message_of("DDP(bucket_cap_mb=1)").find("none of them") != std::string::npos);
}

TEST_CASE("what is no such file is refused with what was expected") {
    CHECK(message_of("").find("none of them") != std::string::npos);
    CHECK(message_of("{}").find("got neither") != std::string::npos);
    CHECK(message_of(R"({"zero_optimization": 3})") ==
          "settings: /zero_optimization: expected an object, got 3");
    CHECK(message_of(R"({"zero_optimization": {"stage": 3}})").find("/zero_optimization/stage") !=
          std::string::npos);
    CHECK(message_of(R"({"zero_optimization": {}})").find("stage 1 or 2") != std::string::npos);
    CHECK(message_of(R"({"zero_optimization": {"stage": 2, "overlap_comm": "yes"}})")
              .find("true or false") != std::string::npos);
    CHECK(message_of(R"({"ddp_bucket_cap_mb": "25"})").find("a number of MiB") !=
          std::string::npos);
}

}  // namespace
}  // namespace bucketwise
