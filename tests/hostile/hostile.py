#!/usr/bin/env python3
"""Gives the program files and options that a hostile hand has changed, and checks what it does with them.

usage: hostile.py BINARY SOURCE_FOLDER [--seconds S] [--runs N] [--seed N] [--only RUN] [--keep FOLDER]

Whatever the input: the program ends with 0, 1 or 2 (check also with 3), by itself, within 5 s of computing; on 2
it says why in one line, and prints nothing else; what is shown holds no control character, and JSON no number that
JSON has not; an output is whole or as it was before, and nothing lies beside it; and no plan that is shown beats a
bound that is printed. The seed and a number identify a run: --only repeats it, with its files in --keep.
"""

import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unicodedata

from mutation import FOREIGN, NUMBERS, Mutator

# Format characters that are meant to be seen or that scripts need: joiners, signs that enclose numbers.
SHOWN_FORMATS = "\u200c\u200d\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd"
COMPUTING_S = 5
PATIENCE_S = 600  # a machine may be busy with other things
LONGEST_LINE = 4100  # several lists of what is possible
ENOUGH_RUNS = 100  # for some of them to end well
BEFORE = b"what was there before\n"


def files(folder, pattern, most_bytes=300_000):
    return sorted(path for path in folder.glob(pattern) if path.stat().st_size <= most_bytes)


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


class Corpus:
    """Sound files, by what they are."""

    def __init__(self, source):
        documents = {path: json.loads(path.read_text()) for path in files(source / "scenarios", "*.json")}
        self.scenarios = [p for p, d in documents.items() if "workload" in d and d["cluster"]["ranks"] <= 4096]
        self.links = files(source / "scenarios/links", "*.json")
        self.measurements = files(source / "tests" / "data", "validation/*/measurements.jsonl") + files(
            source / "results", "four_ranks_*.jsonl")
        self.validations = [path.parent for path in self.measurements if (path.parent / "link.json").exists()]
        self.steps = files(source / "tests/data/published", "compare_ddp_*.csv")
        self.nccl_tests = files(source / "tests/fuzz/nccl_tests_seeds", "*.*")
        self.traces = files(source / "tests/fuzz/kineto_seeds", "*.json")
        self.chakra = files(source / "tests/fuzz/chakra_seeds", "*.*")
        self.recorder = files(source / "tests/fuzz/flight_recorder_seeds", "*.*")
        for kind, found in vars(self).items():
            if not found:
                sys.exit(f"hostile.py: no {kind} under {source}")


# Files written for other programs.
MODELS = [{"model_type": "gpt2", "n_layer": 4, "n_head": 4, "n_embd": 64, "vocab_size": 1000, "n_positions": 128},
          {"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 128,
           "num_attention_heads": 4, "vocab_size": 1000, "max_position_embeddings": 64},
          {"model_type": "bert", "num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 128,
           "num_attention_heads": 4, "vocab_size": 1000, "max_position_embeddings": 64}]
SETTINGS = [{"zero_optimization": {"stage": 2, "reduce_bucket_size": 5e8, "overlap_comm": True},
             "bf16": {"enabled": True}}, {"zero_optimization": {"stage": 1, "reduce_bucket_size": 50_000_000},
                                          "train_micro_batch_size_per_gpu": 4},
            {"bucket_cap_mb": 25, "gradient_as_bucket_view": True}]


# Baselines for traces, measurements and scenarios.
BASELINES = [
    {"format": 1, "cases": [
        {"name": name, "source": source, "runs": [
            {"file": "a", "step_ms": [1.0, 1.5, 2.0], "exposed_ms": [0.1, 0.2, 0.3], "computing_ms": [0.9, 1.0, 1.2],
             "copying_ms": [0.1, 0.1, 0.1], "launching_ms": [0.0, 0.1, 0.0], "others_ms": [0.0, 0.0, 0.0],
             "buckets": [{"bytes": 1000, "last_gradient": "w", "ready_ms": [0.1, 0.2, 0.3],
                          "collective_ms": [0.3, 0.2, 0.1]}],
             "gradients": [{"name": "v", "ready_ms": 0.1}, {"name": "w", "ready_ms": 0.2}], "collectives_wait": True},
            {"file": "b", "step_ms": [1.2, 1.6]}]}]}
    for name, source in (("traced steps", "trace"), ("ddp, default cap", "measurement"),
                         ("ResNet-50 on one node of 8 H100", "prediction"))
]


class Run:
    """One command in a folder of its own."""

    def __init__(self, corpus, binary, seed, number, folder):
        self.corpus, self.binary, self.folder = corpus, binary, folder
        self.mutator = Mutator(f"{seed} {number}")
        self.outputs = {}  # by name: json, jsonl or text
        self.printed = "text"
        self.checks = []
        self.named = set()  # what rubbish may have become the name of an output
        commands = [self.predict] * 6 + [self.optimum] * 2 + [self.sweep] * 2 + [
            self.link_show, self.settings, self.calibrate_steps, self.compare] + [
            self.calibrate, self.import_logs, self.check] * 2 + [self.import_other] * 4
        self.arguments = self.mutator.pick(commands)()

    # --- files ---

    def file(self, name, sources, kind, spoiled=True):
        source = self.mutator.pick(sources)
        data = source.read_bytes() if isinstance(source, pathlib.Path) else json.dumps(source).encode()
        if spoiled:
            data = self.mutator.changed(data, kind)
        (self.folder / name).write_bytes(data)
        return name

    def scenario(self, spoiled=True):
        (self.folder / "links").mkdir(exist_ok=True)
        for link in self.corpus.links:  # which scenarios name
            self.file(f"links/{link.name}", [link], "json", spoiled and self.mutator.one_in(20))
        return self.file("scenario.json", self.corpus.scenarios, "json", spoiled)

    def output(self, name, kind):
        self.outputs[name] = kind
        if self.mutator.one_in(2):
            (self.folder / name).write_bytes(BEFORE)
        return name

    # --- options ---

    def rubbish(self):
        return self.mutator.pick(self.mutator.pick([FOREIGN, NUMBERS])).replace("\0", "").encode(errors="surrogatepass")

    def some(self, *choices):
        """Each of the options sometimes, and sometimes one with a value that is none."""
        chosen = [part for choice in choices if self.mutator.one_in(6) for part in choice]
        if self.mutator.one_in(25):
            chosen += [self.mutator.pick(choices)[0], self.rubbish()]
            self.named.add(os.fsdecode(chosen[-1]))
        return chosen

    # --- commands ---

    def scenario_options(self):
        pick = self.mutator.pick
        return self.some(
            ["--link", pick(["nvlink-h100-8", "ib-ndr-400", "none.json", *(f"links/{p.name}" for p in self.corpus.links)])],
            ["--strategy", pick(["ddp", "overlap", "naive", "flat", "bucketed", "python_async", "none"])],
            ["--set", pick(["/cluster/ranks=", "/sync/bucket_cap_mib=", "/step/accumulation=", "/name=", "/a/b=",
                            "/workload/batch=", "/sync/comm_hook="]) +
             pick(["8", "0", "-1", "1e308", "fp16", "null", "x", '"y"', "[]"])])

    def predict(self):
        pick = self.mutator.pick
        if self.mutator.one_in(3):
            self.printed = "json"
        return ["predict", self.scenario(), *self.scenario_options(), *self.some(
            ["--bucket-cap", pick(["auto", "1MiB,25MiB", "25", "0", "1e30MiB", "1MiB,1MiB", "0.3kB"])],
            ["--details"], ["--percentiles", "--draws", pick(["1", "20", "0"])],
            ["--for", pick(["all", "lightning", "deepspeed_zero2,megatron_lm"])],
            ["--trace", self.output("trace.json", "json")]), *(["--json", "-"] if self.printed == "json" else [])]

    def optimum(self):
        self.printed = "json"
        self.checks.append(check_optimum)
        arguments = ["predict", self.scenario(), "--plan", "optimal", "--json", "-", *self.scenario_options()]
        document = self.mixed()
        if document:
            (self.folder / "scenario.json").write_text(json.dumps(document))
        return arguments

    def mixed(self):
        """Sometimes a sound scenario of gradients of several dtypes."""
        if self.mutator.one_in(2):
            return None
        random = self.mutator.random
        count = random.randint(1, random.choice([6, 40]))
        gradients = [{"name": f"g{i}", "numel": random.randint(1, 3_000_000),
                      "dtype": random.choice(["float32", "float16", "bfloat16"][:random.randint(1, 3)]),
                      "ready_ms": random.uniform(0, 20)} for i in range(count)]
        link = {"name": "l", "algorithm": "ring", "segments": [
            {"latency_us": random.uniform(0, 3000), "bandwidth_gb_per_s": random.uniform(0.1, 100)}]}
        if self.mutator.one_in(2):
            link["interference"] = [{"compute_slowdown": random.uniform(1, 2),
                                     "communication_slowdown": random.uniform(1, 2)}]
        document = {"name": "mixed", "workload": {"forward_ms": 5.0, "backward_ms": 20.0, "gradients": gradients},
                    "cluster": {"ranks": random.randint(1, 64), "link": link},
                    "sync": {"strategy": random.choice(["ddp", "bucketed", "python_async", "python_sync"])}}
        if self.mutator.one_in(4) and document["cluster"]["ranks"] > 1:
            document["cluster"]["stragglers"] = [{"rank": 0, "compute_slowdown": random.uniform(1, 3)}]
        sync = document["sync"]
        if self.mutator.one_in(3):
            sync["strategy"] = random.choice(["ddp", "ddp_first_iteration"])
            sync[random.choice(["batched_grad_copy", "find_unused_parameters", "views", "static_graph"])] = True
        if self.mutator.one_in(3):
            sync["bucket_cap_mib_list"] = [random.uniform(0.1, 10) for _ in range(random.randint(1, 3))]
        elif self.mutator.one_in(3):
            sync["first_bucket_mib"] = random.uniform(0.1, 4)
        for gradient in gradients:
            if self.mutator.one_in(20):
                gradient["sparse"] = True
        return document

    def sweep(self):
        pick = self.mutator.pick
        form = pick(["jsonl", "csv"])
        self.printed = form
        varied = pick(["/cluster/ranks=2..64:x2", "/sync/bucket_cap_mib=1,5,25", "/cluster/ranks=1,2", "/workload/batch=1,8",
                       "/cluster/ranks=8..2:-2", "/name=a,b", "/nothing=1", "/cluster/ranks=0..1:+0.25", "x"])
        return ["sweep", self.scenario(), "--vary", varied, "--format", form, "--jobs", "1", *self.scenario_options(),
                *self.some(["--bucket-cap", pick(["best", "25MiB"])], ["--shard", pick(["1/2", "3/2", "0/1"])])]

    def link_show(self):
        pick = self.mutator.pick
        return ["link", "show", self.file("link.json", self.corpus.links, "json"), "--ranks",
                pick(["2", "16", "0", "100000", "x"])]

    def settings(self):
        typed = self.file("settings.json", SETTINGS, "json")
        return ["settings", "check", typed, *([self.scenario(spoiled=False)] if self.mutator.one_in(2) else [])]

    def calibrate(self):
        arguments = ["calibrate", self.file("a.jsonl", self.corpus.measurements, "lines"), "-o",
                     self.output("link.json", "json")]
        if self.mutator.one_in(3):
            arguments.append(self.file("b.jsonl", self.corpus.measurements, "lines"))
        return arguments + self.some(["--scenario-output", self.output("calibrated.json", "json")],
                                     ["--fit", self.output("fit.json", "json")], ["--processors", "2"])

    def calibrate_steps(self):
        return ["calibrate", "--steps", self.file("steps.csv", self.corpus.steps, "lines"), "--scenario",
                self.file("scenario.json", [p for p in self.corpus.scenarios if "compare_ddp" in p.name], "json",
                          self.mutator.one_in(2)), "-o", self.output("link.json", "json")]

    def compare(self):
        measured = self.mutator.pick(self.corpus.validations)
        model = measured.name.split("_")[0]  # resnet_1gbit_2: scenarios/resnet_small.json
        scenario = [path for path in self.corpus.scenarios if path.name == f"{model}_small.json"]
        return ["compare", self.file("scenario.json", scenario, "json", self.mutator.one_in(3)),
                "--link", self.file("link.json", [measured / "link.json"], "json", self.mutator.one_in(3)),
                "--measurements", self.file("a.jsonl", [measured / "measurements.jsonl"], "lines"),
                "-o", self.output("comparison.json", "json"),
                *self.some(["--details"], ["--trace", self.output("trace.json", "json")])]

    def import_logs(self):
        logs = [self.file(f"log{i}", self.corpus.nccl_tests, "lines") for i in range(self.mutator.random.randint(1, 2))]
        return ["import", "nccl-tests", *logs, "-o", self.output("out.jsonl", "jsonl"),
                *self.some(["--ranks", "16"], ["--ranks-per-node", "8"])]

    def import_other(self):
        """Picks an import, its files, their kind, and options."""
        of_trace = (["--ranks", "2"], ["--link", "nvlink-h100-8"])
        kind, sources, form, options = self.mutator.pick([
            ("kineto", self.corpus.traces, "json", of_trace), ("chakra", self.corpus.chakra, "bytes", of_trace),
            ("flight-recorder", self.corpus.recorder, "bytes", of_trace),
            ("hf", MODELS, "json", (["--batch", "4"], ["--sequence", "64"], ["--device", "A100"], ["--ranks", "8"]))])
        return ["import", kind, self.file("config.json" if kind == "hf" else "given", sources, form), "-o",
                self.output("out.json", "json"), *self.some(*options)]

    def check(self):
        pick, one_in = self.mutator.pick, self.mutator.one_in
        given = pick([lambda: self.file("trace.json", self.corpus.traces, "json", one_in(2)),
                      lambda: self.file("a.jsonl", self.corpus.measurements, "lines", one_in(2)),
                      lambda: self.scenario(one_in(2)), lambda: "resnet50"])()
        arguments = ["check", given, *self.some(["--max-step", "100ms"], ["--max-exposed", "5%"],
                                                ["--max-regression", "3%"], ["--false-alarms", "2%"])]
        if one_in(3):
            arguments += ["--baseline", self.output("new.json", "json"), "--update-baseline"]
        else:
            arguments += ["--baseline", self.file("baseline.json", BASELINES, "json", one_in(2))]
        if one_in(3):
            self.printed = pick(["json", "text"])
            arguments += ["--format", "json" if self.printed == "json" else pick(["markdown", "junit", "text"])]
        return arguments

    # --- running it ---

    def command(self):
        return [os.fsencode(self.binary), *(a if isinstance(a, bytes) else os.fsencode(a) for a in self.arguments)]

    def ended(self):
        """Its status, what it printed, and how long it computed."""
        with open(self.folder / ".stdout", "wb") as out, open(self.folder / ".stderr", "wb") as err:
            process = subprocess.Popen(self.command(), cwd=self.folder, stdin=subprocess.DEVNULL, stdout=out, stderr=err)
            timer = threading.Timer(PATIENCE_S, process.kill)
            timer.start()
            try:
                _, status, usage = os.wait4(process.pid, 0)
            finally:
                timer.cancel()
            process.returncode = os.waitstatus_to_exitcode(status)
        printed = [(self.folder / name).read_bytes() for name in (".stdout", ".stderr")]
        for name in (".stdout", ".stderr"):
            (self.folder / name).unlink()
        return process.returncode, *printed, usage.ru_utime + usage.ru_stime

    def findings(self):
        before = contents(self.folder)
        code, out, err, seconds = self.ended()
        self.code = code
        held = code == 0 or (code == 3 and self.arguments[0] == "check")  # 3: a gate that is not held says why
        if not held and code not in (1, 2):
            killed = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
            yield f"{killed}; it said {err[-500:]!r}"
            return
        if seconds > COMPUTING_S:
            yield f"computed for {seconds:.1f} s"
        yield from self.text_findings("standard output", out)
        yield from self.text_findings("standard error", err)
        if not held:
            yield from self.refusal_findings(code, out, err)
        elif self.printed in ("json", "jsonl"):
            yield from json_findings("standard output", out, self.printed)
        after = contents(self.folder)
        for name in sorted(set(before) | set(after)):
            yield from self.file_findings(name, 0 if held else code, before.get(name), after.get(name))
        if code == 0:
            for check in self.checks:
                yield from check(out)

    def refusal_findings(self, code, out, err):
        if out:
            yield f"ended with {code} and printed {out[:200]!r}"
        lines = err.decode(errors="replace").splitlines()
        if not lines:
            yield f"ended with {code} and said nothing"
        if code == 2 and (len(lines) != 1 or not lines[0].startswith("bucketwise: ")):
            yield f"ended with 2 and said {err[:1000]!r}"

    def text_findings(self, what, data):
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            yield f"{what} is no UTF-8: {error}"
            return
        for character in set(text):
            if character not in "\n" + SHOWN_FORMATS and unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp"):
                yield f"{what} holds the character {character!a}"
        longest = max((len(line) for line in text.splitlines()), default=0)
        if longest > LONGEST_LINE and self.printed == "text":
            yield f"{what} has a line of {longest} characters"

    def file_findings(self, name, code, before, after):
        if after is None:
            yield f"{name} is gone"
        elif name not in self.outputs:
            if before is None and name not in self.named:
                yield f"{name} was left behind"
            elif before is not None and before != after:
                yield f"{name}, which was read, was changed"
        elif code != 0 and before != after:
            yield f"{name} was written, though the command ended with {code}"
        elif code == 0 and before != after:
            yield from json_findings(name, after, self.outputs[name])


def refuse_constant(text):
    raise ValueError(f"{text} is no number of JSON")


def json_findings(what, data, kind):
    try:
        text = data.decode()
        for document in text.splitlines() if kind == "jsonl" else [text]:
            json.loads(document, parse_constant=refuse_constant)
    except ValueError as error:
        yield f"{what} is no JSON: {error}"


def check_optimum(printed):
    """Nothing that is shown beats the bound, or, of the ways to ask for a plan, the optimum."""
    prediction = json.loads(printed)
    optimal = prediction["optimal"]
    if "sharded" in prediction:
        yield from check_sharded_optimum(prediction)
        return
    for row in prediction["sweep"] + [prediction["default"]]:
        if row["step_ms"] < optimal["bound_ms"]:
            yield f"a step of {row['step_ms']} ms beats the bound of {optimal['bound_ms']} ms"
    for row in optimal["gaps"]:
        if row["step_ms"] < optimal["step_ms"]:
            yield f"{row['plan']} of {row['step_ms']} ms beats the best of {optimal['step_ms']} ms"


def check_sharded_optimum(prediction):
    """No even grouping that fits the memory beats groups of any size, with the advised knobs."""
    step_ms = prediction["optimal"]["step_ms"]
    advised = other_knobs(prediction["best"])
    for row in prediction["sweep"]:
        fits = row.get("memory", {}).get("fits", True)
        if fits and other_knobs(row) == advised and row["step_ms"] < step_ms:
            yield f"a setting of {row['step_ms']} ms beats the best grouping, of {step_ms} ms: {row['sharding']}"


def other_knobs(row):
    return {knob: value for knob, value in row["sharding"].items() if knob != "layers_per_group"}


def run_one(corpus, options, number):
    with tempfile.TemporaryDirectory(prefix="hostile-") as folder:
        run = Run(corpus, options.binary, options.seed, number, pathlib.Path(folder))
        if options.keep:
            kept = pathlib.Path(options.keep) / f"run_{number}"
            shutil.rmtree(kept, ignore_errors=True)
            shutil.copytree(folder, kept)
        found = list(run.findings())
        return found, run


def show(number, found, command):
    words = " ".join(shlex.quote(os.fsdecode(word)) for word in command)
    print(f"run {number}: {words}".encode(errors="backslashreplace").decode())
    for finding in found:
        print(f"    {finding}".encode(errors="backslashreplace").decode(), flush=True)


def numbers(options):
    if options.only is not None:
        yield options.only
        return
    end = time.monotonic() + options.seconds
    number = 0
    while (number < options.runs) if options.runs else (time.monotonic() < end):
        yield number
        number += 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", type=lambda text: str(pathlib.Path(text).resolve()))
    parser.add_argument("source", type=lambda text: pathlib.Path(text).resolve())
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--runs", type=int, default=0, help="so many, however long that takes")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int)
    parser.add_argument("--keep")
    options = parser.parse_args()
    corpus = Corpus(options.source)
    # An address space of 4 GiB: what grows without bound ends there.
    if os.environ.get("BUCKETWISE_HOSTILE_MEMORY") != "any":
        resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
    begin = time.monotonic()
    executions = 0
    failed = 0
    ends = collections.Counter()  # by command and exit status
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        pending = {}
        todo = numbers(options)
        more = True
        while more or pending:
            while more and len(pending) < 2 * os.cpu_count():
                number = next(todo, None)
                more = number is not None
                if more:
                    pending[pool.submit(run_one, corpus, options, number)] = number
            done, _ = concurrent.futures.wait(pending, return_when=concurrent.futures.FIRST_COMPLETED)
            for future in done:
                number = pending.pop(future)
                found, run = future.result()
                executions += 1
                ends[run.arguments[0], run.code] += 1
                if found:
                    failed += 1
                    show(number, found, run.command())
    for command in sorted({command for command, _ in ends}):
        print(f"{command}:", ", ".join(f"{count} ended with {code}" for (name, code), count in sorted(ends.items())
                                       if name == command))
    for command in {command for command, _ in ends}:
        runs = sum(count for (name, _), count in ends.items() if name == command)
        if runs >= ENOUGH_RUNS and not ends[command, 0]:
            failed += 1
            print(f"{command}: none of {runs} runs ended well, so that little of it was tried")
    print(f"{executions} executions in {time.monotonic() - begin:.0f} s, seed {options.seed}: "
          f"{failed or 'no'} finding{'' if failed == 1 else 's'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
