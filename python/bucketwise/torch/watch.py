"""Watches the passes of a training: times forward, backward and optimizer, changes no value, and leaves no trace.

Hooks take the time. On a GPU they record events on the compute stream, which are read once, at the end. A Watch has two
kinds: capture_pytorch.py for a module or a DistributedDataParallel, capture_sharded.py for one under fully_shard.
"""

import atexit
import importlib
import json
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist

DTYPES = {torch.float32: "float32", torch.float16: "float16", torch.bfloat16: "bfloat16", torch.float64: "float64"}
# In the file until a measured link replaces it: a scenario has to name one.
PLACEHOLDER = {"name": "a placeholder, not measured: give --link", "algorithm": "ring",
               "segments": [{"latency_us": 50.0, "bandwidth_gb_per_s": 1.0}],
               "caveats": [{"text": "a placeholder that nobody measured: give --link", "withholds_advice": True}]}

# Above the first limit a caveat in the file names the weakness; above the second it withholds advice.
FEW_PASSES = 5
WIDE_SPREAD, HOPELESS_SPREAD = 0.2, 0.5  # interquartile range by median, of forward and backward together
UNSEEN, MOSTLY_UNSEEN = 0.1, 0.5  # share of a step outside forward, backward and optimizer


class HostClock:
    """Moments in seconds; correct where the thread that calls operations also runs them."""

    on_device = False
    now = staticmethod(time.perf_counter)
    finish = staticmethod(lambda: None)
    ms_between = staticmethod(lambda a, b: 1e3 * (b - a))


class CudaClock:
    """Moments are events on the current stream, the compute stream."""

    on_device = True
    finish = staticmethod(lambda: torch.cuda.synchronize())
    ms_between = staticmethod(lambda a, b: a.elapsed_time(b))

    @staticmethod
    def now():
        if torch.cuda.is_current_stream_capturing():
            return None  # such an event cannot be read, and would break the CUDA graph
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event


class Pass:
    """Moments of one forward and backward pass."""

    def __init__(self, number, entered, begin, synchronises):
        self.number = number  # among all passes, counted or not
        self.entered = entered  # begin of the wrapper's forward, which works before the module's
        self.begin, self.synchronises = begin, synchronises
        self.backward_begin = self.backward_end = None
        self.finished = {}  # gradients that came in this pass
        self.optimizer = []  # begin, end, begin, ...
        self.interrupted = False  # another backward ran between this one and the optimizer
        self.pieces = []  # under torch.compile: the gradients of each piece of backward, as they run
        self.taken = False  # used by `meanwhile`, so not counted
        self.trains = True  # in training mode
        self.again = []  # begin, end, begin, ... of modules whose forward runs in backward (activation checkpointing)


class Watch:
    """The hooks of one capture(). A kind of it has _refuse_sharded(), _learn() and _watch() for its own hooks,
    _begin_forward(), and _write()."""

    def __init__(self, module, ignored, path, steps, warmup, meanwhile=None, finished=None):
        self.module, self.path, self.steps, self.warmup = module, path, steps, warmup
        self.meanwhile, self.finished = meanwhile, finished
        self.parameters = [(name, p) for name, p in module.named_parameters() if p.requires_grad and name not in ignored]
        self._refuse_sharded()
        for name, parameter in self.parameters:
            if parameter.dtype not in DTYPES or parameter.numel() == 0 or parameter.device.type not in ("cpu", "cuda"):
                what = f"{parameter.dtype} of {tuple(parameter.shape)} on {parameter.device}"
                raise ValueError(f"bucketwise: {name}: cannot describe {what}")
        if not self.parameters or steps < 1 or warmup < 0:
            raise ValueError("bucketwise: expected a model with parameters that are trained, steps >= 1, warmup >= 0")
        self.clock = CudaClock if self.parameters[0][1].is_cuda else HostClock
        self.passes, self.current, self.depth, self.hooks = [], None, 0, []
        self.number, self.entered = 0, None
        self.synchronised = []  # numbers of synchronising passes, counted or not
        self.original = self.replacement = None  # of torch.autograd.backward
        self.sees_optimizer = self.has_optimizer = False
        self.is_compiled = None  # known after the first pass
        self.again = 0  # modules, one within the other, whose forward runs again
        self.rerun, self.rerun_hooks = set(), {}  # those that did, the outermost; hooks by module
        self.hooks.append(module.register_forward_pre_hook(self._begin_forward))
        atexit.register(self._ended_early)

    # -- watching --

    def _is_ready(self):
        """Called at the begin of a forward: false in evaluation and in recomputation. The first sets all hooks; only now,
        as those of a wrapper made after capture() come before them."""
        if not torch.is_grad_enabled() or self.depth:
            return False
        if len(self.hooks) == 1:
            try:
                self._learn()
                self._watch()
                self._watch_step()
            except Exception as error:  # never the training's problem
                say(f"nothing is captured: {type(error).__name__}: {error}")
                self._leave()
                return False
        return True

    def _is_new(self):
        """Whether a forward begins a pass; of two forwards the second trains."""
        is_first = self.current is None or self.current.backward_end is not None
        return is_first or (self.module.training and not self.current.trains)

    def _enter(self, *_):
        if torch.is_grad_enabled() and not self.depth:
            self.entered = self.clock.now()

    def _begin_pass(self, one):
        one.trains = self.module.training
        self.current = one
        self.number += 1

    def _watch_recomputing(self, modules):
        """From the second pass on only those whose forward runs again, and no module within them."""
        for module in modules:
            self.rerun_hooks[module] = [module.register_forward_pre_hook(self._begin_again)]
            try:  # recomputing ends early, by an exception
                end = module.register_forward_hook(self._end_again, always_call=True)
            except TypeError:  # before PyTorch 2.1, where it does not
                end = module.register_forward_hook(self._end_again)
            self.rerun_hooks[module].append(end)

    def _again_moments(self):
        """Returns where they are kept, or None."""
        return self.current.again if self.current is not None else None

    def _begin_again(self, module, *_):
        moments = self._again_moments()
        if self.depth and moments is not None and torch.is_grad_enabled():
            self.again += 1
            if self.again == 1:
                self.rerun.add(module)
                moments.append(self.clock.now())

    def _end_again(self, *_):
        if self.again:
            self.again -= 1
            moments = self._again_moments()
            if not self.again and moments is not None:
                moments.append(self.clock.now())

    def _forget_hooks(self, modules):
        for module in modules:
            for hook in self.rerun_hooks.pop(module):
                hook.remove()

    def _watch_step(self):
        optimizers = importlib.import_module("torch.optim.optimizer")
        names = ("register_optimizer_step_pre_hook", "register_optimizer_step_post_hook")
        self.sees_optimizer = all(hasattr(optimizers, name) for name in names)  # since 2.0
        if self.sees_optimizer:
            self.hooks += [getattr(optimizers, name)(self._stamp_optimizer) for name in names]
        # Tensor.backward() calls this too.
        self.original = torch.autograd.backward
        self.replacement = lambda *args, **kwargs: self._backward(*args, **kwargs)
        torch.autograd.backward = self.replacement

    def _stamp_optimizer(self, optimizer, *_):
        """Counts the optimizers that hold this model's parameters; all of them while none does, as one may hold copies."""
        if self.current is None or self.current.backward_end is None:
            return
        own = {id(parameter) for _, parameter in self.parameters}
        is_own = any(id(p) in own for group in optimizer.param_groups for p in group["params"])
        if is_own and not self.has_optimizer:
            self.has_optimizer = True
            for one in [*self.passes, self.current]:
                one.optimizer = []
        if is_own or not self.has_optimizer:
            self.current.optimizer.append(self.clock.now())

    def _backward(self, *args, **kwargs):
        if self.depth or self.current is None or self.current.backward_end is not None:
            if self.current is not None and not self.depth:
                self.current.interrupted |= not self.current.optimizer
            return self.original(*args, **kwargs)
        self.depth = 1
        if self.is_compiled is not False and "torch._dynamo" in sys.modules:
            # A compiled graph has few nodes; any other is walked only in the first pass.
            self.current.pieces = self._pieces(*args, **kwargs)
            self.is_compiled = bool(self.current.pieces)
        self._begin_backward()
        try:
            result = self.original(*args, **kwargs)
        except BaseException:
            self.current = None
            raise
        finally:
            self.depth = 0
        if self.current.finished:  # otherwise the pass was another model's
            self._end_pass()
        return result

    def _pieces(self, *_, **__):
        """Returns the gradients at the end of each compiled piece of the graph."""
        return []

    def _begin_backward(self):
        self.again = 0
        self.current.backward_begin = self.clock.now()
        if self.current.taken:
            self.meanwhile.end_forward(self.current)

    def _end_pass(self):
        self.current.backward_end = self.clock.now()
        if self.current.synchronises:
            self.synchronised.append(self.current.number)
        self._forget_hooks(set(self.rerun_hooks) - self.rerun)
        if not self.current.taken:
            self.passes.append(self.current)
        if len(self.passes) >= self.warmup + self.steps and (self.meanwhile is None or self.meanwhile.is_done):
            self._finish()

    # -- leaving --

    def _finish(self):
        self._leave()
        try:
            if is_first():
                self.clock.finish()
                self._write(self.passes[self.warmup:])
            if self.finished is not None:
                self.finished(self)
        except Exception as error:  # never the training's problem
            say(f"nothing was captured: {type(error).__name__}: {error}")

    def stop(self):
        """Removes all hooks from the process. Returns whether capturing had ended before."""
        ended = not self.hooks
        if self.meanwhile is not None:
            self.meanwhile.withdraw("training ended")
        self._leave()
        return ended

    def _leave(self):
        for hook in self.hooks:
            hook.remove()
        self.hooks = []
        self._forget_hooks(list(self.rerun_hooks))
        atexit.unregister(self._ended_early)
        if self.replacement is not None and torch.autograd.backward is self.replacement:
            torch.autograd.backward = self.original
        self.current = None

    def _ended_early(self):
        if is_first():
            say(f"nothing was written: training ended after {len(self.passes)} of {self.warmup + self.steps} backward "
                "passes; capture(..., steps=, warmup=) sets how many")

    # -- times --

    def forward_ms(self, one):
        """Returns ms from the begin of forward to backward, loss included."""
        return self.clock.ms_between(one.begin, one.backward_begin)

    def _optimizer_ms(self, one):
        """Returns ms of the optimizer and of what comes between backward and it: clipping of gradients, unscaling."""
        before = [one.backward_end, one.optimizer[0]] if one.optimizer and not one.interrupted else []
        return ms_within(self.clock, before + one.optimizer)

    def _whole_and_seen(self):
        """Returns, for steps followed by another, ms from one to the next, and the part in forward, backward and optimizer."""
        found, whole, seen = [], 0.0, 0.0
        passes = self.passes[self.warmup:]
        for one, following in zip(passes, passes[1:]):
            if following.number != one.number + 1:
                whole = seen = 0.0  # other work came between
                continue
            whole += self.clock.ms_between(one.entered, following.entered)
            seen += self.clock.ms_between(one.entered, one.backward_end) + self._optimizer_ms(one)
            # Accumulating micro-steps have no optimizer. Before PyTorch 2.0 there is no hook on it.
            is_last = len(one.optimizer) >= 2 or (one.synchronises and not self.sees_optimizer)
            if is_last and whole > 0:
                found.append((whole, min(seen, whole)))
            if is_last or one.synchronises:
                whole = seen = 0.0
        return found

    def measured_step_ms(self):
        """Returns medians of a step's forward, backward and optimizer, and of the time between steps, which includes an
        optimizer without hooks. Returns nothing if no steps followed one another."""
        steps = self._whole_and_seen()
        if not steps:
            return None
        return statistics.median(s for _, s in steps), statistics.median(w - s for w, s in steps)

    # -- the document --

    def _step(self, passes, counts):
        """`counts`: micro-steps of each step."""
        step = {"accumulation": int(statistics.median_low(counts))} if counts else {}
        optimizer = [self._optimizer_ms(p) for p in passes if len(p.optimizer) >= 2]
        if optimizer:
            step["optimizer_ms"] = rounded(statistics.median(optimizer))
        return step

    def _caveats_of_times(self, passes_ms):
        """Returns the known weaknesses of times: texts, or objects that withhold advice."""
        caveats = []
        if len(passes_ms) < FEW_PASSES:
            caveats.append(f"times are medians of only {len(passes_ms)} pass{'es' if len(passes_ms) > 1 else ''}")
        spread = _spread(passes_ms)
        if spread > WIDE_SPREAD:
            text = f"passes differ: half of them lie {100 * spread:.0f} % of their median apart"
            caveats.append(_caveat(text, spread > HOPELESS_SPREAD))
        shares = [(whole - seen) / whole for whole, seen in self._whole_and_seen()] if self.sees_optimizer else []
        unseen = statistics.median(shares) if shares else 0.0
        if unseen > UNSEEN:
            text = (f"{100 * unseen:.0f} % of the time from one step to the next is neither forward nor backward nor "
                    "optimizer (loading data, logging, a synchronisation): steps are that much longer than predicted")
            caveats.append(_caveat(text, unseen > MOSTLY_UNSEEN))
        return caveats

    def _write_document(self, workload, ranks, sync, step, copied, caveats):
        """Writes the scenario. `copied`: GB/s, or None. Returns it."""
        name = type(self.module).__name__
        name = name[len("FSDP"):] if sync["strategy"] != "ddp" and name.startswith("FSDP") else name
        document = {"name": f"{name}, captured in PyTorch {torch.__version__}"[:200], "workload": workload,
                    "cluster": _cluster(ranks), "sync": sync, "step": step}
        if not self.clock.on_device:
            workload["host_is_device"] = True
        if copied is not None:
            document["cluster"]["link"]["copy_gb_per_s"] = copied
        if caveats:
            document["caveats"] = caveats
        write_json(self.path, document)
        return document


def _cluster(ranks):
    cluster = {"ranks": ranks, "link": dict(PLACEHOLDER)}
    local = int(os.environ.get("LOCAL_WORLD_SIZE", ranks))
    if 0 < local < ranks and ranks % local == 0:
        cluster["ranks_per_node"] = local
    return cluster


def _caveat(text, withholds):
    return {"text": text, "withholds_advice": True} if withholds else text


def _spread(times):
    """Returns the interquartile range relative to the median, 0 for fewer than four times."""
    if len(times) < 4 or statistics.median(times) <= 0:
        return 0.0
    low, _, high = statistics.quantiles(times, n=4)
    return (high - low) / statistics.median(times)


def ms_within(clock, moments):
    """Returns ms from begins to ends, of moments begin, end, begin, ..."""
    return sum(clock.ms_between(a, b) for a, b in zip(moments[::2], moments[1::2]))


def rate_of(size, ms):
    """Returns GB/s with four digits, or None without a time."""
    return float(f"{size / ms / 1e6:.4g}") if ms > 0 else None


def rounded(ms):
    return round(ms, 4)


def ranks():
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def is_first():
    return ranks() == 1 or dist.get_rank() == 0


def say(text):
    print(f"bucketwise: {text}", file=sys.stderr, flush=True)


def replace_file(path, text):
    """Writes all or nothing."""
    unfinished = f"{path}.{os.getpid()}.part"
    with open(unfinished, "w") as file:
        file.write(text)
    os.replace(unfinished, path)


def write_json(path, document):
    replace_file(path, json.dumps(document, indent=1) + "\n")
