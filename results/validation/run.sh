#!/usr/bin/env bash
# The validations of this folder: each setup with two seeds, one after another, as long as each needs to decide.
#
# usage: results/validation/run.sh BUCKETWISE FOLDER [TIME]
#   FOLDER   gets a folder for each run, NAME_SEED; what is there already is left
#   TIME     of a run at most (default: 6min)
set -euo pipefail
bucketwise=$1
folder=$2
time=${3:-6min}
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

run() {
    local name=$1 scenario=$2
    shift 2
    [[ -d "$folder/$name" ]] || "$bucketwise" validate "scenarios/$scenario.json" "$@" --time "$time" --seed "$seed" \
        -o "$folder/$name" > "$folder/$name.txt" 2>&1 || echo "$name failed"
}

mkdir -p "$folder"
for seed in 1 2; do
    run "transformer_1gbit_$seed" transformer_small --link-rate 1gbit
    run "resnet_1gbit_$seed" resnet_small --link-rate 1gbit
    run "perceptron_1gbit_$seed" perceptron_small --link-rate 1gbit
    run "fsdp_1gbit_$seed" transformer_small_fsdp --link-rate 1gbit
    run "tiny_1gbit_four_ranks_$seed" transformer_tiny --ranks 4 --link-rate 1gbit
    run "tiny_300mbit_$seed" transformer_tiny --link-rate 300mbit
    run "resnet_300mbit_$seed" resnet_small --link-rate 300mbit
    run "transformer_500mbit_$seed" transformer_small --link-rate 500mbit
    run "perceptron_500mbit_$seed" perceptron_small --link-rate 500mbit
    run "tiny_1gbit_$seed" transformer_tiny --link-rate 1gbit
done
