#!/usr/bin/env python3
"""hostile.py finds what a program does wrong, and nothing in one that does nothing wrong.

usage: check_hostile.py   (without arguments, it plays itself a program with one fault at a time)
"""

import os
import pathlib
import stat
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
RUNS = 8

# A program that refuses everything as it should, but for one fault.
PROGRAM = """#!{python}
import os, pathlib, sys
fault = os.environ["FAULT"]
outputs = [word for word in sys.argv if word.endswith((".json", ".jsonl")) and "/" not in word]
if fault == "abort":
    os.abort()
if fault == "status":
    sys.exit(3)
if fault == "computing":
    for i in range(10**12):
        if os.times().user > 5.5:
            break
if fault == "temporary":
    pathlib.Path("out.json.1234").write_text("")
if fault == "partial":
    pathlib.Path(sys.argv[-1] if sys.argv[-1] in outputs else "link.json").write_text("half of")
if fault == "printed":
    print("and yet it said something")
if fault == "number":
    print('{{"step_ms": NaN}}')
    sys.exit(0)
lines = {{"lines": "bucketwise: one\\nand another", "character": "bucketwise: \\x1b[31m", "silent": "",
         "unnamed": "went wrong", "long": "bucketwise: " + "x" * 5000}}
sys.stderr.write(lines.get(fault, "bucketwise: expected something else") + "\\n" * (fault != "silent"))
sys.exit(2)
"""
FOUND = {
    "none": "no findings",
    "abort": "was killed by SIGABRT",
    "status": "ended with 3",
    "computing": "computed for",
    "temporary": "was left behind",
    "partial": "half|was written, though|left behind|was changed",
    "printed": "ended with 2 and printed",
    "number": "NaN is no number of JSON",
    "lines": "ended with 2 and said",
    "character": "holds the character",
    "silent": "said nothing",
    "unnamed": "ended with 2 and said",
    "long": "has a line of 5012 characters",
}


def main():
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        program = pathlib.Path(folder) / "program"
        program.write_text(PROGRAM.format(python=sys.executable))
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        for fault, expected in FOUND.items():
            runs = 1 if fault == "computing" else RUNS
            ended = subprocess.run(
                [sys.executable, HERE / "hostile.py", program, HERE.parents[1], "--runs", str(runs)],
                env={**os.environ, "FAULT": fault, "BUCKETWISE_HOSTILE_MEMORY": "any"}, capture_output=True, text=True)
            said = ended.stdout
            if ended.returncode != (0 if fault == "none" else 1) or not any(e in said for e in expected.split("|")):
                failed.append(fault)
                print(f"{fault}: expected {expected!r}, got\n{said}{ended.stderr}")
    print(f"{len(FOUND) - len(failed)} of {len(FOUND)} programs are told apart")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
