#!/usr/bin/env bash
# Prints the flags clang 14 needs to compile against this system's C++ library, one per line.
#
# From version 13 on, <chrono> of libstdc++ calls consteval functions in a way that clang before 17
# refuses in C++20. On such systems clang reads the headers of version 12 instead; the library itself is
# backward compatible.
set -euo pipefail

readonly last_understood=12
newest=0
for folder in /usr/include/c++/*; do
    version=${folder##*/}
    if [[ "$version" =~ ^[0-9]+$ ]] && ((version > newest)); then
        newest=$version
    fi
done
if ((newest > last_understood)); then
    printf '%s\n' "-stdlib++-isystem/usr/include/c++/$last_understood" \
        "-stdlib++-isystem/usr/include/$(gcc -print-multiarch)/c++/$last_understood"
fi
