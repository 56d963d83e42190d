#!/usr/bin/env python3
"""Collects the seeds of kineto_fuzzer: every file of its seeds folder, and a step of each real trace.

usage: make_kineto_seeds.py SEEDS_FOLDER TRACES_FOLDER OUTPUT_FOLDER

Of a real trace the shortest step is taken, with times since its begin and without numbers that no reader looks at,
as the fuzzer changes short inputs faster, and takes none that are longer than 16 KiB.
"""

import gzip
import json
import pathlib
import shutil
import sys

LONGEST_BYTES = 16384
HEAD = ("schemaVersion", "distributedInfo")
UNREAD = ("Ev Idx", "Sequence number", "Fwd thread id", "Record function id", "Concrete Inputs", "Input Strides",
          "Python id", "Python parent id", "Process Group Description", "Process Group Ranks", "Rank",
          "In split size", "Out split size", "Global rank start", "Global rank stride", "Seq")


def steps_of(events):
    found = [event for event in events if event.get("name", "").startswith("ProfilerStep")]
    return sorted(found, key=lambda event: event["dur"])


def within(step, events):
    begin, end = step["ts"], step["ts"] + step["dur"]
    return [event for event in events if event.get("ph") == "X" and begin <= event["ts"] <= end]


def shortened(event, begin):
    args = {key: value for key, value in event.get("args", {}).items() if key not in UNREAD}
    return {**{key: event[key] for key in ("ph", "cat", "name", "pid", "tid") if key in event},
            "ts": round(event["ts"] - begin, 1), "dur": round(event["dur"], 1), "args": args}


def seed_of(document):
    """Returns nothing for a document that is not a profiler's trace with marked steps, or is too long."""
    if not isinstance(document, dict) or not isinstance(document.get("traceEvents"), list):
        return None
    events = document["traceEvents"]
    steps = steps_of(events)
    if not steps:
        return None
    kept = {key: document[key] for key in HEAD if key in document}
    kept.get("distributedInfo", {}).pop("pg_config", None)
    kept["traceEvents"] = [shortened(event, steps[0]["ts"]) for event in within(steps[0], events)]
    text = json.dumps(kept, separators=(",", ":"))
    return text if len(text) <= LONGEST_BYTES else None


def main():
    seeds, traces, output = map(pathlib.Path, sys.argv[1:])
    output.mkdir(parents=True, exist_ok=True)
    for file in sorted(seeds.iterdir()):
        shutil.copyfile(file, output / file.name)
    for file in sorted(traces.glob("*.json.gz")):
        seed = seed_of(json.loads(gzip.decompress(file.read_bytes())))
        if seed is not None:
            (output / ("real_" + file.name.removesuffix(".gz"))).write_text(seed)


if __name__ == "__main__":
    main()
