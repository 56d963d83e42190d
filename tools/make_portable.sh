#!/usr/bin/env bash
# Builds bucketwise with CUDA and NCCL into a folder that can be carried to another x86-64 Linux: the program, its GPU
# tests, and every shared library they are linked with but the system's (glibc). The driver, cuBLAS and NCCL are not among
# them: the program opens those where it finds them, and starts without. `bucketwise prove` looks for the last two
# in Python's packages, too.
#
# The C++ runtime is carried beside the program, not linked into it: Gloo, which Debian has as a shared library only,
# throws exceptions that the program catches, and both must use one runtime.
#
# usage: tools/make_portable.sh [FOLDER]
#   FOLDER   where it goes (default: build/portable/bundle); made anew
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

folder=${1:-build/portable/bundle}
build=build/portable
programs=("$build/cli/bucketwise" "$build/tests/hw/nccl/bucketwise_gpu_tests")

cmake --preset portable
cmake --build --preset portable --target bucketwise bucketwise_gpu_tests

# The system's own libraries.
stays_behind() {
    case "$1" in
        linux-vdso.so.* | ld-linux* | libc.so.* | libm.so.* | libpthread.so.* | libdl.so.* | librt.so.*) return 0 ;;
    esac
    return 1
}

rm -rf "$folder"
mkdir -p "$folder/lib"
cp "${programs[@]}" "$folder/"
strip "$folder"/bucketwise*
cp -r plots scenarios "$folder/"
install -D --mode=644 -t "$folder/import/flight_recorder" import/flight_recorder/pickle_to_json.py
install -D --mode=644 -t "$folder/import/settings" import/settings/settings_to_json.py
install -D --mode=644 -t "$folder/python/bucketwise/torch" python/bucketwise/torch/describe.py \
    python/bucketwise/torch/_{hugging_face,listed_model,operations}.py
install -D --mode=644 -t "$folder/python/bucketwise" python/bucketwise/prove.py

for program in "${programs[@]}"; do
    while read -r name path; do
        stays_behind "$name" || cp --update "$path" "$folder/lib/$name"
    done < <(ldd "$program" | awk '$2 == "=>" && $3 ~ /^\// { print $1, $3 }')
done

newest_glibc=$(objdump -T "$folder"/bucketwise* "$folder"/lib/* 2> /dev/null | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -n 1)
echo "$folder: $(du -sh "$folder" | cut -f 1), needs ${newest_glibc/_/ } or newer; on GPUs cuBLAS and NCCL"
