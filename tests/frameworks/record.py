#!/usr/bin/env python3
"""Records anew what real frameworks and wrappers do with gradients: tests/data/frameworks.

usage: record.py [deepspeed|horovod|megatron|pytorch|wrappers ...]
       record.py --check

Without a name, all. Each has a script of its own beside this one, which says what it needs installed and what it takes;
what Python does not have is skipped, saying so. Nothing but the frameworks' own processes on loopback is used.

--check makes a part of each recording anew and compares: DeepSpeed and Megatron core with one model each, PyTorch's
memory of gradients and buckets, and what Accelerate hands on. A framework that is not installed, or in another version
than recorded, is left out by name; with nothing left the exit code is 77.
"""

import importlib.metadata
import json
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from on_ranks import is_there  # noqa: E402

SKIPPED = 77
# By recording: the modules it needs, the package with its version, and what its script is asked for to check it.
SHUFFLED = ["--only", '"model": "shuffled"']
RECORDINGS = {
    "deepspeed": (["torch", "deepspeed"], "deepspeed", SHUFFLED),
    "horovod": (["torch", "horovod"], "horovod", None),
    "megatron": (["torch", "megatron.core"], "megatron-core", SHUFFLED),
    "pytorch": (["torch"], "torch", ["memory"]),
    "wrappers": (["torch", "accelerate"], "accelerate", ["accelerate"]),
}


def script_of(name):
    return [sys.executable, str(HERE / f"record_{name}.py")]


def record(names):
    """Returns an exit code."""
    failed = False
    for name in names:
        missing = [module for module in RECORDINGS[name][0] if not is_there(module)]
        if missing:
            print(f"{name}: skipped, Python has no {' and no '.join(missing)}")
        else:
            failed = subprocess.run(script_of(name)).returncode != 0 or failed
    return int(failed)


def recorded_versions(provenance, package):
    """Without what a build adds to a version, such as +cpu."""
    found = provenance[package] if package in provenance else provenance["versions"][package]
    return [version.split("+")[0] for version in ([found] if isinstance(found, str) else found)]


def check(name, package, arguments):
    """Returns whether anything was compared. Exits where a case is not as recorded."""
    try:
        version = importlib.metadata.version(package).split("+")[0]
    except importlib.metadata.PackageNotFoundError:
        print(f"{name}: left out, {package} is not installed for this Python")
        return False
    stored = json.loads((HERE.parent / "data" / "frameworks" / f"{name}.json").read_text())
    versions = recorded_versions(stored["provenance"], package)
    if version not in versions:
        print(f"{name}: left out, {package} {version} is here, recorded was {', '.join(versions)}")
        return False
    done = subprocess.run([*script_of(name), *arguments], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{name}: {' '.join(done.args)}: {done.stderr[-2000:]}")
    cases = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    known = {text_of(case) for case in stored["cases"] if version in case.get("versions", [version])}
    for case in cases:
        if text_of(case) not in known:
            sys.exit(f"{name}: {package} {version} does otherwise than recorded: {json.dumps(case)}")
    if not cases:
        sys.exit(f"{name}: {' '.join(done.args)} gave no case")
    print(f"{name}: {package} {version}, {len(cases)} cases are as recorded")
    return True


def text_of(case):
    kept = {key: value for key, value in case.items() if key not in ("versions", "equals_plain")}
    return json.dumps(kept, sort_keys=True)


def main():
    names = sys.argv[1:]
    if names == ["--check"]:
        checkable = {name: row[1:] for name, row in RECORDINGS.items() if row[2] is not None}
        sys.exit(0 if any([check(name, *row) for name, row in checkable.items()]) else SKIPPED)
    unknown = [name for name in names if name not in RECORDINGS]
    if unknown:
        sys.exit(f"record.py: expected --check, or some of {', '.join(RECORDINGS)}, got {unknown[0]}")
    sys.exit(record(names or RECORDINGS))


if __name__ == "__main__":
    main()
