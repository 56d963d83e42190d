#!/usr/bin/env python3
"""Runs every command that README.md and scenarios/seeds.md show and compares what it prints.

usage: check_readme.py BUCKETWISE REPOSITORY

A command is a line "$ ..." in a ```console block; the lines up to the next command are its exact output, a line
"..." standing for any number of lines. `bucketwise` is the given binary. A block whose first command is a script of
the repository (./demo.sh, ./test.sh) is only checked for the script's existence: the tests are run by one of them.
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

DOCUMENTS = ("README.md", "scenarios/seeds.md")


def console_blocks(text):
    return re.findall(r"^```console\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def commands_of(block):
    """Pairs of a command and the lines it must print."""
    pairs = []
    for line in block.splitlines():
        if line.startswith("$ "):
            pairs.append((line[2:], []))
        elif pairs:
            pairs[-1][1].append(line.rstrip())
    return pairs


def matches(expected, actual):
    if not expected:
        return not actual
    if expected[0] == "...":
        return any(matches(expected[1:], actual[i:]) for i in range(len(actual) + 1))
    return bool(actual) and expected[0] == actual[0] and matches(expected[1:], actual[1:])


def check(command, expected, binary, repository, folder):
    if command.startswith("./"):
        script = repository / command.split()[0]
        return None if os.access(script, os.X_OK) else f"{script} is not a script that can be run"
    environment = dict(os.environ, PATH=f"{folder}:{os.environ['PATH']}")
    result = subprocess.run(
        ["bash", "-c", command], cwd=repository, env=environment, capture_output=True, text=True, timeout=120
    )
    actual = [line.rstrip() for line in result.stdout.splitlines()]
    while expected and not expected[-1]:
        expected = expected[:-1]
    while actual and not actual[-1]:
        actual = actual[:-1]
    if result.returncode != 0:
        return f"exit code {result.returncode}: {result.stderr}"
    if not matches(expected, actual):
        return "printed:\n" + "\n".join(actual) + "\nthe document shows:\n" + "\n".join(expected)
    return None


def main():
    binary, repository = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    failures, count = 0, 0
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "bucketwise").symlink_to(binary)
        for document in DOCUMENTS:
            for block in console_blocks((repository / document).read_text()):
                for command, expected in commands_of(block):
                    count += 1
                    complaint = check(command, expected, binary, repository, folder)
                    if complaint:
                        failures += 1
                        print(f"{document}\n$ {command}\n{complaint}\n")
    print(f"{count} commands, {failures} failures")
    return 1 if failures or count < 3 else 0


if __name__ == "__main__":
    sys.exit(main())
