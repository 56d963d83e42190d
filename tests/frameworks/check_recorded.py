#!/usr/bin/env python3
"""Checks the installed frameworks against their recordings: makes a part of each recording anew and compares.

usage: check_recorded.py

DeepSpeed and Megatron core with one model each, PyTorch's memory of gradients and buckets, and what Accelerate hands on.
A framework that is not installed, or in another version than recorded, is left out by name; with nothing left the exit
code is 77.
"""

import importlib.metadata
import json
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
DATA = HERE.parent / "data" / "frameworks"
SKIPPED = 77
# By recording: the package, and what its script is asked for.
PARTS = {
    "deepspeed": ("deepspeed", ["--only", '"model": "shuffled"']),
    "megatron": ("megatron-core", ["--only", '"model": "shuffled"']),
    "pytorch": ("torch", ["memory"]),
    "wrappers": ("accelerate", ["accelerate"]),
}


def recorded_versions(provenance, package):
    """Without what a build adds to a version, such as +cpu."""
    found = provenance[package] if package in provenance else provenance["versions"][package]
    return [version.split("+")[0] for version in ([found] if isinstance(found, str) else found)]


def compared(name, package, arguments):
    """How many cases are as recorded; none: it is left out."""
    try:
        version = importlib.metadata.version(package).split("+")[0]
    except importlib.metadata.PackageNotFoundError:
        print(f"{name}: left out, {package} is not installed for this Python")
        return None
    stored = json.loads((DATA / f"{name}.json").read_text())
    versions = recorded_versions(stored["provenance"], package)
    if version not in versions:
        print(f"{name}: left out, {package} {version} is here, recorded was {', '.join(versions)}")
        return None
    script = [sys.executable, str(HERE / f"record_{name}.py"), *arguments]
    done = subprocess.run(script, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{name}: {' '.join(script)}: {done.stderr[-2000:]}")
    cases = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    same = [case for case in stored["cases"] if version in case.get("versions", [version])]
    known = {json.dumps(without_versions(case), sort_keys=True) for case in same}
    for case in cases:
        if json.dumps(without_versions(case), sort_keys=True) not in known:
            sys.exit(f"{name}: {package} {version} does otherwise than recorded: {json.dumps(case)}")
    if not cases:
        sys.exit(f"{name}: {' '.join(script)} gave no case")
    print(f"{name}: {package} {version}, {len(cases)} cases are as recorded")
    return len(cases)


def without_versions(case):
    return {key: value for key, value in case.items() if key not in ("versions", "equals_plain")}


def main():
    if all([compared(name, *part) is None for name, part in PARTS.items()]):
        sys.exit(SKIPPED)


if __name__ == "__main__":
    main()
