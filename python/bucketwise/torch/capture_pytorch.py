"""Writes a bucketwise scenario of a PyTorch training step, from within the training script.

    from bucketwise.torch import capture
    capture(model, "workload.json")     # before the training loop

`model` is a DistributedDataParallel or any module; the script runs as it always does, on as many ranks as it likes.
After a few steps rank 0 writes workload.json, the input of `bucketwise predict workload.json --link link.json`, and the
log of a DistributedDataParallel as workload.ddp.json. Then it removes itself from the process. PyTorch 1.13 or newer,
CPU or CUDA.

Training is only watched (watch.py), so parameters are bit for bit the same. A gradient is ready when it has been
computed and accumulated. Two things disturb the times:

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

Activation checkpointing: if backward runs the forward of modules again, each gradient says which share of the time
before it did that (`recomputed`). Under torch.compile nothing tells it.
"""

import os
import statistics
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from bucketwise.torch.watch import DTYPES, Pass, Watch, ms_within, rate_of, rounded, say, write_json

MIB = 1 << 20

# The wrapper that calls backward, by the module of its code: the bucket size is typed there.
WRAPPERS = {"transformers.trainer": "transformers", "lightning": "lightning", "pytorch_lightning": "lightning",
            "composer": "composer", "mmengine": "mmengine", "fairseq": "fairseq", "detectron2": "detectron2",
            "ray.train": "ray_train", "accelerate": "accelerate"}

# `bucketwise calibrate --captured` removes this slowdown.
DISTURBED = ("every pass that was timed communicated, which slowed its computing by an unknown amount: "
             "some under no_sync() before the training loop tell what it takes alone")

# Attributes of DistributedDataParallel, in versions that have them.
NOT_SIMULATED = (
    ("mixed_precision", "DistributedDataParallel's own mixed_precision, which sends gradients in a narrower type,"),
    ("_delay_all_reduce_params", "what delay_all_reduce_named_params asks for"))


def capture(model, path, steps=20, warmup=5, meanwhile=None, finished=None):
    """Writes `path` after `warmup` backward passes of `model`, which do not count, and `steps` more.

    Every micro-step is a pass. Raises ValueError for a model whose gradients a scenario cannot describe. Later errors
    are printed to standard error, and training goes on.

    meanwhile: other work between steps (see bucketwise.torch.all_reduce); passes that it uses do not count, and
    capturing lasts until it is_done. finished: called with the capture, on every rank, at its end.
    """
    if hasattr(model, "_get_fsdp_state"):  # under fully_shard
        from bucketwise.torch.capture_sharded import ShardedCapture

        return ShardedCapture(model, path, steps, warmup, meanwhile, finished)
    return DdpCapture(model, path, steps, warmup, meanwhile, finished)


class DdpPass(Pass):
    """Moments of gradients are by index."""

    def __init__(self, number, entered, begin, synchronises, communicates):
        super().__init__(number, entered, begin, synchronises)
        self.communicates = communicates
        self.computed, self.accumulated = {}, {}  # before and after accumulating; `finished`: after DDP's hook
        self.again_until = {}  # moments of `again` before a gradient was finished


class DdpCapture(Watch):
    def __init__(self, model, path, steps, warmup, meanwhile, finished):
        self.ddp = model if isinstance(model, DistributedDataParallel) else None
        module = model if self.ddp is None else model.module
        ignored = getattr(module, "_ddp_params_and_buffers_to_ignore", ())
        super().__init__(module, ignored, path, steps, warmup, meanwhile, finished)
        self.sparse, self.watches_ddp = set(), False
        self.wrapper = None  # the wrapper that calls backward

    def _refuse_sharded(self):
        for name, parameter in self.parameters:
            what = ("FullyShardedDataParallel" if hasattr(parameter, "_is_flat_param") else
                    "tensor parallelism" if type(parameter).__name__ == "DTensor" else None)
            if what is not None:
                raise ValueError(f"bucketwise: {name}: sharded parameters of {what} are not simulated; those of "
                                 "fully_shard are: give the module for which it was called last")

    # -- watching --

    def _begin_forward(self, *_):
        if not self._is_ready():
            return
        entered, self.entered = self.entered, None
        if self.watches_ddp and entered is None:
            return  # evaluation that bypasses DistributedDataParallel
        if self._is_new():
            synchronises = self.ddp is not None and self.ddp.require_backward_grad_sync
            communicates = synchronises and dist.get_world_size(self.ddp.process_group) > 1
            # Skips the forward of an evaluation, which not all ranks need to run.
            is_common = communicates and self.module.training and entered is not None
            taken = is_common and self.meanwhile is not None and self.meanwhile.begin_pass(self)
            begin = self.clock.now()
            one = DdpPass(self.number, begin if entered is None else entered, begin, synchronises, communicates)
            one.taken = taken
            self._begin_pass(one)

    def _learn(self):
        outer = getattr(DistributedDataParallel, "_active_ddp_module", None)
        if self.ddp is None and outer is not None and outer.module is self.module:
            self.ddp = outer

    def _watch(self):
        if self.ddp is not None:
            self.hooks.append(self.ddp.register_forward_pre_hook(self._enter))
            self.watches_ddp, self.entered = True, self.clock.now()
        modules = list(self.module.modules())
        if not any(hasattr(m, "_orig_mod") or getattr(m, "_compiled_call_impl", None) for m in modules):
            self._watch_recomputing(modules[1:])
        for index, (_, parameter) in enumerate(self.parameters):
            self.hooks.append(parameter.register_hook(self._stamp("computed", index)))
            if hasattr(parameter, "register_post_accumulate_grad_hook"):
                self.hooks.append(parameter.register_post_accumulate_grad_hook(self._stamp("accumulated", index)))
            with torch.enable_grad():
                accumulate = parameter.expand_as(parameter).grad_fn.next_functions[0][0]
            self.hooks.append(accumulate.register_hook(self._stamp("finished", index)))
            self.hooks.append(_KeepAlive(accumulate))

    def _stamp(self, moment, index):
        def stamp(*arguments):
            if self.current is not None:
                getattr(self.current, moment)[index] = self.clock.now()
                if moment == "finished":
                    self.current.again_until[index] = len(self.current.again)
                if moment == "computed" and arguments[0].is_sparse:
                    self.sparse.add(index)

        return stamp

    def _pieces(self, tensors=(), *_, **__):
        """Shared gradients belong to the last piece."""
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

    def _finish(self):
        self.wrapper = wrapper_around(sys._getframe())
        super()._finish()

    # -- the document --

    def _times(self, one):
        """Returns ms: readiness of each gradient and backward, both without DDP's own work, and that work by gradient."""
        ready, own, total = {}, {}, 0.0
        before_ddp = one.accumulated or one.computed
        for index, last in one.finished.items():  # in the order they finished
            if one.synchronises:
                own[index] = self.clock.ms_between(before_ddp[index], last)
                total += own[index]
            ready[index] = self.clock.ms_between(one.backward_begin, last) - total
        for piece in one.pieces:  # its gradients exist at once, but are handed out one by one
            first = min((ready[index] for index in piece if index in ready), default=0.0)
            ready.update({index: first for index in piece if index in ready})
        # DDP ends backward by waiting for its buckets and copying them back.
        whole = self.clock.ms_between(one.backward_begin, one.backward_end)
        return ready, max(ready.values()) if one.synchronises else whole, own

    def _write(self, passes):
        undisturbed = [p for p in passes if not p.communicates]
        used = undisturbed if len(undisturbed) >= 2 else passes
        times = [self._times(p) for p in used]
        backward_ms = statistics.median(backward for _, backward, _ in times)
        workload = {"forward_ms": rounded(statistics.median(self.forward_ms(p) for p in used)),
                    "backward_ms": rounded(backward_ms),
                    "gradients": self._gradients([ready for ready, _, _ in times], backward_ms)}
        self._tell_recomputed(used, workload["gradients"])
        buffers = self._buffers()
        if buffers:
            workload["buffers"] = buffers
        group = self.ddp.process_group if self.ddp else None
        ranks = dist.get_world_size(group) if dist.is_initialized() else 1
        # Passes from one synchronisation to the next.
        at = [number for number in self.synchronised if number >= passes[0].number]
        counts = [b - a for a, b in zip(at, at[1:])] or [number - passes[0].number + 1 for number in at]
        sync, log = self._sync(), self._log()
        # Weaknesses that the file states, and what is said to be missing in it: the latter are named by the former, too.
        missing, caveats = self._missing(sync, log, used)
        caveats = [*self._caveats(used, len(used) != len(undisturbed), ranks), *caveats]
        copied = self._copied_gb_per_s([self._times(p)[2] for p in passes])
        document = self._write_document(workload, ranks, sync, self._step(passes, counts), copied, caveats)
        if self.ddp is not None:
            write_json(os.path.splitext(self.path)[0] + ".ddp.json", log)
        if self.finished is None:  # otherwise the callback reports more
            self._summarise(document, len(used), DISTURBED in caveats, missing)

    def _caveats(self, used, is_disturbed, ranks):
        caveats = self._caveats_of_times([self.clock.ms_between(p.begin, p.backward_end) for p in used])
        if is_disturbed:
            caveats.append(DISTURBED)
        if ranks > 1 and self.ddp is None:
            caveats.append("the model was outside of DistributedDataParallel: its settings are taken for the defaults")
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
            caveats.append("torch.compile cut the graph at a cap above 1 MiB: with a smaller one gradients may be ready "
                           "earlier than predicted; capture with bucket_cap_mb=1 to tell")
        return caveats

    def _missing(self, sync, log, used):
        """Returns names of what is not in the file, and caveats for the same."""
        missing, caveats = [], []
        hook = log.get("comm_hook")
        if sync.get("comm_hook") == "none" and hook:
            missing.append(f"what the communication hook {hook} does")
            caveats.append(f"what the communication hook {hook} does is not in the scenario"[:500])
        if any(isinstance(m, torch.nn.SyncBatchNorm) for m in self.module.modules()):
            missing.append("SyncBatchNorm's collectives")
            caveats.append("SyncBatchNorm's collectives are not in the scenario")
        unused = [name for i, (name, _) in enumerate(self.parameters) if not any(i in p.finished for p in used)]
        if unused:
            missing.append(f"a gradient of {', '.join(unused[:5])}{', ...' if unused[5:] else ''}")
            caveats.append(f"{len(unused)} of {len(self.parameters)} gradients were never ready; taken for ready at once")
        return missing, caveats

    def _cap_list(self):
        return list(getattr(self.ddp, "bucket_bytes_cap_list", ()))

    def _is_cut(self):
        """Whether torch.compile cuts the graph for DistributedDataParallel."""
        dynamo = sys.modules.get("torch._dynamo")
        optimizes = getattr(getattr(dynamo, "config", None), "optimize_ddp", False) in (True, "ddp_optimizer")
        return self.ddp is not None and optimizes and any(p.pieces for p in self.passes)

    def _copied_gb_per_s(self, own):
        """Returns the copy rate over gradients whose copy outweighs a hook call, each at its fastest, least disturbed time."""
        size, ms = 0, 0.0
        for index, (_, parameter) in enumerate(self.parameters):
            times = [times[index] for times in own if index in times]
            if times and parameter.numel() * parameter.element_size() >= 1 << 16:
                size += parameter.numel() * parameter.element_size()
                ms += min(times)
        return rate_of(size, ms)

    def _gradients(self, ready, backward_ms):
        gradients = []
        for index, (name, parameter) in enumerate(self.parameters):
            moments = [r[index] for r in ready if index in r]  # an unused gradient has none: DDP marks it ready at once
            moment = min(max(statistics.median(moments) if moments else 0.0, 0.0), backward_ms)
            gradients.append({"name": name, "numel": parameter.numel(), "dtype": DTYPES[parameter.dtype],
                              **({"shape": list(parameter.shape)} if parameter.dim() else {}),
                              "ready_ms": rounded(moment), **({"sparse": True} if index in self.sparse else {})})
        return gradients

    def _tell_recomputed(self, passes, gradients):
        """Computing again before a gradient is a share of the time since the one before it."""
        again_ms = [self._again_ms(one) for one in passes]
        ready_ms, left_ms = 0.0, 0.0
        for index in sorted(range(len(gradients)), key=lambda i: (gradients[i]["ready_ms"], -i)):
            left_ms += statistics.median(times.get(index, 0.0) for times in again_ms)
            interval_ms = gradients[index]["ready_ms"] - ready_ms
            if interval_ms > 0:
                share = round(min(left_ms / interval_ms, 1.0), 3)
                gradients[index].update({"recomputed": share} if share > 0 else {})
                ready_ms, left_ms = gradients[index]["ready_ms"], max(left_ms - interval_ms, 0.0)

    def _again_ms(self, one):
        """Returns, by gradient, ms that modules were computed again since the one finished before it."""
        found, begin = {}, 0
        for index, end in one.again_until.items() if one.again else ():  # in the order they finished
            moments, begin = one.again[begin:end], end
            found[index] = ms_within(self.clock, moments)
        return found

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

    def _summarise(self, document, count, is_disturbed, missing):
        workload, log = document["workload"], self._log()
        say(f"wrote {self.path}: {len(workload['gradients'])} gradients, forward {workload['forward_ms']} ms, backward "
            f"{workload['backward_ms']} ms, medians of {count} passes")
        if is_disturbed:
            say("every pass communicated, which slowed what was timed by an unknown amount: see the head of this file")
        if "copy_gb_per_s" in document["cluster"]["link"]:
            rate = document["cluster"]["link"]["copy_gb_per_s"]
            say(f"DDP copied {rate} GB/s into its buckets: copy_gb_per_s of the link")
        if log.get("rebuilt_bucket_sizes"):
            say(f"DDP's buckets, bytes: {log['rebuilt_bucket_sizes']}")
        also = ((True, "the link, a placeholder"), ("optimizer_ms" not in document["step"], "the optimizer's time"),
                (document["cluster"]["ranks"] == 1, "the number of ranks, so 1 stands there"),
                (self.ddp is None, "DDP's settings and log, as the model was outside of it"),
                (log and not any(p.synchronises for p in self.passes),
                 "DDP's final buckets, which it had not formed yet"))
        say("not captured: " + "; ".join([*(what for is_missing, what in also if is_missing), *missing]))


class _KeepAlive:
    """Keeps a node alive that autograd references weakly, until removed like a hook."""

    def __init__(self, node):
        self.node = node

    def remove(self):
        self.node = None


def wrapper_around(frame):
    """Returns the wrapper whose code is in the call stack of `frame`, the first of WRAPPERS if several are."""
    modules = set()
    while frame is not None:
        modules.add(frame.f_globals.get("__name__", ""))
        frame = frame.f_back
    for prefix, wrapper in WRAPPERS.items():
        if any(module == prefix or module.startswith(prefix + ".") for module in modules):
            return wrapper
    return None
