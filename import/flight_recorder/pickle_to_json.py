"""Prints a dump of PyTorch's flight recorder, which is a pickle, as JSON.

usage: pickle_to_json.py DUMP > DUMP.json

A pickle is a program that may call any function. This one gets none: every function and class that it names is
refused, so only dictionaries, lists, tuples, texts and numbers are left. Memory and time are bounded, as a few bytes
can unfold to any number of values.
"""

import json
import pickle
import resource
import sys

MOST_BYTES = 4 << 30
MOST_SECONDS = 300


class DataAlone(pickle.Unpickler):
    def find_class(self, module, name):
        raise pickle.UnpicklingError(f"it names the function or class {module}.{name}")

    def persistent_load(self, pid):
        raise pickle.UnpicklingError("it names an object outside of it")


def main():
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (MOST_SECONDS, MOST_SECONDS))
    try:
        with open(sys.argv[1], "rb") as file:
            dump = DataAlone(file).load()
        for entry in dump.get("entries", []) if isinstance(dump, dict) else dump:
            entry.pop("frames", None)  # Stacks of calls: most of the text, and not looked at.
        print(json.dumps(dump))
    except MemoryError:
        sys.exit("a pickle that unfolds to more than 4 GiB")
    except Exception as error:  # A damaged pickle raises many kinds.
        sys.exit(f"no pickle of data alone: {error or type(error).__name__}")


if __name__ == "__main__":
    main()
