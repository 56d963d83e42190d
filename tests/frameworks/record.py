#!/usr/bin/env python3
"""Records anew what real frameworks and wrappers do with gradients: tests/data/frameworks.

usage: record.py [deepspeed|horovod|megatron|pytorch|wrappers ...]

Without a name, all. Each has a script of its own beside this one, which says what it needs installed and what it takes;
what Python does not have is skipped, saying so. Nothing but the frameworks' own processes on loopback is used.
"""

import importlib.util
import subprocess
import sys
from pathlib import Path

NEEDS = {
    "deepspeed": ["torch", "deepspeed"],
    "horovod": ["torch", "horovod"],
    "megatron": ["torch", "megatron.core"],
    "pytorch": ["torch"],
    "wrappers": ["torch", "accelerate"],
}


def is_there(module):
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def main():
    names = sys.argv[1:] or list(NEEDS)
    unknown = [name for name in names if name not in NEEDS]
    if unknown:
        sys.exit(f"record.py: expected one of {', '.join(NEEDS)}, got {unknown[0]}")
    failed = False
    for name in names:
        missing = [module for module in NEEDS[name] if not is_there(module)]
        if missing:
            print(f"{name}: skipped, Python has no {' and no '.join(missing)}")
            continue
        script = Path(__file__).with_name(f"record_{name}.py")
        done = subprocess.run([sys.executable, str(script)])
        failed = failed or done.returncode != 0
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
