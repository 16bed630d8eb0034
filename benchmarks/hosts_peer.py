# SPDX-License-Identifier: BSD-3-Clause
"""One rank of hosts.py: hosts_peer.py SIDE RANK SIZE ADDRESS SECONDS BYTES...

Rank 0 prints {"bytes": microseconds} as JSON, medians of all_reduce; of the side "raw",
round trips of bytes through plain sockets.
"""

from __future__ import annotations

import json
import socket
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

PORT = 29400


def median_of(call: Callable[[], Any], count: int) -> float:
    """Microseconds."""
    times = []
    for _ in range(count):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e6


def connect(rank: int, address: str) -> socket.socket:
    """Blocking, as a program would write it at first."""
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
    """There and back again."""
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

            median_of(turn, 3)
            results[size] = median_of(turn, count(size))
    return results


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
        median_of(lambda data=data: dist.all_reduce(data), 3)
        results[size] = median_of(lambda data=data: dist.all_reduce(data), count(size))
    dist.barrier()
    dist.destroy_process_group()
    return results


def main() -> None:
    side, address = sys.argv[1], sys.argv[4]
    rank, world, seconds = int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[5])
    sizes = [int(word) for word in sys.argv[6:]]

    def count(size: int) -> int:
        """As if 30 us and 1 GB/s, the same on all ranks."""
        return max(5, int(seconds / (30e-6 + size / 1e9)))

    if side == "raw":
        results = raw(rank, address, sizes, count)
    else:
        init = dict(init_method=f"tcp://{address}:{PORT}", rank=rank, world_size=world)
        if side == "torch":
            import torch
            import torch.distributed as dist

            dist.init_process_group("gloo", **init)
            results = reduce_with(dist, torch.zeros, sizes, count)
        else:
            import numpy as np

            import distlite

            distlite.init_process_group("gloo", **init)
            make = lambda size: np.zeros(size, "float32")  # noqa: E731
            results = reduce_with(distlite, make, sizes, count)
    if rank == 0:
        print(json.dumps(results))


if __name__ == "__main__":
    main()
