"""plots/all_reduce.py draws what `bucketwise bench allreduce --format json` prints.

usage: check_all_reduce.py path/to/bucketwise repo_root

Skipped (exit code 77) where Python has no matplotlib.
"""
import importlib.util
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

LINK = {"name": "made up", "algorithm": "ring", "message_us": 2,
        "segments": [{"latency_us": 10, "bandwidth_gb_per_s": 1}]}


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    if importlib.util.find_spec("matplotlib") is None:
        sys.exit(77)
    program = Path(sys.argv[2]) / "plots" / "all_reduce.py"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "link.json").write_text(json.dumps(LINK))
        printed = subprocess.run([sys.argv[1], "bench", "allreduce", "--backend", "gloo", "--simulate", "--link",
                                  folder / "link.json", "--ranks", "1,2", "--simulated-ranks", "4096", "--bytes",
                                  "1KiB,1MiB", "--rounds", "1", "--iterations", "2", "--format", "json"],
                                 capture_output=True, text=True, check=True).stdout
        (folder / "result.json").write_text(printed)
        subprocess.run([sys.executable, program, folder / "result.json", folder / "times"], check=True)
        assert (folder / "times.png").stat().st_size > 10_000
        texts = re.findall(r"<text[^>]*>([^<]*)</text>", (folder / "times.svg").read_text())
        for expected in ("1 KiB", "1 MiB", "ranks", "library", "ring", "direct", "simulated",
                         "measured, median and range", "4096"):
            assert expected in texts, f"expected the picture to say {expected!r}, got {texts}"
        assert "published" not in texts  # there was none
        empty = {**json.loads(printed), "rows": []}
        (folder / "empty.json").write_text(json.dumps(empty))
        refused = subprocess.run([sys.executable, program, folder / "empty.json", folder / "none"],
                                 capture_output=True, text=True)
        assert refused.returncode == 1 and refused.stderr.count("\n") == 1, refused.stderr
    print("checked a picture of 2 messages")


if __name__ == "__main__":
    main()
