"""Calls the program: turns Python values into its arguments and files, and returns its output."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any, Dict, Mapping, Sequence, Union

from bucketwise._program import program

# A file, or its content.
Document = Union[str, "os.PathLike[str]", Mapping[str, Any]]
# The value of an option: a list is joined by commas, a mapping repeats POINTER=VALUE, True is a flag, and None or False
# leaves the option out.
Option = Union[str, "os.PathLike[str]", float, bool, None, Sequence[Any], Mapping[str, Any]]


class InputError(ValueError):
    """The program refused its input. Its text names the place, what it expected and what it got."""


def run(command: str, scenario: Document, options: Mapping[str, Option]) -> str:
    """Returns the output of `bucketwise COMMAND SCENARIO OPTIONS`. Raises InputError for refused input, RuntimeError for
    a failed run, and FileNotFoundError without a program."""
    documents: Dict[str, str] = {}  # file that the program reads -> its name in messages
    try:
        arguments = [program(), command, _file(scenario, "scenario", documents)]
        for name, value in options.items():
            option = "--" + name.rstrip("_").replace("_", "-")
            if isinstance(value, Mapping) and name == "link":
                value = _file(value, name, documents)
            arguments += _words(option, value)
        done = subprocess.run(arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              encoding="utf-8", errors="replace", pass_fds=[_descriptor(file) for file in documents],
                              check=False)
    finally:
        for file in documents:
            os.close(_descriptor(file))
    if done.returncode == 0:
        return done.stdout
    message = done.stderr.strip()
    if message.startswith("bucketwise: "):
        message = message[len("bucketwise: "):]
    for file, called in documents.items():
        message = message.replace(file, called)
    if done.returncode == 2:
        raise InputError(message)
    raise RuntimeError(message or f"bucketwise {command} ended with {done.returncode}")


def _file(document: Document, called: str, documents: Dict[str, str]) -> str:
    """Returns the name of a file with the document; a mapping becomes a file in memory."""
    if not isinstance(document, Mapping):
        return os.fspath(document)
    descriptor = os.memfd_create(called)
    file = f"/dev/fd/{descriptor}"
    documents[file] = called
    with open(descriptor, "w", encoding="utf-8", closefd=False) as opened:
        json.dump(document, opened)
    return file


def _descriptor(file: str) -> int:
    return int(file.rpartition("/")[2])


def _words(option: str, value: Option) -> Sequence[str]:
    if value is None or value is False:
        return []
    if value is True:
        return [option]
    if isinstance(value, Mapping):
        return [word for key, one in value.items() for word in (option, f"{key}={_word(one)}")]
    return [option, _word(value)]


def _word(value: Any) -> str:
    """Formats a value for the command line: text unchanged, lists joined by commas, everything else as JSON."""
    if isinstance(value, (str, os.PathLike)):
        return os.fspath(value)
    if isinstance(value, Sequence):
        return ",".join(_word(one) for one in value)
    return json.dumps(value)
