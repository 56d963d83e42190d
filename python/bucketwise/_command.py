"""The program, called: what Python holds becomes its arguments and files, what it prints is read."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any, Dict, Mapping, Sequence, Union

from bucketwise._program import program

# A file, or what one holds.
Document = Union[str, "os.PathLike[str]", Mapping[str, Any]]
# What a value of an option may be: a list stands between commas, a mapping is a repeated POINTER=VALUE, True a flag;
# what is None or False is left out.
Option = Union[str, "os.PathLike[str]", float, bool, None, Sequence[Any], Mapping[str, Any]]


class InputError(ValueError):
    """What the program was given is not what it takes; in its own words, which name the place and what was expected."""


def run(command: str, scenario: Document, options: Mapping[str, Option]) -> str:
    """What `bucketwise COMMAND SCENARIO OPTIONS` prints. Raises InputError for what it refuses, RuntimeError where it
    fails, and FileNotFoundError where there is no program."""
    documents: Dict[str, str] = {}  # by the name of the file that the program reads, what messages call it
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
    """Its name; a document that is none yet becomes one in memory, which goes with this process."""
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
    """As it is typed: text as it is, all else as JSON, lists between commas."""
    if isinstance(value, (str, os.PathLike)):
        return os.fspath(value)
    if isinstance(value, Sequence):
        return ",".join(_word(one) for one in value)
    return json.dumps(value)
