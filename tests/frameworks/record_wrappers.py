#!/usr/bin/env python3
"""Records which bucket sizes reach DistributedDataParallel through the libraries around it, and which buckets result.

    pip install torch transformers accelerate lightning mmengine ray
    python3 record_wrappers.py              # writes ../data/frameworks/wrappers.json, in about ten minutes
    python3 record_wrappers.py accelerate   # prints one library's cases and writes nothing

Two Gloo ranks on the CPU. DistributedDataParallel.__init__ is wrapped to write down its arguments; each case then
trains a few steps as the library does it, and the reducer's own record says which buckets it used. A library that is
not installed is left out. The libraries under "read" in the file were read, not run; a new
recording takes what was found over.
"""

import contextlib
import dataclasses
import functools
import importlib.metadata
import json
import logging
import os
import sys
import tempfile
import types
import warnings
from pathlib import Path

os.environ["CUDA_VISIBLE_DEVICES"] = ""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import models as small
from recording import DATA, DATE, run_on_ranks, texts_of, write_json

from on_ranks import free_ports

STEPS = 4
PACKAGES = ("torch", "transformers", "accelerate", "lightning", "mmengine", "ray")

LIST = "bucket_cap_mb_list"
CAPS = [{}] + [{"bucket_cap_mb": cap} for cap in (25, 24, 0.5, 100, 12.5, 25.0, 25.0000001, 24.999999999, "25", [2, 25],
                                                  0, None)]
LISTS = [{LIST: [25]}, {LIST: [2, 12.5]}, {LIST: [1, 25]}, {"bucket_cap_mb": 24, LIST: [2, 25]}]
STATIC, UNUSED = {"static_graph": True}, {"find_unused_parameters": True}
OTHERS = [{"bucket_cap_mb": 25, **more}
          for more in ({"batched_grad_copy": True}, {"gradient_as_bucket_view": True}, STATIC, UNUSED)]
OTHERS += [*({"bucket_cap_mb": cap, **UNUSED} for cap in (25.0000001, 24, 12.5, 0.5, 100)), UNUSED]


class Wide(nn.Module):
    """41 MiB, so that a default of 25 MiB with a first bucket of 1 MiB differs from 25 MiB throughout, and from 24."""

    def __init__(self):
        super().__init__()
        self.model = small.Mlp(768, 20)

    def forward(self, x=None, labels=None):
        return {"loss": self.model(x).square().mean()}


def wide_gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel

    none = {"attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0}
    config = GPT2Config(vocab_size=small.VOCABULARY, n_positions=small.LENGTH, n_embd=512, n_layer=4, n_head=4,
                        use_cache=False, **none)
    return GPT2LMHeadModel(config)


MODELS = {"wide": Wide, "gpt2_wide": wide_gpt2}


def batch_of(model, rank, step):
    if model == "wide":
        return {"x": small.vectors(rank, step)}
    tokens = small.tokens(rank, step)
    return {"input_ids": tokens, "labels": tokens}


class Samples(torch.utils.data.Dataset):
    def __init__(self, model):
        self.model = model

    def __len__(self):
        return 64

    def __getitem__(self, i):
        return {key: value[0] for key, value in batch_of(self.model, i, 0).items()}


wrapped = []  # (kwargs as they came, the module) of every DistributedDataParallel since the case began


def watch_constructor():
    original = DistributedDataParallel.__init__

    @functools.wraps(original)
    def __init__(self, module, *positional, **kwargs):
        assert not positional
        wrapped.append(({key: [value, type(value).__name__] for key, value in kwargs.items()}, self))
        for key in ("device_ids", "output_device"):
            kwargs.pop(key, None)
        original(self, module, **kwargs)

    DistributedDataParallel.__init__ = __init__


# Each runs a case: it gives the library's wrapper what a user types, and trains.


def train(model, name, rank, backward=None):
    for step in range(STEPS):
        loss = model(**batch_of(name, rank, step))["loss"]
        backward(loss) if backward else loss.backward()
        model.zero_grad()


def plain(name, typed, rank):
    train(DistributedDataParallel(MODELS[name](), **typed), name, rank)


def accelerate(name, typed, rank):
    from accelerate.utils import DistributedDataParallelKwargs

    accelerated(name, rank, DistributedDataParallelKwargs(**typed))


def accelerate_subclass(name, typed, rank):
    accelerated(name, rank, own_handler(typed))


def accelerate_attribute(name, typed, rank):
    accelerated(name, rank, None, own_handler(typed))


def accelerated(name, rank, handler, attribute=None):
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState

    AcceleratorState._reset_state(True)
    accelerator = Accelerator(cpu=True, kwargs_handlers=[handler] if handler else None)
    if attribute is not None:
        accelerator.ddp_handler = attribute
    train(accelerator.prepare(MODELS[name]()), name, rank, accelerator.backward)


def own_handler(typed):
    from accelerate.utils import DistributedDataParallelKwargs

    fields = [(key, object, dataclasses.field(default=None)) for key in typed]
    return dataclasses.make_dataclass("Kwargs", fields, bases=(DistributedDataParallelKwargs,))(**typed)


QUIET = {
    "use_cpu": True, "max_steps": STEPS, "per_device_train_batch_size": 2, "report_to": "none", "save_strategy": "no",
    "logging_strategy": "no", "disable_tqdm": True, "ddp_backend": "gloo", "remove_unused_columns": False,
}  # fmt: skip


def trained(name, typed, arguments_of, prepare=lambda trainer: None):
    """arguments_of(class, typed): how they become TrainingArguments. prepare: called between making Trainer and train()."""
    from transformers import Trainer, TrainingArguments

    with tempfile.TemporaryDirectory() as directory:
        arguments = arguments_of(TrainingArguments, {"output_dir": directory, **QUIET, **typed})
        made = Trainer(model=MODELS[name](), args=arguments, train_dataset=Samples(name))
        prepare(made)
        made.train()


def trainer(name, typed, rank):
    trained(name, typed, lambda arguments, given: arguments(**given))


def trainer_command_line(name, typed, rank):
    def parse(arguments, given):
        from transformers import HfArgumentParser

        line = [f"--{key}={value}" for key, value in given.items()]
        try:
            with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):
                return HfArgumentParser(arguments).parse_args_into_dataclasses(line)[0]
        except SystemExit as refused:
            raise ValueError(f"the parser refused: {refused.__context__}") from None

    trained(name, typed, parse)


def trainer_file(name, typed, rank):
    def parse(arguments, given):
        from transformers import HfArgumentParser

        path = Path(given["output_dir"]) / "arguments.json"
        path.write_text(json.dumps(given))
        return HfArgumentParser(arguments).parse_json_file(str(path))[0]

    trained(name, typed, parse)


def trainer_handler(name, typed, rank):
    """The handler is replaced after Trainer has made its Accelerator, and before it wraps the model."""
    def replace(made):
        made.accelerator.ddp_handler = own_handler(typed)

    trained(name, {}, lambda arguments, given: arguments(**given), replace)


def lightning_trainer(name, typed, rank):
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = MODELS[name]()

        def training_step(self, batch, index):
            return self.model(**batch)["loss"]

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.0)

        def train_dataloader(self):
            return torch.utils.data.DataLoader(Samples(name), batch_size=2)

    strategy = strategy_of(lightning.pytorch.strategies, typed)
    quiet = {"max_steps": STEPS, "logger": False, "barebones": True}
    lightning.Trainer(accelerator="cpu", devices=2, strategy=strategy, **quiet).fit(Module())


def strategy_of(strategies, typed):
    return typed.get("strategy") or strategies.DDPStrategy(process_group_backend="gloo", **typed)


def fabric(name, typed, rank):
    import lightning

    strategy = strategy_of(lightning.fabric.strategies, typed)
    made = lightning.Fabric(accelerator="cpu", devices=2, strategy=strategy)
    made.launch()
    model, _ = made.setup(module := MODELS[name](), torch.optim.SGD(module.parameters(), lr=0.0))
    train(model, name, rank, made.backward)


def ray(name, typed, rank):
    """prepare_model() without a cluster: what it would ask its session for is answered here."""
    from ray.train.torch import train_loop_utils

    session = types.SimpleNamespace(get_local_rank=lambda: rank, get_world_size=lambda: 2)
    train_loop_utils.session = session
    train_loop_utils.get_device = lambda: torch.device("cpu")
    model = train_loop_utils._TorchAccelerator().prepare_model(MODELS[name](), parallel_strategy_kwargs=typed)
    train(model, name, rank)


def mmengine(name, typed, rank):
    """Runner.wrap_model() with the two attributes of a Runner that it reads."""
    from mmengine.config import Config
    from mmengine.runner import Runner

    runner = types.SimpleNamespace(cfg=Config(typed.get("cfg", {})), distributed=True)
    configuration = typed.get("model_wrapper_cfg")
    train(Runner.wrap_model(runner, configuration and dict(configuration), MODELS[name]()), name, rank)


def renamed(typed):
    return {f"ddp_{key}": value for key, value in typed.items()}


def trainer_cases():
    for name in ("gpt2_wide", "wide"):
        for typed in CAPS:
            yield name, renamed(typed)
    for typed in CAPS:
        yield "gpt2_wide", {**renamed(typed), **NOT_UNUSED}
    checkpointing, static = {"gradient_checkpointing": True}, {"ddp_static_graph": True}
    for typed in (checkpointing, {**checkpointing, "ddp_bucket_cap_mb": 25},
                  {**checkpointing, "ddp_bucket_cap_mb": 25.0000001}, {**static, "ddp_bucket_cap_mb": 25},
                  {**static, "ddp_bucket_cap_mb": 24}, {**static, **NOT_UNUSED, "ddp_bucket_cap_mb": 24},
                  {"ddp_broadcast_buffers": True}, {"ddp_broadcast_buffers": False}, {"ddp_bucket_cap_mb_list": [25]},
                  {"ddp_gradient_as_bucket_view": True}):
        yield "gpt2_wide", typed


def plain_cases():
    for name in MODELS:
        for typed in CAPS + LISTS + OTHERS:
            yield name, typed
    yield "gpt2_wide", {"bucket_cap_mb": 24, **STATIC}
    yield "gpt2_wide", STATIC


def all_of(name, *groups):
    rows = [(name, typed) for group in groups for typed in group]
    return lambda: rows


NOT_UNUSED = {"ddp_find_unused_parameters": False}
STRATEGIES = [{"strategy": strategy} for strategy in ("ddp", "ddp_find_unused_parameters_true")]
MM = [{}, {"cfg": {"find_unused_parameters": True}}] + [
    {"model_wrapper_cfg": {"type": kind, **typed}}
    for kind in ("MMDistributedDataParallel", "DistributedDataParallel")
    for typed in CAPS + LISTS + OTHERS[:4]
]
# By wrapper: how it is run, how its arguments are typed, its cases.
WRAPPERS = {
    "plain": (plain, "DistributedDataParallel(module, ...)", plain_cases),
    "accelerate": (accelerate, "Accelerator(kwargs_handlers=[DistributedDataParallelKwargs(...)])",
                   all_of("wide", CAPS, LISTS, OTHERS)),
    "accelerate_subclass": (accelerate_subclass, "Accelerator(kwargs_handlers=[handler]), where the handler's class is a "
                            "dataclass derived from DistributedDataParallelKwargs whose fields have None as default",
                            all_of("wide", [{"bucket_cap_mb": 25}])),
    "accelerate_attribute": (accelerate_attribute, "accelerator.ddp_handler = such a handler, before prepare()",
                             all_of("wide", CAPS, LISTS, OTHERS[:3])),
    "trainer": (trainer, "TrainingArguments(...)", trainer_cases),
    "trainer_command_line": (trainer_command_line, "HfArgumentParser(TrainingArguments), on the command line",
                             all_of("gpt2_wide", ({"ddp_bucket_cap_mb": cap, **NOT_UNUSED}
                                                  for cap in (25, 24, 12.5, "25.0", [25])))),
    "trainer_file": (trainer_file, "HfArgumentParser(TrainingArguments).parse_json_file()",
                     all_of("gpt2_wide", ({"ddp_bucket_cap_mb": cap, **NOT_UNUSED}
                                          for cap in (25, 24, 12.5, 25.0000001, "24")))),
    "trainer_handler": (trainer_handler, "trainer.accelerator.ddp_handler = a handler as in accelerate_attribute, before "
                        "train(); Trainer's own, with its find_unused_parameters, is lost",
                        all_of("gpt2_wide", [{"bucket_cap_mb": 25}, {"bucket_cap_mb": 12.5}], LISTS)),
    "lightning": (lightning_trainer, "lightning.Trainer(strategy=DDPStrategy(...)), or its strategy as a string",
                  all_of("wide", STRATEGIES, CAPS, LISTS, OTHERS)),
    "fabric": (fabric, "lightning.Fabric(strategy=lightning.fabric.strategies.DDPStrategy(...)), or its strategy as a "
               "string", all_of("wide", STRATEGIES, CAPS, LISTS, OTHERS)),
    "ray": (ray, "ray.train.torch.prepare_model(model, parallel_strategy_kwargs={...})",
            all_of("wide", CAPS, LISTS, OTHERS)),
    "mmengine": (mmengine, "Runner(model_wrapper_cfg=dict(...), cfg=dict(...))", all_of("wide", MM)),
}
PACKAGE_OF = {"trainer": "transformers", "fabric": "lightning", "plain": "torch"}  # or its own name

def plan_of(record):
    """The model, its final buckets, and whether they were rebuilt."""
    data = record["logging"]
    rebuilt = data["rebuilt_bucket_sizes"]
    return record["model"], rebuilt or data["bucket_sizes"], bool(rebuilt)


def record(rank, _, wrapper, ports):
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    os.environ.update(GROUP_RANK="0", TORCHELASTIC_RUN_ID="record", ACCELERATE_USE_CPU="true")
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    watch_constructor()
    run, how, cases = WRAPPERS[wrapper]
    results = []
    for (name, typed), port in zip(cases(), ports):
        os.environ["MASTER_PORT"] = str(port)
        wrapped.clear()
        torch.manual_seed(1)
        case = {"wrapper": wrapper, "how": how, "model": name, "typed": typed}
        if wrapper in ("plain", "ray", "mmengine"):
            dist.init_process_group("gloo")
        try:
            run(name, typed, rank)
        except Exception as error:
            case["error"] = {"type": type(error).__name__, "text": str(error)[:300]}
        for kwargs, ddp in wrapped:
            case["kwargs"] = {key: [shown(value), kind] for key, (value, kind) in kwargs.items()}
            if "error" not in case:
                case["logging"] = logging_of(ddp)
        results.append(case)
        wrapped.clear()
        if dist.is_initialized():
            dist.destroy_process_group()
        if rank == 0:
            print(wrapper, name, typed, case.get("kwargs"), case.get("error", ""), file=sys.stderr, flush=True)
    return results


def shown(value):
    return value if value is None or isinstance(value, (bool, int, float, str, list)) else str(value)[:60]


def logging_of(ddp):
    data = ddp._get_ddp_logging_data()
    kept = {}
    for key in ("bucket_sizes", "rebuilt_bucket_sizes"):
        kept[key] = [int(size) for size in data.get(key, "").replace(",", " ").split()]
    for key in ("bucket_cap_bytes", "find_unused_parameters", "gradient_as_bucket_view", "broadcast_buffers"):
        kept[key] = data[key]
    return {**kept, "static_graph": ddp.static_graph}


def describe_model(name):
    module = small.seeded(MODELS[name])()
    parameters = list(module.parameters())
    ready = []
    for i, parameter in enumerate(parameters):
        parameter.register_post_accumulate_grad_hook(lambda _, i=i: ready.append(i))
    module(**batch_of(name, 0, 0))["loss"].backward()
    return {"numel": [p.numel() for p in parameters], "dtype": "float32", "readiness": ready}


def main():
    records = []
    for wrapper in sys.argv[1:] or WRAPPERS:
        family = wrapper.split("_")[0]
        package = PACKAGE_OF.get(family, family)
        try:
            importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            print(f"{package} is not installed", file=sys.stderr)
            continue
        ports = free_ports(len(list(WRAPPERS[wrapper][2]())))
        records += run_on_ranks(record, 2, wrapper, ports, grouped=False)[0]
    references = [r for r in records if r["wrapper"] == "plain" and "logging" in r]
    for each in records:
        if "logging" in each and each["wrapper"] != "plain":
            each["equals_plain"] = [r["typed"] for r in references if plan_of(r) == plan_of(each)]

    if sys.argv[1:]:
        print("\n".join(json.dumps(each, separators=(",", ":")) for each in records))
        return
    versions = {"python": sys.version.split()[0]}
    for package in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    provenance = {"versions": versions, "date": DATE, "command": "python3 record_wrappers.py"}
    read = json.loads((DATA / "wrappers.json").read_text())["read"]
    write_json(DATA / "wrappers.json", {**provenance, **texts_of("wrappers.json")},
               {name: describe_model(name) for name in MODELS}, records, read)


if __name__ == "__main__":
    main()
