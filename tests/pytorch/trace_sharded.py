#!/usr/bin/env python3
"""Writes profiler traces of real FSDP2 steps: tests/data/fsdp2/traces, of cases that were recorded in tests/data/fsdp2.

usage: trace_sharded.py -o FOLDER [--all: every case of every model, and not only those that are stored]

Ranks are processes of this machine and meet over Gloo. Rank 0's trace of three
settled steps of each case goes to FOLDER/MODEL_CASE.json.gz, without the parts that no reader of traces needs, as in
tests/data/traces/make_traces.py. A wide decoder, whose steps are long enough to compare times, has traces of every rank
in FOLDER/wide_CASE.RANK.json.gz.
Times differ each time; nothing else does. Skipped (exit code 77) without a PyTorch that has fully_shard.
"""

import argparse
import datetime
import importlib.util
import os
import re
import sys
import tempfile
from pathlib import Path
from subprocess import Popen

HERE = Path(__file__).resolve()
sys.path.insert(0, str(HERE.parent))
sys.path.insert(0, str(HERE.parents[1] / "data/traces"))
from record_sharded import LONGEST_S, MODELS, SKIPPED, Training, cases, groups_in_turn, set_prefetch  # noqa: E402
from two_ranks import code_of  # noqa: E402

STORED = {
    "perceptron": (
        "one layer per group",
        "two layers per group",
        "kept after forward",
        "the root resharded too",
        "forward prefetch of 2",
        "backward prefetch of 2",
        "asynchronous unshard, prefetch of 1",
        "bfloat16, reduced in float32",
        "reduced in bfloat16",
        "two reduce-scatter buffers",
        "accumulated, reduced each time",
        "accumulated, reduced at last, gathered once",
        "hybrid",
    ),
    "decoder": ("ends in groups of their own",),
    "nested": ("one layer per group",),
    "wide": ("one layer per group", "kept after forward"),
}
SETTLED, STEPS = 4, 3


def trace(make, blocks, ranks, case, file):
    import make_traces
    from sharded_recorder import Recorder
    from torch.profiler import ProfilerActivity, profile, schedule

    _, _, sharding, micro_steps = case
    training = Training(make, blocks, ranks, sharding, micro_steps)
    training.step()
    first = Recorder(training.model, training.groups)
    with first.watching():
        training.step(first)
    order = {way: groups_in_turn(first, way) for way in ("forward", "backward")}
    set_prefetch(training.model, training.groups, sharding, order)
    plan = schedule(wait=SETTLED - 1, warmup=1, active=STEPS, repeat=1)
    with profile(activities=[ProfilerActivity.CPU], schedule=plan, record_shapes=True) as profiler:
        for _ in range(SETTLED + STEPS):
            training.step()
            profiler.step()
    if file is not None:
        with tempfile.TemporaryDirectory() as scratch:
            raw = Path(scratch) / "trace.json"
            profiler.export_chrome_trace(str(raw))
            make_traces.write(raw, file)


def file_of(model, name, rank):
    """Returns nothing for a rank whose trace is not kept."""
    file = f"{model}_{re.sub('[^a-z0-9]+', '_', name)}"
    return f"{file}.{rank}.json.gz" if model == "wide" else f"{file}.json.gz" if rank == 0 else None


def make_wide():
    import sharded_models
    import torch

    class Wide(sharded_models.Decoder):
        VOCABULARY, WIDTH, TOKENS, HEADS = 512, 192, 64, 4

        def example(self):
            return (torch.randint(self.VOCABULARY, (8, self.TOKENS)),)

    return Wide()


def run_rank(rank, ranks, store, folder, everything):
    os.environ.update(OMP_NUM_THREADS="1", CUDA_VISIBLE_DEVICES="", GLOO_SOCKET_IFNAME="lo")
    import sharded_models
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=ranks, timeout=datetime.timedelta(minutes=2)
    )
    models = {model: sharded_models.MODELS[model] for model in MODELS}
    models["wide"] = (make_wide, *models["decoder"][1:])
    for model, (make, blocks, child, ends) in models.items():
        for case in cases(blocks, child, ends):
            wanted = everything or case[0] in STORED.get(model, ())
            # BatchNorm of a CPU takes no parameters that are narrower than its statistics.
            if not wanted or case[1] != ranks or (model == "convolutional" and "parameter_dtype" in case[2]):
                continue
            file = file_of(model, case[0], rank)
            trace(make, blocks, ranks, case, folder / file if file else None)
    dist.barrier()
    os._exit(0)


def run_ranks(ranks, folder, everything):
    with tempfile.TemporaryDirectory() as scratch:
        extra = ["--all"] if everything else []
        command = [sys.executable, str(HERE), "-o", str(folder), *extra, "--store", f"{scratch}/store"]
        running = [Popen([*command, "--rank", str(rank), "--ranks", str(ranks)]) for rank in range(ranks)]
        assert code_of(running, LONGEST_S) == 0, "a rank failed"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--store", help=argparse.SUPPRESS)
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--ranks", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank is not None:
        run_rank(options.rank, options.ranks, options.store, options.output, options.all)
    if importlib.util.find_spec("torch") is None:
        print("skipped: no PyTorch", file=sys.stderr)
        return SKIPPED
    options.output.mkdir(parents=True, exist_ok=True)
    for ranks in (2, 4):
        run_ranks(ranks, options.output, options.all)
    return 0


if __name__ == "__main__":
    sys.exit(main())
