"""plots/plot.py draws what `bucketwise validate` found, whatever a scenario is called and however caps lie.

usage: check_validation.py repo_root

Skipped (exit code 77) where Python has no matplotlib.
"""
import html
import importlib.util
import json
import re
import resource
import signal
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

HOSTILE = '<script>alert(1)</script> | $x^2$ & "q"'


def drawn(program, comparison, fit):
    """The texts of each picture by its name."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "comparison.json").write_text(json.dumps(comparison))
        (folder / "fit.json").write_text(json.dumps(fit), encoding="utf-8-sig")  # a byte-order mark matters to nobody
        subprocess.run([sys.executable, program, folder], check=True)
        pictures = {}
        for file in folder.glob("*.svg"):
            assert file.with_suffix(".png").stat().st_size > 10_000, file
            svg = file.read_text()
            assert "<script" not in svg, file
            pictures[file.stem] = [html.unescape(text) for text in re.findall(r"<text[^>]*>([^<]*)</text>", svg)]
        return pictures


def check_says(texts, *expected):
    for text in expected:
        assert any(text in shown for shown in texts), f"expected the picture to say {text!r}, got {texts}"


def check_marks(program, comparison, fit):
    pictures = drawn(program, comparison, fit)
    assert sorted(pictures) == ["accuracy", "error_causes", "link_fit", "step_time", "timeline"], sorted(pictures)
    check_says(pictures["step_time"], "advised: 1.25 MiB", "default: 25 MiB", "95 % of predicted steps",
               "measured median, 95 % interval", "measured, advised cap", "measured, default", "1000")
    check_says(pictures["accuracy"], "advised cap", "default", "± 2 %, the goal",
               f"off by {100 * comparison['mape']:.1f} % on average")
    # The default advised is one mark.
    default = next(p for p in comparison["points"] if p["is_default"])
    same = {**comparison, "predicted_best_is_default": True, "predicted_best_mib": default["bucket_cap_mib"]}
    texts = drawn(program, same, fit)["step_time"]
    check_says(texts, "default and advised: 25 MiB")
    assert not any(text.strip().startswith(("advised:", "default:")) for text in texts), texts


def check_settings(program, comparison, fit):
    """Settings of sharding have names in place of caps, and collectives of several kinds."""
    pictures = drawn(program, comparison, fit)
    assert sorted(pictures) == ["accuracy", "error_causes", "link_fit", "step_time", "timeline"], sorted(pictures)
    names = [name for p in comparison["points"] for name in p["setting"].split(", ")]
    check_says(pictures["step_time"], "advised", "yours", "95 % of predicted steps", "measured, advised setting", *names)
    check_says(pictures["accuracy"], "advised setting", "other settings", *names)
    check_says(pictures["timeline"], "all-gather", "reduce-scatter", "exposed", comparison["pictures"]["setting"])
    check_says(pictures["link_fit"], "all-gather, 2 ranks", "reduce-scatter, 2 ranks", "collective, µs")
    check_says(pictures["error_causes"], "collective bandwidth", "waiting for peers", *names)
    comparison["points"][0]["setting"] = HOSTILE
    check_says(drawn(program, comparison, fit)["step_time"], HOSTILE)


def check_nothing_to_decide(program, comparison, fit):
    """A strategy without caps has one point: there is no step by cap to draw."""
    point = {**comparison["points"][0], "bucket_cap_mib": None}
    alone = {**comparison, "points": [point], "predicted_best_mib": None, "measured_best_mib": None,
             "verdict": {**comparison["verdict"], "decision": None}}
    alone["pictures"]["bucket_cap_mib"] = None
    pictures = drawn(program, alone, fit)
    assert "step_time" not in pictures
    check_says(pictures["accuracy"], alone["strategy"])


def check_names(program, comparison, fit):
    fit["link"]["name"] = HOSTILE
    # Nothing of a formula, of TeX or of a legend's hidden entries, and no direction but the reader's.
    formulas = r"_a \$x_{^$ $\frac$ $"
    for name, shown in ((HOSTILE, HOSTILE), ("long " * 60, "…"), ("two\nlines", "two lines"), (formulas, formulas),
                        ("a\x1b[31m\u202ez", "a [31m z")):
        pictures = drawn(program, {**comparison, "scenario": name, "machine": name}, fit)
        for picture in ("step_time", "accuracy", "timeline", "error_causes"):
            check_says(pictures[picture], shown)
    check_says(pictures["link_fit"], HOSTILE)
    fit["link"]["name"] = formulas
    check_says(drawn(program, comparison, fit)["link_fit"], formulas)


STOPPED_WHILE_WRITING = """
import os, runpy, signal, sys
os.fsync = lambda _: os.kill(os.getpid(), signal.SIGTERM)
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def check_whole_or_not_at_all(program, comparison, fit):
    """The pictures of an earlier run stay where new ones cannot be written, and nothing lies beside them."""
    def no_large_files():
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))  # as a full disk; a picture is larger

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "comparison.json").write_text(json.dumps(comparison))
        (folder / "fit.json").write_text(json.dumps(fit))
        for picture in ("accuracy.svg", "timeline.png"):
            (folder / picture).write_text("old")
            (folder / picture).chmod(0o640)
        before = {file.name: file.read_bytes() for file in folder.iterdir()}
        for command, limit, code, says in (
                ([sys.executable, program, folder], no_large_files, 1, "cannot write: File too large"),
                ([sys.executable, "-c", STOPPED_WHILE_WRITING, program, folder], None, 128 + signal.SIGTERM, "")):
            failed = subprocess.run(command, preexec_fn=limit, stderr=subprocess.PIPE, text=True)
            assert failed.returncode == code, failed
            assert says in failed.stderr, failed
            assert {file.name: file.read_bytes() for file in folder.iterdir()} == before, list(folder.iterdir())
        subprocess.run([sys.executable, program, folder], check=True)
        assert (folder / "accuracy.svg").read_text() != "old"
        assert stat.S_IMODE((folder / "accuracy.svg").stat().st_mode) == 0o640
        assert len(list(folder.iterdir())) == 2 + 2 * 5, list(folder.iterdir())


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    if importlib.util.find_spec("matplotlib") is None:
        sys.exit(77)
    root = Path(sys.argv[1])
    caps, settings = root / "tests/data/validation/resnet_1gbit_2", root / "results/sharded_ranks/validated"
    for stored, check in ((caps, check_marks), (caps, check_names), (caps, check_nothing_to_decide),
                          (caps, check_whole_or_not_at_all), (settings, check_settings)):
        comparison, fit = (json.loads((stored / name).read_text()) for name in ("comparison.json", "fit.json"))
        check(root / "plots" / "plot.py", comparison, fit)
    print("checked the pictures of thirteen validations")


if __name__ == "__main__":
    main()
