# SPDX-License-Identifier: BSD-3-Clause
"""The mpi backend beside mpi4py's own calls on the same library, in turns.

mpirun -n 2 python benchmarks/backends_mpi.py [--least]: for each operation and size the
median of both in microseconds, and their ratio.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np
from mpi4py import MPI

import distlite

SIZES = [8 << (3 * step) for step in range(8)]
TURNS = 7
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
    if ranks % 2 == 0:
        found["send, recv"] = (our_exchange, their_exchange)
    return found


def measure(call: Callable[[], object], repeats: int) -> float:
    WORLD.Barrier()
    began = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - began) / repeats * 1e6


def compare(pair: Pair, size: int, pick: Callable[[list[float]], float]) -> list[float]:
    repeats = max(2, min(1000, (8 << 20) // size))
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(TURNS):
        for call, found in zip(pair, times, strict=True):
            found.append(measure(call, repeats))
    return [pick(found) for found in times]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--least", action="store_true", help="not medians")
    pick = min if parser.parse_args().least else statistics.median
    distlite.init_process_group("mpi")
    if WORLD.rank == 0:
        print(f"{MPI.Get_library_version().splitlines()[0]}; {WORLD.size} ranks; us")
    for size in SIZES:
        for name, pair in pairs(size).items():
            ours, theirs = compare(pair, size, pick)
            if WORLD.rank == 0:
                ratio = f"{ours / theirs:6.2f}"
                print(f"{size:9} {name:15} {ours:10.1f} {theirs:10.1f} {ratio}")
    distlite.destroy_process_group()


if __name__ == "__main__":
    main()
