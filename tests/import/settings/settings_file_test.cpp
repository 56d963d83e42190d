// Typed settings, read as their framework reads them, and suspicious ones among them.
#include "import/settings/settings_file.h"

#include "sim/base/error.h"
#include "tests/catch.h"
#include "tests/import/settings/source.h"

namespace bucketwise {
namespace {

TypedSettings settings_of(const std::string& text) {
    Json source;
    source["document"] = Json::parse(text);
    return read_typed_settings(source, "settings");
}

TypedSettings settings_in(const std::string& text, const std::string& name = "train.py") {
    return read_typed_settings(testing::source_of(text, name), "settings");
}

TypedSettings command(const std::string& text) {
    return settings_in(text, "run.sh");
}

bool says(const std::vector<std::string>& sentences, std::string_view part) {
    return std::ranges::any_of(
        sentences, [&](const std::string& one) { return one.find(part) != std::string::npos; });
}

bool suspects(const TypedSettings& settings, std::string_view part) {
    return says(settings.suspicious, part);
}

template <typename Read>
std::string message_of(const Read& read, const std::string& text) {
    try {
        read(text);
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
    CHECK(says(zero(R"("reduce_bucket_size": "auto")").notes, "hidden size"));
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
    const TypedSettings typed = command(
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
    const TypedSettings bare = command("pretrain_gpt.py --bf16 --ddp-bucket-size 25");
    CHECK(bare.place == SettingPlace::megatron_lm);
    CHECK(suspects(bare, "--ddp-bucket-size does nothing"));
    CHECK(suspects(bare, "counts elements"));
    CHECK(suspects(bare, "float32, twice the bytes"));
    CHECK(suspects(bare, "norm"));
    CHECK(suspects(command("--ddp-num-buckets 4 --overlap-grad-reduce"), "--ddp-num-buckets"));
    CHECK(message_of(command, "--ddp-bucket-size many --overlap-grad-reduce") ==
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

TEST_CASE("recomputing, compiling and FP8 are read as a scenario has them") {
    const auto titan = [](const char* rest) {
        return settings_of(std::string(R"({"model": {"flavor": "8B")") + rest);
    };
    // Every second block where nothing is said.
    CHECK(titan("}}").recompute == Recompute{.every = 2});
    CHECK(titan(R"(}, "activation_checkpoint": {"mode": "none"}})").recompute == std::nullopt);
    CHECK(titan(R"(}, "activation_checkpoint": {"mode": "full"}})").recompute == Recompute{});
    CHECK(titan(R"(}, "activation_checkpoint": {"selective_ac_option": "op"}})").recompute ==
          Recompute{.keeps = CheckpointKeeps::operators});
    CHECK(titan(R"(}, "activation_checkpoint": {"selective_ac_option": "3"}})").recompute ==
          Recompute{.every = 3});
    const TypedSettings budget = titan(R"(}, "activation_checkpoint": {"mode": "memory_budget"}})");
    CHECK(budget.recompute == std::nullopt);
    CHECK(budget.left_out.size() == 1);
    const char* const float8 =
        R"(, "converters": ["float8"]}, "compile": {"enable": true},
            "float8": {"recipe_name": "%", "enable_fsdp_float8_all_gather": true}})";
    for (const bool is_tensorwise : {true, false}) {
        std::string text = float8;
        text.replace(text.find('%'), 1, is_tensorwise ? "tensorwise" : "rowwise");
        const TypedSettings typed = titan(text.c_str());
        CHECK(typed.arithmetic ==
              (is_tensorwise ? Arithmetic::float8_tensorwise : Arithmetic::float8_rowwise));
        CHECK(typed.sharding.value().float8_all_gather == is_tensorwise);  // else it is ignored
        CHECK(typed.compiles_blocks);
    }
    CHECK(settings_of(R"({"output_dir": "out", "gradient_checkpointing": true,
                          "gradient_checkpointing_kwargs": {"use_reentrant": true}})")
              .recompute == Recompute{.reentrant = true});
    CHECK(settings_of(R"({"output_dir": "out", "fsdp": "full_shard auto_wrap",
                          "fsdp_config": {"activation_checkpointing": true}})")
              .recompute == Recompute{});
    const auto megatron = [](const std::string& flags) {
        return command("torchrun pretrain_gpt.py --overlap-grad-reduce " + flags);
    };
    CHECK(megatron("--recompute-granularity full --recompute-method block --recompute-num-layers 4")
              .recompute == Recompute{.blocks = 4, .reentrant = true});
    CHECK(megatron("--recompute-activations").recompute == std::nullopt);
    CHECK(settings_in("model.gradient_checkpointing_enable()\nm = DistributedDataParallel(model)")
              .recompute == Recompute{});
}

TEST_CASE("a call in a script is read as its wrapper takes it") {
    const TypedSettings lightning = settings_in(
        "t = Trainer(strategy=DDPStrategy(process_group_backend='gloo', bucket_cap_mb = 12.5,\n"
        "                                 gradient_as_bucket_view=True), devices=2)\n"
        "other(bucket_cap_mb=3)");
    CHECK(lightning.place == SettingPlace::lightning);
    CHECK(lightning.value == 12.5);
    CHECK(lightning.views == true);
    CHECK_FALSE(lightning.find_unused_parameters);
    const TypedSettings accelerate = settings_in(
        "Accelerator(kwargs_handlers=[DistributedDataParallelKwargs(bucket_cap_mb=25)])");
    CHECK(accelerate.place == SettingPlace::accelerate);
    CHECK_FALSE(accelerate.value);
    CHECK(suspects(accelerate, "25 is dropped"));
    const TypedSettings ray =
        settings_in("prepare_model(m, parallel_strategy_kwargs={\"bucket_cap_mb\": 50})");
    CHECK(ray.place == SettingPlace::ray_train);
    CHECK(ray.value == 50);
    const TypedSettings ddp = settings_in(
        "m = torch.compile(DistributedDataParallel(m, bucket_cap_mb_list=[0.25, 0.5]))");
    CHECK(ddp.place == SettingPlace::pytorch_ddp);
    CHECK(ddp.list == std::vector<double>{0.25, 0.5});
    CHECK(suspects(ddp, "below 1 MiB is refused"));
    const auto in_script = [](const std::string& text) { return settings_in(text); };
    const TypedSettings open = settings_in("DistributedDataParallel(m, bucket_cap_mb=cap)");
    CHECK_FALSE(open.value);
    CHECK(says(open.left_out, "bucket_cap_mb comes from cap, which the file does not set"));
    CHECK(message_of(in_script, "DDPStrategy(bucket_cap_mb=-1)").find("above 0") !=
          std::string::npos);
    CHECK(message_of(in_script, "print(bucket_cap_mb=1)").find("none of them") !=
          std::string::npos);
}

TEST_CASE("Python is parsed: aliases, comments, constants and argparse's defaults") {
    const TypedSettings alias = settings_in(
        "from torch.nn.parallel import DistributedDataParallel as Wrapped\n"
        "# DistributedDataParallel(m, bucket_cap_mb=200)\n"
        "'''was: DistributedDataParallel(m, bucket_cap_mb=300)'''\n"
        "CAP = 4 * 8\nm = Wrapped(m, bucket_cap_mb=CAP, gradient_as_bucket_view=True)");
    CHECK(alias.place == SettingPlace::pytorch_ddp);
    CHECK(alias.value == 32);
    CHECK(alias.views == true);
    const std::string parser =
        "p.add_argument('--bucket-cap-mb', type=int, default=50)\nargs = p.parse_args()\n"
        "m = torch.nn.parallel.DistributedDataParallel(m, bucket_cap_mb=args.bucket_cap_mb)";
    CHECK(settings_in(parser).value == 50);
    CHECK(says(settings_in(parser).notes, "comes from args.bucket_cap_mb"));
    CHECK(read_typed_settings(testing::source_of(parser), "settings", 100).value == 100);
    // A name that is assigned twice is open.
    CHECK(says(settings_in("c = 1\nc = 2\nDistributedDataParallel(m, bucket_cap_mb=c)").left_out,
               "comes from c"));
    CHECK(settings_in("k = dict(bucket_cap_mb=7)\nDistributedDataParallel(m, **k)").value == 7);
    CHECK(says(settings_in("DistributedDataParallel(m, **kwargs)").left_out, "**kwargs"));
    CHECK(says(settings_in("DistributedDataParallel(m)\n"
                           "DistributedDataParallel(n, bucket_cap_mb=3)")
                   .left_out,
               "in line 2"));
    CHECK(settings_in("t = Trainer(strategy='ddp_find_unused_parameters_true')")
              .find_unused_parameters == true);
    CHECK(settings_in("t = L.Trainer(strategy='ddp', accumulate_grad_batches=4)").accumulation ==
          4);
    CHECK_THROWS_AS(settings_in("DistributedDataParallel(m,"), InputError);
}

TEST_CASE("a comm hook, a static graph and torch.compile of a script count") {
    const TypedSettings typed = settings_in(
        "m = torch.compile(m)\nm = DistributedDataParallel(m, find_unused_parameters=True, "
        "static_graph=True)\nm.register_comm_hook(None, default_hooks.bf16_compress_hook)\n"
        "with m.no_sync(): pass");
    CHECK(typed.comm_hook == CommHook::bf16);
    CHECK(typed.static_graph == true);
    CHECK(typed.compiled == true);
    CHECK(says(typed.notes, "compiled in line 1"));
    CHECK(says(typed.left_out, "no_sync() is called"));
    CHECK(says(settings_in("m = DistributedDataParallel(m)\n"
                           "m.register_comm_hook(s, powerSGD_hook.powerSGD_hook)")
                   .left_out,
               "powerSGD_hook is not simulated"));
}

TEST_CASE("a strategy that shards is what runs, and no bucket of DDP's counts") {
    const TypedSettings trainer = settings_of(
        R"({"output_dir": "out", "ddp_bucket_cap_mb": 100, "fsdp": "shard_grad_op auto_wrap",
            "bf16": true, "fsdp_config": {"transformer_layer_cls_to_wrap": "Block"}})");
    REQUIRE(trainer.sharding);
    CHECK_FALSE(trainer.value);
    CHECK_FALSE(trainer.sharding->reshard_after_forward);
    CHECK(trainer.sharding->parameter_dtype == DType::bfloat16);
    CHECK(trainer.sharding->layers_per_group == 1);
    CHECK(says(trainer.notes, "a group for each Block"));
    const TypedSettings accelerate = settings_in(
        "distributed_type: FSDP\nmixed_precision: 'no'\nfsdp_config:\n  fsdp_version: 2\n"
        "  fsdp_reshard_after_forward: false\n  fsdp_offload_params: true\n",
        "config.yaml");
    REQUIRE(accelerate.sharding);
    CHECK(accelerate.runs == "FSDP2 (fully_shard)");
    CHECK_FALSE(accelerate.sharding->reshard_after_forward);
    CHECK_FALSE(accelerate.sharding->parameter_dtype);
    CHECK(suspects(accelerate, "offloaded to the host"));
    const TypedSettings titan = settings_in(
        "[training]\nlocal_batch_size = 2\n[parallelism]\ndata_parallel_replicate_degree = 2\n"
        "data_parallel_shard_degree = 8\nfsdp_reshard_after_forward = 'never'\n",
        "train.toml");
    REQUIRE(titan.sharding);
    CHECK(titan.sharding->strategy == ShardedStrategy::hsdp);
    CHECK(titan.sharding->shard_ranks == 8);
    CHECK_FALSE(titan.sharding->reshard_after_forward);
    CHECK(titan.sharding->reduce_dtype == DType::float32);
    const TypedSettings script = settings_in(
        "from torch.distributed.fsdp import fully_shard, MixedPrecisionPolicy\n"
        "p = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)\n"
        "for b in m.blocks: fully_shard(b, mp_policy=p, reshard_after_forward=4)\nfully_shard(m)");
    REQUIRE(script.sharding);
    CHECK(script.sharding->reshard_ranks == 4);
    CHECK(script.sharding->parameter_dtype == DType::bfloat16);
}

TEST_CASE(
    "DeepSpeed's stage 3 is read with its sizes, and \"auto\" is what transformers fills in") {
    const TypedSettings zero = settings_of(
        R"({"bf16": {"enabled": true}, "zero_optimization": {"stage": 3, "reduce_bucket_size":
            "auto", "stage3_prefetch_bucket_size": 1e7, "stage3_max_live_parameters": 5e8}})");
    REQUIRE(zero.sharding);
    CHECK(zero.sharding->strategy == ShardedStrategy::zero3);
    CHECK(zero.sharding->zero3.prefetch_elements == 10'000'000);
    CHECK(zero.sharding->zero3.max_live_parameters == 500'000'000);
    CHECK(zero.auto_sizes == AutoSizes{.reduce_bucket = true});
    CHECK(zero.dtype == DType::bfloat16);
}

TEST_CASE("DeepSpeed's JSON may have comments, trailing commas and keys without quotes") {
    const TypedSettings typed = settings_in(
        "{\n  // stage 2\n  zero_optimization: {\n    \"stage\": 2, # half\n    /* a */ "
        "'overlap_comm': true\n    \"reduce_bucket_size\": 5e8,\n  },\n"
        "  gradient_accumulation_steps: \"4\",\n}\n",
        "ds.json");
    CHECK(typed.place == SettingPlace::deepspeed_zero2);
    CHECK(typed.value == 5e8);
    CHECK(typed.use.overlaps);
    CHECK(typed.accumulation == 4);
    const auto in_json = [](const std::string& text) { return settings_in(text, "ds.json"); };
    CHECK(message_of(in_json, "{\n \"a\": 1\n \"a\": 2}").find("the key a once in line 3") !=
          std::string::npos);
    CHECK(message_of(in_json, "{\"zero_optimization\": {").find("in line 1") != std::string::npos);
}

TEST_CASE("a command line says what runs, and what of it is not simulated") {
    const TypedSettings trainer = command(
        "# a comment with --ddp_bucket_cap_mb 7\ntorchrun train.py --output_dir out \\\n"
        "  --ddp_bucket_cap_mb=100 --ddp_find_unused_parameters False "
        "--gradient_accumulation_steps 8\n");
    CHECK(trainer.place == SettingPlace::transformers);
    CHECK(trainer.value == 100);
    CHECK(trainer.accumulation == 8);
    CHECK(trainer.find_unused_parameters == false);
    CHECK(command("torchrun t.py --fsdp \"full_shard auto_wrap\"").sharding.has_value());
    CHECK(command("accelerate launch --use_fsdp --fsdp_sharding_strategy 2 t.py")
              .sharding->reshard_after_forward == false);
    CHECK(command("python p.py --micro-batch-size 1 --use-torch-fsdp2").sharding.has_value());
    CHECK(command("p.py --micro-batch-size 2 --DDP-impl torch").place == SettingPlace::pytorch_ddp);
    for (const auto& [typed, why] : std::vector<std::pair<std::string, std::string>>{
             {"deepspeed t.py --deepspeed_config ds.json", "ds.json: check that file"},
             {"torchrun t.py --deepspeed z3.json --output_dir o", "z3.json: check that file"},
             {"pretrain.py --micro-batch-size 1 --use-megatron-fsdp", "Megatron-FSDP"},
             {"p.py --micro-batch-size 2 --overlapped-distributed-optimizer "
              "--reduce-bucket-size=2e8",
              "buckets of its own (2e8 elements)"}}) {
        CAPTURE(typed);
        CHECK(says({command(typed).not_simulated}, why));
    }
    const TypedSettings parallel = command(
        "ARGS=\"--tensor-model-parallel-size 8 --global-batch-size 1024\"\n"
        "torchrun p.py $ARGS --pipeline-model-parallel-size 4 --micro-batch-size 1");
    CHECK(parallel.parallel.of_model() == 32);
    CHECK(parallel.batches == Batches{.global = 1024, .micro = 1});
    CHECK(says(parallel.notes, "a rank holds about 1/32 of the model"));
    CHECK_THROWS_AS(command("torchrun train.py --lr 1"), InputError);
}

TEST_CASE("what is no such file is refused with what was expected") {
    CHECK(message_of(command, "echo").find("none of them") != std::string::npos);
    CHECK(message_of(settings_of, "{}").find("got neither") != std::string::npos);
    CHECK(message_of(settings_of, R"({"zero_optimization": 3})") ==
          "settings: /zero_optimization: expected an object, got 3");
    CHECK(message_of(settings_of, R"({"zero_optimization": {"stage": 4}})")
              .find("/zero_optimization/stage") != std::string::npos);
    CHECK(message_of(settings_of, R"({"zero_optimization": {}})").find("stage 1, 2 or 3") !=
          std::string::npos);
    CHECK(
        message_of(settings_of, R"({"zero_optimization": {"stage": 2, "overlap_comm": "perhaps"}})")
            .find("true or false") != std::string::npos);
    CHECK(message_of(settings_of, R"({"ddp_bucket_cap_mb": "much"})").find("a number") !=
          std::string::npos);
}

}  // namespace
}  // namespace bucketwise
