"""Checks that the folders keep their distance and that nothing every folder needs is missing.

usage: check_layering.py REPOSITORY

First shows itself, on a small tree made for it, that each violation is found; then prints every violation
in the repository, one per line, and exits with 1 if there is any.
"""

import dataclasses
import pathlib
import re
import sys
import tempfile

# The values that describe a run, and their readers: what real ranks and the simulator share. None of them
# simulates.
SHARED_WITH_HW = {f"sim/{name}.h" for name in (
    "batch_norm", "collective", "device", "device_input", "dtype", "error", "hash", "invariant", "json", "json_input",
    "link", "link_input", "model", "models", "plan", "program", "scenario", "strategy", "timeline", "training_schedule",
    "units", "workload")}
ENGINE = "sim/engine/engine.h"
# What measurements look like as records; not how they are taken.
RECORDS_OF_HW = re.compile(r"hw/(environment|measurement|record)\w*\.h")

MAY_INCLUDE = {
    "sim": lambda path: path.startswith("sim/"),
    "hw": lambda path: path.startswith("hw/") or path in SHARED_WITH_HW,
    "calibrate": lambda path: path.startswith(("calibrate/", "sim/")) or RECORDS_OF_HW.fullmatch(path),
    "import": lambda path: path.startswith(("import/", "sim/")) or RECORDS_OF_HW.fullmatch(path),
    "cli": lambda path: path.startswith(("cli/", "sim/", "hw/", "calibrate/", "import/")),
    "tests": lambda path: True,
}
TARGETS = {
    "sim": ["bucketwise_sim"],
    "hw": ["bucketwise_hw"],
    "calibrate": ["bucketwise_calibrate"],
    "import": ["bucketwise_import"],
    "cli": ["bucketwise_cli", "bucketwise"],
    "tests": ["bucketwise_tests"],
}
DOCUMENTED = [*TARGETS, "scenarios", "tools", "plots"]  # plots only where it exists

HEADERS = (".h", ".hpp", ".cuh")
SOURCES = (*HEADERS, ".cpp", ".cu", ".cc")

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(["<])([^">]+)[">]', re.MULTILINE)
# A condition with its continuation lines. Device code asks which side it is compiled for; that is no choice
# of a backend.
CONDITION = re.compile(r"^[ \t]*#[ \t]*(?:if|ifdef|ifndef|elif)\b(?:\\\n|.)*", re.MULTILINE)
BACKEND = re.compile(r"gloo|nccl|rccl|cuda|hip|mpi|backend", re.IGNORECASE)
COMPILED_FOR_DEVICE = re.compile(r"__CUDACC__|__CUDA_ARCH__")
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


@dataclasses.dataclass(frozen=True)
class Include:
    line: int
    quoted: bool
    path: str


def code_files(repository, folder):
    return [file for file in sorted((repository / folder).rglob("*")) if file.suffix in SOURCES]


def without_comments(text):
    """Comments become empty, line numbers stay."""
    return COMMENT.sub(lambda match: "\n" * match.group().count("\n"), text)


def line_of(text, position):
    return text.count("\n", 0, position) + 1


def includes_of(file):
    text = without_comments(file.read_text())
    return [Include(line_of(text, match.start()), match.group(1) == '"', match.group(2))
            for match in INCLUDE.finditer(text)]


def check_includes(repository):
    for folder, may_include in MAY_INCLUDE.items():
        for file in code_files(repository, folder):
            for include in includes_of(file):
                place = f"{file.relative_to(repository)}:{include.line}"
                ours = include.path.split("/")[0] in MAY_INCLUDE
                if include.quoted and not (ours and (repository / include.path).is_file()):
                    yield f"{place}: expected a path from the repository's root, got {include.path}"
                elif ours and not may_include(include.path):
                    yield f"{place}: {folder} may not include {include.path}"


def chain_to_engine(repository, path, seen):
    """The includes that lead from `path` to the engine; None if none do."""
    if path == ENGINE:
        return [path]
    file = repository / path
    if path in seen or not file.is_file():
        return None
    seen.add(path)
    for include in includes_of(file):
        chain = chain_to_engine(repository, include.path, seen)
        if chain:
            return [path, *chain]
    return None


def check_engine_unreached(repository):
    for file in code_files(repository, "hw"):
        chain = chain_to_engine(repository, str(file.relative_to(repository)), set())
        if chain and len(chain) > 2:  # a direct include is check_includes' to report
            yield f"{chain[0]}: hw may not reach the engine: {' -> '.join(chain[1:])}"


def check_conditions(repository):
    for folder in MAY_INCLUDE:
        for file in code_files(repository, folder):
            text = without_comments(file.read_text())
            for match in CONDITION.finditer(text):
                if BACKEND.search(COMPILED_FOR_DEVICE.sub("", match.group())):
                    yield (f"{file.relative_to(repository)}:{line_of(text, match.start())}: expected a class and a "
                           f"target for each backend, got {' '.join(match.group().split())}")


def check_headers(repository):
    for folder in MAY_INCLUDE:
        for file in code_files(repository, folder):
            if file.suffix not in HEADERS:
                continue
            text = file.read_text()
            if not text.startswith(("//", "/*")):
                yield f"{file.relative_to(repository)}: expected a comment first that says what it is for"
            if not re.search(r"^#pragma once$", text, re.MULTILINE):
                yield f"{file.relative_to(repository)}: expected #pragma once"


def check_readmes(repository):
    for folder in DOCUMENTED:
        if (repository / folder).is_dir() and not (repository / folder / "README.md").is_file():
            yield f"{folder}: expected a README.md"


def check_targets(repository):
    for folder, targets in TARGETS.items():
        lists = repository / folder / "CMakeLists.txt"
        text = lists.read_text() if lists.is_file() else ""
        for target in targets:
            if not re.search(rf"^\s*add_(library|executable)\(\s*{target}\s", text, re.MULTILINE):
                yield f"{folder}/CMakeLists.txt: expected the target {target}"


CHECKS = [check_includes, check_engine_unreached, check_conditions, check_headers, check_readmes, check_targets]


def violations(repository):
    return [violation for check in CHECKS for violation in check(repository)]


# --- the check of the check ------------------------------------------------------------------------------

HEADER = "// Why this is here.\n#pragma once\n"


def sound_tree():
    """Files without any violation, by path."""
    files = {f"{folder}/README.md": "# Why\n" for folder in DOCUMENTED}
    for folder, targets in TARGETS.items():
        files[f"{folder}/CMakeLists.txt"] = "".join(f"add_library({target} x.cpp)\n" for target in targets)
    files |= {
        "sim/base/units.h": HEADER,
        "sim/plan/plan.h": HEADER + '#include "sim/base/units.h"\n',
        "sim/engine/engine.h": HEADER + '#include <vector>\n#include "sim/plan/plan.h"\n',
        "hw/rank.h": HEADER + '#include "sim/plan/plan.h"\n// #include "sim/engine/engine.h" and #ifdef NCCL in comments only\n',
        "hw/measurements.h": HEADER,
        "hw/kernel.cu": "#ifdef __CUDACC__\n#endif\n",
        "calibrate/fit.cpp": '#include "hw/measurements.h"\n#include "sim/engine/engine.h"\n',
        "import/log.cpp": '#include "hw/measurements.h"\n#include "sim/plan/plan.h"\n',
        "cli/main.cpp": '#include "hw/rank.h"\n#include "sim/engine/engine.h"\n',
        "tests/sim/plan/plan_test.cpp": '#include "sim/plan/plan.h"\n#if __has_include(<catch2/catch.hpp>)\n#endif\n',
    }
    return files


# Path, content (None: no such file), and what the only violation must say.
UNSOUND = [
    ("sim/a.cpp", '#include "hw/rank.h"\n', "sim/a.cpp:1: sim may not include hw/rank.h"),
    ("sim/a.cpp", "\n#include <hw/rank.h>\n", "sim/a.cpp:2: sim may not include hw/rank.h"),
    ("sim/a.cpp", '#include "plan.h"\n', "sim/a.cpp:1: expected a path from the repository's root, got plan.h"),
    ("sim/a.cpp", '#include "../hw/rank.h"\n', "expected a path from the repository's root, got ../hw/rank.h"),
    ("hw/a.cpp", '/* a\n */ \n# include "sim/engine/engine.h"\n', "hw/a.cpp:3: hw may not include sim/engine/engine.h"),
    ("hw/a.cpp", '#include "cli/shell/command.h"\n', "got cli/shell/command.h"),
    ("sim/plan/plan.h", HEADER + '#include "sim/engine/engine.h"\n', "hw may not reach the engine: sim/plan/plan.h -> sim/engine/engine.h"),
    ("calibrate/a.h", HEADER + '#include "hw/rank.h"\n', "calibrate/a.h:3: calibrate may not include hw/rank.h"),
    ("import/a.cpp", '#include "calibrate/fit.h"\n', "import/a.cpp:1: expected a path"),
    ("import/a.cpp", '#include "hw/rank.h"\n', "import/a.cpp:1: import may not include hw/rank.h"),
    ("cli/a.h", HEADER + '#include "tests/oracle.h"\n', "got tests/oracle.h"),
    ("cli/a.cpp", '#include "tests/sim/plan/plan_test.cpp"\n', "cli may not include tests/sim/plan/plan_test.cpp"),
    ("cli/a.cpp", "#ifdef BUCKETWISE_WITH_NCCL\n#endif\n", "got #ifdef BUCKETWISE_WITH_NCCL"),
    ("hw/a.cpp", "#if defined(X) || \\\n  __has_include(<gloo/algorithm.h>)\n#endif\n", "hw/a.cpp:1: expected a class"),
    ("sim/a.h", "#pragma once\n", "sim/a.h: expected a comment first"),
    ("sim/a.h", "// Why.\n", "sim/a.h: expected #pragma once"),
    ("hw/README.md", None, "hw: expected a README.md"),
    ("plots/README.md", None, "plots: expected a README.md"),
    ("cli/CMakeLists.txt", "add_library(bucketwise_cli x.cpp)\n", "expected the target bucketwise"),
    ("tests/CMakeLists.txt", None, "expected the target bucketwise_tests"),
]


def violations_of_tree(files):
    with tempfile.TemporaryDirectory() as folder:
        repository = pathlib.Path(folder)
        for path in {*files, "plots/plot.py"}:
            content = files.get(path, "")
            if content is not None:
                (repository / path).parent.mkdir(parents=True, exist_ok=True)
                (repository / path).write_text(content)
        return violations(repository)


def wrong_verdicts():
    """Trees that the checks above judge wrongly."""
    found = violations_of_tree(sound_tree())
    if found:
        yield f"a sound tree: expected no violation, got {found}"
    for path, content, expected in UNSOUND:
        found = violations_of_tree(sound_tree() | {path: content})
        if len(found) != 1 or expected not in found[0]:
            yield f"{path} with {content!r}: expected only '{expected}', got {found}"


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: check_layering.py REPOSITORY")
    problems = [f"check_layering.py itself: {wrong}" for wrong in wrong_verdicts()]
    problems += violations(pathlib.Path(sys.argv[1]).resolve())
    print("\n".join(problems) if problems else f"no violation, and {len(UNSOUND)} made for the test are found")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
