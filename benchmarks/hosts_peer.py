# SPDX-License-Identifier: BSD-3-Clause
"""One rank of hosts.py: hosts_peer.py, with the words

    SIDE RANK SIZE ADDRESS SECONDS MBIT DELAY_US BYTES...

Rank 0 prints {"bytes": microseconds} as JSON, medians of all_reduce; of the side "raw",
round trips of bytes through plain sockets.  A side that is a path is a program, which
is told the number of calls.  An MPI knows the rank and the size itself.  The number of
calls follows from how many the links could carry in SECONDS.
"""

from __future__ import annotations

import json
import os
import socket
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

PORT = 29400


# Of ranks that wait for each other over a link with a delay, one may return at once
# from every other call, so single calls say little.
GROUP = 8


def microseconds_of(call: Callable[[], Any], count: int) -> float:
    """The median of groups of calls, each group's mean."""
    size = min(GROUP, max(1, count // 3))
    means = []
    for _ in range(max(1, count // size)):
        start = time.perf_counter()
        for _ in range(size):
            call()
        means.append((time.perf_counter() - start) / size)
    return statistics.median(means) * 1e6


def connect(rank: int, address: str) -> socket.socket:
    """Returns a blocking connection, as a simple program would make it."""
    if rank == 0:
        with socket.create_server((address, PORT)) as server:
            peer, _ = server.accept()
    else:
        deadline = time.monotonic() + 30
        while True:
            try:
                peer = socket.create_connection((address, PORT))
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return peer


def raw(rank: int, address: str, sizes: list[int], count: Callable[[int], int]) -> Any:
    """Measures round trips."""
    results = {}
    with connect(rank, address) as peer:
        for size in sizes:
            data = bytes(size)
            room = memoryview(bytearray(size))

            def receive(room: memoryview = room) -> None:
                got = 0
                while got < len(room):
                    got += peer.recv_into(room[got:])

            def turn(data: bytes = data) -> None:
                if rank == 0:
                    peer.sendall(data)
                receive()
                if rank == 1:
                    peer.sendall(data)

            microseconds_of(turn, 2)
            results[size] = microseconds_of(turn, count(size))
    return results


class MpiRanks:
    """The functions of torch.distributed that are used here, by mpi4py."""

    def __init__(self) -> None:
        from mpi4py import MPI

        self._in_place = MPI.IN_PLACE
        self._world = MPI.COMM_WORLD
        self.rank = self._world.Get_rank()

    def all_reduce(self, array: Any) -> None:
        self._world.Allreduce(self._in_place, array)

    def barrier(self) -> None:
        self._world.Barrier()

    def destroy_process_group(self) -> None:
        """mpi4py does when the process ends."""


def reduce_with(
    dist: Any,
    array: Callable[[int], Any],
    sizes: list[int],
    count: Callable[[int], int],
) -> Any:
    results = {}
    for size in sizes:
        data = array(size // 4)
        dist.barrier()
        microseconds_of(lambda data=data: dist.all_reduce(data), 2)
        results[size] = microseconds_of(
            lambda data=data: dist.all_reduce(data), count(size)
        )
    dist.barrier()
    dist.destroy_process_group()
    return results


def ranks_of(side: str, init: dict[str, Any]) -> tuple[Any, Callable[[int], Any]]:
    """Returns the object that has the collectives, and a function that makes arrays for
    them."""
    if side == "torch":
        import torch
        import torch.distributed as dist

        dist.init_process_group("gloo", **init)
        return dist, torch.zeros
    import numpy as np

    make = lambda size: np.zeros(size, "float32")  # noqa: E731
    if side != "distlite":
        return MpiRanks(), make
    import distlite

    distlite.init_process_group("gloo", **init)
    return distlite, make


def main() -> None:
    side, address = sys.argv[1], sys.argv[4]
    rank, world, seconds = int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[5])
    mbit, delay = float(sys.argv[6]), float(sys.argv[7]) * 1e-6
    bytes_per_second = min(1e9, mbit * 1e6 / 8) if mbit else 1e9
    sizes = [int(word) for word in sys.argv[8:]]

    def count(size: int) -> int:
        """The same on all ranks."""
        each = 30e-6 + 2 * delay + size / bytes_per_second
        return min(2000, max(3, int(seconds / each)))

    if "/" in side:
        calls = [f"{size}:{count(size)}" for size in sizes]
        os.execv(side, [side, str(rank), address, str(PORT), *calls])
    if side == "raw":
        results = raw(rank, address, sizes, count)
    else:
        init = dict(init_method=f"tcp://{address}:{PORT}", rank=rank, world_size=world)
        dist, make = ranks_of(side, init)
        rank = getattr(dist, "rank", rank)
        results = reduce_with(dist, make, sizes, count)
    if rank == 0:
        print(json.dumps(results), flush=True)


if __name__ == "__main__":
    main()
