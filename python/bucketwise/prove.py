"""Measures and validates what this machine can show, part by part, and packs it. `bucketwise prove` starts it.

usage: prove.py FOLDER gloo|nccl SECONDS PROGRAM [SCENARIO]
   FOLDER     new or empty
   SECONDS    how long all of it takes at most
   PROGRAM    the file of bucketwise; bucketwise_gpu_tests is run where it lies beside it
   SCENARIO   what is validated; left out: GPT-2 on GPUs, else a tiny transformer, and tables of published systems
"""

import csv
import datetime
import json
import os
import shlex
import shutil
import site
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, NoReturn, Optional, Union

LEAST_S = 5  # of a part
Argument = Union[str, Path]
ROW_KEYS = ["source", "gpu", "gpus", "link", "model", "batch", "sequence", "accumulation", "set", "part", "measured_ms",
            "memory_gib", "origin"]
GPT2 = "scenarios/gpt2_h200.json"
TINY = "scenarios/transformer_tiny.json"


class Proof:
    """The folder, what ran in it, and the time left."""

    def __init__(self, folder: Path, limit_s: float, program: Path) -> None:
        self.folder = folder
        self.program = program
        self.end = time.monotonic() + limit_s
        self.summary: List[str] = []

    def left(self) -> float:
        return max(self.end - time.monotonic(), 0.0)

    def say(self, text: str) -> None:
        print(text, flush=True)
        self.summary.append(text)
        (self.folder / "summary.txt").write_text("\n".join(self.summary) + "\n")

    def part(self, name: str, most_s: float, *command: Argument) -> bool:
        """Runs a command for so long at most; NAME.txt gets the command and its output. True: it ended well."""
        seconds = min(most_s, self.left())
        if seconds < LEAST_S:
            self.say(f"{name:28} left out: no time")
            return False
        if sys.stderr.isatty():
            print(f"{name}, {seconds:.0f} s at most", end="\r", file=sys.stderr, flush=True)
        begin = time.monotonic()
        with open(self.folder / f"{name}.txt", "w") as output:
            output.write(f"$ {shlex.join(map(str, command))}\n")
            output.flush()
            try:
                ended = subprocess.run(list(map(str, command)), stdout=output, stderr=subprocess.STDOUT,
                                       stdin=subprocess.DEVNULL, timeout=seconds).returncode
                how = "done" if ended == 0 else f"exit {ended}"
            except subprocess.TimeoutExpired:
                ended, how = 1, "cut off"
            except OSError as error:
                ended, how = 1, error.strerror or "not started"
        self.say(f"{name:28} {how:8} {time.monotonic() - begin:4.0f} s")
        return ended == 0

    def bucketwise(self, name: str, most_s: float, *arguments: Argument) -> bool:
        return self.part(name, most_s, self.program, *arguments)

    def validate(self, name: str, share: float, *arguments: Argument) -> bool:
        """A validation that decides what it can in that share of the time left."""
        seconds = int(share * self.left())
        if seconds < 10:
            self.say(f"{name:28} left out: no time")
            return False
        return self.bucketwise(name, seconds * 1.3, "validate", *arguments, "--time", f"{seconds}s", "-o", self.folder / name)


def libraries_of_python() -> List[str]:
    """Folders of NCCL and cuBLAS in Python's nvidia-* packages, where the system may have none."""
    places = {sysconfig.get_paths()["purelib"], *site.getsitepackages()}
    names = ("libnccl.so.2", "libcublas.so.13", "libcublas.so.12")
    found = [str(path.parent) for name in names for place in places for path in Path(place, "nvidia").rglob(name)]
    return list(dict.fromkeys(found))


def prove_gpus(proof: Proof, scenario: Optional[str]) -> None:
    os.environ["LD_LIBRARY_PATH"] = ":".join(filter(None, [os.environ.get("LD_LIBRARY_PATH"), *libraries_of_python()]))
    if shutil.which("nvidia-smi"):
        proof.part("nvidia_smi", 20, "nvidia-smi", "--query-gpu=name,driver_version,memory.total,clocks.sm,clocks.max.sm,"
                   "power.limit,mig.mode.current,compute_mode", "--format=csv")
        proof.part("topology", 20, "nvidia-smi", "topo", "-m")
    probe = ["bench", "allreduce", "--backend", "nccl", "--bytes", "1KiB", "--rounds", "1", "--ranks", "2"]
    ranks = ["--ranks", "2"]
    if not proof.bucketwise("two_gpus", 60, *probe):
        ranks.append("--share-gpu")
        if not proof.bucketwise("one_gpu", 60, *probe, "--share-gpu"):
            proof.say((proof.folder / "one_gpu.txt").read_text().splitlines()[-1])
            return
        proof.say("two ranks share one GPU: this shows that all works, not how fast a link is")
    tests = proof.program.with_name("bucketwise_gpu_tests")
    if tests.exists():
        proof.part("gpu_tests", 120, tests, "--durations", "yes")
        if shutil.which("compute-sanitizer"):  # our own kernels; NCCL's and cuBLAS' are not ours to judge
            proof.part("memcheck", 90, "compute-sanitizer", "--tool", "memcheck", "--error-exitcode", "3", tests, "[kernels]")
    launch_bound = ["--set", "/workload/batch=1", "--set", "/workload/sequence_length=16"]
    variants = {"compute": []} if scenario else {
        "compute": [], "compute_launch_bound": launch_bound,
        "compute_as_graph": [*launch_bound, "--set", "/step/cuda_graph=true"],
        "compute_float32": ["--set", "/workload/arithmetic=float32"], "copies_fused": ["--set", "/sync/fused_copies=true"]}
    for name, changes in variants.items():
        proof.bucketwise(name, 40, "measure", scenario or GPT2, "--backend", "nccl", "--ranks", "1", "--protocols",
                         "compute", "--rounds", "10", "-o", proof.folder / f"{name}.jsonl", *changes)
    proof.bucketwise("allreduce", 60, "bench", "allreduce", "--backend", "nccl", *ranks, "--bytes",
                     "8B,1KiB,64KiB,1MiB,16MiB,128MiB", "--rounds", "3", "--format", "nccl-tests", "-o",
                     proof.folder / "allreduce.jsonl")
    validation = [scenario or GPT2, "--backend", "nccl", *ranks, "--contention-ctas", "4,12,24"]
    shares = "--share-gpu" in ranks and shutil.which("nvidia-cuda-mps-control")
    proof.validate("validation", 0.4 if shares else 0.7, *validation)
    if shares:
        with_mps(proof, lambda: proof.validate("validation_mps", 0.6, *validation))
    for bench in [] if scenario else ["syncbn", "training"]:
        proof.bucketwise(bench, 40, "bench", bench, "--backend", "nccl", *ranks, "--format", "json")


def with_mps(proof: Proof, act: Callable[[], bool]) -> None:
    """Acts while a daemon of our own runs, with its own pipe, which leaves the machine's settings alone."""
    with tempfile.TemporaryDirectory() as pipes, tempfile.TemporaryDirectory() as logs:
        os.environ.update(CUDA_MPS_PIPE_DIRECTORY=pipes, CUDA_MPS_LOG_DIRECTORY=logs)
        if proof.part("mps_start", 20, "nvidia-cuda-mps-control", "-d"):
            act()
            subprocess.run(["nvidia-cuda-mps-control"], input="quit\n", text=True, timeout=20, check=False,
                           capture_output=True)
        del os.environ["CUDA_MPS_PIPE_DIRECTORY"], os.environ["CUDA_MPS_LOG_DIRECTORY"]


def prove_processors(proof: Proof, scenario: Optional[str]) -> None:
    proof.bucketwise("allreduce", 60, "bench", "allreduce", "--ranks", "2", "--bytes", "1KiB,64KiB,1MiB,16MiB", "--rounds",
                     "3", "-o", proof.folder / "allreduce.jsonl")
    scenario = scenario or TINY
    proof.bucketwise("compute", 60, "measure", scenario, "--ranks", "1", "--protocols", "compute", "--rounds", "5", "-o",
                     proof.folder / "compute.jsonl")
    proof.validate("validation_1gbit", 0.5, scenario, "--ranks", "2", "--link-rate", "1gbit")
    proof.validate("validation_loopback", 0.8, scenario, "--ranks", "2")


def rows_of(folder: Path) -> List[Dict[str, Any]]:
    """The default's step of each validation, as a row of the scoreboard; none of ranks that shared a GPU."""
    rows = []
    for file in sorted(folder.glob("*/comparison.json")):
        comparison = json.loads(file.read_text())
        workload = json.loads(file.with_name("scenario.json").read_text())["workload"]
        with open(file.with_name("measurements.jsonl")) as lines:
            records = [json.loads(line) for line in lines]
        gpu = records[0].get("gpu", "").split(",")[0]  # memory and driver follow
        default = [point for point in comparison["points"] if point["is_default"]]
        if not gpu or not default or any(record.get("shared_gpu") for record in records):
            continue
        model = workload.get("model")
        rows.append({**dict.fromkeys(ROW_KEYS, ""), "gpu": gpu, "gpus": comparison["ranks"],
                     "model": model if isinstance(model, str) else "", "batch": workload.get("batch", ""),
                     "sequence": workload.get("sequence_length", ""), "accumulation": 1, "part": "step",
                     "measured_ms": round(default[0]["measured_step_ms"], 2), "origin": f"{folder.name}/{file.parent.name}"})
    return rows


def pack(proof: Proof) -> None:
    rows = rows_of(proof.folder)
    if rows:
        with open(proof.folder / "rows.csv", "w", newline="") as file:
            writer = csv.DictWriter(file, ROW_KEYS)
            writer.writeheader()
            writer.writerows(rows)
    packed = proof.folder.with_name(proof.folder.name + ".tar.gz")
    with tarfile.open(packed, "w:gz") as archive:
        archive.add(proof.folder, arcname=proof.folder.name)
    print(f"{packed} holds all of it; {proof.folder}/*/report.html are to read.")
    if rows:
        print("rows.csv has the default's step as a row of the scoreboard, but for source and link: send the archive with "
              "how the GPUs are connected (results/scoreboard/README.md says how rows join).")


def refuse(where: str, expected: str, got: Optional[str]) -> NoReturn:
    print(f"bucketwise: {where}: expected {expected}, got {got}", file=sys.stderr)
    sys.exit(2)


def main() -> None:
    if len(sys.argv) not in (5, 6):
        sys.exit(__doc__)
    folder, backend, seconds, program = Path(sys.argv[1]).resolve(), sys.argv[2], float(sys.argv[3]), Path(sys.argv[4])
    scenario = sys.argv[5] if len(sys.argv) == 6 else None
    if folder.exists() and not folder.is_dir():
        refuse(sys.argv[1], "a folder", "a file")
    if folder.exists() and any(folder.iterdir()):
        refuse(sys.argv[1], "a new or empty folder", "one that holds files")
    if scenario:
        read = subprocess.run([program, "predict", scenario, "--json", "-"], capture_output=True, text=True)
        if read.returncode != 0:
            sys.stderr.write(read.stderr)
            sys.exit(read.returncode)
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        refuse(sys.argv[1], "a folder that can be made", error.strerror)
    proof = Proof(folder, seconds, program)
    proof.say(f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%dT%H:%M:%SZ} {backend}")
    proof.part("version", 20, program, "--version")
    (prove_gpus if backend == "nccl" else prove_processors)(proof, scenario)
    pack(proof)
    sys.exit(0 if any(folder.glob("*/report.html")) else 1)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        print("bucketwise: interrupted; the folder keeps what had run", file=sys.stderr)
        sys.exit(130)
