#!/usr/bin/env bash
# Checks this project. Each stage is quiet unless it fails; its output stays in build/test_logs.
#
# usage: ./test.sh [all]
#   (nothing)   what is correctness: formatting, every test optimised, and under AddressSanitizer and
#               UndefinedBehaviorSanitizer the tests of what parses input and what runs threads
#   all         the rest too: every test under these sanitizers, what runs threads under ThreadSanitizer, clang-tidy,
#               fuzzing
#   FUZZ_SECONDS   how long each fuzzer runs (default 60; 0: only the seeds)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

fail_usage() {
    echo "test.sh: $*" >&2
    exit 2
}

case "$*" in
    "" | all) scope=${1:-} ;;
    *) fail_usage "expected nothing or all, got $*" ;;
esac
fuzz_seconds=${FUZZ_SECONDS:-60}
[[ "$fuzz_seconds" =~ ^[0-9]+$ ]] || fail_usage "FUZZ_SECONDS: expected a whole number of seconds, got $fuzz_seconds"

logs=build/test_logs
mkdir -p "$logs"
# Many tests wait, for processes and deadlines.
jobs=$((2 * $(nproc)))
failed=()
report=()
# What one checkout has compiled serves the next, wherever it lies, and also with precompiled headers.
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1
export CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime

# --- the stages ---------------------------------------------------------------------------------------

configure() {
    # Said explicitly, as a build folder remembers what it was configured with before.
    cmake --preset "$1" -D CMAKE_CXX_COMPILER_LAUNCHER="$(command -v ccache || true)" "${@:2}"
}

setup() { tools/install_dependencies.sh; }

format() { tools/check_format.sh; }

release() {
    rm -f build/release/Testing/tests.xml  # of the run before
    local benchmarks=OFF  # they report, and only a run of all shows that they run
    [[ "$scope" != all ]] || benchmarks=ON
    configure release -D BUCKETWISE_BUILD_TESTS=ON -D BUCKETWISE_BUILD_BENCHMARKS=$benchmarks
    cmake --build --preset release
    ctest --preset release --parallel "$jobs"
}

asan_first() {
    configure asan -D BUCKETWISE_BUILD_TESTS=ON
    cmake --build --preset asan --target bucketwise_parsing_tests bucketwise_threading_tests
    ctest --preset asan --parallel "$jobs" --label-regex 'parsing|threading'
}

asan() {
    configure asan -D BUCKETWISE_BUILD_TESTS=ON
    cmake --build --preset asan
    ctest --preset asan --parallel "$jobs"
}

# Only what runs threads, but for what takes minutes there. The emulated GPUs are there where the CUDA Toolkit is.
tsan() {
    configure tsan -D BUCKETWISE_BUILD_TESTS=ON
    cmake --build --preset tsan --target bucketwise_threading_tests
    ctest --preset tsan --label-regex threading
    if ninja -C build/tsan -t query bucketwise_emulated_gpu_tests > /dev/null 2>&1; then
        ninja -C build/tsan tests/hw/nccl/bucketwise_emulated_gpu_tests
        build/tsan/tests/hw/nccl/bucketwise_emulated_gpu_tests '~[kernels]~[program]~[slow]~[.]'
    fi
}

fuzz_build() {
    configure fuzz -D CMAKE_CXX_COMPILER=clang++-14 -D CMAKE_CXX_FLAGS="$(tools/clang_flags.sh | tr '\n' ' ')"
    cmake --build --preset fuzz --target fuzzers
}

tidy() { tools/run_tidy.py build/release build/fuzz; }

fuzzers=(scenario_fuzzer nccl_tests_fuzzer kineto_fuzzer)

fuzz() {
    local fuzzer
    for fuzzer in "${fuzzers[@]}"; do
        tools/run_fuzzer.sh build/fuzz "$fuzzer" "$fuzz_seconds"
    done
}

# --- running them -------------------------------------------------------------------------------------

# What a stage has to say when it went well.
remark() {
    grep --only-matching --extended-regexp '[0-9]+% tests passed.*|All tests passed .*|Done [0-9]+ runs in [0-9]+ second|no finding in .*' \
        "$logs/$1.log" | tail -n 1 || true
}

conclude() {  # STAGE EXIT_STATUS SECONDS
    local verdict=passed
    if (($2 != 0)); then
        verdict=FAILED
        failed+=("$1")
        echo "--- output of $1 ---"
        cat "$logs/$1.log"
        echo "--- end of $1 ---"
    fi
    report+=("$(printf '%-11s %s %4d s  %s' "$1" "$verdict" "$3" "$(remark "$1")")")
    echo "${report[-1]}"
}

run() {  # STAGE
    local begin=$SECONDS status
    # errexit holds inside the stage only if nothing out here looks at its status.
    set +e
    (set -e; "$1") > "$logs/$1.log" 2>&1 < /dev/null
    status=$?
    set -e
    conclude "$1" "$status" $((SECONDS - begin))
}

finish() {
    echo
    printf '%s\n' "${report[@]}"
    printf '%-18s %4d s\n' total "$SECONDS"
    # The cases of every test of the optimised build.
    tools/count_tests.py build/release || failed+=(count)
    if ((${#failed[@]} > 0)); then
        echo "failed: ${failed[*]}" >&2
        exit 1
    fi
}

run setup
if ((${#failed[@]} > 0)); then
    finish
fi
run format
run release
if [[ "$scope" != all ]]; then
    run asan_first
    finish
    exit
fi
run asan
run tsan
run fuzz_build
if [[ "${failed[*]-}" == *fuzz_build* ]]; then
    run tidy
    finish
    exit
fi

# The fuzzers take one processor for a fixed time, and tidy what it leaves.
fuzz_begin=$SECONDS
(set -e; fuzz) > "$logs/fuzz.log" 2>&1 < /dev/null &
fuzz_process=$!
trap 'kill "$fuzz_process" 2> /dev/null || true' EXIT
run tidy
fuzz_status=0
wait "$fuzz_process" || fuzz_status=$?
trap - EXIT
conclude fuzz "$fuzz_status" $((SECONDS - fuzz_begin))
finish
