"""Times isolated collectives of zeros on the process group of a sharded training, for `bucketwise calibrate`."""

import itertools
import json
import os
import statistics
import time

import torch
import torch.distributed as dist

from bucketwise.torch.all_reduce import KIB, MIB, SIZES, AllReduceTiming, environment, message_record, transport_of
from bucketwise.torch.watch import CudaClock, HostClock, replace_file, say

# Each kind has so much time for so many rounds, and a round times every size once more. The first two collectives make
# connections.
SECONDS, ROUNDS, WARMUP = 2.0, 12, 2
KINDS = ("allgather", "reducescatter", "allreduce")


def time_collectives(path, group=None, *, largest=256 * MIB, device=None):
    """All ranks of `group`, by default of the job, call it between two steps. Its first rank writes `path`, JSON Lines
    with every time of the slowest rank.

    Times all_gather_into_tensor and reduce_scatter_tensor with an average, as FSDP2 calls them, and all_reduce. Sizes
    count the whole tensor, gathered or to be scattered. It takes some 6 s and twice `largest` of memory.

    largest: bytes; sizes above the largest group are of no use. device: of the tensors, by default the current CUDA
        device under NCCL, else the CPU.
    """
    timing = _Timing(group, [size for size in SIZES if size <= max(largest, 4 * KIB)], device)
    records = timing.records()
    if dist.get_rank(group) == 0:
        replace_file(path, "".join(json.dumps(record) + "\n" for record in records))
        sizes = f"{len(timing.sizes)} sizes of each of {', '.join(KINDS)}"
        say(f"wrote {path}: {sizes} on {timing.ranks} ranks")


class _Timing:
    def __init__(self, group, sizes, device):
        self.group, self.ranks = group, dist.get_world_size(group)
        self.backend = dist.get_backend(group)
        self.on_device = self.backend == "nccl" if device is None else torch.device(device).type != "cpu"
        self.clock = CudaClock if self.on_device else HostClock
        self.device = device if device is not None else "cuda" if self.on_device else "cpu"
        # Divisible into equal parts.
        unit = 4 * self.ranks
        self.sizes = [size // unit * unit for size in sizes if size >= unit]
        self.whole = torch.zeros(self.sizes[-1] // 4, device=self.device)

    def records(self):
        transport = transport_of(self.backend, self.ranks, self.on_device)
        return [environment(transport, self._hosts(), self.on_device),
                *(message_record(kind, transport, size, [1e6 * each for each in times])
                  for kind in KINDS for size, times in self._timed(kind).items())]

    def _timed(self, kind):
        """Returns seconds by size. Ranks agree on the number of rounds that fit."""
        found = {}
        for size in self.sizes:
            for _ in range(WARMUP):
                self.seconds(kind, size)
            found[size] = [self.seconds(kind, size)]
            if sum(times[0] for times in found.values()) * WARMUP > SECONDS:
                break  # the same on all ranks, as the times are those of the slowest
        rounds = min(ROUNDS, int(SECONDS / sum(times[0] for times in found.values())))
        for _, size in itertools.product(range(rounds), list(found)):
            found[size].append(self.seconds(kind, size))
        return found

    def seconds(self, kind, size, after=None):
        """Seconds of one collective on the slowest rank, all starting at once, or once each has done `after`."""
        # As in FSDP2: the all-gather is in place, the reduce-scatter writes to another tensor, and both write to memory
        # that was just allocated, which on a CPU costs page faults.
        whole = self.whole[: size // 4]
        dist.all_reduce(self.whole[:1], group=self.group)
        if after is not None:
            after()
        begin = self.clock.now()
        if kind == "allgather":
            gathered = torch.empty_like(whole)
            mine = gathered.chunk(self.ranks)[dist.get_rank(self.group)]
            dist.all_gather_into_tensor(gathered, mine, group=self.group)
        elif kind == "reducescatter":
            part = torch.empty(size // 4 // self.ranks, device=self.device)
            dist.reduce_scatter_tensor(part, whole, op=dist.ReduceOp.AVG, group=self.group)
        else:
            dist.all_reduce(whole, group=self.group)
        end = self.clock.now()
        self.clock.finish()
        return self._largest(1e-3 * self.clock.ms_between(begin, end))

    def _largest(self, value):
        number = torch.tensor([value], dtype=torch.float64, device=self.device)
        dist.all_reduce(number, op=dist.ReduceOp.MAX, group=self.group)
        return number.item()

    def _hosts(self):
        names = [None] * self.ranks
        dist.all_gather_object(names, os.uname().nodename, group=self.group)
        return len(set(names))


class ShardedTiming(AllReduceTiming):
    """Work that capture() does between steps of a model under fully_shard: all-gathers and reduce-scatters of its groups'
    sizes, and all-reduces of their shards where the model is replicated, on the model's own meshes. Two buffers are as
    large as the largest group, which is in memory as often in every step, and are freed at the end."""

    schedule = "aaaa"
    file = "collectives.jsonl"
    enough_s = 2.0
    MOST_SIZES, SMALL = 6, 64 * KIB  # a line needs three: two of them
    TURN_S = 0.4  # of one time between steps, after the first
    MOST_COMPUTED_S = 0.05  # before each collective of a host

    def _set_up(self, capture):
        if not self._all_take_part(capture, dist.group.WORLD, None):
            return False
        mesh = capture.groups[0].mesh_info
        replicas = getattr(mesh, "replicate_mesh_size", 1)
        if mesh.shard_mesh_size * replicas != dist.get_world_size():
            self.problem = "the model's mesh is not that of all ranks"
            return False
        operations = [o for one in capture.passes[-1:] for way in one.operations.values() for o in way]
        computed_us = sum(o.device_us() for o in operations) / max(len(operations), 1) if not self.on_device else 0.0
        self.computed_s = min(1e-6 * computed_us, self.MOST_COMPUTED_S)
        sizes = self._sizes(capture)
        self.timings = [(_Timing(mesh.shard_process_group, sizes, self.device), KINDS[:2])]
        if replicas > 1:
            parts = [size // mesh.shard_mesh_size for size in sizes]
            self.timings.append((_Timing(mesh.replicate_process_group, parts, self.device), KINDS[2:]))
        return True

    def _sizes(self, capture):
        """Bytes of the groups as they are gathered, the largest among them; where all are alike also a small one, for the
        latency."""
        found = sorted({sum(p._orig_size.numel() * (p.param_dtype or p.orig_dtype).itemsize for p in group.fsdp_params)
                        for group in capture.groups})
        most = min(len(found), self.MOST_SIZES) - 1
        spread = {found[round(i * (len(found) - 1) / max(most, 1))] for i in range(most + 1)}
        return sorted({*spread, found[-1], *([min(self.SMALL, found[0])] if len(found) == 1 else [])})

    def _time_alone(self, capture):
        work = [(timing, kind, size) for timing, kinds in self.timings for kind in kinds for size in timing.sizes]
        rounds = 1
        if self.times:
            longest = self._agreed([sum(min(times) for times in self.times.values())])[0]
            rounds = max(1, min(10, int(self.TURN_S / longest)))
        else:
            for timing, kind, size in work:
                timing.seconds(kind, size)  # makes connections
        for timing, kind, size in rounds * work:
            self.times.setdefault((kind, size), []).append(timing.seconds(kind, size, self._compute))

    def _compute(self):
        """On a host, for as long as a module does: as in a step, ranks come to a collective from other work, at moments
        that differ."""
        if not self.on_device:
            factors, end = torch.ones(256, 256), time.perf_counter() + self.computed_s
            while time.perf_counter() < end:
                factors @ factors

    def _exchange(self, capture):
        # Ranks of other meshes take part in what all agree on.
        self.found = [(kind, size, timing.ranks, [1e6 * each for each in self.times[kind, size]])
                      for timing, kinds in self.timings for kind in kinds for size in timing.sizes]
        self.timings, self.by_rank, self.hosts = [], [], self._count_hosts()

    def records(self):
        backend = dist.get_backend(self.group)
        # Where nothing hides what a step waits for, times add up, and with them their means.
        found = [(*key, times if self.on_device else len(times) * [statistics.mean(times)]) for *key, times in self.found]
        lines = [environment(transport_of(backend, self.found[0][2], self.on_device), self.hosts, self.on_device)]
        return lines + [message_record(kind, transport_of(backend, of, self.on_device), size, times)
                        for kind, size, of, times in found]

    def summary(self):
        kinds = {"allgather": "all-gathers", "reducescatter": "reduce-scatters", "allreduce": "all-reduces"}
        named = " and ".join(kinds[kind] for kind in dict.fromkeys(kind for kind, *_ in self.found))
        return f"{named} of the model's sizes timed on {dist.get_world_size()} ranks, in {self.added_s:.2g} s in all"
