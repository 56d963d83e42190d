#!/usr/bin/env bash
# Builds bucketwise, predicts the best bucket size of a training step that ships with it, and validates the prediction
# of another one on two real ranks of this machine.
#
# usage: ./demo.sh [FOLDER]
#   FOLDER   new or empty, for the validation's report and files (default: build/demo/validation, made anew)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

build=build/demo
scenario=scenarios/compare_ddp_core.json
validated=scenarios/resnet_small.json
folder=${1:-}
if [[ -z "$folder" ]]; then
    folder=$build/validation
    rm -rf "$folder"
fi

quietly() {
    local log
    log=$(mktemp)
    if ! "$@" > "$log" 2>&1 < /dev/null; then
        cat "$log" >&2
        echo "demo.sh: failed: $*" >&2
        rm -f "$log"
        exit 1
    fi
    rm -f "$log"
}

echo "1/4 installing what is missing"
tools/install_dependencies.sh --run-only

echo "2/4 building bucketwise in $build, some three minutes on two cores"
# Neither tests nor benchmarks, so that nothing has to be installed for them.
quietly cmake -S . -B "$build" -G Ninja -D CMAKE_BUILD_TYPE=Release \
    -D BUCKETWISE_BUILD_TESTS=OFF -D BUCKETWISE_BUILD_BENCHMARKS=OFF
quietly cmake --build "$build" --target bucketwise

echo "3/4 $build/cli/bucketwise predict $scenario"
echo
"$build/cli/bucketwise" predict "$scenario"

echo
echo "4/4 $build/cli/bucketwise validate $validated --rounds 3 -o $folder, about a minute"
echo
"$build/cli/bucketwise" validate "$validated" --rounds 3 -o "$folder"
cat << TEXT

where to go next:
  another cluster     $build/cli/bucketwise predict $scenario --set /cluster/ranks=16
  every number        $build/cli/bucketwise predict $scenario --json -
  see the step        $build/cli/bucketwise predict $scenario --trace step.json, then open it in ui.perfetto.dev
  the report          open $folder/report.html
  less noise          $build/cli/bucketwise validate $validated --rounds 10 -o another_folder
  a slower link       the same with --link-rate 1gbit, as root
  your own model      copy a file of scenarios/ and change it; scenarios/README.md explains every key
  read on             docs/README.md, a guide for each question
  check it            ./test.sh; ./test.sh all for everything
TEXT
