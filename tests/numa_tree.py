# SPDX-License-Identifier: BSD-3-Clause
"""A host's cores as the kernel describes them below /sys, made up for tests."""

from __future__ import annotations

from pathlib import Path

# Two sockets of two NUMA nodes; eight cores of two threads on each node, in two groups
# that share a cache.  Thread 64 + i is the second one of core i, as is usual.
NODES, CORES, THREADS = 4, 8, 2
TOTAL = NODES * CORES


def node_of(cpu: int) -> int:
    return cpu % TOTAL // CORES


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")


def listed(cpus: list[int]) -> str:
    return ",".join(map(str, cpus))


def make_tree(root: Path) -> Path:
    nodes = root / "devices/system/node"
    write(nodes / "online", f"0-{NODES - 1}")
    write(nodes / "possible", f"0-{NODES - 1}")
    for node in range(NODES):
        first = node * CORES
        spans = [f"{at}-{at + CORES - 1}" for at in (first, first + TOTAL)]
        write(nodes / f"node{node}/cpulist", ",".join(spans))
    for cpu in range(TOTAL * THREADS):
        folder = root / f"devices/system/cpu/cpu{cpu}"
        core = cpu % TOTAL
        write(folder / "topology/physical_package_id", str(node_of(cpu) // 2))
        write(folder / "topology/core_id", str(core))
        write(folder / "topology/thread_siblings_list", listed([core, core + TOTAL]))
        half = core // 4 * 4
        shared = [*range(half, half + 4), *range(half + TOTAL, half + TOTAL + 4)]
        for index, (level, kind, cpus) in enumerate(
            [
                (1, "Data", [core, core + TOTAL]),
                (1, "Instruction", [core, core + TOTAL]),
                (3, "Unified", shared),
            ]
        ):
            cache = folder / f"cache/index{index}"
            write(cache / "level", str(level))
            write(cache / "type", kind)
            write(cache / "shared_cpu_list", listed(cpus))
    return root
