#!/usr/bin/env python3
"""Checks that an installation is enough to run the program from anywhere, and to build upon the simulator.

usage: check_install.py BUILD_FOLDER REPOSITORY

Installs into a folder of its own and moves that elsewhere, as packages do; then builds a small program that finds the
package, and compares its prediction with the installed program's. The source tree takes no part in either: the program
runs with links and plots of the installed ones, in a folder that holds nothing.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

failures = []


def check(holds, text):
    if not holds:
        failures.append(text)


def run(*command, **settings):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=300, **settings)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\nexit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def install(build, folder):
    run("cmake", "--install", build, "--prefix", folder / "at first")
    prefix = folder / "moved there"
    (folder / "at first").rename(prefix)
    return prefix


def check_files(prefix, root, program):
    def same(place, command):
        file = prefix / place
        check(file.is_file() and file.read_text() == run(program, *command), f"{place}: not what {command} prints")

    same("share/man/man1/bucketwise.1", ["man"])
    same("share/bash-completion/completions/bucketwise", ["completion", "bash"])
    same("share/zsh/site-functions/_bucketwise", ["completion", "zsh"])
    for folder in ("scenarios", "plots"):
        for file in (root / folder).rglob("*"):
            if file.is_file() and "__pycache__" not in file.parts:
                installed = prefix / "share" / "bucketwise" / file.relative_to(root)
                check(installed.is_file() and installed.read_bytes() == file.read_bytes(), f"{installed}: missing or other")
    for file in (root / "docs").rglob("*.md"):
        check((prefix / "share" / "doc" / "bucketwise" / file.relative_to(root)).is_file(), f"{file}: not installed")
    for file in (root / "sim").rglob("*.h"):
        check((prefix / "include" / "bucketwise" / file.relative_to(root)).is_file(), f"{file}: not installed")
    check(not list(prefix.rglob("*.cpp")), "sources are installed")


def check_no_paths(prefix, build):
    """A moved package finds all by itself."""
    for file in prefix.rglob("*.cmake"):
        for path in (str(build), "at first"):
            check(path not in file.read_text(), f"{file.name}: names {path}")


def check_program(program, prefix, root, folder):
    away = folder / "away"
    away.mkdir()
    shipped = run(program, "predict", "scenarios/compare_ddp_core.json", "--json", "-", cwd=away)
    check(shipped == run(program, "predict", root / "scenarios/compare_ddp_core.json", "--json", "-"), "a shipped scenario")
    check("ib-ndr-400" in run(program, "link", "list", cwd=away), "link list")
    run(program, "link", "show", "scenarios/links/nccl_h100_nvlink.json", "--ranks", "4", cwd=away)
    run(program, "predict", "scenarios/two_buckets.json", "--link", "scenarios/links/ethernet_1gbit.json", cwd=away)
    # Not the source tree's, which the program falls back to.
    installed = prefix / "share" / "bucketwise" / "scenarios"
    shutil.copy(installed / "two_buckets.json", installed / "only_installed.json")
    run(program, "predict", "scenarios/only_installed.json", cwd=away)
    # One's own comes first, and what is nowhere is missed by the name that was typed.
    (away / "scenarios").mkdir()
    (away / "scenarios" / "two_buckets.json").write_text("{}")
    for name, part in (("two_buckets", "name"), ("no_such", "No such file")):
        done = subprocess.run([program, "predict", f"scenarios/{name}.json"], cwd=away, capture_output=True, text=True)
        fine = done.returncode == 2 and f"scenarios/{name}.json: " in done.stderr and part in done.stderr
        check(fine and str(prefix) not in done.stderr, f"{name}: {done.returncode} {done.stderr}")


def check_plots(program, prefix, folder):
    """Its own plot.py draws; without matplotlib it is at least the one that is asked. By the Python that is named."""
    away = folder / "validation"
    named = folder / "named"
    named.write_text(f'#!/bin/sh\necho "$0" >> "{folder}/asked"\nexec python3 "$@"\n')
    named.chmod(0o755)
    run(program, "validate", "scenarios/two_buckets.json", "-o", away, "--rounds", "2", "--bucket-cap", "1MiB,3MiB",
        "--bytes", "64KiB,1MiB,2MiB", cwd=folder, env={**os.environ, "BUCKETWISE_PYTHON": str(named)})
    check((folder / "asked").is_file(), "plots are not drawn by the Python that is named")
    if (away / "step_time.svg").is_file():
        # In place of plot.py something that says who it is: the installed one is what runs.
        (prefix / "share" / "bucketwise" / "plots" / "plot.py").write_text("raise SystemExit('the installed one')")
        shutil.rmtree(away)
        run(program, "validate", "scenarios/two_buckets.json", "-o", away, "--rounds", "2", "--bucket-cap", "1MiB,3MiB",
            "--bytes", "64KiB,1MiB,2MiB", cwd=folder)
        check("the installed one" in (away / "report.md").read_text(), "plots are not drawn by the installed plot.py")
        return ""
    notes = (away / "report.md").read_text()
    check(str(prefix / "share" / "bucketwise" / "plots" / "plot.py") in notes, f"plots: {notes}")
    return "; no matplotlib, nothing drawn"


def check_consumer(program, prefix, root, folder):
    source, build = root / "tests" / "install" / "consumer", folder / "consumer"
    # As optimised as the library, and nothing else of this project's settings.
    run("cmake", "-S", source, "-B", build, f"-DCMAKE_PREFIX_PATH={prefix}", "-DCMAKE_BUILD_TYPE=Debug",
        "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON")
    run("cmake", "--build", build)
    scenario = root / "scenarios" / "two_buckets.json"
    theirs = json.loads(run(build / "consumer", scenario))
    ours = json.loads(run(program, "predict", scenario, "--json", "-"))
    check(theirs == ours, f"consumer: {[key for key in ours if theirs.get(key) != ours[key]]} differ")
    commands = (build / "compile_commands.json").read_text()
    check("-Werror" not in commands and str(root / "sim") not in commands, f"consumer: {commands}")


def main():
    build, root = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prefix = install(build, folder)
        program = prefix / "bin" / "bucketwise"
        check_files(prefix, root, program)
        check_no_paths(prefix, build)
        check_program(program, prefix, root, folder)
        check_consumer(program, prefix, root, folder)
        drawn = check_plots(program, prefix, folder)
    print("\n".join(failures))
    print(f"{len(failures)} failures{drawn}")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
