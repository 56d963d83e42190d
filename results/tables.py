"""Parts of the scripts that print tables: the program asked, and predictions that are stored or compared with stored ones."""

import argparse
import csv
import json
import math
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


class Program:
    def __init__(self, path):
        self.path = path
        self.folder = tempfile.TemporaryDirectory()

    def run(self, what, *arguments):
        """Returns its output. `what`: named where it refuses or fails, which ends the script."""
        said = subprocess.run([str(self.path), *map(str, arguments)], capture_output=True, text=True)
        if said.returncode != 0:
            sys.exit(f"{what}: {said.stderr.strip()}")
        return said.stdout

    def predict(self, scenario, *options):
        file = Path(self.folder.name) / f"scenario_{threading.get_ident()}.json"
        file.write_text(json.dumps(scenario))
        return json.loads(self.run(scenario["name"], "predict", file, "--json", "-", *options))


def parser_of(usage, stores=False):
    """`stores`: with --write and --expect, for stored()."""
    parser = argparse.ArgumentParser(usage=usage.split("usage: ", 1)[1].replace("%", "%%"))
    parser.add_argument("--program", type=existing_program, default=ROOT / "build/release/cli/bucketwise")
    if stores:
        parser.add_argument("--expect", type=Path)
        parser.add_argument("--write", type=Path)
    return parser


def existing_program(text):
    if not Path(text).is_file():
        raise argparse.ArgumentTypeError(f"expected a built bucketwise, got {text}, which is no file")
    return Path(text)


def rows_of(file):
    with open(file, encoding="utf-8", newline="") as opened:
        return list(csv.DictReader(opened))


def percent(share, digits=1):
    return f"{100 * share:6.{digits}f} %"


def store(rows, options):
    """Writes predicted rows, or ends where one differs from that which is stored."""
    if options.write:
        options.write.write_text(json.dumps(rows, indent=1) + "\n")
    if options.expect:
        expected = json.loads(options.expect.read_text())
        if len(rows) != len(expected):
            sys.exit(f"expected {len(expected)} rows, got {len(rows)}")
        for got, wanted in zip(rows, expected):
            if not all(is_same(got[key], value) for key, value in wanted.items()):
                sys.exit(f"expected {wanted}, got {got}: if the model was meant to change, write the file anew")


def is_same(got, wanted):
    return math.isclose(got, wanted, rel_tol=1e-6, abs_tol=1e-9) if isinstance(wanted, float) else got == wanted


def run(main):
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
