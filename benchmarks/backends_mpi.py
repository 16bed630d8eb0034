# SPDX-License-Identifier: BSD-3-Clause
"""The backends mpi or gloo beside mpi4py's own calls, in turns of one process.

mpirun -n 2 python benchmarks/backends_mpi.py [--backend gloo] [--least] [--only scan]

For each operation and size the median of both in microseconds, and their ratio.  Turns
are short and many, so that on a busy machine the shortest one was not disturbed. With
--fifo each turn has its cores for itself, for which the process needs the right to ask
for SCHED_FIFO.  On one host the ranks of backend mpi share memory; with
DISTLITE_MPI_SHARED_MEMORY=0 they use MPI.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
import plots
from mpi4py import MPI

import distlite

SIZES = [8 << (3 * step) for step in range(8)]
# Bytes of one turn and of all turns, and the limits of calls and of turns.
TURN, ALL = 1 << 19, 1 << 28
MOST_CALLS, MOST_TURNS, LEAST_TURNS = 20, 200, 40
WORLD = MPI.COMM_WORLD
LOCATED = np.dtype([("value", "f8"), ("index", "i4")], align=True)
RINGS: list[Any] = []
Pair = tuple[Callable[[], object], Callable[[], object]]


def pairs(size: int) -> dict[str, Pair]:
    """Returns the calls of distlite and of mpi4py by operation, for arrays of `size`
    bytes on each rank."""
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
        found |= message_pairs(array, other, peer)
    return found | reduction_pairs(size) | neighbour_pairs(array)


def message_pairs(array: Any, other: Any, peer: int) -> dict[str, Pair]:
    """Returns the calls for messages that are probed or exchanged."""
    is_odd = WORLD.rank % 2

    def our_probe() -> None:
        if not is_odd:
            distlite.send(array, peer)
        message = distlite.probe(peer)
        distlite.recv(other, message.source, tag=message.tag)
        if is_odd:
            distlite.send(array, peer)

    def their_probe() -> None:
        status = MPI.Status()
        if not is_odd:
            WORLD.Send(array, peer)
        WORLD.Probe(peer, MPI.ANY_TAG, status)
        WORLD.Recv(other, status.source, status.tag)
        if is_odd:
            WORLD.Send(array, peer)

    def our_both() -> None:
        work = distlite.isend(array, peer)
        distlite.recv(other, peer)
        work.wait()

    return {
        "probe, recv": (our_probe, their_probe),
        "isend and recv": (
            our_both,
            lambda: WORLD.Sendrecv(array, peer, 0, other, peer),
        ),
    }


def reduction_pairs(size: int) -> dict[str, Pair]:
    """Returns the calls for prefixes, and for reductions other than sums."""
    result = np.zeros(size // 8)
    before = result.copy()
    located = np.zeros(max(1, size // 16), LOCATED)

    return {
        "scan": (
            lambda: distlite.scan(result),
            lambda: WORLD.Scan(MPI.IN_PLACE, result),
        ),
        "exscan": (
            lambda: distlite.exscan(before),
            lambda: WORLD.Exscan(MPI.IN_PLACE, before),
        ),
        "MINLOC": (
            lambda: distlite.all_reduce(located, distlite.ReduceOp.MINLOC),
            lambda: WORLD.Allreduce(
                MPI.IN_PLACE, [located, MPI.DOUBLE_INT], MPI.MINLOC
            ),
        ),
        "np.hypot": (
            lambda: distlite.all_reduce(result, np.hypot),
            lambda: WORLD.Allreduce(MPI.IN_PLACE, result, HYPOT),
        ),
    }


def neighbour_pairs(array: Any) -> dict[str, Pair]:
    """Returns the calls by which the ranks of a ring exchange arrays."""
    sent, got = np.stack([array] * 2), np.empty((2, len(array)))

    return {
        "neighbours": (
            lambda: RINGS[0].neighbor_all_to_all(got, sent),
            lambda: RINGS[1].Neighbor_alltoall(sent, got),
        ),
        "neighbour gather": (
            lambda: RINGS[0].neighbor_all_gather(got, array),
            lambda: RINGS[1].Neighbor_allgather(array, got),
        ),
    }


def hypot(left: Any, right: Any, _: Any) -> None:
    """The reduction as a function for MPI, which takes none of NumPy's."""
    both = np.frombuffer(right)
    np.hypot(np.frombuffer(left), both, out=both)


def set_realtime(is_realtime: bool) -> None:
    policy = os.SCHED_FIFO if is_realtime else os.SCHED_OTHER
    os.sched_setscheduler(0, policy, os.sched_param(int(is_realtime)))


# As MPI combines them.
HYPOT = MPI.Op.Create(hypot, commute=True)


def measure(call: Callable[[], object], repeats: int, is_realtime: bool) -> float:
    WORLD.Barrier()
    if is_realtime:
        set_realtime(True)
        WORLD.Barrier()
    began = time.perf_counter()
    for _ in range(repeats):
        call()
    took = (time.perf_counter() - began) / repeats * 1e6
    if is_realtime:
        set_realtime(False)
    return took


def compare(
    pair: Pair, size: int, pick: Callable[..., float], is_realtime: bool
) -> list[float]:
    repeats = max(1, min(MOST_CALLS, TURN // size))
    turns = max(LEAST_TURNS, min(MOST_TURNS, ALL // size // repeats))
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(turns):
        for call, found in zip(pair, times, strict=True):
            found.append(measure(call, repeats, is_realtime))
    # The time of the slowest rank: a root may be done before the others have the data.
    slowest = np.array(times)
    WORLD.Allreduce(MPI.IN_PLACE, slowest, MPI.MAX)
    return [float(pick(found)) for found in slowest]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--least", action="store_true", help="not medians")
    parser.add_argument("--backend", choices=["mpi", "gloo"], default="mpi")
    parser.add_argument("--only", nargs="*", default=[], help="these operations")
    parser.add_argument("--fifo", action="store_true")
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES)
    plots.add_option(parser, "backends_mpi")
    options = parser.parse_args()
    pick = min if options.least else statistics.median
    distlite.init_process_group(options.backend)
    RINGS[:] = [distlite.Cartesian(0, True), WORLD.Create_cart([WORLD.size], [True])]
    if WORLD.rank == 0:
        print(f"{MPI.Get_library_version().splitlines()[0]}; {WORLD.size} ranks; us")
    panels = defaultdict(lambda: {"distlite": {}, "mpi4py": {}})
    for size in options.sizes:
        for name, pair in pairs(size).items():
            if options.only and name not in options.only:
                continue
            ours, theirs = compare(pair, size, pick, options.fifo)
            if WORLD.rank == 0:
                ratio = f"{ours / theirs:6.2f}"
                print(f"{size:9} {name:16} {ours:10.1f} {theirs:10.1f} {ratio}")
                if name != "barrier":
                    panels[name]["distlite"][size] = ours
                    panels[name]["mpi4py"][size] = theirs
    if WORLD.rank == 0:
        plots.draw_sizes(options.plot, panels)
    distlite.destroy_process_group()


if __name__ == "__main__":
    main()
