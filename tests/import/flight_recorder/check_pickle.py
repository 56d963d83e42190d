"""Checks that pickle_to_json.py turns data into JSON, and that no pickle gets it to call anything.

usage: check_pickle.py REPOSITORY
"""

import collections
import datetime
import json
import pathlib
import pickle
import subprocess
import sys
import tempfile

MARK = pathlib.Path(tempfile.mkdtemp()) / "called"


class Calls:
    def __reduce__(self):
        return (exec, (f"open({str(MARK)!r}, 'w')",))


def converted(script, dump):
    file = MARK.parent / "dump"
    file.write_bytes(dump)
    run = subprocess.run([sys.executable, script, file], capture_output=True, text=True, timeout=100)
    assert not MARK.exists(), "a pickle called something"
    return run


def main():
    script = pathlib.Path(sys.argv[1]) / "import/flight_recorder/pickle_to_json.py"

    dump = {"version": "2.10", "entries": [{"sizes": (1, 2), "time": 1.5, "none": None, "long": 2**62, "frames": [1]}]}
    for protocol in range(2, 6):
        run = converted(script, pickle.dumps(dump, protocol))
        assert json.loads(run.stdout) == {"version": "2.10", "entries": [
            {"sizes": [1, 2], "time": 1.5, "none": None, "long": 2**62}]}, run.stderr

    path = str(MARK).encode()
    circle = []
    circle.append(circle)
    laughs = b"]q\x01" + b"h\x01\x86q\x01" * 60  # each refers twice to the one before: 2^60 values
    refused = [
        *(pickle.dumps(value, protocol) for protocol in range(6) for value in
          [Calls(), [Calls()], {Calls: 1}, print, collections.OrderedDict(), datetime.datetime(2026, 1, 1), {1j}]),
        b"cposix\nsystem\n(S'touch " + path + b"'\ntR.",  # GLOBAL, REDUCE
        b"(S'touch " + path + b"'\niposix\nsystem\n.",  # INST
        b"(cposix\nsystem\nS'touch " + path + b"'\no.",  # OBJ
        b"\x80\x04\x8c\x05posix\x8c\x06system\x93.",  # STACK_GLOBAL
        b"ctorch.jit._pickle\nrestore_type_tag\n(]S'x'\ntR.",
        b"\x80\x02\x82\x01.",  # EXT1
        b"\x80\x02K\x01Q.",  # BINPERSID
        b"\x80\x02" + laughs + b".",
        b"\x80\x02}(X\x07\x00\x00\x00entries]}(X\x01\x00\x00\x00a" + laughs + b"uaus.",
        pickle.dumps(circle), b"", b"\x80", b"{}", b"\x80\x09N.", pickle.dumps(1), pickle.dumps([1]),
        b"\x80\x02X\xff\xff\xff\x7fabc.",  # a length of what is not there
    ]
    whole = pickle.dumps(dump)
    refused += [whole[:length] for length in range(0, len(whole), 5)]
    for bad in refused:
        run = converted(script, bad)
        assert run.returncode == 1 and not run.stdout, bad
        assert len(run.stderr.splitlines()) == 1 and "Traceback" not in run.stderr, run.stderr


if __name__ == "__main__":
    main()
