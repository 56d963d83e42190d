#!/usr/bin/env bash
# Installs what this project needs from the system's packages, on Debian 12 or Ubuntu 24.04.
# Changes nothing, and needs no root, when nothing is missing.
#
# usage: tools/install_dependencies.sh [--run-only]
#   --run-only   only what it takes to build and run bucketwise, not to test and check it
set -euo pipefail

run_packages=(g++ cmake ninja-build nlohmann-json3-dev libboost-program-options-dev libfmt-dev
              libeigen3-dev libgloo-dev libhiredis-dev libsimdjson-dev libsqlite3-dev zlib1g-dev iproute2 python3
              python3-matplotlib)

# clang is pinned: another version formats differently and finds other things. Its headers of the C++
# library are pinned with it, see tools/clang_flags.sh. Where a package of the runtime libraries of
# -fsanitize exists, apt only recommends it.
test_packages=(git catch2 libbenchmark-dev clang-14 clang-tidy-14 clang-format-14 libclang-rt-14-dev
               lld-14 libstdc++-12-dev python3-jsonschema python3-venv redis-tools)

fail() {
    echo "install_dependencies.sh: $*" >&2
    exit 1
}

packages=("${run_packages[@]}")
case "$*" in
    "") packages+=("${test_packages[@]}") ;;
    --run-only) ;;
    *) fail "expected nothing or --run-only, got $*" ;;
esac

if ! command -v apt-get > /dev/null || ! command -v dpkg-query > /dev/null; then
    fail "this system has no apt-get; please install the equivalents of: ${packages[*]}"
fi

is_installed() {
    [[ "$(dpkg-query --show --showformat '${db:Status-Status}' "$1" 2> /dev/null)" == installed ]]
}

missing=()
for package in "${packages[@]}"; do
    is_installed "$package" || missing+=("$package")
done
if ((${#missing[@]} == 0)); then
    exit 0
fi

as_root=()
if ((EUID != 0)); then
    command -v sudo > /dev/null ||
        fail "neither root nor sudo; as root, run: apt-get update && apt-get install ${missing[*]}"
    as_root=(sudo)
    [[ -t 0 ]] || as_root+=(--non-interactive)  # nobody could type a password
fi

apt() {
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get --quiet --quiet "$@" < /dev/null
}

echo "installing ${missing[*]}"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! { apt update && apt install --yes --no-install-recommends "${missing[@]}"; } > "$log" 2>&1; then
    cat "$log" >&2
    fail "apt-get could not install: ${missing[*]}"
fi
