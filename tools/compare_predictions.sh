#!/usr/bin/env bash
# Shows that a change leaves every prediction unchanged: builds an earlier commit, and compares the JSON of both programs
# for every scenario that shipped with it. Prints differences and exits with 1 if there are any. Sentences are not
# compared, only numbers, names and their places.
#
# usage: tools/compare_predictions.sh COMMIT PROGRAM
#   COMMIT    the earlier commit, tag or branch; built in build/compare, which keeps it
#   PROGRAM   today's program, for example build/release/cli/bucketwise
set -euo pipefail
if (($# != 2)); then
    echo "usage: tools/compare_predictions.sh COMMIT PROGRAM" >&2
    exit 2
fi
program=$(realpath "$2")
cd "$(dirname "${BASH_SOURCE[0]}")/.."
commit=$(git rev-parse --verify --quiet "$1^{commit}") || {
    echo "compare_predictions.sh: expected a commit of this repository, got $1" >&2
    exit 2
}

earlier=build/compare/$commit
if [[ ! -x $earlier/build/cli/bucketwise ]]; then
    rm -rf "$earlier"
    mkdir -p "$earlier"
    git archive "$commit" | tar -x -C "$earlier"
    cmake -S "$earlier" -B "$earlier/build" -G Ninja -D CMAKE_BUILD_TYPE=Release -D BUCKETWISE_BUILD_TESTS=OFF \
        -D BUCKETWISE_BUILD_BENCHMARKS=OFF > "$earlier/configure.log"
    cmake --build "$earlier/build" --target bucketwise > "$earlier/build.log" || { tail "$earlier/build.log"; exit 1; }
fi

cd "$earlier"  # its scenarios
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# Every value with its JSON pointer, a line each, without sentences.
values() {
    python3 -c '
import json, sys

def walk(value, pointer):
    if isinstance(value, dict):
        for key, one in value.items():
            walk(one, f"{pointer}/{key}")
    elif isinstance(value, list):
        for place, one in enumerate(value):
            walk(one, f"{pointer}/{place}")
    elif not (isinstance(value, str) and " " in value):
        print(pointer, json.dumps(value))

text = sys.stdin.read()
walk(json.loads(text) if text.startswith("{") else text.strip(), "")'
}

compared=0
differing=0
for scenario in scenarios/*.json; do
    case "$scenario" in *.schema.json) continue ;; esac
    for form in "" "--percentiles --draws 20" "--plan optimal"; do
        for which in earlier now; do
            binary=$program
            if [[ $which == earlier ]]; then binary=build/cli/bucketwise; fi
            # A refusal is compared too, with its exit code.
            # shellcheck disable=SC2086
            { "$binary" predict "$scenario" $form --json - 2> /dev/null || echo "exit_code=$?"; } |
                values > "$folder/$which"
        done
        compared=$((compared + 1))
        if ! cmp --silent "$folder/earlier" "$folder/now"; then
            differing=$((differing + 1))
            echo "$scenario $form:"
            diff "$folder/earlier" "$folder/now" | head -n 10 || true
        fi
    done
done
echo "$compared outputs compared, $differing differ"
((compared > 0 && differing == 0))
