"""Writes a bucketwise scenario of a PyTorch training step, from within the training script.

    from bucketwise.torch import capture
    capture(model, "workload.json")     # before the training loop

`model` is a DistributedDataParallel or any module; the script runs as it always does, on as many ranks as it likes.
After a few steps rank 0 writes workload.json, the input of `bucketwise predict workload.json --link link.json`, and the
log of a DistributedDataParallel as workload.ddp.json. Then it removes itself from the process. PyTorch 1.13 or newer,
CPU or CUDA. Needs nothing else of bucketwise, so this one file can be copied beside the script: from capture_pytorch
import capture.

Training is only watched: hooks take the time and change no value, so parameters are bit for bit the same. On a GPU they
record events on the compute stream, which are read once, at the end.

A gradient is ready when it has been computed and accumulated. Two things disturb the times:

- DDP works between two gradients, above all to copy them into buckets. This work is timed apart, subtracted from
  readiness, and reported as a copy rate. Before PyTorch 2.1 accumulation cannot be separated from it.
- All-reduces slow computing down, by processor time on a CPU, by multiprocessors and memory on a GPU. So passes without
  communication count alone if there are at least two: micro-steps under no_sync(), one process, or a model outside DDP.
  If there are none, the times include the slowdown and the summary says so; a link with `interference` would then
  count it twice, and `bucketwise calibrate --captured` removes it. To have some passes without communication, put this
  before the training loop, with your batch and loss:

      with model.no_sync():
          for _ in range(15):     # five warm up; ten passes of training do the rest
              loss_function(model(batch), target).backward()
      model.zero_grad()           # nothing is learned, but BatchNorm's statistics and the random numbers move on

Times are rank 0's. A model under torch.compile is compiled again when the hooks come and when they go. Its gradients
become ready in pieces of the graph, which the cap cuts: capture it with bucket_cap_mb=1, as all larger pieces follow
from those. CUDA graphs are opaque to the hooks.
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
from torch.nn.parallel import DistributedDataParallel

MIB = 1 << 20
DTYPES = {torch.float32: "float32", torch.float16: "float16", torch.bfloat16: "bfloat16", torch.float64: "float64"}
# In the file until a measured link replaces it: a scenario has to name one.
PLACEHOLDER = {
    "name": "a placeholder, not measured: give --link",
    "algorithm": "ring",
    "segments": [{"latency_us": 50.0, "bandwidth_gb_per_s": 1.0}],
    "caveats": [{"text": "a placeholder that nobody measured: give --link", "withholds_advice": True}],
}

# The wrapper that calls backward, by the module of its code: the bucket size is typed there.
WRAPPERS = {
    "transformers.trainer": "transformers",
    "lightning": "lightning",
    "pytorch_lightning": "lightning",
    "composer": "composer",
    "mmengine": "mmengine",
    "fairseq": "fairseq",
    "detectron2": "detectron2",
    "ray.train": "ray_train",
    "accelerate": "accelerate",
}

# `bucketwise calibrate --captured` removes this slowdown.
DISTURBED = (
    "every pass that was timed communicated, which slowed its computing by an unknown amount: "
    "some under no_sync() before the training loop tell what it takes alone"
)

# Above the first limit a caveat in the file names the weakness; above the second it withholds advice.
FEW_PASSES = 5
WIDE_SPREAD, HOPELESS_SPREAD = 0.2, 0.5  # interquartile range by median, of forward and backward together
UNSEEN, MOSTLY_UNSEEN = 0.1, 0.5  # share of a step outside forward, backward and optimizer


# Attributes of DistributedDataParallel, in versions that have them.
NOT_SIMULATED = (
    ("mixed_precision", "DistributedDataParallel's own mixed_precision, which sends gradients in a narrower type,"),
    ("_delay_all_reduce_params", "what delay_all_reduce_named_params asks for"),
)


def capture(model, path, steps=20, warmup=5, meanwhile=None, finished=None):
    """Writes `path` after `warmup` backward passes of `model`, which do not count, and `steps` more.

    Every micro-step is a pass. Raises ValueError for a model whose gradients a scenario cannot describe. Later errors
    are printed to standard error, and training goes on.

    meanwhile: other work between steps (see bucketwise.torch.all_reduce); passes that it uses do not count, and
    capturing lasts until it is_done. finished: called with the capture, on every rank, at its end.
    """
    if hasattr(model, "_get_fsdp_state"):  # under fully_shard
        if meanwhile is not None or finished is not None:
            raise ValueError("a model under fully_shard is not advised; capture() and time_collectives() are for it")
        return _sharded().capture(model, path, steps, warmup)
    return _Capture(model, path, steps, warmup, meanwhile, finished)


def _sharded():
    """Imports the file beside this one, in the package or copied."""
    try:
        return importlib.import_module(".capture_sharded" if __package__ else "capture_sharded", __package__ or None)
    except ModuleNotFoundError as error:
        raise ValueError("bucketwise: for a model under fully_shard copy capture_sharded.py too") from error


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


class _Pass:
    """Moments of one forward and backward pass; moments of gradients are by index."""

    def __init__(self, number, entered, begin, synchronises, communicates):
        self.number = number  # among all passes, counted or not
        self.entered = entered  # begin of DDP's forward, which broadcasts buffers before the module's forward
        self.begin, self.synchronises, self.communicates = begin, synchronises, communicates
        self.backward_begin = self.backward_end = None
        self.computed, self.accumulated, self.finished = {}, {}, {}  # before, after accumulating, after DDP's hook
        self.optimizer = []  # begin, end, begin, ...
        self.pieces = []  # under torch.compile: the gradients of each piece of backward, as they run
        self.taken = False  # used by `meanwhile`, so not counted
        self.trains = True  # in training mode


class _Capture:
    def __init__(self, model, path, steps, warmup, meanwhile, finished):
        self.path, self.steps, self.warmup = path, steps, warmup
        self.meanwhile, self.finished = meanwhile, finished
        self.ddp = model if isinstance(model, DistributedDataParallel) else None
        self.module = model if self.ddp is None else model.module
        ignored = getattr(self.module, "_ddp_params_and_buffers_to_ignore", ())
        self.parameters = [
            (name, p) for name, p in self.module.named_parameters() if p.requires_grad and name not in ignored
        ]
        self._refuse_sharded()
        for name, parameter in self.parameters:
            if parameter.dtype not in DTYPES or parameter.numel() == 0 or parameter.device.type not in ("cpu", "cuda"):
                what = f"{parameter.dtype} of {tuple(parameter.shape)} on {parameter.device}"
                raise ValueError(f"bucketwise: {name}: cannot describe {what}")
        if not self.parameters or steps < 1 or warmup < 0:
            raise ValueError("bucketwise: expected a model with parameters that are trained, steps >= 1, warmup >= 0")
        self.clock = CudaClock if self.parameters[0][1].is_cuda else HostClock
        self.passes, self.current, self.depth, self.sparse, self.hooks = [], None, 0, set(), []
        self.number, self.entered, self.watches_ddp = 0, None, False
        self.synchronised = []  # numbers of synchronising passes, counted or not
        self.original = self.replacement = None  # of torch.autograd.backward
        self.wrapper = None  # the wrapper that calls backward
        self.sees_optimizer = self.has_optimizer = False
        self.is_compiled = None  # known after the first pass
        self.hooks.append(self.module.register_forward_pre_hook(self._begin_forward))
        atexit.register(self._ended_early)

    def _refuse_sharded(self):
        for name, parameter in self.parameters:
            if hasattr(parameter, "_is_flat_param"):
                raise ValueError(
                    f"bucketwise: {name}: sharded parameters of FullyShardedDataParallel are not simulated; those of "
                    "fully_shard are"
                )
            if type(parameter).__name__ == "DTensor":
                raise ValueError(
                    f"bucketwise: {name}: sharded parameters of tensor parallelism are not simulated; those of fully_shard "
                    "are: give the module for which it was called last"
                )

    # -- watching --

    def _begin_forward(self, *_):
        if not torch.is_grad_enabled() or self.depth:
            return  # evaluation, or recomputation in backward
        if len(self.hooks) == 1:
            # Only now: a DistributedDataParallel made after capture() has its hooks, and these come after them.
            outer = getattr(DistributedDataParallel, "_active_ddp_module", None)
            if self.ddp is None and outer is not None and outer.module is self.module:
                self.ddp = outer
            try:
                self._watch()
            except Exception as error:  # never the training's problem
                say(f"nothing is captured: {type(error).__name__}: {error}")
                self._leave()
                return
        entered, self.entered = self.entered, None
        if self.watches_ddp and entered is None:
            return  # evaluation that bypasses DistributedDataParallel
        is_new = self.current is None or self.current.backward_end is not None
        if is_new or (self.module.training and not self.current.trains):  # of two forwards the second trains
            synchronises = self.ddp is not None and self.ddp.require_backward_grad_sync
            communicates = synchronises and dist.get_world_size(self.ddp.process_group) > 1
            # Skips the forward of an evaluation, which not all ranks need to run.
            is_common = communicates and self.module.training and entered is not None
            taken = is_common and self.meanwhile is not None and self.meanwhile.begin_pass(self)
            begin = self.clock.now()
            self.current = _Pass(self.number, begin if entered is None else entered, begin, synchronises, communicates)
            self.current.taken, self.current.trains = taken, self.module.training
            self.number += 1

    def _enter(self, *_):
        if torch.is_grad_enabled() and not self.depth:
            self.entered = self.clock.now()

    def _watch(self):
        if self.ddp is not None:
            self.hooks.append(self.ddp.register_forward_pre_hook(self._enter))
            self.watches_ddp, self.entered = True, self.clock.now()
        for index, (_, parameter) in enumerate(self.parameters):
            self.hooks.append(parameter.register_hook(self._stamp("computed", index)))
            if hasattr(parameter, "register_post_accumulate_grad_hook"):
                self.hooks.append(parameter.register_post_accumulate_grad_hook(self._stamp("accumulated", index)))
            with torch.enable_grad():
                accumulate = parameter.expand_as(parameter).grad_fn.next_functions[0][0]
            self.hooks.append(accumulate.register_hook(self._stamp("finished", index)))
            self.hooks.append(_KeepAlive(accumulate))
        self._watch_step()

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

    def _stamp(self, moment, index):
        def stamp(*arguments):
            if self.current is not None:
                getattr(self.current, moment)[index] = self.clock.now()
                if moment == "computed" and arguments[0].is_sparse:
                    self.sparse.add(index)

        return stamp

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
        watched = self.depth == 0 and self.current is not None and self.current.backward_end is None
        if not watched:
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
            self.current.backward_end = self.clock.now()
            if self.current.synchronises:
                self.synchronised.append(self.current.number)
            if not self.current.taken:
                self.passes.append(self.current)
            if len(self.passes) >= self.warmup + self.steps and (self.meanwhile is None or self.meanwhile.is_done):
                self.wrapper = _wrapper_around(sys._getframe())
                self._finish()
        return result

    def _begin_backward(self):
        self.current.backward_begin = self.clock.now()
        if self.current.taken:
            self.meanwhile.end_forward(self.current)

    def _pieces(self, tensors=(), *_, **__):
        """Returns the gradients at the end of each compiled piece of the graph; shared ones belong to the last piece."""
        index = {id(parameter): i for i, (_, parameter) in enumerate(self.parameters)}
        roots = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
        nodes = [root.grad_fn for root in roots if root.grad_fn is not None]
        seen, pieces = set(nodes), []
        for node in nodes:  # grows level by level towards the leaves, so pieces come in the order they run
            ends = [function for function, _ in node.next_functions if function is not None]
            if "CompiledFunction" in node.name():
                found = {index.get(id(getattr(function, "variable", None))) for function in ends} - {None}
                pieces = [piece - found for piece in pieces] + [found]
            nodes += [function for function in ends if function not in seen]
            seen.update(ends)
        return [piece for piece in pieces if piece]

    # -- leaving --

    def _finish(self):
        self._leave()
        try:
            if not dist.is_initialized() or dist.get_rank() == 0:
                self.clock.finish()
                self._write()
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

    def forward_ms(self, one):
        """Returns ms from the begin of forward to backward, loss included."""
        return self.clock.ms_between(one.begin, one.backward_begin)

    def _leave(self):
        for hook in self.hooks:
            hook.remove()
        self.hooks = []
        atexit.unregister(self._ended_early)
        if self.replacement is not None and torch.autograd.backward is self.replacement:
            torch.autograd.backward = self.original
        self.current = None

    def _ended_early(self):
        if not dist.is_initialized() or dist.get_rank() == 0:
            say(
                f"nothing was written: training ended after {len(self.passes)} of {self.warmup + self.steps} backward "
                "passes; capture(..., steps=, warmup=) sets how many"
            )

    # -- the document --

    def _times(self, one):
        """Returns ms: readiness of each gradient and backward, both without DDP's own work, and that work by gradient."""
        ready, own, total = {}, {}, 0.0
        before_ddp = one.accumulated or one.computed
        for index in one.finished:  # in the order they finished
            last = one.finished[index]
            if one.synchronises:
                own[index] = self.clock.ms_between(before_ddp[index], last)
                total += own[index]
            ready[index] = self.clock.ms_between(one.backward_begin, last) - total
        for piece in one.pieces:  # its gradients exist at once, but are handed out one by one
            first = min((ready[index] for index in piece if index in ready), default=0.0)
            ready.update({index: first for index in piece if index in ready})
        # DDP ends backward by waiting for its buckets and copying them back.
        backward = (
            max(ready.values()) if one.synchronises else self.clock.ms_between(one.backward_begin, one.backward_end)
        )
        return ready, backward, own

    def _write(self):
        passes = self.passes[self.warmup :]
        undisturbed = [p for p in passes if not p.communicates]
        used = undisturbed if len(undisturbed) >= 2 else passes
        times = [self._times(p) for p in used]
        backward_ms = statistics.median(backward for _, backward, _ in times)
        document = {
            "name": f"{type(self.module).__name__}, captured in PyTorch {torch.__version__}"[:200],
            "workload": {
                "forward_ms": _rounded(self._forward_ms(used)),
                "backward_ms": _rounded(backward_ms),
                "gradients": self._gradients([ready for ready, _, _ in times], backward_ms),
            },
            "cluster": self._cluster(),
            "sync": self._sync(),
            "step": self._step(passes),
        }
        if self.parameters[0][1].device.type == "cpu":
            document["workload"]["host_is_device"] = True
        buffers = self._buffers()
        if buffers:
            document["workload"]["buffers"] = buffers
        copied = self._copied_gb_per_s([self._times(p)[2] for p in passes])
        if copied is not None:
            document["cluster"]["link"]["copy_gb_per_s"] = copied
        caveats = self._caveats(document, used, len(undisturbed))
        if caveats:
            document["caveats"] = caveats
        write_json(self.path, document)
        self._write_log()
        if self.finished is None:  # otherwise the callback reports more
            self._summarise(document, used, len(undisturbed))

    def _caveats(self, document, used, undisturbed):
        """Returns the known weaknesses of the document: texts, or objects that withhold advice."""
        caveats = self._caveats_of_times([self.clock.ms_between(p.begin, p.backward_end) for p in used])
        if len(used) != undisturbed:
            caveats.append(DISTURBED)
        unused = self._unused(used)
        if unused:
            caveats.append(f"{len(unused)} of {len(self.parameters)} gradients were never ready; taken for ready at once")
        if document["cluster"]["ranks"] > 1 and self.ddp is None:
            caveats.append("the model was outside of DistributedDataParallel: its settings are taken for the defaults")
        hook = self._log().get("comm_hook")
        if document["sync"].get("comm_hook") == "none" and hook:
            caveats.append(f"what the communication hook {hook} does is not in the scenario"[:500])
        for key, what in NOT_SIMULATED:
            if getattr(self.ddp, key, None):
                caveats.append(f"{what} is not simulated")
        if any(hasattr(p, "_in_backward_optimizers") for _, p in self.parameters):
            caveats.append("an optimizer that runs in backward is not simulated: it is taken to run after it")
        if os.environ.get("DDP_SET_LAST_BUCKET_CAP") == "1":
            caveats.append("DDP_SET_LAST_BUCKET_CAP is not simulated: the small bucket is taken for the first")
        if any(p.pieces for p in used) and not self._is_cut():
            caveats.append("torch.compile did not cut the graph at the cap (optimize_ddp): it does not change the pieces")
        elif self._is_cut() and max(self._cap_list() or [self.ddp.bucket_bytes_cap]) > MIB:
            caveats.append(
                "torch.compile cut the graph at a cap above 1 MiB: with a smaller one gradients may be ready earlier than "
                "predicted; capture with bucket_cap_mb=1 to tell"
            )
        if any(isinstance(m, torch.nn.SyncBatchNorm) for m in self.module.modules()):
            caveats.append("SyncBatchNorm's collectives are not in the scenario")
        return caveats

    def _caveats_of_times(self, passes_ms):
        caveats = []
        if len(passes_ms) < FEW_PASSES:
            caveats.append(f"times are medians of only {len(passes_ms)} pass{'es' if len(passes_ms) > 1 else ''}")
        spread = _spread(passes_ms)
        if spread > WIDE_SPREAD:
            caveats.append(
                _caveat(
                    f"passes differ: half of them lie {100 * spread:.0f} % of their median apart",
                    spread > HOPELESS_SPREAD,
                )
            )
        unseen = self._unseen_share()
        if unseen is not None and unseen > UNSEEN:
            caveats.append(
                _caveat(
                    f"{100 * unseen:.0f} % of the time from one step to the next is neither forward nor backward nor "
                    "optimizer (loading data, logging, a synchronisation): steps are that much longer than predicted",
                    unseen > MOSTLY_UNSEEN,
                )
            )
        return caveats

    def _whole_and_seen(self):
        """Returns, for steps followed by another, ms from one to the next, and the part in forward, backward and optimizer."""
        found, whole, seen = [], 0.0, 0.0
        passes = self.passes[self.warmup :]
        for one, following in zip(passes, passes[1:]):
            if following.number != one.number + 1:
                whole = seen = 0.0  # other work came between
                continue
            whole += self.clock.ms_between(one.entered, following.entered)
            seen += self.clock.ms_between(one.entered, one.backward_end)
            seen += sum(self.clock.ms_between(a, b) for a, b in zip(one.optimizer[::2], one.optimizer[1::2]))
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

    def _unseen_share(self):
        """Returns the share of the time between steps that no hook explains, if enough steps followed one another."""
        if not self.sees_optimizer:
            return None
        shares = [(whole - seen) / whole for whole, seen in self._whole_and_seen()]
        return statistics.median(shares) if shares else None

    def _cap_list(self):
        return list(getattr(self.ddp, "bucket_bytes_cap_list", ()))

    def _is_cut(self):
        """Whether torch.compile cuts the graph for DistributedDataParallel."""
        dynamo = sys.modules.get("torch._dynamo")
        optimizes = getattr(getattr(dynamo, "config", None), "optimize_ddp", False) in (True, "ddp_optimizer")
        return self.ddp is not None and optimizes and any(p.pieces for p in self.passes)

    def _unused(self, passes):
        return [name for i, (name, _) in enumerate(self.parameters) if not any(i in p.finished for p in passes)]

    def _copied_gb_per_s(self, own):
        """Returns the copy rate over gradients whose copy outweighs a hook call, each at its fastest, least disturbed time."""
        size, ms = 0, 0.0
        for index, (_, parameter) in enumerate(self.parameters):
            times = [times[index] for times in own if index in times]
            if times and parameter.numel() * parameter.element_size() >= 1 << 16:
                size += parameter.numel() * parameter.element_size()
                ms += min(times)
        return float(f"{size / ms / 1e6:.4g}") if ms > 0 else None

    def _gradients(self, ready, backward_ms):
        gradients = []
        for index, (name, parameter) in enumerate(self.parameters):
            moments = [r[index] for r in ready if index in r]  # an unused gradient has none: DDP marks it ready at once
            moment = statistics.median(moments) if moments else 0.0
            gradients.append(
                {
                    "name": name,
                    "numel": parameter.numel(),
                    "dtype": DTYPES[parameter.dtype],
                    "ready_ms": _rounded(min(max(moment, 0.0), backward_ms)),
                }
            )
            if index in self.sparse:
                gradients[-1]["sparse"] = True
        return gradients

    def _forward_ms(self, passes):
        """Returns the median of forward, loss included."""
        return statistics.median(self.clock.ms_between(p.begin, p.backward_begin) for p in passes)

    def _step(self, passes):
        step = {}
        # Passes from one synchronisation to the next.
        at = [number for number in self.synchronised if number >= passes[0].number]
        if at:
            counts = [b - a for a, b in zip(at, at[1:])] or [at[0] - passes[0].number + 1]
            step["accumulation"] = int(statistics.median_low(counts))
        optimizer = [
            sum(self.clock.ms_between(a, b) for a, b in zip(p.optimizer[::2], p.optimizer[1::2]))
            for p in passes
            if len(p.optimizer) >= 2
        ]
        if optimizer:
            step["optimizer_ms"] = _rounded(statistics.median(optimizer))
        return step

    def _cluster(self):
        ranks = dist.get_world_size(self.ddp.process_group if self.ddp else None) if dist.is_initialized() else 1
        cluster = {"ranks": ranks, "link": dict(PLACEHOLDER)}
        local = int(os.environ.get("LOCAL_WORLD_SIZE", ranks))
        if 0 < local < ranks and ranks % local == 0:
            cluster["ranks_per_node"] = local
        return cluster

    def _sync(self):
        sync = {"strategy": "ddp", "pytorch_version": torch.__version__}
        if self.wrapper is not None:
            sync["framework"] = self.wrapper
        ddp = self.ddp
        if ddp is None:
            return sync
        caps = self._cap_list()
        if caps:
            sync["bucket_cap_mib_list"] = [cap / MIB for cap in caps]
        elif not getattr(ddp, "bucket_bytes_cap_default", ddp.bucket_bytes_cap == 25 * MIB):
            sync["bucket_cap_mib"] = ddp.bucket_bytes_cap / MIB
        if dist._DEFAULT_FIRST_BUCKET_BYTES != MIB and not caps:
            sync["first_bucket_mib"] = dist._DEFAULT_FIRST_BUCKET_BYTES / MIB
        sync["views"] = ddp.gradient_as_bucket_view
        sync["find_unused_parameters"] = ddp.find_unused_parameters
        sync["static_graph"] = bool(getattr(ddp, "static_graph", False))
        if getattr(ddp, "batched_grad_copy", False):
            sync["batched_grad_copy"] = True
        if self._is_cut():
            sync["compiled"] = True
        sync["broadcast_buffers"] = ddp.broadcast_buffers
        hook = self._log().get("comm_hook", "")
        sync["comm_hook"] = next((name for name in ("bf16", "fp16") if name in hook), "none")
        return sync

    def _buffers(self):
        """One broadcast per dtype."""
        groups = {}
        for buffer in self.ddp.modules_buffers if self.ddp is not None else self.module.buffers():
            tensors, size = groups.get(buffer.dtype, (0, 0))
            groups[buffer.dtype] = tensors + 1, size + buffer.numel() * buffer.element_size()
        return [{"tensors": tensors, "bytes": size} for tensors, size in groups.values() if size > 0]

    def _log(self):
        return self.ddp._get_ddp_logging_data() if self.ddp is not None else {}

    def _write_log(self):
        if self.ddp is not None:
            write_json(os.path.splitext(self.path)[0] + ".ddp.json", self._log())

    def _summarise(self, document, used, undisturbed):
        workload, log = document["workload"], self._log()
        say(
            f"wrote {self.path}: {len(workload['gradients'])} gradients, forward {workload['forward_ms']} ms, backward "
            f"{workload['backward_ms']} ms, medians of {len(used)} passes"
        )
        if len(used) != undisturbed:
            say("every pass communicated, which slowed what was timed by an unknown amount: see the head of this file")
        if "copy_gb_per_s" in document["cluster"]["link"]:
            rate = document["cluster"]["link"]["copy_gb_per_s"]
            say(f"DDP copied {rate} GB/s into its buckets: copy_gb_per_s of the link")
        if log.get("rebuilt_bucket_sizes"):
            say(f"DDP's buckets, bytes: {log['rebuilt_bucket_sizes']}")
        missing = ["the link, a placeholder"]
        missing += ["the optimizer's time"] if "optimizer_ms" not in document["step"] else []
        missing += ["the number of ranks, so 1 stands there"] if document["cluster"]["ranks"] == 1 else []
        missing += ["DDP's settings and log, as the model was outside of it"] if self.ddp is None else []
        if log and not any(p.synchronises for p in self.passes):
            missing.append("DDP's final buckets, which it had not formed yet")
        missing += (
            [f"what the communication hook {log['comm_hook']} does"]
            if (document["sync"].get("comm_hook") == "none" and log.get("comm_hook"))
            else []
        )
        missing += (
            ["SyncBatchNorm's collectives"]
            if any(isinstance(m, torch.nn.SyncBatchNorm) for m in self.module.modules())
            else []
        )
        unused = self._unused(used)
        missing += [f"a gradient of {', '.join(unused[:5])}{', ...' if unused[5:] else ''}"] if unused else []
        say("not captured: " + "; ".join(missing))


class _KeepAlive:
    """Keeps a node alive that autograd references weakly, until removed like a hook."""

    def __init__(self, node):
        self.node = node

    def remove(self):
        self.node = None


def _wrapper_around(frame):
    """Returns the wrapper whose code is in the call stack of `frame`, the first of WRAPPERS if several are."""
    modules = set()
    while frame is not None:
        modules.add(frame.f_globals.get("__name__", ""))
        frame = frame.f_back
    for prefix, wrapper in WRAPPERS.items():
        if any(module == prefix or module.startswith(prefix + ".") for module in modules):
            return wrapper
    return None


def _caveat(text, withholds):
    return {"text": text, "withholds_advice": True} if withholds else text


def _spread(times):
    """Returns the interquartile range relative to the median, 0 for fewer than four times."""
    if len(times) < 4 or statistics.median(times) <= 0:
        return 0.0
    low, _, high = statistics.quantiles(times, n=4)
    return (high - low) / statistics.median(times)


def _rounded(ms):
    return round(ms, 4)


def say(text):
    print(f"bucketwise: {text}", file=sys.stderr, flush=True)


def write_json(path, document):
    """Writes all or nothing."""
    unfinished = f"{path}.{os.getpid()}.part"
    with open(unfinished, "w") as file:
        json.dump(document, file, indent=1)
        file.write("\n")
    os.replace(unfinished, path)
