"""plots/heat_map.py draws what `bucketwise sweep` writes.

usage: check_heat_map.py path/to/bucketwise repo_root

Skipped (exit code 77) where Python has no matplotlib.
"""
import html
import importlib.util
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    if importlib.util.find_spec("matplotlib") is None:
        sys.exit(77)
    root = Path(sys.argv[2])
    program = root / "plots" / "heat_map.py"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)

        def sweep(file, *varied):
            subprocess.run([sys.argv[1], "sweep", root / "scenarios" / "two_buckets.json", *varied, "-o",
                            folder / file], check=True)

        def draw(file, *options):
            return subprocess.run([sys.executable, program, folder / file, folder / "map", *options],
                                  capture_output=True, text=True)

        def texts():
            assert (folder / "map.png").stat().st_size > 5_000
            return [html.unescape(text) for text in
                    re.findall(r"<text[^>]*>([^<]*)</text>", (folder / "map.svg").read_text())]

        # Few cells say their value: 4 ms of computing without communication, or, with the naive strategy, also
        # all-reduces of 2.197152 and 1.148576 ms.
        sweep("few.jsonl", "--vary", "/sync/strategy=none,naive", "--vary", "/cluster/ranks=2..8:x2")
        done = draw("few.jsonl")
        assert done.returncode == 0, done.stderr
        shown = texts()
        for expected in ("none", "naive", "4", "7.35", "step, ms", "strategy  (sync)",
                         "ranks  (cluster)", "2", "8", "simulated: 6 points of few.jsonl"):
            assert expected in shown, f"expected the picture to say {expected!r}, got {shown}"
        assert draw("few.jsonl", "--colour", "buckets", "--x", "/cluster/ranks").returncode == 0
        assert "buckets" in texts()
        # The title names the model, or here the scenario, and the link; a varied one is an axis.
        scenario = json.loads((root / "scenarios" / "two_buckets.json").read_text())
        scenario["name"] = "<b>a & b</b> for $2^3$"
        (folder / "named.json").write_text(json.dumps(scenario))
        assert draw("few.jsonl", "--scenario", folder / "named.json").returncode == 0
        assert "<b>a & b</b> for $2^3$ on slow" in texts(), texts()
        sweep("links.jsonl", "--vary", "/cluster/link=nvlink-h100-8,pcie-gen3", "--vary", "/cluster/ranks=2,4,8")
        assert draw("links.jsonl", "--scenario", root / "scenarios" / "two_buckets.json").returncode == 0
        assert "two buckets" in texts() and "pcie-gen3" in texts(), texts()
        # Many get contours.
        sweep("many.csv", "--vary", "/cluster/link/segments/1/bandwidth_gb_per_s=1..1000:x1.5", "--vary",
              "/workload/forward_ms=1..20:+1", "--vary", "/sync/views=true,false", "--format", "csv")
        refused = [draw("many.csv"), draw("many.csv", "--at", "/sync/views=3"), draw("many.csv", "--x", "/none"),
                   draw("many.csv", "--at", "/sync/views=true", "--colour", "none"), draw("no_such_file.csv"),
                   draw("few.jsonl", "--scenario", folder / "few.jsonl")]
        for attempt in refused:
            assert attempt.returncode == 1 and attempt.stderr.count("\n") == 1, attempt.stderr
        done = draw("many.csv", "--at", "/sync/views=true")
        assert done.returncode == 0, done.stderr
        shown = texts()
        assert "bandwidth, GB/s  (cluster / link / segments / 1)" in shown, shown
        assert "forward, ms  (workload)" in shown, shown
        (folder / "empty.jsonl").write_text("")
        (folder / "damaged.jsonl").write_text("{\n")
        steering = json.dumps({"/a": 1, "b\x1b[31m\n\u202e" + "x" * 10000: 2}, ensure_ascii=False)
        (folder / "steering.jsonl").write_text("\ufeff" + steering + "\n" + steering.replace("1,", "3,", 1) + "\n",
                                               encoding="utf-8")
        for file, options in (("empty.jsonl", ()), ("damaged.jsonl", ()), ("steering.jsonl", ()),
                              ("steering.jsonl", ("--at", "/a\x1b=1"))):
            attempt = draw(file, *options)
            assert attempt.returncode == 1 and attempt.stderr.count("\n") == 1, attempt.stderr
            assert "\x1b" not in attempt.stderr and len(attempt.stderr) < 1100, attempt.stderr
    print("checked five heat maps")


if __name__ == "__main__":
    main()
