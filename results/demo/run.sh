#!/usr/bin/env bash
# Runs the demo's validation often, on an idle machine and with one core kept busy, and once for ten minutes
# over more caps, by which the short runs are judged (table.py).
#
# usage: results/demo/run.sh BUCKETWISE FOLDER [RUNS]
#   FOLDER   new or empty; gets reference.json and runs.csv
#   RUNS     of each load (default: 10)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

bucketwise=$1
folder=$2
runs=${3:-10}
scenario=scenarios/transformer_tiny.json
work=$(mktemp -d)
busy=
trap 'rm -rf "$work"; [[ -z "$busy" ]] || kill "$busy"' EXIT
mkdir -p "$folder"

reference_caps=512KiB,768KiB,1MiB,1280KiB,1536KiB,2MiB,3MiB,4MiB,6MiB,8MiB,16MiB
"$bucketwise" validate "$scenario" --link-rate 1gbit --time 10min --bucket-cap "$reference_caps" \
    -o "$work/reference" > "$work/reference.txt" 2> /dev/null
python3 results/demo/table.py --reference "$work/reference" > "$folder/reference.json"

python3 results/demo/table.py --header > "$folder/runs.csv"
for load in idle busy; do
    if [[ "$load" == busy ]]; then
        (while :; do :; done) &
        busy=$!
    fi
    for ((seed = 1; seed <= runs; ++seed)); do
        start=$(date +%s.%N)
        "$bucketwise" validate "$scenario" --link-rate 1gbit --time 150s --bucket-cap 2MiB,4MiB,8MiB \
            --seed "$seed" -o "$work/$load$seed" > "$work/$load$seed.txt" 2> /dev/null
        seconds=$(python3 -c "import time; print(round(time.time() - $start, 1))")
        python3 results/demo/table.py --row "$work/$load$seed" "$load" "$seed" "$seconds" >> "$folder/runs.csv"
    done
done
