#!/usr/bin/env python3
"""Runs clang-tidy on every source of this project that a build folder compiles. Fails on any finding.

usage: tools/run_tidy.py BUILD_FOLDER...
    A file that several folders compile is checked once, as the first of them compiles it.

Nearly all the time of clang-tidy 14 goes into the headers of libraries, which it walks with every check for
every source anew. So sources that compile alike are checked together, as one file that includes them; it takes
a tenth of the time. Where that file does not compile, as two sources define the same name in their anonymous
namespaces, its halves are checked separately.
"""

import concurrent.futures
import dataclasses
import itertools
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
WORK = ROOT / "build" / "tidy"
FOLDERS = ("bench", "cli", "sim", "hw", "calibrate", "import", "tests")
OURS = rf"^{re.escape(str(ROOT))}/({'|'.join(FOLDERS)})/"
# Define other libraries' C functions, whose parameters have the names and types of their headers.
NOT_OURS_TO_NAME = ("/tests/emulated_gpu/", "/tests/hw/gpu/runtime/nccl_stand_in.cpp")
# What CMake writes where the sources of a room are compiled together: a file that includes them.
COMPILED_TOGETHER = re.compile(r"/Unity/unity_\w+\.cxx$")
INCLUDED = re.compile(r'^#include "([^"]+)"', re.MULTILINE)
MOST_TOGETHER = 12  # more saves little, and leaves processors without work
DOES_NOT_COMPILE = re.compile(r"\[clang-diagnostic-error\b|fatal error:")


@dataclasses.dataclass(frozen=True)
class Source:
    file: str
    arguments: tuple  # what it defines, where it finds headers, its language; warnings are the compilers'


def sources_of(command):
    """The source that a command compiles, or those that it compiles together."""
    file = str(pathlib.Path(command["directory"], command["file"]))
    arguments = iter(shlex.split(command["command"]))
    kept = []
    for argument in arguments:
        if argument in ("-o", "-MT", "-MF", "-include"):  # -include: of a precompiled header, GCC's own
            next(arguments)
        elif argument[:2] in ("-D", "-I", "-s", "-f") or argument == "-isystem":
            kept.append(argument)
            if argument == "-isystem":
                kept.append(next(arguments))
    files = INCLUDED.findall(pathlib.Path(file).read_text()) if COMPILED_TOGETHER.search(file) else [file]
    return [Source(one, tuple(kept)) for one in files]


def sources_in(builds):
    by_file = {}
    for build in builds:
        for command in json.loads((ROOT / build / "compile_commands.json").read_text()):
            for source in sources_of(command):
                is_ours = re.match(OURS, source.file) and not any(name in source.file for name in NOT_OURS_TO_NAME)
                if is_ours and source.file.endswith(".cpp"):  # not what nvcc compiles
                    by_file.setdefault(source.file, source)
    return [by_file[file] for file in sorted(by_file)]


def groups_of(sources):
    """Lists of sources with the same arguments, evenly sized."""
    for _, alike in itertools.groupby(sorted(sources, key=lambda s: (s.arguments, s.file)), lambda s: s.arguments):
        alike = list(alike)
        count = -(-len(alike) // MOST_TOGETHER)
        for part in range(count):
            yield alike[part::count]


def clang_flags():
    script = ROOT / "tools" / "clang_flags.sh"
    return subprocess.run([script], check=True, capture_output=True, text=True).stdout.split()


def findings(name, group, flags):
    """What clang-tidy has to say about the sources together; empty where it is content."""
    together = WORK / f"{name}.cpp"
    together.write_text("".join(f'#include "{source.file}"\n' for source in group))
    # Including sources is what this is about.
    command = ["clang-tidy-14", "--quiet", "--checks=-bugprone-suspicious-include", f"--header-filter={OURS}",
               together, "--", *group[0].arguments, *flags]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if result.returncode == 0:
        return ""
    output = result.stdout + result.stderr
    if len(group) > 1 and DOES_NOT_COMPILE.search(output):
        halves = {f"{name}_a": group[0::2], f"{name}_b": group[1::2]}
        return "".join(findings(half, sources, flags) for half, sources in halves.items())
    return output


def main():
    sources = sources_in(sys.argv[1:])
    if not sources:
        sys.exit("run_tidy.py: expected build folders with a compile_commands.json of our sources, got none")
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    flags = clang_flags()
    groups = list(groups_of(sources))
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        names = [f"group_{number}" for number in range(len(groups))]
        output = "".join(pool.map(findings, names, groups, itertools.repeat(flags)))
    if output:
        sys.exit(output)
    print(f"no finding in {len(sources)} sources")


if __name__ == "__main__":
    main()
