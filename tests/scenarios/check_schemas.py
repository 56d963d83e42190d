#!/usr/bin/env python3
"""Scenario files, link files, their JSON Schemas, the parser and scenarios/README.md agree.

usage: check_schemas.py path/to/bucketwise path/to/bucketwise_run_commands repo_root

The parser is asked, not read: each value of a few full documents is spoilt in turn, and what the
error message then expects is compared with the schema. It takes some thousand commands, which one process runs; the
program itself is started for some of them, and must say the same.
"""
import copy
import json
import re
import subprocess
import sys
import tempfile
import threading
import warnings
from pathlib import Path

warnings.filterwarnings("ignore", category=DeprecationWarning)  # RefResolver, in jsonschema 4.18 and up
import jsonschema  # noqa: E402

ERRORS = {"latency_us": 1.0, "bandwidth_gb_per_s": 0.1, "correlation": -0.5}
SLOW = {"name": "slow", "algorithm": "ring",
        "segments": [{"up_to_bytes": 65536, "latency_us": 20.0, "bandwidth_gb_per_s": 0.5},
                     {"latency_us": 50.0, "bandwidth_gb_per_s": 1.0}]}
MINIMAL = {"name": "two gradients",
           "workload": {"forward_ms": 1.0, "backward_ms": 3.0,
                        "gradients": [{"name": "a", "numel": 262144, "dtype": "float32", "ready_ms": 3.0},
                                      {"name": "b", "numel": 524288, "dtype": "float32", "ready_ms": 1.0}]},
           "cluster": {"ranks": 2, "link": SLOW},
           "sync": {"strategy": "ddp", "bucket_cap_mib": 25}}
PEAKS = {"float32": 67, "tfloat32": 494, "float16": 989, "bfloat16": 989, "float64": 34}
DEVICE = {"preset": "H100", "name": "mine", "peak_tflop_per_s": PEAKS, "memory_bandwidth_gb_per_s": 3350,
          "compute_efficiency": 0.6, "memory_efficiency": 0.85, "launch_us": 8, "copy_launch_us": 4, "graph_launch_us": 10, "copy_fixed_us": 2, "multiprocessors": 108, "memory_gib": 40,
          "host_is_device": False}
FULL_LINK = {**SLOW, "launch_us": 5, "meeting_us": 2, "message_us": 1, "processors": 4, "host_issue_us": 3,
             "host_wait_us": 1, "copy_gb_per_s": 100,
             "interference": {"compute_slowdown": 1.1, "communication_slowdown": 1.2, "start_delay_us": 5},
             "all_gather": {"launch_us": 4, "segments": SLOW["segments"],
                            "interference": {"compute_slowdown": 1.3, "communication_slowdown": 1.1}},
             "reduce_scatter": {"launch_us": 1, "segments": [{"latency_us": 3, "bandwidth_gb_per_s": 2}]},
             "provenance": {"backend": "nccl", "ranks": 2, "smallest_message_bytes": 1,
                            "largest_message_bytes": 1 << 30, "hardware": "two", "versions": "1", "date": "2026-01-01",
                            "samples": 3, "source": "made up"},
             "caveats": ["few sizes", {"text": "residuals of 30 %", "withholds_advice": True}]}
BY_SIZE_LINK = {"name": "fitted", "algorithm": "ring",
                "segments": [{"latency_us": 20.0, "bandwidth_gb_per_s": 0.5, "standard_errors": ERRORS}],
                "interference": [{"up_to_bytes": 1024, "compute_slowdown": 1.1, "communication_slowdown": 1.2,
                                  "standard_errors": {"compute_slowdown": 0.1, "communication_slowdown": 0.1,
                                                      "start_delay_us": 2}},
                                 {"compute_slowdown": 1.1, "communication_slowdown": 1.2}]}
BY_CTAS_LINK = {**SLOW, "ctas": 6,
                "interference": [{"ctas": 4, "up_to_bytes": 1024, "compute_slowdown": 1, "communication_slowdown": 1.2},
                                 {"ctas": 4, "compute_slowdown": 1.1, "product_slowdown": 1.1, "rest_slowdown": 1.2,
                                  "communication_slowdown": 1.2},
                                 {"ctas": 8, "compute_slowdown": 1.2, "communication_slowdown": 1.3}]}
NODE = {"gpus": 2, "fabric": "pcie", "multicast": False, "latency_us": 1, "bandwidth_gb_per_s": 20}
NICS = {"per_node": 2, "rails": True, "path": "phb", "latency_us": 2, "bandwidth_gb_per_s": 10}
TIERS = [{"name": "leaf", "nodes": 2, "latency_us": 1, "oversubscription": 2, "ports": 8}, {"name": "spine", "nodes": 8}]
NCCL_LINK = {"name": "cluster", "algorithm": "nccl", "launch_us": 1,
             "topology": {"node": NODE, "nics": NICS, "tiers": TIERS,
                          "nccl": {"generation": "hopper", "channels": 16, "version": "2.20",
                                   "compute_capability": 90, "cpu": "amd", "collnet": True,
                                   "clock": {"ring_ll": 0.5, "nvls": 1.4, "network": 2}}}}
SITES_LINK = {"name": "sites", "algorithm": "ring",
              "all_gather": {"interference": {"compute_slowdown": 1.3, "communication_slowdown": 1.1}},
              "topology": {"node": NODE, "nics": NICS, "tiers": TIERS,
                           "sites": {"count": 2, "latency_us": 100, "bandwidth_gb_per_s": 1},
                           "slow_ranks": [{"rank": 1, "bandwidth_factor": 0.5, "extra_latency_us": 1}],
                           "background": [{"from": 0, "to": 1, "bandwidth_gb_per_s": 1}]}}
GRAPH_LINK = {"name": "graph", "algorithm": "ring", "meeting_us": 1,
              "topology": {"ranks": ["a", "b"], "switches": [{"name": "s", "ports": 4}], "routing": "tree",
                           "links": [{"between": ["a", "b"], "latency_us": 1, "bandwidth_gb_per_s": 1}]}}
# Between them these hold every key of both schemas, as every_key_is_in_a_document() makes sure, and
# for every bound the values at which the parser allows the most. Through JSON, so that no part is shared.
DOCUMENTS = json.loads(json.dumps({
    "transformer": {
        "name": "transformer",
        "workload": {"model": "bert-base", "batch": 1, "sequence_length": 1, "dtype": "float32",
                     "arithmetic": "tfloat32", "device": DEVICE, "forward_ms": 1, "backward_ms": 2},
        "cluster": {"ranks": 1_000_000, "ranks_per_node": 2, "stragglers": [{"rank": 3, "compute_slowdown": 1.2}],
                    "link": {"name": "both", "algorithm": "hierarchical", "intra": FULL_LINK, "inter": SLOW}},
        "sync": {"strategy": "ddp", "bucket_cap_mib": 25, "first_bucket_mib": 1, "views": True, "fused_copies": True,
                 "comm_hook": "bf16",
                 "pytorch_version": "2.4", "find_unused_parameters": False, "broadcast_buffers": True,
                 "batch_norm": "fused",
                 "closing": "overshoot", "order": "readiness", "launch": "in_order"},
        "step": {"accumulation": 2, "optimizer": "adam", "optimizer_launch_ms": 1, "cuda_graph": True,
                 "sync_each_step": True, "launch_queue": 1_000_000}},
    "prior": {
        "name": "prior",
        "workload": {"model": "resnet18", "batch": 2, "execution": "compiled", "attention": "flash", "channels_last": True,
                     "device": {"preset": "A100", "tensor_efficiency": 0.8, "vector_efficiency": 0.9,
                                "convolution_efficiency": 0.9, "flash_efficiency": 0.5, "fused_efficiency": 0.1,
                                "pass_efficiency": 0.8, "kernel_us": 3, "host_scale": 1.5}},
        "cluster": {"ranks": 2, "link": SLOW},
        "sync": {"strategy": "ddp"},
        "step": {"optimizer": "adam", "optimizer_kernels": "fused"}},
    "shape": {
        "name": "shape",
        "workload": {"model": {"family": "gpt2", "layers": 2, "hidden": 8, "feed_forward": 32, "heads": 2,
                               "vocabulary": 100, "context": 16, "linear_bias": False, "norm_bias": False,
                               "hugging_face": True},
                     "batch": 1, "sequence_length": 16, "device": "A100"},
        "cluster": {"ranks": 2, "link": FULL_LINK},
        "sync": {"strategy": "ddp", "bucket_cap_mib_list": [1, 25], "batched_grad_copy": True, "static_graph": True,
                 "sharded_optimizer": "broadcast",
                 "compiled": True,
                 "framework": "deepspeed_zero2", "framework_version": "0.14.3"},
        "step": {"optimizer_ms": 1}},
    "llama": {
        "name": "llama",
        "workload": {"model": {"family": "llama", "layers": 2, "hidden": 8, "feed_forward": 32, "heads": 1,
                               "vocabulary": 100, "context": 16, "key_value_heads": 1, "head_width": 2,
                               "attention_bias": True, "feed_forward_bias": True, "tied_embeddings": True,
                               "query_key_value_bias": False},
                     "batch": 1, "sequence_length": 16, "device": "A100"},
        "cluster": {"ranks": 2, "link": SLOW},
        "sync": {"strategy": "ddp"}},
    "experts": {
        "name": "experts",
        "workload": {"model": {"family": "llama", "layers": 2, "hidden": 8, "feed_forward": 32, "heads": 1,
                               "vocabulary": 100, "context": 16, "experts": 4096, "experts_per_token": 2},
                     "batch": 1, "sequence_length": 16, "device": "A100"},
        "cluster": {"ranks": 2, "link": SLOW},
        "sync": {"strategy": "ddp"}},
    "t5": {
        "name": "t5",
        "workload": {"model": {"family": "t5", "layers": 2, "hidden": 8, "feed_forward": 32, "heads": 1,
                               "vocabulary": 100, "context": 16, "head_width": 4, "decoder_layers": 1,
                               "relative_buckets": 4, "gated": True, "tied_embeddings": False},
                     "batch": 1, "sequence_length": 16, "device": "A100"},
        "cluster": {"ranks": 2, "link": SLOW},
        "sync": {"strategy": "ddp"}},
    "vit": {
        "name": "vit",
        "workload": {"model": {"family": "vit", "layers": 2, "hidden": 8, "feed_forward": 32, "heads": 2, "patch": 8,
                               "channels": 1, "classes": 10, "hugging_face": True, "query_key_value_bias": False},
                     "batch": 1, "image_size": 32, "device": "A100"},
        "cluster": {"ranks": 2, "link": SLOW},
        "sync": {"strategy": "ddp"}},
    "bert": {
        "name": "bert",
        "workload": {"model": {"family": "bert", "layers": 2, "hidden": 8, "feed_forward": 32, "heads": 2,
                               "vocabulary": 100, "context": 16, "token_types": 3, "bert_head": "pretraining",
                               "labels": 3},
                     "batch": 1, "sequence_length": 16, "device": "A100"},
        "cluster": {"ranks": 2, "link": SLOW},
        "sync": {"strategy": "ddp"}},
    "timed": {  # the lists of operations get their length from the parser
        "name": "timed",
        "workload": {"model": {"family": "gpt2", "layers": 1, "hidden": 8, "feed_forward": 32, "heads": 2,
                               "vocabulary": 100, "context": 16},
                     "batch": 1, "sequence_length": 16, "forward_operations_us": [1], "backward_operations_us": [1]},
        "cluster": {"ranks": 2, "link": BY_SIZE_LINK},
        "sync": {"strategy": "ddp"},
        "variation": {"seed": 1, "compute_spread": 0.01, "operation_spread": 0.02, "collective_spread": 0.03,
                      "compute_standard_error": 0.001, "rank_spread": 0.01, "straggler_probability": 0.001,
                      "straggler_slowdown": 2},
        "caveats": [{"text": "the trace replays 30 % off", "withholds_advice": True}, "unknown ranks"]},
    "vision": {
        "name": "vision",
        "workload": {"model": "resnet18", "batch": 2, "image_size": 64, "forward_ms": 1, "backward_ms": 2},
        "cluster": {"ranks": 2, "link": BY_CTAS_LINK},
        "sync": {"strategy": "bucketed"}},
    "mlp": {
        "name": "mlp",
        "workload": {"model": {"family": "mlp", "layers": [8, 4, 2]}, "batch": 2, "device": "A100"},
        "cluster": {"ranks": 2, "link": SLOW},
        "sync": {"strategy": "ddp"}},
    "fsdp": {
        **MINIMAL,
        "sync": {"strategy": "fsdp", "pytorch_version": "2.8",
                 "sharding": {"layers_per_group": 1, "reshard_after_forward": False, "reshard_root": True, "forward_prefetch": 1,
                              "backward_prefetch": 2, "asynchronous_unshard": True, "parameter_dtype": "bfloat16",
                              "reduce_dtype": "float32", "reduce_scatter_buffers": 2,
                              "gradient_sync": "last_micro_step", "reshard_after_backward": False}}},
    "hsdp": {
        **MINIMAL,
        "cluster": {"ranks": 4, "link": SLOW},
        "sync": {"strategy": "hsdp", "pytorch_version": "2.8",
                 "sharding": {"groups": [["a"], ["b"]], "reshard_ranks": 2, "forward_prefetch": 1,
                              "backward_prefetch": 2, "asynchronous_unshard": True, "parameter_dtype": "bfloat16",
                              "reduce_dtype": "float32", "reduce_scatter_buffers": 2,
                              "gradient_sync": "every_micro_step", "reshard_after_backward": False,
                              "shard_ranks": 2, "all_reduce": "last_micro_step"}}},
    "zero3": {
        **MINIMAL,
        "sync": {"strategy": "zero3",
                 "sharding": {"prefetch_bucket_size": 1, "param_persistence_threshold": 2, "max_live_parameters": 3,
                              "max_reuse_distance": 4, "reduce_bucket_size": 5}}},
    "cluster": {**MINIMAL, "cluster": {"ranks": 16, "link": NCCL_LINK}},
    "sites": {**MINIMAL, "cluster": {"ranks": 16, "link": SITES_LINK}},
    "graph": {**MINIMAL, "cluster": {"ranks": 2, "link": GRAPH_LINK}},
    "gradients": {
        **MINIMAL,
        "workload": {**MINIMAL["workload"],
                     "device": {"name": "cpu", "peak_tflop_per_s": {"float32": 1}, "memory_bandwidth_gb_per_s": 20},
                     "buffers": [{"bytes": 8, "tensors": 2}], "copy_launch_us": 1, "collective_issue_us": 1,
                     "copy_gb_per_s": 10, "host_is_device": False,
                     "gradients": [{"name": "a", "numel": 10, "dtype": "float32", "ready_ms": 3, "sparse": True,
                                    "shape": [2, 5]}]}},
    "operations": {
        **MINIMAL,
        "workload": {"forward_operations": [{"name": "f", "host_us": 1, "device_us": 2, "host_waits": True,
                                             "stream": "copies", "after": ["compute"]}],
                     "backward_operations": [{"name": "b", "host_us": 1, "device_us": 2, "host_waits": False,
                                              "stream": "compute", "after": ["copies"], "ready": ["a"]}],
                     "optimizer_operations": [{"name": "o", "host_us": 1, "device_us": 2},
                                              {"name": "p", "host_us": 1, "device_us": 2, "stream": "copies"}],
                     "buffers": [{"bytes": 8, "tensors": 2}], "copy_launch_us": 1, "collective_issue_us": 1,
                     "copy_gb_per_s": 10, "host_is_device": False,
                     "device": "A100",
                     "gradients": [{"name": "a", "numel": 10, "dtype": "float32", "sparse": True, "shape": [2, 5]}]}},
}))

failures = []


def fail(what):
    if what in failures:
        return
    failures.append(what)
    print(f"check_schemas: {what}", file=sys.stderr)


class Schemas:
    def __init__(self, folder):
        self.roots = {name: json.loads((folder / name).read_text())
                      for name in ("scenario.schema.json", "link.schema.json")}
        # Each remembers the references that it has followed.
        self.resolvers = {name: jsonschema.RefResolver(name, schema, store=self.roots)
                          for name, schema in self.roots.items()}

    def validator(self, root, node=None):
        return jsonschema.Draft202012Validator(self.roots[root] if node is None else node,
                                               resolver=self.resolvers[root])

    def accepts(self, root, instance, node=None):
        return self.validator(root, node).is_valid(instance)

    def at(self, root, node, instance):
        """The schema that describes the instance: references followed, alternatives chosen."""
        while "$ref" in node or "oneOf" in node:
            if "$ref" in node:
                file, _, pointer = node["$ref"].partition("#")
                root = file or root
                target = self.roots[root]
                for part in filter(None, pointer.split("/")):
                    target = target[part]
                node = {**target, **{k: v for k, v in node.items() if k != "$ref"}}
            else:
                node = next(branch for branch in node["oneOf"] if self.accepts(root, instance, branch))
        return root, node

    def places(self, root, node, instance, pointer=()):
        """Every value of the instance with its schema."""
        root, node = self.at(root, node, instance)
        yield pointer, instance, node
        if isinstance(instance, dict):
            for key, value in instance.items():
                yield from self.places(root, node["properties"][key], value, (*pointer, key))
        elif isinstance(instance, list):
            for i, value in enumerate(instance):
                yield from self.places(root, node["items"], value, (*pointer, i))

    def all_keys(self):
        def walk(node):
            if isinstance(node, dict):
                for key, value in node.items():
                    # Conditions repeat keys that an object has introduced.
                    if key == "properties" and node.get("additionalProperties") is False:
                        yield frozenset(value)
                    yield from walk(value)
            elif isinstance(node, list):
                for value in node:
                    yield from walk(value)
        return {keys for root in self.roots.values() for keys in walk(root)}


class Binary:
    """`bucketwise predict`, of many documents in one process."""

    def __init__(self, path, runner, folder):
        self.path = path
        self.runner = subprocess.Popen([runner], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.file = folder / "scenario.json"
        self.documents = 0
        self.starts = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.runner.stdin.close()
        self.runner.wait()
        self.runner.stdout.close()

    def started(self, command):
        self.starts += 1
        return subprocess.run([self.path, *command], capture_output=True, timeout=60,
                              encoding="utf-8", errors="backslashreplace")

    def predict(self, file, *options, start_too=False):
        self.documents += 1
        command = ["predict", str(file), *options]
        hangs = threading.Timer(60, self.runner.kill)
        hangs.start()
        self.runner.stdin.write(json.dumps(command).encode() + b"\n")
        self.runner.stdin.flush()
        numbers = self.runner.stdout.readline().split()
        hangs.cancel()
        if not numbers:
            sys.exit(f"check_schemas: {command}: died or hung on {Path(file).read_bytes()[:2000]}")
        exit_code, *sizes = map(int, numbers)
        texts = [self.runner.stdout.read(size).decode("utf-8", "backslashreplace") for size in sizes]
        run = subprocess.CompletedProcess(command, exit_code, *texts)
        if start_too:
            alone = self.started(command)
            if (alone.returncode, alone.stdout, alone.stderr) != (run.returncode, run.stdout, run.stderr):
                fail(f"{command}: started, the program says {alone}, as one of many {run}")
        return run

    def read(self, document, start_too=False):
        """Runs on a document, a few caps only: what matters is whether it is accepted."""
        self.file.write_text(document if isinstance(document, str) else json.dumps(document))
        return self.predict(self.file, start_too=start_too)

    def refusal(self, document, what, place="", start_too=False):
        """The message that refuses the document, or None; a refusal must look like one."""
        return self.check_refusal(self.read(document, start_too), what, self.file, place)

    def check_refusal(self, run, what, file, place=""):
        if run.returncode == 0:
            return None
        lines = run.stderr.splitlines()
        if (run.returncode != 2 or run.stdout or len(lines) != 1 or not lines[0].startswith("bucketwise: ")
                or str(file) not in lines[0] or f"{place}: expected " not in lines[0]):
            fail(f"{what}: expected exit code 2 and one line with {file} and {place or 'the place'}, "
                 f"got {run.returncode}, {run.stderr!r}, {run.stdout[:80]!r}")
        return lines[0] if lines else ""


def as_pointer(parts):
    return "".join(f"/{part}" for part in parts)


def changed(document, pointer, change):
    """Returns a copy, changed by `change(parent, last part)` at the pointer."""
    copied = copy.deepcopy(document)
    if not pointer:
        return change({"": copied}, "")
    target = copied
    for part in pointer[:-1]:
        target = target[part]
    change(target, pointer[-1])
    return copied


def replaced(document, pointer, value):
    return changed(document, pointer, lambda parent, part: parent.__setitem__(part, value))


def shipped_files_are_valid_and_accepted(schemas, binary, root):
    folder = root / "scenarios"
    scenarios = [f for f in sorted(folder.glob("*.json")) if not f.name.endswith(".schema.json")]
    links = sorted((folder / "links").glob("*.json"))
    for file, kind in [*((f, "scenario") for f in scenarios), *((f, "link") for f in links)]:
        for error in schemas.validator(f"{kind}.schema.json").iter_errors(json.loads(file.read_text())):
            fail(f"{file}: the schema refuses {as_pointer(error.absolute_path)}: {error.message}")
    for file in scenarios:
        if (run := binary.predict(file)).returncode != 0:
            fail(f"{file}: refused: {run.stderr.strip()}")
    on_nodes = replaced(replaced(MINIMAL, ("cluster", "ranks"), 4), ("cluster", "ranks_per_node"), 2)
    for file in links:
        says_nodes = "topology" in json.loads(file.read_text())  # of how many ranks
        binary.file.write_text(json.dumps(MINIMAL if says_nodes else on_nodes))
        if (run := binary.predict(binary.file, "--link", str(file))).returncode != 0:
            fail(f"{file}: refused: {run.stderr.strip()}")
    return f"{len(scenarios)} scenarios and {len(links)} links"


def complete_operations(binary):
    workload = DOCUMENTS["timed"]["workload"]
    for key in ("forward_operations_us", "backward_operations_us"):
        message = binary.refusal(DOCUMENTS["timed"], f"one time in {key}", f"/workload/{key}") or ""
        found = re.search(r"expected (\d+) times", message)
        workload[key] = [1.0] * int(found[1]) if found else workload[key]


def every_document_is_accepted(schemas, binary):
    for name, document in {"minimal": MINIMAL, **DOCUMENTS}.items():
        for error in schemas.validator("scenario.schema.json").iter_errors(document):
            reason = jsonschema.exceptions.best_match([error])
            fail(f"document {name}: the schema refuses {as_pointer(reason.absolute_path)}: {reason.message}")
        if (message := binary.refusal(document, f"document {name}", start_too=True)) is not None:
            fail(f"document {name}: {message}")


def every_key_is_in_a_document(schemas):
    met = {frozenset(node["properties"]): set() for *_, node in all_places(schemas) if "properties" in node}
    for _, _, instance, node in all_places(schemas):
        if isinstance(instance, dict):
            met[frozenset(node["properties"])] |= instance.keys()
    for keys in schemas.all_keys():
        if missing := keys - met.get(keys, set()):
            fail(f"no document of this test holds {', '.join(sorted(missing))} of {', '.join(sorted(keys))}")


def all_places(schemas):
    for document in DOCUMENTS.values():
        root = "scenario.schema.json"
        for pointer, instance, node in schemas.places(root, schemas.roots[root], document):
            yield document, pointer, instance, node


def keys_agree(schemas, binary, readme):
    described = set(re.findall(r"`([^`\n]+)`", readme))
    objects = 0
    for document, pointer, instance, node in all_places(schemas):
        if not isinstance(instance, dict):
            continue
        objects += 1
        place = as_pointer(pointer)
        spoilt = replaced(document, (*pointer, "no_such_key"), 1)
        message = binary.refusal(spoilt, f"unknown key at {place}", f"{place}/no_such_key") or ""
        found = re.search(r"one of the keys (.*), got an unknown key", message)
        known = set(found[1].split(", ")) if found else set()
        if known != set(node["properties"]):
            fail(f"{place or '/'}: the schema and the parser differ in {sorted(known ^ set(node['properties']))}")
        if schemas.accepts("scenario.schema.json", spoilt):
            fail(f"{place or '/'}: the schema accepts an unknown key")
        for key in node["properties"].keys() - described:
            fail(f"scenarios/README.md does not describe `{key}`")
    return f"keys of {objects} objects"


def enums_and_ranges_agree(schemas, binary, readme):
    """Compares the values that the parser expects in place of an impossible one."""
    described = set(re.findall(r"`([^`\n]+)`", readme))
    ranges = {}  # (key, description): [the schema's range, those of the parser]; some depend on other values
    values = 0
    for document, pointer, instance, node in all_places(schemas):
        if isinstance(instance, (dict, list)):
            continue
        values += 1
        place = as_pointer(pointer)
        spoilt = replaced(document, pointer, "no such value" if "enum" in node else [])
        message = binary.refusal(spoilt, f"no such value at {place}", place) or ""
        if "enum" in node:
            found = re.search(r"(?:one of |\()([^()]+?)(?:\)|, got)", message)
            expected = set(found[1].split(", ")) if found else set()
            if expected != set(node["enum"]):
                fail(f"{place}: the schema and the parser differ in {sorted(expected ^ set(node['enum']))}")
            for value in set(node["enum"]) - described:
                fail(f"scenarios/README.md does not describe `{value}`")
        elif node["type"] in ("integer", "number"):
            found = re.search(r"(integer from|number of at least|number above) (\S+) (?:to|and at most) (\S+), got",
                              message)
            if not found or ("integer" in found[1]) != (node["type"] == "integer"):
                fail(f"{place}: the schema says {node['type']}, the parser {message}")
                continue
            own = (node.get("exclusiveMinimum", node["minimum"]), node["maximum"])
            ranges.setdefault((pointer if isinstance(pointer[-1], int) else pointer[-1], node.get("description")), [own, set()])[1].add(
                (float(found[2]), float(found[3])))
        elif node["type"] == "boolean" and "true or false" not in message:
            fail(f"{place}: the schema says true or false, the parser {message}")
    for (key, _), (own, parsers) in ranges.items():
        if own != max(parsers, key=lambda r: r[1]) or any(low != own[0] for low, _ in parsers):
            fail(f"{key}: the schema allows {own}, the parser {parsers}")
    return f"types, ranges and enums of {values} values"


def required_keys_agree(schemas, binary):
    """Without any one key, both accept or both refuse."""
    keys = 0
    for document, pointer, _, _ in all_places(schemas):
        # A schema cannot say which segment is the last one, or that every gradient is made ready.
        if not pointer or isinstance(pointer[-1], int) or pointer[-1] in ("up_to_bytes", "ready"):
            continue
        keys += 1
        without = changed(document, pointer, lambda parent, part: parent.pop(part))
        accepted = binary.refusal(without, f"without {as_pointer(pointer)}") is None
        if accepted != schemas.accepts("scenario.schema.json", without):
            fail(f"without {as_pointer(pointer)}: the parser {'accepts' if accepted else 'refuses'}, "
                 "the schema does not")
    return f"{keys} keys left out"


def invalid_values():
    """Pointer, value, and whether a schema can tell."""
    tier = {**SLOW, "algorithm": "hierarchical", "segments": None, "intra": SLOW, "inter": SLOW}
    del tier["segments"]
    yield "/sync/bucket_cap_mb", 25, True
    yield "/workload/gradient", [], True
    yield "/name", 7, True
    yield "/name", "", True
    yield "/name", "two\nlines", True
    yield "/name", "n" * 201, True
    yield "/workload", [], True
    yield "/workload/forward_ms", -1, True
    yield "/workload/forward_ms", "1", True
    yield "/workload/backward_ms", 1e8, True
    yield "/workload/gradients", [], True
    yield "/workload/gradients", {}, True
    yield "/workload/gradients/0/numel", -5, True
    yield "/workload/gradients/0/numel", 1.5, True
    yield "/workload/gradients/0/dtype", "float8", True
    yield "/workload/gradients/0/ready_ms", 3.5, False
    yield "/cluster/ranks", 0, True
    yield "/cluster/ranks", True, True
    yield "/cluster/ranks_per_node", 3, False
    yield "/cluster/link", None, True
    yield "/cluster/link", "links/none.json", False
    yield "/cluster/link", ".", False
    yield "/cluster/link/algorithm", "butterfly", True
    yield "/cluster/link/intra", SLOW, True
    yield "/cluster/link/segments", [], True
    yield "/cluster/link", {**tier, "message_us": 1}, True
    yield "/cluster/link/message_us", -1, True
    yield "/cluster/link/processors", 0, True
    yield "/cluster/link", {**tier, "processors": 4}, True
    yield "/cluster/link/segments/0/up_to_bytes", 0, True
    yield "/cluster/link/segments/1/up_to_bytes", 1 << 30, False
    yield "/cluster/link/segments/1/bandwidth_gb_per_s", 0, True
    yield "/cluster/link/interference", {"compute_slowdown": 0.9, "communication_slowdown": 1}, True
    yield "/cluster/link/interference", [], True
    yield "/cluster/link/interference", "some", True
    yield "/cluster/link/interference", {"compute_slowdown": 1, "communication_slowdown": 1, "start_delay_us": -1}, True
    yield "/cluster/link/interference", [{"compute_slowdown": 1, "communication_slowdown": 1}] * 2, False
    group = {"ctas": 4, "compute_slowdown": 1, "communication_slowdown": 1}
    yield "/cluster/link/interference", group, True  # without ctas of the link
    yield "/cluster/link/interference", [group], True
    segments = [{"latency_us": 3, "bandwidth_gb_per_s": 2}]
    yield "/cluster/link/all_gather", {}, True
    yield "/cluster/link/all_gather", {"interference": "none"}, True  # beside segments
    yield "/cluster/link/all_gather", {"segments": []}, True
    yield "/cluster/link/all_gather", {"segments": segments * 2}, False
    yield "/cluster/link/reduce_scatter", {"segments": segments, "interference": group}, True
    yield "/cluster/link/reduce_scatter", {"segments": segments, "meeting_us": 1}, True
    yield "/cluster/link", {**tier, "all_gather": {"segments": segments}}, True
    yield "/cluster/link", {**tier, "reduce_scatter": {"launch_us": 1, "interference": "none"}}, True
    yield "/cluster/link", {**GRAPH_LINK, "all_gather": {"segments": segments}}, True
    yield "/cluster/link", {**NCCL_LINK, "reduce_scatter": {}}, True
    yield "/cluster/link/ctas", 0, True
    yield "/cluster/link/ctas", 1025, True
    yield "/cluster/link/segments/1/standard_errors", {**ERRORS, "correlation": 1.5}, True
    yield "/cluster/link/segments/1/standard_errors", {"latency_us": 1}, True
    yield "/variation/seed", -1, True
    yield "/variation/compute_spread", 1.5, True
    yield "/variation/rank_spread", 1.5, True
    yield "/variation/straggler_probability", 0.5, True  # without straggler_slowdown
    yield "/variation/straggler_slowdown", 2, True  # without straggler_probability
    yield "/cluster/stragglers", [], True
    yield "/cluster/stragglers", [{"rank": 2, "compute_slowdown": 1.2}], False  # of 2 ranks
    yield "/cluster/stragglers", [{"rank": 1, "compute_slowdown": 1.2}] * 2, False
    yield "/cluster/stragglers", [{"rank": 1, "compute_slowdown": 0.9}], True
    yield "/cluster/stragglers", [{"rank": 1}], True
    yield "/caveats", "weak", True
    yield "/caveats", [], True
    yield "/caveats", [""], True
    yield "/caveats", ["n" * 501], True
    yield "/caveats", ["two\nlines"], True
    yield "/caveats", [7], True
    yield "/caveats", [{"withholds_advice": True}], True
    yield "/caveats", [{"text": "weak", "withholds_advice": 1}], True
    yield "/cluster/link/caveats", [{"text": "weak", "why": "so"}], True
    yield "/sync/strategy", "DDP", True
    yield "/sync/bucket_cap_mib", 0, True
    yield "/sync/bucket_cap_mib", 1e-7, True
    yield "/sync/bucket_cap_mib_list", [1, 2], True  # beside bucket_cap_mib
    yield "/sync/pytorch_version", "two", True
    yield "/step/accumulation", 0, True
    yield "/step/optimizer", "adam", True  # without a device
    yield "/step/cuda_graph", 1, True
    yield "/step/sync_each_step", 1, True
    yield "/step/launch_queue", 0, True
    yield "/workload/model", "resnet50", True  # beside gradients
    yield "/cluster/link", tier, True  # without ranks_per_node


def invalid_groups():
    """The same for interference by thread blocks, beside a link with ctas."""
    one = {"compute_slowdown": 1, "communication_slowdown": 1}
    yield "/cluster/link/interference", [{**one, "ctas": 4}, one], True
    yield "/cluster/link/interference", [{**one, "ctas": 4}] * 2, False
    yield "/cluster/link/interference", [{**one, "ctas": 4, "up_to_bytes": 9}], False
    yield "/cluster/link/interference/1/ctas", 1025, True
    yield "/cluster/link/interference/1/up_to_bytes", 2048, False


SHAPE_LIMITS = [("/workload/model/layers", 100_000, True), ("/workload/model/heads", 3, False),
                ("/workload/sequence_length", 17, False), ("/workload/model", "gpt5", True),
                ("/workload/device", "H1000", True), ("/workload/arithmetic", "float8", True),
                ("/workload/image_size", 224, True)]


def invalid_values_are_refused(schemas, binary):
    cases = [(MINIMAL, *case) for case in invalid_values()] + [(DOCUMENTS["shape"], *case) for case in SHAPE_LIMITS]
    cases += [(DOCUMENTS["vision"], *case) for case in invalid_groups()]
    cases += [(DOCUMENTS["llama"], f"/workload/model/{key}", False, True) for key in ("linear_bias", "norm_bias")]
    patches = replaced(DOCUMENTS["vision"], ("workload", "model"), "vit_b_16")
    cases += [(DOCUMENTS["vit"], "/workload/image_size", 36, False),  # no multiple of the patch
              (DOCUMENTS["vit"], "/workload/model/hugging_face", False, True),
              (DOCUMENTS["vit"], "/workload/model/heads", 3, False),
              (DOCUMENTS["vit"], "/workload/model/patch", 257, True),
              (DOCUMENTS["vit"], "/workload/sequence_length", 17, True)]
    cases += [(patches, "/workload/image_size", 72, True), (patches, "/workload/sequence_length", 17, True)]
    for base, place, value, schema_can_tell in cases:
        what = f"{place} = {json.dumps(value)[:60]}"
        document = copy.deepcopy(base)
        pointer = tuple(int(p) if p.isdigit() else p for p in place.split("/")[1:])
        if pointer[0] in ("step", "variation"):
            document[pointer[0]] = {}
        document = replaced(document, pointer, value)
        message = binary.refusal(document, what)
        if message is None:
            fail(f"{what}: the parser accepts it")
        elif not re.search(": " + re.escape(place.rsplit("/", 1)[0]), message):
            fail(f"{what}: the message names another place: {message}")
        if schemas.accepts("scenario.schema.json", document) == schema_can_tell:
            fail(f"{what}: the schema {'accepts' if schema_can_tell else 'refuses'} it")
    return f"{len(cases)} invalid values"


def damaged_files_are_refused(binary, folder):
    text = json.dumps(MINIMAL)
    damaged = {"an empty file": "", "a truncated file": text[:-1], "bytes after the end": text + "}",
               "NaN": text.replace("3.0", "NaN", 1), "Infinity": text.replace("3.0", "Infinity", 1),
               "a number beyond a double": text.replace("3.0", "1e999", 1), "a comment": "// c\n" + text,
               "a trailing comma": text[:-1] + ",}", "a bare string": '"text"', "null": "null",
               "a key twice": text.replace('"ranks": 2', '"ranks": 2, "ranks": 2'),
               "deep nesting": "[" * 100_000, "invalid UTF-8": text.replace("two", "two\udcff")}
    for what, content in damaged.items():
        binary.file.write_bytes(content.encode("utf-8", "surrogateescape"))
        if binary.check_refusal(binary.predict(binary.file, start_too=True), what, binary.file) is None:
            fail(f"{what}: the parser accepts it")
    cycle = {"name": "c", "algorithm": "hierarchical", "intra": "b.json", "inter": SLOW}
    (folder / "a.json").write_text(json.dumps(cycle))
    (folder / "b.json").write_text(json.dumps({**cycle, "intra": "a.json"}))
    on_nodes = replaced(replaced(MINIMAL, ("cluster", "ranks_per_node"), 2), ("cluster", "link"), "a.json")
    if "cycle" not in (binary.check_refusal(binary.read(on_nodes, start_too=True), "a link cycle", folder / "b.json", "/intra") or ""):
        fail("a link cycle: the message does not call it one")
    (folder / "c.json").write_text(json.dumps(SLOW)[:-1])
    to_damaged = replaced(MINIMAL, ("cluster", "link"), "c.json")
    if binary.check_refusal(binary.read(to_damaged, start_too=True), "a truncated link file", folder / "c.json") is None:
        fail("a truncated link file: the parser accepts it")
    return f"{len(damaged) + 2} damaged files"


def places_in(node, instance, pointer=()):
    """Every object of the instance with its schema, which refers to nothing."""
    if isinstance(instance, dict):
        yield pointer, instance, node
        for key, value in instance.items():
            yield from places_in(node["properties"][key], value, (*pointer, key))
    elif isinstance(instance, list):
        for i, value in enumerate(instance):
            yield from places_in(node["items"], value, (*pointer, i))


def baselines_agree(binary, root, folder):
    """Files that check writes of traces, measurements and scenarios fit their schema and are read; others do not."""
    schema = json.loads((root / "scenarios" / "baseline.schema.json").read_text())
    validator = jsonschema.Draft202012Validator(schema)
    described = set(re.findall(r"`([^`\n]+)`", (root / "docs" / "check.md").read_text()))
    file, spoilt_file = folder / "baseline.json", folder / "spoilt.json"
    inputs = [str(root / "tests/data/traces/ddp.json.gz"), "resnet18",
              str(root / "results/validation/transformer_300mbit_1/measurements.jsonl")]
    written = binary.started(["check", *inputs, "--baseline", str(file), "--update-baseline"])
    if written.returncode != 0:
        fail(f"a baseline: {written.stderr}")
        return "no baseline"
    baseline = json.loads(file.read_text())
    for error in validator.iter_errors(baseline):
        fail(f"the schema refuses a baseline's {as_pointer(error.absolute_path)}: {error.message}")
    if (run := binary.started(["check", *inputs, "--baseline", str(file)])).returncode != 0:
        fail(f"a baseline just written: {run.stdout}{run.stderr}")
    kinds = {}
    for pointer, _, node in places_in(schema, baseline):
        kinds.setdefault(frozenset(node["properties"]), (pointer, node))
    met = {key for _, instance, _ in places_in(schema, baseline) for key in instance}
    for pointer, node in kinds.values():
        place = as_pointer(pointer)
        spoilt = replaced(baseline, (*pointer, "no_such_key"), 1)
        spoilt_file.write_text(json.dumps(spoilt))
        run = binary.started(["check", "resnet18", "--baseline", str(spoilt_file)])
        message = binary.check_refusal(run, f"unknown key at {place}", spoilt_file, f"{place}/no_such_key") or ""
        found = re.search(r"one of the keys (.*), got an unknown key", message)
        known = set(found[1].split(", ")) if found else set()
        if known != set(node["properties"]):
            fail(f"baseline {place or '/'}: schema and reader differ in {sorted(known ^ set(node['properties']))}")
        if validator.is_valid(spoilt):
            fail(f"baseline {place or '/'}: the schema accepts an unknown key")
        for key in set(node["properties"]) - met:
            fail(f"no baseline of this test holds {key}")
        for key in set(node["properties"]) - described:
            fail(f"docs/check.md does not describe `{key}`")
    return f"baselines of {len(kinds)} kinds of objects"


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    program, runner = (str(Path(name).resolve()) for name in sys.argv[1:3])
    root = Path(sys.argv[3]).resolve()
    schemas = Schemas(root / "scenarios")
    for schema in schemas.roots.values():
        jsonschema.Draft202012Validator.check_schema(schema)
    readme = (root / "scenarios" / "README.md").read_text()
    with tempfile.TemporaryDirectory() as folder, Binary(program, runner, Path(folder)) as binary:
        complete_operations(binary)
        every_document_is_accepted(schemas, binary)
        if failures:
            sys.exit("check_schemas: nothing else was checked")
        every_key_is_in_a_document(schemas)
        done = [shipped_files_are_valid_and_accepted(schemas, binary, root), keys_agree(schemas, binary, readme),
                enums_and_ranges_agree(schemas, binary, readme), required_keys_agree(schemas, binary),
                invalid_values_are_refused(schemas, binary), damaged_files_are_refused(binary, Path(folder)),
                baselines_agree(binary, root, Path(folder))]
        done.append(f"{binary.documents} documents in all, {binary.starts} of them by starting the program")
    if failures:
        sys.exit(f"check_schemas: {len(failures)} failures")
    print(f"checked {'; '.join(done)}")


if __name__ == "__main__":
    main()
