#!/usr/bin/env bash
# Everything there is to measure on one GPU, in under eight minutes: the hardware tests, the kernels under
# compute-sanitizer, what packing costs, steps of one rank predicted and measured (launch-bound, compute-bound, as one CUDA
# graph), all-reduces, two validations of two ranks that share the GPU, one of them through MPS where it can be started, and
# the published systems.
# With several GPUs the ranks get one each instead.
#
# usage: results/run_gpu.sh FOLDER [PROGRAMS]
#   FOLDER     new or empty, for what is measured; packed into FOLDER.tar.gz at the end
#   PROGRAMS   where bucketwise and bucketwise_gpu_tests are (default: the folder above this script, as
#              tools/make_portable.sh leaves it, else build/portable/bundle)
#   ROUNDS     of a validation (environment; default 6)
#   SECONDS_IN_ALL   how long all of it may take (environment; default 470)
#
# Touches no setting of the GPU. Each part has a time limit, and one that fails does not end the others; what there is no
# time left for is left out, and said.
set -uo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
folder=${1:?usage: results/run_gpu.sh FOLDER [PROGRAMS]}
programs=${2:-$root}
[[ -x "$programs/bucketwise" ]] || programs=$root/build/portable/bundle
if [[ ! -x "$programs/bucketwise" || ! -x "$programs/bucketwise_gpu_tests" ]]; then
    echo "run_gpu.sh: expected bucketwise and bucketwise_gpu_tests in $programs; tools/make_portable.sh builds them" >&2
    exit 2
fi
mkdir -p "$folder" && folder=$(cd "$folder" && pwd) || exit 2
if [[ -n "$(ls -A "$folder")" ]]; then
    echo "run_gpu.sh: expected a new or empty folder, got $folder" >&2
    exit 2
fi
rounds=${ROUNDS:-6}
limit=${SECONDS_IN_ALL:-470}
scenarios=$root/scenarios
bucketwise=$programs/bucketwise

# The program opens NCCL and cuBLAS where the loader looks; they may be in Python's nvidia-* packages only.
python_libraries() {
    python3 - <<'PYTHON' 2> /dev/null
import pathlib, sysconfig, site
places = {sysconfig.get_paths()["purelib"], *site.getsitepackages()}
found = []
for name in ("libnccl.so.2", "libcublas.so.13", "libcublas.so.12"):
    for place in places:
        found += [str(path.parent) for path in pathlib.Path(place, "nvidia").rglob(name)]
print(":".join(dict.fromkeys(found)))
PYTHON
}
libraries=$(python_libraries)
export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$libraries

summary=$folder/summary.txt
say() { echo "$*" | tee -a "$summary"; }

# part NAME SECONDS COMMAND...: its output goes to NAME.txt.
part() {
    local name=$1 seconds=$2 begin=$SECONDS status left=$((limit - SECONDS))
    shift 2
    if ((left < 5)); then
        say "$(printf '%-28s left out' "$name")"
        return 1
    fi
    ((seconds < left)) || seconds=$left
    {
        printf '$'
        printf ' %q' "$@"
        echo
    } > "$folder/$name.txt"
    timeout --kill-after=10 "$seconds" "$@" >> "$folder/$name.txt" 2>&1 < /dev/null
    status=$?
    say "$(printf '%-28s %-8s %4d s' "$name" "$([[ $status == 0 ]] && echo done || echo "exit $status")" $((SECONDS - begin)))"
    return "$status"
}

say "$(date --utc +%Y-%m-%dT%H:%M:%SZ)  $("$bucketwise" --version | head --lines=1)"
part nvidia_smi 20 nvidia-smi
part nvidia_smi_query 20 nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.sm,clocks.max.sm,power.limit,mig.mode.current,compute_mode --format=csv
gpus=$(nvidia-smi --list-gpus 2> /dev/null | grep --count '^GPU')
[[ "$gpus" -ge 1 ]] || { say "no GPU"; exit 1; }
ranks=(--ranks 2)
[[ "$gpus" -ge 2 ]] || ranks+=(--share-gpu)

part gpu_tests 120 "$programs/bucketwise_gpu_tests" --durations yes
if command -v compute-sanitizer > /dev/null; then
    # Our own kernels; NCCL's and cuBLAS' are not ours to judge.
    part memcheck 90 compute-sanitizer --tool memcheck --error-exitcode 3 \
        "$programs/bucketwise_gpu_tests" "[kernels]"
fi
# One rank by itself: each operation, its launch, and all copies.
compute() {
    local name=$1
    shift
    part "$name" 40 "$bucketwise" measure "$scenarios/gpt2_h200.json" --backend nccl --ranks 1 --protocols compute \
        --rounds 10 --output "$folder/$name.jsonl" "$@"
}
for fused in false true; do
    compute "copies_fused_$fused" --set "/sync/fused_copies=$fused"
done
compute compute_launch_bound --set /workload/batch=1 --set /workload/sequence_length=16
compute compute_as_graph --set /workload/batch=1 --set /workload/sequence_length=16 --set /step/cuda_graph=true
for arithmetic in float32 tfloat32 bfloat16; do
    compute "compute_bound_$arithmetic" --set "/workload/arithmetic=$arithmetic"
done
part allreduce 60 "$bucketwise" bench allreduce --backend nccl "${ranks[@]}" --bytes 8B,1KiB,64KiB,1MiB,16MiB,128MiB \
    --rounds 3 --format nccl-tests --output "$folder/allreduce.jsonl"
part validate 150 "$bucketwise" validate "$scenarios/gpt2_h200.json" --backend nccl "${ranks[@]}" --rounds "$rounds" \
    --bucket-cap 2MiB,8MiB,50MiB,100MiB,1GiB --contention-ctas 4,12,24 --output "$folder/validation"

# A daemon of our own, with its own pipe, which leaves the machine's settings alone.
if [[ "$gpus" -lt 2 ]] && command -v nvidia-cuda-mps-control > /dev/null; then
    CUDA_MPS_PIPE_DIRECTORY=$(mktemp -d)
    CUDA_MPS_LOG_DIRECTORY=$(mktemp -d)
    export CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
    if part mps_start 20 nvidia-cuda-mps-control -d; then
        part validate_mps 150 "$bucketwise" validate "$scenarios/gpt2_h200.json" --backend nccl "${ranks[@]}" \
            --rounds "$rounds" --bucket-cap 2MiB,8MiB,50MiB,100MiB,1GiB --contention-ctas 4,12,24 --output "$folder/validation_mps"
        echo quit | timeout 20 nvidia-cuda-mps-control > /dev/null 2>&1
        cat "$CUDA_MPS_LOG_DIRECTORY"/*.log > "$folder/mps_log.txt" 2> /dev/null
    fi
    rm -rf "$CUDA_MPS_PIPE_DIRECTORY" "$CUDA_MPS_LOG_DIRECTORY"
    unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
fi

# The published systems, on two ranks.
part syncbn 30 "$bucketwise" bench syncbn --backend nccl "${ranks[@]}" --format json
part training 40 "$bucketwise" bench training "$scenarios/training_small.json" --backend nccl "${ranks[@]}" --format json
part ddp_strategies 60 "$bucketwise" bench ddp-strategies "$scenarios/gpt2_h200.json" --backend nccl "${ranks[@]}" --format json

say "total $SECONDS s"
tar --create --gzip --file "$folder.tar.gz" --directory "$(dirname "$folder")" "$(basename "$folder")"
cat "$summary"
