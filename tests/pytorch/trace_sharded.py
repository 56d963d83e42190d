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
import importlib.util
import re
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve()
sys.path[:0] = [str(HERE.parent), str(HERE.parents[1] / "data/traces")]
from record_sharded import MODELS, SKIPPED, run_on_ranks, trainings  # noqa: E402

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


def trace(training, file):
    import make_traces
    from torch.profiler import ProfilerActivity, profile, schedule

    training.set_prefetch()
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


def trace_all(rank, ranks, folder, everything):
    import sharded_models

    models = {model: sharded_models.MODELS[model] for model in MODELS}
    models["wide"] = (make_wide, *models["decoder"][1:])

    def wanted(model, name):
        return everything or name in STORED.get(model, ())

    for model, name, training in trainings(ranks, models, wanted):
        file = file_of(model, name, rank)
        trace(training, Path(folder) / file if file else None)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--all", action="store_true")
    options = parser.parse_args()
    if importlib.util.find_spec("torch") is None:
        print("skipped: no PyTorch", file=sys.stderr)
        return SKIPPED
    options.output.mkdir(parents=True, exist_ok=True)
    for ranks in (2, 4):
        run_on_ranks(trace_all, ranks, str(options.output.resolve()), options.all)
    return 0


if __name__ == "__main__":
    sys.exit(main())
