"""Finds the program. Imports little, as the command `bucketwise` of a wheel starts here."""

import os
import sys


def program() -> str:
    """Returns the program's file: $BUCKETWISE, or the one in this package, or one beside this Python or in PATH. Raises
    FileNotFoundError."""
    named = os.environ.get("BUCKETWISE")
    if named:
        if not _may_run(named):
            raise FileNotFoundError(f"BUCKETWISE: expected a program that may be run, got {named}")
        return os.path.abspath(named)
    own = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "bucketwise")
    for place in [own, *(os.path.join(folder, "bucketwise") for folder in _folders())]:
        if _may_run(place) and not _starts_python(place):
            return place
    raise FileNotFoundError(f"the program bucketwise is neither at {own} nor in PATH; install the wheel, "
                            "or let the variable BUCKETWISE name it")


def main() -> None:
    """Becomes the program."""
    try:
        file = program()
    except FileNotFoundError as error:
        sys.exit(f"bucketwise: {error}")
    os.environ.setdefault("BUCKETWISE_PYTHON", sys.executable)  # which draws what `validate` has found
    os.execv(file, ["bucketwise", *sys.argv[1:]])


def _may_run(file: str) -> bool:
    return os.path.isfile(file) and os.access(file, os.X_OK)


def _folders() -> "list[str]":
    return [os.path.dirname(sys.executable), *os.environ.get("PATH", "").split(os.pathsep)]


def _starts_python(file: str) -> bool:
    """Whether it is a script such as the one that calls main(), which would start itself for ever."""
    with open(file, "rb") as opened:
        return opened.read(2) == b"#!"
