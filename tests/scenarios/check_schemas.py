#!/usr/bin/env python3
"""Conditions in the JSON Schemas of scenarios and links agree with the parser, and all shipped files are valid.

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

# Between them these hold every key of both schemas, as every_key_is_in_a_document() makes sure, and for every bound the
# values at which the parser allows the most. The scenario fuzzer begins with them, too.
DOCUMENTS = {file.stem: json.loads(file.read_text())
             for file in sorted((Path(__file__).resolve().parent / "documents").glob("*.json"))}
MINIMAL = DOCUMENTS["minimal"]
SLOW, GRAPH_LINK, NCCL_LINK = (DOCUMENTS[name]["cluster"]["link"] for name in ("minimal", "graph", "cluster"))
ERRORS = {"latency_us": 1.0, "bandwidth_gb_per_s": 0.1, "correlation": -0.5}

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
    for name, document in DOCUMENTS.items():
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


def enums_and_ranges_agree(schemas, binary):
    """Compares the values that the parser expects in place of an impossible one."""
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
        elif node["type"] in ("integer", "number"):
            found = re.search(r"(integer from|number of at least|number above) (\S+) (?:to|and at most) (\S+), got",
                              message)
            if not found or ("integer" in found[1]) != (node["type"] == "integer"):
                fail(f"{place}: the schema says {node['type']}, the parser {message}")
                continue
            own = (node.get("exclusiveMinimum", node["minimum"]), node["maximum"])
            key = pointer if isinstance(pointer[-1], int) else pointer[-1]
            of_key = ranges.setdefault((key, node.get("description")), [own, set()])
            of_key[1].add((float(found[2]), float(found[3])))
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


TIERS = {**{key: value for key, value in SLOW.items() if key != "segments"}, "algorithm": "hierarchical", "intra": SLOW,
         "inter": SLOW}
ONE, GROUP = ({"compute_slowdown": 1, "communication_slowdown": 1, **more} for more in ({}, {"ctas": 4}))
SEGMENTS, SLOWER = [{"latency_us": 3, "bandwidth_gb_per_s": 2}], {"rank": 1, "compute_slowdown": 1.2}
# By document and pointer, values that the schema refuses, and those that only the parser can.
INVALID = {
    "minimal": {
        "/sync/bucket_cap_mb": ([25], []), "/workload/gradient": ([[]], []),
        "/name": ([7, "", "two\nlines", "n" * 201], []), "/workload": ([[]], []),
        "/workload/forward_ms": ([-1, "1"], []), "/workload/backward_ms": ([1e8], []),
        "/workload/gradients": ([[], {}], []), "/workload/gradients/0/numel": ([-5, 1.5], []),
        "/workload/gradients/0/dtype": (["float8"], []), "/workload/gradients/0/ready_ms": ([], [3.5]),
        "/cluster/ranks": ([0, True], []), "/cluster/ranks_per_node": ([], [3]),
        "/cluster/link": (
            [None, {**TIERS, "message_us": 1}, {**TIERS, "processors": 4}, {**TIERS, "all_gather": {"segments": SEGMENTS}},
             {**TIERS, "reduce_scatter": {"launch_us": 1, "interference": "none"}},
             {**GRAPH_LINK, "all_gather": {"segments": SEGMENTS}}, {**NCCL_LINK, "reduce_scatter": {}},
             TIERS],  # without ranks_per_node
            ["links/none.json", "."]),
        "/cluster/link/algorithm": (["butterfly"], []), "/cluster/link/intra": ([SLOW], []),
        "/cluster/link/segments": ([[]], []), "/cluster/link/message_us": ([-1], []),
        "/cluster/link/processors": ([0], []), "/cluster/link/segments/0/up_to_bytes": ([0], []),
        "/cluster/link/segments/1/up_to_bytes": ([], [1 << 30]),
        "/cluster/link/segments/1/bandwidth_gb_per_s": ([0], []),
        "/cluster/link/interference": (
            [{**ONE, "compute_slowdown": 0.9}, [], "some", {**ONE, "start_delay_us": -1},
             GROUP, [GROUP]],  # without ctas of the link
            [[ONE] * 2]),
        "/cluster/link/all_gather": (
            [{}, {"interference": "none"},  # beside segments
             {"segments": []}], [{"segments": SEGMENTS * 2}]),
        "/cluster/link/reduce_scatter": (
            [{"segments": SEGMENTS, "interference": GROUP}, {"segments": SEGMENTS, "meeting_us": 1}], []),
        "/cluster/link/ctas": ([0, 1025], []),
        "/cluster/link/segments/1/standard_errors": ([{**ERRORS, "correlation": 1.5}, {"latency_us": 1}], []),
        "/cluster/link/caveats": ([[{"text": "weak", "why": "so"}]], []),
        "/cluster/stragglers": ([[], [{**SLOWER, "compute_slowdown": 0.9}], [{"rank": 1}]],
                                [[{**SLOWER, "rank": 2}], [SLOWER] * 2]),  # of 2 ranks
        "/variation/seed": ([-1], []), "/variation/compute_spread": ([1.5], []),
        "/variation/rank_spread": ([1.5], []),
        "/variation/straggler_probability": ([0.5], []),  # without straggler_slowdown
        "/variation/straggler_slowdown": ([2], []),  # without straggler_probability
        "/caveats": (["weak", [], [""], ["n" * 501], ["two\nlines"], [7], [{"withholds_advice": True}],
                      [{"text": "weak", "withholds_advice": 1}]], []),
        "/sync/strategy": (["DDP"], []), "/sync/bucket_cap_mib": ([0, 1e-7], []),
        "/sync/bucket_cap_mib_list": ([[1, 2]], []),  # beside bucket_cap_mib
        "/sync/pytorch_version": (["two"], []), "/step/accumulation": ([0], []),
        "/step/optimizer": (["adam"], []),  # without a device
        "/step/cuda_graph": ([1], []), "/step/sync_each_step": ([1], []),
        "/step/one_hardware_queue": ([1], []), "/step/launch_queue": ([0], []),
        "/workload/model": (["resnet50"], []),  # beside gradients
    },
    "vision": {  # beside a link with ctas
        "/cluster/link/interference": ([[GROUP, ONE]], [[GROUP] * 2, [{**GROUP, "up_to_bytes": 9}]]),
        "/cluster/link/interference/1/ctas": ([1025], []), "/cluster/link/interference/1/up_to_bytes": ([], [2048]),
    },
    "shape": {
        "/workload/model": (["gpt5"], []), "/workload/model/layers": ([100_000], []),
        "/workload/model/heads": ([], [3]), "/workload/sequence_length": ([], [17]),
        "/workload/device": (["H1000"], []), "/workload/arithmetic": (["float8"], []),
        "/workload/image_size": ([224], []),
    },
    "llama": {f"/workload/model/{key}": ([False], []) for key in ("linear_bias", "norm_bias")},
    "vit": {
        "/workload/image_size": ([], [36]),  # no multiple of the patch
        "/workload/model/hugging_face": ([False], []), "/workload/model/heads": ([], [3]),
        "/workload/model/patch": ([257], []), "/workload/sequence_length": ([17], []),
    },
    "patches": {"/workload/image_size": ([72], []), "/workload/sequence_length": ([17], [])},
}


def invalid_values_are_refused(schemas, binary):
    documents = {**DOCUMENTS, "patches": replaced(DOCUMENTS["vision"], ("workload", "model"), "vit_b_16")}
    cases = [(documents[name], place, value, schema_can_tell) for name, by_place in INVALID.items()
             for place, both in by_place.items() for values, schema_can_tell in zip(both, (True, False)) for value in values]
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


def written_baselines_are_valid(binary, root, folder):
    """Files that check writes of traces, measurements and scenarios fit their schema and are read."""
    validator = jsonschema.Draft202012Validator(json.loads((root / "scenarios" / "baseline.schema.json").read_text()))
    file = folder / "baseline.json"
    inputs = [str(root / "tests/data/traces/ddp.json.gz"), "resnet18",
              str(root / "tests/data/validation/transformer_300mbit_1/measurements.jsonl")]
    written = binary.started(["check", *inputs, "--baseline", str(file), "--update-baseline"])
    if written.returncode != 0:
        fail(f"a baseline: {written.stderr}")
        return "no baseline"
    for error in validator.iter_errors(json.loads(file.read_text())):
        fail(f"the schema refuses a baseline's {as_pointer(error.absolute_path)}: {error.message}")
    if (run := binary.started(["check", *inputs, "--baseline", str(file)])).returncode != 0:
        fail(f"a baseline just written: {run.stdout}{run.stderr}")
    return "a baseline"


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    program, runner = (str(Path(name).resolve()) for name in sys.argv[1:3])
    root = Path(sys.argv[3]).resolve()
    schemas = Schemas(root / "scenarios")
    for schema in schemas.roots.values():
        jsonschema.Draft202012Validator.check_schema(schema)
    with tempfile.TemporaryDirectory() as folder, Binary(program, runner, Path(folder)) as binary:
        complete_operations(binary)
        every_document_is_accepted(schemas, binary)
        if failures:
            sys.exit("check_schemas: nothing else was checked")
        every_key_is_in_a_document(schemas)
        done = [shipped_files_are_valid_and_accepted(schemas, binary, root),
                enums_and_ranges_agree(schemas, binary), required_keys_agree(schemas, binary),
                invalid_values_are_refused(schemas, binary), damaged_files_are_refused(binary, Path(folder)),
                written_baselines_are_valid(binary, root, Path(folder))]
        done.append(f"{binary.documents} documents in all, {binary.starts} of them by starting the program")
    if failures:
        sys.exit(f"check_schemas: {len(failures)} failures")
    print(f"checked {'; '.join(done)}")


if __name__ == "__main__":
    main()
