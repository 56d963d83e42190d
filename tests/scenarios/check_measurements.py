#!/usr/bin/env python3
"""Real measurements, their JSON Schema and what they say of themselves agree.

usage: check_measurements.py path/to/bucketwise repo_root

Runs `bucketwise measure` on the smallest scenario and on a model, and checks every line; the last run once more with
what only ranks on a GPU measure, made up, as far as calibration.
"""
import collections
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import jsonschema

ROUNDS = 2
RUNS = [("two_buckets.json", 2, ["--bucket-cap", "1MiB,25MiB", "--bytes", "4KiB,1MiB"]),
        ("two_buckets.json", 3, ["--strategy", "flat", "--all-reduce", "direct", "--bytes", "64KiB"]),
        ("resnet_small.json", 2, ["--set", "/workload/image_size=32", "--set", "/workload/batch=1", "--bucket-cap", "8MiB",
                                  "--bytes", "64KiB,1MiB"])]


def measure(program, root, scenario, ranks, options, output):
    command = [program, "measure", f"{root}/scenarios/{scenario}", "--ranks", str(ranks), "--rounds", str(ROUNDS),
               "-o", str(output), *options]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return [json.loads(line) for line in output.read_text().splitlines()]


def check_environment(records, ranks):
    first = records[0]
    assert first["kind"] == "environment" and first["ranks"] == ranks
    assert first["scenario"]["cluster"]["ranks"] == ranks, "the scenario as it was run"
    assert [r["kind"] for r in records].count("environment") == 1


def check_counts(records, ranks, options):
    """Every round holds every item once; compute has a line per rank."""
    kinds = collections.Counter((r["kind"], r["round"]) for r in records[1:])
    sizes = options[options.index("--bytes") + 1].count(",") + 1
    for round_ in range(ROUNDS):
        assert kinds["allreduce", round_] == sizes
        assert kinds["compute", round_] == ranks
    steps = collections.Counter((r["bucket_cap_mib"], r["is_default"]) for r in records if r["kind"] == "step")
    assert set(steps.values()) == {ROUNDS}, steps


def check_compute(records, environment):
    for r in (r for r in records if r["kind"] == "compute"):
        assert len(r["forward_operations_us"]) == len(environment["forward_operations"])
        assert len(r["backward_operations_us"]) == len(environment["backward_operations"])
        assert len(r["ready_us"]) == len(environment["gradients"])
        assert max(r["ready_us"]) <= r["backward_us"]
        parts = r["forward_us"] + r["backward_us"] + r["optimizer_us"]
        assert abs(parts - r["samples_us"][0]) < 1e-3 * parts + 1e-3
        assert sum(r["backward_operations_us"]) <= r["backward_us"]


def check_steps(records, environment):
    gradient_bytes = None
    for r in (r for r in records if r["kind"] == "step"):
        assert len(r["by_rank"]) == environment["ranks"]
        assert r["samples_us"][0] == max(rank["step_us"] for rank in r["by_rank"])
        assert abs(r["samples_us"][0] - r["free_communication_us"][0] - r["exposed_communication_us"]) < 1e-3
        for rank in r["by_rank"]:
            assert abs(rank["forward_us"] + rank["backward_us"] + rank["optimizer_us"] - rank["step_us"]) < 1e-2
            assert rank["waiting_us"] <= rank["step_us"]
            assert rank["peak_memory_bytes"] > 1_000_000
        assert sum(r["bucket_bytes"]) == (gradient_bytes := gradient_bytes or sum(r["bucket_bytes"]))
        # In launch order, one after another, within the step.
        ends = r["collective_end_us"]
        assert all(b <= e for b, e in zip(r["collective_begin_us"], ends))
        assert all(e <= b for e, b in zip(ends, r["collective_begin_us"][1:]))
        assert ends[-1] <= r["by_rank"][0]["step_us"]
        assert len(r["collective_last_begin_us"]) == len(ends)
        assert all(b <= last for b, last in zip(r["collective_begin_us"], r["collective_last_begin_us"]))


def check_every_kind(records):
    assert {r["kind"] for r in records} == {"environment", "allreduce", "compute", "contention", "step"}


def as_of_a_gpu(records):
    """The same run with the keys that only a GPU's ranks write, on one GPU, contention with 2 and 8 thread blocks, and
    all-reduces once more as if they had been reduce-scatters."""
    written = []
    for r in records:
        r = {**r, "shared_gpu": True, "backend": "nccl"}
        if r["kind"] == "environment":
            r |= {"gpu": "a GPU"}
        elif r["kind"] == "allreduce":
            r |= {"issue_us": [7.0] * len(r["samples_us"])}
            written.append({**r, "kind": "reducescatter"})
        elif r["kind"] == "compute":
            r |= {f"{part}_launches_us": [3.0] * len(r[f"{part}_operations_us"]) for part in ("forward", "backward")}
            r |= {"copies_us": 1000.0, "graph_launch_us": 11.0}
        elif r["kind"] == "contention":
            r |= {f"products_{how}_us": [t / 2 for t in r[f"compute_{how}_us"]] for how in ("alone", "disturbed")}
            r |= {"ctas": 2}
            written.append({**r, "ctas": 8})
            written.append({**r, "ctas": 8, "collective": "reducescatter"})
        written.append(r)
    return written


def as_list(interference):
    return interference if isinstance(interference, list) else [interference]


def check_calibration(program, records, folder):
    """Quantities that only ranks on GPUs measure arrive in the calibrated link and scenario."""
    files = [str(folder / name) for name in ("gpu.jsonl", "link.json", "scenario.json")]
    Path(files[0]).write_text("".join(json.dumps(r) + "\n" for r in records))
    done = subprocess.run([program, "calibrate", files[0], "-o", files[1], "--scenario-output", files[2]],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    link, scenario = (json.loads(Path(f).read_text()) for f in files[1:])
    assert link["host_issue_us"] == 7 and link["ctas"] == 8
    assert {entry["ctas"] for entry in link["interference"]} == {2, 8}
    assert {entry["ctas"] for entry in as_list(link["reduce_scatter"]["interference"])} == {8}
    assert len(link["reduce_scatter"]["segments"]) == len(link["segments"]) and "all_gather" not in link
    assert link["name"].endswith("shared GPU, not an interconnect")
    assert link["provenance"]["hardware"].startswith("a GPU; ")
    device = scenario["workload"]["device"]
    assert (device["launch_us"], device["graph_launch_us"], device["host_is_device"]) == (3, 11, False)
    again = subprocess.run([program, "predict", files[2]], capture_output=True, text=True)
    assert again.returncode == 0, again.stderr


def kinds_of(schema):
    kind = schema["properties"]["kind"]
    return kind.get("enum") or [kind["const"]]


def bench(program, kind, output):
    command = [program, "bench", kind, "--ranks", "2,3", "--algorithms", "ring", "--bytes", "64KiB", "--rounds", "1",
               "-o", str(output)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}: {done.stderr}"
    records = [json.loads(line) for line in output.read_text().splitlines()]
    assert {r["kind"] for r in records} == {"environment", kind}
    return records


def check_sharded(program, root, folder):
    """A step that is sharded has a setting where others have a cap, and messages of two kinds beside it."""
    records = measure(program, root, "two_buckets.json", 2,
                      ["--set", '/sync={"strategy": "fsdp", "sharding": {"asynchronous_unshard": true}}',
                       "--sharding", "0/keep", "--bytes", "64KiB"], Path(folder, "sharded.jsonl"))
    kinds = collections.Counter(r["kind"] for r in records if r.get("round") == 0)
    # Nothing but the root, which stays either way: what both settings do is measured once.
    assert kinds == {"allgather": 1, "reducescatter": 1, "compute": 2, "contention": kinds["contention"], "step": 1}, kinds
    assert {r["collective"] for r in records if r["kind"] == "contention"} == {"allgather"}
    for r in (r for r in records if r["kind"] == "step"):
        assert "bucket_cap_mib" not in r and r["bucket_bytes"] == []
        assert r["sharding"]["asynchronous_unshard"] is True
    return records


def main():
    program, root = sys.argv[1:]
    schema = json.loads(Path(root, "scenarios/measurement.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    by_kind = {kind: jsonschema.Draft202012Validator(s) for s in schema["oneOf"] for kind in kinds_of(s)}
    with tempfile.TemporaryDirectory() as folder:
        for number, (scenario, ranks, options) in enumerate(RUNS):
            records = measure(program, root, scenario, ranks, options, Path(folder, f"{number}.jsonl"))
            for record in records:
                by_kind[record["kind"]].validate(record)
            check_every_kind(records)
            check_environment(records, ranks)
            check_counts(records, ranks, options)
            check_compute(records, records[0])
            check_steps(records, records[0])
        of_gpu = as_of_a_gpu(records)
        for record in of_gpu:
            by_kind[record["kind"]].validate(record)
        check_calibration(program, of_gpu, Path(folder))
        for record in check_sharded(program, root, folder):
            by_kind[record["kind"]].validate(record)
        for kind in ("allreduce", "allgather", "reducescatter"):
            for record in bench(program, kind, Path(folder, f"{kind}.jsonl")):
                by_kind[record["kind"]].validate(record)
    print(f"{len(RUNS) + 1} runs, every line valid")


if __name__ == "__main__":
    main()
