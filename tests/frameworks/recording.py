"""Watches what a training framework does with its gradients, on a few Gloo ranks of this machine.

    recorder = Recorder()
    recorder.install()      # before the framework is imported: some keep the collectives they found at import
    import framework
    ...
    recorder.watch(model)   # before the framework wraps it, so that a gradient is noted before it is acted upon
    recorder.start()
    ... train one step, with recorder.mark("forward") and so on ...
    events = recorder.stop()

and, around that, main(), which asks versions of a framework for cases, on as many ranks as each wants (tests/on_ranks.py).

The recordings say under "provenance" what their fields and events mean; a new recording takes these texts over.
"""

import argparse
import contextlib
import functools
import inspect
import json
import os
import sys
import traceback
from pathlib import Path

import torch
import torch.distributed as dist

from models import models

DATA = Path(__file__).resolve().parents[1] / "data" / "frameworks"
sys.path.insert(0, str(DATA.parents[1]))

from on_ranks import run_on_ranks  # noqa: E402

DATE = "2026-11-25"  # of the recordings that are stored

# The kinds of events in a list, which has the host's order.
# The name of each collective's largest tensor.
COLLECTIVES = {
    "all_reduce": "tensor",
    "all_reduce_coalesced": "tensors",
    "reduce": "tensor",
    "broadcast": "tensor",
    "all_gather": "tensor_list",
    "_all_gather_base": "output_tensor",
    "all_gather_into_tensor": "output_tensor",
    "reduce_scatter": "input_list",
    "_reduce_scatter_base": "input",
    "reduce_scatter_tensor": "input",
    "all_to_all_single": "input",
    "all_to_all": "input_tensor_list",
    "gather": "gather_list",
    "barrier": None,
}
# Older names for the same two.
BASES = {"_all_gather_base": "all_gather_into_tensor", "_reduce_scatter_base": "reduce_scatter_tensor"}

# The collectives that a coalescing manager holds back until its end.
COALESCED = ("all_reduce", "all_gather_into_tensor", "reduce_scatter_tensor")


def dtype_name(dtype):
    return str(dtype).replace("torch.", "")


def on_final_gradient(parameter, function):
    """Calls function() whenever a backward pass has put parameter's gradient into parameter.grad."""
    if hasattr(parameter, "register_post_accumulate_grad_hook"):
        parameter.register_post_accumulate_grad_hook(lambda _: function())
        return
    node = parameter.expand_as(parameter).grad_fn.next_functions[0][0]  # before PyTorch 2.1
    node.register_hook(lambda *_: function())
    parameter._recorded_node = node  # or its hooks would go with it


class Work:
    """The handle of an asynchronous collective, with its wait() noted."""

    def __init__(self, work, recorder, number):
        self.work, self.recorder, self.number = work, recorder, number

    def wait(self, *arguments, **options):
        self.recorder.add(["wait", self.number])
        return self.work.wait(*arguments, **options)

    def __getattr__(self, name):
        return getattr(self.work, name)


class Recorder:
    def __init__(self):
        self.events = None
        self.depth = 0
        self.asynchronous = 0
        self.coalescing = False
        self.ready = []
        self.used = []

    def start(self):
        self.events, self.ready, self.used, self.asynchronous = [], [], [], 0

    def stop(self):
        """The events since start(); self.ready holds the parameters' numbers in the order they were ready."""
        events, self.events = self.events, None
        return events

    def add(self, event):
        if self.events is not None and self.depth == 0:
            self.events.append(event)

    mark = add

    def watch(self, model):
        """Notes when the gradients of model's parameters, numbered as model.parameters() gives them, are final."""
        for number, parameter in enumerate(model.parameters()):
            if parameter.requires_grad:
                on_final_gradient(parameter, functools.partial(self.add_ready, number))

    def add_ready(self, number):
        self.count(number, self.ready)

    def watch_forward(self, model):
        """Notes when a forward pass comes to a module that has parameters itself: self.used gets their numbers."""
        numbers = {id(p): i for i, p in enumerate(model.parameters())}
        for module in model.modules():
            own = [numbers[id(p)] for p in module.parameters(recurse=False)]
            if own:
                module.register_forward_pre_hook(lambda *_, own=own: self.count(own, self.used))

    def count(self, what, happened):
        if self.events is None:
            return
        happened.append(what)
        if self.events and isinstance(self.events[-1], int):
            self.events[-1] += 1
        else:
            self.events.append(1)

    def mark_autograd(self):
        """Marks the return of each backward pass of autograd, which a framework may call in the middle of its own."""
        backward = torch.Tensor.backward

        def marking(*arguments, **keywords):
            backward(*arguments, **keywords)
            self.mark("autograd")

        torch.Tensor.backward = marking

    def install(self):
        """Puts a noting function in place of each collective of torch.distributed."""
        from torch.distributed import distributed_c10d

        for name, argument in COLLECTIVES.items():
            if hasattr(dist, name):
                noting = self.noting(name, getattr(dist, name), argument)
                setattr(dist, name, noting)
                setattr(distributed_c10d, name, noting)
        if hasattr(distributed_c10d, "_coalescing_manager"):
            noting = self.coalescing_manager(distributed_c10d._coalescing_manager)
            dist._coalescing_manager = distributed_c10d._coalescing_manager = noting

    def noting(self, name, function, argument):
        signature = inspect.signature(function)

        @functools.wraps(function)
        def noted(*arguments, **keywords):
            if self.depth or self.events is None:
                return function(*arguments, **keywords)
            bound = signature.bind(*arguments, **keywords)
            bound.apply_defaults()
            if dist.get_world_size(bound.arguments.get("group")) == 1:
                return function(*arguments, **keywords)
            event, waits = self.describe(name, bound.arguments, argument), not bound.arguments.get("async_op")
            self.add(event)
            number = None
            if not waits and not (self.coalescing and BASES.get(name, name) in COALESCED):
                number = self.options(event)["async"] = self.next_number()
            self.depth += 1
            try:
                work = function(*arguments, **keywords)
            finally:
                self.depth -= 1
            return work if number is None else Work(work, self, number)

        return noted

    def next_number(self):
        self.asynchronous += 1
        return self.asynchronous - 1

    @staticmethod
    def options(event):
        if not isinstance(event[-1], dict):
            event.append({})
        return event[-1]

    def describe(self, name, arguments, argument):
        event = [BASES.get(name, name)]
        if argument is None:
            return event
        tensors = arguments[argument]
        tensors = [tensors] if torch.is_tensor(tensors) else tensors or []
        event += [sum(t.numel() for t in tensors), dtype_name(tensors[0].dtype) if tensors else None]
        options = {key: arguments[key] for key in ("dst", "src") if arguments.get(key) is not None}
        if "op" in arguments and arguments["op"] != dist.ReduceOp.SUM:
            options["op"] = str(arguments["op"]).split(".")[-1].lower()
        group = arguments.get("group")
        if group is not None and dist.get_world_size(group) != dist.get_world_size():
            options["group"] = dist.get_process_group_ranks(group)
        return event + [options] if options else event

    def coalescing_manager(self, manager):
        @contextlib.contextmanager
        def noted(*arguments, **keywords):
            if self.depth or self.events is None:
                with manager(*arguments, **keywords) as inner:
                    yield inner
                return
            start = len(self.events)
            self.add(["coalesce"])
            self.coalescing = True
            try:
                with manager(*arguments, **keywords) as inner:
                    yield inner
                    self.depth += 1  # what the manager calls on the way out is not another collective
            finally:
                self.depth = 0
                self.coalescing = False
            end = ["coalesced"]
            if keywords.get("async_ops") and any(event[0] in COALESCED for event in self.events[start + 1 :]):
                number = self.options(end)["async"] = self.next_number()
                inner.wait = Work(type("Waits", (), {"wait": inner.wait})(), self, number).wait
            if len(self.events) == start + 2:  # one that is alone goes out as if nobody had tried to coalesce it
                event = self.events.pop()
                if isinstance(end[-1], dict):
                    self.options(event).update(end[-1])
                self.events[start] = event
            elif len(self.events) > start + 1:
                self.add(end)
            else:
                self.events.pop()

        return noted


def attempt(function, *arguments):
    """The result of function(*arguments), or the framework's refusal as {"refused": ...}."""
    try:
        return function(*arguments)
    except Exception as error:
        if os.environ.get("RECORDING_TRACEBACK") and os.environ.get("RANK") == "0":
            traceback.print_exc()
        reason = " ".join(str(error).split())
        return {"refused": f"{type(error).__name__}: {reason[:160]}"}


def record_cases(recorder, train, wanted, rank, version):
    """The results of train(recorder, case, rank) for all cases."""
    results = []
    for number, case in enumerate(wanted):
        if rank == 0 and number % 50 == 0:
            print(f"{version}: case {number} of {len(wanted)}", file=sys.stderr, flush=True)
        results.append(attempt(train, recorder, case, rank))
        recorder.stop()
    return version, results


def limits(model, which):
    """Values of a limit of elements by name; the default is None."""
    sizes = [p.numel() for p in model.parameters() if p.requires_grad]
    values = {
        "default": None,
        "middle": max(sum(sizes) // 3, 2),
        "tiny": max(min(sizes[len(sizes) // 2], max(sizes) // 2), 1),
        "one": 1,
        "all": sum(sizes),
        "all but one": sum(sizes) - 1,
        "all but first": sum(sizes) - sizes[0],
        "largest": max(sizes),
        "below largest": max(sizes) - 1,
        "last two": sizes[-1] + sizes[-2],
        "above last two": sizes[-1] + sizes[-2] + 1,
    }
    return [values[name] for name in which]


def distinct(cases):
    return list({json.dumps(case): case for case in cases}.values())


def record_version(record, wanted, folder):
    """The version in folder, or that which Python imports, and a result for each of the wanted cases."""
    version, results = None, {}
    for ranks in sorted({each["ranks"] for each in wanted}):
        here = [each for each in wanted if each["ranks"] == ranks]
        by_rank = run_on_ranks(record, ranks, folder and os.path.abspath(folder), here, grouped=False)
        version = by_rank[0][0]
        for i, each in enumerate(here):
            first = by_rank[0][1][i]
            for rank, (_, found) in enumerate(by_rank):
                assert found[i] == first, f"{each}: rank {rank} has {found[i]}, rank 0 {first}"
            results[json.dumps(each)] = first
    return version, results


def collect(record, wanted, folders):
    """Asks each folder's version of a framework for each wanted case.

    record(rank, ranks, folder, cases) returns the version, and for each case either {"refused": why} or what it
    found: {"readiness": the parameters' numbers in the order their gradients were final, ... what to list ...}, also
    with "forward": a list for each module that the forward pass used. Returned are the versions, the models'
    descriptions, and the cases, each with the versions that agree on it.
    """
    described, found, versions, built = {}, {}, [], models()
    for folder in folders:
        version, results = record_version(record, wanted, folder)
        versions.append(version)
        for key, result in results.items():
            if "refused" in result:
                print(f"{version} refuses {key}: {result['refused']}", file=sys.stderr)
                continue
            name, orders = json.loads(key)["model"], {"readiness": result.pop("readiness")}
            model = built[name].make_model()
            repeats = len(orders["readiness"]) // sum(p.requires_grad for p in model.parameters())
            if "forward" in result:
                orders["forward"] = result.pop("forward")
            for order, all_of_it in orders.items():
                once = all_of_it[: len(all_of_it) // repeats]
                assert all_of_it == once * repeats, f"micro-steps differ in {order}: {key}"
                about = described.setdefault(name, describe_model(model))
                assert about.setdefault(order, once) == once, f"another order of {order}: {key}"
            found.setdefault(key, {}).setdefault(json.dumps(result), []).append(version)
    listed = [
        {"versions": same, **json.loads(key), **json.loads(result)}
        for key, results in found.items()
        for result, same in results.items()
    ]
    return versions, described, listed


def describe_model(model):
    parameters = list(model.parameters())
    return {
        "numel": [p.numel() for p in parameters],
        "dtype": [dtype_name(p.dtype) for p in parameters],
        "requires_grad": [p.requires_grad for p in parameters],
    }


def texts_of(name):
    """The explanations of fields and events in the stored recording, which stand only there."""
    stored = json.loads((DATA / name).read_text())["provenance"]
    return {key: stored[key] for key in ("fields", "event") if key in stored}


def write_json(path, provenance, models, cases, read=()):
    """Writes {"provenance": ..., "models": ..., "read": [...], "cases": [...]}, one model and one case a line."""

    def line(value):
        return json.dumps(value, separators=(",", ":"))

    parts = [f'"provenance":{json.dumps(provenance, indent=1)}',
             '"models":{\n' + ",\n".join(f"{line(name)}:{line(model)}" for name, model in models.items()) + "\n}"]
    for name, values in (("read", read), ("cases", cases)):
        if values:
            parts.append(f'"{name}":[\n' + ",\n".join(map(line, values)) + "\n]")
    Path(path).write_text("{" + ",\n".join(parts) + "}\n")


def main(usage, framework, package, cases, record):
    """The script of a framework: arguments, cases, and its file."""
    script = f"record_{framework}.py"
    parser = argparse.ArgumentParser(usage=usage.split("usage: ")[1])
    parser.add_argument("--only", default="")
    parser.add_argument("--output", default=DATA / f"{framework}.json")
    parser.add_argument("folder", nargs="*")
    options = parser.parse_args()
    wanted = [each for each in cases if options.only in json.dumps(each)]
    versions, described, listed = collect(record, wanted, [*options.folder, None])
    if options.only:
        for each in listed:
            print(json.dumps(each))
        return
    provenance = {"torch": torch.__version__, package: versions, "date": DATE,
                  "command": " ".join([f"python3 tests/frameworks/{script}", *options.folder])}
    write_json(options.output, {**provenance, **texts_of(f"{framework}.json")}, described, listed)
