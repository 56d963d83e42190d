#!/usr/bin/env bash
# Runs one fuzzer from its seeds and from what earlier runs have found interesting.
#
# usage: tools/run_fuzzer.sh BUILD_FOLDER FUZZER SECONDS
#   An input that breaks the program is kept in BUILD_FOLDER/tests/fuzz; to see it again, give it to the
#   fuzzer as its only argument. 0 seconds: run the inputs that are there, and look for no others.
set -euo pipefail

if (($# != 3)); then
    echo "usage: run_fuzzer.sh BUILD_FOLDER FUZZER SECONDS" >&2
    exit 1
fi
cd "$1/tests/fuzz"
fuzzer=$2
limit=(-max_total_time="$3")
if (($3 == 0)); then
    limit=(-runs=0)
fi

mkdir -p "${fuzzer}_corpus"
"./$fuzzer" "${limit[@]}" -timeout=10 -rss_limit_mb=4096 -max_len=16384 -print_final_stats=1 \
    -dict="$fuzzer.dict" -artifact_prefix="${fuzzer}_" "${fuzzer}_corpus" "${fuzzer}_seeds"
