# SPDX-License-Identifier: BSD-3-Clause
"""The measured side of hosts_many.py: all ranks of one library, forked processes.

    hosts_many_peer.py MODULE HOSTS RANKS_PER_HOST CELLS
    mpiexec ... hosts_many_peer.py mpi4py HOSTS RANKS_PER_HOST CELLS

MODULE is distlite, torch.distributed or mpi4py, whose launcher starts the ranks, and
CELLS "operation:bytes:calls,...", with the most calls that are timed.  Writes a line of
JSON as soon as a step or a cell is measured: milliseconds of the slowest rank.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import tempfile
import time
import urllib.parse  # noqa: F401 - so that no rank has to import it
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import IO, Any

import numpy as np

ROOT = 0
# Milliseconds that a cell may take, by its first call; one more is timed anyway.
CELL_MILLISECONDS = 2000


def arrays_of(torch: Any, count: int) -> Any:
    """An array of `count` float32, of the kind that the library takes."""
    array = np.ones(count, np.float32)
    return array if torch is None else torch.from_numpy(array)


def call_of(dist: Any, torch: Any, op: str, size: int, ranks: int) -> Callable[[], Any]:
    """The operation; `size` is that of each rank's array, or of the result where this
    has the blocks of all ranks."""
    whole = arrays_of(torch, max(size // 4, 1))
    if op == "barrier":
        return dist.barrier
    if op == "all_reduce":
        return lambda: dist.all_reduce(whole)
    if op == "broadcast":
        return lambda: dist.broadcast(whole, ROOT)
    blocks = [arrays_of(torch, max(size // 4 // ranks, 1)) for _ in range(ranks)]
    block = arrays_of(torch, max(size // 4 // ranks, 1))
    if op == "all_gather":
        return lambda: dist.all_gather(blocks, block)
    if op == "reduce_scatter":
        return lambda: dist.reduce_scatter(block, blocks)
    others = [arrays_of(torch, max(size // 4 // ranks, 1)) for _ in range(ranks)]
    if torch is not None:
        return lambda: dist.all_to_all_single(torch.cat(others), torch.cat(blocks))
    return lambda: dist.all_to_all(others, blocks)


def mpi_call_of(mpi: Any, op: str, size: int, ranks: int) -> Callable[[], Any]:
    """The same operation of mpi4py, whose blocks are side by side."""
    world = mpi.COMM_WORLD
    whole = arrays_of(None, max(size // 4, 1))
    block = arrays_of(None, max(size // 4 // ranks, 1))
    blocks, others = (arrays_of(None, block.size * ranks) for _ in range(2))
    calls: dict[str, Callable[[], Any]] = {
        "barrier": world.Barrier,
        "all_reduce": lambda: world.Allreduce(mpi.IN_PLACE, whole),
        "broadcast": lambda: world.Bcast(whole, ROOT),
        "all_gather": lambda: world.Allgather(block, blocks),
        "reduce_scatter": lambda: world.Reduce_scatter_block(blocks, block),
        "all_to_all": lambda: world.Alltoall(others, blocks),
    }
    return calls[op]


def time_of(call: Callable[[], Any], calls: int = 1) -> float:
    """Milliseconds of a call."""
    start = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - start) * 1e3 / calls


def time_cells(
    cells: str,
    call_of: Callable[[str, int], Callable[[], Any]],
    barrier: Callable[[], Any],
    share: Callable[[Any], Any],
) -> Iterator[tuple[str, float]]:
    """Milliseconds of this rank, by cell.  `share` broadcasts an array of the root,
    whose first call decides how many are timed."""
    for cell in filter(None, cells.split(",")):
        op, size, most = cell.split(":")
        call = call_of(op, int(size))
        affordable = CELL_MILLISECONDS / time_of(call)
        calls = np.array([min(int(most), max(int(affordable), 1))], np.int32)
        share(calls)
        barrier()
        took = time_of(call, int(calls[0]))
        # A rank that is done would take the others' cores for the next cell.
        barrier()
        yield f"{op}:{size}", took


def run_rank(
    module: str, rank: int, hosts: int, per_host: int, cells: str, at: str
) -> Iterator[tuple[str, float]]:
    """One rank; milliseconds by step."""
    os.environ["DISTLITE_HOST_HINT"] = f"host {rank // per_host}"
    dist = importlib.import_module(module)
    torch = importlib.import_module("torch") if module.startswith("torch") else None
    ranks = hosts * per_host

    def share(array: Any) -> None:
        dist.broadcast(array if torch is None else torch.from_numpy(array), ROOT)

    yield (
        "init",
        time_of(
            lambda: dist.init_process_group(
                "gloo", init_method=f"file://{at}", rank=rank, world_size=ranks
            )
        ),
    )
    yield "first barrier", time_of(dist.barrier)
    yield from time_cells(
        cells,
        lambda op, size: call_of(dist, torch, op, size, ranks),
        dist.barrier,
        share,
    )
    yield "descriptors", len(os.listdir("/proc/self/fd"))
    dist.barrier()
    dist.destroy_process_group()


def run_mpi_rank(cells: str) -> None:
    """A rank that a launcher has started, which has waited for all others to start when
    MPI is initialised: that is not timed."""
    mpi = importlib.import_module("mpi4py.MPI")
    world = mpi.COMM_WORLD
    first = [("first barrier", time_of(world.Barrier))]
    timed = time_cells(
        cells,
        lambda op, size: mpi_call_of(mpi, op, size, world.size),
        world.Barrier,
        lambda array: world.Bcast(array, ROOT),
    )
    for name, took in chain(first, timed):
        print_slowest(name, world.gather(took))


def print_slowest(name: str, told: Sequence[float] | None) -> None:
    """A line of JSON, where the times of all ranks are known."""
    if told is not None:
        print(json.dumps({name: max(told)}), flush=True)


def collect(results: Sequence[IO[str]]) -> None:
    """Prints what the ranks write, a step at a time, until they end."""
    while any(lines := [result.readline() for result in results]):
        if not all(lines):
            sys.exit(f"{lines.count('')} ranks failed")
        steps = [json.loads(line) for line in lines]
        print_slowest(steps[0][0], [took for _, took in steps])


def main() -> None:
    """Forks the ranks, which share the imported modules, and begin together."""
    module, hosts, per_host, cells = sys.argv[1:]
    if module == "mpi4py":
        run_mpi_rank(cells)
        return
    importlib.import_module(module)
    results = []
    wait, begin = os.pipe()
    with tempfile.TemporaryDirectory() as folder:
        at = f"{folder}/store"
        for rank in range(int(hosts) * int(per_host)):
            read, write = os.pipe()
            if os.fork() == 0:
                for inherited in (read, begin, *(r.fileno() for r in results)):
                    os.close(inherited)
                os.read(wait, 1)
                for step in run_rank(
                    module, rank, int(hosts), int(per_host), cells, at
                ):
                    os.write(write, f"{json.dumps(step)}\n".encode())
                os._exit(0)
            os.close(write)
            results.append(os.fdopen(read))
        os.close(begin)
        collect(results)


if __name__ == "__main__":
    main()
