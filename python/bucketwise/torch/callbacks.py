"""advise() for training loops of Lightning and Transformers, and advice from a profiler's trace."""

import importlib
import importlib.util
import os
import sys

from bucketwise._program import program
from bucketwise.torch.advice import advise, link_options, run_program, warn
from bucketwise.torch.watch import is_first, say


def LightningCallback(folder="bucketwise_advice", **options):  # noqa: N802  named like the class it makes
    """For Lightning's Trainer(callbacks=[...]). Options are those of advise(). Raises ImportError without Lightning."""
    base = _loaded("lightning.pytorch", "pytorch_lightning").Callback

    class Advising(base):
        def on_train_start(self, trainer, pl_module):
            self.advice = advise(getattr(trainer.strategy, "model", None) or pl_module, folder, **options)

        def on_train_end(self, trainer, pl_module):
            self.advice.__exit__()

    return Advising()


def TrainerCallback(folder="bucketwise_advice", **options):  # noqa: N802  as above
    """For Transformers' Trainer(callbacks=[...]). Options are those of advise(). Raises ImportError without it."""
    base = _loaded("transformers").TrainerCallback

    class Advising(base):
        def on_train_begin(self, args, state, control, model=None, **_):
            self.advice = advise(model, folder, **options)

        def on_train_end(self, args, state, control, **_):
            self.advice.__exit__()

    return Advising()


def trace_handler(path="advice.json", link=None, options=()):
    """For torch.profiler.profile(on_trace_ready=...): writes the trace beside `path`, and has rank 0 import it, predict
    and write the prediction to `path`. Several steps have to be traced, schedule(wait=..., warmup=..., active=5), with
    record_shapes=True.

    link: a link file or a preset's name; by default fitted to the all-reduces of the trace.
    options: more options of `bucketwise predict`.
    """

    def handle(profiler):
        if not is_first():
            return
        try:
            stem = os.path.splitext(os.fspath(path))[0]
            trace, scenario = f"{stem}.trace.json", f"{stem}.scenario.json"
            profiler.export_chrome_trace(trace)
            found = program()
            run_program(found, "import", "kineto", trace, "-o", scenario)
            text = run_program(found, "predict", scenario, *link_options(link), "--json", path, *options)
            print(text, end="", file=sys.stderr, flush=True)
            say(f"the trace, its scenario and the prediction are in {trace}, {scenario} and {path}")
        except Exception as error:  # never the training's problem
            warn(error)

    return handle


def _loaded(*names):
    """Imports the one of several installed packages that the script uses."""
    for name in names:
        if name in sys.modules:
            return sys.modules[name]
    for name in names[:-1]:
        if importlib.util.find_spec(name.split(".")[0]) is not None:
            return importlib.import_module(name)
    return importlib.import_module(names[-1])
