#!/usr/bin/env python3
"""Times that NCCL would expect of collectives (nccl_model.py) on made-up machines.

    nccl_model_table.py > tests/data/nccl/model_times.json
    nccl_model_table.py --check tests/data/nccl/model_times.json

A case is a machine, as a link file's topology has it, a version, a collective and a size; its pairs are all that
NCCL would consider, each with microseconds, thread blocks and threads of a block.
"""

import json
import sys

from nccl_model import VERSIONS, Machine, pairs, scattered


def machine(gpus, gb_per_s, generation, channels, nics=None, fabric="nvlink", multicast=False, **nccl):
    topology = {"node": {"gpus": gpus, "fabric": fabric, "multicast": multicast,
                         "bandwidth_gb_per_s": gb_per_s}}
    if nics:
        per_node, each, us, *path = nics
        topology["nics"] = {"per_node": per_node, "bandwidth_gb_per_s": each, "latency_us": us,
                            **({"path": path[0]} if path else {})}
    topology["nccl"] = {"generation": generation, "channels": channels, **nccl}
    return topology


# Name: topology, ranks.
MACHINES = {
    "8 V100": (machine(8, 132, "volta", 12), 8),
    "2 x 8 V100": (machine(8, 132, "volta", 12, (4, 11, 5)), 16),
    "8 A100": (machine(8, 235, "ampere", 24), 8),
    "4 A40 on PCIe": (machine(4, 18, "ampere", 4, fabric="pcie", compute_capability=86), 4),
    "2 L40 at PCIe 3": (machine(2, 9, "ampere", 2, fabric="pcie", compute_capability=89, cpu="amd"), 2),
    "2 x 8 A100": (machine(8, 235, "ampere", 24, (8, 23.5, 2), cpu="amd"), 16),
    "8 x 8 A100, one NIC": (machine(8, 235, "ampere", 24, (1, 11, 5)), 64),
    "8 H100": (machine(8, 365, "hopper", 16, multicast=True), 8),
    "4 H100": (machine(8, 365, "hopper", 24, multicast=True), 4),
    "2 H100": (machine(8, 365, "hopper", 24, multicast=True), 2),
    "2 x 8 H100": (machine(8, 365, "hopper", 16, (8, 45, 20), multicast=True, cpu="amd"), 16),
    "8 x 8 H100": (machine(8, 365, "hopper", 16, (8, 47, 2), multicast=True), 64),
    "3 nodes of H100, one not full": (machine(8, 365, "hopper", 16, (8, 47, 2), multicast=True), 20),
    "4 x 8 H100 with SHARP": (machine(8, 365, "hopper", 16, (8, 47, 2), multicast=True, collnet=True), 32),
    "2 x 8 A100 with SHARP, 4 NICs": (machine(8, 235, "ampere", 8, (4, 23.5, 2), collnet=True), 16),
    "4 x 1 H100 with SHARP": (machine(1, 365, "hopper", 4, (1, 47, 2), collnet=True), 4),
    "16 x 4 GH200": (machine(4, 365, "hopper", 16, (4, 47, 1), multicast=True, cpu="arm"), 64),
    "4 x 4 GH200, NICs behind CPUs": (machine(4, 340, "hopper", 24, (4, 23.5, 2, "p2c"), cpu="arm"), 16),
    "8 x 4 A100, NICs behind CPUs": (machine(4, 235, "ampere", 24, (2, 18, 2, "phb"), cpu="amd"), 32),
    "16 x 1 H100": (machine(1, 365, "hopper", 2, (1, 47, 2)), 16),
    "2 x 1 A100 on PCIe": (machine(1, 24, "ampere", 4, (1, 11, 5), fabric="pcie", cpu="amd"), 2),
    "4 x 4 V100 on POWER": (machine(4, 30, "volta", 8, (2, 11, 3), fabric="pcie", cpu="power"), 16),
    "8 B200": (machine(8, 710, "blackwell", 16, multicast=True), 8),
    "2 x 8 B200": (machine(8, 710, "blackwell", 16, (8, 47, 2), multicast=True), 16),
    "4 x 8 B200": (machine(8, 710, "blackwell", 32, (8, 90, 2), multicast=True, cpu="amd"), 32),
    "8 x 4 GB200": (machine(4, 710, "blackwell", 16, (4, 47, 2), multicast=True, cpu="arm"), 32),
    "2 RTX 6000 of Blackwell": (machine(2, 36, "blackwell", 4, fabric="pcie", multicast=True,
                                        compute_capability=120), 2),
}
SIZES = [40, 64, 4096, 65536, 300_000, 1 << 20, 6_000_000, 25 << 20, 1 << 26, 1 << 30]
COLLECTIVES = ["all-reduce", "all-gather", "reduce-scatter", "broadcast"]


def cases():
    turn = 0
    for version in VERSIONS:
        for name, (topology, ranks) in MACHINES.items():
            m = Machine(topology, version, ranks)
            for kind in COLLECTIVES:
                for _ in range(2 if kind == "all-reduce" else 1):
                    turn += 1
                    if kind != "all-reduce" and turn % 3 != 0:
                        continue
                    size = SIZES[(7 * turn + turn // 10) % len(SIZES)]
                    if scattered(kind):
                        size -= size % ranks
                    yield {"machine": name, "version": version, "collective": kind, "bytes": size,
                           "pairs": pairs(m, kind, size)}


def table():
    lines = ['{"machines": {']
    lines += [",\n".join(f"{json.dumps(name)}: {json.dumps({'ranks': ranks, 'topology': topology})}"
                         for name, (topology, ranks) in MACHINES.items())]
    lines += ['}, "cases": [', ",\n".join(json.dumps(case) for case in cases()), "]}"]
    return "\n".join(lines) + "\n"


def main():
    if len(sys.argv) == 3 and sys.argv[1] == "--check":
        with open(sys.argv[2], encoding="utf-8") as file:
            if file.read() != table():
                sys.exit(f"{sys.argv[2]}: not what {sys.argv[0]} writes")
    elif len(sys.argv) == 1:
        print(table(), end="")
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
