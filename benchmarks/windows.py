# SPDX-License-Identifier: BSD-3-Clause
"""Windows beside mpi4py's, in turns of one run.

mpirun -n 2 python benchmarks/windows.py [--backend mpi] [--least] [--hosts]

Rank 0 accesses the memory of rank 1, which waits in a barrier meanwhile; "contended" is
what a draw takes while all ranks draw numbers from one counter.  An access is complete
when it is timed: mpi4py's are followed by a flush, in an epoch of Lock_all.  Medians of
many short turns, in microseconds.  With --hosts, distlite's ranks count as hosts, so
that its accesses go by TCP; MPI's do not.  Open MPI 4.1.4 needs --without
compare_and_swap, in which its target crashes.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI

import distlite

SIZES = [8 << (3 * step) for step in range(8)]
# Bytes of one turn and of all turns, and the limits of calls and of turns.
TURN, ALL = 1 << 19, 1 << 28
MOST_CALLS, MOST_TURNS, LEAST_TURNS = 50, 200, 40
WORLD = MPI.COMM_WORLD
TARGET = 1
Pair = tuple[Callable[[], object], Callable[[], object]]


def pairs(size: int, ours: Any, theirs: Any) -> dict[str, Pair]:
    """Returns the calls of distlite and of mpi4py by operation, for arrays of `size`
    bytes."""
    array = np.ones(size // 8)
    result = array.copy()

    def their_put() -> None:
        theirs.Put(array, TARGET)
        theirs.Flush(TARGET)

    def our_put() -> None:
        ours.put(array, TARGET)
        ours.flush(TARGET)

    def their_get() -> None:
        theirs.Get(result, TARGET)
        theirs.Flush(TARGET)

    def their_accumulate() -> None:
        theirs.Accumulate(array, TARGET, op=MPI.SUM)
        theirs.Flush(TARGET)

    def our_accumulate() -> None:
        ours.accumulate(array, TARGET)
        ours.flush(TARGET)

    def our_later() -> None:
        ours.put(array, TARGET, async_op=True).wait()

    def their_later() -> None:
        theirs.Rput(array, TARGET).Wait()
        theirs.Flush(TARGET)

    def their_fetch() -> None:
        theirs.Get_accumulate(array, result, TARGET, op=MPI.SUM)
        theirs.Flush(TARGET)

    return {
        "put": (our_put, their_put),
        "put, async_op": (our_later, their_later),
        "get": (lambda: ours.get(result, TARGET), their_get),
        "accumulate": (our_accumulate, their_accumulate),
        "get_accumulate": (
            lambda: ours.get_accumulate(array, TARGET, out=result),
            their_fetch,
        ),
    }


def single(ours: Any, theirs: Any) -> dict[str, Pair]:
    """Operations on one element."""
    one, old, compared = np.ones(1, int), np.empty(1, int), np.zeros(1, int)

    def their_draw() -> None:
        theirs.Fetch_and_op(one, old, TARGET, op=MPI.SUM)
        theirs.Flush(TARGET)

    def their_swap() -> None:
        theirs.Compare_and_swap(one, compared, old, TARGET)
        theirs.Flush(TARGET)

    return {
        "fetch_and_op": (lambda: ours.fetch_and_op(1, TARGET), their_draw),
        "compare_and_swap": (
            lambda: ours.compare_and_swap(1, 0, TARGET),
            their_swap,
        ),
    }


def locks(ours: Any, theirs: Any) -> dict[str, Pair]:
    def our_lock() -> None:
        ours.lock(TARGET)
        ours.unlock(TARGET)

    def their_lock() -> None:
        theirs.Lock(TARGET)
        theirs.Unlock(TARGET)

    return {"lock, unlock": (our_lock, their_lock)}


def measure(call: Callable[[], object], repeats: int, is_contended: bool) -> float:
    WORLD.Barrier()
    took = 0.0
    if is_contended or WORLD.rank == 0:
        began = time.perf_counter()
        for _ in range(repeats):
            call()
        took = (time.perf_counter() - began) / repeats * 1e6
    WORLD.Barrier()
    return took


def compare(
    pair: Pair, size: int, pick: Callable[..., float], is_contended: bool = False
) -> list[float]:
    repeats = max(1, min(MOST_CALLS, TURN // size))
    turns = max(LEAST_TURNS, min(MOST_TURNS, ALL // size // repeats))
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(turns):
        for call, found in zip(pair, times, strict=True):
            found.append(measure(call, repeats, is_contended))
    slowest = np.array(times)
    WORLD.Allreduce(MPI.IN_PLACE, slowest, MPI.MAX)
    return [float(pick(found)) for found in slowest]


def show(size: int, name: str, times: list[float]) -> None:
    ours, theirs = times
    if WORLD.rank == 0:
        print(f"{size:9} {name:16} {ours:10.2f} {theirs:10.2f} {ours / theirs:6.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", choices=["gloo", "mpi"], default="gloo")
    parser.add_argument("--least", action="store_true", help="not medians")
    parser.add_argument("--only", help="this operation")
    parser.add_argument("--without", nargs="*", default=[], help="these operations")
    parser.add_argument("--hosts", action="store_true")
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES)
    options = parser.parse_args()
    pick = min if options.least else statistics.median
    if options.hosts:
        os.environ["DISTLITE_HOST_HINT"] = f"host{WORLD.rank}"
    distlite.init_process_group(options.backend)
    largest = max(options.sizes) // 8
    ours = distlite.Window(largest)
    theirs = MPI.Win.Allocate(8 * largest, 8, comm=WORLD)
    if WORLD.rank == 0:
        version = MPI.Get_library_version().splitlines()[0]
        print(f"{version}; {WORLD.size} ranks; us: distlite, mpi4py, ratio")

    def run(size: int, found: dict[str, Pair], is_contended: bool = False) -> None:
        for name, pair in found.items():
            if options.only in (None, name) and name not in options.without:
                title = f"{name}, all" if is_contended else name
                show(size, title, compare(pair, size, pick, is_contended))

    run(8, locks(ours, theirs))
    theirs.Lock_all()
    for size in options.sizes:
        run(size, pairs(size, ours, theirs))
    theirs.Unlock_all()
    ours.close()
    theirs.Free()
    # MPI's compare_and_swap takes integers only.
    ours = distlite.Window(1, int)
    theirs = MPI.Win.Allocate(8, 8, comm=WORLD)
    theirs.Lock_all()
    run(8, single(ours, theirs))
    run(8, single(ours, theirs), is_contended=True)
    theirs.Unlock_all()
    ours.close()
    theirs.Free()
    distlite.destroy_process_group()


if __name__ == "__main__":
    main()
