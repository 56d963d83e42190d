"""The times that NCCL would expect of collectives, worked out from its sources and from nothing of ours.

Read for it, of the last release of each version (2.18.5, 2.20.5, 2.23.4, 2.27.7, 2.28.9, 2.30.7):
src/graph/tuning.cc (ncclTopoTuneModel, ncclTopoGetAlgoTime), src/enqueue.cc (what chooses, and how many
channels and threads a collective gets), src/graph/search.cc and src/graph/connect.cc (what the search would
find), src/transport/nvls.cc, src/graph/topo.h.

Numbers that NCCL keeps as float are rounded to float here where it stores them.
"""


import math
import struct

VERSIONS = ["2.18", "2.20", "2.23", "2.27", "2.28", "2.30"]
PROTOCOLS = ["LL", "LL128", "Simple"]
# In the order of NCCL's search; the first of equals wins.
ALGORITHMS = ["tree", "ring", "collnet direct", "collnet chain", "nvls", "nvls tree", "pat"]


def f32(value):
    return struct.unpack("f", struct.pack("f", value))[0]


def since(version, first):
    return VERSIONS.index(version) >= VERSIONS.index(first)


# --- what the search would find (assumed: sim/README.md, "What NCCL's search would find") ---


class Graph:
    def __init__(self, channels, intra, inter):
        self.channels = channels
        self.intra = f32(intra)  # GB/s of a channel
        self.inter = f32(inter)


class Machine:
    def __init__(self, topology, version, ranks):
        node, nccl, nics = topology["node"], topology["nccl"], topology.get("nics")
        self.version = version
        self.cap = nccl.get("compute_capability") or {
            "volta": 70, "ampere": 80, "hopper": 90, "blackwell": 100}[nccl["generation"]]
        self.cpu = nccl.get("cpu", "intel")
        self.ranks = ranks
        self.nodes = -(-ranks // node["gpus"])
        self.gpus = ranks if self.nodes == 1 else node["gpus"]  # of a node that take part
        self.per_node = f32(ranks / self.nodes)
        self.run_channels = nccl["channels"]
        self.nvlink = node["fabric"] == "nvlink"
        self.collnet = nccl.get("collnet", False) and self.nodes > 1
        self.nics = nics["per_node"] if nics else 0
        self.path = (nics or {}).get("path", "pxb")
        self.delay = f32(nics["latency_us"]) if self.nodes > 1 else 0.0
        self.one_tree_gpu = self.nodes > 1 and self.gpus == 1  # NCCL_TOPO_PATTERN_TREE
        self.same_channels = self.nodes == 1 or self.gpus == 1 or self.nics == 1
        least_gpus = 2 if since(version, "2.28") else 3
        self.nvls = (bool(node.get("multicast")) and self.nvlink and self.cap >= 90
                     and self.gpus >= least_gpus)
        self.search(node["bandwidth_gb_per_s"], nics["bandwidth_gb_per_s"] * self.nics if nics else 0)

    def search(self, gpu, net):
        half = max(self.run_channels // 2, 1)
        several = self.nodes > 1
        alone = self.gpus == 1
        ring = (net if alone else min(gpu, net)) if several else gpu
        tree = (2 * net if alone else min(gpu, 2 * ring)) if several else gpu
        self.ring = Graph(half, ring / half, ring / half)
        self.tree = Graph(half, tree / half, ring / half)
        self.chain = self.tree
        fast = since(self.version, "2.27") and self.cap >= 100
        most = (96 if fast else 48) if several else (90 if fast else 60)
        arity = 32 if since(self.version, "2.23") else 8
        heads = min(self.gpus, arity, self.nics if several else arity)
        if heads:
            limit = min(net / heads, most) if several else most
            intra = min(gpu / (heads + 1), limit)
            self.nvls_graph = Graph(heads, intra, min(limit, 2 * intra))
        self.heads = min(self.gpus, 8, self.nics)
        if several and self.heads:
            inter = net / self.heads
            shared = math.inf if alone else gpu / (1 + (self.heads - 1) / (self.gpus - 1))
            self.direct = Graph(self.heads, min(shared, 2 * inter), inter)

    def graph(self, algorithm):
        return {"tree": self.tree, "ring": self.ring, "pat": self.tree, "collnet chain": self.chain,
                "collnet direct": getattr(self, "direct", None)}.get(
                    algorithm, getattr(self, "nvls_graph", None))


# --- tables ---


def base_latency(version, algorithm, protocol):
    p = PROTOCOLS.index(protocol)
    if algorithm == "ring":
        return (6.6, 14.0, 8.4)[p]
    if algorithm == "tree":
        return (6.8, 14.0, 8.4 if since(version, "2.23") else 0.0)[p]
    if algorithm == "pat":
        return 8.0
    if version != "2.18":
        return 0.0
    return (6.8, 14.0, 0.0)[p] if "collnet" in algorithm else (0.0, 0.0, 23.0)[p]


def hop_latency(version, hardware, algorithm, protocol):
    """hardware: nvlink, pci or net."""
    p = PROTOCOLS.index(protocol)
    h = ("nvlink", "pci", "net").index(hardware)
    if algorithm == "ring":
        return ((0.6, 1.9, 3.4), (1.0, 2.5, 5.7), (2.7, 4.0, 14.0))[h][p]
    if algorithm == "tree":
        simple = {"2.18": (4.0, 6.0, 14.0), "2.20": (28.0, 28.0, 28.0)}.get(version, (4.0, 4.0, 14.0))
        return ((0.6, 1.25), (1.0, 1.9), (5.0, 8.5))[h][p] if p < 2 else simple[h]
    if protocol != "Simple":
        return 0.0
    first = version == "2.18"
    if algorithm == "collnet direct":
        return ((8.0, 8.0, 10.7) if first else (3.7, 3.7, 31.0))[h]
    if algorithm == "collnet chain":
        return ((4.75, 8.0, 14.0) if first else (2.8, 2.8, 30.0))[h]
    if algorithm == "pat":
        return (4.0, 4.0, 14.0)[h]
    inside = {"2.18": 0.0, "2.20": 23.0}.get(version, 25.0)
    if algorithm == "nvls":
        return (inside, 0.0, 18.0)[h]
    return (inside, 0.0, 19.0 if first else 20.9 if since(version, "2.28") else 14.0)[h]


def row_of(machine):
    if machine.cap >= 100 and since(machine.version, "2.27"):
        return 3
    return 2 if machine.cap >= 90 else 1 if machine.cap >= 80 else 0


def limit(machine, what):
    """GB/s: of a channel, or, of LL, in all."""
    v = machine.version
    column = min(machine.nodes, 3) - 1
    row = row_of(machine)
    if what == "ll":
        if machine.nodes > 1:
            row = 1 if machine.cpu == "amd" else 0
        hopper = (141.0, 45.0, 35.0) if since(v, "2.23") else (87.7, 22.5, 19.0)
        table = [(39.0, 39.0, 20.4), (87.7, 22.5, 19.0), hopper, (282.0, 90.0, 70.0)]
    elif what == "ring ll128":
        newest = {"2.27": (73.4,) * 3, "2.28": (73.4, 34.6, 73.4), "2.30": (40.0,) * 3}.get(v)
        table = [(20.0,) * 3, (20.0,) * 3, (36.7,) * 3, newest]
    elif what == "tree ll128":
        newest = (73.4, 73.4, 58.0) if v == "2.27" else (55.6, 31.67, 20.0)
        table = [(20.0,) * 3, (20.0,) * 3, (36.7, 36.7, 29.0), newest]
    elif what == "tree":
        newest = (77.4, 82.8, 72.0) if v == "2.27" else (70.0, 42.8, 24.0)
        table = [(26.5, 18.5, 10.0), (24.0, 23.6, 17.8), (38.7, 41.4, 36.0), newest]
    else:
        newest = (0.0, 96.0, 80.0 if v == "2.30" else 43.8)
        table = [(26.5, 18.5, 10.0), (24.0, 23.6, 17.8), (0.0, 57.7, 45.5), newest]
    return table[row][column]


# Trees, from 64 bytes on, for each doubling.
TREE_SHARE = {
    "LL": "1 1 1 1 .9 .8 .7 .7 .7 .7 .6 .5 .4 .4 .5 .6 .7 .8 .9 1 1 1 1 1",
    "LL128": "1 1 1 1 1 .9 .8 .8 .8 .7 .6 .6 .6 .6 .6 .6 .8 .9 .9 .9 .9 1 1 1",
    "Simple": ".9 .9 .9 .9 .9 .9 .9 .8 .7 .6 .6 .5 .5 .5 .5 .6 .7 .8 .7 .7 .8 .9 .9 .9"}
TREE_SHARE = {protocol: [f32(float(x)) for x in text.split()] for protocol, text in TREE_SHARE.items()}


# --- ncclTopoTuneModel ---


def scattered(kind):
    return kind in ("all-gather", "reduce-scatter")


def enabled(m, kind, algorithm, protocol):
    v = m.version
    if kind == "broadcast" and algorithm != "ring":
        return False
    if scattered(kind):
        also = {"2.18": [], "2.20": ["nvls", "collnet direct"]}.get(v, ["nvls", "collnet direct", "pat"])
        if algorithm not in ["ring"] + also:
            return False
    if algorithm not in ("ring", "tree") and protocol != "Simple":
        return False
    if algorithm == "pat":
        return scattered(kind) and m.nodes == m.ranks and m.cap >= 60
    if algorithm in ("nvls", "nvls tree"):
        if not m.nvls or (m.nodes == 1 and algorithm == "nvls tree"):
            return False
        if algorithm == "nvls" and m.nodes > 1 and not m.collnet:
            return False
        if since(v, "2.28") and m.nvls_graph.channels < 2:
            return False
        if scattered(kind) and m.gpus > 32:
            return False
        if scattered(kind) and m.nodes > 1 and not since(v, "2.27"):
            return False
    if "collnet" in algorithm:
        if not m.collnet or m.gpus > 8 or (algorithm == "collnet direct" and not m.nvlink):
            return False
    if algorithm in ("nvls", "collnet direct") and scattered(kind) and m.nodes > 1:
        if m.gpus > m.heads:  # each GPU needs a NIC
            return False
    if protocol == "LL128":
        if m.gpus > 1 and not m.nvlink:
            return False
        if not since(v, "2.27") and m.cap not in (70, 80, 90):
            return False
        if m.cap < 70:
            return False
        # src/graph/topo.h: PIX, PXB, P2C (from 2.27 on; a host bridge before), PXN, PHB.
        if m.nodes > 1 and m.path != "pxb":
            if m.path == "phb" or not since(v, "2.27") or m.cap < 90:
                return False
    return True


def bandwidth(m, kind, algorithm, protocol):
    """GB/s of the algorithm."""
    v = m.version
    graph = m.graph(algorithm)
    many = m.nodes > 2
    bw = graph.inter if many and "collnet" not in algorithm else graph.intra
    if algorithm in ("nvls", "nvls tree"):
        bw = nvls_channel(m, kind, algorithm, graph)
    bus = f32(graph.channels * bw)
    if algorithm == "ring" and protocol == "LL":
        if since(v, "2.23"):
            share = 0.5
        else:
            share = 1 / 4 if m.nodes > 1 or kind == "all-reduce" else 1 / 3
        bus = f32(min(limit(m, "ll"), bus * share))
    if algorithm == "ring" and protocol == "LL128":
        share = 0.7 if not since(v, "2.23") and m.per_node < 2 else 0.92
        bus = f32(min(bus * share, graph.channels * limit(m, "ring ll128")))
    if algorithm == "tree":
        bus = f32(min(bus * 0.92, graph.channels * limit(m, "tree")))
        if protocol == "LL":
            bus = f32(min(bus / 3.8, limit(m, "ll")))
        if protocol == "LL128":
            share = 7 / 9 if m.nodes == 1 else 120 / 128
            bus = f32(min(bus * share, graph.channels * limit(m, "tree ll128")))
        if m.one_tree_gpu:
            bus = f32(bus * 0.85)
    if algorithm == "pat":
        bus = f32(bus * (0.85 if v == "2.23" else 0.75))
    if algorithm == "collnet direct":
        if scattered(kind):
            if since(v, "2.27"):
                bus = f32(m.per_node * min(graph.intra, f32(graph.inter * f32(0.9))))
            else:
                bus = f32(m.per_node * bw)
                w = f32((m.per_node - 1) / 7)
                bus = f32(bus * (w * 0.85 + (1 - w) * 0.95))
        else:
            factor = f32(m.per_node / graph.channels)
            factor = f32(factor - f32(f32(factor - 1) / 2))
            bus = f32(bus / factor)
            if m.cap >= 90:
                bus = f32(bus * 0.85)
    # From the wire to the buffer.
    p = m.ranks
    steps = {"all-reduce": 2 * (p - 1), "broadcast": p}.get(kind, p - 1)
    if algorithm == "ring":
        return f32(bus * f32(p / steps))
    if scattered(kind):
        if v == "2.20" and algorithm == "nvls":
            return f32(bus * f32(5 / 6))
        return bus
    if algorithm == "nvls":
        return f32(bus * f32(p / steps if since(v, "2.28") else 5 / 6))
    if algorithm == "nvls tree":
        if v == "2.18":
            return f32(bus * f32(0.70 * m.nodes / (2 * (m.nodes - 1))))
        return f32(bus * f32(p / steps if since(v, "2.28") else 5 / 6))
    return f32(bus * 0.5)


def nvls_channel(m, kind, algorithm, graph):
    v = m.version
    if v == "2.18":
        return graph.intra if m.nodes <= 2 else graph.inter
    if since(v, "2.28"):
        works = f32({2: 0.85, 3: 0.74}[row_of(m)])
        intra = f32(f32(graph.intra * works * (graph.channels - 1)) / graph.channels)
        intra = f32(intra * 2) if kind == "all-reduce" else f32(intra * f32((m.per_node - 1) / m.per_node))
        if algorithm == "nvls":
            return min(intra, graph.inter)
        inter = f32(graph.inter * (2 if m.nodes <= 2 else 1))
        return min(intra, inter, f32(limit(m, "nvls tree")))
    if algorithm == "nvls tree":
        return min(graph.intra, graph.inter if m.nodes <= 2 else f32(graph.inter / 2))
    if scattered(kind) and v == "2.27":
        return min(f32(graph.intra * f32(m.per_node - 1) / m.per_node), f32(graph.inter * f32(0.9)))
    return min(graph.intra, graph.inter)


def latency(m, kind, algorithm, protocol):
    """us."""
    v = m.version
    new = since(v, "2.23")
    simple = protocol == "Simple"
    inside = "nvlink" if m.nvlink and m.gpus > 1 else "pci"
    where = inside if m.nodes == 1 else "net"

    def hop(hardware, of):
        if m.cpu == "power" and (hardware, of, protocol) == ("pci", "tree", "Simple"):
            of = "ring"
        return f32(hop_latency(v, hardware, of, protocol))

    total = f32(base_latency(v, algorithm, protocol))
    intra = hop(inside, algorithm)
    inter = hop("net", "tree" if new and m.per_node == 1 else algorithm)
    inter = f32(inter + m.delay)
    if simple:
        inter = f32(inter + m.delay)
    p, n = m.ranks, m.nodes
    whole = p // n  # GPUs of a node, rounded down
    doublings = n.bit_length() - 1
    if algorithm == "ring":
        if kind == "broadcast":
            lat = hop(where, algorithm)
            if m.same_channels:
                return f32(total + lat)
            if simple:
                lat = hop(where, "tree")
            return f32(total + p * lat)
        if n > 1:
            overhead = f32((2.0 if m.cpu == "amd" else 1.0) * (3 if simple else 1))
            intra = max(intra, overhead)
        twice = 2 if kind == "all-reduce" else 1
        between = twice * (n - 1)
        if kind == "all-reduce" and not new and n > 1:
            between = 2 * n
        return f32(total + f32((twice * (p - 1) - between) * intra) + f32(between * inter))
    if algorithm == "tree":
        return f32(total + 2 * f32((whole - 1) * intra + doublings * inter))
    if algorithm == "collnet direct":
        each = 0.5 if v == "2.18" else 0.4
        return f32(total + 2 * (min(1, whole - 1) * intra + (whole - 1) * each) + inter)
    if algorithm == "collnet chain":
        return f32(total + 2 * (whole - 1) * intra + inter)
    if algorithm == "nvls":
        if v == "2.18":
            return f32(total + (hop("net", algorithm) if n > 1 else 0))
        return f32(intra + (inter if n > 1 else 0))
    if algorithm == "nvls tree":
        if v == "2.18":
            return f32(total + 2 * (n - 1) * hop("net", algorithm))
        return f32(total + f32(intra + 2 * doublings * inter))
    return f32(total + doublings * (inter / 3.5) + p * 2.8)


# --- ncclTopoGetAlgoTime ---


def time_us(m, kind, algorithm, protocol, size):
    bw = bandwidth(m, kind, algorithm, protocol)
    lat = latency(m, kind, algorithm, protocol)
    if bw == 0:
        return None
    cells = size >> 6
    step = cells.bit_length() - 1
    if step < 0 and not since(m.version, "2.23"):
        step = 0
    if algorithm == "tree" and 0 <= step < 23:
        bw = f32(bw * TREE_SHARE[protocol][step])
    x86 = m.cpu in ("intel", "amd")
    if algorithm == "nvls tree" and m.version == "2.30" and m.cap >= 100 and x86 and 0 <= step < 24:
        bw = f32(bw * TREE_SHARE[protocol][step])
    if (algorithm, protocol, kind) == ("ring", "Simple", "all-reduce") and m.nodes > 1:
        if size // (m.run_channels * m.ranks) >= 64:
            lat = f32(lat * (1.9 if m.cap < 80 else 1.4))
    return f32(lat + f32(f32(size) / f32(1000 * bw)))


# --- channels and threads ---


def blocks_and_threads(m, kind, algorithm, protocol, size):
    v = m.version
    nvls = 16
    if since(v, "2.27") and m.cap >= 100:
        nvls = 32 if m.nodes > 1 else 24
    channels = m.run_channels
    slow = f32(m.ring.intra * m.ring.channels) <= 12
    threads = {"LL": 512, "LL128": 640, "Simple": 256 if slow and algorithm == "ring" else 512}[protocol]
    if algorithm not in ("ring", "tree"):
        threads = 640
    if algorithm == "pat":
        threads = 0  # never set
    each = {"LL": 8 * (m.ranks if algorithm == "ring" else 1), "LL128": 8, "Simple": 64}[protocol]
    if "collnet" in algorithm:
        each = 512
    if algorithm == "collnet direct":
        stop, short = 16, True
        while stop >= 1 and short:
            while True:
                short = size < channels * threads * m.heads * each
                if not (short and channels > stop):
                    break
                if channels == stop + stop // 2:
                    each //= 2
                channels -= 1
            stop //= 2
    elif "nvls" in algorithm:
        channels = nvls
        if since(v, "2.28") and algorithm == "nvls" and m.nodes > 1:
            channels = min(nvls, m.run_channels)
    else:
        while size < channels * threads * each and channels > 1:
            channels -= 1
    if algorithm not in ("collnet direct", "nvls", "nvls tree"):
        while size < channels * threads * each and threads % 128 == 0:
            threads //= 2
    if protocol == "Simple":
        threads += {"ring": 32, "tree": 128}.get(algorithm, 0)
    threads = max(threads, 96)
    if since(v, "2.23") and algorithm in ("tree", "pat"):
        threads = 640
    on_collnet = "collnet" in algorithm or (algorithm == "nvls" and m.nodes > 1)
    if not since(v, "2.23") or on_collnet:
        return channels, threads
    # scheduleCollTasksToPlan, one collective alone.
    per_byte = {"all-reduce": 2, "broadcast": 1}.get(kind, m.ranks)
    own = size // m.ranks if scattered(kind) else size
    quadruple = 4 if protocol == "LL" and since(v, "2.27") else 1
    traffic = max(16384, own * per_byte * quadruple)
    share = traffic // channels
    share = -(-share // 16) * 16 if v == "2.30" else max(16384, share)
    per_byte *= quadruple
    cell = -(-(-(-16384 // per_byte)) // 16) * 16
    cells = max(-(-own // cell), 1)
    cells_each = min(cells, -(-share // (cell * per_byte)))
    most = nvls if "nvls" in algorithm else m.run_channels
    return min(most, -(-cells // cells_each)), threads


def pairs(m, kind, size):
    found = {}
    for algorithm in ALGORITHMS:
        for protocol in PROTOCOLS:
            if enabled(m, kind, algorithm, protocol):
                us = time_us(m, kind, algorithm, protocol, size)
                if us is not None:
                    blocks, threads = blocks_and_threads(m, kind, algorithm, protocol, size)
                    found[f"{algorithm} {protocol}"] = [float(f"{us:.7g}"), blocks, threads]
    return dict(sorted(found.items(), key=lambda item: item[1][0]))
