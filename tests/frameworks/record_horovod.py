#!/usr/bin/env python3
"""Records which gradients Horovod's background thread fuses, on two Gloo ranks of this machine.

usage: record_horovod.py

Writes ../data/frameworks/horovod.json. Needs Horovod with PyTorch and Gloo; 0.28.1 builds with PyTorch 1.13, not with 2:

    HOROVOD_WITH_PYTORCH=1 HOROVOD_WITHOUT_MPI=1 HOROVOD_WITH_GLOO=1 pip install horovod==0.28.1

A cycle takes a tenth of a second, so that a backward pass of a small model is handed over within one: fusion then
depends on sizes and order alone. Horovod's own timeline watches three passes of each case; a pass that falls into two
cycles does not count.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve()
THRESHOLDS = (512, 2_000, 4_224, 10_000, 40_000, 300_000, 134_217_728)
CYCLE_MS = 100
PASSES = 3


def record(folder):
    """In one of two processes, with one threshold."""
    sys.path.insert(0, str(HERE.parent))
    import horovod.torch as hvd
    import torch
    from models import models

    hvd.init()
    torch.set_num_threads(1)
    found = {}
    for name, (make_model, make_batch, loss) in models().items():
        model = make_model()
        parameters = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
        if any(p.dtype == torch.bfloat16 for _, p in parameters):
            continue  # which it does not take from PyTorch
        trained = torch.optim.SGD([p for _, p in parameters], lr=0.0)
        optimizer = hvd.DistributedOptimizer(trained, named_parameters=parameters)
        index = {f"allreduce.{n}": i for i, (n, _) in enumerate(parameters)}
        passes = []
        for number in range(1 + PASSES):
            file = str(Path(folder, f"{name}.{number}.{hvd.rank()}.json"))
            if hvd.rank() == 0 and number > 0:  # the first one fills the cache of responses
                hvd.start_timeline(file, mark_cycles=True)
                time.sleep(2.5e-3 * CYCLE_MS)  # it begins between two cycles
            hvd.barrier()
            optimizer.zero_grad()
            loss(model, make_batch(hvd.rank(), number)).backward()
            optimizer.synchronize()
            if hvd.rank() == 0 and number > 0:
                hvd.stop_timeline()
                time.sleep(2.5e-3 * CYCLE_MS)
                passes.append(what_was_fused(Path(file), index))
        dtypes = [str(p.dtype).replace("torch.", "") for _, p in parameters]
        found[name] = {"numel": [p.numel() for _, p in parameters], "dtype": dtypes, "passes": passes}
    if hvd.rank() == 0:
        Path(folder, "found.json").write_text(json.dumps(found))
    hvd.shutdown()


def what_was_fused(file, index):
    """The order of handing over gradients, and the groups, from a timeline."""
    text = file.read_text().rstrip().rstrip(",")
    events = json.loads(text if text.endswith("]") else text + "]")
    lanes, order, groups, open_group = {}, [], [], []
    cycles = 0
    for event in events:
        if event.get("name") == "process_name":
            lanes[event["pid"]] = index.get(event["args"].get("name"))
        name, gradient = event.get("name", ""), lanes.get(event.get("pid"))
        if name == "CYCLE_START" and order and len(order) < len(index):
            cycles += 1  # before all were handed over
        if gradient is None:
            continue
        if name.startswith("NEGOTIATE_ALLREDUCE") and event["ph"] == "B":
            order.append(gradient)
        elif name == "GLOO_ALLREDUCE" and event["ph"] == "B":
            open_group.append(gradient)
        elif event["ph"] == "E" and open_group:
            groups.append(open_group)
            open_group = []
    return {"order": order, "groups": groups, "whole": cycles == 0}


def main():
    if len(sys.argv) == 2:
        return record(sys.argv[1])
    described, cases = {}, []
    version = subprocess.run(
        [sys.executable, "-c", "import horovod, torch; print(horovod.__version__, torch.__version__)"],
        capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    for threshold in THRESHOLDS:
        with tempfile.TemporaryDirectory() as folder:
            variables = {**os.environ, "HOROVOD_FUSION_THRESHOLD": str(threshold), "HOROVOD_CYCLE_TIME": str(CYCLE_MS)}
            variables["HOROVOD_TIMELINE"] = "DYNAMIC"
            launch = [sys.executable, "-m", "horovod.runner.launch", "-np", "2", "--gloo", "--network-interface", "lo"]
            subprocess.run([*launch, sys.executable, str(HERE), folder], env=variables, check=True)
            found = json.loads(Path(folder, "found.json").read_text())
        for name, model in found.items():
            whole = [one for one in model["passes"] if one["whole"]]
            if not whole:
                sys.exit(f"record_horovod: {name}, {threshold}: no pass within one cycle: {model['passes']}")
            distinct = Counter(json.dumps([one["order"], one["groups"]]) for one in whole)
            (text, count), *others = distinct.most_common()
            assert not others, f"{name}, {threshold}: {distinct}"
            order, groups = json.loads(text)
            about = {"numel": model["numel"], "dtype": model["dtype"], "readiness": order}
            assert described.setdefault(name, about) == about, f"{name}: {about}, before {described[name]}"
            cases.append({"model": name, "threshold": threshold, "fused": groups, "passes": count})
    from recording import DATA, DATE, texts_of, write_json

    provenance = {"horovod": version[0], "torch": version[1], "date": DATE, "command": "python3 record_horovod.py"}
    write_json(DATA / "horovod.json", {**provenance, **texts_of("horovod.json")}, described, cases)


if __name__ == "__main__":
    main()
