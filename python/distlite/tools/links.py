# SPDX-License-Identifier: BSD-3-Clause
"""Tests the link of each pair of ranks for ``distlite doctor``: whether they can
connect, and how fast they are.

The connections are plain sockets to addresses from the store, so that problems are also
found if no group can be made.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import socket
import statistics
import time
from datetime import timedelta
from typing import Any

import numpy as np

import distlite as dist

CONNECT_SECONDS = 3.0
# Bytes of one message: the first size is for the latency, the last for the bandwidth.
SIZES = (8, 256, 4 << 10, 64 << 10, 512 << 10, 4 << 20)
MOST_ROUNDS, LEAST_ROUNDS, BYTES_OF_ROUNDS = 50, 3, 1 << 20
# All pairs of more ranks would take minutes: then each rank is measured with its
# neighbour and with rank 0.
ALL_PAIRS_UNTIL = 12


def pairs_of(size: int) -> list[tuple[int, int]]:
    """Returns the pairs of ranks whose links are measured, one after the other."""
    if size <= ALL_PAIRS_UNTIL:
        return list(itertools.combinations(range(size), 2))
    chosen = {(0, rank) for rank in range(1, size)}
    return sorted(chosen | {(rank, rank + 1) for rank in range(size - 1)})


class Door:
    """A listening socket that others try to connect to; the kernel accepts the
    connections."""

    def __init__(self, address: str | None) -> None:
        self.socket: socket.socket | None = None
        self.where: tuple[str, int] | None = None
        if address is None:
            return
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        try:
            self.socket = socket.socket(family)
            self.socket.bind((address, 0))
            self.socket.listen(128)
            self.where = (address, int(self.socket.getsockname()[1]))
        except OSError:
            self.close()

    def close(self) -> None:
        """Closes the socket."""
        if self.socket is not None:
            self.socket.close()
        self.socket = None


def connect(where: tuple[str, int] | None) -> dict[str, Any]:
    """Returns the seconds that connecting took, or why it failed."""
    if where is None:
        return {"connect_ms": None, "error": "it has no address to listen on"}
    began = time.perf_counter()
    try:
        with socket.create_connection((where[0], where[1]), CONNECT_SECONDS):
            span = time.perf_counter() - began
    except OSError as error:
        text = f"connecting to {where[0]}:{where[1]}: {error.strerror or error}"
        return {"connect_ms": None, "error": text}
    return {"connect_ms": round(span * 1e3, 3), "error": None}


def try_doors(
    store: dist.Store, rank: int, size: int, doors: list[tuple[str, int] | None]
) -> list[dict[str, Any]]:
    """Returns what every rank found out, exchanged through `store`."""
    mine = [
        {"from": rank, "to": peer, **connect(doors[peer])}
        for pair in pairs_of(size)
        if rank in pair
        for peer in pair
        if peer != rank
    ]
    return list(itertools.chain(*exchange(store, "links", (rank, size), mine)))


def exchange(store: dist.Store, key: str, who: tuple[int, int], mine: Any) -> list[Any]:
    """Returns the values of all ranks through the store; raises DistStoreError if a
    rank does not come."""
    rank, size = who
    store.set(f"doctor/{key}/{rank}", json.dumps(mine))
    keys = [f"doctor/{key}/{peer}" for peer in range(size)]
    return [json.loads(store.get(key)) for key in keys]


def leave(store: dist.Store, who: tuple[int, int]) -> None:
    """Lets the first rank, which may serve the store, wait for the others and leave
    last."""
    rank, size = who
    if rank == 0:
        store.wait([f"doctor/done/{peer}" for peer in range(1, size)])
        return
    with contextlib.suppress(dist.DistNetworkError):  # the store has just ended
        store.set(f"doctor/done/{rank}", "")


def measure(rank: int, size: int) -> dict[tuple[int, int], dict[str, Any]]:
    """Measures one pair at a time over the default group, while the others wait."""
    found = {}
    for pair in pairs_of(size):
        if rank in pair:
            peer = pair[0] + pair[1] - rank
            result = _measure_pair(rank == pair[0], peer)
            if rank == pair[0]:
                found[pair] = result
        dist.barrier()
    return found


def _measure_pair(is_first: bool, peer: int) -> dict[str, Any]:
    memory = np.zeros(SIZES[-1], np.uint8)
    spans = {}
    for size in SIZES:
        array = memory[:size]
        _ping_pong(array, is_first, peer, 2)  # connects, and touches memory
        rounds = min(MOST_ROUNDS, max(LEAST_ROUNDS, BYTES_OF_ROUNDS // size))
        spans[size] = _ping_pong(array, is_first, peer, rounds)
    return {
        "latency_us": round(spans[SIZES[0]] * 1e6, 2),
        "mb_per_s": round(SIZES[-1] / spans[SIZES[-1]] / 1e6, 1),
        "times_us": [[size, round(span * 1e6, 2)] for size, span in spans.items()],
    }


def _ping_pong(array: Any, is_first: bool, peer: int, rounds: int) -> float:
    """Returns the seconds of one way, the median of the rounds."""
    spans = []
    for _ in range(rounds):
        began = time.perf_counter()
        if is_first:
            dist.send(array, peer)
            dist.recv(array, peer)
        else:
            dist.recv(array, peer)
            dist.send(array, peer)
        spans.append(time.perf_counter() - began)
    return statistics.median(spans) / 2


def join(store: dist.Store, rank: int, size: int, timeout: timedelta) -> str | None:
    """Makes the default group; returns why it could not be made, or None."""
    try:
        dist.init_process_group(
            "gloo", store=store, rank=rank, world_size=size, timeout=timeout
        )
    except (RuntimeError, ValueError) as error:
        return str(error)
    return None
