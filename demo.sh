#!/usr/bin/env bash
# Builds bucketwise, predicts the best bucket size of a training step that ships with it, and validates the prediction
# of another one on two real ranks of this machine, joined by a link of 1 Gbit/s where the system lets us make one.
#
# usage: ./demo.sh [FOLDER]
#   FOLDER   new or empty, for the validation's report and files (default: build/demo/validation, made anew)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

build=build/demo
scenario=scenarios/compare_ddp_core.json
validated=scenarios/transformer_tiny.json
# A few caps often rather than many caps seldom: on a busy machine that tells them apart.
validation=(--time 150s --bucket-cap 2MiB,4MiB,8MiB)
folder=${1:-}
if [[ -z "$folder" ]]; then
    folder=$build/validation
    rm -rf "$folder"
fi

source tools/progress.sh
quietly() {  # LABEL COMMAND...
    local log status
    log=$(mktemp)
    set +e
    run_with_progress "$1" "$log" "${@:2}"
    status=$?
    set -e
    if ((status != 0)); then
        cat "$log" >&2
        echo "demo.sh: failed: ${*:2}" >&2
        rm -f "$log"
        exit 1
    fi
    rm -f "$log"
}

echo "1/4 installing what is missing"
tools/install_dependencies.sh --run-only

echo "2/4 building bucketwise in $build, two to four minutes on two cores"
# Only the parts that the demonstration needs.
quietly configuring cmake -S . -B "$build" -G Ninja -D CMAKE_BUILD_TYPE=Release -D BUCKETWISE_CUDA=OFF \
    -D BUCKETWISE_BENCHES=OFF -D BUCKETWISE_BUILD_TESTS=OFF -D BUCKETWISE_BUILD_BENCHMARKS=OFF
quietly building cmake --build "$build" --target bucketwise

echo "3/4 $build/cli/bucketwise predict $scenario"
echo
"$build/cli/bucketwise" predict "$scenario"

# On a link as fast as memory no cap matters much. A trial shows whether this machine allows a slower one.
link=(--link-rate 1gbit)
rm -f "$build/trial.jsonl"
try=("$build/cli/bucketwise" measure scenarios/two_buckets.json --protocols allreduce --bytes 4KiB --rounds 1
     "${link[@]}" -o "$build/trial.jsonl")
if ! why=$("${try[@]}" 2>&1 > "$build/trial.txt" < /dev/null); then
    link=()
    echo
    echo "No link of 1 Gbit/s here, so the ranks talk over loopback, where caps hardly matter:"
    echo "  ${why#bucketwise: }"
fi
validate=("$build/cli/bucketwise" validate "$validated" "${link[@]}")

echo
echo "4/4 ${validate[*]} ${validation[*]} -o $folder, at most two and a half minutes"
echo
"${validate[@]}" "${validation[@]}" -o "$folder"
cat << TEXT

where to go next:
  another cluster     $build/cli/bucketwise predict $scenario --set /cluster/ranks=16
  every number        $build/cli/bucketwise predict $scenario --json -
  see the step        $build/cli/bucketwise predict $scenario --trace step.json, then open it in ui.perfetto.dev
  the report          open $folder/report.html
  all caps            ${validate[*]} -o another_folder
  a slower link       the same with --link-rate 300mbit
  your own model      copy a file of scenarios/ and change it; scenarios/README.md explains every key
  read on             docs/README.md, a guide for each question
  check it            ./test.sh; ./test.sh all for everything
TEXT
