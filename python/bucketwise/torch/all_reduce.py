"""Times all-reduces on the process group of a training DistributedDataParallel, between its steps and beside its
forward passes, for `bucketwise calibrate`. Training does not change: the all-reduces have a buffer of zeros.

All ranks do everything here in the same order, in the forward hook of a pass that synchronises, where every rank has
issued equally many of DDP's own collectives. Each decision depends only on numbers that all ranks share.
"""

import datetime
import itertools
import os
import platform
import statistics
import time
import zlib

import torch
import torch.distributed as dist

KIB, MIB = 1 << 10, 1 << 20
SIZES = [4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB] + [MIB << shift for shift in range(9)]
# After the first five synchronising steps, every other one times all-reduces (a)lone or (b)eside forward.
WARMUP, EVERY = 5, 2
# In total less than two seconds: at most three all-reduces of each size in the first round, whose sizes at least
# double; four times SHARE_S; five times BESIDE_S alone, and the slowdown of forward beside them.
LONGEST_S = 0.05  # a single all-reduce
SHARE_S = 0.15  # of each later round of all-reduces alone
BESIDE_S = 0.1  # of all-reduces beside one forward pass
ENOUGH_S = 1.2  # the rest is left out after so much, if ranks wait long for one another
MOST_BESIDE = 256
PART_OF_FORWARD = 0.7  # filled with communication: not all of it, as each slows the other

MEETING_S = 20  # ranks wait for one another once

# The number of timings that all ranks have finished, equal on all of them, and the object signed up for the next one.
_times_done, _signed_up = 0, None


class AllReduceTiming:
    """Work that capture() does between steps. `problem` says why it stopped, if it did; `added_s` is its cost."""

    schedule = "aa" + 3 * "bbbba" + "bb"
    file = "all_reduces.jsonl"
    enough_s = ENOUGH_S

    def __init__(self):
        self.store = self.problem = self.group = self.buffer = self.probe = None
        self.latest, self.done = None, 0
        self.added_s = self.spent_s = 0.0  # the latter agreed among ranks
        self.times = {}  # isolated all-reduces: size -> seconds on the slowest rank
        self.alone_s, self.beside = {}, []  # seconds by (size, count); probes beside forward
        self.sizes, self.counts = [], {}
        self.queued, self.turn = [], 0  # (size, count) of simultaneous all-reduces, used in turn
        self.by_rank = None
        self._sign_up()

    def _sign_up(self):
        """Each participating rank signs up before it trains."""
        global _signed_up
        if _signed_up is not None:
            _signed_up.withdraw("it was asked for again")
        self.key = f"bucketwise/advise/{_times_done}"
        try:
            self.store = dist.distributed_c10d._get_default_store()
            self.store.add(self.key, 1)
            _signed_up = self
        except Exception as error:
            self.problem = f"ranks cannot be counted: {type(error).__name__}: {error}"

    def withdraw(self, problem):
        """Cancels the timing unless it has begun."""
        global _signed_up
        if _signed_up is self:
            _signed_up, self.problem = None, problem
            self.store.add(self.key, -1)

    def _meet(self):
        """Returns whether all ranks arrive before the same step."""
        global _signed_up, _times_done
        arrived, go = f"{self.key}/arrived", f"{self.key}/go"
        if self.store.add(arrived, 1) == dist.get_world_size():
            self.store.set(go, "1")
        try:
            self.store.wait([go], datetime.timedelta(seconds=MEETING_S))
        except RuntimeError:
            self.store.add(arrived, -1)
            self.withdraw("not all ranks called it before the same step")
            return False
        _signed_up, _times_done = None, _times_done + 1
        return True

    @property
    def is_done(self):
        return self.problem is not None or self.done == len(self.schedule) + 1

    # -- called by the capture --

    def begin_pass(self, capture):
        """Called before the forward of a synchronising pass. Returns whether it uses up the pass."""
        number = len(capture.synchronised)  # passes that all ranks have ended, not those one rank has begun
        if self.is_done or number == self.latest or number < WARMUP or (number - WARMUP) % EVERY:
            return False
        self.latest = number
        begin = time.perf_counter()
        try:
            if self.group is None and not self._set_up(capture):
                return False
            kind = self.schedule[self.done] if self.done < len(self.schedule) else "exchange"
            self.done += 1
            if kind == "exchange":
                self._exchange(capture)
            elif self.spent_s > self.enough_s:
                return False
            elif kind == "a":
                self._time_alone(capture)
                self.spent_s = self._agreed([self.added_s + time.perf_counter() - begin])[0]
            elif self.queued:
                self.probe = self._start()
        except Exception as error:  # never the training's problem
            self.problem = f"{type(error).__name__}: {error}"
        self.added_s += time.perf_counter() - begin
        return True

    def end_forward(self, one):
        """Called before the backward of a used pass."""
        if self.probe is None:
            return
        begin = time.perf_counter()
        self.probe.wait()
        self.probe.one = one
        self.beside.append(self.probe)
        self.probe = None
        self.added_s += time.perf_counter() - begin

    # -- how it is done --

    def _set_up(self, capture):
        """Returns whether all ranks take part. The answer is the same on each: all signed up before they trained, and
        each has taken part in a step since."""
        if not self._all_take_part(capture, capture.ddp.process_group, getattr(capture.ddp, "_join_config", None)):
            return False
        gradients = sum(p.numel() * p.element_size() for _, p in capture.parameters)
        largest = 1 << max(gradients - 1, 4 * KIB).bit_length()
        free = [torch.cuda.mem_get_info()[0] // 4 if self.on_device else largest]
        largest = int(self._agreed([min(largest, *free)], dist.ReduceOp.MIN)[0])
        self.sizes = [size for size in SIZES if size <= largest] or SIZES[:1]
        try:
            self.buffer = torch.zeros(self.sizes[-1] // 4, dtype=torch.float32, device=self.device)
        except RuntimeError:  # out of memory
            pass
        if not self._agreed([float(self.buffer is not None)], dist.ReduceOp.MIN)[0]:
            self.buffer, self.problem = None, f"a rank has no {self.sizes[-1] >> 10} KiB of memory for it"
        return self.problem is None

    def _all_take_part(self, capture, group, join):
        self.clock, self.device = capture.clock, capture.parameters[0][1].device
        self.on_device = self.clock.on_device
        self.clock.finish()  # launched steps have now been taken
        world, signed = dist.get_world_size(), self.store.add(self.key, 0)
        if dist.get_world_size(group) != world:
            self.withdraw("the model's process group is not that of all ranks")
        elif signed != world:
            self.withdraw(f"{signed} of {world} ranks called it; all have to")
        elif getattr(join, "enable", False):
            self.withdraw("under join() ranks may have stopped")
        if self.problem is not None or not self._meet():
            return False
        self.group = group
        return True

    def _agreed(self, values, operation=None):
        """Reduces each value over all ranks, by default to the largest."""
        numbers = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.all_reduce(numbers, op=operation or dist.ReduceOp.MAX, group=self.group)
        return numbers.tolist()

    def _timed(self, size, count):
        """Returns seconds of each of `count` all-reduces, on a device back to back: the host runs ahead from the first on."""
        message = self.buffer[: size // 4]
        dist.all_reduce(message, group=self.group)  # all ranks are here
        moments = [self.clock.now()]
        for _ in range(count):
            dist.all_reduce(message, group=self.group)
            moments.append(self.clock.now())
        self.clock.finish()
        return [1e-3 * self.clock.ms_between(a, b) for a, b in zip(moments, moments[1:])]

    def _time_alone(self, capture):
        if not self.counts:
            self._time_first()
        else:
            found = {size: self._timed(size, count) for size, count in self.counts.items()}
            self._keep(found)
        if not self.queued:
            self._choose_beside(capture)
        if self.queued:
            self._time_queued()

    def _keep(self, found):
        slowest = iter(self._agreed([each for times in found.values() for each in times]))
        for size, times in found.items():
            self.times.setdefault(size, []).extend(itertools.islice(slowest, len(times)))

    def _time_first(self):
        """Times sizes from the smallest up to the longest allowed duration, and sets how often each is timed later."""
        typical = {}
        for size in self.sizes:
            self._keep({size: self._timed(size, 2)})
            typical[size] = min(self.times[size])
            if typical[size] * 2 > LONGEST_S:
                break
        self.sizes = list(typical)
        share = SHARE_S / len(self.sizes)
        self.counts = {size: max(1, min(20, int(share / each))) for size, each in typical.items()}

    def _choose_beside(self, capture):
        """Chooses messages to send at once that last for most of forward: the largest size that fits, and a quarter of
        it, as interference slows small messages more."""
        clean = [one for one in capture.passes[2:] if one.backward_begin is not None]
        self.clock.finish()
        forward_ms = statistics.median(capture.forward_ms(one) for one in clean) if clean else 0.0
        seconds = min(PART_OF_FORWARD * 1e-3 * self._agreed([forward_ms], dist.ReduceOp.MIN)[0], BESIDE_S)
        for size in sorted(self.sizes, reverse=True):
            # A device's stream runs one at a time; a host runs several at once, each with its own memory.
            most = MOST_BESIDE if self.on_device else min(MOST_BESIDE, 4 * self.buffer.numel() // size)
            count = min(int(seconds / statistics.median(self.times[size])), most)
            if count >= 1 and (not self.queued or 4 * size <= self.queued[0][0]):
                self.queued.append((size, count))
                if len(self.queued) == 2:
                    return

    def _start(self):
        """Starts the messages of this turn at once, on all ranks."""
        size, count = queued = self.queued[self.turn % len(self.queued)]
        self.turn += 1
        message = self.buffer[: size // 4]
        parts = [message] * count if self.on_device else self.buffer[: size // 4 * count].view(count, -1)
        dist.all_reduce(self.buffer[:1024], group=self.group)  # all ranks are here
        probe = (_DeviceProbe if self.on_device
                 else _HostProbe)(lambda: [dist.all_reduce(part, group=self.group, async_op=True) for part in parts])
        probe.queued = queued
        return probe

    def _time_queued(self):
        probe = self._start()
        probe.wait()
        self.alone_s.setdefault(probe.queued, []).extend(self._agreed([probe.seconds()]))

    def _exchange(self, capture):
        """Shares what each rank measured beside its forward passes."""
        self.clock.finish()
        found = []
        for probe in self.beside:
            near = sorted(capture.passes, key=lambda one: abs(one.number - probe.one.number))[:4]
            alone_ms = statistics.median(capture.forward_ms(one) for one in near)
            found.append((probe.seconds(), 1e-3 * capture.forward_ms(probe.one), 1e-3 * alone_ms))
        slowest = self._agreed([seconds for seconds, _, _ in found]) if found else []
        ranks, rank = dist.get_world_size(), dist.get_rank()
        computing = torch.zeros(ranks, max(len(found), 1), 2, dtype=torch.float64)
        for i, (seconds, forward, alone) in enumerate(found):
            # The overlap lasts until the shorter of the two ends; alone, forward is shorter by its slowdown.
            disturbed = min(seconds, forward)
            computing[rank, i, 0], computing[rank, i, 1] = max(disturbed - (forward - alone), 0.0), disturbed
        summed = self._agreed(computing.flatten().tolist(), dist.ReduceOp.SUM)
        computing = torch.tensor(summed, dtype=torch.float64).view(computing.shape)
        self.hosts = self._count_hosts()
        self.by_rank = [(self.beside[i].queued, slowest[i], computing[:, i, 0].tolist(), computing[:, i, 1].tolist())
                        for i in range(len(found))]
        self.buffer = None

    def _count_hosts(self):
        hosts = [0.0] * dist.get_world_size()
        hosts[dist.get_rank()] = float(zlib.crc32(platform.node().encode()))
        return len(set(self._agreed(hosts, dist.ReduceOp.SUM)))

    # -- what was found --

    def summary(self):
        beside = "and beside computing, " if self.beside else ""
        return (f"all-reduces of {len(self.times)} sizes timed on {dist.get_world_size()} ranks, {beside}in "
                f"{self.added_s:.2g} s in all")

    def records(self):
        """For `bucketwise calibrate`, one dictionary a line."""
        transport = transport_of(dist.get_backend(self.group), dist.get_world_size(), self.on_device)
        lines = [environment(transport, self.hosts, self.on_device)]
        lines += [message_record("allreduce", transport, size, [1e6 * each for each in times])
                  for size, times in sorted(self.times.items())]
        for number, (queued, seconds, alone, disturbed) in enumerate(self.by_rank):
            size, count = queued
            if queued not in self.alone_s:
                continue
            lines.append({"kind": "contention", **transport, "bytes": size, "dtype": "float32", "round": number,
                          "allreduce_alone_us": [1e6 * each / count for each in self.alone_s[queued]],
                          "allreduce_disturbed_us": [1e6 * seconds / count],
                          "compute_alone_us": [1e6 * each for each in alone],
                          "compute_disturbed_us": [1e6 * d if a > 0 else 0.0 for a, d in zip(alone, disturbed)]})
        return lines


class _HostProbe:
    """All-reduces on threads of the backend, beside the code that follows."""

    def __init__(self, issue):
        self.ends, self.waited = [], None
        self.begin = time.perf_counter()
        self.works = issue()
        for work in self.works:
            work.get_future().add_done_callback(lambda _: self.ends.append(time.perf_counter()))

    def wait(self):
        for work in self.works:
            work.wait()
        self.waited = time.perf_counter()

    def seconds(self):
        # wait() may return before the callbacks run.
        return (max(self.ends) if len(self.ends) == len(self.works) else self.waited) - self.begin


class _DeviceProbe:
    """All-reduces on the backend's stream, after everything launched before them."""

    def __init__(self, issue):
        self.events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            self.events[0].record()
            self.works = issue()
            for work in self.works:
                work.wait()  # blocks only this stream
            self.events[1].record()

    def wait(self):
        torch.cuda.current_stream().wait_event(self.events[1])

    def seconds(self):
        self.events[1].synchronize()
        return 1e-3 * self.events[0].elapsed_time(self.events[1])


def transport_of(backend, ranks, on_device=False):
    known = backend if backend in ("gloo", "nccl") else "nccl" if on_device else "gloo"
    return {"backend": known, "algorithm": "ring", "implementation": "library", "ranks": ranks}


def message_record(kind, transport, size, samples_us):
    """Isolated collectives of `size` bytes, for `bucketwise calibrate`."""
    return {"kind": kind, **transport, "bytes": size, "dtype": "float32", "round": 0, "samples_us": samples_us,
            "largest_difference": 0.0, "peak_memory_bytes": 0}


def environment(transport, hosts, on_device):
    found = {"kind": "environment", **transport, "bucketwise": "",
             "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
             "command": ["bucketwise.torch"], "cpu": _cpu(), "cores": os.cpu_count() or 1,
             "kernel": f"{platform.system()} {platform.release()}", "compiler": "", "gpu_libraries": "",
             "libraries": f"PyTorch {torch.__version__}", "hosts": hosts, "link_rate": "", "seed": 0,
             "rounds": AllReduceTiming.schedule.count("a"), "gradients": [], "forward_operations": [], "backward_operations": [],
             "scenario": None, "scheduling": "default"}
    if on_device:
        found["gpu"] = torch.cuda.get_device_name()
        found["gpu_libraries"] = f"CUDA {torch.version.cuda}, NCCL {'.'.join(map(str, torch.cuda.nccl.version()))}"
    return found


def _cpu():
    try:
        with open("/proc/cpuinfo") as lines:
            return next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or "unknown"
