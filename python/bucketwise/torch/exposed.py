"""The communication of a training's steps that no computing hides, for its log, without a profiler."""

import os
import statistics

from bucketwise.torch.capture_pytorch import DdpCapture
from bucketwise.torch.watch import say

# Passes that are watched after each call: one that settles what is compiled or allocated for hooks, and two.
WARMUP, WATCHED = 1, 2


class ExposedCommunication:
    """The time that steps of `model` wait for collectives. `model` is a DistributedDataParallel, or the module for which
    fully_shard was called last.

        exposed = bw.ExposedCommunication(model)
        for step, batch in enumerate(loader):
            train(batch)
            if step % 100 == 0:
                log(exposed.ms())

    Only the three passes after each call are watched. Under DistributedDataParallel it is the time from the last gradient
    to the end of backward, under fully_shard all of forward and backward that no module computes in. Copies into
    parameters and gradients are part of it, and so is waiting for late ranks. Never raises.
    """

    def __init__(self, model):
        self._model = getattr(model, "_orig_mod", model)
        self._watch, self._last = None, None
        self._begin()

    def ms(self):
        """Returns milliseconds a pass, of those watched last, or None before any was. Watches the next passes."""
        if self._watch is None:
            self._begin()
        return self._last

    def _begin(self):
        try:
            self._watch = _kind_of(self._model)(self._model, os.devnull, WATCHED, WARMUP, None, self._end)
        except Exception as error:  # never the training's problem
            say(f"exposed communication is not measured: {error}")

    def _end(self, watch):
        self._watch = None
        watch.clock.finish()
        passes = [one for one in watch.passes[WARMUP:] if one.synchronises] or watch.passes[WARMUP:]
        self._last = statistics.mean(watch.exposed_ms(one) for one in passes)


def _kind_of(model):
    if not hasattr(model, "_get_fsdp_state"):
        return _OfBuckets
    from bucketwise.torch.capture_sharded import ShardedCapture

    class OfShards(_Unwritten, ShardedCapture):
        def exposed_ms(self, one):
            computing = sum(o.device_us() for way in one.operations.values() for o in way)
            return max(self.clock.ms_between(one.begin, one.backward_end) - 1e-3 * computing, 0.0)

    return OfShards


class _Unwritten:
    """A capture that writes nothing."""

    def _write(self, _):
        pass

    def _ended_early(self):
        pass


class _OfBuckets(_Unwritten, DdpCapture):
    def exposed_ms(self, one):
        if not one.synchronises or not one.finished:
            return 0.0
        last = list(one.finished.values())[-1]  # in the order they finished
        return max(self.clock.ms_between(last, one.backward_end), 0.0)
