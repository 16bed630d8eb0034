# SPDX-License-Identifier: BSD-3-Clause
"""The measured side of init.py: one rank of one library, from import to the end.

    init_peer.py PEER RANK SIZE FOLDER

Every rank writes a line of JSON to a file FOLDER/said*.  NumPy is imported before the
clock starts.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

MODULES = {"distlite": "distlite", "torch": "torch.distributed"}


class Clock:
    """Milliseconds of one step after the other."""

    def __init__(self) -> None:
        self.steps: dict[str, float] = {}

    def time(
        self, name: str, step: Callable[..., Any], *words: Any, **more: Any
    ) -> Any:
        """Take the step."""
        start = time.perf_counter()
        value = step(*words, **more)
        self.steps[name] = (time.perf_counter() - start) * 1e3
        return value


def memory_mib() -> float:
    """Returns this process's share of memory: pages that ranks share are divided among
    them."""
    with open("/proc/self/smaps_rollup") as rollup:
        (kib,) = (line.split()[1] for line in rollup if line.startswith("Pss:"))
    return int(kib) / 1024


def meet(folder: str, size: int, what: str) -> None:
    """Waits until all ranks have done that: the differences between their starts are
    due to the launcher, and would be most of the time of a quick init."""
    tempfile.mkstemp(dir=folder, prefix=what)
    while sum(name.startswith(what) for name in os.listdir(folder)) < size:
        time.sleep(0.001)


def run_dist(clock: Clock, peer: str, rank: int, size: int, folder: str) -> float:
    """distlite or torch; seconds since boot at the end of the first op."""
    dist = clock.time("import", importlib.import_module, MODULES[peer])
    meet(folder, size, "imported")
    where = {"init_method": f"file://{folder}/store", "rank": rank, "world_size": size}
    clock.time("init", dist.init_process_group, "gloo", **where)
    array = np.ones(2, np.float32)
    if peer == "torch":
        array = importlib.import_module("torch").from_numpy(array)
    clock.time("first all_reduce", dist.all_reduce, array)
    end = time.monotonic()
    dist.barrier()
    clock.steps["memory"] = memory_mib()
    dist.barrier()
    if hasattr(dist, "new_group"):
        clock.time("new_group", dist.new_group, list(range(size)))
    clock.time("destroy", dist.destroy_process_group)
    if hasattr(dist, "stateless_group"):
        port = Path(folder, "port")
        if rank == 0:
            socket = importlib.import_module("socket")  # not before: joining loads it
            with socket.create_server(("127.0.0.1", 0)) as free:
                port.write_text(str(free.getsockname()[1]))
        meet(folder, size, "left")
        address = f"127.0.0.1:{port.read_text()}"
        clock.time("stateless_group", dist.stateless_group, address, rank, size)
    return end


def run_mpi(clock: Clock) -> float:
    """mpi4py, which would otherwise join its world in the import."""
    importlib.import_module("mpi4py").rc.initialize = False
    mpi = clock.time("import", importlib.import_module, "mpi4py.MPI")
    clock.time("init", mpi.Init)
    world = mpi.COMM_WORLD
    array = np.ones(2, np.float32)
    clock.time("first all_reduce", world.Allreduce, mpi.IN_PLACE, array)
    end = time.monotonic()
    world.Barrier()
    clock.steps["memory"] = memory_mib()
    world.Barrier()
    clock.time("new_group", world.Split, 0, world.Get_rank())
    clock.time("destroy", mpi.Finalize)
    return end


def main(peer: str, rank: str, size: str, folder: str) -> None:
    """All steps."""
    clock = Clock()
    before, start = memory_mib(), time.monotonic()
    if peer == "mpi":
        end = run_mpi(clock)
    else:
        end = run_dist(clock, peer, int(rank), int(size), folder)
    clock.steps["memory"] -= before
    line = json.dumps({"start": start, "end": end, **clock.steps})
    # MPI's ranks do not get their number, so the names are random.
    with tempfile.NamedTemporaryFile("w", dir=folder, prefix="said", delete=False) as f:
        f.write(line + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
