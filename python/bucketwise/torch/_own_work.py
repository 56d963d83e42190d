"""Times FSDP2's own work in a training."""

import sys
import time

import torch
import torch.distributed as dist
from torch.utils import _pytree

from bucketwise.torch.watch import rate_of


class OwnWork:
    """Times FSDP2's own work around its collectives on a CPU, above all copies, until removed like a hook. They go to memory
    that was freed before, which costs page faults that a copy tried apart does not have."""

    FUNCTIONS = ("foreach_all_gather", "foreach_all_gather_copy_out", "foreach_reduce")
    COLLECTIVES = ("all_gather_into_tensor", "all_gather_single", "reduce_scatter_tensor", "reduce_scatter_single")

    def __init__(self, capture):
        self.capture, self.seconds, self.bytes = capture, 0.0, 0
        self.is_working = self.is_communicating = False
        group = sys.modules.get("torch.distributed.fsdp._fully_shard._fsdp_param_group")
        self.replaced = []
        for module, names, timed in ((group, self.FUNCTIONS, self._working), (dist, self.COLLECTIVES, self._communicating)):
            for name in names:
                original = getattr(module, name, None)
                if original is not None:
                    self.replaced.append((module, name, original, timed(name, original)))
                    setattr(module, name, self.replaced[-1][3])

    def _counts(self):
        return self.capture.current is not None and len(self.capture.passes) >= self.capture.warmup

    def _working(self, _, original):
        def timed(*arguments, **keywords):
            self.is_working, begin = self._counts(), time.perf_counter()
            try:
                return original(*arguments, **keywords)
            finally:
                self.seconds += time.perf_counter() - begin if self.is_working else 0.0
                self.is_working = False

        return timed

    def _communicating(self, name, original):
        def timed(*arguments, **keywords):
            if self.is_communicating or not self.is_working:
                return original(*arguments, **keywords)
            self.is_communicating, begin = True, time.perf_counter()
            try:
                return original(*arguments, **keywords)
            finally:
                self.is_communicating = False
                self.seconds -= time.perf_counter() - begin
                sizes = [t.numel() * t.element_size() for t in tensors((arguments, keywords))]
                # Into the gathered memory and out of it; into the memory that is reduced.
                self.bytes += sum(sizes) if "gather" in name else max(sizes)

        return timed

    def rate(self):
        return rate_of(self.bytes, 1e3 * self.seconds) if self.bytes else None

    def remove(self):
        for module, name, original, timed in self.replaced:
            if getattr(module, name) is timed:
                setattr(module, name, original)


def tensors(values):
    return [value for value in _pytree.tree_leaves(values) if isinstance(value, torch.Tensor)]
