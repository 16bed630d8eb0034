# SPDX-License-Identifier: BSD-3-Clause
"""The mpi backend beside mpi4py's own calls on the same library, in turns.

mpirun -n 2 python benchmarks/backends_mpi.py [--least] [--only reduce_scatter]

For each operation and size the median of both in microseconds, and their ratio.  Turns
are short and many, so that on a busy machine the least of them was left undisturbed.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections import defaultdict
from collections.abc import Callable

import numpy as np
import plots
from mpi4py import MPI

import distlite

SIZES = [8 << (3 * step) for step in range(8)]
# Bytes of one turn, and of all, but no more than so many calls.
TURN, ALL = 1 << 19, 1 << 28
MOST_CALLS, MOST_TURNS, LEAST_TURNS = 20, 200, 40
WORLD = MPI.COMM_WORLD
Pair = tuple[Callable[[], object], Callable[[], object]]


def pairs(size: int) -> dict[str, Pair]:
    """Ours and theirs, by operation, of arrays of `size` bytes on each rank."""
    rank, ranks = WORLD.rank, WORLD.size
    array = np.ones(size // 8)
    result, all_of, other = array.copy(), np.ones((ranks, len(array))), array.copy()
    sent = np.ones_like(all_of)
    peer = rank ^ 1

    def our_exchange() -> None:
        if rank % 2:
            distlite.recv(other, peer)
            distlite.send(array, peer)
        else:
            distlite.send(array, peer)
            distlite.recv(other, peer)

    def their_exchange() -> None:
        if rank % 2:
            WORLD.Recv(other, peer)
            WORLD.Send(array, peer)
        else:
            WORLD.Send(array, peer)
            WORLD.Recv(other, peer)

    found: dict[str, Pair] = {
        "all_reduce": (
            lambda: distlite.all_reduce(result, distlite.ReduceOp.MAX),
            lambda: WORLD.Allreduce(MPI.IN_PLACE, result, MPI.MAX),
        ),
        "broadcast": (
            lambda: distlite.broadcast(array, 0),
            lambda: WORLD.Bcast(array, 0),
        ),
        "all_gather": (
            lambda: distlite.all_gather_single(all_of, array),
            lambda: WORLD.Allgather(array, all_of),
        ),
        "all_to_all": (
            lambda: distlite.all_to_all_single(all_of, sent),
            lambda: WORLD.Alltoall(sent, all_of),
        ),
        "reduce_scatter": (
            lambda: distlite.reduce_scatter_single(array, sent),
            lambda: WORLD.Reduce_scatter_block(sent, array),
        ),
    }
    blocks = [None if rank else list(rows) for rows in (sent, all_of)]
    found["reduce"] = (
        lambda: distlite.reduce(result, 0, distlite.ReduceOp.MAX),
        lambda: WORLD.Reduce(MPI.IN_PLACE if rank == 0 else result, result, MPI.MAX, 0),
    )
    found["gather"] = (
        lambda: distlite.gather(array, blocks[1], 0),
        lambda: WORLD.Gather(array, None if rank else all_of, 0),
    )
    found["scatter"] = (
        lambda: distlite.scatter(array, blocks[0], 0),
        lambda: WORLD.Scatter(None if rank else sent, array, 0),
    )
    if size == min(SIZES):
        found["barrier"] = (distlite.barrier, WORLD.Barrier)
    if ranks % 2 == 0:
        found["send, recv"] = (our_exchange, their_exchange)
    return found


def measure(call: Callable[[], object], repeats: int) -> float:
    WORLD.Barrier()
    began = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - began) / repeats * 1e6


def compare(pair: Pair, size: int, pick: Callable[..., float]) -> list[float]:
    repeats = max(1, min(MOST_CALLS, TURN // size))
    turns = max(LEAST_TURNS, min(MOST_TURNS, ALL // size // repeats))
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(turns):
        for call, found in zip(pair, times, strict=True):
            found.append(measure(call, repeats))
    # Of the slowest rank: a root may be done before the others have anything.
    slowest = np.array(times)
    WORLD.Allreduce(MPI.IN_PLACE, slowest, MPI.MAX)
    return [float(pick(found)) for found in slowest]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--least", action="store_true", help="not medians")
    parser.add_argument("--only", help="this operation")
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES)
    plots.add_option(parser, "backends_mpi")
    options = parser.parse_args()
    pick = min if options.least else statistics.median
    distlite.init_process_group("mpi")
    if WORLD.rank == 0:
        print(f"{MPI.Get_library_version().splitlines()[0]}; {WORLD.size} ranks; us")
    panels = defaultdict(lambda: {"distlite": {}, "mpi4py": {}})
    for size in options.sizes:
        for name, pair in pairs(size).items():
            if options.only not in (None, name):
                continue
            ours, theirs = compare(pair, size, pick)
            if WORLD.rank == 0:
                ratio = f"{ours / theirs:6.2f}"
                print(f"{size:9} {name:15} {ours:10.1f} {theirs:10.1f} {ratio}")
                if name != "barrier":
                    panels[name]["distlite"][size] = ours
                    panels[name]["mpi4py"][size] = theirs
    if WORLD.rank == 0:
        plots.draw_sizes(options.plot, panels)
    distlite.destroy_process_group()


if __name__ == "__main__":
    main()
