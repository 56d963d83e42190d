#!/usr/bin/env python3
"""Runs clang-tidy on every source of this project that a build folder compiles. Fails on any finding.

usage: tools/run_tidy.py BUILD_FOLDER...
    A file that several folders compile is checked once, as the first of them compiles it.

clang-tidy 14 spends nearly all its time in the headers of libraries, which it walks with every check for each
source. So many sources are checked together, as one file that includes them, in a tenth of the time. Sources
whose local names collide are kept apart. If such a file still does not compile, the sources that the compiler
names are checked separately.
"""

import concurrent.futures
import dataclasses
import functools
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
# CMake writes these files, which include the sources of a unit.
COMPILED_TOGETHER = re.compile(r"/Unity/unity_\w+\.cxx$")
INCLUDED = re.compile(r'^#include "([^"]+)"', re.MULTILINE)
MOST_TOGETHER = 32  # more saves little, and leaves processors without work
NOT_TOGETHER = "-bugprone-suspicious-include"  # including sources is what this is about
# performance-unnecessary-value-param walks the whole file for each of the many functions in these headers.
SLOW_HEADERS = re.compile(r"^#include <(?:cublas|cuda|nccl)", re.MULTILINE)
THEIRS_ALONE = re.compile(r"^namespace \{$(.*?)^\}  // namespace$", re.MULTILINE | re.DOTALL)
DEFINED = re.compile(r"^(?:(?:struct|class|enum class|enum|using(?= \w+ =)) (?P<type>\w+)|using [\w:]+::(?P<used>\w+);"
                     r"|(?!namespace)[A-Za-z].*?[ &*](?P<other>\w+)(?:\(|\[|\{| =|;)).*", re.MULTILINE)
DOES_NOT_COMPILE = re.compile(r"\[clang-diagnostic-error\b|fatal error:")


@dataclasses.dataclass(frozen=True)
class Source:
    file: str
    arguments: tuple  # what it defines, where it finds headers, its language; warnings are the compilers'

    @functools.cached_property
    def own_names(self):
        """The names local to the source."""
        text = pathlib.Path(self.file).read_text()
        return names_in("".join(THEIRS_ALONE.findall(text) + re.findall("^int main.*", text, re.MULTILINE)))

    @functools.cached_property
    def shared_names(self):
        """The names that its own headers define."""
        return {name: line for header in headers_below(self.file) for name, line in names_in(header.read_text()).items()}

    @functools.cached_property
    def has_slow_headers(self):
        return any(SLOW_HEADERS.search(file.read_text())
                   for file in {pathlib.Path(self.file)} | headers_below(self.file))

    def collides_with(self, other):
        return (differ(self.own_names, other.own_names) or hides(self.own_names, other.shared_names)
                or hides(other.own_names, self.shared_names))


def names_in(text):
    """The first line of what is defined, by name."""
    return {found["type"] or found["used"] or found["other"]: found[0] for found in DEFINED.finditer(text)}


def differ(some, others):
    """Whether they define one name in two ways. The same alias may be defined often."""
    return any(some[name] != others[name] or not some[name].startswith("using") for name in some.keys() & others.keys())


def hides(own, shared):
    """Whether a name of the headers is defined anew, not just used without its namespace."""
    return any(not re.match(r"using [\w:]+;", own[name]) for name in own.keys() & shared.keys())


@functools.cache
def headers_below(file):
    """Those of our headers that a file includes, and that these include."""
    below = set()
    for name in INCLUDED.findall(pathlib.Path(file).read_text()):
        if (header := ROOT / name).is_file():
            below |= {header} | headers_below(header)
    return frozenset(below)


def sources_of(command):
    """The source that a command compiles, or those that it compiles together."""
    file = str(pathlib.Path(command["directory"], command["file"]))
    arguments = iter(shlex.split(command["command"]))
    kept = []
    for argument in arguments:
        if argument in ("-o", "-MT", "-MF", "-include"):  # -include: of a precompiled header, GCC's own
            next(arguments)
        elif argument == "-isystem":
            kept.append(argument + next(arguments))
        elif argument.startswith(("-D", "-I", "-std=")):
            kept.append(argument)
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
    """Lists of sources that can be compiled as one, with the arguments of all: none asks what is not defined."""
    groups = []
    for source in sorted(sources, key=lambda source: -len(source.own_names) - len(source.shared_names)):
        for group in groups:
            if (len(group) < MOST_TOGETHER and source.has_slow_headers == group[0].has_slow_headers
                    and not any(source.collides_with(other) for other in group)):
                group.append(source)
                break
        else:
            groups.append([source])
    # The longest begins first.
    return sorted(groups, key=lambda group: (not group[0].has_slow_headers, -len(group)))


def clang_flags():
    script = ROOT / "tools" / "clang_flags.sh"
    return subprocess.run([script], check=True, capture_output=True, text=True).stdout.split()


def findings(name, group, flags):
    """Returns the findings of clang-tidy in the sources together, empty if there are none."""
    together = WORK / f"{name}.cpp"
    together.write_text("".join(f'#include "{source.file}"\n' for source in group))
    arguments = dict.fromkeys(argument for source in group for argument in source.arguments)
    command = ["clang-tidy-14", "--quiet", f"--checks={NOT_TOGETHER}", f"--header-filter={OURS}",
               together, "--", *arguments, *flags]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if result.returncode == 0:
        return ""
    output = result.stdout + result.stderr
    if len(group) > 1 and DOES_NOT_COMPILE.search(output):
        # Separates the sources that the compiler names from the others.
        named = [source for source in group if re.search(re.escape(source.file) + r":\d+:\d+: error:", output)]
        if len(named) in (0, len(group)):
            named = group[0::2]
        parts = {f"{name}_a": named, f"{name}_b": [source for source in group if source not in named]}
        return "".join(findings(part, sources, flags) for part, sources in parts.items())
    return output


def main():
    sources = sources_in(sys.argv[1:])
    if not sources:
        sys.exit("run_tidy.py: expected build folders with a compile_commands.json of our sources, got none")
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    flags = clang_flags()
    groups = groups_of(sources)
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        names = [f"group_{number}" for number in range(len(groups))]
        output = "".join(pool.map(findings, names, groups, itertools.repeat(flags)))
    if output:
        sys.exit(output)
    print(f"no finding in {len(sources)} sources")


if __name__ == "__main__":
    main()
