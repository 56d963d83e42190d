"""Settings of real PyTorch, measured beside what a prediction is made of, on ranks that a shaped link joins.

Each rank has a core and a network namespace of its own; tc's token bucket filter limits the link. In every round, in a
seeded random order, a rank measures each setting (predicted, never fitted to), isolated collectives, collectives beside
backward, and passes that bucketwise.torch captures. Needs root, ip, tc, unshare and nsenter; a comparison is skipped
(exit code 77), saying why, without them or without PyTorch. Namespaces have no names: the kernel takes them down with
the processes in them, however these end.
"""

import argparse
import contextlib
import csv
import json
import math
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "frameworks"), str(ROOT / "python")]

from on_ranks import is_there, run_on_ranks  # noqa: E402

MIB = 1 << 20
SKIPPED = 77
# The heap keeps what is freed, as a GPU's allocator does. Else every buffer that is made anew costs a page fault for
# each of its pages.
KEEPING_HEAP = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 40), "MALLOC_TOP_PAD_": str(1 << 26)}


# --- one rank ---


class Rank:
    """Two or more of these meet, and do the same things in the same order. A subclass says what is judged, captured and
    timed by itself: work()."""

    def __init__(self, rank, options, folder, training):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[rank % len(cores)]})
        global torch, dist
        import torch
        import torch.distributed as dist

        torch.set_flush_denormal(True)
        torch.manual_seed(rank)
        self.rank, self.options, self.folder, self.training = rank, options, folder, training
        self.inputs, self.targets = training.inputs(), training.targets()
        self.alone = self.model()  # outside of any wrapper
        self.processor_shares = []  # of its core, what computing alone got

    def model(self):
        return self.training.model()

    def loss(self, model):
        model.zero_grad(set_to_none=True)
        return torch.nn.functional.cross_entropy(model(self.inputs), self.targets)

    def by_rank(self, *values):
        mine = torch.tensor(values, dtype=torch.float64)
        all_ranks = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
        dist.all_gather(all_ranks, mine)
        return [values.tolist() for values in all_ranks]

    def slowest(self, values):
        return [max(each) for each in zip(*self.by_rank(*values))]

    def row(self, key, parts):
        """The row that judged() returns: `key`, and each rank's time of each part in ms, from this rank's in seconds."""
        by_rank = self.by_rank(*(1e3 * seconds for seconds in parts.values()))
        times = {f"rank{rank}_{part}ms": round(ms, 4) for rank, all_parts in enumerate(by_rank)
                 for part, ms in zip(parts, all_parts)}
        return {**key, **times}

    def record(self, kind, size, times):
        from bucketwise.torch.all_reduce import message_record

        return message_record(kind, self.transport(), size, times)

    def transport(self):
        from bucketwise.torch.all_reduce import transport_of

        return transport_of("gloo", dist.get_world_size())

    def queued_us(self, size, count):
        """Times of collectives from end to end, with the next always under way."""
        raise NotImplementedError

    def contended(self, size):
        """Collectives one after another on threads of their own, while this one runs backward over and over."""
        loss = self.loss(self.alone)

        def backward_us():
            self.alone.zero_grad(set_to_none=True)
            begin = time.perf_counter()
            loss.backward(retain_graph=True)
            return 1e6 * (time.perf_counter() - begin)

        backward_us()
        dist.barrier()
        processor_us = -1e6 * time.thread_time()
        times = [backward_us() for _ in range(2)]
        self.processor_shares.append((processor_us + 1e6 * time.thread_time()) / sum(times))
        alone = statistics.median(times)
        reduce_alone = self.slowest(self.queued_us(size, 5))
        # Enough for some three backward passes; the same number on all ranks.
        count = self.slowest([math.ceil(3 * alone / statistics.median(reduce_alone))])[0]
        reduce_disturbed, disturbed = [], []
        dist.barrier()
        thread = threading.Thread(target=lambda: reduce_disturbed.extend(self.queued_us(size, int(count))))
        thread.start()
        while thread.is_alive():
            took = backward_us()
            if thread.is_alive():  # else they stopped in between
                disturbed.append(took)
        thread.join()
        computing = self.by_rank(len(disturbed) * alone, sum(disturbed))
        return {"kind": "contention", **self.transport(), "bytes": size, "dtype": "float32",
                "allreduce_alone_us": reduce_alone, "allreduce_disturbed_us": self.slowest(reduce_disturbed),
                "compute_alone_us": [a for a, _ in computing], "compute_disturbed_us": [d for _, d in computing]}

    def measure(self, judged, described):
        """Works through all rounds. Rank 0 writes log.jsonl, the file `judged` of rows, and the file `described`."""
        order = random.Random(self.options["seed"])
        work = self.work()
        found = {"judged": [], "log": [], "captured": []}
        for number in range(-1, self.options["rounds"]):  # the first one warms up
            order.shuffle(work)
            for kind, action, arguments in work:
                record = action(*arguments)
                if number >= 0:
                    found[kind].append({**(record or {}), "round": number})
            if self.rank == 0:
                show_progress(number + 1, self.options["rounds"])
        if self.rank == 0:
            write_lines(self.folder / "log.jsonl", [self.environment(), *found["log"]])
            write_csv(self.folder / judged, found["judged"])
            share = statistics.median(self.processor_shares)
            write_json(self.folder / described,
                       {"torch": torch.__version__, "processor_share": share, **self.described()})

    def environment(self):
        from bucketwise.torch.all_reduce import environment

        chosen = {key: self.options[key] for key in ("seed", "rounds")}
        return {**environment(self.transport(), 1, False), **chosen, "command": [self.options["script"]],
                "link_rate": self.options["rate"], "scheduling": "each rank on a core of its own"}


# --- ranks and what joins them ---


class Skip(Exception):
    """Says what a comparison needs and does not find."""


@contextlib.contextmanager
def network(ranks, rate):
    """By rank the prefix of commands in its namespace, all joined."""
    holders = [
        subprocess.Popen(["unshare", "--net", "cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        for _ in range(ranks + (ranks > 2))  # the last one holds a bridge
    ]
    try:
        for holder in holders:
            wait_for_namespace(holder)
        enter = [["nsenter", "--target", str(holder.pid), "--net"] for holder in holders]
        join(holders, enter, ranks)
        for rank in range(ranks):
            shape(enter[rank], address_of(rank), rate)
        yield enter[:ranks]
    finally:
        for holder in holders:
            holder.kill()
            holder.wait()


def address_of(rank):
    return f"10.77.0.{rank + 1}"


def join(holders, enter, ranks):
    """Two by a cable, more by a bridge in the last namespace."""
    jumbo = ("mtu", "9000", "netns")
    if ranks == 2:
        first, second = (str(holder.pid) for holder in holders)
        run("ip", "link", "add", "name", "eth0", *jumbo, first, "type", "veth", "peer", "name", "eth0", *jumbo, second)
        return
    hub, bridge = enter[-1], str(holders[-1].pid)
    run(*hub, "ip", "link", "add", "name", "bridge", "mtu", "9000", "type", "bridge")
    run(*hub, "ip", "link", "set", "dev", "bridge", "up")
    for rank in range(ranks):
        own, port = str(holders[rank].pid), f"port{rank}"
        run("ip", "link", "add", "name", "eth0", *jumbo, own, "type", "veth", "peer", "name", port, *jumbo, bridge)
        run(*hub, "ip", "link", "set", "dev", port, "master", "bridge", "up")


def shape(prefix, address, rate):
    """Frames, bursts and queues as `bucketwise measure --link-rate` has them (hw/launch/shaped_network.cpp)."""
    bytes_per_s = bits_per_second(rate) / 8
    packet = min(max(round(bytes_per_s * 500e-6), 9014), 65536)
    burst = packet + 9014 + round(bytes_per_s * 100e-6)
    subnet = f"{address.rpartition('.')[0]}.0/24"
    for command in (
        "ip link set dev lo up",
        f"ip link set dev eth0 gso_max_size {packet}",
        f"ip address add {address}/24 dev eth0",
        "ip link set dev eth0 up",
        # Linux's default. With BBR, which this machine may have instead, large all-gathers took one of two times, the
        # longer one half as long again, as its probing had it.
        f"ip route replace {subnet} dev eth0 src {address} congctl cubic",
        f"tc qdisc add dev eth0 root tbf rate {rate} burst {burst} limit {8 * MIB}",
    ):
        run(*prefix, *command.split())


def wait_for_namespace(holder):
    own = os.readlink("/proc/self/ns/net")
    for _ in range(500):
        if holder.poll() is not None:
            break
        if os.readlink(f"/proc/{holder.pid}/ns/net") != own:
            return
        time.sleep(0.01)
    raise Skip("a network namespace cannot be made here")


def bits_per_second(rate):
    for unit, factor in (("gbit", 1e9), ("mbit", 1e6), ("kbit", 1e3)):
        if rate.endswith(unit):
            return float(rate[: -len(unit)]) * factor
    raise ValueError(f"expected a rate such as 1gbit or 300mbit, got {rate}")


def require(package, probe):
    """Raises Skip where a comparison cannot run. `probe`: an expression of Python, true where PyTorch is enough."""
    if not is_there("torch"):
        raise Skip("PyTorch is not installed for this Python")
    if package is not None and not is_there(package):
        raise Skip(f"{package} is not installed for this Python")
    if os.geteuid() != 0:
        raise Skip("needs root, for network namespaces")
    for program in ("ip", "tc", "unshare", "nsenter"):
        if shutil.which(program) is None:
            raise Skip(f"needs the program {program}")
    code = f"import sys, torch.distributed as d; sys.exit(not (d.is_available() and {probe}))"
    tried = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    if tried.returncode != 0:
        raise Skip(f"PyTorch here does not have {probe} {tried.stderr.strip()[-200:]}")


# --- the script ---


def parser_of(usage, rounds):
    """With the options that every comparison has. `rounds`: of a run that is not short."""
    parser = argparse.ArgumentParser(usage=usage)
    parser.add_argument("--bucketwise", type=program, required=True)
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--rate", default="1gbit")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--again", action="store_true")
    parser.set_defaults(ranks=2, usual_rounds=rounds, fewest_rounds=2, script=Path(sys.argv[0]).name)
    return parser


def program(text):
    if shutil.which(text) is None:
        raise argparse.ArgumentTypeError(f"expected a program, got {text}")
    return str(Path(shutil.which(text)).resolve())


def options_of(parser):
    """Parses; with --again what was measured before says how."""
    options = parser.parse_args()
    if options.rounds is None:
        options.rounds = 3 if options.short else options.usual_rounds
    if options.rounds < options.fewest_rounds:
        parser.error(f"--rounds: expected at least {options.fewest_rounds}, got {options.rounds}")
    try:
        bits_per_second(options.rate)
    except ValueError as error:
        parser.error(f"--rate: {error}")
    if options.again:
        stored = Path(options.output or "", "comparison.json")
        if options.output is None or not stored.is_file():
            parser.error(f"--again: expected -o with a folder that was measured into, got no {stored}")
        before = json.loads(stored.read_text())
        kept = {name: before[name] for name in ("rounds", "rate", "ranks", "short", "model", "recompute") if name in before}
        vars(options).update(kept, compile=before.get("compiled", False))
    return options


def compare(options, measure, judge, report, check=None, package=None, probe="True", variables=None):
    """Measures into a folder, or takes one that was measured into before, then judges and reports.

    measure(rank, ranks, options, folder) runs on each rank, with options as a dictionary; judge(options, folder) returns
    the comparison; check(comparison, folder) asserts that a short run is complete. Times are not checked.
    """
    try:
        if not options.again:
            require(package, probe)
        with tempfile.TemporaryDirectory() if options.output is None else contextlib.nullcontext(options.output) as name:
            folder = Path(name).resolve()
            folder.mkdir(parents=True, exist_ok=True)
            if not options.again:
                variables = {"MASTER_ADDR": address_of(0), "GLOO_SOCKET_IFNAME": "eth0", **(variables or {})}
                passed = {key: value for key, value in vars(options).items() if key != "output"}
                with network(options.ranks, options.rate) as prefixes:
                    run_on_ranks(measure, options.ranks, passed, str(folder), prefixes=prefixes, variables=variables)
            comparison = judge(options, folder)
            report(comparison)
            if check is not None and options.short and not options.again:
                check(comparison, folder)
    except Skip as reason:
        print(f"{Path(options.script).stem}: skipped: {reason}")
        sys.exit(SKIPPED)


# --- predicted beside measured ---


def calibrated_link(binary, folder, log, copies):
    """Writes link.json, and returns it. `copies`: the captured scenario that has the rate of copies."""
    run(binary, "calibrate", folder / log, "-o", folder / "link.json", "--fit", folder / "fit.json")
    link = read_json(folder / "link.json")
    link["copy_gb_per_s"] = read_json(folder / copies)["cluster"]["link"]["copy_gb_per_s"]
    write_json(folder / "link.json", link)
    return link


def with_means(folder, per_record):
    """Writes means.jsonl: the log with isolated collectives of each kind and size taking their mean. Where nothing hides
    what a step waits for, times add up, and with them their means. per_record: times of a record so made, or None for as
    many as it had."""
    records = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    times = {}
    for record in records:
        if "samples_us" in record:
            times.setdefault((record["kind"], record["bytes"]), []).extend(record["samples_us"])
    for record in records:
        if "samples_us" in record:
            mean = statistics.mean(times[record["kind"], record["bytes"]])
            record["samples_us"] = [mean] * (per_record or len(record["samples_us"]))
    write_lines(folder / "means.jsonl", records)


def read_slowest(file, key_of, part=""):
    """ms of the slowest rank in each round, by key_of(row). `part`: of the step, with _ at its end, where rows have
    several."""
    measured = {}
    with open(file) as lines:
        for row in csv.DictReader(lines):
            slowest = max(float(ms) for name, ms in row.items() if name.startswith("rank") and
                          name.partition("_")[2] == f"{part}ms")
            measured.setdefault(key_of(row), []).append(slowest)
    return measured


def bootstrap(values, draws):
    """95 % interval of the median over rounds."""
    medians = sorted(statistics.median(draws.choices(values, k=len(values))) for _ in range(1000))
    return [medians[25], medians[974]]


def point_of(part, times, predicted_ms, draws):
    """A setting's measured median and interval, its prediction and error."""
    median = statistics.median(times)
    return {f"measured_{part}_ms": median, "measured_interval_ms": bootstrap(times, draws),
            f"predicted_{part}_ms": predicted_ms, "error": predicted_ms / median - 1}


def mape_of(points):
    return statistics.mean(abs(point["error"]) for point in points)


def noise_floor_of(points, part):
    """Median half-width of the intervals, relative to the measured median."""
    return statistics.median((p["measured_interval_ms"][1] - p["measured_interval_ms"][0]) / 2 / p[f"measured_{part}_ms"]
                             for p in points)


def head_of(options, link, described):
    provenance = link["provenance"]
    return {"machine": f"{provenance['hardware']}; {provenance['versions']}; {provenance['date']}", **described,
            "rounds": options.rounds, "rate": options.rate, "ranks": options.ranks}


def print_head(comparison, what):
    print(f"PyTorch {comparison['torch']}, {what}, {comparison.get('ranks', 2)} ranks, Gloo, {comparison['rate']}, "
          f"{comparison['rounds']} rounds\n")
    if comparison["processor_share"] < 0.98:
        share = 100 * comparison["processor_share"]
        print(f"Other programs ran: computing got {share:.0f} % of its core. Times below tell little.\n")


def print_points(points, columns, part):
    """A table: `columns` by their heads, then ms of `part`."""
    heads = [*columns, "measured, ms", "95 %", "predicted, ms", "error"]
    print(f"| {' | '.join(heads)} |\n{'|---' * len(heads)}|")
    for p in points:
        cells = [f"{p[key]:g}" if isinstance(p[key], float) else str(p[key]) for key in columns.values()]
        low, high = p["measured_interval_ms"]
        cells += [f"{p[f'measured_{part}_ms']:.1f}", f"{low:.1f} to {high:.1f}", f"{p[f'predicted_{part}_ms']:.1f}",
                  f"{100 * p['error']:+.1f} %"]
        print(f"| {' | '.join(cells)} |")


# --- small things ---


def run(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{Path(sys.argv[0]).stem}: {' '.join(map(str, command))}: {done.stderr.strip()}")
    return done.stdout


def show_progress(done, all_of_them):
    if sys.stderr.isatty():
        print(f"\rround {done} of {all_of_them}", end="\n" if done == all_of_them else "", file=sys.stderr, flush=True)


def read_json(path):
    return json.loads(path.read_text())


def write_json(path, document):
    path.write_text(json.dumps(document, indent=1) + "\n")


def write_lines(path, records):
    path.write_text("".join(json.dumps(record, separators=(",", ":")) + "\n" for record in records))


def write_csv(path, rows):
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=["round", *(key for key in rows[0] if key != "round")])
        writer.writeheader()
        writer.writerows(rows)
