#!/usr/bin/env python3
"""Predicted and measured backward times of PyTorch's DistributedDataParallel, at several bucket caps.

usage: compare_with_ddp.py --bucketwise BINARY [-o FOLDER] [--rounds 12] [--rate 1gbit] [--caps 0.5,1,2,4,8,25,50]
                           [--model perceptron|convolutional|transformer] [--seed 1]
                           [--short: no time is judged, only whether everything fits together]
                           [--compile: the model is under torch.compile, with Inductor]
                           [--again: judge anew what was measured into FOLDER before]

Two ranks of real PyTorch over Gloo, each on a core and in a network namespace of its own, joined by a link that tc's
token bucket filter limits, train a model of 43 to 48 MiB of gradients: a perceptron of 12 layers of 1024 at batch 512,
a residual network of 18 layers at batch 8 and 112 by 112 pixels, or a transformer of 4 layers of 512 at 256 tokens. In
every round, in a seeded random order:

- backward at every cap, with copied buckets and with gradient_as_bucket_view: predicted, never fitted to;
- passes that bucketwise.torch.capture_pytorch watches: without communication (no_sync) and, to see what that changes, with;
- isolated all-reduces, and all-reduces beside backward passes: a log that `bucketwise calibrate` takes;
- backward with buckets that are copied but not sent, which gives the cost of DDP's copies.

Writes into FOLDER what was captured, the log, the link made of it, measured times by round, and comparison.json. Needs
root, ip, tc, unshare and nsenter; skipped (exit code 77), saying why, without them or without PyTorch. Namespaces have
no names: the kernel takes them down with the processes in them, however these end.
"""

import argparse
import contextlib
import csv
import datetime
import importlib.util
import json
import math
import os
import platform
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve()
RANKS = 2  # whoever builds on this module may set others
MIB = 1 << 20
SKIPPED = 77


class Perceptron:
    def __init__(self, short):
        self.layers, self.width, self.batch = (6, 256, 32) if short else (12, 1024, 512)

    def model(self):
        layers = []
        for _ in range(self.layers):
            layers += [torch.nn.Linear(self.width, self.width), torch.nn.ReLU()]
            torch.nn.init.kaiming_normal_(layers[-2].weight, nonlinearity="relu")  # else gradients fade layer by layer
        return torch.nn.Sequential(*layers[:-1])

    def inputs(self):
        return torch.randn(self.batch, self.width)

    def targets(self):
        return torch.randint(self.width, (self.batch,))


class Convolutional:
    """He et al. 2015, 18 layers."""

    def __init__(self, short):
        self.widths, self.batch, self.pixels = ((16, 32), 2, 32) if short else ((64, 128, 256, 512), 8, 112)

    def model(self):
        nn = torch.nn

        def convolution(inputs, outputs, size, stride):
            layer = nn.Conv2d(inputs, outputs, size, stride=stride, padding=size // 2, bias=False)
            return nn.Sequential(layer, nn.BatchNorm2d(outputs))

        class Block(nn.Module):
            def __init__(self, inputs, outputs, stride):
                super().__init__()
                self.first = convolution(inputs, outputs, 3, stride)
                self.second = convolution(outputs, outputs, 3, 1)
                same = inputs == outputs and stride == 1
                self.shortcut = nn.Identity() if same else convolution(inputs, outputs, 1, stride)

            def forward(self, x):
                return torch.relu(self.shortcut(x) + self.second(torch.relu(self.first(x))))

        layers = [convolution(3, self.widths[0], 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
        last = self.widths[0]
        for width in self.widths:
            layers += [Block(last, width, 1 if width == last else 2), Block(width, width, 1)]
            last = width
        return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(last, 1000))

    def inputs(self):
        return torch.randn(self.batch, 3, self.pixels, self.pixels)

    def targets(self):
        return torch.randint(1000, (self.batch,))


class Transformer:
    """An encoder (Vaswani et al. 2017) that tells the next of 512 words; the embedding is no part of it."""

    def __init__(self, short):
        self.layers, self.width, self.batch, self.tokens = (2, 64, 2, 16) if short else (4, 512, 2, 128)

    def model(self):
        nn = torch.nn
        layers = [
            nn.TransformerEncoderLayer(self.width, 8, 4 * self.width, dropout=0.0, batch_first=True)
            for _ in range(self.layers)
        ]
        return nn.Sequential(*layers, nn.Linear(self.width, 512), nn.Flatten(0, 1))

    def inputs(self):
        return torch.randn(self.batch, self.tokens, self.width)

    def targets(self):
        return torch.randint(512, (self.batch * self.tokens,))


MODELS = {"perceptron": Perceptron, "convolutional": Convolutional, "transformer": Transformer}


class Setup:
    """The training and its measurements."""

    def __init__(self, short, caps, model, compiled):
        self.trained = MODELS[model](short)
        self.compiled = compiled
        # A short run has 1.5 MiB of gradients; its caps make from one to six buckets of them.
        # Under torch.compile none is below 1 MiB.
        self.caps = caps or (
            [1.0, 1.25, 25.0] if short and compiled
            else [0.25, 0.5, 1.0, 25.0] if short
            else [1.0, 6.0, 10.0, 16.0, 25.0] if compiled
            else [0.5, 1.0, 2.0, 4.0, 8.0, 25.0, 50.0]
        )  # fmt: skip
        self.isolated = [1 << s for s in (range(12, 23, 2) if short else (12, 14, 16, 18, 20, 21, 22, 23, 24, 25, 26))]
        self.contended = [1 << 16] if short else [1 << 20, 1 << 22, 1 << 24]
        self.passes = 2  # watched by each capture in each round


# --- one rank ---


class Rank:
    """Two of these meet, and do the same things in the same order."""

    def __init__(self, rank, setup, rounds, folder):
        self.join(rank, setup, rounds, folder)
        self.wrapped = self.wrap_all()
        # The finest pieces tell all others.
        self.watched = self.wrap(**({"bucket_cap_mb": 1} if setup.compiled else {}))
        capture(self.watched, folder / "captured.json", steps=(setup.passes + 1) * rounds, warmup=setup.passes + 1)
        self.disturbed = self.wrap(**({"bucket_cap_mb": 1} if setup.compiled else {}))
        capture(self.disturbed, folder / "disturbed.json", steps=setup.passes * rounds, warmup=setup.passes)
        self.unsent = self.wrap()
        self.unsent.register_comm_hook(None, unsent)
        capture(self.unsent, folder / "unsent.json", steps=setup.passes * rounds, warmup=setup.passes)

    def join(self, rank, setup, rounds, folder):
        os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[rank % len(os.sched_getaffinity(0))]})
        sys.path.insert(0, str(HERE.parents[2] / "python"))
        global torch, dist, DistributedDataParallel, capture
        import torch
        import torch.distributed as dist
        from bucketwise.torch.capture_pytorch import capture
        from torch.nn.parallel import DistributedDataParallel

        torch.set_num_threads(1)
        torch.set_flush_denormal(True)
        torch.manual_seed(rank)
        dist.init_process_group("gloo", rank=rank, world_size=RANKS, timeout=datetime.timedelta(minutes=3))
        self.rank, self.setup, self.rounds, self.folder = rank, setup, rounds, folder
        self.inputs, self.targets = setup.trained.inputs(), setup.trained.targets()
        self.called = {}  # torch.compile's module by the one in it
        self.alone = self.model()  # outside of DDP
        self.called[self.alone] = self.compiled(self.alone)
        self.processor_shares = []  # of its core, what computing alone got

    def model(self):
        model = self.setup.trained.model()
        return inside(model) if self.setup.compiled else model

    def compiled(self, module):
        if not self.setup.compiled:
            return module
        # Every model is compiled by itself, and those that are watched once more.
        torch._dynamo.config.recompile_limit = torch._dynamo.config.accumulated_recompile_limit = 1000
        return torch.compile(module)

    def wrap(self, **options):
        wrapped = DistributedDataParallel(self.model(), **options)
        self.called[wrapped] = self.compiled(wrapped)
        return wrapped

    def wrap_all(self):
        """Returns the judged models by the arguments of judged()."""
        return {
            (views, cap): self.wrap(bucket_cap_mb=cap, gradient_as_bucket_view=views)
            for views in (False, True)
            for cap in self.setup.caps
        }

    def warm_up(self):
        """DDP forms its final buckets after the first."""
        for model in self.wrapped.values():
            for _ in range(2):
                self.loss(model).backward()

    def described(self):
        return {
            "buckets": [
                {"views": views, "cap_mib": cap, "bucket_bytes": bucket_bytes(model)}
                for (views, cap), model in self.wrapped.items()
            ]
        }

    def loss(self, model):
        model.zero_grad(set_to_none=True)
        return torch.nn.functional.cross_entropy(self.called[model](self.inputs), self.targets)

    def backward_ms(self, model):
        """The slowest rank's time, all starting at once."""
        loss = self.loss(model)
        dist.barrier()
        begin = time.perf_counter()
        loss.backward()
        return self.by_rank(1e3 * (time.perf_counter() - begin))

    def by_rank(self, *values):
        mine = torch.tensor(values, dtype=torch.float64)
        all_ranks = [torch.empty_like(mine) for _ in range(RANKS)]
        dist.all_gather(all_ranks, mine)
        return [values.tolist() for values in all_ranks]

    def slowest(self, values):
        return [max(each) for each in zip(*self.by_rank(*values))]

    def all_reduce_us(self, message, count):
        times = []
        for _ in range(count):
            begin = time.perf_counter()
            dist.all_reduce(message)
            times.append(1e6 * (time.perf_counter() - begin))
        return times

    def queued_all_reduces_us(self, size, count):
        """From end to end, with the next one always under way: as DDP hands its buckets to Gloo, which runs two at a
        time, so that while one waits for a processor the other uses the link."""
        messages = [torch.zeros(size // 4) for _ in range(2)]
        works = [dist.all_reduce(message, async_op=True) for message in messages]
        ends = []
        for i in range(count + 2):
            works[i % 2].wait()
            ends.append(time.perf_counter())
            works[i % 2] = dist.all_reduce(messages[i % 2], async_op=True)
        for work in works:
            work.wait()
        # Two that share the link end together, so from the end of one to that of the next but one there are two.
        return [1e6 * (after - before) / 2 for before, after in zip(ends, ends[2:])]

    # Each of these measures one thing once, and gives what to write of it.

    def judged(self, views, cap):
        backward = [each[0] for each in self.backward_ms(self.wrapped[views, cap])]
        return {"views": int(views), "cap_mib": cap, **{f"rank{r}_ms": round(ms, 4) for r, ms in enumerate(backward)}}

    def capture(self):
        with self.watched.no_sync():
            for _ in range(self.setup.passes):
                dist.barrier()
                self.loss(self.watched).backward()
        self.loss(self.watched).backward()  # gives its settings and buckets, not its times
        for model in (self.disturbed, self.unsent):
            for _ in range(self.setup.passes):
                self.backward_ms(model)

    def isolated(self, size):
        message = torch.zeros(size // 4)
        count = 20 if size <= 1 << 16 else 10 if size <= 1 << 20 else 3 if size <= 1 << 24 else 1
        dist.barrier()
        self.all_reduce_us(message, 1)
        return {
            "kind": "allreduce",
            **transport(),
            "bytes": size,
            "dtype": "float32",
            "samples_us": self.slowest(self.all_reduce_us(message, count)),
            "largest_difference": 0.0,
            "peak_memory_bytes": 0,
        }

    def contended(self, size):
        """All-reduces one after another on threads of their own, while this one runs backward over and over."""
        loss = self.loss(self.alone)

        def backward_us():
            self.alone.zero_grad(set_to_none=True)
            begin = time.perf_counter()
            loss.backward(retain_graph=True)
            return 1e6 * (time.perf_counter() - begin)

        backward_us()
        dist.barrier()
        processor_us = -1e6 * time.thread_time()
        times = [backward_us() for _ in range(2)]
        self.processor_shares.append((processor_us + 1e6 * time.thread_time()) / sum(times))
        alone = statistics.median(times)
        reduce_alone = self.slowest(self.queued_all_reduces_us(size, 5))
        # Enough for some three backward passes; the same number on all ranks.
        count = self.slowest([math.ceil(3 * alone / statistics.median(reduce_alone))])[0]
        reduce_disturbed, disturbed = [], []
        dist.barrier()
        thread = threading.Thread(target=lambda: reduce_disturbed.extend(self.queued_all_reduces_us(size, int(count))))
        thread.start()
        while thread.is_alive():
            took = backward_us()
            if thread.is_alive():  # else they stopped in between
                disturbed.append(took)
        thread.join()
        computing = self.by_rank(len(disturbed) * alone, sum(disturbed))
        return {
            "kind": "contention",
            **transport(),
            "bytes": size,
            "dtype": "float32",
            "allreduce_alone_us": reduce_alone,
            "allreduce_disturbed_us": self.slowest(reduce_disturbed),
            "compute_alone_us": [a for a, _ in computing],
            "compute_disturbed_us": [d for _, d in computing],
        }

    def run(self, seed):
        setup, order = self.setup, random.Random(seed)
        work = [lambda k=key: ("backward", self.judged(*k)) for key in self.wrapped]
        work += [lambda s=size: ("log", self.isolated(s)) for size in setup.isolated]
        work += [lambda s=size: ("log", self.contended(s)) for size in setup.contended]
        work.append(lambda: ("captured", self.capture()))
        self.warm_up()
        found = {"backward": [], "log": [environment(seed, self.rounds)]}
        for number in range(-1, self.rounds):  # the first one warms up
            order.shuffle(work)
            for item in work:
                kind, record = item()
                if number >= 0 and record is not None:
                    found[kind].append({**record, "round": number})
            if self.rank == 0:
                show_progress(number + 1, self.rounds)
        if self.rank == 0:
            write_lines(self.folder / "log.jsonl", found["log"])
            write_csv(self.folder / "backward.csv", found["backward"])
            share = statistics.median(self.processor_shares)
            write_json(
                self.folder / "ddp.json", {"torch": torch.__version__, "processor_share": share, **self.described()}
            )
        dist.barrier()
        dist.destroy_process_group()


def inside(model):
    """torch.compile skips the forward() of a bare Sequential, and so all that it does."""

    class Inside(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, x):
            return self.model(x)

    return Inside()


def unsent(_, bucket):
    """A communication hook that returns every bucket unchanged."""
    done = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done


def bucket_bytes(model):
    return [int(size) for size in model._get_ddp_logging_data()["rebuilt_bucket_sizes"].split(",")]


def transport():
    return {"backend": "gloo", "algorithm": "ring", "implementation": "library", "ranks": RANKS}


def environment(seed, rounds):
    cpu = next(
        (
            line.split(":")[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        "",
    )
    return {
        "kind": "environment",
        **transport(),
        "bucketwise": "",
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "command": ["compare_with_ddp.py"],
        "cpu": cpu,
        "cores": os.cpu_count(),
        "kernel": f"{platform.system()} {platform.release()}",
        "compiler": "",
        "gpu_libraries": "",
        "libraries": f"PyTorch {torch.__version__}",
        "hosts": 1,
        "link_rate": os.environ["COMPARE_RATE"],
        "seed": seed,
        "rounds": rounds,
        "gradients": [],
        "forward_operations": [],
        "backward_operations": [],
        "scenario": None,
        "scheduling": "each rank on a core of its own",
    }


def run_rank(options):
    # Without the process that started it there is nobody left to report to.
    threading.Thread(target=lambda: (sys.stdin.buffer.read(), os._exit(1)), daemon=True).start()
    Rank(options.rank, Setup(options.short, options.caps, options.model, options.compile), options.rounds, Path(options.output)).run(options.seed)
    os._exit(0)  # Gloo's threads and a half-closed store have nothing left to say


# --- two ranks and what joins them ---


@contextlib.contextmanager
def network(rate):
    """By rank the prefix of commands in its namespace, all joined."""
    holders = [
        subprocess.Popen(["unshare", "--net", "cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        for _ in range(RANKS + (RANKS > 2))  # the last one holds a bridge
    ]
    try:
        for holder in holders:
            wait_for_namespace(holder)
        enter = [["nsenter", "--target", str(holder.pid), "--net"] for holder in holders]
        # Frames, bursts and queues as `bucketwise measure --link-rate` has them (hw/launch/shaped_network.cpp).
        packet = min(max(round(bits_per_second(rate) / 8 * 500e-6), 9014), 65536)
        burst = packet + 9014 + round(bits_per_second(rate) / 8 * 100e-6)
        join(holders, enter)
        enter = enter[:RANKS]
        for rank, prefix in enumerate(enter):
            address = address_of(rank)
            run(*prefix, "ip", "link", "set", "dev", "lo", "up")
            run(*prefix, "ip", "link", "set", "dev", "eth0", "gso_max_size", str(packet))
            run(*prefix, "ip", "address", "add", f"{address}/24", "dev", "eth0")
            run(*prefix, "ip", "link", "set", "dev", "eth0", "up")
            # Linux's default. With BBR, which this machine may have instead, large all-gathers took one of two times,
            # the longer one half as long again, as its probing had it.
            subnet = f"{address.rpartition('.')[0]}.0/24"
            run(*prefix, "ip", "route", "replace", subnet, "dev", "eth0", "src", address, "congctl", "cubic")
            run(
                *prefix,
                "tc",
                "qdisc",
                "add",
                "dev",
                "eth0",
                "root",
                "tbf",
                "rate",
                rate,
                "burst",
                str(burst),
                "limit",
                str(8 * MIB),
            )
        yield enter
    finally:
        for holder in holders:
            holder.kill()
            holder.wait()


def address_of(rank):
    return f"10.77.0.{rank + 1}"


def join(holders, enter):
    """Two by a cable, more by a bridge in the last namespace."""
    jumbo = ("mtu", "9000", "netns")
    if RANKS == 2:
        first, second = (str(holder.pid) for holder in holders)
        run("ip", "link", "add", "name", "eth0", *jumbo, first, "type", "veth", "peer", "name", "eth0", *jumbo, second)
        return
    hub, bridge = enter[-1], str(holders[-1].pid)
    run(*hub, "ip", "link", "add", "name", "bridge", "mtu", "9000", "type", "bridge")
    run(*hub, "ip", "link", "set", "dev", "bridge", "up")
    for rank in range(RANKS):
        own, port = str(holders[rank].pid), f"port{rank}"
        run("ip", "link", "add", "name", "eth0", *jumbo, own, "type", "veth", "peer", "name", port, *jumbo, bridge)
        run(*hub, "ip", "link", "set", "dev", port, "master", "bridge", "up")


def wait_for_namespace(holder):
    own = os.readlink("/proc/self/ns/net")
    for _ in range(500):
        if holder.poll() is not None:
            raise Skip("a network namespace cannot be made here")
        if os.readlink(f"/proc/{holder.pid}/ns/net") != own:
            return
        time.sleep(0.01)
    raise Skip("a network namespace cannot be made here")


def bits_per_second(rate):
    for unit, factor in (("gbit", 1e9), ("mbit", 1e6), ("kbit", 1e3)):
        if rate.endswith(unit):
            return float(rate[: -len(unit)]) * factor
    sys.exit(f"compare_with_ddp: --rate: expected a rate such as 1gbit or 300mbit, got {rate}")


def run_ranks(options, folder):
    arguments = ["--rounds", options.rounds, "--seed", options.seed, "--model", options.model, "-o", folder]
    arguments += ["--short"] if options.short else []
    arguments += ["--compile"] if options.compile else []
    arguments += ["--caps", ",".join(map(str, options.caps))] if options.caps else []
    run_script(HERE, arguments, options.rate)


def run_script(script, arguments, rate):
    """Once with each --rank, each on a link of its own."""
    arguments = [sys.executable, *map(str, [script, *arguments])]
    variables = {
        **os.environ,
        "MASTER_ADDR": address_of(0),
        "MASTER_PORT": "29500",
        "GLOO_SOCKET_IFNAME": "eth0",
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "COMPARE_RATE": rate,
    }
    with network(rate) as enter:
        ranks = [
            subprocess.Popen([*prefix, *arguments, "--rank", str(rank)], env=variables, stdin=subprocess.PIPE)
            for rank, prefix in enumerate(enter)
        ]
        try:
            while any(rank.poll() is None for rank in ranks):
                if any(rank.poll() for rank in ranks):
                    sys.exit("compare_with_ddp: a rank failed")
                time.sleep(0.1)
        finally:
            for rank in ranks:
                rank.kill()
                rank.wait()
    if any(rank.returncode for rank in ranks):
        sys.exit("compare_with_ddp: a rank failed")


# --- predicted beside measured ---


def calibrated_link(binary, folder, log="log.jsonl"):
    """Writes link.json, and returns it."""
    run(binary, "calibrate", folder / log, "-o", folder / "link.json", "--fit", folder / "fit.json")
    link = json.loads((folder / "link.json").read_text())
    link["copy_gb_per_s"] = json.loads((folder / "unsent.json").read_text())["cluster"]["link"]["copy_gb_per_s"]
    write_json(folder / "link.json", link)
    return link


def judge(options, folder):
    """Writes link.json and comparison.json; returns the latter."""
    binary = options.bucketwise
    link = calibrated_link(binary, folder)
    bare = {key: value for key, value in link.items() if key not in ("copy_gb_per_s", "interference")}
    links = {
        "link": link,
        "without interference": {**bare, "copy_gb_per_s": link["copy_gb_per_s"]},
        "without interference and copies": bare,
    }
    measured = read_measured(folder / "backward.csv")
    ddp = json.loads((folder / "ddp.json").read_text())
    caps = sorted({cap for _, cap in measured})
    provenance = link["provenance"]
    comparison = {
        "machine": f"{provenance['hardware']}; {provenance['versions']}; {provenance['date']}",
        "torch": ddp["torch"],
        "model": options.model,
        "compiled": options.compile,
        "processor_share": ddp["processor_share"],
        "rounds": options.rounds,
        "rate": options.rate,
        "cases": [],
    }
    with tempfile.TemporaryDirectory() as name:
        for views in (False, True):
            predicted = {}
            for kind, parameters in links.items():
                write_json(Path(name) / "link.json", parameters)
                predicted[kind] = predict(binary, folder / "captured.json", Path(name) / "link.json", views, caps)
            write_json(Path(name) / "link.json", links["without interference"])
            predicted["captured with communication"] = predict(
                binary, folder / "disturbed.json", Path(name) / "link.json", views, caps
            )
            for bucket in ddp["buckets"]:
                if bucket["views"] == views:
                    expected = predicted["link"][bucket["cap_mib"]]["bucket_bytes"]
                    what = f"cap {bucket['cap_mib']} MiB, views {views}: DDP's buckets are {bucket['bucket_bytes']}"
                    assert bucket["bucket_bytes"] == expected, f"{what}, predicted {expected}"
            comparison["cases"].append(case(views, caps, measured, predicted, random.Random(options.seed)))
    write_json(folder / "comparison.json", comparison)
    return comparison


def predict(binary, scenario, link, views, caps):
    """By cap."""
    text = run(
        binary,
        "predict",
        scenario,
        "--link",
        link,
        "--set",
        "/step/accumulation=1",
        "--set",
        f"/sync/views={'true' if views else 'false'}",
        "--bucket-cap",
        ",".join(f"{cap:g}MiB" for cap in caps),
        "--json",
        "-",
    )
    rows = {row["bucket_cap_mib"]: row for row in json.loads(text)["sweep"]}
    return {cap: rows[cap] for cap in caps}


def case(views, caps, measured, predicted, draws):
    medians = {cap: statistics.median(measured[views, cap]) for cap in caps}
    intervals = {cap: bootstrap(measured[views, cap], draws) for cap in caps}
    points = [
        {
            "bucket_cap_mib": cap,
            "buckets": predicted["link"][cap]["buckets"],
            "measured_backward_ms": medians[cap],
            "measured_interval_ms": intervals[cap],
            "predicted_backward_ms": predicted["link"][cap]["backward_ms"],
            "error": predicted["link"][cap]["backward_ms"] / medians[cap] - 1,
        }
        for cap in caps
    ]
    # The decision is a bucket plan: caps with the same plan are one step, measured several times.
    plans = {}
    for cap in caps:
        plans.setdefault(tuple(predicted["link"][cap]["bucket_bytes"]), []).append(cap)
    by_plan = {
        plan: statistics.median(ms for cap in same for ms in measured[views, cap]) for plan, same in plans.items()
    }
    chosen = min(caps, key=lambda cap: predicted["link"][cap]["backward_ms"])
    fastest = min(by_plan, key=by_plan.get)
    return {
        "views": views,
        "points": points,
        "mape": mape(predicted["link"], medians),
        "mape_of_less": {kind: mape(by_cap, medians) for kind, by_cap in predicted.items() if kind != "link"},
        "predicted_best_mib": chosen,
        "measured_best_mib": plans[fastest][0],
        "regret": by_plan[tuple(predicted["link"][chosen]["bucket_bytes"])] / by_plan[fastest] - 1,
        "noise_floor": statistics.median((high - low) / 2 / medians[cap] for cap, (low, high) in intervals.items()),
    }


def mape(predicted, measured):
    return statistics.mean(abs(predicted[cap]["backward_ms"] / measured[cap] - 1) for cap in measured)


def bootstrap(values, draws):
    """95 % interval of the median over rounds."""
    medians = sorted(statistics.median(draws.choices(values, k=len(values))) for _ in range(1000))
    return [medians[25], medians[974]]


def read_measured(file):
    """Backward of the slowest rank in ms, by views and cap."""
    measured = {}
    with open(file) as lines:
        for row in csv.DictReader(lines):
            slowest = max(float(row[f"rank{rank}_ms"]) for rank in range(RANKS))
            measured.setdefault((row["views"] == "1", float(row["cap_mib"])), []).append(slowest)
    return measured


def report(comparison):
    model = comparison["model"] + (", compiled" if comparison.get("compiled") else "")
    print(f"PyTorch {comparison['torch']}, {model}, {RANKS} ranks, Gloo, {comparison['rate']}, {comparison['rounds']} rounds\n")
    if comparison["processor_share"] < 0.98:
        share = 100 * comparison["processor_share"]
        print(f"Other programs ran: computing got {share:.0f} % of its core. Times below tell little.\n")
    for one in comparison["cases"]:
        print("gradient_as_bucket_view" if one["views"] else "copied buckets", end="\n\n")
        print("| cap, MiB | buckets | measured, ms | 95 % | predicted, ms | error |\n|---|---|---|---|---|---|")
        for p in one["points"]:
            low, high = p["measured_interval_ms"]
            measured = f"{p['measured_backward_ms']:.1f} | {low:.1f} to {high:.1f}"
            predicted = f"{p['predicted_backward_ms']:.1f} | {100 * p['error']:+.1f} %"
            print(f"| {p['bucket_cap_mib']:g} | {p['buckets']} | {measured} | {predicted} |")
        less = ", ".join(f"{kind} {100 * value:.1f} %" for kind, value in one["mape_of_less"].items())
        print(f"\nMAPE {100 * one['mape']:.1f} % ({less}), noise floor {100 * one['noise_floor']:.1f} %")
        best = f"predicted {one['predicted_best_mib']:g}, measured {one['measured_best_mib']:g} MiB (of equal plans)"
        print(f"best cap {best}, regret {100 * one['regret']:.1f} %\n")


def check(comparison, folder):
    """Asserts that a short run is complete; times are not judged."""
    captured = json.loads((folder / "captured.json").read_text())
    if comparison["model"] == "perceptron":
        layers, width = Perceptron(True).layers, Perceptron(True).width
        assert [g["numel"] for g in captured["workload"]["gradients"]] == [width * width, width] * layers
        weights = [g["ready_ms"] for g in captured["workload"]["gradients"]][::2]
        assert weights == sorted(weights, reverse=True), f"the last layer's gradient is ready first, got {weights}"
    for one in comparison["cases"]:
        assert all(math.isfinite(p["error"]) and p["measured_backward_ms"] > 0 for p in one["points"])
        assert len({p["buckets"] for p in one["points"]}) > 1, "caps that make a difference"
    if importlib.util.find_spec("matplotlib") is not None:
        draw = HERE.parents[2] / "plots" / "backward_by_cap.py"
        run(sys.executable, draw, folder / "comparison.json", folder / "backward")
        assert (folder / "backward.png").stat().st_size > 5_000
    log = json.loads((folder / "captured.ddp.json").read_text())
    assert log["backend_name"] == "gloo" and log["world_size"] == RANKS


# --- small things ---


class Skip(Exception):
    pass


def require():
    if importlib.util.find_spec("torch") is None:
        raise Skip("PyTorch is not installed for this Python")
    if os.geteuid() != 0:
        raise Skip("needs root, for network namespaces")
    for program in ("ip", "tc", "unshare", "nsenter"):
        if shutil.which(program) is None:
            raise Skip(f"needs the program {program}")
    probe = subprocess.run(
        [sys.executable, "-c", "import torch.distributed as d, sys; sys.exit(not d.is_available())"],
        capture_output=True,
        text=True,
    )
    if probe.returncode != 0:
        raise Skip(f"PyTorch has no torch.distributed here {probe.stderr.strip()[-200:]}")


def run(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"compare_with_ddp: {' '.join(map(str, command))}: {done.stderr.strip()}")
    return done.stdout


def show_progress(done, all_of_them):
    if sys.stderr.isatty():
        print(f"\rround {done} of {all_of_them}", end="\n" if done == all_of_them else "", file=sys.stderr, flush=True)


def write_json(path, document):
    path.write_text(json.dumps(document, indent=1) + "\n")


def write_lines(path, records):
    path.write_text("".join(json.dumps(record, separators=(",", ":")) + "\n" for record in records))


def write_csv(path, rows):
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=["round", *(key for key in rows[0] if key != "round")])
        writer.writeheader()
        writer.writerows(rows)


def caps_in_mib(text):
    caps = sorted({float(cap) for cap in text.split(",")})
    if not 0 < caps[0] <= caps[-1] < 1e6:
        raise ValueError(text)
    return caps


def parse():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--bucketwise")
    parser.add_argument("-o", "--output")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--rate", default="1gbit")
    parser.add_argument("--caps", type=caps_in_mib)
    parser.add_argument("--model", choices=MODELS, default="perceptron")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.rounds = (3 if options.short else 12) if options.rounds is None else options.rounds
    if options.rank is None and options.bucketwise is None:
        parser.error("expected --bucketwise BINARY")
    if options.bucketwise is not None and shutil.which(options.bucketwise) is None:
        parser.error(f"--bucketwise: expected a program, got {options.bucketwise}")
    if options.again:
        stored = Path(options.output or "", "comparison.json")
        if options.output is None or not stored.is_file():
            parser.error(f"--again: expected -o with a folder that was measured into, got no {stored}")
        before = json.loads(stored.read_text())
        options.rounds, options.rate = before["rounds"], before["rate"]
        options.model = before.get("model", options.model)
        options.compile = before.get("compiled", False)
    if options.rounds < 1:
        parser.error(f"--rounds: expected at least 1, got {options.rounds}")
    return options


def main():
    options = parse()
    if options.rank is not None:
        run_rank(options)
    if options.again:
        report(judge(options, Path(options.output)))
        return
    try:
        require()
        with tempfile.TemporaryDirectory() as name:
            folder = Path(options.output or name)
            folder.mkdir(parents=True, exist_ok=True)
            run_ranks(options, folder)
            comparison = judge(options, folder)
            report(comparison)
            if options.short:
                check(comparison, folder)
    except Skip as reason:
        print(f"compare_with_ddp: skipped: {reason}")
        sys.exit(SKIPPED)


if __name__ == "__main__":
    main()
