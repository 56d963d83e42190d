#!/usr/bin/env bash
# Checks this project. Each stage is quiet unless it fails; its output stays in build/test_logs.
#
# usage: ./test.sh [all | ci | STAGE...]
#   (nothing)   correctness: formatting, every test optimised, and under AddressSanitizer and UndefinedBehaviorSanitizer
#               the tests of parsers and of threads
#   all         the rest too: the wheel, every test under these sanitizers, the tests of threads under ThreadSanitizer,
#               clang-tidy, fuzzing
#   ci          (nothing), then what of the rest fits into the time that this machine is given
#   STAGE       only these, in this order, of: format release wheel hostile asan_some asan tsan fuzz_build tidy fuzz
#               wheel makes the wheel and tries it, beside what release builds; hostile runs the program of release on
#               files and options changed by a seeded generator; tidy reads the sources of release and of the fuzzers; fuzz
#               runs what fuzz_build builds
#   FUZZ_SECONDS   duration of each fuzzer and of hostile (default 60; 0: only the seeds)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
source tools/progress.sh

fail_usage() {
    echo "test.sh: $*" >&2
    exit 2
}

rest=()  # stages of ci that run if there is time
case "$*" in
    "" | ci) stages=(format release asan_some) ;;
    all) stages=(format release wheel hostile asan tsan fuzz_build tidy fuzz) ;;
    *) stages=("$@") ;;
esac
for stage in "${stages[@]}"; do
    case "$stage" in
        format | release | wheel | hostile | asan_some | asan | tsan | fuzz_build | tidy | fuzz) ;;
        *) fail_usage "expected nothing, all, ci, or stages, got $stage" ;;
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
# One checkout's compiled objects serve the next, in any folder, and also with precompiled headers.
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1
export CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime

# --- the stages ---------------------------------------------------------------------------------------

configure() {
    # Explicit, as a build folder remembers how it was configured before.
    cmake --preset "$1" -D CMAKE_CXX_COMPILER_LAUNCHER="$(command -v ccache || true)" "${@:2}"
}

setup() { tools/install_dependencies.sh; }

format() { tools/check_format.sh; }

release() {
    rm -f build/release/Testing/tests.xml  # of the run before
    local benchmarks=OFF  # they only report; with tidy they are built, so that they keep compiling
    [[ "${stages[*]} ${rest[*]-}" != *tidy* ]] || benchmarks=ON
    configure release -D BUCKETWISE_BUILD_TESTS=ON -D BUCKETWISE_BUILD_BENCHMARKS=$benchmarks
    cmake --build --preset release
    ctest --preset release --parallel "$jobs"
}

# Skipped, with a message, where pip cannot get the tools that make wheels. ccache serves the objects of release: the
# option that renames folders in messages changes none.
wheel() {
    local status=0
    CCACHE_IGNOREOPTIONS="-fmacro-prefix-map=*" CMAKE_CXX_COMPILER_LAUNCHER=$(command -v ccache || true) python3 tests/wheel/check_wheel.py build/release . || status=$?
    ((status == 77)) || return "$status"
}

# The same inputs in the same order on every run, as many as time allows.
hostile() {
    python3 tests/hostile/hostile.py build/release/cli/bucketwise . --seconds "$fuzz_seconds"
}

# clang compiles with sanitizers in half of GCC's time and has other warnings; lld takes a quarter of ld's.
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

tidy() {
    configure_clang fuzz  # for its list of sources
    tools/run_tidy.py build/release build/fuzz
}

fuzzers=(scenario_fuzzer measurement_fuzzer nccl_tests_fuzzer kineto_fuzzer nsys_fuzzer flight_recorder_fuzzer chakra_fuzzer)

fuzz() {  # all at once, as each runs for a fixed time
    printf '%s\0' "${fuzzers[@]}" |
        xargs --null --max-procs=0 --replace tools/run_fuzzer.sh build/fuzz '{}' "$fuzz_seconds"
}

# --- running them -------------------------------------------------------------------------------------

# The result of a stage that passed, in its own words.
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
    set +e
    run_with_progress "$1" "$logs/$1.log" "$1"
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

# --- continuous integration ---------------------------------------------------------------------------------

# Machines differ by five times in speed, and a run of CI that takes too long is lost. So ci measures this machine, by a
# loop first and by what release then took, and starts no stage of the rest that would end too late.
usual_loop_ms=900  # for timed_loop on the usual machine: two cores, AMD EPYC
declare -A usual_seconds=([release]=420 [tidy]=450 [hostile]=70 [wheel]=480 [tsan]=300 [fuzz]=400 [asan]=600)
usual_limit_seconds=$((20 * 60))
longest_limit_seconds=$((45 * 60))

timed_loop() {  # prints milliseconds
    local begin end i
    begin=$(date +%s%N)
    for ((i = 0; i < 300000; i++)); do :; done
    end=$(date +%s%N)
    echo $(((end - begin) / 1000000))
}

# Past findings decide the order: tidy and hostile found most. The others take turns from commit to commit, so that each
# runs now and then.
stages_of_rest() {
    local turn others=(wheel fuzz asan tsan)
    turn=$(git rev-list --count HEAD 2> /dev/null || echo 0)
    turn=$((turn % ${#others[@]}))
    echo tidy hostile "${others[@]:turn}" "${others[@]:0:turn}"
}

run_rest() {
    local stage expected limit
    # Percent of the usual machine's time.
    local slower=$((100 * loop_ms / usual_loop_ms)) by_release=$((100 * release_seconds / usual_seconds[release]))
    ((by_release <= slower)) || slower=$by_release
    limit=$((usual_limit_seconds * slower / 100))
    ((limit >= usual_limit_seconds)) || limit=$usual_limit_seconds
    ((limit <= longest_limit_seconds)) || limit=$longest_limit_seconds
    for stage in "${rest[@]}"; do
        expected=$((usual_seconds[$stage] * slower / 100))
        if ((SECONDS + expected > limit)); then
            report+=("$(printf '%-11s left out: would take %d s and end after %d minutes' "$stage" "$expected" $((limit / 60)))")
            echo "${report[-1]}"
            continue
        fi
        [[ $stage != fuzz ]] || run fuzz_build
        [[ $stage == fuzz && "${failed[*]-}" == *fuzz_build* ]] || run "$stage"
    done
}

# --- all of it ------------------------------------------------------------------------------------------

run setup
if ((${#failed[@]} > 0)); then
    finish
fi
if [[ "$*" == ci ]]; then
    loop_ms=$(timed_loop)
    read -r -a rest <<< "$(stages_of_rest)"
fi
for stage in "${stages[@]}"; do
    if [[ $stage == fuzz && "${failed[*]-}" == *fuzz_build* ]]; then
        continue  # there is nothing to run
    fi
    begin=$SECONDS
    run "$stage"
    [[ $stage != release ]] || release_seconds=$((SECONDS - begin))
done
if [[ "$*" == ci ]]; then
    run_rest
fi
finish
