#!/usr/bin/env bash
# Runs clang-tidy on every source of this project that a build folder compiles. Fails on any finding.
#
# usage: tools/run_tidy.sh BUILD_FOLDER...
#   A file that several folders compile is checked once, as the first of them compiles it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if (($# == 0)); then
    echo "run_tidy.sh: expected at least one build folder, got none" >&2
    exit 1
fi

# Prints, for each file to check, its build folder and its path, each followed by a zero byte. The largest
# go first, so that no processor is left with a long one at the end.
list_files() {
    python3 - "$@" << 'PYTHON'
import json
import pathlib
import sys

root = pathlib.Path.cwd()
folders = [root / name for name in ("cli", "sim", "hw", "calibrate", "tests")]
build_of = {}
for build in sys.argv[1:]:
    for command in json.loads((root / build / "compile_commands.json").read_text()):
        file = pathlib.Path(command["directory"], command["file"])
        if any(folder in file.parents for folder in folders):
            build_of.setdefault(file, build)
if not build_of:
    sys.exit("run_tidy.sh: expected sources in the compile_commands.json, got none")
for file in sorted(build_of, key=lambda file: -file.stat().st_size):
    sys.stdout.write(f"{build_of[file]}\0{file}\0")
PYTHON
}

check_one() {
    local build=$1 file=$2 output
    local flags=()
    mapfile -t flags < <(tools/clang_flags.sh)
    # The database is written for GCC, whose warning options clang need not know.
    if ! output=$(clang-tidy-14 --quiet -p "$build" --extra-arg=-Wno-unknown-warning-option \
        "${flags[@]/#/--extra-arg=}" "$file" 2>&1); then
        printf '%s\n' "$output"
        return 1
    fi
}
export -f check_one

list_files "$@" | xargs --null --max-args=2 --max-procs="$(nproc)" bash -c 'check_one "$@"' check_one
