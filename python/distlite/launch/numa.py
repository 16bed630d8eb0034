# SPDX-License-Identifier: BSD-3-Clause
"""The cores of a rank by `--numa-binding`, which has torchrun's four values.

A rank belongs to the NUMA node of the GPU with its number. If there are fewer GPUs than
ranks, ranks are spread evenly over the nodes, neighbours together.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

from distlite.launch.cores import read_text

MODES = ("node", "socket", "exclusive", "core-complex")
SYSTEM = "/sys"
GPUS = "/proc/driver/nvidia/gpus"


def cores_of_rank(mode: str, local_rank: int, ranks: int) -> set[int]:
    """Returns the cores of a rank; raises OSError that says why if there are none."""
    machine = Machine(os.sched_getaffinity(0))
    nodes = gpu_nodes()
    if len(nodes) < ranks:
        nodes = spread(ranks, machine.nodes())
    return machine.cores(mode, local_rank, nodes)


def spread(ranks: int, nodes: list[int]) -> list[int]:
    """Returns the node of each rank if GPUs do not decide it."""
    return [nodes[rank * len(nodes) // ranks] for rank in range(ranks)]


def gpu_nodes(folder: str = GPUS, root: str = SYSTEM) -> list[int]:
    """Returns the nodes of NVIDIA's GPUs that CUDA_VISIBLE_DEVICES makes visible; none
    if it does not name them by numbers."""
    try:
        addresses = sorted(os.listdir(folder))
        nodes = [
            # -1 if the machine has one node only.
            max(0, int(read_text(f"{root}/bus/pci/devices/{address}/numa_node")))
            for address in addresses
        ]
        shown = os.environ.get("CUDA_VISIBLE_DEVICES")
        return nodes if shown is None else [nodes[int(i)] for i in shown.split(",")]
    except (OSError, ValueError, IndexError):
        return []


class Machine:
    """The cores that may be used, by where they are."""

    def __init__(self, allowed: Iterable[int], root: str = SYSTEM) -> None:
        self._allowed = frozenset(allowed)
        self._root = root

    def nodes(self) -> list[int]:
        """Returns the nodes with cores; a single node if the kernel lists none."""
        try:
            nodes = sorted(
                numbers(read_text(f"{self._root}/devices/system/node/online"))
            )
        except OSError:
            return [0]
        return [node for node in nodes if self.cores_of_node(node)] or [0]

    def cores_of_node(self, node: int) -> set[int]:
        """Returns the cores of a node that this process may use."""
        try:
            text = read_text(f"{self._root}/devices/system/node/node{node}/cpulist")
        except OSError:
            return set(self._allowed) if node == 0 else set()
        return numbers(text) & self._allowed

    def cores(self, mode: str, index: int, nodes: list[int]) -> set[int]:
        """Returns the cores of rank `index`; `nodes` are the nodes of all ranks."""
        node = nodes[index]
        cores = self.cores_of_node(node)
        if not cores:
            raise OSError(
                f"--numa-binding: node {node} has no core that this process may use"
            )
        if mode == "node":
            return cores
        if mode == "socket":
            return self._cores_of_socket(cores, self.nodes())
        of_node = [i for i, each in enumerate(nodes) if each == node]
        place, count = of_node.index(index), len(of_node)
        if mode == "exclusive":
            return self._share(cores, node, place, count)
        caches = _grouped(cores, self._cache_of)
        # The caches with most cores come first.
        ordered = sorted(caches.items(), key=lambda item: (-len(item[1]), item[0]))
        return ordered[place % len(ordered)][1]

    def _cores_of_socket(self, cores: set[int], nodes: list[int]) -> set[int]:
        socket = self._socket_of(min(cores))
        every = [self.cores_of_node(node) for node in nodes]
        own = [each for each in every if each and self._socket_of(min(each)) == socket]
        return set().union(cores, *own)

    def _share(self, cores: set[int], node: int, place: int, count: int) -> set[int]:
        whole = [each for _, each in sorted(_grouped(cores, self._core_of).items())]
        least, more = divmod(len(whole), count)
        if least == 0:
            raise OSError(
                f"--numa-binding exclusive: node {node} has {len(whole)} core(s) for "
                f"{count} ranks; start fewer, or use --numa-binding node"
            )
        start = place * least + min(place, more)
        end = start + least + (place < more)
        return set().union(*whole[start:end])

    def _cpu(self, core: int) -> str:
        return f"{self._root}/devices/system/cpu/cpu{core}"

    def _socket_of(self, core: int) -> int:
        try:
            return int(read_text(f"{self._cpu(core)}/topology/physical_package_id"))
        except OSError:
            return 0

    def _core_of(self, core: int) -> int:
        """Returns the first of the threads of a core."""
        try:
            path = f"{self._cpu(core)}/topology/thread_siblings_list"
            return min(numbers(read_text(path)))
        except OSError:
            return core

    def _cache_of(self, core: int) -> int:
        """Returns the first of the cores that share the largest cache; without caches,
        the node."""
        folder = f"{self._cpu(core)}/cache"
        found: dict[int, int] = {}
        try:
            for name in os.listdir(folder):
                path = f"{folder}/{name}"
                if not name.startswith("index") or not name[5:].isdecimal():
                    continue
                if read_text(f"{path}/type").strip() in ("Unified", "Data"):
                    sharing = numbers(read_text(f"{path}/shared_cpu_list"))
                    found[int(read_text(f"{path}/level"))] = min(sharing)
        except OSError:
            return 0
        return found[max(found)] if found else 0


def _grouped(cores: set[int], key: Callable[[int], int]) -> dict[int, set[int]]:
    groups: dict[int, set[int]] = {}
    for core in cores:
        groups.setdefault(key(core), set()).add(core)
    return groups


def numbers(text: str) -> set[int]:
    """Parses a list as the kernel writes it: 0-2,4."""
    found: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found
