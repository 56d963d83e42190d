"""Checks that the rooms keep their order and that nothing every folder needs is missing.

usage: check_layering.py REPOSITORY

First shows itself, on small trees made for it, that each violation is found; then prints every violation
in the repository, one per line, and exits with 1 if there is any.
"""

import collections
import dataclasses
import fnmatch
import functools
import pathlib
import posixpath
import re
import sys

# The values that describe a run, and their readers, shared by real ranks and the simulator. They do not simulate.
VALUES = "sim/text sim/base sim/link sim/workload sim/plan sim/program sim/sharding sim/scenario"
# Measurements as records, without the means to take them.
RECORDS = "hw/record"
# Starts real ranks and reports their results.
RANKS = "sim hw cli/shell cli/ranks calibrate/comparison"

# Every room, and from which folders it may include: of these only the rooms that stand above its own line.
ROOMS = {
    "sim/text": "",
    "sim/base": "sim",
    "sim/link/network": "sim",
    "sim/link": "sim",
    "sim/workload": "sim",
    "sim/workload/models": "sim",
    "sim/plan": "sim",
    "sim/program": "sim",
    "sim/sharding": "sim",
    "sim/scenario": "sim",
    "sim/engine": "sim",
    "sim/predict": "sim",
    "sim/optimum": "sim",
    "sim/frameworks": "sim",
    "sim/report": "sim",
    "hw/launch": VALUES,
    "hw/record": f"{VALUES} hw",
    "hw/compute": f"{VALUES} hw",
    "hw/rank": f"{VALUES} hw",
    "hw/batch_norm": f"{VALUES} hw",
    "hw/training": f"{VALUES} hw",
    "hw/backend": f"{VALUES} hw",
    "hw/cpu": f"{VALUES} hw",
    "hw/gloo/meeting": f"{VALUES} hw",
    "hw/gloo": f"{VALUES} hw",
    "hw/gpu/runtime": f"{VALUES} hw",
    "hw/gpu/kernels": f"{VALUES} hw",
    "hw/gpu": f"{VALUES} hw",
    "hw/nccl": f"{VALUES} hw",
    "hw/measure": f"{VALUES} hw",
    "calibrate/link": "sim",
    "calibrate/fit": f"sim {RECORDS} calibrate",
    "calibrate/comparison": f"sim {RECORDS} calibrate",
    "calibrate/gate": f"sim {RECORDS} calibrate",
    "import/source": "sim",
    "import/hugging_face": "sim import",
    "import/settings": "sim",
    "import/nccl_tests": f"sim {RECORDS} import",
    "import/trace": "sim import",
    "import/kineto": "sim import",
    "import/nsys": "sim import",
    "import/run": "sim calibrate/link import",
    "import/replay": "sim import",
    "import/diagnosis": "sim import",
    "import/collectives": "sim import",
    "import/flight_recorder": "sim import",
    "import/chakra": "sim import",
    "cli/shell": "sim import/source",
    "cli/ranks": "sim hw import/source cli/shell",
    "bench": RANKS,
    "bench/all_reduce": f"{RANKS} bench",
    "bench/batch_norm": f"{RANKS} bench",
    "bench/training": f"{RANKS} bench",
    "bench/steps": f"{RANKS} bench",
    "bench/rank": f"{RANKS} bench",
    "cli": "sim hw calibrate import bench cli",
}
# From here on things are simulated, or predicted by simulating: no real rank depends on it, however indirectly.
SIMULATES = list(ROOMS)[list(ROOMS).index("sim/engine"):list(ROOMS).index("sim/report") + 1]
# A stranger takes in a dozen nouns; cli has one file per subcommand, and tests mirror that.
MOST_FILES = 14
CROWDED = {"cli", "tests/cli"}

FOLDERS = [*dict.fromkeys(room.split("/")[0] for room in ROOMS), "tests"]
TARGETS = {
    "sim": ["bucketwise_sim"],
    "hw": ["bucketwise_hw"],
    "calibrate": ["bucketwise_link_fit", "bucketwise_calibrate"],
    "import": ["bucketwise_import"],
    "bench": ["bucketwise_benches"],
    "cli": ["bucketwise_cli", "bucketwise"],
    "tests": ["bucketwise_test_main"],
}
DOCUMENTED = [*FOLDERS, "scenarios", "tools", "plots"]  # plots only where it exists

HEADERS = (".h", ".hpp", ".cuh")
SOURCES = (*HEADERS, ".cpp", ".cu", ".cc")

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(["<])([^">]+)[">]', re.MULTILINE)
# A condition with its continuation lines. Device code asks which side it is compiled for; that is no choice
# of a backend.
CONDITION = re.compile(r"^[ \t]*#[ \t]*(?:if|ifdef|ifndef|elif)\b(?:\\\n|.)*", re.MULTILINE)
BACKEND = re.compile(r"gloo|nccl|rccl|cuda|hip|mpi|backend", re.IGNORECASE)
COMPILED_FOR_DEVICE = re.compile(r"__CUDACC__|__CUDA_ARCH__")
# Streams and FILEs; descriptors are for what is no document: a lock, a device.
OPENED = re.compile(r"^[ \t]*#[ \t]*include[ \t]*<fstream>|\bf(?:re)?open\(", re.MULTILINE)
OPENS = "cli/shell/files"
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


def folder_of(path):
    return path.rpartition("/")[0]


def module_of(path):
    """A header and its source are one thing: what the source includes, the header's users depend on."""
    return path.rpartition(".")[0]


def line_of(text, position):
    return text.count("\n", 0, position) + 1


@dataclasses.dataclass(frozen=True)
class Include:
    line: int
    quoted: bool
    path: str


class File:
    def __init__(self, path, text):
        self.path = path
        self.text = text
        self.is_header = path.endswith(HEADERS)
        # Comments become empty, line numbers stay.
        self.code = COMMENT.sub(lambda match: "\n" * match.group().count("\n"), text)
        self.includes = [Include(line_of(self.code, match.start()), match.group(1) == '"', match.group(2))
                         for match in INCLUDE.finditer(self.code)]


class Repository:
    """Made of texts by path: sources, and what else the checks look for."""

    def __init__(self, texts):
        self.texts = texts
        self.files = {path: File(path, text) for path, text in sorted(texts.items())
                      if path.endswith(SOURCES) and path.split("/")[0] in FOLDERS}

    @functools.cached_property
    def modules(self):
        """The modules that each module includes, itself not counted."""
        graph = collections.defaultdict(set)
        for file in self.files.values():
            graph[module_of(file.path)] |= {module_of(include.path) for include in file.includes
                                            if include.path in self.files}
        return {module: sorted(others - {module}) for module, others in graph.items()}


@functools.cache
def may_include(room, other):
    order = list(ROOMS)
    named = any(f"{other}/".startswith(f"{folder}/") for folder in ROOMS[room].split())
    return room == other or (named and order.index(other) < order.index(room))


def check_rooms(repository):
    for folder in sorted({folder_of(path) for path in repository.files if not path.startswith("tests/")} - ROOMS.keys()):
        yield f"{folder}: expected a line that says what this room may include"
    kinds = collections.Counter((folder_of(path), path.rpartition(".")[2]) for path in repository.files)
    for (folder, kind), number in sorted(kinds.items()):
        if number > MOST_FILES and folder not in CROWDED:
            yield f"{folder}: expected at most {MOST_FILES} files of one kind, got {number} .{kind}"


def check_includes(repository):
    for file in repository.files.values():
        room = folder_of(file.path)
        for include in file.includes:
            place = f"{file.path}:{include.line}"
            ours = include.path.split("/")[0] in FOLDERS
            if include.quoted and not (ours and include.path in repository.files):
                yield f"{place}: expected a path from the repository's root, got {include.path}"
            elif ours and room in ROOMS:
                other = folder_of(include.path)
                if other.split("/")[0] == "tests" or (other in ROOMS and not may_include(room, other)):
                    yield f"{place}: {room} may not include {include.path}"


def check_circles(repository):
    """One circle for each include that closes one."""
    done, path = set(), []

    def visit(module):
        path.append(module)
        for other in repository.modules.get(module, ()):
            if other in path:
                yield f"{' -> '.join(path[path.index(other):])} -> {other}: expected no circle"
            elif other not in done:
                yield from visit(other)
        done.add(path.pop())

    for module in sorted(repository.modules):
        if module not in done:
            yield from visit(module)


def check_engine_unreached(repository):
    """The shortest way from each header that hw includes, through headers and their sources."""
    for file in repository.files.values():
        if not file.path.startswith("hw/"):
            continue
        before = {module_of(file.path): None}
        queue = collections.deque(before)
        while queue:
            module = queue.popleft()
            if folder_of(module) in SIMULATES:
                chain = [module]
                while before[chain[0]]:
                    chain.insert(0, before[chain[0]])
                yield f"{file.path}: hw may not reach {folder_of(module)}: {' -> '.join(chain[1:])}"
                break
            for other in repository.modules.get(module, ()):
                if other not in before:
                    before[other] = module
                    queue.append(other)


def check_conditions(repository):
    for file in repository.files.values():
        for match in CONDITION.finditer(file.code):
            if BACKEND.search(COMPILED_FOR_DEVICE.sub("", match.group())):
                yield (f"{file.path}:{line_of(file.code, match.start())}: expected a class and a "
                       f"target for each backend, got {' '.join(match.group().split())}")


def check_files_are_opened_in_one_place(repository):
    """So that what was read is known, and nothing writes over it."""
    for file in repository.files.values():
        match = OPENED.search(file.code)
        if file.path.startswith(("cli/", "bench/")) and module_of(file.path) != OPENS and match:
            yield f"{file.path}:{line_of(file.code, match.start())}: expected {OPENS} to open files"


def check_headers(repository):
    for file in repository.files.values():
        if file.is_header and not file.text.startswith(("//", "/*")):
            yield f"{file.path}: expected a comment first that says what it is for"
        if file.is_header and not re.search(r"^#pragma once$", file.text, re.MULTILINE):
            yield f"{file.path}: expected #pragma once"


def check_readmes(repository):
    for folder in DOCUMENTED:
        held = [path for path in repository.texts if path.startswith(f"{folder}/")]
        if held and f"{folder}/README.md" not in held:
            yield f"{folder}: expected a README.md"


def check_targets(repository):
    for folder, targets in TARGETS.items():
        text = repository.texts.get(f"{folder}/CMakeLists.txt", "")
        for target in targets:
            if not re.search(rf"^\s*add_(library|executable)\(\s*{target}\s", text, re.MULTILINE):
                yield f"{folder}/CMakeLists.txt: expected the target {target}"


def check_tests_are_built(repository):
    """By the line of their room, or where a pattern such as ../gpu/*_test.cpp names them."""
    patterns = set()
    for path, text in repository.texts.items():
        if path.startswith("tests/") and path.endswith("/CMakeLists.txt"):
            patterns |= {f"tests/{room}/*_test.cpp" for room in re.findall(r"bucketwise_room\(([\w/]+)", text)}
            patterns |= {posixpath.normpath(f"{folder_of(path)}/{pattern}")
                         for pattern in re.findall(r"(?<=[ (])[\w./*]*_test\.cpp", text)}
    for path in repository.files:
        named = any(pattern.count("/") == path.count("/") and fnmatch.fnmatch(path, pattern) for pattern in patterns)
        if path.endswith("_test.cpp") and not named:
            yield f"{path}: expected bucketwise_room({folder_of(path)[6:]} …) in tests/CMakeLists.txt"


CHECKS = [check_rooms, check_includes, check_circles, check_engine_unreached, check_conditions,
          check_files_are_opened_in_one_place, check_headers, check_readmes, check_targets, check_tests_are_built]


def texts_below(root):
    """Sources and CMakeLists.txt are read; it is enough that other files are there."""
    paths = {str(file.relative_to(root)): file for folder in DOCUMENTED for file in (root / folder).rglob("*") if file.is_file()}
    return {path: file.read_text() if path.endswith((*SOURCES, "/CMakeLists.txt")) else "" for path, file in paths.items()}


def violations(texts):
    repository = Repository(texts)
    return [violation for check in CHECKS for violation in check(repository)]


# --- the check of the check ------------------------------------------------------------------------------

HEADER = "// Why this is here.\n#pragma once\n"


def sound_tree():
    """Files without any violation, by path."""
    files = {f"{folder}/README.md": "# Why\n" for folder in DOCUMENTED} | {"plots/plot.py": ""}
    for folder, targets in TARGETS.items():
        files[f"{folder}/CMakeLists.txt"] = "".join(f"add_library({target} x.cpp)\n" for target in targets)
    files["tests/CMakeLists.txt"] += "bucketwise_room(sim/plan PARSES)\n"
    files["tests/hw/nccl/CMakeLists.txt"] = "file(GLOB x own_*_test.cpp ../gpu/*_test.cpp)\n"
    files |= {
        "sim/base/units.h": HEADER,
        "sim/plan/plan.h": HEADER + '#include "sim/base/units.h"\n',
        "sim/plan/plan.cpp": '#include "sim/plan/plan.h"\n#include "sim/plan/caps.h"\n',
        "sim/plan/caps.h": HEADER,
        "sim/scenario/scenario.h": HEADER,
        "sim/engine/engine.h": HEADER + '#include <vector>\n#include "sim/plan/plan.h"\n',
        "hw/rank/rank.h": HEADER + '#include "sim/plan/plan.h"\n// #include "sim/engine/engine.h", #ifdef NCCL in comments\n',
        "hw/record/measurement.h": HEADER,
        "hw/gpu/kernels/kernel.cu": "#ifdef __CUDACC__\n#endif\n",
        "calibrate/fit/fit.h": HEADER,
        "calibrate/fit/fit.cpp": '#include "hw/record/measurement.h"\n#include "sim/engine/engine.h"\n',
        "calibrate/link/fit.h": HEADER,
        "import/nccl_tests/log.cpp": '#include "hw/record/measurement.h"\n',
        "import/run/log.cpp": '#include "calibrate/link/fit.h"\n',
        "cli/shell/command.h": HEADER,
        "cli/shell/files.cpp": "#include <fstream>\n",
        "bench/all_reduce/table.cpp": '#include "hw/rank/rank.h"\n#include "cli/shell/command.h"\n',
        "cli/main.cpp": '#include "hw/rank/rank.h"\n#include "sim/engine/engine.h"\n',
        "tests/sim/plan/plan_test.cpp": '#include "sim/plan/plan.h"\n#if __has_include(<catch2/catch.hpp>)\n#endif\n',
        "tests/hw/gpu/gpu_test.cpp": '#include "hw/rank/rank.h"\n',
    }
    files |= {f"cli/command_{i}.cpp": "" for i in range(MOST_FILES + 1)}
    return files | {f"sim/base/{i}.cpp": "" for i in range(MOST_FILES)}


# Path, content (None: no such file), and what the violations must say, in this order and no others.
UNSOUND = [
    ("sim/base/a.h", HEADER + '#include "hw/rank/rank.h"\n', ["sim/base/a.h:3: sim/base may not include hw/rank/rank.h"]),
    ("sim/plan/a.cpp", "\n#include <hw/rank/rank.h>\n", ["sim/plan/a.cpp:2: sim/plan may not include hw/rank/rank.h"]),
    ("sim/plan/a.cpp", '#include "plan.h"\n', ["sim/plan/a.cpp:1: expected a path from the repository's root, got plan.h"]),
    ("sim/plan/a.cpp", '#include "../hw/rank.h"\n', ["expected a path from the repository's root, got ../hw/rank.h"]),
    ("sim/plan/a.cpp", '#include "sim/scenario/scenario.h"\n', ["sim/plan may not include sim/scenario/scenario.h"]),
    ("sim/other/a.cpp", "", ["sim/other: expected a line"]),
    ("sim/a.cpp", "", ["sim: expected a line"]),
    ("sim/base/more.cpp", "", ["sim/base: expected at most 14 files of one kind, got 15 .cpp"]),
    ("hw/rank/a.cpp", '/* a\n */ \n# include "sim/engine/engine.h"\n',
     ["hw/rank/a.cpp:3: hw/rank may not include sim/engine/engine.h", "hw/rank/a.cpp: hw may not reach sim/engine: sim/engine/engine"]),
    ("hw/rank/a.cpp", '#include "cli/shell/command.h"\n', ["hw/rank may not include cli/shell/command.h"]),
    ("hw/launch/a.cpp", '#include "hw/rank/rank.h"\n', ["hw/launch may not include hw/rank/rank.h"]),
    ("sim/plan/caps.h", HEADER + '#include "sim/engine/engine.h"\n',
     ["sim/plan/caps.h:3: sim/plan may not include sim/engine/engine.h",
      "sim/plan/plan -> sim/plan/caps -> sim/engine/engine -> sim/plan/plan: expected no circle",
      "hw/rank/rank.h: hw may not reach sim/engine: sim/plan/plan -> sim/plan/caps -> sim/engine/engine"]),
    ("sim/plan/caps.cpp", '#include "sim/plan/plan.h"\n', ["sim/plan/plan -> sim/plan/caps -> sim/plan/plan: expected no circle"]),
    ("calibrate/fit/a.h", HEADER + '#include "hw/rank/rank.h"\n', ["a.h:3: calibrate/fit may not include hw/rank/rank.h"]),
    ("import/kineto/a.cpp", '#include "calibrate/none.h"\n', ["import/kineto/a.cpp:1: expected a path"]),
    ("import/kineto/a.cpp", '#include "hw/rank/rank.h"\n', ["a.cpp:1: import/kineto may not include hw/rank/rank.h"]),
    ("import/source/a.cpp", '#include "calibrate/fit/fit.h"\n', ["import/source may not include calibrate/fit/fit.h"]),
    ("bench/all_reduce/a.cpp", '#include "calibrate/fit/fit.h"\n', ["bench/all_reduce may not include calibrate/fit/fit.h"]),
    ("cli/shell/a.cpp", '#include "hw/rank/rank.h"\n', ["cli/shell may not include hw/rank/rank.h"]),
    ("cli/a.h", HEADER + '#include "tests/oracle.h"\n', ["got tests/oracle.h"]),
    ("cli/a.cpp", '#include "tests/sim/plan/plan_test.cpp"\n', ["cli may not include tests/sim/plan/plan_test.cpp"]),
    ("cli/a.cpp", "#ifdef BUCKETWISE_WITH_NCCL\n#endif\n", ["got #ifdef BUCKETWISE_WITH_NCCL"]),
    ("hw/rank/a.cpp", "#if defined(X) || \\\n  __has_include(<gloo/algorithm.h>)\n#endif\n", ["hw/rank/a.cpp:1: expected a class"]),
    ("cli/a.cpp", "\n#include <fstream>\n", ["cli/a.cpp:2: expected cli/shell/files to open files"]),
    ("bench/all_reduce/a.cpp", 'f(std::fopen("x", "r"));\n', ["bench/all_reduce/a.cpp:1: expected cli/shell/files"]),
    ("sim/plan/a.h", "#pragma once\n", ["sim/plan/a.h: expected a comment first"]),
    ("sim/plan/a.h", "// Why.\n", ["sim/plan/a.h: expected #pragma once"]),
    ("hw/README.md", None, ["hw: expected a README.md"]),
    ("plots/README.md", None, ["plots: expected a README.md"]),
    ("cli/CMakeLists.txt", "add_library(bucketwise_cli x.cpp)\n", ["expected the target bucketwise"]),
    ("sim/CMakeLists.txt", None, ["expected the target bucketwise_sim"]),
    ("tests/sim/base/a_test.cpp", "", ["tests/sim/base/a_test.cpp: expected bucketwise_room(sim/base …)"]),
    ("tests/sim/plan/more/a_test.cpp", "", ["a_test.cpp: expected bucketwise_room(sim/plan/more …)"]),
    ("tests/hw/nccl/a_test.cpp", "", ["tests/hw/nccl/a_test.cpp: expected bucketwise_room(hw/nccl …)"]),
]


def wrong_verdicts():
    """Trees that the checks above judge wrongly."""
    found = violations(sound_tree())
    if found:
        yield f"a sound tree: expected no violation, got {found}"
    for path, content, expected in UNSOUND:
        texts = sound_tree() | {path: content}
        found = violations({path: text for path, text in texts.items() if text is not None})
        if len(found) != len(expected) or any(part not in violation for part, violation in zip(expected, found)):
            yield f"{path} with {content!r}: expected only {expected}, got {found}"


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: check_layering.py REPOSITORY")
    problems = [f"check_layering.py itself: {wrong}" for wrong in wrong_verdicts()]
    problems += violations(texts_below(pathlib.Path(sys.argv[1]).resolve()))
    print("\n".join(problems) if problems else f"no violation, and {len(UNSOUND)} made for the test are found")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
