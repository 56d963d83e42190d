"""Finds the best bucket cap of a DistributedDataParallel, or the best groups under fully_shard, while it trains."""

import json
import os
import subprocess
import sys
import threading

from bucketwise._program import program as installed_program
from bucketwise.torch.all_reduce import AllReduceTiming
from bucketwise.torch.capture_pytorch import DISTURBED, capture
from bucketwise.torch.collectives import ShardedTiming
from bucketwise.torch.watch import is_first, ranks, replace_file, say, write_json

FORMAT = 1
# Relative errors of the replayed step: above the first it is reported, above the second advice is withheld. Imported
# traces have the same limits.
NOTICEABLE, POOR = 0.02, 0.1
RECOMPUTED = {"every block": "full", "every second one": {"every": 2}}  # activation_checkpointing of a scenario


def advise(model, folder="bucketwise_advice", *, steps=25, warmup=5, link=True, program=None, options=()):
    """Watches `steps` training steps of `model`, times all-reduces between them, and has rank 0 print the best
    bucket_cap_mb, how sure that is, and the line to type. `model` is a DistributedDataParallel, or a module that will be
    inside one.

        with bw.advise(model):
            ...training loop...

    or before the loop without `with`. All ranks call it, before they train. Training stays the same, bit for bit.

    folder: where rank 0 writes scenario.json, link.json, captured.json, all_reduces.jsonl, prediction.json and
        advice.json. Files of an earlier run are replaced.
    link: True times dist.all_reduce on the model's process group, for less than two seconds in all; False does not, and
        advises nothing; a link file's path or a preset's name (`bucketwise link list`) is used instead.
    program: the program bucketwise, by default the installed one.
    options: more options of `bucketwise predict`, for example ["--for", "lightning"].

    Never raises: an error is one line on standard error, and training goes on.
    """
    return Advice(model, folder, steps=steps, warmup=warmup, link=link, program=program, options=options)


class Advice:
    """The context manager that advise() returns. `result` is the content of advice.json, None until it exists."""

    def __init__(self, model, folder, *, steps, warmup, link, program, options):
        self.folder, self.link, self.program, self.options = os.fspath(folder), link, program, list(options)
        self.result = self._thread = self._capture = None
        try:
            model = getattr(model, "_orig_mod", model)  # torch.compile wraps the model
            kind = ShardedTiming if hasattr(model, "_get_fsdp_state") else AllReduceTiming
            self._timing = kind() if link is True and ranks() > 1 else None
            self._capture = capture(
                model,
                os.path.join(self.folder, "captured.json"),
                steps,
                warmup,
                self._timing,
                self._finished,
            )
            if is_first():
                os.makedirs(self.folder, exist_ok=True)
        except Exception as error:  # never the training's problem
            warn(error)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self._capture is not None and not self._capture.stop() and is_first():
            done, wanted = len(self._capture.passes), self._capture.steps + self._capture.warmup
            say(f"nothing is advised: training ended after {done} of {wanted} backward passes, and some between")
        self.wait()
        return False

    @property
    def exposed_ms(self):
        """Communication of the running step that no computing hides, in ms. There is none before there is a result."""
        return None if self.result is None else self.result["exposed_ms"]

    def wait(self, timeout_s=None):
        """Waits until the verdict is printed. Returns `result`."""
        if self._thread is not None:
            self._thread.join(timeout_s)
        return self.result

    def _finished(self, captured):
        if is_first():
            # Training goes on meanwhile. Python waits for the thread at exit.
            self._thread = threading.Thread(target=self._advise, args=(captured.measured_step_ms(),))
            self._thread.start()

    def _advise(self, measured):
        try:
            self.result = self._judged(measured)
            write_json(self._file("advice.json"), self.result)
        except Exception as error:  # never the training's problem
            warn(error)

    def _file(self, name):
        return os.path.join(self.folder, name)

    def _judged(self, measured):
        program = self.program or installed_program()
        notes = self._make_scenario(program)
        recomputed = self._recomputed(program)  # before the prediction, whose files options may name
        text, prediction = self._predict(program)
        ours = prediction.get("configured") or prediction["default"]
        if measured is not None and abs(ours["step_ms"] / measured[0] - 1) > NOTICEABLE:
            self._state_replay(ours["step_ms"], measured[0])
            text, prediction = self._predict(program)
        settings = {name: {key: setting[key] for key in ("typed", "bucket_bytes") if key in setting}
                    for name, setting in prediction.get("settings", {}).items()}
        result = {"format": FORMAT, "best": prediction["best"], "current": ours, "verdict": prediction.get("verdict"),
                  "settings": settings, "exposed_ms": ours["exposed_communication_ms"]}
        is_withheld = (result["verdict"] or {}).get("advice") == "withheld"
        result["recomputed"] = {} if is_withheld else recomputed
        if self._timing is not None:
            result["added_ms"] = round(1e3 * self._timing.added_s, 3)
        if measured is not None:
            step_ms, between_ms = measured
            result.update(measured_step_ms=round(step_ms, 4), between_steps_ms=round(between_ms, 4),
                          replayed_step_ms=ours["step_ms"], replay_error=ours["step_ms"] / step_ms - 1)
        for line in [*notes, *replay_lines(result), *text.splitlines(), *recomputed_lines(result)]:
            print(line, file=sys.stderr, flush=True)
        say(f"scenario, link, prediction and advice are in {self.folder}")
        return result

    def _read(self, name):
        with open(self._file(name)) as file:
            return json.load(file)

    def _predict(self, program):
        text = run_program(program, "predict", self._file("scenario.json"), *link_options(self.link), "--json",
                           self._file("prediction.json"), *self.options)
        return text, self._read("prediction.json")

    def _recomputed(self, program):
        """Returns the best step where backward computes blocks again, by RECOMPUTED; nothing for a model without repeated
        blocks, or one that computes some again."""
        workload, found = self._read("scenario.json")["workload"], {}
        if any(part.get("recomputed") for part in workload.get("backward_operations", workload["gradients"])):
            return found
        for blocks, value in RECOMPUTED.items():
            changed = "/workload/activation_checkpointing=" + json.dumps(value)
            try:
                text = run_program(program, "predict", self._file("scenario.json"), *link_options(self.link), *self.options,
                                   "--set", changed, "--json", "-")
            except RuntimeError:
                return {}
            found[blocks] = {"activation_checkpointing": value, "step_ms": json.loads(text)["best"]["step_ms"]}
        return found

    def _state_replay(self, replayed_ms, measured_ms):
        scenario = self._read("scenario.json")
        error = replayed_ms / measured_ms - 1
        text = f"the step that ran replays {100 * abs(error):.1f} % off: {replayed_ms:.4g} ms for {measured_ms:.4g} ms"
        caveat = {"text": text, "withholds_advice": True} if abs(error) > POOR else text
        scenario.setdefault("caveats", []).append(caveat)
        write_json(self._file("scenario.json"), scenario)

    def _make_scenario(self, program):
        """Makes scenario.json from captured.json and, if all-reduces were timed, link.json. Returns lines to print."""
        scenario, timing = self._read("captured.json"), self._timing
        if timing is None or timing.by_rank is None:
            write_json(self._file("scenario.json"), scenario)
            if timing is not None and timing.problem is not None:
                return [f"bucketwise: collectives were not timed: {timing.problem}"]
            return []
        replace_file(self._file(timing.file), "".join(json.dumps(record) + "\n" for record in timing.records()))
        copied = scenario["cluster"]["link"].get("copy_gb_per_s")
        is_disturbed = DISTURBED in scenario.get("caveats", []) and not scenario["sync"].get("compiled")
        undo = ["--captured", self._file("captured.json"), "--scenario-output", self._file("scenario.json")]
        run_program(program, "calibrate", self._file(timing.file), "-o", self._file("link.json"),
                    *(undo if is_disturbed else []))
        link = self._read("link.json")
        if copied is not None:
            link["copy_gb_per_s"] = copied
            write_json(self._file("link.json"), link)
        if is_disturbed:
            scenario = self._read("scenario.json")
            scenario["caveats"].remove(DISTURBED)  # true only of captured.json
            if not scenario["caveats"]:
                del scenario["caveats"]
        scenario["cluster"]["link"] = link
        write_json(self._file("scenario.json"), scenario)
        return [f"bucketwise: {timing.summary()}"]


def replay_lines(result):
    if "replay_error" not in result:
        return ["bucketwise: steps were not timed from end to end, so how far the replay is off is not known"]
    return [
        f"bucketwise: your step took {result['measured_step_ms']:.4g} ms and {result['between_steps_ms']:.3g} ms between "
        f"steps; replayed it takes {result['replayed_step_ms']:.4g} ms ({100 * result['replay_error']:+.1f} %)"
    ]


def recomputed_lines(result):
    best_ms = result["best"]["step_ms"]
    told = [f"with {blocks} {one['step_ms']:.4g} ms, {100 * (one['step_ms'] / best_ms - 1):.0f} % more"
            for blocks, one in result["recomputed"].items()]
    return ["", "If memory is short: checkpoint_wrapper lets backward compute blocks again. By what forward took, a step takes about",
            f"  {'; '.join(told)}."] if told else []


def link_options(link):
    return ["--link", link] if isinstance(link, (str, os.PathLike)) else []


def run_program(program, *arguments):
    done = subprocess.run([program, *map(os.fspath, arguments)], capture_output=True, text=True, timeout=600)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip() or f"bucketwise {arguments[0]} ended with {done.returncode}")
    return done.stdout


def warn(error):
    text = " ".join(str(error).split())
    say(f"nothing is advised: {text if isinstance(error, (ValueError, RuntimeError, OSError)) else repr(error)}")
