#!/usr/bin/env bash
# Checks this project. Each stage is quiet unless it fails; its output stays in build/test_logs.
#
# usage: ./test.sh [all | STAGE...]
#   (nothing)   what is correctness: formatting, every test optimised, and under AddressSanitizer and
#               UndefinedBehaviorSanitizer the tests of what parses input and what runs threads
#   all         the rest too: the wheel, every test under these sanitizers, what runs threads under ThreadSanitizer,
#               clang-tidy, fuzzing
#   STAGE       only these, in this order, of: format release wheel hostile asan_some asan tsan fuzz_build tidy fuzz
#               wheel makes the wheel and tries it, beside what release builds; hostile gives that files and
#               options that a seeded hand has changed; tidy reads what release and fuzz_build compile; fuzz
#               runs what fuzz_build builds
#   FUZZ_SECONDS   how long each fuzzer and hostile run (default 60; 0: only the seeds)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

fail_usage() {
    echo "test.sh: $*" >&2
    exit 2
}

case "$*" in
    "") stages=(format release asan_some) ;;
    all) stages=(format release wheel hostile asan tsan fuzz_build tidy fuzz) ;;
    *) stages=("$@") ;;
esac
for stage in "${stages[@]}"; do
    case "$stage" in
        format | release | wheel | hostile | asan_some | asan | tsan | fuzz_build | tidy | fuzz) ;;
        *) fail_usage "expected nothing, all, or stages, got $stage" ;;
    esac
done
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
    local benchmarks=OFF  # they report; only where everything is checked they are shown to run
    [[ "${stages[*]}" != *tidy* ]] || benchmarks=ON
    configure release -D BUCKETWISE_BUILD_TESTS=ON -D BUCKETWISE_BUILD_BENCHMARKS=$benchmarks
    cmake --build --preset release
    ctest --preset release --parallel "$jobs"
}

# Skipped, and said so, where pip does not get what makes wheels. What only renames folders in messages makes no other
# object of what release has compiled: ccache names folders from here.
wheel() {
    local status=0
    CCACHE_IGNOREOPTIONS="-fmacro-prefix-map=*" CMAKE_CXX_COMPILER_LAUNCHER=$(command -v ccache || true) python3 tests/wheel/check_wheel.py build/release . || status=$?
    ((status == 77)) || return "$status"
}

# Always the same inputs, as a test is to say the same whenever it runs; as many of them as there is time for.
hostile() {
    python3 tests/hostile/hostile.py build/release/cli/bucketwise . --seconds "$fuzz_seconds"
}

# clang compiles with sanitizers in half the time that GCC takes, and warns of other things; its linker takes a
# quarter of the usual one's.
configure_clang() {
    local flags
    flags=$(tools/clang_flags.sh | tr '\n' ' ')
    configure "$1" -D CMAKE_CXX_COMPILER=clang++-14 -D CMAKE_CXX_FLAGS="$flags" \
        -D CMAKE_EXE_LINKER_FLAGS=-fuse-ld=lld "${@:2}"
}

asan_some() {
    configure_clang asan_some -D BUCKETWISE_BUILD_TESTS=ON
    cmake --build --preset asan_some --target bucketwise_parsing_tests bucketwise_threading_tests
    ctest --preset asan_some --parallel "$jobs" --label-regex 'parsing|threading'
}

asan() {
    configure_clang asan -D BUCKETWISE_BUILD_TESTS=ON
    cmake --build --preset asan
    ctest --preset asan --parallel "$jobs"
}

tsan() {
    configure_clang tsan -D BUCKETWISE_BUILD_TESTS=ON
    cmake --build --preset tsan --target bucketwise_threading_tests
    ctest --preset tsan --parallel "$(nproc)" --label-regex threading
}

fuzz_build() {
    configure_clang fuzz
    cmake --build --preset fuzz --target fuzzers
}

tidy() { tools/run_tidy.py build/release build/fuzz; }

fuzzers=(scenario_fuzzer measurement_fuzzer nccl_tests_fuzzer kineto_fuzzer nsys_fuzzer flight_recorder_fuzzer chakra_fuzzer)

fuzz() {  # all at once, as each takes as long as it is told
    printf '%s\0' "${fuzzers[@]}" |
        xargs --null --max-procs=0 --replace tools/run_fuzzer.sh build/fuzz '{}' "$fuzz_seconds"
}

# --- running them -------------------------------------------------------------------------------------

# What a stage has to say when it went well.
remark() {
    grep --only-matching --extended-regexp '[0-9]+% tests passed.*|All tests passed .*|Done [0-9]+ runs in [0-9]+ second|[0-9]+ executions in .*|no finding in .*|^(skipped:|0 failures;) .*' \
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
    if [[ "${stages[*]}" == *release* ]]; then
        tools/count_tests.py build/release || failed+=(count)  # every case of the optimised build
    fi
    if ((${#failed[@]} > 0)); then
        echo "failed: ${failed[*]}" >&2
        exit 1
    fi
}

run setup
if ((${#failed[@]} > 0)); then
    finish
fi
for stage in "${stages[@]}"; do
    if [[ $stage == fuzz && "${failed[*]-}" == *fuzz_build* ]]; then
        continue  # there is nothing to run
    fi
    run "$stage"
done
finish
