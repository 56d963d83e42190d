#!/usr/bin/env bash
# Checks that every C++ file is formatted as .clang-format says.
#
# usage: tools/check_format.sh [--fix]
#   --fix   format the files instead
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

case "$*" in
    "") mode=(--dry-run --Werror) ;;
    --fix) mode=(-i) ;;
    *)
        echo "check_format.sh: expected nothing or --fix, got $*" >&2
        exit 1
        ;;
esac

find bench cli sim hw calibrate import tests \( -name '*.h' -o -name '*.cpp' -o -name '*.cu' \) -print0 |
    sort --zero-terminated |
    xargs --null --no-run-if-empty --max-procs="$(nproc)" --max-args=16 clang-format-14 "${mode[@]}"
