"""Describes the training step of any PyTorch model as a scenario, without weights, memory or GPU.

usage: python -m bucketwise.torch.describe CONFIG.json|FOLDER|MODULE:FUNCTION [--batch B] [--sequence S] [--dtype bf16]
       [--checkpointing full|operators|N] [-o workload.json]

CONFIG.json is a configuration of Hugging Face Transformers, FOLDER holds one; nothing is downloaded. MODULE:FUNCTION
names a function, called without arguments. It returns an nn.Module that takes tokens, or the module and its inputs: a
tensor, a tuple or a dictionary. One forward and one backward pass run on tensors that have no memory. The scenario
lists every operation with its work and its module, every parameter in the order of readiness, and what autograd keeps:

    bucketwise predict workload.json --link link.json
"""

import argparse
import importlib
import inspect
import json
import logging
import sys
from pathlib import Path

if not __package__:  # as a script
    sys.path[0] = str(Path(__file__).resolve().parents[2])

try:
    import torch
except ImportError:
    sys.exit("bucketwise.torch.describe: PyTorch is not installed for this Python")
if not hasattr(torch.Tensor, "register_post_accumulate_grad_hook"):
    sys.exit(f"bucketwise.torch.describe: PyTorch {torch.__version__} is too old: 2.1 is needed")

from bucketwise.torch._hugging_face import Refused, build, inputs, loss_of  # noqa: E402
from bucketwise.torch._listed_model import listed_model  # noqa: E402
from bucketwise.torch._operations import Recording, fake_copy  # noqa: E402

DTYPES = {"float32": torch.float32, "fp32": torch.float32, "float": torch.float32, "single": torch.float32,
          "bfloat16": torch.bfloat16, "bf16": torch.bfloat16, "float16": torch.float16, "fp16": torch.float16,
          "half": torch.float16, "float64": torch.float64, "fp64": torch.float64, "double": torch.float64}
# In the file until a link is named: a scenario has one.
PLACEHOLDER = {"name": "a placeholder, not measured: give --link", "algorithm": "ring",
               "segments": [{"latency_us": 50.0, "bandwidth_gb_per_s": 1.0}],
               "caveats": ["the link is a placeholder: give a measured one with --link"]}


def describe(model, batch, sequence=0, arguments=None, dtype=torch.bfloat16, name=None):
    """Returns a scenario's `workload` and caveats of one forward and backward pass of an nn.Module.

    arguments: function that returns the arguments of its forward, a tuple or dictionary; called where tensors have no
    memory. The module's parameters and buffers are replaced by tensors without memory.
    """
    model.train()
    fake = fake_copy(model, dtype)
    with fake:
        given = arguments() if arguments is not None else torch.zeros(batch, sequence, dtype=torch.long)
        given = _without_memory(given, dtype)
    run = (lambda: model(**given)) if isinstance(given, dict) else (lambda: model(*given))
    recording = Recording(model, fake).run(run, loss_of)
    spelled = str(dtype).split(".")[-1]
    listed, caveats = listed_model(recording, batch, sequence, dtype.itemsize)
    return {"model": listed, "batch": batch, "dtype": spelled, "device": "H100"}, caveats


def _without_memory(given, dtype):
    def one(value):
        if not isinstance(value, torch.Tensor):
            return value
        return torch.empty(value.shape, dtype=dtype if value.is_floating_point() else value.dtype)

    if isinstance(given, dict):
        return {name: one(value) for name, value in given.items()}
    return tuple(one(value) for value in (given if isinstance(given, (tuple, list)) else (given,)))


def _of_function(what):
    module, _, function = what.partition(":")
    sys.path.insert(0, ".")
    made = getattr(importlib.import_module(module), function)()
    model, given = made if isinstance(made, tuple) else (made, None)
    if not isinstance(model, torch.nn.Module):
        raise Refused(what, "", "a function that returns an nn.Module, or one and its inputs", type(model).__name__)
    return model, given


def document_of(options):
    """Returns the scenario. Raises Refused."""
    logging.getLogger("torch._subclasses.fake_tensor").setLevel(logging.CRITICAL)  # its errors are reported here
    notes = []
    try:
        return _document_of(options, notes)
    except (Refused, KeyboardInterrupt, MemoryError):
        raise
    except Exception as error:  # of a model's code, which may ask for values that tensors without memory do not have
        why = str(error).strip().split("\n")[0]
        incomplete = "".join(f"; {note}" for note in notes if "does not give" in note)
        raise Refused(options.model, "", "a model that runs without values (bucketwise.torch.capture writes a scenario "
                      "from within a training script)", f"{type(error).__name__}: {why}"[:400] + incomplete) from error


def _document_of(options, notes):
    """Adds what is to be known of the model to `notes`, also where it then fails."""
    dtype = DTYPES[options.dtype]
    if ":" in options.model and not Path(options.model).exists():
        model, given = _of_function(options.model)
        batch = options.batch or (_batch_of(given) if given is not None else 8)
        sequence = 0 if given is not None else options.sequence or 512
        workload, caveats = describe(model, batch, sequence, (lambda: given) if given is not None else None, dtype)
        return _document(type(model).__name__, workload, caveats)
    model, config, of_configuration = build(options.model)
    notes += of_configuration
    longest = getattr(config.get_text_config(), "max_position_embeddings", None) or 1024
    if (options.sequence or 0) > longest:
        raise Refused("--sequence", "", f"at most {longest}, the model's longest", options.sequence)
    sequence = options.sequence or min(longest, 1024)
    batch = options.batch or 8
    reads = []

    def arguments(with_images):
        given, reads_sequences = inputs(model, config, batch, sequence, with_images)
        reads.append(reads_sequences)
        return given

    try:
        workload, more = describe(model, batch, sequence, lambda: arguments(True), dtype)
    except Exception:
        if not reads or not reads[0] or "pixel_values" not in inspect.signature(model.forward).parameters:
            raise
        workload, more = describe(model, batch, sequence, lambda: arguments(False), dtype)
        more.append("its code asks for values of images: it is described on text alone")
    if not reads[0]:
        workload["model"].pop("sequence_length")
    return _document(type(model).__name__, workload, notes + more)


def _batch_of(given):
    values = given.values() if isinstance(given, dict) else given if isinstance(given, (tuple, list)) else [given]
    return next(int(value.shape[0]) for value in values if isinstance(value, torch.Tensor))


def _document(name, workload, caveats):
    if "sequence_length" in workload["model"]:
        workload["sequence_length"] = workload["model"]["sequence_length"]
    document = {"name": name, "workload": workload,
                "cluster": {"ranks": 8, "link": PLACEHOLDER}, "sync": {"strategy": "ddp"},
                "step": {"optimizer": "adam"}}
    if caveats:
        document["caveats"] = [caveat[:500] for caveat in caveats]
    return document


def main():
    parser = argparse.ArgumentParser(prog="python -m bucketwise.torch.describe", description=__doc__.split("\n")[0])
    parser.add_argument("model", metavar="CONFIG.json|FOLDER|MODULE:FUNCTION")
    parser.add_argument("--batch", type=int, help="samples per rank; default: 8")
    parser.add_argument("--sequence", type=int, help="tokens; default: the model's longest, at most 1024")
    parser.add_argument("--dtype", choices=DTYPES, default="bfloat16", metavar="TYPE",
                        help="of parameters and computing: float32, bfloat16 (default), float16 or float64")
    parser.add_argument("--checkpointing", help="what backward computes again: full, operators, or every Nth block")
    parser.add_argument("-o", "--output", default="-", help="file to write; default: standard output")
    parser.add_argument("--for-program", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    try:
        document = document_of(options)
    except Refused as refused:
        if options.for_program:
            print(json.dumps({"refused": refused.parts()}))
            return
        parser.exit(2, f"bucketwise.torch.describe: {refused}\n")
    if options.for_program:
        print(json.dumps(dict(document, architecture=document["name"])))
        return
    if options.checkpointing:
        every = options.checkpointing
        document["workload"]["activation_checkpointing"] = {"every": int(every)} if every.isdigit() else every
    text = json.dumps(document)
    if options.output == "-":
        print(text)
    else:
        Path(options.output).write_text(text + "\n")
        print(_summary(document), file=sys.stderr)


def _summary(document):
    model = document["workload"]["model"]
    count = 0
    for parameter in model["parameters"]:
        numel = 1
        for extent in parameter["shape"]:
            numel *= extent
        count += numel
    return (f"{document['name']}, described: {count} parameters in {len(model['parameters'])} tensors, "
            f"{len(model['operations'])} operations")


if __name__ == "__main__":
    main()
